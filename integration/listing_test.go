package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/localcluster"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// replicated is how long a change may take until every node has it: more than ten times the usual second, because a
// node that was away is tried again after a growing pause.
const replicated = 60 * time.Second

// mustConverge waits until all nodes list the same instances in the same status, and returns them.
func mustConverge(t *testing.T, nodes []*Node) map[string]string {
	t.Helper()
	var all map[string]string
	Eventually(t, replicated, "all nodes list the same", func() error {
		all = nil
		for _, n := range nodes {
			listing, err := n.Listing()
			if err != nil {
				return err
			}
			shown := statuses(listing)
			if all == nil {
				all = shown
			}
			if !maps.Equal(all, shown) {
				return fmt.Errorf("node %s lists %s, node %s %s", nodes[0].HTTP, summary(all), n.HTTP, summary(shown))
			}
		}
		return nil
	})
	return all
}

// statuses returns the listed instances, by id.
func statuses(listing map[string]Listed) map[string]string {
	shown := make(map[string]string, len(listing))
	for id, instance := range listing {
		shown[id] = instance.Status + " " + instance.Overridden
	}
	return shown
}

func summary(shown map[string]string) string {
	if len(shown) > 20 {
		return fmt.Sprintf("%d instances", len(shown))
	}
	return fmt.Sprint(shown)
}

func wantListed(ids ...string) func(map[string]Listed) error {
	slices.Sort(ids)
	return func(listing map[string]Listed) error {
		got := slices.Sorted(maps.Keys(listing))
		return unless(slices.Equal(got, ids), "listed are %d: %.300s, want %d: %.300s", len(got), strings.Join(got, " "), len(ids), strings.Join(ids, " "))
	}
}

// awaitListed waits until a node's listing is as it should be.
func awaitListed(t *testing.T, n *Node, want func(map[string]Listed) error) {
	t.Helper()
	Eventually(t, replicated, "the listing of node "+n.HTTP, func() error {
		listing, err := n.Listing()
		if err != nil {
			return err
		}
		return want(listing)
	})
}

// mustAgreeWithPeers checks that a node finds no difference between itself and its peers.
func mustAgreeWithPeers(t *testing.T, n *Node) {
	t.Helper()
	all, err := n.Peers()
	need.That(t, err == nil && len(all.Peers) != 0, "peers of node %s: %+v, %v", n.Name, all, err)
	for _, p := range all.Peers {
		Eventually(t, replicated, "node "+n.Name+" and "+p.Name+" are equal", func() error {
			diff, err := n.DiffWith(p.Name)
			if err == nil && diff.Apps+diff.Missing+diff.Extra != 0 {
				err = fmt.Errorf("they differ: %+v", diff)
			}
			return err
		})
	}
}

// index returns the version of the node's registry.
func index(t *testing.T, n *Node) string {
	t.Helper()
	response := untilNotRefused(func() Response { return n.Get("/eureka/apps") })
	need.That(t, response.Status == http.StatusOK, "node %s: %v", n.HTTP, response)
	return response.Header.Get("X-Rollcall-Index")
}

// led repeats ask while Consul's API responds that no node leads, and so did nothing.
func led(ask func() Response) (response Response) {
	_ = Poll(ReadyLimit, func() error { // the response has the result
		if response = ask(); response.Status == http.StatusInternalServerError && bytes.HasPrefix(response.Body, []byte("No cluster leader")) {
			return errRefused
		}
		return nil
	})
	return response
}

// putOK sends a PUT of Consul's API and returns the body of its response, which must be a 200.
func (n *Node) putOK(path, body string) (string, error) {
	response := led(func() Response { return n.Do(Request{Method: http.MethodPut, Path: path, Body: []byte(body)}) })
	if response.Status != http.StatusOK {
		return "", fmt.Errorf("PUT %s: %v", path, response)
	}
	return string(response.Body), nil
}

// putTrue sends a PUT whose response is true or false.
func (n *Node) putTrue(t *testing.T, path, body string) bool {
	t.Helper()
	answer := need.Got(n.putOK(path, body))(t)
	need.That(t, answer == "true" || answer == "false", "PUT %s: %q, want true or false", path, answer)
	return answer == "true"
}

// key is a key with its value and session as in Consul's JSON.
type key struct {
	Key         string
	Value       []byte
	Session     string
	ModifyIndex uint64
	LockIndex   uint64
}

