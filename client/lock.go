package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/kv"
)

// queueWait is how long one request waits in a lock's queue at most. Who asks again after that is the
// queue's last, so it is as long as servers offer; who fell silent is found out by the renewals.
const queueWait = 10 * time.Minute

// farewell bounds what is told the cluster when a lock is given up or back, all servers together.
const farewell = 5 * time.Second

// LockOptions say which lock to acquire and how. Name is required; every other field has a default.
type LockOptions struct {
	Name string
	// Value is shown with the holder, to people and to those who wait; at most 4 KiB.
	Value []byte
	// TTL is how long the lock lasts without a renewal; it is renewed every third of that. 0:
	// DefaultSessionTTL.
	TTL time.Duration
	// LockDelay is for how long nobody gets the lock when its holder died; see SessionOptions.
	LockDelay time.Duration
	// Try does not wait: ErrNotAcquired if somebody else holds the lock or waits for it.
	Try bool
	// Recipe keeps the lock or permit in keys, as Consul's own clients and tools do, so that they see it
	// and take part: a lock is the key lock/NAME, acquired with a session, whose value is lock:TIME while
	// it is held and unlock:TIME afterwards; a semaphore is the contenders' keys semaphore/NAME/SESSION
	// and the holders' list semaphore/NAME/.lock, which is changed by check-and-set. Value is not kept
	// then. Those who wait have no queue: whoever is first after a release gets it. Fence is that of the
	// key (of the contender's key for a permit). Without Recipe Rollcall's own locks are used, which know
	// nothing of the keys.
	Recipe bool
}

// SemaphoreOptions say which semaphore to acquire a permit of, and how.
type SemaphoreOptions struct {
	LockOptions
	// Limit is the number of permits, at least 1. Who comes first fixes it until nobody holds a permit or
	// waits for one; others get ErrLimit.
	Limit int
}

// AcquireLock waits for a lock until it has it or ctx ends, in the order in which waiters came, and
// keeps it until Release. It creates a session of its own for that. While no server can be reached it
// tries on, unless LockOptions.Try is set.
//
// Locks are those of Rollcall's own API; keys that were acquired by Consul's recipes are not among
// them. ErrNotAcquired: see LockOptions.Try.
func (c *Client) AcquireLock(ctx context.Context, o LockOptions) (*Held, error) {
	return c.acquire(ctx, permit{kind: kv.Lock, LockOptions: o})
}

// AcquireSemaphore is AcquireLock for one of the permits of a semaphore. ErrLimit: the semaphore is in
// use with another limit.
func (c *Client) AcquireSemaphore(ctx context.Context, o SemaphoreOptions) (*Held, error) {
	if o.Limit < 1 {
		return nil, fmt.Errorf("acquire semaphore %q: limit %d is not at least 1", o.Name, o.Limit)
	}
	return c.acquire(ctx, permit{kind: kv.Semaphore, limit: o.Limit, LockOptions: o.LockOptions})
}

// permit is what is to be acquired.
type permit struct {
	kind  kv.Kind
	limit int // of a semaphore
	LockOptions
}

func (p permit) String() string { return fmt.Sprintf("%s %q", kindName(p.kind), p.Name) }

// sessionName tells people what a session is for, as far as a session's name may be long.
func (p permit) sessionName() string {
	const longest = 255
	if name := p.String(); len(name) <= longest {
		return name
	}
	return p.Name
}

func kindName(k kv.Kind) string {
	switch k {
	case kv.Lock:
		return "lock"
	case kv.Semaphore:
		return "semaphore"
	}
	return "key"
}

// acquire acquires with one session after the other: one that ends while it waits gives its place away.
func (c *Client) acquire(ctx context.Context, p permit) (*Held, error) {
	if p.Name == "" {
		return nil, fmt.Errorf("acquire a %s: no name is given", kindName(p.kind))
	}
	for failures := 0; ; failures++ {
		held, err := c.acquireOnce(ctx, p)
		if err == nil {
			return held, nil
		}
		if p.hopeless(err) || !wait(ctx, retryPause(failures)) {
			return nil, fmt.Errorf("acquire %s: %w", p, err)
		}
		c.log.Warn("not acquired, trying again", kindName(p.kind), p.Name, "err", err)
	}
}

// hopeless says that another session would fare no better.
func (p permit) hopeless(err error) bool {
	return p.Try || refused(err) || offersNone(err) || errors.Is(err, ErrLimit)
}

