package httpd

import (
	"fmt"
	"net/http"

	"github.com/seed-20419f34/rollcall/fsm/kv"
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