// keys reads keys; path is what follows /v1/kv/. It returns nil if there are none.
func (n *Node) keys(path string) ([]key, Response, error) {
	response := led(func() Response { return n.Get("/v1/kv/" + path) })
	switch response.Status {
	case http.StatusNotFound:
		return nil, response, nil
	case http.StatusOK:
		var all []key
		return all, response, json.Unmarshal(response.Body, &all)
	}
	return nil, response, fmt.Errorf("GET /v1/kv/%s: %v", path, response)
}

// metric reads a whole number from a node's metrics; name includes its labels.
func metric(t *testing.T, n *Node, name string) int {
	t.Helper()
	response := n.Get("/metrics")
	for line := range strings.Lines(string(response.Body)) {
		value, ok := strings.CutPrefix(line, name+" ")
		if !ok {
			continue
		}
		var number float64
		need.OKf(t, expect.Err(fmt.Sscan(value, &number)), "node %s: %q", n.Name, line)
		return int(number)
	}
	t.Fatalf("node %s has no metric %s: %d", n.Name, name, response.Status)
	return 0
}

// The leases of a herd, long enough that a machine that hangs for some seconds loses no member, and how often they
// are renewed.
const (
	herdLease = 10 // seconds
	herdEvery = time.Second
)

// herd is instances with short leases that can fall silent and come back. No member registers again: a renewal that
// gets 404 is a failure.
type herd struct {
	app     string
	members []*member
	cancel  context.CancelFunc
	workers sync.WaitGroup

	mu       sync.Mutex
	failures []string
}

// member is one instance of a herd, with a node that it renews through.
type member struct {
	id     string
	node   atomic.Pointer[Node]
	silent atomic.Bool
}

// startHerd registers instances, spread over the nodes, and renews them until the test ends.
func startHerd(t *testing.T, app string, size int, nodes []*Node) *herd {
	t.Helper()
	return startHerdOf(t, app, size, herdLease, nodes)
}

// startHerdOf is startHerd with leases of the given number of seconds.
func startHerdOf(t *testing.T, app string, size, lease int, nodes []*Node) *herd {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	h := &herd{app: app, cancel: cancel}
	t.Cleanup(h.stop)
	for i := range size {
		m := &member{id: fmt.Sprintf("member-%02d", i)}
		m.node.Store(nodes[i%len(nodes)])
		mustRegister(t, m.node.Load(), Instance{App: app, ID: m.id, Duration: lease})
		h.members = append(h.members, m)
		h.workers.Go(func() { h.keepRegistered(ctx, m) })
	}
	return h
}

func (h *herd) keepRegistered(ctx context.Context, m *member) {
	for wait := herdEvery; pause(ctx, wait); {
		wait = herdEvery
		if m.silent.Load() {
			continue
		}
		node := m.node.Load()
		switch response := node.Renew(h.app, m.id); response.Outcome() {
		case Done:
		case NotFound:
			h.fail("a renewal of %s through %s was answered %v", m.id, node.Name, response)
			return
		default:
			wait = retryAfter
		}
	}
}

func (h *herd) fail(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failures = append(h.failures, fmt.Sprintf(format, args...))
}

// silence stops the renewals of the first members and returns their ids.
func (h *herd) silence(members int) []string {
	for _, m := range h.members[:members] {
		m.silent.Store(true)
	}
	return h.ids()[:members]
}

// use spreads the members over other nodes.
func (h *herd) use(nodes []*Node) {
	for i, m := range h.members {
		m.node.Store(nodes[i%len(nodes)])
	}
}

// wake lets all members renew again.
func (h *herd) wake() {
	for _, m := range h.members {
		m.silent.Store(false)
	}
}

// stop ends all renewals.
func (h *herd) stop() {
	h.cancel()
	h.workers.Wait()
}

// ids returns the names of all members, in order.
func (h *herd) ids() []string {
	var ids []string
	for _, m := range h.members {
		ids = append(ids, m.id)
	}
	return ids
}

// check reports members whose renewal got 404.
func (h *herd) check(t *testing.T) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, failure := range h.failures {
		t.Error(failure)
	}
}

// load is clients at work on a cluster, through the nodes that use names. It records which ids must be listed in the
// end, and check compares the nodes with that. Keepers register one instance each and renew it. Churners register new
// ids all the time; each cancels every second id at once, and its oldest when it has more than mostChurned. With
// consensus each call goes to a random node. Without consensus a worker stays with its node until that node fails, as
// stock clients do, because the other nodes receive everything later.
type load struct {
	lease   int  // duration of the keepers' instances in seconds; a keeper renews five times in it
	sticky  bool // a worker stays with its node
	nodes   atomic.Pointer[[]*Node]
	cancel  context.CancelFunc
	workers sync.WaitGroup

	mu         sync.Mutex
	fates      map[string]fate // by id, of each whose registration was acknowledged
	failures   []string
	counts     map[string]int // calls, by what was called and its outcome
	lastDone   time.Time
	longestGap time.Duration // without an acknowledgement
}