func (c *Client) acquireOnce(ctx context.Context, p permit) (*Held, error) {
	k, err := c.keep(ctx, SessionOptions{Name: p.sessionName(), TTL: p.TTL, LockDelay: p.LockDelay})
	if err != nil {
		return nil, err
	}
	h := &Held{keeper: k, fence: kv.Fence{Kind: p.kind, Name: p.Name}}
	h.fence.Index, err = k.queue(ctx, p)
	if err != nil {
		h.abandon(ctx)
		return nil, err
	}
	return h, nil
}

// queue waits until the session has the permit, and returns its token. A request that is repeated
// leaves the permit, or the place in the queue, where it is.
func (k *keeper) queue(ctx context.Context, p permit) (kv.Index, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(k.ctx, func() { cancel(context.Cause(k.ctx)) })()
	if fence, done, err := k.peek(ctx, p); done || err != nil {
		return fence, err
	}
	for failures := 0; ; {
		started := time.Now()
		a, err := k.ask(ctx, p, p.patience(ctx))
		switch {
		case err == nil && a.Acquired && k.valid():
			return a.Fence, nil
		case ctx.Err() != nil:
			return 0, context.Cause(ctx)
		case err == nil && p.Try:
			return 0, a.refusal()
		case err != nil && (p.hopeless(err) || noSession(err)):
			return 0, err
		case err != nil:
			k.client.log.Info("waiting was cut, trying again", kindName(p.kind), p.Name, "err", err)
		case time.Since(started) >= time.Second:
			failures = 0
			continue // the server's time was up
		}
		if !wait(ctx, retryPause(failures)) {
			return 0, context.Cause(ctx)
		}
		failures++
	}
}

// patience is how long the next request is to wait.
func (p permit) patience(ctx context.Context) time.Duration {
	if p.Try {
		return 0
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		return queueWait
	}
	return min(queueWait, max(time.Until(deadline), time.Millisecond))
}

// peek tells the log who is in the way before the session joins the queue, if anybody reads that.
func (k *keeper) peek(ctx context.Context, p permit) (fence kv.Index, acquired bool, err error) {
	if p.Try || !k.client.log.Enabled(ctx, slog.LevelInfo) {
		return 0, false, nil
	}
	a, err := k.ask(ctx, p, 0)
	switch {
	case err != nil && p.hopeless(err):
		return 0, false, err
	case err != nil:
		return 0, false, nil // the next request will say it
	case a.Acquired:
		return a.Fence, k.valid(), nil
	}
	k.client.log.Info("waiting", kindName(p.kind), p.Name, "held_by", a.holders())
	return 0, false, nil
}

// acquisition is the answer to a request for a permit.
type acquisition struct {
	Acquired bool     `json:"acquired"`
	Fence    kv.Index `json:"fence"`
	Place    int      `json:"place"`
	Limit    int      `json:"limit"`
	Holders  []Holder `json:"holders"`
}

func (a acquisition) refusal() error {
	return fmt.Errorf("%w: held by %s", ErrNotAcquired, a.holders())
}

// holders names them by their values, or else by their sessions.
func (a acquisition) holders() string {
	var names []string
	for _, h := range a.Holders {
		names = append(names, cmp.Or(string(h.Value), h.Session))
	}
	return cmp.Or(strings.Join(names, ", "), "others, or nobody until a lock-delay is over")
}

// ask makes one request, which waits in the queue for a time; 0: it does not. A session that has the
// permit already keeps it, so it may be repeated.
func (k *keeper) ask(ctx context.Context, p permit, d time.Duration) (acquisition, error) {
	ctx, cancel := k.routed(ctx)
	defer cancel()
	q := url.Values{"session": {k.session}}
	if p.kind == kv.Semaphore {
		q.Set("limit", strconv.Itoa(p.limit))
	}
	if d > 0 {
		q.Set("wait", d.String())
	}
	a, err := k.client.do(ctx, call{
		method: http.MethodPut, path: permitPath(p.kind, p.Name), query: q, body: append([]byte{}, p.Value...), raw: true, write: true,
		patience: d + k.client.timeout,
	})
	if err != nil {
		return acquisition{}, err
	}
	switch a.status {
	case http.StatusNotFound:
		return acquisition{}, ErrNoSession
	case http.StatusConflict:
		return acquisition{}, fmt.Errorf("%w: %w", ErrLimit, a.refusal())
	}
	var got acquisition
	return got, a.decode(&got)
}

func permitPath(k kv.Kind, name string) []string {
	if k == kv.Semaphore {
		return []string{"v1", "rollcall", "semaphores", name}
	}
	return []string{"v1", "rollcall", "locks", name}
}
