package load

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/truth"
)

// newTestLoad lays out a load on a cluster, with a book and a history. Its instances' heartbeats and leases take
// longer than a test.
func newTestLoad(t *testing.T, c *fakeCluster, s scenario.Load) *Load {
	t.Helper()
	s.Heartbeat, s.Lease = scenario.Span(time.Minute), scenario.Span(3*time.Minute)
	l, err := New(Config{
		Nodes: c.addrs(), Load: s, Seed: 1, Prefix: "TEST", Timeout: 10 * time.Second, Book: new(truth.Book), History: new(History),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.keys.close)
	return l
}

// registered lays out a load and registers everything.
func registered(t *testing.T, c *fakeCluster, s scenario.Load) *Load {
	t.Helper()
	l := newTestLoad(t, c, s)
	if err := l.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	return l
}

// tended lets the clients of a fleet do what they plan until the test ends.
func tended(t *testing.T, f *fleet) {
	ctx, cancel := context.WithCancel(context.Background())
	var tending sync.WaitGroup
	tending.Go(func() { f.tend(ctx) })
	t.Cleanup(func() { cancel(); tending.Wait() })
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !so(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 s: %s", what)
		}
		pauseFor(t.Context(), 5*time.Millisecond)
	}
}

// beat sends the next heartbeat of every lasting instance, by as many callers as its stream has.
func beat(t *testing.T, l *Load) {
	t.Helper()
	h := l.fleetStreams()[0].source
	callers := l.newCallers(l.fleet.callers())
	for range l.fleet.lasting {
		for _, c := range callers {
			h.send(t.Context(), c, time.Now())
		}
		if len(callers) == len(l.fleet.lasting) {
			break
		}
	}
	for _, c := range callers {
		c.close()
	}
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
	if got := c.registered(); got != 33 {
		t.Errorf("%d instances are registered, want 30 and 3 watched keys", got)
	}
	if got := l.Book.Expected(); got != 33 {
		t.Errorf("the book expects %d instances, want 33", got)
	}
	app, keys := l.Keys()
	if want := []string{"own-0", "own-1", "shared-0"}; app != "TEST-KEYS" || !slices.Equal(keys, want) {
		t.Errorf("watched keys %q in %s, want %q in TEST-KEYS", keys, app, want)
	}
}

