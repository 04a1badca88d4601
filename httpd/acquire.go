package httpd

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
)

// leaveWait bounds how long a queue is told of somebody who went away.
const leaveWait = 10 * time.Second

// acquisition is a request for a permit under way. Who repeats it keeps the permit or the place in the
// queue that it has, so it needs no Idempotency-Key.
type acquisition struct {
	permitsOf
	op    kv.AcquirePermit
	until time.Time // it waits so long
	place int       // in the queue, when it joined; 0: it did not
}

// acquire is PUT of a permit. With wait it stands in the queue until it has one, and holds the request
// meanwhile: permits go from hand to hand, and wake nobody but who is given them.
func (p permitsOf) acquire() (any, error) {
	a := p.acquisition()
	if p.err != nil {
		return nil, p.err
	}
	if a.op.Wait == 0 {
		result, err := p.coordinate(p.r.Context(), a.op)
		if err != nil {
			return nil, err
		}
		return a.outcome(result)
	}
	ctx, done, err := p.watches.begin(p.r)
	if err != nil {
		return nil, err
	}
	defer done()
	// The server's time limit for a whole answer would cut the wait off.
	out := newWatchWriter(p.w, p.watches.pace)
	out.pause()
	defer out.end()
	result, err := a.queue(ctx)
	if err != nil {
		return nil, err
	}
	return a.outcome(result)
}

// maxLimit bounds how many may hold a semaphore.
const maxLimit = 1_000_000

// queue asks for the permit and waits until the session has it, or time or context are over.
func (a *acquisition) queue(ctx context.Context) (kv.Result, error) {
	over := time.NewTimer(time.Until(a.until))
	defer over.Stop()
	mine := kv.Topic{Kind: kv.PermitTopic, Name: kv.PermitName(a.kind, a.op.Name, a.op.Session)}
	for {
		wait := a.config.Coordination.Watch(mine) // before it asks, so that no grant is missed
		result, err := a.ask(ctx)
		if err != nil || result.Place == 0 {
			wait.Leave()
			return result, err
		}
		select {
		case <-wait.Woken():
		case <-over.C:
		case <-ctx.Done():
		}
		wait.Leave()
		token, queued := a.look()
		switch {
		case token != 0:
			return kv.Result{OK: true, Fence: token}, nil
		case !queued || ctx.Err() != nil || time.Until(a.until) < time.Millisecond:
			return a.leaveQueue()
		}
		// Nothing was said: this node's state was replaced. It asks again, and keeps its place.
	}
}

// ask asks for the permit, for what is left of the time.
func (a *acquisition) ask(ctx context.Context) (kv.Result, error) {
	a.op.Wait = max(time.Until(a.until).Milliseconds(), 1)
	perform := a.coordinate
	if a.place != 0 {
		perform = a.persist // it has waited already, and can wait for a leader, too
	}
	result, err := perform(ctx, a.op)
	switch {
	case err != nil && a.place != 0:
		return result, errors.Join(registry.ErrUnknownOutcome, err) // it has a place still, or was given a permit
	case a.place == 0:
		a.place = result.Place
	}
	return result, err
}

// look says what the session has, as far as this node has applied: the token of its acquisition, or (0)
// perhaps a place in the queue.
func (a *acquisition) look() (token kv.Index, queued bool) {
	v, err := a.config.Coordination.View(context.Background(), registry.Stale)
	if err != nil {
		return 0, true // a stale view never fails
	}
	what := kv.Fence{Kind: a.kind, Name: a.op.Name}
	_, what.Index = v.Holds(what, a.op.Session)
	if holds, _ := v.Holds(what, a.op.Session); holds {
		return what.Index, false
	}
	p, _ := v.Permits(a.kind, a.op.Name)
	return 0, p != nil && slices.ContainsFunc(p.Queue, func(w kv.Waiter) bool { return w.Session == a.op.Session })
}

// leaveQueue gives up waiting, also for a client that went away. A permit that came in that moment
// stays the session's: the client may have asked again elsewhere, and been told that it has it.
func (a *acquisition) leaveQueue() (kv.Result, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.r.Context()), leaveWait)
	defer cancel()
	result, err := a.persist(ctx, leaving(a.kind, a.op.Name, a.op.Session, false))
	if err != nil {
		err = errors.Join(registry.ErrUnknownOutcome, err)
	}
	return result, err
}

// newestView shows who holds the permits; without a leader, as far as this node knows.
func (a *acquisition) newestView(ctx context.Context) (*kv.View, error) {
	v, err := a.config.Coordination.View(ctx, registry.Linearizable)
	if err != nil {
		return a.config.Coordination.View(ctx, registry.Stale)
	}
	return v, nil
}

// acquisition reads what is asked for.
func (p permitsOf) acquisition() *acquisition {
	a := &acquisition{permitsOf: p, op: kv.AcquirePermit{Kind: p.kind, Name: p.segment("name"), Session: p.holder(), Limit: 1}}
	if p.kind == kv.Semaphore {
		a.op.Limit = p.permitLimit()
	}
	wait, _ := p.waiting()
	a.op.Wait, a.until = wait.Milliseconds(), time.Now().Add(wait)
	a.op.Value = p.body(kv.MaxPermitValue)
	return a
}

// holder reads session, which must be given. Case does not matter.
func (q *query) holder() string {
	id := q.text("session")
	if id == "" {
		q.refuse("session must name the session that acquires or releases (POST /v1/rollcall/sessions)")
	}
	return strings.ToLower(id)
}

// permitLimit reads limit, which must be given.
func (q *query) permitLimit() uint32 {
	limit, _ := q.number("limit")
	if limit < 1 || limit > maxLimit {
		q.refuse("limit must be given: how many may hold the semaphore at a time, 1 to %d", maxLimit)
	}
	return uint32(limit)
}

// outcome is what came of an acquisition.
func (a *acquisition) outcome(result kv.Result) (any, error) {
	switch {
	case result.Refusal != "" && result.Limit != 0:
		return nil, &refusal{status: http.StatusConflict, text: result.Refusal}
	case result.Refusal != "":
		return nil, noSession(a.op.Session)
	case result.OK:
		labelFence(a.w.Header(), result.Fence)
		return api.Acquired{Acquired: true, Fence: uint64(result.Fence), Limit: int(a.op.Limit), Place: a.place}, nil
	}
	v, err := a.newestView(a.r.Context())
	if err != nil {
		return nil, err
	}
	if s, _ := v.Session(a.op.Session); s == nil {
		return nil, noSession(a.op.Session)
	}
	answer := api.Acquired{Limit: int(a.op.Limit), Place: a.place}
	if p, _ := v.Permits(a.kind, a.op.Name); p != nil {
		answer.Holders = showHolders(p.Holders)
	}
	return answer, nil
}
