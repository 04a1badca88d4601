package own

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// permitsOf are the routes of locks, or those of semaphores.
type permitsOf struct {
	call
	kind kv.Kind
}

// list is GET locks or semaphores: everything that sessions hold or wait for, by name.
func (p permitsOf) list() (any, error) {
	if p.Given("index") {
		return nil, web.BadRequest("index is for one " + kindWords[p.kind] + ": the list cannot be waited for")
	}
	return p.readCoordination(p.KVSource(kv.Topic{}, func(v *kv.View) web.Found {
		return web.Found{Index: uint64(v.Index()), Weight: v.PermitBytes, Document: func() (any, error) {
			now := p.CoordinationClock(v)
			return listed(v.AllPermits(p.kind), func(permits *kv.Permits) api.Permits { return Permits(permits, now) }), nil
		}}
	}))
}

// show is GET of one lock or semaphore.
func (p permitsOf) show() (any, error) {
	name := p.Segment("name")
	topic := kv.Topic{Kind: kv.SemaphoreTopic, Name: name}
	if p.kind == kv.Lock {
		topic.Kind = kv.LockTopic
	}
	return p.readCoordination(p.KVSource(topic, func(v *kv.View) web.Found {
		permits, index := v.Permits(p.kind, name)
		return web.Found{Index: uint64(index), Absent: permits == nil, Document: func() (any, error) {
			if permits == nil {
				text := fmt.Sprintf("no session holds or waits for the %s %q", kindWords[p.kind], name)
				return nil, &web.Refusal{Status: http.StatusNotFound, Text: text}
			}
			return Permits(permits, p.CoordinationClock(v)), nil
		}}
	}))
}

// release is DELETE of a permit, or of a place in the queue. A stale fence releases nothing.
func (p permitsOf) release() (any, error) {
	p.IgnoreBody()
	session := p.holder()
	token, fenced := p.Number("fence")
	name := p.Segment("name")
	op := p.Once(kv.ReleasePermit{Kind: p.kind, Name: name, Session: session, Index: kv.Index(token)})
	if p.Err != nil {
		return nil, p.Err
	}
	result, err := p.Coordinate(p.R.Context(), op)
	switch {
	case err != nil:
		return nil, err
	case result.Refusal != "":
		return nil, &web.Refusal{Status: http.StatusConflict, Text: result.Refusal}
	case result.OK:
		return api.Released{Released: true}, nil
	}
	// The session may still be waiting. If it was given a permit meanwhile, that permit is released, unless another
	// acquisition was named.
	left, err := p.Coordinate(p.R.Context(), kv.LeaveQueue{Kind: p.kind, Name: name, Session: session, Release: !fenced})
	return api.Released{Released: left.Index != 0}, err
}

// onPermits makes an endpoint of locks, or of semaphores.
func onPermits(kind kv.Kind, do func(permitsOf) (any, error)) endpoint {
	return web.WithCoordination(func(c call) (any, error) { return do(permitsOf{c, kind}) })
}

// leaveWait bounds how long after its wait this node tries to take a session out of a queue, even if the client went
// away.
const leaveWait = 10 * time.Second

// acquisition is a request for a permit under way. A session that repeats it keeps its permit or its place in the
// queue, so the request needs no Idempotency-Key.
type acquisition struct {
	permitsOf
	op    kv.AcquirePermit
	until time.Time // when it stops waiting
	place int       // in the queue, when it joined; 0 if it did not
	// waited is an index at which the session was in the queue, so a permit with an older token is one that it has
	// given back; 0 while no such index is known
	waited kv.Index
}

// acquire is PUT of a permit. With wait it stays in the queue until it gets one, and holds the request meanwhile: a
// permit goes from session to session, and wakes only the session that gets it.
func (p permitsOf) acquire() (any, error) {
	a := p.acquisition()
	if p.Err != nil {
		return nil, p.Err
	}
	if a.op.Wait == 0 {
		result, err := p.Coordinate(p.R.Context(), a.op)
		if err != nil {
			return nil, err
		}
		return a.outcome(result)
	}
	if err := p.Allow(kv.Needs(a.op, web.StaleView(p.Service))...); err != nil { // again each time the call is judged
		return nil, err
	}
	ctx, done, err := p.Hold()
	if err != nil {
		return nil, err
	}
	defer done()
	// The server's time limit for a whole response would cut the wait short.
	out := web.NewStreamWriter(p.W, p.Watches.Pace)
	out.Pause()
	defer out.Finish()
	result, err := a.waitInQueue(ctx)
	if err != nil {
		return nil, err
	}
	if refused := web.EndedBy(ctx); refused != nil && !result.OK {
		return nil, refused
	}
	return a.outcome(result)
}

