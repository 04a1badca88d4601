package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/seed-20419f34/rollcall/client/internal/transport"
	"github.com/seed-20419f34/rollcall/client/internal/wait"
	"github.com/seed-20419f34/rollcall/fsm/kv"
)

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
	// then. Those who wait have no queue: whoever is first after a release gets it. A permit has no
	// lock-delay: whoever comes next takes the dead out of the list. Fence is that of the key (of the
	// contender's key for a permit). Without Recipe Rollcall's own locks are used, which know nothing of
	// the keys. Source: github.com/hashicorp/consul/api, lock.go and semaphore.go.
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
// keeps it until Release or Client.Close. It creates a session of its own for that, so who holds a lock
// and acquires it again waits for itself. While no server can be reached it tries on, unless
// LockOptions.Try is set.
//
// Locks are those of Rollcall's own API, unless LockOptions.Recipe is set. ErrNotAcquired: see
// LockOptions.Try. ErrKeyConflict: LockOptions.Recipe needs a key that is in use for something else.
// ErrClosed: the client was closed, or is being closed.
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
	// until, if not nil, is closed when Client.Close may give it back.
	until <-chan struct{}
}

func (p permit) String() string { return fmt.Sprintf("%s %q", kindName(p.kind), p.Name) }

// session is the session that holds it.
func (p permit) session() SessionOptions {
	return SessionOptions{
		Name: p.sessionName(), TTL: p.TTL, LockDelay: p.LockDelay,
		DeleteKeys: p.Recipe && p.kind == kv.Semaphore, // the contender's key
	}
}

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
	ctx, begun, err := c.acquiring(ctx)
	if err != nil {
		return nil, fmt.Errorf("acquire %s: %w", p, err)
	}
	defer begun.end()
	for failures := 0; ; failures++ {
		held, err := c.acquireOnce(ctx, p)
		if err == nil {
			return held, nil
		}
		if p.Try || hopeless(err) || !wait.For(ctx, wait.Retry(failures)) {
			return nil, fmt.Errorf("acquire %s: %w", p, begun.reason(ctx, err))
		}
		if errors.Is(err, ErrLost) {
			failures = 0 // it had a session until now
		}
		if failures == 0 {
			c.log.Warn("not acquired, trying again", kindName(p.kind), p.Name, "err", err)
		}
	}
}

func (c *Client) acquireOnce(ctx context.Context, p permit) (*Held, error) {
	k, err := c.keep(ctx, p.session())
	if err != nil {
		return nil, err
	}
	h := &Held{keeper: k, permit: p, protocol: p.protocol(k)}
	if h.fence, err = h.protocol.take(ctx); err == nil {
		err = h.begin()
	}
	if err != nil {
		h.abandon(ctx)
		return nil, err
	}
	return h, nil
}

// Elect takes part in an election until ctx ends: it waits for the lock of that name and calls lead
// while it holds it. The context that lead gets ends when leadership is lost, or ctx ends; lead should
// return then, and nothing is given back before it has. If leadership was lost it takes part again.
//
// It returns what lead returned if leadership lasted until then (the lock is released), nil if ctx ended
// first, and an error if the cluster refuses the lock or the client was closed. (Client.Close ends the
// context of lead, and waits until it has returned before it gives the lock back.) As with every lock, a
// leader that was paused may go on for a moment without knowing that it is one no more: hand
// Held.Fence to what it writes to.
func (c *Client) Elect(ctx context.Context, o LockOptions, lead func(ctx context.Context, h *Held) error) error {
	for {
		again, err := c.term(ctx, o, lead)
		if !again {
			return err
		}
		c.log.Warn("leadership lost, taking part again", "lock", o.Name)
	}
}

// term waits for leadership and leads. again says that it was lost before lead returned.
func (c *Client) term(ctx context.Context, o LockOptions, lead func(context.Context, *Held) error) (again bool, err error) {
	returned := make(chan struct{})
	h, err := c.acquire(ctx, permit{kind: kv.Lock, LockOptions: o, until: returned})
	switch {
	case err != nil && ctx.Err() != nil && !errors.Is(err, ErrClosed):
		return false, nil
	case err != nil:
		return false, err
	}
	// Also if lead panics.
	defer h.resign(ctx)
	defer close(returned)
	err = h.lead(ctx, lead)
	switch over := h.Err(); {
	case errors.Is(over, ErrClosed):
		return false, fmt.Errorf("lead by lock %q: the client was %w", o.Name, ErrClosed)
	case ctx.Err() != nil:
		return false, nil
	case errors.Is(over, ErrLost):
		return true, nil
	}
	return false, err
}

// lead calls it with a context that ends with leadership and with ctx.
func (h *Held) lead(ctx context.Context, lead func(context.Context, *Held) error) error {
	if ctx.Err() != nil {
		return nil
	}
	leading, cancel := context.WithCancelCause(h.keeper.ctx)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
	return lead(keptContext{leading, h.keeper}, h)
}

// resign gives leadership back, also when ctx has ended.
func (h *Held) resign(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	if err := h.Release(ctx); err != nil && !errors.Is(err, ErrLost) {
		h.keeper.client.log.Warn("leadership not given back, it will be free when its session has ended", "lock", h.permit.Name, "err", err)
	}
}

// Leader returns who leads an election, which is who holds the lock of that name (not the key of
// LockOptions.Recipe). ErrNoLeader: nobody does.
func (c *Client) Leader(ctx context.Context, name string) (Holder, error) {
	p, err := c.Lock(ctx, name)
	if err == nil && len(p.Holders) == 0 {
		err = fmt.Errorf("lock %q: %w", name, ErrNoLeader)
	}
	if err != nil {
		return Holder{}, fmt.Errorf("find the leader: %w", err)
	}
	return p.Holders[0], nil
}

// CheckFence asks whether an acquisition lasts, by session or, if that is "", by whomever. The answer
// is true of a moment between question and answer; a Write that carries the fence is safer.
func (c *Client) CheckFence(ctx context.Context, f kv.Fence, session string) (FenceState, error) {
	q := transport.Own(http.MethodGet, "fence", f.Name).With("index", fenceText(f), "kind", kindName(f.Kind), "session", session)
	return transport.Ask[FenceState](ctx, c.cluster, q, "check the fence of %s %q", kindName(f.Kind), f.Name)
}

// setFence adds to the query of a write of a key the acquisition that must last.
func setFence(q url.Values, key string, f kv.Fence) {
	q.Set("fence", fenceText(f))
	if f.Kind != kv.Key || f.Name != key {
		q.Set("fence-"+kindName(f.Kind), f.Name)
	}
}

func fenceText(f kv.Fence) string { return strconv.FormatUint(uint64(f.Index), 10) }
