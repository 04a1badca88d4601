package load

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

// fakeCluster is a set of servers that share one registry: per id the registered version, where the newer one stays.
type fakeCluster struct {
	nodes []*httptest.Server

	mu       sync.Mutex
	versions map[string]int64
	seen     []seen
	verdict  func(seen) int // status of a request that fails; 0 if it succeeds. If nil, all succeed
}

// seen is a received request.
type seen struct {
	node    int
	method  string
	id      string
	version int64 // of registrations and renewals
}

func newFakeCluster(t *testing.T, nodes int) *fakeCluster {
	c := &fakeCluster{versions: make(map[string]int64)}
	for n := range nodes {
		c.nodes = append(c.nodes, standIn(t, func(w http.ResponseWriter, r *http.Request) { c.serve(n, w, r) }))
	}
	return c
}

func (c *fakeCluster) addrs() []string {
	var all []string
	for _, s := range c.nodes {
		all = append(all, addrOf(s))
	}
	return all
}

func (c *fakeCluster) serve(node int, w http.ResponseWriter, r *http.Request) {
	s, err := sight(node, r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = append(c.seen, s)
	if c.verdict != nil {
		if status := c.verdict(s); status != 0 {
			w.WriteHeader(status)
			return
		}
	}
	c.do(w, s)
}

func sight(node int, r *http.Request) (seen, error) {
	app, id, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/eureka/apps/"), "/")
	s := seen{node: node, method: r.Method, id: id}
	if r.Method != http.MethodPost {
		return s, nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return s, err
	}
	i, err := eureka.DecodeRegistration(body, eureka.Format{}, app)
	if err != nil {
		return s, err
	}
	s.id, s.version = i.ID(), i.LastDirty-DirtyBase
	return s, nil
}

func (c *fakeCluster) do(w http.ResponseWriter, s seen) {
	version, ok := c.versions[s.id]
	switch {
	case s.method == http.MethodPost:
		c.versions[s.id] = max(version, s.version)
		w.WriteHeader(http.StatusNoContent)
	case !ok:
		w.WriteHeader(http.StatusNotFound)
	case s.method == http.MethodDelete:
		delete(c.versions, s.id)
	case s.method == http.MethodGet:
		i := &registry.Instance{App: "A", InstanceID: s.id, Metadata: []registry.Pair{{Key: "n", Value: strconv.FormatInt(version, 10)}}}
		_, _ = w.Write(eureka.AppendInstanceDocument(nil, eureka.Format{}, &registry.Lease{Instance: i}, registry.Stamp{}))
	}
}

func (c *fakeCluster) decide(verdict func(seen) int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.verdict = verdict
}

func (c *fakeCluster) remove(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.versions, id)
}

// version returns the registered version of an instance, or 0 if it is not registered.
func (c *fakeCluster) version(id string) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.versions[id]
}

func (c *fakeCluster) registered() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.versions)
}

// requests returns those with a method, about an id (any if empty).
func (c *fakeCluster) requests(method, id string) []seen {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []seen
	for _, s := range c.seen {
		if s.method == method && (id == "" || s.id == id) {
			all = append(all, s)
		}
	}
	return all
}

// newTestLoad prepares a load on a cluster, with a book and a history. Its instances' heartbeats and leases take
// longer than a test.
func newTestLoad(t *testing.T, c *fakeCluster, s scenario.Load) *Load {
	t.Helper()
	s.Heartbeat, s.Lease = scenario.Span(time.Minute), scenario.Span(3*time.Minute)
	l, err := New(Config{
		Nodes: c.addrs(), Load: s, Seed: 1, Prefix: "TEST", Timeout: 10 * time.Second, Book: new(trial.Book), History: new(History),
	})
	need.OK(t, err)
	t.Cleanup(l.Stop)
	return l
}

func registered(t *testing.T, c *fakeCluster, s scenario.Load) *Load {
	t.Helper()
	l := newTestLoad(t, c, s)
	need.OK(t, l.Register(t.Context()))
	return l
}

