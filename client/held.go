package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"

	"github.com/seed-20419f34/rollcall/fsm/kv"
)

// Held is a lock, or a permit of a semaphore, that this process holds. Safe for concurrent use. It
// must be released.
//
// A process that was paused for longer than the TTL holds nothing any more when it goes on, and
// Context, Err and Valid say so at the first look: they compare the time, by the monotonic clock. (That
// clock stands still while a machine is suspended.) What was looked at before the pause may still be
// under way after it; whoever must be sure hands Fence to what it writes to.
type Held struct {
	keeper   *keeper
	fence    kv.Fence
	mu       sync.Mutex
	released *error // the result of Release; nil: not released
}

// Fence is the acquisition: its Index is the token, which grows with each acquisition of the same name.
// A Write that carries it is refused once the lock is not held any more.
func (h *Held) Fence() kv.Fence { return h.fence }

// Session is the id of the session that holds it.
func (h *Held) Session() string { return h.keeper.session }

// Context ends when the lock is lost or released; context.Cause says which (ErrLost, ErrReleased). It
// has the values of the context that the lock was acquired with, not its end.
func (h *Held) Context() context.Context { return keptContext{h.keeper.ctx, h.keeper} }

// Valid says whether the lock is held.
func (h *Held) Valid() bool { return h.keeper.valid() }

// Err is nil while the lock is held, and then says why it is not: ErrLost or ErrReleased.
func (h *Held) Err() error {
	if h.keeper.valid() {
		return nil
	}
	return context.Cause(h.keeper.ctx)
}

// Release ends Context, gives the lock to the next in the queue and ends the session. It tries until ctx
// ends, or until the lock would end by itself. What it returns first it returns always. ErrLost: the
// lock was not held any more.
func (h *Held) Release(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.released == nil {
		err := h.release(ctx)
		h.released = &err
	}
	return *h.released
}

func (h *Held) release(ctx context.Context) error {
	remains := h.keeper.remains()
	h.keeper.valid() // a lock that was lost stays lost
	h.keeper.close(ErrReleased)
	ctx, cancel := context.WithTimeout(ctx, max(remains, farewell))
	defer cancel()
	err := h.giveBack(ctx)
	h.endSession(ctx)
	if lost := context.Cause(h.keeper.ctx); errors.Is(lost, ErrLost) {
		err = lost
	}
	if err != nil {
		return fmt.Errorf("release %s %q: %w", kindName(h.fence.Kind), h.fence.Name, err)
	}
	return nil
}

// giveBack releases the permit, and tries again while nobody knows the outcome.
func (h *Held) giveBack(ctx context.Context) error {
	repeated := false
	for failures := 0; ; failures++ {
		released, err := h.askRelease(ctx)
		switch {
		case err == nil && (released || repeated):
			return nil
		case err == nil:
			return ErrLost
		case refused(err) || offersNone(err):
			return err
		}
		repeated = repeated || errors.Is(err, ErrUnknownOutcome)
		if !wait(ctx, retryPause(failures)) {
			return err
		}
	}
}

// askRelease makes one request. Without a token it also leaves the queue.
func (h *Held) askRelease(ctx context.Context) (bool, error) {
	q := url.Values{"session": {h.keeper.session}}
	if h.fence.Index != 0 {
		q.Set("fence", strconv.FormatUint(uint64(h.fence.Index), 10))
	}
	a, err := h.keeper.client.do(ctx, call{method: http.MethodDelete, path: permitPath(h.fence.Kind, h.fence.Name), query: q, write: true})
	if err != nil {
		return false, err
	}
	if a.status == http.StatusNotFound {
		return a.repeated, nil // the session has ended
	}
	var doc struct {
		Released bool `json:"released"`
	}
	if err := a.decode(&doc); err != nil {
		return false, err
	}
	return doc.Released || a.repeated, nil
}

// endSession ends the session, so that its name is not left behind until its TTL has passed.
func (h *Held) endSession(ctx context.Context) {
	err := h.keeper.client.DestroySession(ctx, h.keeper.session)
	if err != nil && !noSession(err) {
		h.keeper.client.log.Info("session not ended, it will end by itself", "session", h.keeper.session, "err", err)
	}
}

// abandon leaves the queue, and gives back what it may have been given meanwhile: a session that ends
// with it would leave a lock-delay behind.
func (h *Held) abandon(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	h.keeper.close(ErrReleased)
	if _, err := h.askRelease(ctx); err != nil {
		h.keeper.client.log.Info("queue not left", "session", h.keeper.session, "err", err)
	}
	h.endSession(ctx)
}
