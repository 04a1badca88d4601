package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/internal/wait"
)

// keeper renews a session until it is closed or lost. Lost means that the session may have ended: its TTL has passed
// since the last successful renewal was sent, by this process's monotonic clock. The cluster counts from when that
// renewal arrived, so it gives the lock to no other session before.
type keeper struct {
	client  *Client
	session string
	ttl     time.Duration
	ctx     context.Context // ends when the session is lost or closed; its cause says which
	cancel  context.CancelCauseFunc
	stopped chan struct{} // closed when run has returned

	mu       sync.Mutex
	kind     string    // what the session holds: session, lock or semaphore; "" if nothing yet
	deadline time.Time // when the session is lost; it has a monotonic reading
	server   string    // URL of the server that responded last; "" if the last renewal failed
	// route ends when that server no longer responds: another call that waits for it should then ask another server.
	route   context.Context
	reroute context.CancelFunc
}

// newKeeper creates a session and keeps it alive. The caller must close the keeper. ctx gives its values to the
// keeper's context, and bounds only the creation.
func (c *Client) newKeeper(ctx context.Context, o SessionOptions) (*keeper, error) {
	s, a, err := c.createSession(ctx, o)
	if err != nil {
		return nil, err
	}
	ttl := o.ttl()
	k := &keeper{client: c, session: s.ID, ttl: ttl, stopped: make(chan struct{}), deadline: a.Sent.Add(ttl), server: a.Server}
	k.ctx, k.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	k.route, k.reroute = context.WithCancel(k.ctx)
	go k.run()
	return k, nil
}

// run renews the session every third of its TTL, and every tenth while that fails, until it is lost or closed.
func (k *keeper) run() {
	defer close(k.stopped)
	outage := wait.Outage{Log: k.client.log}
	for pause := k.ttl / 3; wait.For(k.ctx, min(pause, k.remaining())) && k.valid(); {
		err := k.renew()
		switch {
		case errors.Is(err, ErrNoSession):
			k.cancel(fmt.Errorf("%w: %w", ErrLost, err))
		case err != nil:
			pause = k.ttl / 10
		default:
			pause = k.ttl / 3
		}
		if k.ctx.Err() == nil {
			outage.Report(err, "session not renewed, trying again", "session renewed again",
				"session", k.session, "remains", k.remaining())
		}
	}
	if errors.Is(context.Cause(k.ctx), ErrLost) {
		k.countLost()
	}
}

func (k *keeper) renew() error {
	ctx, cancel := context.WithTimeout(k.ctx, k.remaining())
	defer cancel()
	// A long try leaves time for others.
	_, a, err := k.client.renewSession(ctx, k.session, min(k.client.cluster.Timeout(), k.ttl/6))
	if err != nil {
		k.setServer("")
		return err
	}
	k.setServer(a.Server)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.deadline = a.Sent.Add(k.ttl) // a session that was found lost before stays lost
	return nil
}

// setServer sets the server that responded ("" if none did), and ends the route to another one.
func (k *keeper) setServer(server string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if server == k.server {
		return
	}
	k.server = server
	k.reroute()
	k.route, k.reroute = context.WithCancel(k.ctx)
}

func (k *keeper) remaining() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return time.Until(k.deadline)
}

var errNotRenewed = errors.New("its session was not renewed in time")

// valid reports whether the session is kept. It checks the clock, because no timer has run yet in a process that has
// just resumed after a pause. Once false it stays false.
func (k *keeper) valid() bool {
	if k.remaining() <= 0 {
		k.cancel(fmt.Errorf("%w: %w", ErrLost, errNotRenewed))
	}
	return k.ctx.Err() == nil
}

// err returns nil while the session is kept, and afterwards why it is not.
func (k *keeper) err() error {
	if k.valid() {
		return nil
	}
	return context.Cause(k.ctx)
}

