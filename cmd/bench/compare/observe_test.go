package compare

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

// rig is a fake cluster that is observed in virtual time.
type rig struct {
	*fakeNodes
	observer *observer
	stop     func()
	trial    trial.Trial
}

// observe begins to observe a cluster of three nodes, as changed by set.
func observe(t *testing.T, set func(*fakeNodes, *observed)) *rig {
	t.Helper()
	cluster := newFakeNodes(3)
	config := cluster.config()
	config.Began, config.Length, config.Book, config.Column = time.Now(), time.Hour, new(trial.Book), columns("ap")[0]
	if set != nil {
		set(cluster, &config)
	}
	r := &rig{fakeNodes: cluster, observer: newObserver(config)}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.observer.run(ctx)
	}()
	r.stop = func() {
		cancel()
		<-ended
		r.observer.into(&r.trial)
	}
	return r
}

// after lets time pass until all observers wait.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (r *rig) listsOf(node int) []trial.List {
	return slices.DeleteFunc(slices.Clone(r.trial.Lists), func(l trial.List) bool { return l.Node != node })
}

func TestListOfEveryNodeIsFetchedTenTimesASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := observe(t, nil)
		after(time.Second - time.Millisecond)
		r.stop()
		asked := make(map[trial.Micros]bool)
		for node := range r.nodes {
			expect.Equal(t, len(r.listsOf(node)), 10, "lists of node %d in a second:", node)
		}
		for _, l := range r.trial.Lists {
			asked[l.Asked] = true
		}
		expect.That(t, len(asked) == len(r.trial.Lists),
			"%d lists were asked for at %d moments, want the nodes to take turns", len(r.trial.Lists), len(asked))
	})
}

// know makes the book expect an instance.
func know(book *trial.Book, id string, version int64) {
	book.Registering(id, version, time.Now())
	book.Registered(id, version, time.Now())
	time.Sleep(time.Microsecond) // the next event is later
}

func TestListsAreJudgedByTheBook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := observe(t, func(c *fakeNodes, config *observed) {
			know(config.Book, "listed", 2)
			know(config.Book, "old", 2)
			know(config.Book, "missing", 2)
			c.nodes[0].listVersion("listed", 2)
			c.nodes[0].listVersion("old", 1)
			c.nodes[0].listVersion("unknown", 1)
			config.Began = time.Now()
		})
		after(50 * time.Millisecond)
		r.stop()
		expect.Deep(t, r.listsOf(0), []trial.List{{Listed: 3, Missing: 1, Behind: 1}}, "lists")
	})
}

func TestListThatComesLateCountsFromItsRequest(t *testing.T) {
	const late = 300 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		r := observe(t, func(c *fakeNodes, config *observed) {
			c.nodes[0].set(func(s *fakeState) { s.late = late })
		})
		after(late / 2)
		know(r.observer.config.Book, "registered while the list was under way", 1)
		after(late)
		r.stop()
		expect.Deep(t, r.listsOf(0), []trial.List{{Answered: trial.Of(late)}}, "lists")
	})
}

func TestListIsFetchedAgainFromNodesThatGaveNone(t *testing.T) {
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
				r := observe(t, func(cluster *fakeNodes, _ *observed) { cluster.nodes[0].set(c.fail) })
				after(4 * time.Second)
				r.nodes[0].set(func(s *fakeState) { *s = fakeState{} })
				after(patience + 150*time.Millisecond)
				r.stop()
				lists := r.listsOf(0)
				failed := 0
				for _, l := range lists {
					if l.Failed {
						failed++
						expect.That(t, l.Answered-l.Asked == trial.Of(c.took),
							"list %+v took %v, want %v", l, (l.Answered - l.Asked).Duration(), c.took)
					}
				}
				expect.That(t, failed >= c.most-1 && failed <= c.most+1, "%d lists failed, want about %d", failed, c.most)
				expect.That(t, !lists[len(lists)-1].Failed, "the last list has failed, though the node is well again")
				got := len(r.listsOf(1))
				expect.That(t, got >= 50, "%d lists of another node, want 50: it must not wait", got)
			})
		})
	}
}

