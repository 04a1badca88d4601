package compare

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

// delays returns the sightings' delays at one node for registrations at another one, by way.
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
		r := observe(t, func(c *fakeNodes, config *observed) {
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
		r := observe(t, func(c *fakeNodes, config *observed) {
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
		expect.Equal(t, len(r.delays(0, 1)), len(trial.Ways), "given up by ways:")
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
		want int // sightings at the lagging node
	}{
		{"young", sightLeast / 2, 0},
		{"old", 2 * sightLeast, len(trial.Ways)},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := observe(t, func(cluster *fakeNodes, config *observed) {
					config.Sightings = 0.01
					cluster.nodes[1].lag = 24 * time.Hour
				})
				after(c.age)
				r.stop()
				expect.Equal(t, len(r.delays(0, 1)), c.want, "ways that tell of it:")
			})
		})
	}
}

func TestSightingsAtANodeThatDoesNotRespondDelayNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const paused = 5 * time.Second
		r := observe(t, func(c *fakeNodes, config *observed) {
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
		r := observe(t, func(c *fakeNodes, config *observed) {
			config.Sightings = 0.01
			c.nodes[1].lag = time.Second
		})
		after(500 * time.Millisecond)
		r.nodes[1].event("event: reset\ndata: {\"index\":\"f-1\",\"reason\":\"a restart\"}\n\n")
		after(time.Second)
		r.stop()
		seen := r.delays(0, 1)
		expect.Slice(t, seen[trial.ByWatch], nil, "the watch told of it after")
		expect.That(t, len(seen[trial.ByRead]) == 1, "read after %v, want once", seen[trial.ByRead])
	})
}

// total returns how many requests a node got.
func (n *fakeNode) total() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.requests
}

func TestDroppedNodeIsAskedNoMoreAndOwesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := observe(t, func(c *fakeNodes, config *observed) {
			config.Column, config.Sightings = columns("cp")[0], 1
			c.nodes[1].lag = time.Hour // searches for what it does not show yet are under way when it is lost
			know(config.Book, "dead", 1)
			for _, n := range c.nodes {
				n.listVersion("dead", 1)
				n.set(func(s *fakeState) { s.leader, s.term = "node1", 1 })
			}
		})
		after(2500 * time.Millisecond)
		r.observer.config.Book.Died("dead", time.Now())
		r.nodes[1].set(func(s *fakeState) { s.refuses = true })
		r.nodes[1].hangUp()
		r.observer.drop(1)
		after(2 * patience) // what was under way has ended
		asked := r.nodes[1].total()
		r.nodes[0].remove("dead")
		after(20 * time.Second)
		expect.Equal(t, r.nodes[1].total(), asked, "requests of the lost node:")
		expect.That(t, r.observer.healed(), "the lost node keeps the others from being healed")
		r.stop()

		lost := trial.Of(2500 * time.Millisecond)
		for _, l := range r.listsOf(1) {
			expect.That(t, l.Asked <= lost, "%+v was asked for after the node was lost", l)
		}
		for _, s := range r.trial.Sightings {
			expect.That(t, s.To != 1 || s.Delay >= 0, "%+v is claimed of the lost node", s)
			expect.That(t, s.From != 1 || s.Acked < lost, "%+v was registered through the lost node", s)
		}
		expect.That(t, len(r.delays(0, 2)[trial.ByRead]) >= 5, "registrations were sighted %d times at another node, want once in three seconds", len(r.delays(0, 2)[trial.ByRead]))
		last := make(map[int]trial.Leader)
		for _, l := range r.trial.Leaders {
			last[l.Node] = l
		}
		expect.That(t, last[1].Leader == -1 && last[0].Leader == 0, "the lost node's last word is %+v, want that it knows no leader", last[1])
		nodes := make(map[int]trial.Micros)
		for _, d := range r.trial.Departures {
			if d.ID == "dead" {
				nodes[d.Node] = d.Gone
			}
		}
		_, of := nodes[1]
		expect.That(t, !of && nodes[0] > 0 && nodes[2] == -1, "the dead instance is gone at %v, want a time at node 0, -1 at node 2, nothing of the lost one", nodes)
	})
}

func TestQuietAsksNoNodeWhileItLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := observe(t, func(c *fakeNodes, config *observed) {
			config.Column, config.Quiet = columns("cp")[0], 5*time.Second
			config.Usage = func(int) (trial.Usage, error) { return trial.Usage{}, nil }
			config.Machine = func() (trial.Health, error) { return trial.Health{Due: 1}, nil }
		})
		after(5*time.Second - time.Millisecond)
		for i, n := range r.nodes {
			expect.Equal(t, n.total(), 0, "requests of node %d while it is quiet:", i)
		}
		after(time.Second)
		for i, n := range r.nodes {
			expect.That(t, n.total() > 10, "node %d got %d requests afterwards, want lists, a stream and more", i, n.total())
		}
		r.stop()
		expect.That(t, len(r.trial.Usage) == 18 && len(r.trial.Machine) == 6, "%d samples of usage and %d of the machine, want 18 and 6: no node is asked for them", len(r.trial.Usage), len(r.trial.Machine))
	})
}

// Eureka has no stream of changes, no choice of consistency, no leader and no figures about its replicators.
func TestEurekaIsAskedOnlyForWhatItHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := observe(t, func(_ *fakeNodes, config *observed) { config.Column, config.Sightings = columns("eureka")[0], 2 })
		after(3 * time.Second)
		r.stop()
		for i, n := range r.nodes {
			for path := range n.asked {
				expect.That(t, path != "/v1/rollcall/watch" && path != "/v1/rollcall/status" && path != "/metrics", "node %d was asked for %s", i, path)
			}
			expect.Equal(t, n.stale, 0, "node %d, stale reads:", i)
			expect.Equal(t, r.observer.watched(i), 0, "node %d was watched for", i)
		}
		seen := r.delays(0, 1)
		for _, way := range []trial.Way{trial.ByRead, trial.ByList, trial.ByDelta} {
			expect.That(t, len(seen[way]) >= 2, "by %s: %d sightings, want those of 3 s", way, len(seen[way]))
		}
		expect.That(t, len(seen) == 3 && len(r.trial.Leaders)+len(r.trial.Evictions) == 0, "sightings are %v, leaders %v", seen, r.trial.Leaders)
		left := 0
		for _, n := range r.nodes {
			left += n.size()
		}
		expect.That(t, left <= 3, "%d instances are left, want those of the last sighting at most: no watch is waited for", left)
	})
}

func TestSightingsBeginNoMoreWhenTheLoadIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := observe(t, func(c *fakeNodes, config *observed) {
			config.Sightings, config.Length = 2, 3*time.Second
			c.nodes[1].lag = 2 * time.Second
		})
		after(10 * time.Second)
		r.stop()
		last := trial.Micros(0)
		for _, s := range r.trial.Sightings {
			last = max(last, s.Acked)
			expect.That(t, s.Delay >= 0, "%+v, though it was searched for long enough", s)
		}
		expect.That(t, last > trial.Of(2*time.Second) && last <= trial.Of(3*time.Second), "the last sighting was registered at %v, want before 3s", last.Duration())
		for i, n := range r.nodes {
			expect.Equal(t, n.size(), 0, "instances that node %d has left:", i)
		}
	})
}

func TestSightedRegistrationsAreInTheBook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := observe(t, func(c *fakeNodes, config *observed) {
			config.Sightings, config.Seed = 0.01, 5
			c.nodes[1].lag = 2 * time.Second
		})
		after(time.Second)
		expect.That(t, r.observer.config.Book.Alive("sight-5-0"), "the book does not know it while it is searched for")
		r.observer.config.Book.Mark()
		after(300 * time.Millisecond)
		expect.That(t, r.observer.healed(), "what is written once must not be waited for")
		after(2 * time.Second)
		expect.That(t, !r.observer.config.Book.Alive("sight-5-0"), "it is alive by the book after its cancel")
		ghosts := r.observer.config.Book.Judge(0, trial.Listing{"sight-5-0": 0}, time.Now(), time.Now()).Ghosts
		r.stop()
		expect.Equal(t, ghosts, 1, "ghosts where it is listed after its cancel:")
		missing := slices.ContainsFunc(r.listsOf(1), func(l trial.List) bool { return l.Missing == 1 })
		expect.That(t, missing, "no list of the node that lags misses it")
	})
}

func TestWatchedIsForHowLongAStreamWasRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := observe(t, func(c *fakeNodes, _ *observed) { c.nodes[2].set(func(s *fakeState) { s.refuses = true }) })
		after(2 * time.Second)
		r.nodes[1].set(func(s *fakeState) { s.refuses = true })
		r.nodes[1].hangUp()
		after(2 * time.Second)
		r.nodes[1].set(func(s *fakeState) { s.refuses = false })
		after(2 * time.Second)
		r.stop()
		for node, want := range []time.Duration{6 * time.Second, 4 * time.Second, 0} {
			got := r.observer.watched(node).Duration()
			expect.That(t, got <= want && got >= want-300*time.Millisecond, "node %d was watched for %v, want %v", node, got, want)
		}
	})
}

func TestMachineIsLookedAtEverySecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		r := observe(t, func(_ *fakeNodes, config *observed) {
			config.Machine = func() (trial.Health, error) {
				if looks++; looks == 2 {
					return trial.Health{}, errors.New("it cannot be read")
				}
				return trial.Health{Busy: trial.Micros(looks)}, nil
			}
		})
		after(2500 * time.Millisecond)
		r.stop()
		expect.Slice(t, r.trial.Machine, []trial.Health{{Busy: 1}, {At: trial.Of(2 * time.Second), Busy: 3}}, "looks are")
	})
}

func endOf(t *testing.T, cluster *fakeNodes, name string, held held) ([]trial.Ending, bool, time.Duration) {
	t.Helper()
	config := cluster.config()
	config.Book, config.Column = new(trial.Book), columns(name)[0]
	begun := time.Now()
	endings, done := newObserver(config).end(t.Context(), held)
	return endings, done, time.Since(begun)
}

func TestSealedInstancesAreInTheListAndOfEurekaAskedForOneByOne(t *testing.T) {
	for name, want := range map[string]struct {
		sealed []int
		reads  int
	}{
		"cp":     {[]int{1, 0}, 0}, // as listed
		"eureka": {[]int{2, 0}, 1}, // as held, which the list does not show yet
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := newFakeNodes(1)
				cluster.nodes[0].listVersion("s", 1)
				cluster.nodes[0].hold("s", 2)
				got, done, _ := endOf(t, cluster, name, held{Sealed: []string{"s", "gone"}, SealedApp: "SEALED"})
				expect.That(t, done && len(got) == 1 && slices.Equal(got[0].Sealed, want.sealed), "%+v, want the versions %v", got, want.sealed)
				for _, id := range []string{"s", "gone"} {
					expect.Equal(t, cluster.nodes[0].asked[registryPath+"/SEALED/"+id], want.reads, "reads of %s:", id)
				}
			})
		})
	}
}

func TestEndIsWaitedForAsTheColumnNeedsIt(t *testing.T) {
	for name, want := range map[string]time.Duration{"cp": endLimit, "cp-stale": endLimit, "ap": endLimitAP, "ap-always": endLimitAP, "eureka": endLimit} {
		synctest.Test(t, func(t *testing.T) {
			cluster := newFakeNodes(2)
			cluster.nodes[0].listVersion("k", 1)
			_, done, took := endOf(t, cluster, name, held{App: "A", Keys: []string{"k"}})
			expect.That(t, !done && took >= want && took <= want+2*endEvery, "%s: it took %v, agreed %t, want %v and not", name, took, done, want)
		})
	}
}

func TestLostNodesAreNotAskedAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := newFakeNodes(3)
		cluster.nodes[1].set(func(s *fakeState) { s.down = true })
		got, done, took := endOf(t, cluster, "cp", held{Lost: []int{1}})
		expect.That(t, done && took == 0 && len(got) == 2 && got[0].Node == 0 && got[1].Node == 2, "%+v after %v, want the ends of nodes 0 and 2 at once", got, took)
	})
}

func TestListsAreReadForIDsAndVersions(t *testing.T) {
	for document, want := range map[string]trial.Listing{
		`{"applications":{}}`: {},
		`{"applications":{"application":[{"instance":[{"instanceId":"a","metadata":{"n":"7"}},{"instanceId":"b"}]}]}}`: {"a": 7, "b": 0},
		`{"applications":{"application":[{"instance":[{"instanceId":"c","metadata":{"n":"x"}}]}]}}`:                    {"c": 0}, // somebody else's
		`{"applications":{}`: nil,
	} {
		got, err := newListReader().registry([]byte(document))
		expect.That(t, (err != nil) == (want == nil) && (err != nil || maps.Equal(got, want)), "%s is read as %v, %v, want %v", document, got, err, want)
	}
}
