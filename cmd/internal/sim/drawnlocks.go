package sim

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/seed-20419f34/rollcall/httpd/api"
)

// sessionTTL is the TTL of the sessions that contend for locks. lockDelay is how long the lock of an ended session is
// kept from others.
const sessionTTL, lockDelay = 10 * time.Second, 2 * time.Second

// perLock is how many operations a lock gets before clients go on with another one: our own locks and keys of
// Consul's API alternate.
const perLock = 50

// hold is a time during which no other client may get a lock.
type hold struct {
	asked, from, to time.Time // when it asked for the lock, got it, and when another client may have it
	session         string
	lock            string
	token           uint64
}

// lockCall is what a session asked of a lock or semaphore, and lockReply what it was told.
type lockCall struct {
	do, session string // acquire, release, or restore, which has no session
	alive       bool   // the session had been renewed, so it had not ended by the time of the response
	queued      bool   // it may wait for the lock, or leave the queue
	alone       bool   // the session had no other request under way, nor one of unknown outcome
}

type lockReply struct {
	outcome Outcome
	yes     bool // it has the lock; it had something to release
	fence   uint64
}

// lockState is the state of a lock or semaphore. Sessions expire: then one stays a holder until another session has
// its permit.
type lockState struct {
	holders [mostPermits]permit
	fence   uint64 // the newest token
}

// permit is one that a session may hold.
type permit struct {
	held    bool
	session string // "" after a restore
	fence   uint64 // its token, or, if no client was told it, the newest one before it
}

// mostPermits is the limit of the semaphores.
const mostPermits = 2

// lockModel models a lock or semaphore whose tokens rise, and which is refused only while all permits are, or may be,
// held.
func lockModel(limit int) porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{lockState{}} },
		Step: func(state, input, output any) []any {
			now, r := state.(lockState), output.(lockReply)
			then := now.after(limit, input.(lockCall), r)
			if r.outcome == Unknown {
				then = append(then, now)
			}
			return then
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v = %+v", input, output) },
	}
	return m.ToModel()
}

// after returns the states after a call that took effect, or nil if no state allows it.
func (s lockState) after(limit int, c lockCall, r lockReply) []any {
	at := slices.IndexFunc(s.holders[:limit], func(p permit) bool { return p.held && p.session == c.session })
	full := !slices.ContainsFunc(s.holders[:limit], func(p permit) bool { return !p.held })
	switch own, unknown := at >= 0, r.outcome == Unknown; {
	case c.do == "restore":
		for i := range s.holders {
			s.holders[i] = permit{held: true} // until lock delays are over
		}
	case c.do == "acquire" && own && r.yes && r.fence >= s.holders[at].fence:
		s.holders[at].fence, s.fence = r.fence, max(s.fence, r.fence)
	case c.do == "acquire" && !own && unknown:
		return s.grant(limit, c.session, s.fence)
	case c.do == "acquire" && !own && r.yes && (r.fence > s.fence || r.fence == noToken):
		return s.grant(limit, c.session, r.fence)
	case c.do == "acquire" && (own && unknown || !own && full && !r.yes):
	case c.do == "release" && own && (r.yes || unknown):
		s.holders[at] = permit{}
	case c.do == "release" && !own && (!r.yes || c.queued), c.do == "release" && !r.yes && !c.alive:
	default:
		return nil
	}
	return []any{s}
}

// grant returns the states after a free permit was given to a session, or else one whose holder may have ended.
func (s lockState) grant(limit int, session string, fence uint64) (then []any) {
	for i, p := range s.holders[:limit] {
		next := s
		next.holders[i], next.fence = permit{true, session, fence}, fence
		if !p.held {
			return []any{next}
		}
		then = append(then, next)
	}
	return then
}

// locks holds the histories of successive locks and semaphores.
type locks struct {
	names      []string
	operations map[string][]porcupine.Operation
	queues
}

// contender is one client of the locks.
type contender struct {
	l       *load
	client  int
	session string
	renewed time.Time // when the last acknowledged renewal was sent
	held    *hold
	left    int // turns for which it still holds the lock
}

// startLocks has clients contend for a lock.
func (l *load) startLocks() {
	l.d.locks = &locks{names: []string{ownLock + "lock-0"}, operations: map[string][]porcupine.Operation{},
		queues: queues{map[string]time.Time{}, map[string]time.Time{}, map[string]time.Time{}, nil}}
	for client := range 2 {
		c := &contender{l: l, client: client}
		l.task(900*time.Millisecond, c.turn)
	}
}

func (c *contender) ask(kind, method, path, body string) Reply {
	r := c.l.ask(kind, c.l.node(), method, path, body)
	c.l.count(kind, r.Outcome())
	return r
}

