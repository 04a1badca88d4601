package sim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/seed-20419f34/rollcall/httpd/api"
)

// sessionTTL is the TTL of the sessions that contend for locks.
const sessionTTL = 10 * time.Second

// hold is a time in which a client may rely on a lock.
type hold struct {
	asked, from, to time.Time // when it asked for the lock, got it, and can no longer rely on it
	session         string
	lock            string
	token           uint64
}

// lockCall is what a session asked of a lock, and lockReply what it was told.
type lockCall struct {
	do, session string // acquire, release, or restore, of no session
	alive       bool   // the session had been renewed, so that it had not ended by the time of the response
}

type lockReply struct {
	outcome Outcome
	yes     bool // it has the lock; it had something to release
	fence   uint64
}

// lockState is a lock. Sessions end by themselves: then held stays true until another one has the lock.
type lockState struct {
	session string
	fence   uint64
	held    bool
}

// lockModel is a lock whose tokens rise, and that is refused only while it is, or may be, held.
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
		case c.do == "acquire" && r.yes && (r.fence > now.fence || own && r.fence == now.fence):
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

// locks are the histories of locks, which follow each other.
type locks struct {
	names      []string
	operations map[string][]porcupine.Operation
}

// contender is one client of the locks.
type contender struct {
	l       *load
	client  int
	session string
	renewed time.Time // when the last renewal that was acknowledged was sent
	held    *hold
	left    int // turns for which it holds the lock on
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

// turn makes a session, or renews it and takes the lock, holds it for a while, and releases it.
func (c *contender) turn() {
	now := time.Now()
	if c.session == "" || now.Sub(c.renewed) >= sessionTTL {
		c.session, c.held = "", nil
		var s api.Session
		r := c.ask("session", "POST", "/v1/rollcall/sessions", `{"ttl":"10s","lock_delay":"1s"}`)
		if r.Status/100 == 2 && json.Unmarshal([]byte(r.Body), &s) == nil {
			c.session, c.renewed = s.ID, now
		}
		return
	}
	switch r := c.ask("renew", "PUT", "/v1/rollcall/sessions/"+c.session+"/renew", ""); r.Status {
	case http.StatusOK:
		c.renewed = now
		if c.held != nil {
			c.l.until(c.held, now.Add(sessionTTL))
		}
	case http.StatusNotFound:
		c.lost("a renewal", r)
		return
	}
	if c.left--; c.held == nil {
		c.acquire()
	} else if c.left <= 0 {
		c.release()
	}
}

// lost forgets a session that a node calls ended. A node must not say so of a session that was renewed on time.
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
	if last := all.names[len(all.names)-1]; len(all.operations[last]) < perKey-20 {
		return last
	}
	all.names = append(all.names, fmt.Sprint("lock-", len(all.names)))
	return all.names[len(all.names)-1]
}

// record keeps what was asked of a lock.
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
	var a api.Acquired
	r := c.ask("acquire", "PUT", "/v1/rollcall/locks/"+h.lock+"?session="+c.session, "")
	yes := r.decode(&a) && a.Acquired
	c.record(h.lock, lockCall{do: "acquire", session: c.session}, lockReply{r.Outcome(), yes, a.Fence}, h.asked)
	if r.Status == http.StatusNotFound {
		c.lost("an acquisition", r)
		return
	}
	if !yes {
		return
	}
	h.from, h.to, h.token = time.Now(), c.renewed.Add(sessionTTL), a.Fence
	c.held, c.left = h, 5
	c.l.hold(h)
}

// release gives the lock back.
func (c *contender) release() {
	h, asked := c.held, time.Now()
	c.l.until(h, asked)
	c.held = nil
	var released api.Released
	r := c.ask("release", "DELETE", "/v1/rollcall/locks/"+h.lock+"?session="+c.session, "")
	yes := r.decode(&released) && released.Released
	alive := time.Since(c.renewed) < sessionTTL && !c.l.d.restored(h.asked, time.Now())
	c.record(h.lock, lockCall{"release", c.session, alive}, lockReply{r.Outcome(), yes, 0}, asked)
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
			l.w.Errorf("I5 exclusive: session %s got %s between %v and %v, while session %s held it until %v",
				h.session, h.lock, h.asked.Sub(began), h.from.Sub(began), other.session, other.to.Sub(began))
		}
		if other.from.Before(h.asked) && (other.token > h.token || other.token == h.token && other.session != h.session) {
			l.w.Errorf("I5 exclusive: the acquisition at %v has token %d, the one before it, at %v, had %d",
				h.from.Sub(began), h.token, other.from.Sub(began), other.token)
		}
	}
	l.holds = append(l.holds, h)
}

// until says when a holder can no longer rely on its lock.
func (l *load) until(h *hold, to time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h.to = to
}

// judge expects an order of what was asked of each lock that explains the responses.
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
