package observe

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/truth"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a fake cluster that is observed in virtual time.
type rig struct {
	*fakeCluster
	observer *Observer
	stop     func()
	trial    trial.Trial
}

// observe begins to observe a cluster of three nodes, as changed by set.
func observe(t *testing.T, set func(*fakeCluster, *Config)) *rig {
	t.Helper()
	cluster := newFakeCluster(3)
	config := cluster.config()
	config.Began, config.Book, config.Mode = time.Now(), new(truth.Book), scenario.AP
	if set != nil {
		set(cluster, &config)
	}
	r := &rig{fakeCluster: cluster, observer: newObserver(config, &http.Client{Transport: cluster})}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.observer.Run(ctx)
	}()
	r.stop = func() {
		cancel()
		<-ended
		r.observer.Into(&r.trial)
	}
	return r
}

// after lets time pass and observers do what they have to.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// listsOf are the lists of one node.
func (r *rig) listsOf(node int) []trial.List {
	return slices.DeleteFunc(slices.Clone(r.trial.Lists), func(l trial.List) bool { return l.Node != node })
}

func TestEveryNodesListIsFetchedTenTimesASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := observe(t, nil)
		after(time.Second - time.Millisecond)
		r.stop()
		asked := make(map[trial.Micros]bool)
		for node := range r.nodes {
			if got := len(r.listsOf(node)); got != 10 {
				t.Errorf("%d lists of node %d in a second, want 10", got, node)
			}
		}
		for _, l := range r.trial.Lists {
			asked[l.Asked] = true
		}
		if len(asked) != len(r.trial.Lists) {
			t.Errorf("%d lists were asked for at %d moments, want the nodes to take turns", len(r.trial.Lists), len(asked))
		}
	})
}

// know makes the book expect an instance.
func know(book *truth.Book, id string, version int64) {
	book.Registering(id, version, time.Now())
	book.Registered(id, version, time.Now())
	time.Sleep(time.Microsecond) // what comes next is later
}

func TestListsAreJudgedByTheBook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := observe(t, func(c *fakeCluster, config *Config) {
			know(config.Book, "listed", 2)
			know(config.Book, "old", 2)
			know(config.Book, "missing", 2)
			c.nodes[0].put("listed", 2)
			c.nodes[0].put("old", 1)
			c.nodes[0].put("unknown", 1)
			config.Began = time.Now()
		})
		after(50 * time.Millisecond)
		r.stop()
		want := []trial.List{{Listed: 3, Missing: 1, Behind: 1}}
		if got := r.listsOf(0); !reflect.DeepEqual(got, want) {
			t.Errorf("lists %+v, want %+v", got, want)
		}
	})
}

func TestALateAnswerCountsFromItsAsking(t *testing.T) {
	const late = 300 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		r := observe(t, func(c *fakeCluster, config *Config) {
			c.nodes[0].set(func(s *fakeState) { s.late = late })
		})
		after(late / 2)
		know(r.observer.config.Book, "registered while the list was under way", 1)
		after(late)
		r.stop()
		want := []trial.List{{Answered: trial.Of(late)}}
		if got := r.listsOf(0); !reflect.DeepEqual(got, want) {
			t.Errorf("lists %+v, want %+v", got, want)
		}
	})
}

func TestNodesThatGiveNoListAreAskedAgain(t *testing.T) {
	for _, c := range []struct {
		name string
		fail func(*fakeState)
		took time.Duration
		most int // lists that failed within 4 s
	}{
		{"down", func(s *fakeState) { s.down = true }, 0, 40},
		{"paused", func(s *fakeState) { s.paused = true }, patience, 4},
		{"refuses", func(s *fakeState) { s.refuses = true }, 0, 40},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := observe(t, func(cluster *fakeCluster, _ *Config) { cluster.nodes[0].set(c.fail) })
				after(4 * time.Second)
				r.nodes[0].set(func(s *fakeState) { *s = fakeState{} })
				after(patience + 150*time.Millisecond)
				r.stop()
				lists := r.listsOf(0)
				failed := 0
				for _, l := range lists {
					if l.Failed {
						failed++
						if l.Answered-l.Asked != trial.Of(c.took) {
							t.Errorf("list %+v took %v, want %v", l, (l.Answered - l.Asked).Duration(), c.took)
						}
					}
				}
				if failed < c.most-1 || failed > c.most+1 {
					t.Errorf("%d lists failed, want about %d", failed, c.most)
				}
				if lists[len(lists)-1].Failed {
					t.Errorf("the last list has failed, though the node is well again")
				}
				if got := len(r.listsOf(1)); got < 50 {
					t.Errorf("%d lists of another node, want 50: it must not wait", got)
				}
			})
		})
	}
}

func TestAListThatTheEndInterruptsIsNotNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := observe(t, func(c *fakeCluster, _ *Config) { c.nodes[0].set(func(s *fakeState) { s.paused = true }) })
		after(patience / 2)
		r.stop()
		if got := r.listsOf(0); len(got) > 0 {
			t.Errorf("lists %+v, want none", got)
		}
	})
}

func TestWhatTakesLongIsRepeatedLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var begins []time.Duration
		start := time.Now()
		repeat(ctx, 100*time.Millisecond, func() time.Duration {
			begins = append(begins, time.Since(start)/time.Millisecond)
			switch len(begins) {
			case 2:
				time.Sleep(250 * time.Millisecond)
			case 3:
				return 300 * time.Millisecond
			}
			return 0
		})
		if want := []time.Duration{0, 100, 350, 650, 750, 850, 950}; !slices.Equal(begins, want) {
			t.Errorf("begun after %d ms, want %d", begins, want)
		}
	})
}

func TestAListThatTakesLongToReadIsFetchedLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := observe(t, func(c *fakeCluster, _ *Config) {
			c.nodes[0].set(func(s *fakeState) { s.slow = 50 * time.Millisecond })
		})
		after(1900 * time.Millisecond)
		r.stop()
		if got := len(r.listsOf(0)); got != 4 {
			t.Errorf("%d lists of 50 ms within 2 s, want 4: a tenth of the time", got)
		}
	})
}

func TestHealedIsWhatNoNodesNewestListContradicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := observe(t, func(c *fakeCluster, config *Config) { know(config.Book, "a", 1) })
		defer r.stop()
		expect := func(when string, want bool) {
			t.Helper()
			if got := r.observer.Healed(); got != want {
				t.Errorf("%s: healed is %v, want %v", when, got, want)
			}
		}
		expect("before any list", false)
		after(150 * time.Millisecond)
		expect("without a mark", true)
		r.observer.config.Book.Mark()
		expect("right after a mark", false)
		after(150 * time.Millisecond)
		expect("while it is missing", false)
		r.nodes[0].put("a", 1)
		r.nodes[1].put("a", 1)
		after(150 * time.Millisecond)
		expect("while one node lacks it", false)
		r.nodes[2].put("a", 1)
		after(150 * time.Millisecond)
		expect("when all list it", true)
		r.nodes[2].set(func(s *fakeState) { s.refuses = true })
		after(150 * time.Millisecond)
		expect("while one node gives no list", false)
	})
}

func TestEvictionsAreToldAsTrueOrFalseThroughInterruptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := observe(t, func(c *fakeCluster, config *Config) { know(config.Book, "alive", 1) })
		began := r.observer.config.Began
		after(time.Second)
		at := trial.Since(began, time.Now())
		r.nodes[1].tell("DELETED", "evicted", "alive")
		r.nodes[1].tell("DELETED", "canceled", "other")
		r.nodes[2].set(func(s *fakeState) { s.refuses = true })
		r.nodes[2].hangUp()
		after(35 * time.Second)
		r.nodes[2].set(func(s *fakeState) { s.refuses = false })
		after(200 * time.Millisecond) // the longest of a client's shortest pauses, and one of ours
		later := trial.Since(began, time.Now())
		r.nodes[2].tell("DELETED", "evicted", "dead")
		after(time.Millisecond)
		r.stop()
		want := []trial.Eviction{{At: at, Node: 1, ID: "alive", Alive: true}, {At: later, Node: 2, ID: "dead"}}
		if got := r.trial.Evictions; !reflect.DeepEqual(got, want) {
			t.Errorf("evictions %+v, want %+v", got, want)
		}
	})
}

func TestLeadersAreNotedWhenTheyChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		led := func(leader string, term int) func(*fakeState) {
			return func(s *fakeState) { *s = fakeState{leader: leader, term: term} }
		}
		r := observe(t, func(c *fakeCluster, config *Config) {
			config.Mode = scenario.CP
			c.nodes[0].set(led("node2", 3))
		})
		after(950 * time.Millisecond)
		for _, change := range []func(*fakeState){led("", 3), led("node3", 4), func(s *fakeState) { s.down = true }, led("node3", 5), led("node3", 6)} {
			r.nodes[0].set(change)
			after(time.Second)
		}
		r.stop()
		second := trial.Of(time.Second)
		want := []trial.Leader{
			{Leader: 1, Term: 3}, {At: second, Leader: -1, Term: 3}, {At: 2 * second, Leader: 2, Term: 4},
			{At: 3 * second, Leader: -1}, {At: 4 * second, Leader: 2, Term: 5}, {At: 5 * second, Leader: 2, Term: 6},
		}
		got := slices.DeleteFunc(r.trial.Leaders, func(l trial.Leader) bool { return l.Node != 0 })
		if !reflect.DeepEqual(got, want) {
			t.Errorf("leaders %+v, want %+v", got, want)
		}
	})
}

func TestThereAreNoLeadersWithoutConsensus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := observe(t, nil)
		after(time.Second)
		r.stop()
		if got := r.trial.Leaders; len(got) > 0 {
			t.Errorf("leaders %+v, want none", got)
		}
	})
}

const metricsOfTwoPeers = `# HELP rollcall_replication_accepted_tasks_total Tasks that were queued.
# TYPE rollcall_replication_accepted_tasks_total counter
rollcall_replication_accepted_tasks_total{peer="a"} 10
rollcall_replication_accepted_tasks_total{peer="b"} 1.5e+02
# TYPE rollcall_replication_overridden_tasks_total counter
rollcall_replication_overridden_tasks_total{peer="a"} 2
# TYPE rollcall_replication_queue_overflows_total counter
rollcall_replication_queue_overflows_total{peer="a"} 3
# TYPE rollcall_replication_expired_tasks_total counter
rollcall_replication_expired_tasks_total{peer="a"} 20
# TYPE rollcall_replication_permanent_errors_total counter
rollcall_replication_permanent_errors_total{peer="a"} 100
# TYPE rollcall_replication_successful_executions_total counter
rollcall_replication_successful_executions_total{peer="a"} 5
rollcall_replication_successful_executions_total{peer="b"} 6
# TYPE rollcall_replication_transient_errors_total counter
rollcall_replication_transient_errors_total{peer="b"} 7
# TYPE rollcall_replication_congestion_issues_total counter
rollcall_replication_congestion_issues_total{peer="b"} 30
# TYPE rollcall_replication_batch_size gauge
rollcall_replication_batch_size{peer="a"} 4
rollcall_replication_batch_size{peer="b"} 9
# TYPE rollcall_replication_acceptor_queue_size gauge
rollcall_replication_acceptor_queue_size{peer="a"} 1
# TYPE rollcall_replication_reprocess_queue_size gauge
rollcall_replication_reprocess_queue_size{peer="a"} 20
# TYPE rollcall_replication_queue_size gauge
rollcall_replication_queue_size{peer="b"} 300
# TYPE rollcall_replication_lag_changes gauge
rollcall_replication_lag_changes{peer="a"} 8
rollcall_replication_lag_changes{peer="b"} 5
# TYPE rollcall_replication_lag_seconds gauge
rollcall_replication_lag_seconds{peer="a"} 0.25
`