// alive creates a session, or renews it at an interval, and reports whether it may hold locks.
func (c *contender) alive(every time.Duration) bool {
	now := time.Now()
	if c.session == "" || now.Sub(c.renewed) >= sessionTTL {
		c.session, c.held = "", nil
		var s api.Session
		r := c.ask("session", "POST", "/v1/rollcall/sessions", fmt.Sprintf(`{"ttl":%q,"lock_delay":%q}`, sessionTTL, lockDelay))
		if r.Status/100 == 2 && json.Unmarshal([]byte(r.Body), &s) == nil {
			c.session, c.renewed = s.ID, now
		}
		return false
	}
	if now.Sub(c.renewed) < every {
		return true
	}
	switch r := c.ask("renew", "PUT", "/v1/rollcall/sessions/"+c.session+"/renew", ""); r.Status {
	case http.StatusOK:
		c.renewed = now
		if c.held != nil {
			c.l.until(c.held, now.Add(sessionTTL+lockDelay))
		}
	case http.StatusNotFound:
		c.lost("a renewal", r)
		return false
	}
	return true
}

// turn keeps a session alive, takes the lock, holds it for a while, and releases it.
func (c *contender) turn() {
	if !c.alive(0) {
		return
	}
	if c.left--; c.held == nil {
		c.acquire()
	} else if c.left <= 0 && c.l.draw(3) == 0 {
		c.destroy()
	} else if c.left <= 0 {
		c.release()
	}
}

// lost forgets a session that a node calls ended. No node may say so of a session that was renewed in time.
func (c *contender) lost(what string, r Reply) {
	if time.Since(c.renewed) < sessionTTL && !c.l.d.restored(c.renewed, time.Now()) {
		c.l.w.Errorf("I3 alive: %s of session %s, %v after its last one, says %v at %v", what, c.session, time.Since(c.renewed), r, time.Since(began))
	}
	c.l.markSince(c.l.d.locks.ended, c.session, time.Now())
	c.session, c.held = "", nil
}

// lock returns the name of the lock that has room for another operation.
func (l *load) lock() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.d.locks
	if last := all.names[len(all.names)-1]; len(all.operations[last]) < perLock {
		return last
	}
	kind := []string{ownLock + "lock-", keyLock}[len(all.names)%2]
	all.names = append(all.names, fmt.Sprint(kind, len(all.names)))
	return all.names[len(all.names)-1]
}

// ownLock and semaphore begin the names of our own locks and semaphores, as paths do.
const ownLock, semaphore = "locks/", "semaphores/"

// keyLock begins the names of locks that are keys of Consul's API. Their acquisitions return no token; noToken stands
// for it.
const keyLock, noToken = "key-", 0

// limitOf returns how many sessions may hold what has a name.
func limitOf(lock string) int {
	if strings.HasPrefix(lock, semaphore) {
		return mostPermits
	}
	return 1
}

// permitPath returns the path with which a session acquires one of our own locks or semaphores.
func permitPath(lock, session string, limit int) string {
	return fmt.Sprintf("/v1/rollcall/%s?session=%s&limit=%d", lock, session, limit)
}

// change acquires or releases a lock, and records the request and the response. alive reports after it whether the
// session lasts; it is nil for a session that may be in the queue.
func (c *contender) change(do, lock string, alive func() bool) (r Reply, yes bool, fence uint64) {
	asked := time.Now()
	switch key := strings.HasPrefix(lock, keyLock); {
	case key:
		r = c.ask(do, "PUT", "/v1/kv/"+lock+"?"+do+"="+c.session, c.session)
		if r.Status == http.StatusInternalServerError && strings.HasPrefix(r.Body, "invalid session") {
			r.Status = http.StatusNotFound // as our own API reports it
		}
		yes = r.Status == http.StatusOK && strings.TrimSpace(r.Body) == "true"
	case do == "acquire":
		var a api.Acquired
		r = c.ask(do, "PUT", permitPath(lock, c.session, limitOf(lock)), "")
		yes, fence = r.decode(&a) && a.Acquired, a.Fence
		if yes && fence == noToken {
			c.l.w.Errorf("I5 exclusive: the acquisition at %v has no token: %v", time.Since(began), r)
		}
	default:
		var released api.Released
		r = c.ask(do, "DELETE", permitPath(lock, c.session, limitOf(lock)), "")
		yes = r.decode(&released) && released.Released
	}
	c.l.record(c.client, lock, lockCall{do: do, session: c.session, queued: alive == nil, alive: alive != nil && alive()}, lockReply{r.Outcome(), yes, fence}, asked)
	return r, yes, fence
}

