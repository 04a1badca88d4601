package sim_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/sim"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store/expiry"
)

// Bounds of what coordinates (docs/reference/protocol/coordination.md).
const (
	// interval is how late the leader notices that something has ended, and moment how long a few round trips take, with
	// those between nodes and the pauses of callers that poll.
	interval = expiry.ClockInterval
	moment   = 50 * time.Millisecond
)

// graceOf is how long a session cannot end after a change of leader, whose whole life is a time.
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

// endAtTheirTimes disturbs the cluster while a session is silent, another is renewed, and a lock delay lasts: neither
// of the first and the last may end early or be forgotten, and the second may not end at all.
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
		if pair := w.Get(n, "kept"); pair == nil || pair.Session != kept {
			w.Errorf("%s shows %+v, want the key of the session that was renewed", n, pair)
		}
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

		// The other waits for a change of the key, then tries again.
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
		for range 2 { // destroying a session is true, also once more
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
				// From a change of leader on a session of this TTL has its whole life again; the hand-over itself takes a moment.
				latest := later(createdBy.Add(ttl), led.Add(graceOf(ttl))).Add(delay + time.Second)
				expect.That(w, !inherited.After(latest), "round %d: the heir has the lock %v after the last renewal, want %v at most", round, took, latest.Sub(created))
			}
			need.That(w, write(at(2), newest), "round %d: a write by the heir was refused", round)
			need.That(w, !write(at(0), late), "round %d: the write of a holder that slept through the end of its session was accepted", round)
			w.DestroySession(at(2), heir)
		}
	})
}