func TestEveryNodeIsAwaitedThatLacksAnInstance(t *testing.T) {
	cluster, book := newFakeNodes(2), new(trial.Book)
	var nodes []string
	for _, n := range cluster.nodes {
		server := httptest.NewServer(n)
		defer server.Close()
		nodes = append(nodes, strings.TrimPrefix(server.URL, "http://"))
	}
	know(book, "a", 1)
	cluster.nodes[0].listVersion("a", 1)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	expect.Equal(t, awaitListed(ctx, nodes, book), false, "listed by one node, and awaited for a while:")
	time.AfterFunc(50*time.Millisecond, func() { cluster.nodes[1].listVersion("a", 1) })
	expect.Equal(t, awaitListed(t.Context(), nodes, book), true, "listed by the other one meanwhile:")
}

func TestListThatTheEndInterruptsIsNotRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := observe(t, func(c *fakeNodes, _ *observed) { c.nodes[0].set(func(s *fakeState) { s.paused = true }) })
		after(patience / 2)
		r.stop()
		got := r.listsOf(0)
		expect.That(t, len(got) == 0, "lists %+v, want none", got)
	})
}

func TestRepeatCallsLessOftenWhatTakesLong(t *testing.T) {
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
		want := []time.Duration{0, 100, 350, 650, 750, 850, 950}
		expect.That(t, slices.Equal(begins, want), "begun after %d ms, want %d", begins, want)
	})
}

func TestHealedMeansThatNoNodesNewestListContradictsTheBook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := observe(t, func(c *fakeNodes, config *observed) { know(config.Book, "a", 1) })
		defer r.stop()
		expect := func(when string, want bool) {
			t.Helper()
			expect.Equal(t, r.observer.healed(), want, "%s: healed is", when)
		}
		expect("before any list", false)
		after(150 * time.Millisecond)
		expect("without a mark", true)
		r.observer.config.Book.Mark()
		expect("right after a mark", false)
		after(150 * time.Millisecond)
		expect("while it is missing", false)
		r.nodes[0].listVersion("a", 1)
		r.nodes[1].listVersion("a", 1)
		after(150 * time.Millisecond)
		expect("while one node lacks it", false)
		r.nodes[2].listVersion("a", 1)
		after(150 * time.Millisecond)
		expect("when all list it", true)
		r.nodes[2].set(func(s *fakeState) { s.refuses = true })
		after(150 * time.Millisecond)
		expect("while one node gives no list", false)
	})
}

func TestEvictionsAreRecordedAsTrueOrFalseThroughInterruptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := observe(t, func(c *fakeNodes, config *observed) { know(config.Book, "alive", 1) })
		began := r.observer.config.Began
		after(time.Second)
		at := trial.Since(began, time.Now())
		r.nodes[1].sendChange("DELETED", "evicted", "alive")
		r.nodes[1].sendChange("DELETED", "canceled", "other")
		r.nodes[2].set(func(s *fakeState) { s.refuses = true })
		r.nodes[2].hangUp()
		after(35 * time.Second)
		r.nodes[2].set(func(s *fakeState) { s.refuses = false })
		after(200 * time.Millisecond) // the longest of a client's shortest pauses, and one of ours
		later := trial.Since(began, time.Now())
		r.nodes[2].sendChange("DELETED", "evicted", "dead")
		after(time.Millisecond)
		r.stop()
		want := []trial.Eviction{{At: at, Node: 1, ID: "alive", Alive: true}, {At: later, Node: 2, ID: "dead"}}
		expect.Deep(t, r.trial.Evictions, want, "evictions")
	})
}

func TestLeadersAreRecordedWhenTheyChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		led := func(leader string, term int) func(*fakeState) {
			return func(s *fakeState) { *s = fakeState{leader: leader, term: term} }
		}
		r := observe(t, func(c *fakeNodes, config *observed) {
			config.Column = columns("cp")[0]
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
		expect.Deep(t, slices.DeleteFunc(r.trial.Leaders, func(l trial.Leader) bool { return l.Node != 0 }), want, "leaders")
	})
}

func TestUsageIsRecordedBesideWhatClientsHadOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := observe(t, func(_ *fakeNodes, config *observed) {
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
		expect.Deep(t, r.trial.Usage, []trial.Usage{{Instances: 1, Renewals: 42}, {Node: 2, Memory: 2, Instances: 1, Renewals: 42}}, "usage")
	})
}