func TestTheReplicatorsFiguresAreThoseOfAllItsPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := observe(t, func(c *fakeCluster, _ *Config) {
			c.nodes[1].set(func(s *fakeState) { s.metrics = metricsOfTwoPeers })
			c.nodes[2].set(func(s *fakeState) { s.metrics = "no metrics {" })
		})
		after(1500 * time.Millisecond)
		r.stop()
		figures := trial.Replication{
			Node: 1, Accepted: 160, Merged: 2, Dropped: 123, Sent: 11, Errors: 37, Batch: 9, Queued: 321, LagChanges: 8, LagSeconds: 0.25,
		}
		later := figures
		later.At = trial.Of(time.Second)
		if want := []trial.Replication{figures, later}; !reflect.DeepEqual(r.trial.Replicator, want) {
			t.Errorf("replicator %+v, want %+v", r.trial.Replicator, want)
		}
	})
}

func TestUsageIsNotedBesideWhatClientsHadOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := observe(t, func(_ *fakeCluster, config *Config) {
			know(config.Book, "a", 1)
			config.Began = time.Now()
			config.Renewals = func() int64 { return 42 }
			config.Usage = func(node int) (trial.Usage, error) {
				if node == 1 {
					return trial.Usage{}, errors.New("it was killed")
				}
				return trial.Usage{Memory: int64(node)}, nil
			}
		})
		after(500 * time.Millisecond)
		r.stop()
		want := []trial.Usage{{Instances: 1, Renewals: 42}, {Node: 2, Memory: 2, Instances: 1, Renewals: 42}}
		if got := r.trial.Usage; !reflect.DeepEqual(got, want) {
			t.Errorf("usage %+v, want %+v", got, want)
		}
	})
}

func TestATrialIsGivenEverythingInTheOrderOfTime(t *testing.T) {
	o := New(Config{Book: new(truth.Book), Began: time.Unix(1767225600, 0)})
	o.seen = trial.Trial{
		Lists:     []trial.List{{Asked: 2}, {Asked: 1, Node: 1}, {Asked: 1}},
		Sightings: []trial.Sighting{{Acked: 1, To: 1, Way: trial.ByWatch}, {Acked: 1, To: 1, Way: trial.ByList}, {Acked: 1}},
		Evictions: []trial.Eviction{{At: 1, ID: "b"}, {At: 1, ID: "a"}},
	}
	o.config.Book.Registered("a", 1, o.config.Began)
	o.config.Book.Judge(0, truth.Listing{"a": 1}, o.config.Began, o.config.Began)
	o.config.Book.Died("a", o.config.Began)
	got := trial.Trial{Lists: []trial.List{{Asked: -1}}}
	o.Into(&got)
	want := trial.Trial{
		Lists:      []trial.List{{Asked: -1}, {Asked: 1}, {Asked: 1, Node: 1}, {Asked: 2}},
		Sightings:  []trial.Sighting{{Acked: 1}, {Acked: 1, To: 1, Way: trial.ByList}, {Acked: 1, To: 1, Way: trial.ByWatch}},
		Evictions:  []trial.Eviction{{At: 1, ID: "a"}, {At: 1, ID: "b"}},
		Departures: []trial.Departure{{ID: "a", Gone: -1}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the trial is %+v, want %+v", got, want)
	}
}

func TestOverRealConnectionsNothingIsLeftBehind(t *testing.T) {
	cluster := newFakeCluster(3)
	config := Config{Began: time.Now(), Book: new(truth.Book), Mode: scenario.CP, Sightings: 50, Every: 5 * time.Millisecond}
	for _, n := range cluster.nodes {
		server := httptest.NewServer(n)
		defer server.Close()
		config.Nodes = append(config.Nodes, strings.TrimPrefix(server.URL, "http://"))
	}
	o := New(config)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		o.Run(ctx)
	}()
	know(config.Book, "a", 1)
	config.Book.Mark()
	for _, n := range cluster.nodes {
		n.put("a", 1)
	}
	enough := func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return len(o.seen.Sightings) >= 3*len(trial.Ways)*5 && len(o.seen.Leaders) > 0
	}
	for limit := time.Now().Add(time.Minute); !enough() || !o.Healed(); {
		if time.Now().After(limit) {
			t.Fatal("there are not enough sightings, or nothing heals")
		}
		<-time.After(time.Millisecond)
	}
	cancel()
	<-ended
}
