package client

import (
	"context"
	"errors"
	"fmt"
	"time"

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
		if p.Try || hopeless(err) || !wait(ctx, retryPause(failures)) {
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

// hopeless says that another try would fare no better.
func hopeless(err error) bool {
	return refused(err) || offersNone(err) || errors.Is(err, ErrLimit) || errors.Is(err, ErrKeyConflict)
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