func TestIntoAddsEverythingInTheOrderOfTime(t *testing.T) {
	o := newObserver(observed{Nodes: []string{"node1:8761"}, Book: new(trial.Book), Began: time.Unix(1767225600, 0)})
	o.seen = trial.Trial{
		Lists:     []trial.List{{Asked: 2}, {Asked: 1, Node: 1}},
		Sightings: []trial.Sighting{{Acked: 2, Way: trial.ByWatch}, {Acked: 1, To: 1}},
		Evictions: []trial.Eviction{{At: 2, ID: "b"}, {At: 1, ID: "a"}},
		Leaders:   []trial.Leader{{At: 2}, {At: 1}},
		Usage:     []trial.Usage{{At: 2}, {At: 1}},
	}
	o.config.Book.Registered("a", 1, o.config.Began)
	o.config.Book.Judge(0, trial.Listing{"a": 1}, o.config.Began, o.config.Began)
	o.config.Book.Died("a", o.config.Began)
	got := trial.Trial{Lists: []trial.List{{Asked: -1}}}
	o.into(&got)
	want := trial.Trial{
		Lists:      []trial.List{{Asked: -1}, {Asked: 1, Node: 1}, {Asked: 2}},
		Sightings:  []trial.Sighting{{Acked: 1, To: 1}, {Acked: 2, Way: trial.ByWatch}},
		Evictions:  []trial.Eviction{{At: 1, ID: "a"}, {At: 2, ID: "b"}},
		Leaders:    []trial.Leader{{At: 1}, {At: 2}},
		Usage:      []trial.Usage{{At: 1}, {At: 2}},
		Departures: []trial.Departure{{ID: "a", Gone: -1}},
	}
	expect.Deep(t, got, want, "the trial is")
}

func TestEndIsWhatNodesHoldWhenTheyAgree(t *testing.T) {
	const lease = 2 * time.Second
	keys, sealed := map[string]int64{"a": 1}, []int{2, 0}
	for _, c := range []struct {
		name string
		set  func(*fakeNodes, *trial.Book)
		want trial.Ending // of the first node
		took time.Duration
	}{
		{"nodes that agree", func(*fakeNodes, *trial.Book) {}, trial.Ending{Keys: keys, Sealed: sealed}, 0},
		{
			"a node that agrees late",
			func(c *fakeNodes, book *trial.Book) {
				know(book, "b", 1)
				c.nodes[1].listVersion("b", 1)
				time.AfterFunc(time.Second, func() { c.nodes[0].listVersion("b", 1) })
			},
			trial.Ending{Keys: keys, Sealed: sealed}, time.Second,
		},
		{
			"missing",
			func(_ *fakeNodes, book *trial.Book) { know(book, "b", 1) },
			trial.Ending{Keys: keys, Sealed: sealed, Missing: []string{"b"}}, endLimit,
		},
		{
			"revived",
			func(c *fakeNodes, book *trial.Book) {
				know(book, "b", 1)
				book.Canceling("b", 2, time.Now())
				book.Canceled("b", 2, time.Now())
				c.nodes[0].listVersion("b", 1)
			},
			trial.Ending{Keys: keys, Sealed: sealed, Revived: []string{"b"}}, endLimit,
		},
		{
			"dead and protected",
			func(c *fakeNodes, book *trial.Book) {
				know(book, "b", 1)
				c.nodes[0].listVersion("b", 1)
				book.Died("b", time.Now())
				time.Sleep(lease)
			},
			trial.Ending{Keys: keys, Sealed: sealed, Dead: []string{"b"}}, 0,
		},
		{"other versions", func(c *fakeNodes, _ *trial.Book) { c.nodes[0].listVersion("a", 2) }, trial.Ending{Keys: map[string]int64{"a": 2}, Sealed: sealed}, endLimit},
		{"another version of a sealed instance", func(c *fakeNodes, _ *trial.Book) { c.nodes[0].listVersion("s", 1) }, trial.Ending{Keys: keys, Sealed: []int{1, 0}}, endLimit},
		{
			"nodes that do not answer",
			func(c *fakeNodes, _ *trial.Book) {
				for _, n := range c.nodes {
					n.set(func(s *fakeState) { s.refuses = true })
				}
			},
			trial.Ending{Failed: "/eureka/apps?consistency=stale of node1:8761: status 503"}, endLimit,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := newFakeNodes(2)
				config := cluster.config()
				config.Book, config.Column = new(trial.Book), columns("cp")[0]
				know(config.Book, "a", 1)
				for _, n := range cluster.nodes {
					n.listVersion("a", 1)
					n.listVersion("s", 2)
				}
				c.set(cluster, config.Book)
				o := newObserver(config)
				begun := time.Now()
				got, done := o.end(t.Context(), held{App: "A", Keys: []string{"a", "canceled"}, Sealed: []string{"s", "gone"}, Lease: lease})
				took := time.Since(begun)
				// Nodes that lack the same instances agree, but are asked again all the same.
				expect.Equal(t, done, c.took < endLimit || len(c.want.Missing) > 0, "they agree:")
				expect.That(t, took >= c.took && took <= c.took+2*endEvery, "it took %v, want %v", took, c.took)
				expect.That(t, len(got) == 2 && reflect.DeepEqual(got[0], c.want) && got[1].Node == 1, "it ends as %+v, want %+v and the other node", got, c.want)
			})
		})
	}
}