// fate is what must hold for an id at the end.
type fate int

const (
	uncertain fate = iota // what a cancel did is unknown: the id may be listed or not
	present               // registered for certain, never canceled: the id must be listed
	absent                // canceled for certain: the id must not be listed
)

const (
	retryAfter = 200 * time.Millisecond
	churnEvery = 20 * time.Millisecond
	// mostChurned is how many instances a churner leaves registered: however fast a machine is, all of them together
	// stay below what an application may have.
	mostChurned = 100
)

// startLoad starts a load whose kept instances have leases of the given number of seconds, and waits until all of
// them are registered. It ends with the test at the latest.
func startLoad(t *testing.T, lease, keepers, churners int, nodes []*Node) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{lease: lease, sticky: nodes[0].Mode == localcluster.AP, cancel: cancel, fates: map[string]fate{}, counts: map[string]int{}}
	t.Cleanup(l.stop)
	l.use(nodes)
	for i := range keepers {
		l.workers.Go(func() { l.worker().keepRegistered(ctx, fmt.Sprintf("kept-%d", i)) })
	}
	for i := range churners {
		l.workers.Go(func() { l.worker().churn(ctx, fmt.Sprintf("churn-%d", i)) })
	}
	Eventually(t, ReadyLimit, "kept instances are registered", func() error {
		return notYet(l.countRegistered("kept-"), keepers)
	})
	return l
}

// use sets the nodes that the load goes through from now on.
func (l *load) use(nodes []*Node) { l.nodes.Store(&nodes) }

// stop ends the load and waits until no call is in progress.
func (l *load) stop() {
	l.cancel()
	l.workers.Wait()
}

// node returns one of the nodes that use names.
func (l *load) node() *Node {
	nodes := *l.nodes.Load()
	return nodes[rand.IntN(len(nodes))]
}

// worker is one client of the load.
type worker struct {
	*load
	at *Node // the node of a sticky worker; any if nil
	// how often the worker went to another node, which without consensus may not have received yet what the worker
	// did before
	moves int
}

func (l *load) worker() *worker { return &worker{load: l} }

// node returns where the worker's next call goes.
func (w *worker) node() *Node {
	if !w.sticky {
		return w.load.node()
	}
	if w.at != nil && slices.Contains(*w.nodes.Load(), w.at) {
		return w.at
	}
	w.move()
	return w.at
}

// move goes to a node that the last call did not go to, if there is one.
func (w *worker) move() {
	nodes := slices.DeleteFunc(slices.Clone(*w.nodes.Load()), func(n *Node) bool { return n == w.at })
	if len(nodes) == 0 {
		return
	}
	if w.at != nil {
		w.moves++
	}
	w.at = nodes[rand.IntN(len(nodes))]
}

// countOutcome counts the outcome of a call and returns it, and moves away from a node that failed. A response that
// calls the request itself wrong fails the load.
func (w *worker) countOutcome(what string, response Response) Outcome {
	outcome := response.Outcome()
	w.count(what, outcome)
	if response.Status/100 == 4 && outcome != NotFound {
		w.fail("%s: %v", what, response)
	}
	if w.sticky && outcome != Done && outcome != NotFound {
		w.move()
	}
	return outcome
}

func (l *load) count(what string, outcome Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[what+" "+outcome.String()]++
	if outcome != Done {
		return
	}
	now := time.Now()
	if !l.lastDone.IsZero() {
		l.longestGap = max(l.longestGap, now.Sub(l.lastDone))
	}
	l.lastDone = now
}

// setFate records what must hold for an id from now on.
func (l *load) setFate(id string, f fate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fates[id] = f
}

// countRegistered counts the ids with a prefix whose registration was acknowledged, including canceled ones.
func (l *load) countRegistered(prefix string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for id := range l.fates {
		if strings.HasPrefix(id, prefix) {
			n++
		}
	}
	return n
}

