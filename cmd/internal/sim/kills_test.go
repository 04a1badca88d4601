package sim_test

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/cmd/internal/sim"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store"
)

// Bounds of leaderships, with the defaults.
const (
	steppedDownWithin = time.Second     // twice raft.lease-timeout
	electedWithin     = 5 * time.Second // raft.heartbeat-timeout three times, raft.election-timeout twice
	// a few trips between nodes, and the time between two calls of the clients
	transferredWithin = 50 * time.Millisecond
	caughtUpWithin    = 1500 * time.Millisecond // docs/behaviours.md, "a node that comes back"
)

func TestLeaderKilledAgainAndAgainLosesNothing(t *testing.T) {
	often := func(c *config.Config) {
		c.Store.SnapshotThreshold, c.Store.SnapshotInterval, c.Store.TrailingLogs = 100, 500*time.Millisecond, 100
	}
	segments := func(c *config.Config) {
		if often(c); c.NodeName != "n3" {
			c.Store.RaftLog = store.LogWAL
		}
	}
	clusters := map[string]func(*config.Config){"the usual": nil, "many snapshots": often, "logs of both kinds": segments}
	for name, settings := range clusters {
		t.Run(name, func(t *testing.T) {
			sim.Run(t, sim.Cluster{Nodes: 3, Configure: settings}, func(w *sim.World) {
				herd := w.Herd("KEPT", 6, 10*time.Second, 2*time.Second, w.Others(w.Leader())...)
				churn := w.Churn(3, 100*time.Millisecond, w.Others(w.Leader())...)
				var gaps []time.Duration
				for range 5 {
					dead := w.Leader()
					others := w.Others(dead)
					herd.Use(others...)
					churn.Use(others...)
					w.Wait(2 * time.Second)
					churn.Gap()
					w.Kill(dead)
					w.Wait(electedWithin)
					gaps = append(gaps, churn.Gap())
					w.Start(dead)
					w.ReadyBy(dead, caughtUpWithin)
				}
				slices.Sort(gaps)
				w.Logf("times without an acknowledgement: %v", gaps)
				expect.That(w, gaps[len(gaps)-1] <= electedWithin,
					"nothing was acknowledged for %v after a kill", gaps[len(gaps)-1])
				churn.NothingLost()
				herd.NeverLost()
			})
		})
	}
}

func TestLeadershipIsTransferredUnderLoad(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		herd := w.Herd("KEPT", 6, 10*time.Second, 2*time.Second, w.Names()...)
		churn := w.Churn(6, 30*time.Millisecond, w.Names()...)
		for range 8 {
			w.Wait(500 * time.Millisecond)
			churn.Gap()
			old := w.Leader()
			w.TransferLeadership()
			expect.That(w, w.Leader() != old, "%s leads", old)
			w.Wait(500 * time.Millisecond)
			gap := churn.Gap()
			expect.That(w, gap <= transferredWithin, "nothing was acknowledged for %v around a transfer", gap)
		}
		expect.Equal(w, churn.Count(sim.Refused)+churn.Count(sim.Unknown), 0, "calls that failed")
		churn.NothingLost()
		herd.NeverLost()
	})
}

func TestFollowerThatWasKilledServesLinearizableFetchesAgain(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		leader := w.Leader()
		follower := w.Others(leader)[0]
		churn := w.Churn(4, 20*time.Millisecond, leader)
		w.Wait(6 * time.Second)
		w.Kill(follower)
		w.Wait(6 * time.Second)
		r := w.Call(leader, "POST", "/eureka/apps/LAST", sim.Registration("LAST", "last", time.Hour, nil))
		need.Equal(w, r.Status, http.StatusNoContent, "the last registration")
		w.Start(follower)
		began := time.Now()
		var list map[string]sim.Listed
		w.Await(caughtUpWithin, "the follower serves a linearizable fetch", func() bool {
			r := w.Call(follower, "GET", "/eureka/apps", "")
			if r.Status != http.StatusOK {
				return false
			}
			list = need.Got(sim.ListOf(r))(w)
			return true
		})
		w.Logf("served %v after the start", time.Since(began))
		_, listed := list["last"]
		expect.That(w, listed, "the fetch lacks what was registered while the follower was away")
		churn.NothingLost()
	})
}

// Bounds of docs/run/node-died.md, "Disks and memory".
const (
	slowest     = 4 * time.Second         // that one write may take
	hangsAfter  = 4500 * time.Millisecond // in checks, a quarter of a second apart
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
			expect.Equal(w, cli.ExitCode(new(bytes.Buffer), "rollcall", err), 3, "the code with which a node ends whose disk hangs")
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

// Each write of the leader, or of a follower, takes as long as one may.
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
				// a hand-over at the end that a write keeps waiting leaves a goroutine of Raft behind
				w.Wait(2 * slowest)
				w.ReadyBy(slow, sim.ReadyWithin)
				expect.Equal(w, w.Leader(), leader, "the leader")
			})
		})
	}
}

// Raft keeps asking for what is left to send until the entries in flight have arrived. If nothing made it wait,
// virtual time would stand still.
func TestLeadershipIsHandedOverWhileEntriesAreOnTheirWay(t *testing.T) {
	const latency = 20 * time.Millisecond
	sim.Run(t, sim.Cluster{Nodes: 3, Latency: latency}, func(w *sim.World) {
		for i := range 5 {
			old := w.Leader()
			w.RegisterAt(old, fmt.Sprintf("ORDERS/before-%d", i), long) // so that there is a connection
			var writes sync.WaitGroup
			for k := range 5 {
				writes.Go(func() {
					w.Wait(time.Duration(k) * latency / 2)
					w.Register(fmt.Sprintf("ORDERS/during-%d-%d", i, k), long)
				})
			}
			w.TransferLeadership()
			writes.Wait()
			expect.That(w, w.Leader() != old, "%s still leads", old)
		}
		expect.Equal(w, len(w.Lists("n1")), 30, "instances that are listed")
	})
}
