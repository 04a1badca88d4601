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