// awaitProgress waits until the churners have registered some more, so that faults hit a cluster at work and not one
// that still recovers.
func (l *load) awaitProgress(t *testing.T) {
	t.Helper()
	const some = 150
	goal := l.countRegistered("churn-") + some
	Eventually(t, ReadyLimit, "the load makes progress", func() error {
		if err := notYet(l.countRegistered("churn-"), goal); err != nil {
			return fmt.Errorf("%w; %s", err, l.summary())
		}
		return nil
	})
}

// summary shows the outcomes of the calls, and the first failures.
func (l *load) summary() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprintf("outcomes %v, failures %q", l.counts, l.failures[:min(len(l.failures), 3)])
}

func (l *load) fail(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures = append(l.failures, fmt.Sprintf(format, args...))
}

// keepRegistered registers one instance and renews it. After its first acknowledged registration a renewal must never
// get 404, except, without consensus, from a node that the worker has just moved to: then it registers again, as
// stock clients do.
func (w *worker) keepRegistered(ctx context.Context, id string) {
	if !w.register(ctx, id) {
		return
	}
	w.setFate(id, present)
	knownAt := w.moves
	renewEvery := time.Duration(w.lease) * time.Second / 5
	for wait := renewEvery; pause(ctx, wait); {
		node := w.node()
		response := node.Renew("KEPT", id)
		known := w.moves == knownAt
		switch w.countOutcome("renew", response) {
		case Done:
			knownAt, wait = w.moves, renewEvery
		case NotFound:
			if known {
				w.fail("%s was evicted though it was kept alive: a renewal through %s was answered %v", id, node.Name, response)
				return
			}
			if !w.register(ctx, id) {
				return
			}
			knownAt = w.moves
		default:
			wait = retryAfter
		}
	}
}

// register registers a keeper's instance, trying until that is done, and reports whether it was done before the load
// ended.
func (w *worker) register(ctx context.Context, id string) bool {
	for pause(ctx, 0) {
		if w.countOutcome("keeper's register", w.node().Register(Instance{App: "KEPT", ID: id, Duration: w.lease})) == Done {
			return true
		}
		pause(ctx, retryAfter)
	}
	return false
}

// churn registers ids of its own, each once. It cancels every second one at once, and the oldest of the others when
// more than mostChurned are registered.
func (w *worker) churn(ctx context.Context, name string) {
	var registered []churned
	for i := 0; pause(ctx, churnEvery); i++ {
		id := fmt.Sprintf("%s-%d", name, i)
		if w.countOutcome("register", w.node().Register(Instance{App: "CHURN", ID: id, Duration: 24 * 3600})) != Done {
			continue
		}
		w.setFate(id, present)
		registered = append(registered, churned{id, w.moves})
		switch {
		case i%2 == 1:
			w.cancelOne(ctx, registered[len(registered)-1])
			registered = registered[:len(registered)-1]
		case len(registered) > mostChurned:
			w.cancelOne(ctx, registered[0])
			registered = registered[1:]
		}
	}
}

// churned is an instance that a churner left registered.
type churned struct {
	id string
	// the churner's moves when the registration was acknowledged: while they are the same, its node knows the
	// instance
	knownAt int
}

// cancelOne cancels an instance whose registration was acknowledged, until the outcome is known or can no longer be.
func (w *worker) cancelOne(ctx context.Context, c churned) {
	for {
		response := w.node().Cancel("CHURN", c.id)
		known := w.moves == c.knownAt
		switch outcome := w.countOutcome("cancel", response); {
		case outcome == Done:
			w.setFate(c.id, absent)
			return
		case outcome == NotFound && known:
			w.fail("%s was acknowledged, and its first cancel answered %v", c.id, response)
			return
		case outcome != Refused: // without consensus, the registration may not have reached the node
			w.setFate(c.id, uncertain)
			return
		case !pause(ctx, retryAfter):
			return
		}
	}
}

// pause waits, and reports whether ctx has not ended.
func pause(ctx context.Context, d time.Duration) bool {
	if d > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}

// check compares every node with what was acknowledged.
func (l *load) check(t *testing.T, nodes []*Node) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	t.Logf("outcomes: %v; longest time without an acknowledgement: %v", l.counts, l.longestGap)
	for _, failure := range l.failures {
		t.Error(failure)
	}
	for _, n := range nodes {
		listing := mustList(t, n)
		for id, fate := range l.fates {
			_, listed := listing[id]
			switch {
			case fate == present && !listed:
				t.Errorf("node %s: %s was acknowledged and is not there", n.Name, id)
			case fate == absent && listed:
				t.Errorf("node %s: the cancel of %s was acknowledged and it is there", n.Name, id)
			}
		}
	}
}
