package sim

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/seed-20419f34/rollcall/httpd/api"
)

// perQueue is how long clients ask for a lock or semaphore before they go on with the next; the two kinds alternate.
// longestWait is how long they wait in its queue, at most.
const perQueue, longestWait = 20 * time.Second, 8 * time.Second

// queueTurn is the time between two turns of a waiter.
const queueTurn = 1400 * time.Millisecond

// queues holds what clients and readers of locks and semaphores know of the sessions.
type queues struct {
	ended  map[string]time.Time // when they had neither a permit nor a place any more
	gaveUp map[string]time.Time // when they had no place any more, because the client had hung up, if nothing broke
	shown  map[string]time.Time // when a reader first saw an acquisition, by lock and token
	looks  []looked
}

// looked is what a reader saw of a lock or semaphore.
type looked struct {
	lock            string
	asked, returned time.Time
	queue           []string
}

// asking is a request for a lock or semaphore.
type asking struct {
	session, lock, node string
	wait, patience      time.Duration
	asked               time.Time
	company             atomic.Int32  // of other requests of its session
	over                chan struct{} // closed once there is a response
	reply               Reply
	yes                 bool
	fence               uint64
}

// What other requests of its session may do to a request.
const (
	nothing int32 = iota
	endWait
	release
)

// waiter is a contender that waits in queues. Its requests go on beside its turns.
type waiter struct {
	contender
	requests []*asking
	unsure   string    // the session that may hold or wait for something, whatever the last response said
	since    time.Time // when the first request was sent by which the session may have what it holds
}

// startQueues makes clients wait for locks and semaphores, and others look at them.
func (l *load) startQueues() {
	for client := range 3 {
		c := &waiter{contender: contender{l: l, client: 2 + client}}
		l.task(queueTurn, c.turn)
		l.tasks = append(l.tasks, func() {
			for _, a := range c.requests {
				<-a.over
			}
		})
	}
	l.task(2*time.Second, l.lookAtQueue)
}

// queue returns the name of the lock or semaphore that clients ask for, or of an earlier one.
func (l *load) queue(before int) string {
	n := max(int(time.Since(l.d.began)/perQueue)-before, 0)
	return fmt.Sprint([]string{ownLock, semaphore}[n%2], "queue-", n)
}

// turn does one thing that a client may do whose session waits, holds, or does neither.
func (c *waiter) turn() {
	for len(c.requests) > 0 && c.requests[0].ended() {
		a := c.requests[0]
		c.requests = c.requests[1:]
		c.learn(a)
	}
	if !c.alive(sessionTTL / 2) {
		return
	}
	c.left--
	switch n := c.l.draw(12); {
	case len(c.requests) > 0:
		c.interfere(n)
	case c.left > 0 && c.held == nil:
	case c.left > 0:
		c.use(n)
	case c.held != nil && n == 0:
		c.session, c.held = "", nil // it will expire
	case c.held != nil && n > 1 && c.unsure != c.session:
		c.giveBack()
	case c.held != nil, c.unsure == c.session && n < 7:
		c.destroy()
	default:
		c.requestNew(n)
	}
}

func (a *asking) ended() bool {
	select {
	case <-a.over:
		return true
	default:
		return false
	}
}

// requestNew tries to get a lock or semaphore, or waits in its queue, or hangs up while it waits.
func (c *waiter) requestNew(n int) {
	a := &asking{lock: c.l.queue(0), wait: time.Duration(c.l.draw(int(longestWait)))}
	a.patience = a.wait + callPatience
	switch {
	case n == 0:
		a.wait = 0
	case n < 3:
		a.patience = min(a.wait/2, 3*time.Second) + time.Millisecond
		a.wait += longestWait // a place that outlives its client is seen for so long
	}
	if c.unsure == c.session {
		a.company.Store(endWait)
	} else {
		c.since = time.Now()
	}
	c.send(a)
}

// send sends a request, which goes on beside the turns.
func (c *waiter) send(a *asking) {
	a.session, a.node, a.asked, a.over = c.session, cmp.Or(a.node, c.l.node()), time.Now(), make(chan struct{})
	c.requests = append(c.requests, a)
	c.l.mu.Lock()
	delete(c.l.d.locks.ended, c.session)
	delete(c.l.d.locks.gaveUp, c.session)
	c.l.mu.Unlock()
	go func() {
		defer close(a.over)
		c.l.await(c.client, a)
	}()
}

