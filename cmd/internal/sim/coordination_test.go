package sim_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/sim"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/expiry"
)

// Bounds for coordination (docs/reference/protocol/coordination.md).
const (
	// interval is how late the leader notices that something has ended, and moment how long a few round trips take,
	// including those between nodes and the pauses of callers that poll.
	interval = expiry.ClockInterval
	moment   = 50 * time.Millisecond
)

// graceOf returns how long a session with the given lifetime cannot end after a change of leader.
func graceOf(life time.Duration) time.Duration { return min(life, life/2+2*time.Second) }

func TestSessionsAndLockDelaysOutliveTheirLeader(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		leader := w.Leader()
		node := w.Others(leader)[0]
		endAtTheirTimes(w, node, func() {
			w.Kill(leader)
			w.Led(node)
			w.Start(leader)
		})
	})
}

func TestSessionsAndLockDelaysOutliveARestartOfAllNodes(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		endAtTheirTimes(w, "n1", func() {
			for _, n := range w.Names() {
				w.Kill(n)
			}
			w.Wait(20 * time.Second) // which is charged to nothing
			for _, n := range w.Names() {
				w.Start(n)
			}
		})
	})
}

// endAtTheirTimes disturbs the cluster while a session is silent, another is renewed, and a lock delay lasts. The
// first and the last must neither end early nor be forgotten, and the second must not end at all.
func endAtTheirTimes(w *sim.World, node string, disturb func()) {
	w.Helper()
	const ttl, delay, renewed = 6 * time.Second, 6 * time.Second, 12 * time.Second
	kept := w.Session(node, renewed, 0)
	lost := w.KeepSession(kept, renewed)
	need.That(w, w.Acquire(node, "kept", kept), "the session that is kept has not got its key")
	heir := w.Session(node, time.Hour, 0)
	delayed := w.Session(node, time.Hour, delay)
	need.That(w, w.Acquire(node, "delayed", delayed), "the session with a lock delay has not got its key")

	silentSince := time.Now()
	silent := w.Session(node, ttl, 0)
	silentBy := time.Now()
	need.That(w, w.Acquire(node, "silent", silent), "the silent session has not got its key")
	delayedSince := time.Now()
	w.DestroySession(node, delayed)
	delayedBy := time.Now()

	w.Wait(4 * time.Second) // so that the end of the silent session is less than a grace away
	disturbed := time.Now()
	disturb()
	led := w.Led(node)
	stood := led.Sub(disturbed) + expiry.TickAge // of the lease clock, which stands still from the newest entry on

	free := w.AcquiredAt(node, "delayed", heir)
	expect.That(w, free.Sub(delayedSince) >= delay, "the lock delay was over after %v, before its %v", free.Sub(delayedSince), delay)
	expect.That(w, free.Sub(delayedBy) <= delay+stood+interval+moment, "the lock delay was over after %v, it is %v and its clock stood still for %v at most", free.Sub(delayedBy), delay, stood)
	free = w.AcquiredAt(node, "silent", heir)
	earliest := later(silentSince.Add(ttl), led.Add(graceOf(ttl)-moment))
	latest := later(silentBy.Add(ttl+stood), led.Add(graceOf(ttl))).Add(interval + moment)
	expect.That(w, !free.Before(earliest) && !free.After(latest), "the silent session ended %v after its creation, want between %v and %v", free.Sub(silentSince), earliest.Sub(silentSince), latest.Sub(silentSince))
	w.Wait(2 * renewed)
	expect.That(w, !lost(), "the session that was renewed is gone")
	for _, n := range w.Others() {
		pair := w.Get(n, "kept")
		expect.That(w, pair != nil && pair.Session == kept, "%s shows %+v, want the key of the session that was renewed", n, pair)
	}
}

