package sim_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/sim"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// truthContended makes a lock that somebody holds, and a session that does not hold it, and returns that.
func truthContended(w *sim.World, leader string) string {
	w.Helper()
	holder := w.Session(leader, time.Hour, 0)
	need.That(w, w.Lock(leader, "l", holder, 0) != 0, "the lock is not acquired")
	return w.Session(leader, time.Hour, 0)
}

// truthNoSession expects that a response to a session that lives does not say that it has ended.
func truthNoSession(w *sim.World, r sim.Reply, when string) {
	w.Helper()
	expect.That(w, r.Status != http.StatusNotFound, "%s: a session that lives is told %v after %v", when, r, r.Took)
}

// TestTruthLockIsNotRefusedForASessionThatLives asks a follower for a lock that another session holds, while the follower
// is behind or cut off, and so may not know the session.
func TestTruthLockIsNotRefusedForASessionThatLives(t *testing.T) {
	const wait = time.Second
	path := func(session string) string {
		return fmt.Sprintf("/v1/rollcall/locks/l?session=%s&wait=%v", session, wait)
	}
	t.Run("behind", func(t *testing.T) {
		sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
			leader := w.Leader()
			behind := w.Others(leader)[0]
			w.SlowDisk(behind, 3*time.Second)
			truthContended(w, leader)
			for i := range 4 {
				waiter := w.Session(leader, time.Hour, 0)
				truthNoSession(w, w.Hold(behind, "PUT", path(waiter), ""), fmt.Sprint("behind, ", i))
			}
			w.SlowDisk(behind, 0)
			w.Wait(4 * time.Second) // its last slow write ends
		})
	})
	for cut := 0 * time.Millisecond; cut <= wait; cut += 100 * time.Millisecond {
		t.Run(fmt.Sprint("cut off after ", cut), func(t *testing.T) {
			sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
				leader := w.Leader()
				node := w.Others(leader)[0]
				waiter := truthContended(w, leader)
				time.AfterFunc(cut, func() { w.Isolate(node) })
				truthNoSession(w, w.Hold(node, "PUT", path(waiter), ""), "cut off")
				w.Heal()
				truthNoSession(w, w.Hold(node, "PUT", path(waiter), ""), "healed")
			})
		})
	}
}

// TestTruthSessionThatHasEndedIsToldSo is the other half: what a node says for certain, it says.
func TestTruthSessionThatHasEndedIsToldSo(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		leader := w.Leader()
		waiter := truthContended(w, leader)
		time.AfterFunc(300*time.Millisecond, func() { w.DestroySession(leader, waiter) })
		r := w.Hold(w.Others(leader)[0], "PUT", "/v1/rollcall/locks/l?wait=5s&session="+waiter, "")
		expect.That(w, r.Status == http.StatusNotFound && r.Took < time.Second, "got %v after %v", r, r.Took)
	})
}