// fakeNodes is nodes that replicate registrations to each other, each after its own lag.
type fakeNodes struct {
	nodes []*fakeNode
}

// fakeNode is the part of a server that an observer sees.
type fakeNode struct {
	cluster *fakeNodes
	lag     time.Duration // until it knows what others have registered

	mu        sync.Mutex
	instances map[string]string // documents by id
	watchers  map[chan string]bool
	state     fakeState
	asked     map[string]int // questions, by path
	requests  int
	stale     int               // reads of an instance with ?consistency=stale
	held      map[string]string // documents by id that its lists do not show yet
}

// fakeState is how a node behaves.
type fakeState struct {
	down    bool          // refuses connections
	paused  bool          // accepts calls but does not respond
	refuses bool          // answers 503
	late    time.Duration // before a list of all begins
	slow    time.Duration // before a list ends
	leader  string
	term    int
}

func newFakeNodes(nodes int) *fakeNodes {
	c := new(fakeNodes)
	for range nodes {
		c.nodes = append(c.nodes, &fakeNode{cluster: c, instances: make(map[string]string), watchers: make(map[chan string]bool), asked: make(map[string]int)})
	}
	return c
}

// config returns the configuration for observing the cluster.
func (c *fakeNodes) config() observed {
	config := observed{Transport: c}
	for i := range c.nodes {
		config.Nodes = append(config.Nodes, fmt.Sprintf("node%d:8761", i+1))
		config.Names = append(config.Names, fmt.Sprintf("node%d", i+1))
	}
	return config
}

func (n *fakeNode) set(change func(*fakeState)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change(&n.state)
}

func (n *fakeNode) now() fakeState {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.state
}

func (n *fakeNode) listVersion(id string, version int) {
	n.listDocument(id, fmt.Sprintf(`{"instanceId":%q,"metadata":{"n":"%d"}}`, id, version))
}

func (n *fakeNode) listDocument(id, document string) {
	n.mu.Lock()
	n.instances[id] = document
	n.mu.Unlock()
	n.sendChange("ADDED", "registered", id)
}

// hold makes a node hold an instance in a version that its lists do not show yet.
func (n *fakeNode) hold(id string, version int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.held = map[string]string{id: fmt.Sprintf(`{"instanceId":%q,"metadata":{"n":"%d"}}`, id, version)}
}

func (n *fakeNode) remove(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.instances, id)
}

func (n *fakeNode) size() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.instances)
}

func (n *fakeNode) sendChange(action, why, id string) {
	n.event(fmt.Sprintf("event: change\ndata: {\"index\":\"e-2\",\"action\":%q,\"why\":%q,\"app\":\"A\",\"id\":%q}\n\n", action, why, id))
}

func (n *fakeNode) event(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for w := range n.watchers {
		w <- text
	}
}

func (n *fakeNode) hangUp() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for w := range n.watchers {
		close(w)
		delete(n.watchers, w)
	}
}