// await makes a request, judges when the response came, and records it.
func (l *load) await(client int, a *asking) {
	path := fmt.Sprintf("%s&wait=%v", permitPath(a.lock, a.session, limitOf(a.lock)), a.wait.Round(time.Millisecond))
	var got api.Acquired
	a.reply = l.askFor(a.patience, a.wait, a.node, "PUT", path, "")
	a.yes, a.fence = a.reply.decode(&got) && got.Acquired, got.Fence
	o, company := a.reply.Outcome(), a.company.Load()
	l.count("wait", o)
	early := a.reply.Took < a.wait-time.Millisecond && l.d.stayed(a.node, a.asked) && !l.d.restored(a.asked, time.Now())
	switch {
	case a.yes:
		l.judgeWoken(a)
	case o == Done && company == nothing && early:
		l.w.Errorf("I3 alive: session %s asked %s for %s at %v, and lost its place after %v of %v",
			a.session, a.node, a.lock, a.asked.Sub(began), a.reply.Took, a.wait)
	case o == NotFound && a.wait > 0, company == release: // it may have had it meanwhile
		o = Unknown
	}
	l.record(client, a.lock, lockCall{do: "acquire", session: a.session, queued: a.wait > 0, alone: company == nothing},
		lockReply{o, a.yes, a.fence}, a.asked)
}

// judgeWoken checks that a session that gets what it waits for is told so soon, while nothing breaks.
func (l *load) judgeWoken(a *asking) {
	l.mu.Lock()
	at := l.d.locks.shown[fmt.Sprint(a.lock, a.fence)]
	l.mu.Unlock()
	if late := time.Since(at); at.After(a.asked) && late > noticed+4*l.d.latency() && l.d.undisturbed() {
		l.w.Errorf("I12 bounded: session %s got %s, for which it waited at %s, before %v, and was told so %v later",
			a.session, a.lock, a.node, at.Sub(began), late)
	}
}

// learn notes what a response says about the session.
func (c *waiter) learn(a *asking) {
	switch o := a.reply.Outcome(); {
	case a.session != c.session:
	case o == NotFound:
		c.lost("an acquisition", a.reply)
	case o == Unknown:
		c.unsure = c.session
		if a.reply.Took >= a.patience && len(c.requests) == 0 {
			if c.l.draw(2) == 0 { // it asks elsewhere at once, before the node has left the queue
				c.elsewhere(a)
				break
			}
			c.left = 4 // readers look on meanwhile
			c.l.markSince(c.l.d.locks.gaveUp, c.session, time.Now().Add(noticed))
		}
	case a.yes && c.held == nil && a.company.Load() != release:
		until := c.renewed.Add(sessionTTL + lockDelay)
		c.held = &hold{asked: c.since, from: time.Now(), to: until, session: c.session, lock: a.lock, token: a.fence}
		c.left = 1 + c.l.draw(3)
		if a.company.Load() != nothing { // until the other node has given up leaving the queue
			c.left = int(leaveWait / queueTurn)
		}
		c.l.hold(c.held)
	case c.held == nil && c.unsure != c.session && len(c.requests) == 0:
		c.l.markSince(c.l.d.locks.ended, c.session, time.Now())
	}
}

// markSince records since when something is true of a session.
func (l *load) markSince(in map[string]time.Time, session string, since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	in[session] = since
}

// interfere makes another request of a session that waits: it asks again, with a shorter wait or none, or releases.
func (c *waiter) interfere(n int) {
	first := c.requests[0]
	switch {
	case len(c.requests) == 1 && c.held == nil && first.session == c.session && c.l.d.isCutOff(first.node):
		first.company.CompareAndSwap(nothing, endWait)
		c.elsewhere(first)
	case n > 2 || len(c.requests) > 1 || c.held != nil || first.session != c.session:
	case n == 2:
		first.company.Store(release)
		c.unsure = c.session
		c.change("release", first.lock, nil)
	default:
		wait := time.Duration(n * c.l.draw(int(2*time.Second)))
		again := &asking{lock: first.lock, wait: wait, patience: callPatience + longestWait}
		again.company.Store(endWait)
		if again.wait > 0 {
			first.company.CompareAndSwap(nothing, endWait)
		}
		c.send(again)
	}
}

// elsewhere asks again for what another node may still wait for, or leave.
func (c *waiter) elsewhere(first *asking) {
	again := &asking{lock: first.lock, wait: longestWait, patience: callPatience + longestWait}
	again.company.Store(endWait)
	for again.node = c.l.node(); again.node == first.node && c.l.w.cluster.Nodes > 1; {
		again.node = c.l.node()
	}
	c.send(again)
}

// giveBack releases what the session holds. Nothing that depends on it happens afterwards.
func (c *waiter) giveBack() {
	h := c.held
	if c.release().Outcome() != Done {
		c.unsure = c.session
		return
	}
	c.l.markSince(c.l.d.locks.ended, c.session, time.Now())
	c.fenced(h, false)
}

// use writes what depends on what the session holds, asks for it again, or for more.
func (c *waiter) use(n int) {
	h := c.held
	switch {
	case n < 3:
		c.fenced(h, true)
	case n == 3:
		if _, yes, fence := c.change("acquire", h.lock, func() bool { return false }); yes && fence != h.token && c.sure(h) {
			c.l.w.Errorf("I5 exclusive: session %s asked again for %s, and has the token %d instead of %d",
				c.session, h.lock, fence, h.token)
		}
	case n == 4 && limitOf(h.lock) > 1:
		r := c.ask("more", "PUT", permitPath(h.lock, c.session, limitOf(h.lock)+1), "")
		if r.Status == http.StatusOK && c.sure(h) {
			c.l.w.Errorf("I5 exclusive: %s, which session %s holds, has another limit at %v: %v",
				h.lock, c.session, time.Since(began), r)
		}
	}
}