// documentOf reads the JSON of a response, which must be a 200.
func documentOf[T any](w *sim.World, r sim.Reply) (document T) {
	w.Helper()
	need.Equal(w, r.Status, http.StatusOK, "%v: the status is", r)
	need.OKf(w, json.Unmarshal([]byte(r.Body), &document), "%v", r)
	return document
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

func TestMutexByConsulsRecipeGoesFromSessionToSessionAtOnce(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		create := func(node, name string) string {
			// As Java's clients do: the number 0 turns the lock delay off.
			r := w.Call(node, "PUT", "/v1/session/create", `{"LockDelay":0,"Name":"`+name+`"}`)
			return documentOf[struct{ ID string }](w, r).ID
		}
		first, other := create("n1", "first"), create("n2", "other")
		need.That(w, w.Put("n1", "lock/job", "acquire="+first, "lock:1"), "a free key was not acquired")
		need.That(w, !w.Put("n2", "lock/job", "acquire="+other, "lock:2"), "two hold the lock")
		expect.That(w, !w.Put("n2", "lock/job", "release="+other, "unlock:2"), "a session that does not hold the lock released it")
		held := w.Get("n3", "lock/job")
		need.That(w, held != nil && held.Session == first && string(held.Value) == "lock:1" && held.LockIndex == 1, "n3 shows %+v, want it held by the first with its value", held)
		token, err := strconv.ParseUint(w.Call("n3", "GET", "/v1/kv/lock/job", "").Header.Get("X-Rollcall-Fence"), 10, 64)
		expect.That(w, err == nil && token > 0, "the token of the acquisition is %d, %v", token, err)

		// The other one waits for a change of the key, then tries again.
		acquired := make(chan time.Time, 1)
		go func() {
			for index := fmt.Sprint(held.ModifyIndex); ; {
				index = w.Hold("n2", "GET", "/v1/kv/lock/job?wait=5m&index="+index, "").Header.Get("X-Consul-Index")
				if w.Put("n2", "lock/job", "acquire="+other, "lock:2") {
					acquired <- time.Now()
					return
				}
			}
		}()
		w.Wait(time.Minute)
		expect.Equal(w, len(acquired), 0, "those who acquired a held lock")
		released := time.Now()
		expect.That(w, w.Put("n1", "lock/job", "release="+first, "unlock:1"), "the holder could not release its lock")
		select {
		case at := <-acquired:
			expect.That(w, at.Sub(released) <= moment, "the lock went to who waits for it after %v, want %v at most", at.Sub(released), moment)
		case <-time.After(time.Minute):
			w.Fatal("the lock did not go to who waits for it")
		}
		for range 2 { // destroying a session returns true, even a second time
			w.DestroySession("n3", other)
		}
		held = w.Get("n1", "lock/job")
		expect.That(w, held != nil && held.Session == "" && string(held.Value) == "lock:2", "n1 shows %+v, want the value kept and no holder", held)
		expect.That(w, w.Put("n1", "lock/job", "acquire="+first, "again"), "a lock whose session was destroyed without a lock delay is not free at once")
		for _, dead := range []string{other, "no-uuid"} {
			r := w.Call("n1", "PUT", "/v1/kv/lock/x?acquire="+dead, "")
			want := fmt.Sprintf("raft apply failed: invalid session %q", dead)
			expect.That(w, r.Status == http.StatusInternalServerError && r.Body == want, "acquire by a session that is gone: %v, want 500 %q", r, want)
		}
	})
}

