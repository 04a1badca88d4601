//go:debug randseednop=0

package sim_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/cmd/internal/sim"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestMain(m *testing.M) { sim.Main(m) }

func TestLeaseOutlivesItsLeader(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		dead := w.Register("ORDERS/a", 12*time.Second)
		live := w.Keep("ORDERS/b", 12*time.Second)
		w.Kill(w.Leader())
		took := w.GoneBy(dead, 40*time.Second)
		w.Logf("gone after %v", took)
		w.NeverGone(live)
	})
}

func TestLeaderThatIsCutOffServesNoOldState(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		live := w.Keep("ORDERS/b", 12*time.Second)
		old := w.Leader()
		w.Isolate(old)
		cut := time.Now()
		w.Await(10*time.Second, "another node leads", func() bool { return w.Leader() != old })
		w.Logf("another leads after %v", time.Since(cut))
		r := w.Call(old, "GET", "/eureka/apps/ORDERS", "")
		w.Logf("%v after %v", r, r.Took)
		expect.Equal(w, r.Status, http.StatusServiceUnavailable, "a read at the node that is cut off")
		w.Wait(time.Minute)
		w.Heal()
		w.ReadyBy(old, 10*time.Second)
		w.NeverGone(live)
	})
}

func TestRemovalIsTheFirstThatAnApNodeHears(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3, Mode: config.AP}, func(w *sim.World) {
		w.Register("A/a-1", 30*time.Second)
		expect.Equal(w, w.Call("n1", "DELETE", "/eureka/apps/A/a-1", "").Status, http.StatusOK, "cancel")
		w.Wait(10 * time.Second)
		for _, n := range w.Names() {
			expect.Equal(w, w.Call(n, "GET", "/readyz", "").Status, http.StatusOK, "%s is ready", n)
			expect.Equal(w, w.Call(n, "GET", "/eureka/apps/A/a-1", "").Status, http.StatusNotFound, "%s lists the instance", n)
		}
	})
}

func TestLeaderWhoseDiskHangsIsReplaced(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		live := w.Keep("ORDERS/b", 30*time.Second)
		old := w.Leader()
		w.HangDisk(old)
		hung := time.Now()
		w.Await(30*time.Second, "another node leads", func() bool { return w.Leader() != old })
		w.Logf("another leads after %v", time.Since(hung))
		err := w.Ends(old, 30*time.Second)
		w.Logf("%s ended after %v: %v", old, time.Since(hung), err)
		w.Wait(time.Minute)
		w.NeverGone(live)
	})
}
