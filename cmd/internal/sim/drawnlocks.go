package sim

import (
	"encoding/json"
	"fmt"
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

// lockCall is what a session asked of a lock, and lockReply what it was told.
type lockCall struct {
	do, session string // acquire, release, or restore, which has no session
	alive       bool   // the session had been renewed, so it had not ended by the time of the response
}

type lockReply struct {
	outcome Outcome
	yes     bool // it has the lock; it had something to release
	fence   uint64
}

// lockState is the state of a lock. Sessions expire: then held stays true until another one has the lock.
type lockState struct {
	session string
	fence   uint64
	held    bool
}

// lockModel models a lock whose tokens rise, and which is refused only while it is, or may be, held.
var lockModel = porcupine.NondeterministicModel{
	Init: func() []any { return []any{lockState{}} },
	Step: func(state, input, output any) []any {
		c, r, now := input.(lockCall), output.(lockReply), state.(lockState)
		then := []any(nil)
		switch own := now.held && now.session == c.session; {
		case c.do == "restore":
			then = append(then, lockState{fence: now.fence, held: true}) // until lock delays are over
		case c.do == "acquire" && r.outcome == Unknown:
			then = append(then, lockState{c.session, now.fence, true})
		case c.do == "acquire" && r.yes && (r.fence > now.fence || r.fence == now.fence && (own || r.fence == noToken)):
			return []any{lockState{c.session, r.fence, true}}
		case c.do == "acquire" && !r.yes && now.held && !own:
			return []any{now}
		case c.do == "release" && r.outcome == Unknown, c.do == "release" && r.yes && own:
			released := now
			released.held = now.held && !own
			then = append(then, released)
		case c.do == "release" && !r.yes && (!own || !c.alive):
			return []any{now}
		}
		if r.outcome == Unknown {
			then = append(then, now)
		}
		return then
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v = %+v", input, output) },
}

// locks holds the histories of successive locks.
type locks struct {
	names      []string
	operations map[string][]porcupine.Operation
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
	l.d.locks = &locks{names: []string{"lock-0"}, operations: map[string][]porcupine.Operation{}}
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

// turn creates a session, or renews it and takes the lock, holds it for a while, and releases it.
func (c *contender) turn() {
	now := time.Now()
	if c.session == "" || now.Sub(c.renewed) >= sessionTTL {
		c.session, c.held = "", nil
		var s api.Session
		r := c.ask("session", "POST", "/v1/rollcall/sessions", fmt.Sprintf(`{"ttl":%q,"lock_delay":%q}`, sessionTTL, lockDelay))
		if r.Status/100 == 2 && json.Unmarshal([]byte(r.Body), &s) == nil {
			c.session, c.renewed = s.ID, now
		}
		return
	}
	switch r := c.ask("renew", "PUT", "/v1/rollcall/sessions/"+c.session+"/renew", ""); r.Status {
	case http.StatusOK:
		c.renewed = now
		if c.held != nil {
			c.l.until(c.held, now.Add(sessionTTL+lockDelay))
		}
	case http.StatusNotFound:
		c.lost("a renewal", r)
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
	kind := []string{"lock-", keyLock}[len(all.names)%2]
	all.names = append(all.names, fmt.Sprint(kind, len(all.names)))
	return all.names[len(all.names)-1]
}

// keyLock begins the names of locks that are keys of Consul's API. Their acquisitions return no token; noToken stands
// for it.
const keyLock, noToken = "key-", 0

// change acquires or releases a lock, and records the request and the response.
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
		r = c.ask(do, "PUT", "/v1/rollcall/locks/"+lock+"?session="+c.session, "")
		yes, fence = r.decode(&a) && a.Acquired, a.Fence
		if yes && fence == noToken {
			c.l.w.Errorf("I5 exclusive: the acquisition at %v has no token: %v", time.Since(began), r)
		}
	default:
		var released api.Released
		r = c.ask(do, "DELETE", "/v1/rollcall/locks/"+lock+"?session="+c.session, "")
		yes = r.decode(&released) && released.Released
	}
	c.record(lock, lockCall{do, c.session, alive()}, lockReply{r.Outcome(), yes, fence}, asked)
	return r, yes, fence
}

// record records a request to a lock.
func (c *contender) record(lock string, call lockCall, reply lockReply, asked time.Time) {
	returned := time.Since(began)
	if reply.outcome == Refused || reply.outcome == NotFound {
		return
	}
	if reply.outcome == Unknown {
		returned += certainWithin + unknownTakes
	}
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	all := c.l.d.locks.operations
	all[lock] = append(all[lock], porcupine.Operation{
		ClientId: c.client, Input: call, Output: reply, Call: int64(asked.Sub(began)), Return: int64(returned),
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
func (c *contender) release() {
	h := c.held
	c.l.until(h, time.Now())
	c.held = nil
	c.change("release", h.lock, func() bool {
		return time.Since(c.renewed) < sessionTTL && !c.l.d.restored(h.asked, time.Now())
	})
}

// destroy ends the session that holds the lock, which stays kept from others for the lock delay, unless the session
// has ended before: a renewal of unknown outcome may have taken longer than the TTL.
func (c *contender) destroy() {
	if to := time.Now().Add(lockDelay); to.Before(c.held.to) {
		c.l.until(c.held, to)
	}
	c.ask("destroy", "DELETE", "/v1/rollcall/sessions/"+c.session, "")
	c.session, c.held = "", nil
}

// hold compares a hold with the earlier ones.
func (l *load) hold(h *hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, other := range l.holds {
		if other.lock != h.lock {
			continue
		}
		if other.session != h.session && !other.from.After(h.asked) && other.to.After(h.from) && !l.d.restored(other.asked, h.from) {
			l.w.Errorf("I5 exclusive: session %s got %s between %v and %v, while session %s or its lock-delay kept it until %v",
				h.session, h.lock, h.asked.Sub(began), h.from.Sub(began), other.session, other.to.Sub(began))
		}
		if other.from.Before(h.asked) && (other.token > h.token || other.token == h.token && h.token != noToken && other.session != h.session) {
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
		operations = endUnknown(operations, func(op porcupine.Operation) bool {
			return op.Output.(lockReply).outcome == Unknown
		}, func(op porcupine.Operation) bool { return op.Output.(lockReply).yes })
		if result := check.run(lockModel.ToModel(), operations); result != porcupine.Ok {
			l.w.Errorf("I2 linearizable: no order explains what was asked of %s (%s):\n%s", name, result, describe(slices.Clone(operations)))
		}
	}
}