// maxLimit bounds how many may hold a semaphore.
const maxLimit = 1_000_000

// waitInQueue asks for the permit and waits until the session has it, or the time or the context ends.
func (a *acquisition) waitInQueue(ctx context.Context) (kv.Result, error) {
	over := time.NewTimer(time.Until(a.until))
	defer over.Stop()
	ctx, cancel := context.WithDeadline(ctx, a.until.Add(leaveWait))
	defer cancel()
	mine := kv.Topic{Kind: kv.PermitTopic, Name: kv.PermitName(a.kind, a.op.Name, a.op.Session)}
	for {
		wait := a.Coordination.Watch(mine) // before asking, so that no grant is missed
		result, err := a.requestPermit(ctx)
		if err != nil && ctx.Err() != nil { // the client has gone, or may no longer wait, and the session may have a place
			wait.Leave()
			return a.leaveQueue()
		}
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
		token, queued := a.heldOrQueued(ctx)
		switch {
		case token != 0:
			return kv.Result{OK: true, Fence: token}, nil
		case !queued || ctx.Err() != nil || time.Until(a.until) < time.Millisecond:
			return a.leaveQueue()
		}
		// This node's state was replaced, which caused the wake-up: ask again; the session keeps its place.
	}
}

// requestPermit proposes the acquisition for the rest of the time.
func (a *acquisition) requestPermit(ctx context.Context) (kv.Result, error) {
	a.op.Wait = max(time.Until(a.until).Milliseconds(), 1)
	perform := a.Coordinate
	if a.place != 0 {
		perform = a.CoordinateAwaitingLeader // it has been waiting already, so it can also wait for a leader
	}
	result, err := perform(ctx, a.op)
	switch {
	case err != nil && a.place != 0:
		// it may still have a place, or have been given a permit
		return result, errors.Join(registry.ErrUnknownOutcome, err)
	case a.place == 0:
		a.place = result.Place
	}
	if result.Place != 0 {
		a.waited = max(a.waited, result.Index)
	}
	return result, err
}

// heldOrQueued returns what the session has: the token of its acquisition, or (0) perhaps a place in the queue. Only a
// view that is new enough can say that it has neither; what cannot be known is not denied. A node that is behind may
// still have an earlier acquisition.
func (a *acquisition) heldOrQueued(ctx context.Context) (token kv.Index, queued bool) {
	ctx, cancel := context.WithDeadline(ctx, a.until)
	defer cancel()
	for _, read := range []registry.Consistency{registry.Stale, registry.Linearizable} {
		v, err := a.Coordination.View(ctx, read)
		if err != nil {
			return 0, true
		}
		what := kv.Fence{Kind: a.kind, Name: a.op.Name}
		_, what.Index = v.Holds(what, a.op.Session)
		late := a.waited != 0 && what.Index > a.waited
		if holds, _ := v.Holds(what, a.op.Session); holds && (late || read == registry.Linearizable) {
			return what.Index, false
		}
		p, _ := v.Permits(a.kind, a.op.Name)
		if p != nil && slices.ContainsFunc(p.Queue, func(w kv.Waiter) bool { return w.Session == a.op.Session }) {
			return 0, true
		}
	}
	return 0, false
}

// leaveQueue gives up waiting, even if the client went away or lost its token: so the node acts in its own name. A
// permit granted at that moment stays with the session: the client may have asked again elsewhere, and been told that
// it has the permit.
func (a *acquisition) leaveQueue() (kv.Result, error) {
	ctx := access.As(context.WithoutCancel(a.R.Context()), access.Sender{})
	until := a.until
	if a.R.Context().Err() != nil {
		until = time.Now()
	}
	ctx, cancel := context.WithDeadline(ctx, until.Add(leaveWait))
	defer cancel()
	result, err := a.CoordinateAwaitingLeader(ctx, kv.LeaveQueue{Kind: a.kind, Name: a.op.Name, Session: a.op.Session})
	if err != nil {
		err = errors.Join(registry.ErrUnknownOutcome, err)
	}
	return result, err
}