func (n *fakeNode) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	n.requests++
	n.mu.Unlock()
	state := n.now()
	if state.paused {
		<-r.Context().Done()
		return
	}
	if state.refuses {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /eureka/apps", func(w http.ResponseWriter, r *http.Request) {
		if wait.For(r.Context(), state.late) {
			n.list(w, r)
		}
	})
	mux.HandleFunc("GET /eureka/apps/delta", n.list)
	mux.HandleFunc("GET /eureka/apps/{app}", n.list)
	mux.HandleFunc("GET /eureka/apps/{app}/{id}", n.read)
	mux.HandleFunc("POST /eureka/apps/{app}", n.register)
	mux.HandleFunc("DELETE /eureka/apps/{app}/{id}", n.cancel)
	mux.HandleFunc("GET /v1/rollcall/watch", n.watch)
	mux.HandleFunc("GET /v1/rollcall/status", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"leader":%q,"term":%d}`, state.leader, state.term)
	})
	mux.ServeHTTP(w, r)
}

func (n *fakeNode) list(w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(http.StatusOK)
	if !wait.For(r.Context(), n.now().slow) {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked[r.URL.Path]++
	all := slices.Sorted(maps.Values(n.instances))
	fmt.Fprintf(w, `{"applications":{"application":[{"name":"A","instance":[%s]}]}}`, strings.Join(all, ","))
}

func (n *fakeNode) read(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked[r.URL.Path]++
	if r.URL.Query().Has("consistency") {
		n.stale++
	}
	document, ok := n.held[r.PathValue("id")]
	if !ok {
		document, ok = n.instances[r.PathValue("id")]
	}
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	fmt.Fprintf(w, `{"instance":%s}`, document)
}

func (n *fakeNode) register(w http.ResponseWriter, r *http.Request) {
	var body struct{ Instance json.RawMessage }
	var instance struct{ InstanceID string }
	err := json.NewDecoder(r.Body).Decode(&body)
	if err == nil {
		err = json.Unmarshal(body.Instance, &instance)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	for _, other := range n.cluster.nodes {
		if other == n || other.lag == 0 {
			other.listDocument(instance.InstanceID, string(body.Instance))
			continue
		}
		time.AfterFunc(other.lag, func() { other.listDocument(instance.InstanceID, string(body.Instance)) })
	}
	w.WriteHeader(http.StatusNoContent)
}

func (n *fakeNode) cancel(_ http.ResponseWriter, r *http.Request) {
	for _, other := range n.cluster.nodes {
		other.remove(r.PathValue("id"))
	}
}

func (n *fakeNode) watch(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	events := make(chan string, 1000)
	n.mu.Lock()
	n.watchers[events] = true
	n.mu.Unlock()
	text, open := "event: start\ndata: {\"index\":\"e-1\"}\n\n", true
	for open {
		io.WriteString(w, text)
		w.(http.Flusher).Flush()
		select {
		case text, open = <-events:
		case <-r.Context().Done():
			open = false
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.watchers, events)
}

// errDown is the error of connecting to a node that is down.
var errDown = errors.New("connection refused")

// RoundTrip implements http.RoundTripper without a network, so that time can be virtual.
func (c *fakeNodes) RoundTrip(r *http.Request) (*http.Response, error) {
	var number int
	if _, err := fmt.Sscanf(r.URL.Host, "node%d:", &number); err != nil {
		return nil, err
	}
	node := c.nodes[number-1]
	if node.now().down {
		return nil, errDown
	}
	ctx, cancel := context.WithCancel(r.Context())
	body, to := io.Pipe()
	w := &pipedWriter{header: make(http.Header), begun: make(chan int, 1), to: to}
	stop := context.AfterFunc(ctx, func() { to.CloseWithError(ctx.Err()) })
	go func() {
		defer cancel()
		defer stop()
		node.ServeHTTP(w, r.WithContext(ctx))
		w.WriteHeader(http.StatusOK)
		to.Close()
	}()
	select {
	case status := <-w.begun:
		return &http.Response{StatusCode: status, Header: w.header, Body: pipedBody{body, cancel}, Request: r}, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// pipedBody is a response body that its handler is still writing.
type pipedBody struct {
	*io.PipeReader
	cancel func()
}

func (b pipedBody) Close() error {
	b.cancel()
	return b.PipeReader.Close()
}

// pipedWriter is the handler's end.
type pipedWriter struct {
	header http.Header
	begun  chan int
	once   sync.Once
	to     *io.PipeWriter
}

func (w *pipedWriter) Header() http.Header { return w.header }

func (w *pipedWriter) WriteHeader(status int) { w.once.Do(func() { w.begun <- status }) }

func (w *pipedWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.to.Write(p)
}

func (w *pipedWriter) Flush() {}

func TestLeaderIsThatOfTheNewestTermWithAQuorum(t *testing.T) {
	o := newObserver(observed{Nodes: []string{"a", "b", "c", "d"}, Names: []string{"node1", "node2", "node3", "node4"}})
	expect.Equal(t, o.leader(3), -1, "before any node was asked:")
	for i, said := range []client.Status{
		{Leader: "node1", Term: 3, Quorum: true}, {Leader: "node3", Term: 4, Quorum: true}, {Leader: "node2", Term: 5}, {Leader: "node4", Term: 9, Quorum: true},
	} {
		o.nodes[i].status = said
	}
	expect.Equal(t, o.leader(3), 2, "of the first three nodes:")
}
