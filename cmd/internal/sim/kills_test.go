package sim_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/cmd/internal/sim"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store"
)

// Bounds of leaderships, with the defaults.
const (
	steppedDownWithin = time.Second             // twice raft.lease-timeout
	electedWithin     = 5 * time.Second         // raft.heartbeat-timeout three times, raft.election-timeout twice
	transferredWithin = 50 * time.Millisecond   // a few ways between nodes, and the time between two calls of the clients
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