func TestRegisterSaysHowManyWereNotRegisteredInTime(t *testing.T) {
	c := newFakeCluster(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	c.decide(func(seen) int { cancel(); return http.StatusServiceUnavailable })
	l := newTestLoad(t, c, scenario.Load{Instances: 3})
	err := l.Register(ctx)
	if want := "3 of 3 instances could not be registered: context canceled"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestInstancesAreSpreadOverNodesAndApplications(t *testing.T) {
	for _, tc := range []struct{ instances, apps, callers int }{
		{instances: 30, apps: 3, callers: 30},
		{instances: 1000, apps: 100, callers: 768},
		{instances: 2000, apps: 20, callers: 768},
	} {
		l, err := New(Config{Nodes: []string{"a:1", "b:1", "c:1"}, Load: scenario.Load{Instances: tc.instances}})
		if err != nil {
			t.Fatal(err)
		}
		apps, homes, ids := map[string]int{}, map[int]int{}, map[string]bool{}
		for _, i := range l.fleet.lasting {
			apps[i.app]++
			homes[i.home]++
			ids[i.id] = true
		}
		if len(apps) != tc.apps || len(ids) != tc.instances || l.fleet.callers() != tc.callers {
			t.Errorf("%d instances: %d applications, %d ids and %d clients, want %d, as many ids, and %d", tc.instances, len(apps), len(ids), l.fleet.callers(), tc.apps, tc.callers)
		}
		for home, n := range homes {
			if n < tc.instances/4 {
				t.Errorf("%d instances: %d of them at node %d", tc.instances, n, home)
			}
		}
	}
}

func TestEveryInstanceIsRenewedInTurnAtItsHome(t *testing.T) {
	c := newFakeCluster(t, 2)
	l := newTestLoad(t, c, scenario.Load{Instances: 7})
	l.Connections = 4 // fewer than instances
	l.fleet = newFleet(l)
	if err := l.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	h := l.fleetStreams()[0]
	callers := l.newCallers(h.fixed)
	if h.cycle != 7 || h.fixed != 4 || !h.lasting {
		t.Fatalf("stream %+v, want a lasting cycle of 7 for 4 callers", h)
	}
	for n := range 3 * 7 {
		h.send(t.Context(), callers[n%7%4], time.Now())
	}
	got := c.requests(http.MethodPut, "")
	for n, s := range got {
		i := l.fleet.lasting[n%7]
		if s.id != i.id || s.node != i.home {
			t.Errorf("heartbeat %d is of %s at node %d, want %s at node %d", n, s.id, s.node, i.id, i.home)
		}
	}
	if len(got) != 21 || l.Renewals() != 21 {
		t.Errorf("%d heartbeats, %d acknowledged, want 21", len(got), l.Renewals())
	}
	for _, c := range callers {
		c.close()
	}
}

func TestAnInstanceThatIsNotKnownRegistersAgainAtOnce(t *testing.T) {
	c := newFakeCluster(t, 2)
	l := registered(t, c, scenario.Load{Instances: 4})
	i := l.fleet.lasting[2]
	c.forget(i.id)
	beat(t, l)
	if got := c.version(i.id); got != 2 {
		t.Errorf("the forgotten instance is registered in version %d, want 2", got)
	}
	if !l.Book.Alive(i.id) {
		t.Error("the book takes the forgotten instance for dead")
	}
	if got := len(c.requests(http.MethodPost, "")); got != 5 {
		t.Errorf("%d registrations, want the first 4 and another one", got)
	}
	beat(t, l)
	if got := len(c.requests(http.MethodPut, i.id)); got != 2 {
		t.Errorf("%d heartbeats, want 2", got)
	}
}

func TestAnUncertainRegistrationIsRepeatedInTheNextVersion(t *testing.T) {
	c := newFakeCluster(t, 1)
	l := registered(t, c, scenario.Load{Instances: 1})
	i := l.fleet.lasting[0]
	c.decide(func(s seen) int {
		if s.method == http.MethodPost && s.version < 4 {
			return http.StatusGatewayTimeout
		}
		return 0
	})
	c.forget(i.id)
	beat(t, l)
	tended(t, l.fleet)
	eventually(t, "the instance is registered again", func() bool { return c.version(i.id) == 4 })
	eventually(t, "its client renews it", func() bool { beat(t, l); return len(c.requests(http.MethodPut, i.id)) > 1 })
}

func TestTheDeadSendNothingAnyMore(t *testing.T) {
	for _, tc := range []struct {
		which string
		want  int
	}{
		{which: "1", want: 1},
		{which: "10%", want: 2},
		{which: "100%", want: 20},
	} {
		t.Run(tc.which, func(t *testing.T) {
			c := newFakeCluster(t, 2)
			l := registered(t, c, scenario.Load{Instances: 20})
			if n, err := l.Die(tc.which); n != tc.want || err != nil {
				t.Errorf("%d die, %v, want %d", n, err, tc.want)
			}
			beat(t, l)
			if got := len(c.requests(http.MethodPut, "")); got != 20-tc.want {
				t.Errorf("%d heartbeats, want %d", got, 20-tc.want)
			}
			if got := l.Book.Expected(); got != 20-tc.want {
				t.Errorf("the book expects %d instances, want %d", got, 20-tc.want)
			}
		})
	}
}

func TestWhomAFaultStrikesIsDrawnByTheSeed(t *testing.T) {
	dead := func(seed uint64) (numbers []int) {
		l, err := New(Config{Nodes: []string{"a:1"}, Load: scenario.Load{Instances: 100}, Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Die("10%"); err != nil {
			t.Fatal(err)
		}
		for n, i := range l.fleet.lasting {
			if i.mode == dead {
				numbers = append(numbers, n)
			}
		}
		return numbers
	}
	if a, b := dead(1), dead(1); !slices.Equal(a, b) {
		t.Errorf("seed 1 draws %v, and %v another time", a, b)
	}
	if a, b := dead(1), dead(2); slices.Equal(a, b) {
		t.Errorf("seeds 1 and 2 draw %v", a)
	}
}

func TestOnlyTheLivingAreStruckAndWhatIsNoPartOfThemIsAnError(t *testing.T) {
	c := newFakeCluster(t, 1)
	l := registered(t, c, scenario.Load{Instances: 4})
	if n, err := l.Die("3"); n != 3 || err != nil {
		t.Fatalf("%d die, %v, want 3", n, err)
	}
	if n, _, err := l.Silence("100%"); n != 1 || err != nil {
		t.Errorf("%d are silenced, %v, want the one that lives", n, err)
	}
	for _, which := range []string{"", "x", "0", "-1", "0%", "101%"} {
		if _, _, err := l.Flap(which); err == nil {
			t.Errorf("%q is no error", which)
		}
	}
}

func TestTheSilentRegisterWhenTheyBeginAnew(t *testing.T) {
	c := newFakeCluster(t, 2)
	l := registered(t, c, scenario.Load{Instances: 10})
	tended(t, l.fleet)
	n, restart, err := l.Silence("50%")
	if n != 5 || err != nil {
		t.Fatalf("%d are silenced, %v, want 5", n, err)
	}
	beat(t, l)
	if got := len(c.requests(http.MethodPut, "")); got != 5 {
		t.Errorf("%d heartbeats while 5 of 10 are silent", got)
	}
	if got := l.Book.Expected(); got != 5 {
		t.Errorf("the book expects %d instances while 5 of 10 are silent", got)
	}
	restart()
	eventually(t, "the book expects all again", func() bool { return l.Book.Expected() == 10 })
	if got := len(c.requests(http.MethodPost, "")); got != 15 {
		t.Errorf("%d registrations, want the first 10 and 5", got)
	}
	beat(t, l)
	if got := len(c.requests(http.MethodPut, "")); got != 15 {
		t.Errorf("%d heartbeats, want 10 more than 5", got)
	}
}

func TestFlappingInstancesCancelAndRegisterInTurnAndEndRegistered(t *testing.T) {
	c := newFakeCluster(t, 2)
	l := registered(t, c, scenario.Load{Instances: 4})
	tended(t, l.fleet)
	n, stop, err := l.Flap("2")
	if n != 2 || err != nil {
		t.Fatalf("%d flap, %v, want 2", n, err)
	}
	eventually(t, "three cancels", func() bool { return len(c.requests(http.MethodDelete, "")) >= 3 })
	stop()
	eventually(t, "all are registered", func() bool { return l.Book.Expected() == 4 && c.registered() == 4 })
	flapped := 0
	for _, i := range l.fleet.lasting {
		cancels, registrations := c.requests(http.MethodDelete, i.id), c.requests(http.MethodPost, i.id)
		if len(registrations) != len(cancels)+1 {
			t.Errorf("%s: %d registrations and %d cancels", i.id, len(registrations), len(cancels))
		}
		if len(cancels) > 0 {
			flapped++
		}
		if last := registrations[len(registrations)-1].version; last != int64(len(registrations)+len(cancels)) {
			t.Errorf("%s: version %d after %d registrations and %d cancels", i.id, last, len(registrations), len(cancels))
		}
	}
	if flapped != 2 {
		t.Errorf("%d instances flapped, want 2", flapped)
	}
	eventually(t, "all are renewed", func() bool { beat(t, l); return len(c.requests(http.MethodPut, "")) >= 4 })
}

func TestACancelIsRepeatedUntilItIsCertain(t *testing.T) {
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
	tended(t, l.fleet)
	_, stop, err := l.Flap("1")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first cancel", func() bool { return len(c.requests(http.MethodDelete, "")) >= 1 })
	stop()
	eventually(t, "it is registered again", func() bool { return len(c.requests(http.MethodPost, "")) == 2 })
	if got := len(c.requests(http.MethodDelete, "")); got != 3 {
		t.Errorf("%d cancels, want 3", got)
	}
}

func TestInstancesThatComeAreRenewedAndGo(t *testing.T) {
	c := newFakeCluster(t, 2)
	l := newTestLoad(t, c, scenario.Load{Registers: 10})
	l.fleet.interval, l.fleet.stay = 100*time.Millisecond, 550*time.Millisecond
	tended(t, l.fleet)
	streams := l.fleetStreams()
	if len(streams) != 1 || streams[0].name != "registers" || streams[0].rate != 10 || streams[0].operation() != trial.Register {
		t.Fatalf("streams %+v, want one of 10 registers per second", streams)
	}
	began := time.Now()
	l.recorder.began.Store(&began)
	callers := l.newCallers(2)
	for n := range 6 {
		streams[0].send(t.Context(), callers[n%2], time.Now())
	}
	for _, c := range callers {
		c.close()
	}
	if got := l.Book.Expected(); got != 6 {
		t.Errorf("the book expects %d instances, want 6", got)
	}
	eventually(t, "all have canceled", func() bool { return len(c.requests(http.MethodDelete, "")) == 6 && c.registered() == 0 })
	eventually(t, "the book expects nothing", func() bool { return l.Book.Expected() == 0 })
	for _, r := range c.requests(http.MethodPost, "") {
		if len(c.requests(http.MethodPut, r.id)) == 0 {
			t.Errorf("%s was never renewed", r.id)
		}
	}
	totals, renewals := l.Snapshot(), len(c.requests(http.MethodPut, ""))
	for o, want := range map[trial.Operation]int{trial.Register: 6, trial.Heartbeat: renewals, trial.Cancel: 6} {
		if got := totals[o].Outcomes[trial.Done]; got != int64(want) {
			t.Errorf("%d calls are recorded as %s, want %d", got, o, want)
		}
	}
}

func TestRegisteredInstancesAreRenewedWhileTheOthersAreRegistered(t *testing.T) {
	c := newFakeCluster(t, 1)
	l := newTestLoad(t, c, scenario.Load{Instances: 2})
	l.fleet.interval = 20 * time.Millisecond
	first, last := l.fleet.lasting[0].id, l.fleet.lasting[1].id
	c.decide(func(s seen) int {
		if s.id == last && len(c.seen) < 10 { // what is seen is locked
			return http.StatusServiceUnavailable
		}
		return 0
	})
	if err := l.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := len(c.requests(http.MethodPut, first)); got < 3 {
		t.Errorf("%d heartbeats of the first, want some", got)
	}
}