func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !so(); {
		need.That(t, !time.Now().After(deadline), "not within 30 s: %s", what)
		wait.For(t.Context(), 5*time.Millisecond)
	}
}

// beat sends the next heartbeat of every lasting instance.
func beat(t *testing.T, l *Load) {
	t.Helper()
	send(t, l.fleet.heartbeats(), "", len(l.fleet.lasting))
}

func TestRegisterGoesOnUntilEverythingIsAcknowledged(t *testing.T) {
	c := newFakeCluster(t, 2)
	refusals := 0
	c.decide(func(s seen) int {
		if refusals++; refusals <= 5 {
			return http.StatusServiceUnavailable
		}
		return 0
	})
	l := registered(t, c, scenario.Load{Instances: 30, OwnKeys: 2, SharedKeys: 1})
	expect.Equal(t, c.registered(), 33, "instances are registered:")
	expect.Equal(t, l.Book.Expected(), 33, "instances that the book expects:")
	app, keys := l.Keys()
	want := []string{"own-0", "own-1", "shared-0"}
	expect.That(t, app == "TEST-KEYS" && slices.Equal(keys, want), "watched keys %q in %s, want %q in TEST-KEYS", keys, app, want)
}

func TestRegisterSaysHowManyWereNotRegisteredInTime(t *testing.T) {
	c := newFakeCluster(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	c.decide(func(seen) int { cancel(); return http.StatusServiceUnavailable })
	l := newTestLoad(t, c, scenario.Load{Instances: 3})
	err := l.Register(ctx)
	want := "3 of 3 instances could not be registered: context canceled"
	expect.That(t, err != nil && err.Error() == want, "error %v, want %s", err, want)
}

func TestFleetIsSpreadOverNodesAndApplications(t *testing.T) {
	for _, tc := range []struct{ instances, perApp, apps, clients int }{
		{instances: 30, apps: 3, clients: 30},
		{instances: 1000, apps: 100, clients: 768},
		{instances: 2000, apps: 20, clients: 768},
		{instances: 2000, perApp: 20, apps: 100, clients: 768},
	} {
		l := need.Got(New(Config{Nodes: []string{"a:1", "b:1", "c:1"}, PerApp: tc.perApp, Load: scenario.Load{Instances: tc.instances}}))(t)
		apps, homes, ids := map[string]int{}, map[int]int{}, map[string]bool{}
		for _, i := range l.fleet.lasting {
			apps[i.app]++
			homes[i.home]++
			ids[i.id] = true
		}
		expect.That(t, len(apps) == tc.apps && len(ids) == tc.instances && l.fleet.clients() == tc.clients, "%d instances: %d applications, %d ids and %d clients, want %d, as many ids, and %d", tc.instances, len(apps), len(ids), l.fleet.clients(), tc.apps, tc.clients)
		for home, n := range homes {
			expect.That(t, n >= tc.instances/4, "%d instances: %d of them at node %d", tc.instances, n, home)
		}
	}
}

func TestFleetRenewsEveryInstanceInTurnAtItsHome(t *testing.T) {
	c := newFakeCluster(t, 2)
	l := newTestLoad(t, c, scenario.Load{Instances: 7})
	l.Connections = 4 // fewer than instances
	l.fleet = newFleet(l)
	need.OK(t, l.Register(t.Context()))
	before := len(c.requests(http.MethodPut, ""))
	send(t, l.fleet.heartbeats(), "", 3*7)
	got := c.requests(http.MethodPut, "")[before:]
	for n, s := range got {
		i := l.fleet.lasting[n%7]
		expect.That(t, s.id == i.id && s.node == i.home, "heartbeat %d is of %s at node %d, want %s at node %d", n, s.id, s.node, i.id, i.home)
	}
	expect.That(t, len(got) == 21 && l.Renewals() == int64(before+21), "%d heartbeats, %d acknowledged, want 21 and %d before", len(got), l.Renewals(), before)
}

func TestChurnInstancesAreRenewedAndCanceled(t *testing.T) {
	c := newFakeCluster(t, 2)
	l := newTestLoad(t, c, scenario.Load{Registers: 10})
	l.fleet.interval, l.fleet.stay = 100*time.Millisecond, 1550*time.Millisecond
	l.recorder.begin, l.recorder.end = time.Now(), time.Now().Add(time.Minute)
	send(t, l.streams(), "registers", 6)
	expect.Equal(t, l.Book.Expected(), 6, "instances that the book expects:")
	eventually(t, "all have canceled", func() bool { return len(c.requests(http.MethodDelete, "")) == 6 && c.registered() == 0 })
	eventually(t, "the book expects nothing", func() bool { return l.Book.Expected() == 0 })
	for _, r := range c.requests(http.MethodPost, "") {
		expect.That(t, len(c.requests(http.MethodPut, r.id)) != 0, "%s was never renewed", r.id)
	}
	for o, method := range map[trial.Operation]string{trial.Register: http.MethodPost, trial.Heartbeat: http.MethodPut, trial.Cancel: http.MethodDelete} {
		want := len(c.requests(method, ""))
		// A call is recorded after its response, which the server has sent before.
		eventually(t, "every "+string(o)+" is recorded", func() bool { return l.Snapshot()[o].Outcomes[trial.Done] == int64(want) })
	}
}

func TestRegisterRenewsInstancesUntilAllAreListed(t *testing.T) {
	c := newFakeCluster(t, 1)
	l := newTestLoad(t, c, scenario.Load{Instances: 2, OwnKeys: 1})
	l.fleet.interval = 20 * time.Millisecond
	l.AwaitListed = func(context.Context) error {
		expect.That(t, c.registered() == 3, "%d are registered when it waits, want the instances and the key", c.registered())
		eventually(t, "heartbeats", func() bool { return len(c.requests(http.MethodPut, "")) >= 6 })
		return errors.New("are not listed")
	}
	err := l.Register(t.Context())
	expect.That(t, err != nil && err.Error() == "are not listed", "it registers with %v", err)
}

// The expected state must no longer change while the nodes are asked for theirs.
func TestChurnCancelsNoInstanceAfterTheEndOfTheLoad(t *testing.T) {
	c := newFakeCluster(t, 2)
	l := newTestLoad(t, c, scenario.Load{Registers: 100})
	l.fleet.interval, l.fleet.stay = 50*time.Millisecond, 150*time.Millisecond
	need.OK(t, l.Run(t.Context(), time.Now(), 300*time.Millisecond))
	t.Cleanup(l.Stop)
	rounds := func(n int) {
		t.Helper()
		renewals := len(c.requests(http.MethodPut, ""))
		eventually(t, "heartbeats", func() bool { return len(c.requests(http.MethodPut, "")) >= renewals+n*c.registered() })
	}
	rounds(2) // a cancel that had begun has ended then
	stayed := c.registered()
	need.That(t, stayed != 0, "no instance is left to stay")
	rounds(4)
	expect.Equal(t, c.registered(), stayed, "registered after the time of their stay:")
}

func TestCancelThatIsNotFoundCountsAsTheEndOfItsInstance(t *testing.T) {
	c := newFakeCluster(t, 1)
	l := newTestLoad(t, c, scenario.Load{Registers: 1})
	l.fleet.stay = 0
	c.decide(func(s seen) int { return map[string]int{http.MethodDelete: http.StatusNotFound}[s.method] })
	send(t, l.streams(), "registers", 1)
	id := c.requests(http.MethodPost, "")[0].id
	ghosts := func() int { return l.Book.Judge(0, trial.Listing{id: 1}, time.Now(), time.Now()).Ghosts }
	eventually(t, "a server that lists it lists a ghost", func() bool { return ghosts() == 1 })
	expect.Equal(t, len(c.requests(http.MethodDelete, "")), 1, "cancels:")
}

func TestFleetRegistersAnUnknownInstanceAgainAtOnce(t *testing.T) {
	c := newFakeCluster(t, 2)
	l := registered(t, c, scenario.Load{Instances: 4})
	i := l.fleet.lasting[2]
	c.remove(i.id)
	beat(t, l)
	expect.Equal(t, c.version(i.id), 2, "the forgotten instance is registered in version")
	expect.That(t, l.Book.Alive(i.id), "the book takes the forgotten instance for dead")
	got := len(c.requests(http.MethodPost, ""))
	expect.That(t, got == 5, "%d registrations, want the first 4 and another one", got)
	beat(t, l)
	expect.Equal(t, len(c.requests(http.MethodPut, i.id)), 2, "heartbeats:")
}

func TestRegistrationThatIsUncertainIsRepeatedInTheNextVersion(t *testing.T) {
	c := newFakeCluster(t, 1)
	l := registered(t, c, scenario.Load{Instances: 1})
	i := l.fleet.lasting[0]
	c.decide(func(s seen) int {
		if s.method == http.MethodPost && s.version < 4 {
			return http.StatusGatewayTimeout
		}
		return 0
	})
	c.remove(i.id)
	beat(t, l)
	eventually(t, "the instance is registered again", func() bool { return c.version(i.id) == 4 })
	eventually(t, "its client renews it", func() bool { beat(t, l); return len(c.requests(http.MethodPut, i.id)) > 1 })
}

func TestBookKnowsOfTriesThatMayTakeEffectLate(t *testing.T) {
	for _, tc := range []struct {
		name    string
		a       callResult
		revived bool // a server that lists the instance after its cancel has revived it
	}{
		{name: "done at the first try", a: callResult{outcome: trial.Done}, revived: true},
		{name: "done at the second", a: callResult{outcome: trial.Done, doubtful: true}},
		{name: "unknown", a: callResult{outcome: trial.Unknown}},
		{name: "refused", a: callResult{outcome: trial.Refused}, revived: true},
		{name: "not reached", a: callResult{outcome: trial.Unreached}, revived: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b, now := new(trial.Book), time.Now()
			l := need.Got(New(Config{Nodes: []string{"a:1"}, Book: b}))(t)
			b.Registering("i", 1, now)
			b.Registered("i", 1, now)
			tc.a.done = now
			l.write(described{id: "i"}, 2, trial.Write, func([]byte) callResult { return tc.a })
			b.Canceling("i", 3, now)
			b.Canceled("i", 3, now)
			_, revived, _ := b.End(trial.Listing{"i": 2}, now.Add(time.Second), 0)
			expect.That(t, len(revived) > 0 == tc.revived, "revived: %v, want %t", revived, tc.revived)
		})
	}
}

