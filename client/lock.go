package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/client/internal/transport"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

// AcquireLock waits for a lock, in order of arrival, until it has it or ctx ends, and keeps it
// until Release or Client.Close. It creates a session of its own for that, so a holder that acquires the lock again
// waits for itself. While no server can be reached it keeps trying, unless LockOptions.Try is set.
//
// It uses the locks of Rollcall's own API. For ErrNotAcquired see LockOptions.Try. ErrClosed means that the client was
// closed, or is being closed.
func (c *Client) AcquireLock(ctx context.Context, o LockOptions) (*Held, error) {
	return c.acquire(ctx, permit{kind: kv.Lock, LockOptions: o})
}

// AcquireSemaphore is AcquireLock for one of the permits of a semaphore. ErrLimit means that the semaphore is in use
// with another limit.
func (c *Client) AcquireSemaphore(ctx context.Context, o SemaphoreOptions) (*Held, error) {
	if o.Limit < 1 {
		return nil, fmt.Errorf("acquire semaphore %q: limit %d is not at least 1", o.Name, o.Limit)
	}
	return c.acquire(ctx, permit{kind: kv.Semaphore, limit: o.Limit, LockOptions: o.LockOptions})
}

// acquire acquires with one session after the other: a session that ends while it waits loses its place.
func (c *Client) acquire(ctx context.Context, p permit) (*Held, error) {
	if p.Name == "" {
		return nil, fmt.Errorf("acquire a %s: no name is given", kindName(p.kind))
	}
	ctx, opening, err := c.acquiring(ctx)
	if err != nil {
		return nil, fmt.Errorf("acquire %s: %w", p, err)
	}
	defer opening.finish()
	for failures := 0; ; failures++ {
		held, err := c.acquireOnce(ctx, p)
		if err == nil {
			return held, nil
		}
		if p.Try || isPermanent(err) || !wait.For(ctx, wait.Retry(failures)) {
			return nil, fmt.Errorf("acquire %s: %w", p, opening.reason(ctx, err))
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
	k, err := c.newKeeper(ctx, SessionOptions{Name: p.sessionName(), TTL: p.TTL, LockDelay: p.LockDelay})
	if err != nil {
		return nil, err
	}
	h := &Held{keeper: k, permit: p}
	if h.fence, err = h.acquire(ctx); err == nil {
		err = k.startHolding(kindName(p.kind), h)
	}
	if err == nil {
		return h, nil
	}
	// It leaves the queue, and gives back the lock that the session may have got meanwhile: a session that ends as a
	// holder would leave a lock delay behind.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
	defer cancel()
	_ = k.close(ctx, ErrReleased) // it does not matter whether the session was lost
	if _, err := h.release(ctx, kv.Fence{}); err != nil {
		c.log.Info("queue not left", "session", k.session, "err", err)
	}
	h.endSession(ctx)
	return nil, err
}

// Elect takes part in an election until ctx ends: it waits for the lock with that name and calls lead while it holds
// it. The context passed to lead ends when leadership is lost, or ctx ends; lead should return then, and nothing is
// given back before it has. If leadership was lost, Elect takes part again.
//
// It returns what lead returned if leadership lasted until then (the lock is released), nil if ctx ended first, and
// an error if the cluster refuses the lock or the client was closed. (Client.Close ends the context of lead, and
// waits until lead has returned before it gives the lock back.) As with every lock, a leader that was paused may go
// on for a moment without knowing that it no longer leads: hand Held.Fence to what it writes to.
func (c *Client) Elect(ctx context.Context, o LockOptions, lead func(ctx context.Context, h *Held) error) error {
	for {
		again, err := c.term(ctx, o, lead)
		if !again {
			return err
		}
		c.log.Warn("leadership lost, taking part again", "lock", o.Name)
	}
}

// term waits for leadership and leads. again reports that leadership was lost before lead returned.
func (c *Client) term(ctx context.Context, o LockOptions, lead func(context.Context, *Held) error) (again bool, err error) {
	returned := make(chan struct{})
	h, err := c.acquire(ctx, permit{kind: kv.Lock, LockOptions: o, until: returned})
	switch {
	case err != nil && ctx.Err() != nil && !errors.Is(err, ErrClosed):
		return false, nil
	case err != nil:
		return false, err
	}
	// Leadership is given back even when ctx has ended. Deferred, so that it also happens if lead panics.
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
		defer cancel()
		if err := h.Release(ctx); err != nil && !errors.Is(err, ErrLost) {
			c.log.Warn("leadership not given back, it will be free when its session has ended", "lock", o.Name, "err", err)
		}
	}()
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

// lead calls the caller's function with a context that ends with leadership and with ctx.
func (h *Held) lead(ctx context.Context, lead func(context.Context, *Held) error) error {
	if ctx.Err() != nil {
		return nil
	}
	leading, cancel := context.WithCancelCause(h.keeper.ctx)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
	return lead(keptContext{leading, h.keeper}, h)
}

// queueWait is how long one request waits in a lock's queue at most. A session that asks again after that is last in
// the queue, so the wait is as long as servers offer; the renewals notice a server that fell silent.
const queueWait = 10 * time.Minute

// acquire waits until the session has the permit, and returns its token. The servers keep the waiters in order.
// Repeating a request keeps the permit, or the place in the queue.
func (h *Held) acquire(ctx context.Context) (kv.Fence, error) {
	ctx, cancel := wait.Either(ctx, h.keeper.ctx)
	defer cancel()
	index, err := h.awaitTurn(ctx)
	return kv.Fence{Kind: h.permit.kind, Name: h.permit.Name, Index: index}, err
}

func (h *Held) awaitTurn(ctx context.Context) (kv.Index, error) {
	k, p := h.keeper, h.permit
	if fence, done, err := h.peek(ctx); done || err != nil {
		return fence, err
	}
	cut := false
	for failures := 0; ; {
		started := time.Now()
		a, err := h.ask(ctx, p.patience(ctx))
		switch {
		case err == nil && a.Acquired && k.valid():
			return kv.Index(a.Fence), nil
		case ctx.Err() != nil:
			return 0, context.Cause(ctx)
		case err == nil && p.Try:
			return 0, fmt.Errorf("%w: held by %s", ErrNotAcquired, holders(a))
		case err != nil && (p.Try || isPermanent(err) || errors.Is(err, ErrNoSession)):
			return 0, err
		case err != nil && !cut:
			k.client.log.Info("waiting was cut, trying again", kindName(p.kind), p.Name, "err", err)
		case err == nil && time.Since(started) >= time.Second:
			failures, cut = 0, false
			continue // the server's time was up
		}
		cut = err != nil
		if !wait.For(ctx, wait.Retry(failures)) {
			return 0, context.Cause(ctx)
		}
		failures++
	}
}

// patience returns how long the next request should wait.
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

// peek logs the holders before the session joins the queue, if the log has that level.
func (h *Held) peek(ctx context.Context) (fence kv.Index, acquired bool, err error) {
	k, p := h.keeper, h.permit
	if p.Try || !k.client.log.Enabled(ctx, slog.LevelInfo) {
		return 0, false, nil
	}
	a, err := h.ask(ctx, 0)
	switch {
	case err != nil && isPermanent(err):
		return 0, false, err
	case err != nil:
		return 0, false, nil // the next request returns it
	case a.Acquired:
		return kv.Index(a.Fence), k.valid(), nil
	}
	k.client.log.Info("waiting", kindName(p.kind), p.Name, "held_by", holders(a))
	return 0, false, nil
}

// holders names them by their values, otherwise by their sessions.
func holders(a api.Acquired) string {
	var names []string
	for _, h := range a.Holders {
		names = append(names, cmp.Or(string(h.Value), h.Session))
	}
	return cmp.Or(strings.Join(names, ", "), "others, or no session until a lock-delay is over")
}

// ask makes one request, which waits in the queue for d; 0 means not at all. A session that has the permit already
// keeps it, so the request may be repeated.
func (h *Held) ask(ctx context.Context, d time.Duration) (api.Acquired, error) {
	k, p := h.keeper, h.permit
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	k.mu.Lock()
	if k.ctx.Err() == nil { // after the session's end there are no renewals, which could end the route
		defer context.AfterFunc(k.route, cancel)()
	}
	k.mu.Unlock()
	acquire := ofPermit(http.MethodPut, p.kind, p.Name).Or(ErrNoSession).With("session", k.session)
	if p.kind == kv.Semaphore {
		acquire = acquire.With("limit", strconv.Itoa(p.limit))
	}
	if d > 0 {
		acquire = acquire.With("wait", d.String())
	}
	acquire.Body, acquire.Raw = append([]byte{}, p.Value...), true
	acquire.Patience = d + max(leaveWait, k.client.cluster.Timeout())
	got, a, err := transport.AskWhole[api.Acquired](ctx, k.client.cluster, acquire, "")
	if a.Status == http.StatusConflict {
		err = fmt.Errorf("%w: %w", ErrLimit, err)
	}
	return got, err
}

// leaveWait is how long after the wait a server responds at the latest: it first removes the session from the queue,
// for up to 10 s.
const leaveWait = 12 * time.Second

// release gives the permit back, in one try, and says whether the session had it. Without an Index the session leaves
// the queue as well.
func (h *Held) release(ctx context.Context, fence kv.Fence) (bool, error) {
	release := ofPermit(http.MethodDelete, h.permit.kind, h.permit.Name).With("session", h.keeper.session)
	if fence.Index != 0 {
		release = release.With("fence", fenceText(fence))
	}
	doc, a, err := transport.AskWhole[api.Released](ctx, h.keeper.client.cluster, release, "")
	if a.Status == http.StatusNotFound {
		return a.Repeated, nil // the session has ended
	}
	return err == nil && (doc.Released || a.Repeated), err
}

// Held is a lock, or a permit of a semaphore, that this process holds. Safe for concurrent use. It must be released,
// which Client.Close does too.
//
// A process that was paused for longer than the TTL holds nothing when it goes on. Context, Err and Valid say so at
// the first check: they compare the time, by the monotonic clock. (That clock stands still while a machine is
// suspended.) Work that checked them before the pause may still be in progress after it; a holder that must be sure
// hands Fence to what it writes to.
type Held struct {
	*keeper
	permit   permit
	fence    kv.Fence
	released once // the release
}

// Fence returns the acquisition: its Index is the token, which grows with each acquisition of the same name. A Write
// that carries it is refused once the lock is released or lost.
func (h *Held) Fence() kv.Fence { return h.fence }

// Session returns the id of the session that holds it.
func (h *Held) Session() string { return h.session }

// Context returns a context that ends when the lock is lost or released; context.Cause says which (ErrLost,
// ErrReleased). It has the values of the context that the lock was acquired with, not its end. A context derived from
// it does not check the clock: in a process that was paused it ends a moment later.
func (h *Held) Context() context.Context { return h.heldContext() }

// Valid reports whether the lock is held.
func (h *Held) Valid() bool { return h.valid() }

// Err returns nil while the lock is held, and afterwards why it is not: ErrLost or ErrReleased.
func (h *Held) Err() error { return h.err() }

// Release ends Context, gives the lock to the next in the queue and ends the session. It tries until ctx ends, or
// until the lock would expire. It always returns what it returned first; a later call waits for the first, unless its
// own ctx ends before. ErrLost means that the lock was no longer held.
func (h *Held) Release(ctx context.Context) error {
	return h.released.do(ctx, "", func() error {
		defer h.client.drop(h)
		err := h.giveUp(ctx, func(ctx context.Context) error {
			defer h.endSession(ctx)
			return giveBack(ctx, ErrLost, func() (bool, error) { return h.release(ctx, h.fence) })
		})
		return wait.Annotate(err, "release %s", []any{h.permit})
	})
}

// withdraw gives the lock back unless it was lost, when permit.until allows that.
func (h *Held) withdraw(ctx context.Context) error {
	if h.permit.until != nil {
		if err := wait.Until(ctx, h.permit.until, "release %s: it is in use", h.permit); err != nil {
			return err
		}
	}
	if err := h.Release(ctx); !errors.Is(err, ErrLost) {
		return err
	}
	return nil
}

// endSession ends the session, so that its name is not left behind until its TTL has passed.
func (h *Held) endSession(ctx context.Context) {
	err := h.client.DestroySession(ctx, h.session)
	if err != nil && !errors.Is(err, ErrNoSession) {
		h.client.log.Info("session not ended, it will expire", "session", h.session, "err", err)
	}
}
