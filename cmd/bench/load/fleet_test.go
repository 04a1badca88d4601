package load

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/truth"
	"github.com/seed-20419f34/rollcall/internal/need"
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
	need.OK(t, l.Register(t.Context()))
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
		l := need.Got(New(Config{Nodes: []string{"a:1", "b:1", "c:1"}, Load: scenario.Load{Instances: tc.instances}}))(t)
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
	need.OK(t, l.Register(t.Context()))
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