func TestDeadInstancesSendNothing(t *testing.T) {
	c := newFakeCluster(t, 2)
	l := registered(t, c, scenario.Load{Instances: 20})
	n, err := l.Die("10%")
	expect.That(t, n == 2 && err == nil, "%d die, %v, want 2", n, err)
	beat(t, l)
	expect.Equal(t, len(c.requests(http.MethodPut, "")), 18, "heartbeats:")
	expect.Equal(t, l.Book.Expected(), 18, "instances that the book expects:")
}

func TestDeadInstanceThatWasAtWorkDiedWhenThatHadEnded(t *testing.T) {
	c := newFakeCluster(t, 1)
	l := registered(t, c, scenario.Load{Instances: 1})
	i := l.fleet.lasting[0]
	i.work.Lock() // its client is at work
	need.Got(l.Die("1"))(t)
	expect.That(t, l.Book.Alive(i.id), "it is dead by the book, though a heartbeat is under way that may be acknowledged")
	i.work.Unlock()
	eventually(t, "it is dead by the book", func() bool { return !l.Book.Alive(i.id) })
}

func TestFaultDrawsItsInstancesByTheSeedAmongTheLiving(t *testing.T) {
	struck := func(seed uint64) (numbers []int) {
		l := need.Got(New(Config{Nodes: []string{"a:1"}, Load: scenario.Load{Instances: 100}, Seed: seed}))(t)
		need.Got(l.Die("10%"))(t)
		for n, i := range l.fleet.lasting {
			if i.mode.Load() == dead {
				numbers = append(numbers, n)
			}
		}
		n, _, err := l.Silence("100%")
		expect.That(t, n == 90 && err == nil, "%d are silenced, %v, want those that live", n, err)
		for _, which := range []string{"", "x", "0", "-1", "0%", "101%"} {
			_, _, err := l.Flap(which)
			expect.That(t, err != nil, "%q is no error", which)
		}
		return numbers
	}
	a, again, b := struck(1), struck(1), struck(2)
	expect.That(t, slices.Equal(a, again) && !slices.Equal(a, b), "seed 1 draws %v, and %v another time; seed 2 draws %v", a, again, b)
}

