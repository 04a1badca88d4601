package sim_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/cmd/internal/sim"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

// Bounds of docs/run/node-died.md, "Disks and memory".
const (
	slowest     = 4 * time.Second         // that one write may take
	hangsAfter  = 4500 * time.Millisecond // by looks, each a quarter of a second after the other
	writtenSoon = 8 * time.Second         // after the leader's disk began to hang
)

func TestLeaderWhoseDiskHangsIsReplacedByOneThatAcceptsWrites(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		live := w.Keep("KEPT/live", 30*time.Second)
		old := w.Leader()
		others := w.Others(old)
		w.HangDisk(old)
		hung := time.Now()
		caught := make(chan sim.Reply, 1)
		go func() {
			caught <- w.Call(old, "POST", "/eureka/apps/CAUGHT", sim.Registration("CAUGHT", "caught", time.Hour, nil))
		}()
		ended := make(chan time.Duration, 1)
		go func() {
			err := w.Ends(old, time.Minute)
			ended <- time.Since(hung)
			code := cli.ExitCode(new(bytes.Buffer), "rollcall", err)
			expect.Equal(w, code, 3, "the code with which a node ends whose disk hangs")
			expect.That(w, err != nil && strings.Contains(err.Error(), "the disk hangs"), "it ends with %v", err)
		}()
		isNotAcknowledged(w, <-caught)
		w.Await(time.Until(hung.Add(writtenSoon)), "a write is acknowledged", func() bool {
			r := w.Call(others[0], "PUT", "/v1/kv/after", "x")
			return r.Status == http.StatusOK && time.Since(hung) <= writtenSoon
		})
		w.Logf("a write was acknowledged %v after the disk began to hang", time.Since(hung))
		took := <-ended
		expect.That(w, took >= hangsAfter && took <= hangsAfter+4*time.Second, "it ended after %v", took)
		w.Wait(time.Minute)
		w.NeverGone(live)
	})
}

// TestDiskThatIsSlowDoesNotHang has each write of the leader, or of a follower, take as long as one may.
func TestDiskThatIsSlowDoesNotHang(t *testing.T) {
	for _, leads := range []bool{true, false} {
		t.Run(map[bool]string{true: "the leader's", false: "a follower's"}[leads], func(t *testing.T) {
			sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
				leader := w.Leader()
				slow := leader
				if !leads {
					slow = w.Others(leader)[0]
				}
				w.SlowDisk(slow, slowest)
				for end := time.Now().Add(time.Minute); time.Now().Before(end); w.Wait(time.Second) {
					r := w.Call(leader, "PUT", "/v1/kv/k", "x")
					expect.That(w, leads || r.Status == http.StatusOK && r.Took <= soon,
						"a write: %v after %v, want it to wait for no follower's disk", r, r.Took)
				}
				w.SlowDisk(slow, 0)
				w.Wait(2 * slowest) // a hand-over at the end that a write keeps waiting leaves a goroutine of Raft behind
				w.ReadyBy(slow, sim.ReadyWithin)
				expect.Equal(w, w.Leader(), leader, "the leader")
			})
		})
	}
}