// record records a request to a lock. What may be in the queue takes effect whenever it is its turn.
func (l *load) record(client int, lock string, call lockCall, reply lockReply, asked time.Time) {
	returned := time.Since(began)
	switch {
	case reply.outcome == Refused || reply.outcome == NotFound:
		return
	case reply.outcome == Unknown && call.queued && call.do == "acquire":
		returned = math.MaxInt64
	case reply.outcome == Unknown:
		returned += certainWithin + unknownTakes
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.d.locks.operations
	all[lock] = append(all[lock], porcupine.Operation{
		ClientId: client, Input: call, Output: reply, Call: int64(asked.Sub(began)), Return: int64(returned),
	})
}

// acquire tries to take the lock.
func (c *contender) acquire() {
	h := &hold{asked: time.Now(), session: c.session, lock: c.l.lock()}
	r, yes, fence := c.change("acquire", h.lock, func() bool { return false })
	if r.Status == http.StatusNotFound {
		c.lost("an acquisition", r)
		return
	}
	if !yes {
		return
	}
	h.from, h.to, h.token = time.Now(), c.renewed.Add(sessionTTL+lockDelay), fence
	c.held, c.left = h, 5
	c.l.hold(h)
}

// release gives the lock back.
func (c *contender) release() Reply {
	h := c.held
	c.l.until(h, time.Now())
	c.held = nil
	r, _, _ := c.change("release", h.lock, func() bool {
		return time.Since(c.renewed) < sessionTTL && !c.l.d.restored(h.asked, time.Now())
	})
	return r
}

// destroy ends the session. A lock that it holds stays kept from others for the lock delay, unless the session
// has ended before: a renewal of unknown outcome may have taken longer than the TTL.
func (c *contender) destroy() {
	if to := time.Now().Add(lockDelay); c.held != nil && to.Before(c.held.to) {
		c.l.until(c.held, to)
	}
	if r := c.ask("destroy", "DELETE", "/v1/rollcall/sessions/"+c.session, ""); r.Status == http.StatusOK {
		c.l.markSince(c.l.d.locks.ended, c.session, time.Now())
	}
	c.session, c.held = "", nil
}

// hold compares a hold with the earlier ones.
func (l *load) hold(h *hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	others := 0
	for _, other := range l.holds {
		if other.lock != h.lock {
			continue
		}
		sure := !other.from.After(h.asked) || h.to.Add(-lockDelay).After(h.from) // both had it at a time
		if other.session != h.session && sure && other.to.After(h.from) && !l.d.restored(other.asked, h.from) {
			if others++; others >= limitOf(h.lock) {
				l.w.Errorf("I5 exclusive: session %s got %s between %v and %v, while session %s or its lock-delay kept it until %v",
					h.session, h.lock, h.asked.Sub(began), h.from.Sub(began), other.session, other.to.Sub(began))
			}
		}
		if other.from.Before(h.asked) && other.token > h.token || other.token == h.token && h.token != noToken && other.session != h.session {
			l.w.Errorf("I5 exclusive: the acquisition at %v has token %d, the one before it, at %v, had %d",
				h.from.Sub(began), h.token, other.from.Sub(began), other.token)
		}
	}
	l.holds = append(l.holds, h)
}

// until records when a holder can no longer rely on its lock.
func (l *load) until(h *hold, to time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h.to = to
}

// judge checks that some order of the calls to each lock explains the responses.
func (k *locks) judge(l *load, check checker) {
	for name, operations := range k.operations {
		for _, r := range l.d.restores {
			if r.outcome != Refused {
				operations = append(operations, porcupine.Operation{ClientId: 9, Input: lockCall{do: "restore"}, Output: lockReply{outcome: r.outcome},
					Call: int64(r.from.Sub(began)), Return: int64(r.to.Sub(began) + unknownTakes)})
			}
		}
		k.judgeOrder(l, name, operations)
		for i, op := range operations { // nothing takes effect once the session has ended
			if at, is := k.ended[op.Input.(lockCall).session]; is {
				operations[i].Return = min(op.Return, max(op.Call, int64(at.Sub(began))))
			}
		}
		operations = endUnknown(operations, func(op porcupine.Operation) bool {
			return op.Output.(lockReply).outcome == Unknown
		}, func(op porcupine.Operation) bool { return op.Output.(lockReply).yes })
		if result := check.run(lockModel(limitOf(name)), operations); result != porcupine.Ok {
			l.w.Errorf("I2 linearizable: no order explains what was asked of %s (%s):\n%s", name, result, describe(slices.Clone(operations)))
		}
	}
}