func TestSilentInstancesRegisterWhenTheyBeginAnew(t *testing.T) {
	c := newFakeCluster(t, 2)
	l := registered(t, c, scenario.Load{Instances: 10})
	n, restart, err := l.Silence("50%")
	need.That(t, n == 5 && err == nil, "%d are silenced, %v, want 5", n, err)
	beat(t, l)
	got := len(c.requests(http.MethodPut, ""))
	expect.That(t, got == 5, "%d heartbeats while 5 of 10 are silent", got)
	expect.Equal(t, l.Book.Expected(), 5, "instances that the book expects while 5 of 10 are silent:")
	restart()
	eventually(t, "the book expects all again", func() bool { return l.Book.Expected() == 10 })
	got = len(c.requests(http.MethodPost, ""))
	expect.That(t, got == 15, "%d registrations, want the first 10 and 5", got)
	beat(t, l)
	expect.Equal(t, len(c.requests(http.MethodPut, "")), 15, "heartbeats, 10 more than 5:")
}

func TestFlappingInstancesCancelAndRegisterInTurnAndEndRegistered(t *testing.T) {
	c := newFakeCluster(t, 2)
	l := registered(t, c, scenario.Load{Instances: 4})
	n, stop, err := l.Flap("2")
	need.That(t, n == 2 && err == nil, "%d flap, %v, want 2", n, err)
	eventually(t, "three cancels", func() bool { return len(c.requests(http.MethodDelete, "")) >= 3 })
	stop()
	eventually(t, "all are registered", func() bool { return l.Book.Expected() == 4 && c.registered() == 4 })
	flapped := 0
	for _, i := range l.fleet.lasting {
		cancels, registrations := c.requests(http.MethodDelete, i.id), c.requests(http.MethodPost, i.id)
		expect.That(t, len(registrations) == len(cancels)+1, "%s: %d registrations and %d cancels", i.id, len(registrations), len(cancels))
		if len(cancels) > 0 {
			flapped++
		}
		last := registrations[len(registrations)-1].version
		expect.That(t, last == int64(len(registrations)+len(cancels)),
			"%s: version %d after %d registrations and %d cancels", i.id, last, len(registrations), len(cancels))
	}
	expect.That(t, flapped == 2, "%d instances flapped, want 2", flapped)
	eventually(t, "all are renewed", func() bool { beat(t, l); return len(c.requests(http.MethodPut, "")) >= 4 })
}

func TestCancelIsRepeatedUntilItIsCertain(t *testing.T) {
	c := newFakeCluster(t, 1)
	tries := 0
	c.decide(func(s seen) int {
		if s.method != http.MethodDelete {
			return 0
		}
		if tries++; tries < 3 {
			return http.StatusGatewayTimeout
		}
		return 0
	})
	l := registered(t, c, scenario.Load{Instances: 1})
	_, stop, err := l.Flap("1")
	need.OK(t, err)
	eventually(t, "the first cancel", func() bool { return len(c.requests(http.MethodDelete, "")) >= 1 })
	stop()
	eventually(t, "it is registered again", func() bool { return len(c.requests(http.MethodPost, "")) == 2 })
	expect.Equal(t, len(c.requests(http.MethodDelete, "")), 3, "cancels:")
}