// Holders fall silent, as if their processes were paused, while leaders change: the next in the queue has the lock
// when TTL and lock delay are over, and what the late holder writes afterwards is refused.
func TestLateHolderOfALockIsFencedOff(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		const ttl, delay = 3 * time.Second, time.Second
		newest := uint64(0)
		write := func(node string, fence uint64) bool {
			return w.Put(node, "guarded", fmt.Sprintf("fence=%d&fence-lock=job", fence), "x")
		}
		for round := range 12 {
			at := func(i int) string { return w.Names()[(round+i)%3] }
			created := time.Now()
			mine := w.Session(at(0), ttl, delay)
			late := w.Lock(at(0), "job", mine, 0)
			createdBy := time.Now()
			need.That(w, late > newest, "round %d: token %d after %d", round, late, newest)
			need.That(w, write(at(1), late), "round %d: a write by the holder was refused", round)

			heir := w.Session(at(1), time.Hour, 0)
			var led time.Time
			disturbed := make(chan struct{})
			go func() {
				defer close(disturbed)
				w.Wait(time.Duration(round) * 300 * time.Millisecond)
				if round%2 == 0 {
					w.TransferLeadership()
					led = w.Led(at(2))
				}
			}()
			newest = w.Lock(at(1), "job", heir, time.Minute)
			inherited := time.Now()
			<-disturbed
			need.That(w, newest > late, "round %d: the heir's token is %d, after %d", round, newest, late)
			took := inherited.Sub(created)
			expect.That(w, took >= ttl+delay, "round %d: the heir has the lock %v after the last renewal, before TTL and lock delay are over", round, took)
			if round%2 == 1 {
				took := inherited.Sub(createdBy)
				expect.That(w, took <= ttl+delay+2*interval+moment, "round %d: the heir has the lock %v after the last renewal, want %v at most", round, took, ttl+delay+2*interval+moment)
			} else {
				// From a change of leader on a session of this TTL has its whole life again; the hand-over itself
				// takes a moment.
				latest := later(createdBy.Add(ttl), led.Add(graceOf(ttl))).Add(delay + time.Second)
				expect.That(w, !inherited.After(latest), "round %d: the heir has the lock %v after the last renewal, want %v at most", round, took, latest.Sub(created))
			}
			need.That(w, write(at(2), newest), "round %d: a write by the heir was refused", round)
			need.That(w, !write(at(0), late), "round %d: the write of a holder that slept through the end of its session was accepted", round)
			w.DestroySession(at(2), heir)
		}
	})
}

// afterUnknown is how long a client waits, after it was told that an outcome is unknown, before it makes another
// write that must stand (docs/adr/0022).
const afterUnknown = time.Second

// givenUp is a write whose outcome is unknown, and a later one elsewhere that must stand: of a key, whose old value
// must not come back, or of an instance, whose cancel must not come late.
type givenUp struct {
	id       string
	instance bool
	first    sim.Reply
	second   sim.Reply
}

func (g *givenUp) instancePath() string { return "/eureka/apps/GIVENUP/" + g.id }

// run makes the first write at one node and the second at another.
func (g *givenUp) run(w *sim.World, at, later string) {
	if g.instance {
		g.first = w.Call(at, "DELETE", g.instancePath(), "")
	} else {
		g.first = w.Call(at, "PUT", "/v1/kv/"+g.id, "OLD")
	}
	w.Wait(afterUnknown)
	for end := time.Now().Add(electedWithin); g.second.Outcome() != sim.Done; w.Wait(50 * time.Millisecond) {
		if time.Now().After(end) {
			return
		}
		if g.instance {
			g.second = g.register(w, later)
		} else {
			g.second = w.Call(later, "PUT", "/v1/kv/"+g.id, "NEW")
		}
	}
}

func (g *givenUp) register(w *sim.World, node string) sim.Reply {
	return w.Call(node, "POST", "/eureka/apps/GIVENUP", sim.Registration("GIVENUP", g.id, time.Hour, nil))
}

// stands checks that the second write is not undone.
func (g *givenUp) stands(w *sim.World, node string) {
	w.Helper()
	if g.instance {
		r := w.Call(node, "GET", g.instancePath()+"?consistency=linearizable", "")
		need.That(w, r.Status != http.StatusNotFound,
			"%s is gone at %s: its cancel got %v, and it was registered again", g.id, node, g.first)
		return
	}
	r := w.Call(node, "GET", "/v1/kv/"+g.id+"?raw&consistent", "")
	need.That(w, r.Status != http.StatusOK || r.Body == "NEW",
		"%s is %v at %s: that got %v, and NEW was written after it", g.id, r, node, g.first)
}

