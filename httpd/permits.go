package httpd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
)

func showPermits(p *kv.Permits, now int64) api.Permits {
	shown := api.Permits{Name: p.Name, Limit: int(p.Limit), Holders: showHolders(p.Holders), Queue: []api.Waiter{}, DelaysMS: []int64{}}
	for _, w := range p.Queue {
		shown.Queue = append(shown.Queue, api.Waiter{Session: w.Session, WaitedMS: max(now-w.Since, 0), LeftMS: max(w.Until-now, 0), Value: w.Value})
	}
	for _, until := range p.Delays {
		shown.DelaysMS = append(shown.DelaysMS, max(until-now, 0))
	}
	return shown
}

func showHolders(holders []kv.Holder) []api.Holder {
	shown := []api.Holder{} // an empty list, not null
	for _, h := range holders {
		shown = append(shown, api.Holder{Session: h.Session, Fence: uint64(h.Fence), Since: h.Wall, Value: h.Value})
	}
	return shown
}

// permitKinds are locks and semaphores in paths.
var permitKinds = []struct {
	kind kv.Kind
	path string
}{{kv.Lock, "/v1/rollcall/locks"}, {kv.Semaphore, "/v1/rollcall/semaphores"}}

// permitsOf are the routes of locks, or those of semaphores.
type permitsOf struct {
	*call
	kind kv.Kind
}

// topic is what changes with a lock or semaphore as a whole.
func (p permitsOf) topic(name string) kv.Topic {
	if p.kind == kv.Lock {
		return kv.Topic{Kind: kv.LockTopic, Name: name}
	}
	return kv.Topic{Kind: kv.SemaphoreTopic, Name: name}
}

// list is GET locks or semaphores: all that somebody holds or waits for, by name.
func (p permitsOf) list() (any, error) {
	if p.given("index") {
		return nil, badRequest("index is for one " + kindWords[p.kind] + ": the list cannot be waited for")
	}
	return p.ownRead(p.keySource(kv.Topic{}, func(v *kv.View) found {
		return found{index: uint64(v.Index()), weight: v.PermitBytes, answer: func() (any, error) {
			now := p.coordinationClock(v)
			shown := []api.Permits{} // an empty list, not null
			for permits := range v.AllPermits(p.kind) {
				shown = append(shown, showPermits(permits, now))
			}
			return shown, nil
		}}
	}))
}

// show is GET of one lock or semaphore.
func (p permitsOf) show() (any, error) {
	name := p.segment("name")
	return p.ownRead(p.keySource(p.topic(name), func(v *kv.View) found {
		permits, index := v.Permits(p.kind, name)
		return found{index: uint64(index), absent: permits == nil, answer: func() (any, error) {
			if permits == nil {
				text := fmt.Sprintf("nobody holds or waits for the %s %q", kindWords[p.kind], name)
				return nil, &refusal{status: http.StatusNotFound, text: text}
			}
			return showPermits(permits, p.coordinationClock(v)), nil
		}}
	}))
}

// release is DELETE of a permit, or of a place in the queue. A stale fence releases nothing.
func (p permitsOf) release() (any, error) {
	p.noBody()
	session := p.holder()
	token, fenced := p.number("fence")
	name := p.segment("name")
	op := p.once(kv.ReleasePermit{Kind: p.kind, Name: name, Session: session, Index: kv.Index(token)})
	if p.err != nil {
		return nil, p.err
	}
	result, err := p.coordinate(p.r.Context(), op)
	switch {
	case err != nil:
		return nil, err
	case result.Refusal != "":
		return nil, &refusal{status: http.StatusConflict, text: result.Refusal}
	case result.OK:
		return api.Released{Released: true}, nil
	}
	// It may wait still. If it was given a permit meanwhile, then that is what is to be released, unless
	// another acquisition was named.
	left, err := p.coordinate(p.r.Context(), leaving(p.kind, name, session, !fenced))
	return api.Released{Released: left.Index != 0}, err
}

// leaving takes a session out of a queue; release: what it was given meanwhile goes back.
func leaving(kind kv.Kind, name, session string, release bool) kv.LeaveQueue {
	return kv.LeaveQueue{Kind: kind, Name: name, Session: session, Release: release}
}

// onPermits is an endpoint of locks, or of semaphores.
func onPermits(kind kv.Kind, do func(permitsOf) (any, error)) endpoint {
	return withCoordination(func(c *call) (any, error) { return do(permitsOf{c, kind}) })
}

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

// fence is GET /v1/rollcall/fence/{key}: whether the acquisition with the token index lasts, by session or,
// if none is given, by whomever. It is linearizable: what it says was so after it was asked.
func (c *call) fence() (any, error) {
	name := c.rest()
	if name == "" {
		return nil, badRequest("name what was acquired: /v1/rollcall/fence/NAME")
	}
	token, given := c.number("index")
	if !given {
		c.refuse("index must be given: the token of the acquisition, as in " + fenceHeader)
	}
	kind, session := c.kind(), c.text("session")
	if c.err != nil {
		return nil, c.err
	}
	v, _, err := look(c.r.Context(), c.Handler, c.config.Coordination.View, registry.Linearizable)
	if err != nil {
		return nil, err
	}
	holds, now := v.Holds(kv.Fence{Kind: kind, Name: name, Index: kv.Index(token)}, strings.ToLower(session))
	labelFence(c.w.Header(), now)
	return api.FenceState{Kind: kindWords[kind], Name: name, Holds: holds, Fence: uint64(now)}, nil
}

// kind reads kind; a key if it is not given.
func (q *query) kind() kv.Kind {
	word, given := q.lookup("kind")
	if !given {
		return kv.Key
	}
	at := slices.Index(kindWords[:], word)
	if at < 0 {
		q.refuse("kind must be one of key, lock, semaphore")
	}
	return kv.Kind(max(at, 0))
}

// fenceHeader has the token of the acquisition that holds; 0: nobody holds.
const fenceHeader = "X-Rollcall-Fence"

func labelFence(header http.Header, token kv.Index) {
	header.Set(fenceHeader, strconv.FormatUint(uint64(token), 10))
}

// fencedBy are the parameters that name what was acquired, if it is not the key that is written.
var fencedBy = []struct {
	param string
	kind  kv.Kind
}{{"fence-key", kv.Key}, {"fence-lock", kv.Lock}, {"fence-semaphore", kv.Semaphore}}

// fenceFor reads the acquisition that must last, or a write of key has no effect; nil: it need not.
func (q *query) fenceFor(key string) *kv.Fence {
	token, given := q.number("fence")
	fence := &kv.Fence{Kind: kv.Key, Name: key, Index: kv.Index(token)}
	names := 0
	for _, by := range fencedBy {
		if name, named := q.lookup(by.param); named {
			fence.Kind, fence.Name = by.kind, name
			names++
		}
	}
	switch {
	case names > 1:
		q.refuse("fence-key, fence-lock and fence-semaphore name what was acquired: give one of them")
	case names == 1 && !given:
		q.refuse("fence must be given with fence-key, fence-lock or fence-semaphore: the token of the acquisition")
	case !given:
		return nil
	}
	return fence
}
