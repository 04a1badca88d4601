package client

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/seed-20419f34/rollcall/client/internal/transport"
	"github.com/seed-20419f34/rollcall/fsm/kv"
)

// LockOptions say which lock to acquire and how. Name is required; every other field has a default.
type LockOptions struct {
	Name string
	// Value is shown with the holder, to people and to waiters; at most 4 KiB.
	Value []byte
	// TTL is how long the lock lasts without a renewal; it is renewed every third of that. 0 means DefaultSessionTTL.
	TTL time.Duration
	// LockDelay is how long no session gets the lock after its holder died; see SessionOptions.
	LockDelay time.Duration
	// Try does not wait: it returns ErrNotAcquired if another session holds the lock or waits for it.
	Try bool
}

// SemaphoreOptions say which semaphore to acquire a permit of, and how.
type SemaphoreOptions struct {
	LockOptions
	// Limit is the number of permits, at least 1. The first contender fixes it until no session holds a permit or
	// waits for one; others get ErrLimit.
	Limit int
}

// permit is what to acquire.
type permit struct {
	kind  kv.Kind
	limit int // of a semaphore
	LockOptions
	// until, if not nil, is closed when Client.Close may give it back.
	until <-chan struct{}
}

func (p permit) String() string { return fmt.Sprintf("%s %q", kindName(p.kind), p.Name) }

// sessionName tells people what a session is for, within the length limit of a session's name.
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

// Leader returns the leader of an election, which is the holder of the lock with that name. It returns ErrNoLeader
// while nobody leads.
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

// CheckFence asks whether an acquisition lasts, by session or, if that is "", by any. The answer was true at some
// moment between question and answer; a Write that carries the fence is safer.
func (c *Client) CheckFence(ctx context.Context, f kv.Fence, session string) (FenceState, error) {
	q := transport.Own(http.MethodGet, "fence", f.Name).With("index", fenceText(f), "kind", kindName(f.Kind), "session", session)
	return transport.Ask[FenceState](ctx, c.cluster, q, "check the fence of %s %q", kindName(f.Kind), f.Name)
}

func fenceText(f kv.Fence) string { return strconv.FormatUint(uint64(f.Index), 10) }

// ofPermit returns a call about the permits with one name, or without a name about all of a kind.
func ofPermit(method string, k kv.Kind, name ...string) *transport.Call {
	return transport.Own(method, append([]string{kindName(k) + "s"}, name...)...)
}

// Locks returns the locks that are held or waited for, sorted by name.
func (c *Client) Locks(ctx context.Context) ([]Permits, error) { return c.permits(ctx, kv.Lock) }

// Semaphores returns the semaphores that are held or waited for, sorted by name.
func (c *Client) Semaphores(ctx context.Context) ([]Permits, error) {
	return c.permits(ctx, kv.Semaphore)
}

func (c *Client) permits(ctx context.Context, k kv.Kind) ([]Permits, error) {
	return transport.Ask[[]Permits](ctx, c.cluster, c.cluster.Reading(ofPermit(http.MethodGet, k)), "list the %ss", kindName(k))
}

// Lock returns the holder of a lock and its waiters; none if the lock does not exist.
func (c *Client) Lock(ctx context.Context, name string) (Permits, error) {
	return c.permit(ctx, kv.Lock, name)
}

// Semaphore returns the holders of a semaphore and its waiters; none if it does not exist.
func (c *Client) Semaphore(ctx context.Context, name string) (Permits, error) {
	return c.permit(ctx, kv.Semaphore, name)
}

func (c *Client) permit(ctx context.Context, k kv.Kind, name string) (Permits, error) {
	p, a, err := transport.AskWhole[Permits](ctx, c.cluster, c.cluster.Reading(ofPermit(http.MethodGet, k, name)), "read %s %q", kindName(k), name)
	if a.Status == http.StatusNotFound {
		return Permits{Name: name}, nil
	}
	return p, err
}