// startHolding sets the kind of what is held from now on, and makes it a part of the client. An error means that it
// cannot be held: the session or the client has ended.
func (k *keeper) startHolding(kind string, held part) error {
	if err := k.err(); err != nil {
		return err
	}
	k.mu.Lock()
	if k.ctx.Err() != nil {
		k.mu.Unlock()
		return context.Cause(k.ctx)
	}
	k.kind = kind
	k.mu.Unlock()
	return k.client.adopt(held)
}

// countLost counts a session, lock or permit that was held and is lost.
func (k *keeper) countLost() {
	k.mu.Lock()
	kind := k.kind
	k.mu.Unlock()
	if kind != "" {
		k.client.metrics.lost.WithLabelValues(kind).Inc()
	}
}

// errReleasedByClose is why nothing is kept any more after Client.Close.
var errReleasedByClose = fmt.Errorf("%w: the client was %w", ErrReleased, ErrClosed)

// finish ends the renewals. A session that is lost stays lost. The session itself stays until its TTL has passed.
func (k *keeper) finish(cause error) {
	k.valid()
	k.cancel(cause)
}

// stop implements part.
func (k *keeper) stop(ctx context.Context) error {
	k.finish(errReleasedByClose)
	return k.await(ctx)
}

// await waits for the end of its goroutine.
func (k *keeper) await(ctx context.Context) error {
	return wait.Until(ctx, k.stopped, "wait for the renewals of session %q to end", k.session)
}

// close is finish and await. The error says how the session was lost before; nil if it was not.
func (k *keeper) close(ctx context.Context, cause error) error {
	k.finish(cause)
	if err := k.await(ctx); err != nil {
		k.client.log.Info("closed without its renewals", "err", err)
	}
	if lost := context.Cause(k.ctx); errors.Is(lost, ErrLost) {
		return lost
	}
	return nil
}

// giveUp ends the renewals, and calls back to give back what is held, which is useful until the session expires.
// ErrLost means that it was no longer held.
func (k *keeper) giveUp(ctx context.Context, back func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, max(k.remaining(), giveBackTimeout))
	defer cancel()
	lost := k.close(ctx, ErrReleased)
	err := back(ctx)
	if lost != nil {
		return lost
	}
	if errors.Is(err, ErrLost) {
		k.countLost()
	}
	return err
}

// destroy ends the session. ErrLost means that it had ended.
func (k *keeper) destroy(ctx context.Context) error {
	return giveBack(ctx, fmt.Errorf("%w: %w", ErrLost, ErrNoSession), func() (bool, error) {
		err := k.client.DestroySession(ctx, k.session)
		if errors.Is(err, ErrNoSession) {
			return false, nil
		}
		return err == nil, err
	})
}

// giveBack gives something back, and tries again while the outcome is unknown. try reports whether it was still held;
// if it was not, the error is lost.
func giveBack(ctx context.Context, lost error, try func() (bool, error)) error {
	repeated := false
	for failures := 0; ; failures++ {
		was, err := try()
		switch {
		case err == nil && (was || repeated):
			return nil
		case err == nil:
			return lost
		case isPermanent(err):
			return err
		}
		repeated = repeated || errors.Is(err, ErrUnknownOutcome)
		if !wait.For(ctx, wait.Retry(failures)) {
			return err
		}
	}
}

// heldContext returns the context of what is held.
func (k *keeper) heldContext() context.Context { return keptContext{k.ctx, k} }

// keptContext is a keeper's context that checks the clock whenever it is asked.
type keptContext struct {
	context.Context
	keeper *keeper
}

// Done implements context.Context.
func (c keptContext) Done() <-chan struct{} {
	c.keeper.valid()
	return c.Context.Done()
}

// Err implements context.Context.
func (c keptContext) Err() error {
	c.keeper.valid()
	return c.Context.Err()
}

// giveBackTimeout bounds the calls that give up or give back a lock, at all servers together.
const giveBackTimeout = 5 * time.Second