// giveUp makes pairs of writes, of a key and of an instance, once breaks has broken something: as many as a node has
// batches in flight. Each client makes the second write when the first has a response.
func giveUp(w *sim.World, at, later string, breaks func()) []*givenUp {
	w.Helper()
	writes := []*givenUp{{id: "key"}, {id: "instance", instance: true}}
	need.Equal(w, writes[1].register(w, later).Status, http.StatusNoContent, "register")
	w.List(at) // it knows the leader, and has what was prepared
	breaks()
	done := make(chan struct{}, len(writes))
	for _, g := range writes {
		go func() {
			g.run(w, at, later)
			done <- struct{}{}
		}()
		w.Wait(time.Millisecond) // each is a batch of its own
	}
	for range writes {
		<-done
	}
	for _, g := range writes {
		need.Equal(w, g.second.Outcome(), sim.Done, "the second write of %s: %v", g.id, g.second)
	}
	return writes
}

// areUnknown checks that the clients of first writes were told in time that nobody knows the outcome.
func areUnknown(w *sim.World, writes []*givenUp) {
	w.Helper()
	for _, g := range writes {
		expect.That(w, g.first.Status == http.StatusGatewayTimeout && g.first.Header.Get("X-Rollcall-Outcome") == "unknown",
			"the first write of %s: %v, want 504 and that its outcome is unknown", g.id, g.first)
		expect.That(w, g.first.Took >= store.ResultWait && g.first.Took <= unknownWithin,
			"the first write of %s took %v", g.id, g.first.Took)
	}
}

// stand checks for a while that the second writes stand at all nodes.
func stand(w *sim.World, writes []*givenUp) {
	w.Helper()
	for _, n := range w.Names() {
		w.ReadyBy(n, sim.ReadyWithin)
	}
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); w.Wait(20 * time.Millisecond) {
		for _, g := range writes {
			for _, n := range w.Names() {
				g.stands(w, n)
			}
		}
	}
}

func TestWriteOfUnknownOutcomeDoesNotTakeEffectAfterACut(t *testing.T) {
	for _, cut := range []time.Duration{6 * time.Second, 12 * time.Second, 20 * time.Second, time.Minute} {
		t.Run(fmt.Sprint(cut), func(t *testing.T) {
			sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
				leader := w.Leader()
				at, later := w.Others(leader)[0], w.Others(leader)[1]
				began := time.Now()
				writes := giveUp(w, at, later, func() { w.Cut(at, leader) })
				areUnknown(w, writes)
				w.Wait(time.Until(began.Add(cut)))
				w.Heal()
				stand(w, writes)
			})
		})
	}
}

// The leader is killed while writes are in flight to it, and started again.
func TestWriteOfUnknownOutcomeDoesNotTakeEffectAfterAKill(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		leader := w.Leader()
		at, later := w.Others(leader)[0], w.Others(leader)[1]
		writes := giveUp(w, at, later, func() {
			w.Isolate(at)
			time.AfterFunc(300*time.Millisecond, func() { // the writes are in flight
				w.Kill(leader)
				w.Start(leader)
			})
		})
		areUnknown(w, writes)
		w.Heal()
		stand(w, writes)
	})
}

