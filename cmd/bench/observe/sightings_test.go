package observe

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

// delays are those of the sightings at one node of what was registered at another one, by the way.
func (r *rig) delays(from, to int) map[trial.Way][]time.Duration {
	all := make(map[trial.Way][]time.Duration)
	for _, s := range r.trial.Sightings {
		if s.From == from && s.To == to {
			all[s.Way] = append(all[s.Way], s.Delay.Duration())
		}
	}
	return all
}

func TestSightingIsOfEveryNodeByEveryWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lag = 300 * time.Millisecond
		r := observe(t, func(c *fakeCluster, config *Config) {
			config.Sightings = 1
			c.nodes[1].lag = lag
		})
		after(2500 * time.Millisecond)
		r.stop()
		for from := range r.nodes {
			for to := range r.nodes {
				exact := time.Duration(0)
				if to == 1 && from != 1 {
					exact = lag
				}
				seen := r.delays(from, to)
				for _, way := range trial.Ways {
					got := seen[way]
					most := exact + exact/lookShare
					if way == trial.ByWatch {
						most = exact
					}
					expect.That(t, len(got) == 1 && got[0] >= exact && got[0] <= most,
						"from node %d at node %d by %s: seen after %v, want once after %v to %v", from, to, way, got, exact, most)
				}
			}
		}
	})
}

func TestSightingIsGivenUpIfItIsNotSeenInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := observe(t, func(c *fakeCluster, config *Config) {
			config.Sightings = 0.01
			c.nodes[1].lag = 24 * time.Hour
		})
		after(2 * sightLimit)
		r.stop()
		for way, got := range r.delays(0, 1) {
			expect.Slice(t, got, []time.Duration{-time.Microsecond}, "by %s: seen after", way)
		}
		for way, got := range r.delays(0, 2) {
			expect.That(t, slices.Equal(got, []time.Duration{0}), "by %s: seen at another node after %v, want at once", way, got)
		}
		got := len(r.delays(0, 1))
		expect.That(t, got == len(trial.Ways), "given up by %d ways, want all", got)
		expect.Equal(t, r.nodes[0].size(), 0, "instances that are left:")
		for path, got := range r.nodes[1].asked {
			expect.That(t, path == registryPath || got <= 100,
				"%s was asked for %d times within %v, want fewer and fewer looks", path, got, sightLimit)
		}
	})
}

func TestSightingThatTheEndCutsShortDoesNotCountWhileItIsYoung(t *testing.T) {
	for _, c := range []struct {
		name string
		age  time.Duration
		want int // sightings at the node that lags
	}{
		{"young", sightLeast / 2, 0},
		{"old", 2 * sightLeast, len(trial.Ways)},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := observe(t, func(cluster *fakeCluster, config *Config) {
					config.Sightings = 0.01
					cluster.nodes[1].lag = 24 * time.Hour
				})
				after(c.age)
				r.stop()
				got := len(r.delays(0, 1))
				expect.That(t, got == c.want, "%d ways tell of it, want %d", got, c.want)
			})
		})
	}
}

func TestSightingsAtANodeThatDoesNotRespondDelayNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const paused = 5 * time.Second
		r := observe(t, func(c *fakeCluster, config *Config) {
			config.Sightings = 3
			c.nodes[1].set(func(s *fakeState) { s.paused = true })
		})
		after(paused)
		r.nodes[1].set(func(s *fakeState) { s.paused = false })
		after(patience + 2*time.Second)
		r.stop()
		for way, got := range r.delays(0, 2) {
			expect.That(t, slices.Max(got) <= 10*time.Millisecond,
				"by %s: seen at a node that is well after up to %v, want at once", way, slices.Max(got))
		}
		seen := r.delays(0, 1)
		expect.That(t, len(r.delays(1, 2)[trial.ByRead]) != 0, "nothing was registered through the node after its pause")
		for _, way := range []trial.Way{trial.ByRead, trial.ByStale, trial.ByList, trial.ByDelta} {
			got := slices.Max(seen[way])
			expect.That(t, got >= paused-2*patience && got <= paused+patience, "by %s: seen at the paused node after up to %v, want about %v", way, got, paused)
			expect.That(t, len(seen[way]) >= 5, "by %s: seen %d times at the paused node, want all that were registered", way, len(seen[way]))
		}
	})
}

func TestSightingByAWatchDoesNotCountIfTheWatchLeftItOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := observe(t, func(c *fakeCluster, config *Config) {
			config.Sightings = 0.01
			c.nodes[1].lag = time.Second
		})
		after(500 * time.Millisecond)
		r.nodes[1].event("event: reset\ndata: {\"index\":\"f-1\",\"reason\":\"a restart\"}\n\n")
		after(time.Second)
		r.stop()
		seen := r.delays(0, 1)
		got := seen[trial.ByWatch]
		expect.That(t, got == nil, "the watch told of it after %v, want nothing", got)
		expect.That(t, len(seen[trial.ByRead]) == 1, "read after %v, want once", seen[trial.ByRead])
	})
}