// sure reports whether nothing but its client has ended what the session holds.
func (c *waiter) sure(h *hold) bool {
	return time.Since(c.renewed) < sessionTTL && !c.l.d.restored(h.asked, time.Now())
}

// fenced writes a key with the token of an acquisition, which lasts or is over.
func (c *waiter) fenced(h *hold, lasts bool) {
	kind, name, _ := strings.Cut(h.lock, "s/")
	r := c.ask("fenced", "PUT", fmt.Sprintf("/v1/kv/fenced/%s?fence=%d&fence-%s=%s", name, h.token, kind, name), c.session)
	if done := strings.TrimSpace(r.Body) == "true"; r.Status == http.StatusOK && done != lasts && (done || c.sure(h)) {
		c.l.w.Errorf("I5 exclusive: a write at %v with the token %d of %s, which session %s got at %v, is answered %v",
			time.Since(began), h.token, h.lock, h.session, h.from.Sub(began), r)
	}
}

// lookAtQueue reads a lock or semaphore.
func (l *load) lookAtQueue() {
	lock, asked := l.queue(l.draw(2)), time.Now()
	r := l.ask("queue", l.node(), "GET", "/v1/rollcall/"+lock, "")
	l.count("queue", r.Outcome())
	var p api.Permits
	if r.decode(&p) || r.Status == http.StatusNotFound {
		l.judgePermits(lock, p, asked)
	}
}

// judgePermits compares a lock or semaphore that a reader saw with what clients were told.
func (l *load) judgePermits(lock string, p api.Permits, asked time.Time) {
	now, undisturbed := time.Now(), l.d.undisturbed()
	l.mu.Lock()
	defer l.mu.Unlock()
	q, see := &l.d.locks.queues, looked{lock: lock, asked: asked, returned: now}
	wrong := func(what string, args ...any) {
		l.w.Errorf("I5 exclusive: %s, by a read of %s from %v to %v: %+v",
			fmt.Sprintf(what, args...), lock, asked.Sub(began), now.Sub(began), p)
	}
	if taken := len(p.Holders) + len(p.DelaysMS); taken > limitOf(lock) || len(p.Queue) > 0 && taken < limitOf(lock) {
		wrong("%d permits are held or kept back while %d sessions wait", taken, len(p.Queue))
	}
	listed, token := map[string]bool{}, uint64(0)
	list := func(session string) {
		if at, is := q.ended[session]; is && at.Before(asked) || listed[session] {
			wrong("session %s is there twice, or was gone before", session)
		}
		listed[session] = true
	}
	for _, h := range p.Holders {
		if list(h.Session); h.Fence <= token {
			wrong("tokens do not rise")
		}
		token = h.Fence
		if at := fmt.Sprint(lock, token); q.shown[at].IsZero() {
			q.shown[at] = now
		}
	}
	for _, w := range p.Queue {
		list(w.Session)
		see.queue = append(see.queue, w.Session)
		if at, is := q.gaveUp[w.Session]; is && at.Before(asked) && undisturbed {
			wrong("session %s still waits, whose client hung up before %v", w.Session, at.Add(-noticed).Sub(began))
		}
	}
	for _, h := range l.holds {
		lasts := h.lock == lock && h.from.Before(asked) && h.to.Add(-lockDelay).After(now) && !l.d.restored(h.asked, now)
		shown := func(o api.Holder) bool { return o.Session == h.session && o.Fence == h.token }
		if lasts && !slices.ContainsFunc(p.Holders, shown) {
			wrong("session %s has lost what it got at %v", h.session, h.from.Sub(began))
		}
	}
	q.looks = append(q.looks, see)
}

// judgeOrder checks that no session got a lock or semaphore before another that waited already and went on waiting.
func (k *locks) judgeOrder(l *load, name string, operations []porcupine.Operation) {
	within := func(op porcupine.Operation, r looked) bool {
		return op.Call < int64(r.asked.Sub(began)) && op.Return > int64(r.returned.Sub(began))
	}
	for _, op := range operations {
		for _, other := range operations {
			first, next := op.Input.(lockCall), other.Input.(lockCall)
			got, gotNext := op.Output.(lockReply), other.Output.(lockReply)
			if !first.alone || !next.alone || !got.yes || !gotNext.yes || got.fence <= gotNext.fence {
				continue
			}
			if at := slices.IndexFunc(k.looks, func(r looked) bool {
				place, after := slices.Index(r.queue, first.session), slices.Index(r.queue, next.session)
				return r.lock == name && place >= 0 && within(op, r) &&
					(other.Call > int64(r.returned.Sub(began)) || after > place && within(other, r))
			}); at >= 0 {
				l.w.Errorf("I2 linearizable: session %s waited for %s at %v, and session %s got it first:\n%s",
					first.session, name, k.looks[at].returned.Sub(began), next.session, describe(slices.Clone(operations)))
			}
		}
	}
}