// acquisition reads the request's parameters.
func (p permitsOf) acquisition() *acquisition {
	a := &acquisition{permitsOf: p, op: kv.AcquirePermit{Kind: p.kind, Name: p.Segment("name"), Session: p.holder(), Limit: 1}}
	if p.kind == kv.Semaphore {
		limit, _ := p.Number("limit")
		if limit < 1 || limit > maxLimit {
			p.Refuse("limit must be given: how many may hold the semaphore at a time, 1 to %d", maxLimit)
		}
		a.op.Limit = uint32(limit)
	}
	wait, _ := p.waiting()
	a.op.Wait, a.until = wait.Milliseconds(), time.Now().Add(wait)
	a.op.Value = p.Body(kv.MaxPermitValue)
	return a
}

// holder reads session, which must be given. Case does not matter.
func (c call) holder() string {
	id := c.Text("session")
	if id == "" {
		c.Refuse("session must name the session that acquires or releases (POST /v1/rollcall/sessions)")
	}
	return strings.ToLower(id)
}

// outcome responds with the outcome of an acquisition.
func (a *acquisition) outcome(result kv.Result) (any, error) {
	switch {
	case result.Refusal != "" && (result.Limit != 0 || result.Excess == kv.Crowded):
		return nil, &web.Refusal{Status: http.StatusConflict, Text: result.Refusal}
	case result.Refusal != "":
		return nil, noSession(a.op.Session)
	case result.OK:
		web.LabelFence(a.W.Header(), result.Fence)
		return api.Acquired{Acquired: true, Fence: uint64(result.Fence), Limit: int(a.op.Limit), Place: a.place}, nil
	}
	v, unproven := a.Coordination.View(a.R.Context(), registry.Linearizable)
	if unproven != nil { // the holders known to this node; it cannot tell that the session has ended
		var err error
		if v, err = a.Coordination.View(a.R.Context(), registry.Stale); err != nil {
			return nil, err
		}
	}
	if s, _ := v.Session(a.op.Session); s == nil && unproven == nil {
		return nil, noSession(a.op.Session)
	}
	acquired := api.Acquired{Limit: int(a.op.Limit), Place: a.place}
	if p, _ := v.Permits(a.kind, a.op.Name); p != nil {
		acquired.Holders = holders(p.Holders)
	}
	return acquired, nil
}

// fence is GET /v1/rollcall/fence/{key}: whether the acquisition with the token index still holds, by session or, if
// none is given, by any. It is linearizable: the response was true at some time after the request.
func (c call) fence() (any, error) {
	name := c.Rest()
	if name == "" {
		return nil, web.BadRequest("name what was acquired: /v1/rollcall/fence/NAME")
	}
	token, given := c.Number("index")
	if !given {
		c.Refuse("index must be given: the token of the acquisition, as in " + web.FenceHeader)
	}
	kind, session := kindOf(c.Call), c.Text("session")
	if c.Err != nil {
		return nil, c.Err
	}
	v, _, err := web.ViewWithAge(c.R.Context(), c.Node, c.Coordination.View, registry.Linearizable)
	if err == nil {
		err = c.StillAllowed()
	}
	if err != nil {
		return nil, err
	}
	holds, now := v.Holds(kv.Fence{Kind: kind, Name: name, Index: kv.Index(token)}, strings.ToLower(session))
	web.LabelFence(c.W.Header(), now)
	return api.FenceState{Kind: kindWords[kind], Name: name, Holds: holds, Fence: uint64(now)}, nil
}

// fenceNeeds returns the need to read what was acquired.
func fenceNeeds(c *web.Call) []access.Need {
	n := access.Need{Resource: access.Lock, Name: c.Rest(), Verb: access.Read}
	if kindOf(c) == kv.Key {
		n.Resource = access.KV
	}
	return []access.Need{n}
}

// kindOf reads kind, which defaults to a key.
func kindOf(c *web.Call) kv.Kind {
	word, given := c.Lookup("kind")
	if !given {
		return kv.Key
	}
	at := slices.Index(kindWords[:], word)
	if at < 0 {
		c.Refuse("kind must be one of key, lock, semaphore")
	}
	return kv.Kind(max(at, 0))
}