// A leader is killed after it committed a cancel, and its reply is lost. The node that was asked sends the cancel to
// the next leader, where the instance is gone: its client must not be told that there was none.
func TestWriteThatIsSentAgainToTheNextLeaderTakesEffectOnce(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		leader := w.Leader()
		at, later := w.Others(leader)[0], w.Others(leader)[1]
		w.Register("ONCE/one", time.Hour)
		w.List(at)
		w.SetLink(leader, at, func(l *sim.Link) { l.Cut = true })
		cancelled := make(chan sim.Reply, 1)
		go func() { cancelled <- w.Call(at, "DELETE", "/eureka/apps/ONCE/one", "") }()
		w.Await(soon+look, "the cancel is committed", func() bool {
			return w.Call(later, "GET", "/eureka/apps/ONCE/one?consistency=stale", "").Status == http.StatusNotFound
		})
		w.Kill(leader)
		w.Heal()
		r := <-cancelled
		if r.Took < store.ResultWait { // otherwise the election took longer
			expect.Equal(w, r.Status, http.StatusOK, "the cancel: %v after %v", r, r.Took)
		}
		w.Start(leader)
	})
}

// docs/reference/protocol/coordination.md: the same request under the same Idempotency-Key is performed once in 10
// minutes of lease clock, which passes only while a leader serves, with the same response each time.
func TestWriteOfUnknownOutcomeIsDoneOncePerIdempotencyKeyForTenMinutesWithALeader(t *testing.T) {
	const (
		onceFor = kv.OnceFor * time.Millisecond
		outage  = 15 * time.Minute
		call    = 50 * time.Millisecond                   // a call takes no longer
		lost    = expiry.TickAge + 2*expiry.ClockInterval // what a change of leader may cost the lease clock
	)
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		write := func(node, key string) sim.Reply { // succeeds only if the key does not exist
			return w.Call(node, http.MethodPut, "/v1/kv/"+key+"?cas=0", "mine", "Idempotency-Key: "+key)
		}
		gets := func(node, key, want string) {
			w.Helper()
			r := write(node, key)
			need.That(w, r.Status == http.StatusOK && strings.TrimSpace(r.Body) == want, "%s at %s: %v, want %s", key, node, r, want)
		}
		holds := func(node, key, want string) {
			w.Helper()
			p := w.Get(node, key)
			need.That(w, p != nil && string(p.Value) == want, "%s at %s is %+v, want %s", key, node, p, want)
		}
		// between repeats a write right before its time is over, and right after.
		between := func(key string, from, to time.Time) {
			w.Helper()
			w.Wait(time.Until(from.Add(-call)))
			gets(w.Names()[1], key, "true")
			late := time.Since(from)
			need.That(w, late <= 0, "%s was repeated %v too late", key, late)
			w.Wait(time.Until(to))
			gets(w.Names()[1], key, "false") // performed again: the key exists
		}
		w.Keep("ORDERS/a", 90*time.Second) // without a lease or a session the lease clock hardly runs

		// The followers get the write, and their acknowledgements do not arrive: the next leader performs it.
		first := w.Leader()
		others := w.Others(first)
		for _, other := range others {
			w.SetLink(other, first, func(l *sim.Link) { l.Cut = true })
		}
		sent := time.Now()
		r := write(first, "order")
		need.That(w, r.Outcome() == sim.Unknown, "a write whose acknowledgements are cut off: %v", r)
		w.Heal()
		done := w.Led(others[0])
		holds(others[0], "order", "mine")
		need.That(w, w.Put(others[0], "order", "", "another's"), "another's write was refused")
		for _, node := range w.Names() {
			gets(node, "order", "true")
		}

		// A quarter of an hour without a leader does not count.
		for _, node := range w.Names() {
			w.Kill(node)
		}
		killed := time.Now()
		w.Wait(outage)
		for _, node := range w.Names() {
			w.Start(node)
		}
		led := w.Led(first)
		gets(first, "order", "true")

		// With one leader the ten minutes are exact.
		w.Wait(time.Minute)
		calm := time.Now()
		gets(first, "calm", "true")
		acknowledged := time.Now()
		between("order", sent.Add(onceFor+outage), done.Add(onceFor+led.Sub(killed)+lost))
		holds(first, "order", "another's")
		between("calm", calm.Add(onceFor), acknowledged.Add(onceFor))
	})
}
