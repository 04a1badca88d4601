package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/seed-20419f34/rollcall/client/internal/fake"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// recorder records the calls of a function, as lists before and after.
type recorder struct {
	before, after []string
	entered       chan struct{} // receives a value at every call, if not nil
	release       chan struct{} // lets each call return, if not nil
}

func (h *recorder) each(old, new *Snapshot) {
	h.before, h.after = append(h.before, words(old)), append(h.after, words(new))
	if h.entered != nil {
		h.entered <- struct{}{}
	}
	if h.release != nil {
		<-h.release
	}
}

func (h *recorder) want(t *testing.T, lists ...string) {
	t.Helper()
	if len(lists) == 0 {
		lists = []string{""}
	}
	expect.That(t, slices.Equal(h.before, lists[:len(lists)-1]) && slices.Equal(h.after, lists[1:]),
		"called with the lists %q, then %q; want one after the other of %q", h.before, h.after, lists)
}

func TestOnChangeGetsTheListsBeforeAndAfterEveryChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var first, late recorder
		s := newListServer(newListModel("e", orders("o1", registry.Up)), true)
		d := discover(t, DiscoveryConfig{OnChange: first.each}, s)
		d.OnChange(late.each)
		synctest.Wait()
		s.set(orders("o1", registry.Down))
		synctest.Wait()
		s.remove(orders("o1", registry.Down))
		synctest.Wait()
		first.want(t, "", "ORDERS/o1=UP", "ORDERS/o1=DOWN", "")
		late.want(t, "ORDERS/o1=UP", "ORDERS/o1=DOWN", "")
	})
}

func TestOnChangeThatIsSlowGetsManyChangesAsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, quick := recorder{release: make(chan struct{})}, recorder{}
		s := newListServer(newListModel("e"), true)
		d := discover(t, DiscoveryConfig{OnChange: slow.each}, s)
		d.OnChange(quick.each)
		synctest.Wait()
		want := []string{""}
		for n := range 4 {
			s.set(orders(fmt.Sprint(n), registry.Up))
			synctest.Wait()
			want = append(want, s.words(""))
		}
		d.wantList(t, "although a function is slow", s.words(""))
		quick.want(t, want...)
		close(slow.release)
		synctest.Wait()
		slow.want(t, "", want[1], want[4])
	})
}

func TestOnChangeThatIsStoppedIsNotCalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changes := recorder{entered: make(chan struct{}), release: make(chan struct{})}
		s := newListServer(newListModel("e"), true)
		d := discover(t, DiscoveryConfig{}, s)
		stop := d.OnChange(changes.each)
		s.set(orders("o1", registry.Up))
		<-changes.entered
		s.set(orders("o2", registry.Up))
		stop() // does not wait for the call in progress
		close(changes.release)
		stop()
		synctest.Wait()
		changes.want(t, "", "ORDERS/o1=UP")
	})
}

func TestOnChangeThatHangsDoesNotKeepADiscoveryFromClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := recorder{release: make(chan struct{})}
		s := newListServer(newListModel("e", orders("o1", registry.Up)), true)
		d := discover(t, DiscoveryConfig{OnChange: hangs.each}, s)
		ctx := fake.Within(t, time.Second)
		start := time.Now()
		if err := d.Close(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("Close returns %v after %v, want the end of its context after 1s", err, time.Since(start))
		}
		close(hangs.release)
		expect.OKf(t, d.Close(t.Context()), "Close, when it has returned")
	})
}

func TestOnChangeThatStoppedItselfIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newListServer(newListModel("e"), true)
		d := discover(t, DiscoveryConfig{}, s)
		release := make(chan struct{})
		var stop func()
		stop = d.OnChange(func(_, _ *Snapshot) {
			stop()
			<-release
		})
		s.set(orders("o1", registry.Up))
		synctest.Wait()
		closed := make(chan error, 1)
		go func() { closed <- d.Close(context.Background()) }()
		synctest.Wait()
		select {
		case err := <-closed:
			t.Errorf("Close returns %v during a call", err)
		default:
		}
		close(release)
		expect.OK(t, <-closed)
	})
}

func TestDiscoveryThatIsClosedCallsNoFunctionAndStaysReadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes, late recorder
		s := newListServer(newListModel("e", orders("o1", registry.Up)), true)
		d := discover(t, DiscoveryConfig{OnChange: changes.each}, s)
		for range 2 {
			need.OK(t, d.Close(t.Context()))
		}
		d.OnChange(late.each)
		s.set(orders("o2", registry.Up))
		pass(time.Hour)
		changes.want(t, "", "ORDERS/o1=UP")
		late.want(t)
		d.wantList(t, "after Close", "ORDERS/o1=UP")
		expect.OKf(t, d.Ready(t.Context()), "Ready")
		s.wantRequests(t, "in all", "full watch@e-1")
	})
}

func TestDiscoveryWithoutAListIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newListServer(newListModel("e"), true)
		s.setFault("", fake.Silent)
		d := discover(t, DiscoveryConfig{}, s)
		waits := make(chan error)
		go func() { waits <- d.Ready(context.Background()) }()
		synctest.Wait()
		need.OK(t, d.client.Close(t.Context()))
		expect.ErrorIs(t, <-waits, ErrClosed, "a waiting Ready")
		expect.ErrorIs(t, d.Ready(t.Context()), ErrClosed, "a later Ready")
		expect.ErrorIs(t, expect.Err(d.client.StartDiscovery(DiscoveryConfig{})), ErrClosed, "another StartDiscovery")
		expect.ErrorIs(t, d.client.Watch(t.Context(), WatchConfig{}, nil), ErrClosed, "a Watch")
	})
}

func TestDiscoveryRemovesAnInstanceWhoseChangeHasNoDocument(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newListServer(newListModel("e", orders("o1", registry.Up), orders("o2", registry.Up)), true)
		s.setFault("/v1/rollcall/watch", stream(started(2),
			"event: change\nid: e-3\ndata: {\"index\":\"e-3\",\"action\":\"MODIFIED\",\"app\":\"ORDERS\",\"id\":\"o1\"}\n\n"))
		d := discover(t, DiscoveryConfig{}, s)
		d.wantList(t, "after the change", "ORDERS/o2=UP")
	})
}

func TestDiscoveryLeavesAServerThatWasRemovedFromTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known := newListModel("e", orders("o1", registry.Up))
		a, b := newListServer(known, true), newListServer(known, true)
		d := discover(t, DiscoveryConfig{}, a, b)
		a.wantRequests(t, "at first", "full watch@e-1")
		need.OK(t, d.client.SetServers([]string{"http://b"}))
		pass(20 * time.Second) // within which a mark arrives
		b.wantRequests(t, "when it is the only one", "watch@e-1")
		a.hangUp()
		known.set(orders("o2", registry.Up))
		synctest.Wait()
		d.wantList(t, "after that", known.words(""))
		a.wantRequests(t, "after that", "")
	})
}

func TestDiscoveryLeavesAServerThatIsCutOffFromItsCluster(t *testing.T) {
	for _, tc := range []struct {
		name     string
		isolated int // isolated servers
		moves    int // within ten minutes
	}{
		{name: "no server", isolated: 0, moves: 0},
		{name: "one", isolated: 1, moves: 1},
		{name: "all, which are borne for 45 s, 90 s, 180 s, 360 s", isolated: 2, moves: 4},
	} {
		fake.InBubble(t, tc.name, func(t *testing.T) {
			known := newListModel("e", orders("o1", registry.Up))
			a, b := newListServer(known, true), newListServer(known, true)
			discover(t, DiscoveryConfig{}, a, b)
			a.wantRequests(t, "at first", "full watch@e-1")
			for _, s := range []*listServer{a, b}[:tc.isolated] {
				s.isolate()
			}
			pass(10 * time.Minute)
			asked := strings.Fields(a.newRequests() + " " + b.newRequests())
			expect.That(t, len(asked) == tc.moves && !strings.Contains(strings.Join(asked, ""), "full"),
				"the servers are asked for %q, want %d watches", asked, tc.moves)
		})
	}
}

func TestDiscoverySparesAServerThatOnlyResets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newListServer(newListModel("e", orders("o1", registry.Up)), true)
		s.setFault("/v1/rollcall/watch", cut(started(1), wasReset))
		d := discover(t, DiscoveryConfig{}, s)
		pass(10 * time.Minute)
		// At once, once more, and then after at least half an interval each time.
		fetches := strings.Count(s.newRequests(), "full")
		expect.That(t, fetches >= 20 && fetches <= 42, "%d fetches in ten minutes", fetches)
		expect.ErrorIs(t, d.Status().Err, errReset, "the status has the error")
		s.setFault("/v1/rollcall/watch", nil)
		pass(DefaultRefreshInterval)
		expect.That(t, d.Status().Source == SourceWatch && d.Age() <= 15*time.Second, "the status is %+v, want a watch", d.Status())
	})
}

func TestDiscoveryIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newListServer(newListModel("", orders("o1", registry.Up), orders("o2", registry.Up)), false)
		c := clientOfLists(t, s)
		r := prometheus.NewRegistry()
		need.OK(t, r.Register(c.metrics))
		need.Got(c.StartDiscovery(DiscoveryConfig{}))(t)
		pass(DefaultRefreshInterval) // a delta
		s.setFalseHash("UP_9_")
		pass(DefaultRefreshInterval) // a delta with another hash, everything
		s.setFalseHash("")
		s.setFault("", fake.Unreachable)
		pass(DefaultRefreshInterval) // a delta that fails
		pass(5 * time.Second)
		const want = `
# HELP rollcall_client_list_age_seconds Seconds since the list of instances was known to be up to date.
# TYPE rollcall_client_list_age_seconds gauge
rollcall_client_list_age_seconds{app=""} 35
# HELP rollcall_client_list_held_instances Instances that the guard keeps in the list although the last full answer did not have them.
# TYPE rollcall_client_list_held_instances gauge
rollcall_client_list_held_instances{app=""} 0
# HELP rollcall_client_list_instances Instances in the list, whatever their status.
# TYPE rollcall_client_list_instances gauge
rollcall_client_list_instances{app=""} 2
# HELP rollcall_client_refreshes_total Refreshes of the list of instances, by kind and outcome.
# TYPE rollcall_client_refreshes_total counter
rollcall_client_refreshes_total{kind="delta",outcome="failed"} 1
rollcall_client_refreshes_total{kind="delta",outcome="mismatch"} 1
rollcall_client_refreshes_total{kind="delta",outcome="ok"} 1
rollcall_client_refreshes_total{kind="full",outcome="failed"} 0
rollcall_client_refreshes_total{kind="full",outcome="ok"} 2
rollcall_client_refreshes_total{kind="watch",outcome="failed"} 0
rollcall_client_refreshes_total{kind="watch",outcome="ok"} 0
`
		expect.OK(t, testutil.GatherAndCompare(r, strings.NewReader(want), "rollcall_client_list_age_seconds", "rollcall_client_list_held_instances", "rollcall_client_list_instances", "rollcall_client_refreshes_total"))
	})
}

func TestDiscoveryConfigReportsEveryMistake(t *testing.T) {
	for _, tc := range []struct {
		name   string
		config DiscoveryConfig
		says   []string
	}{
		{name: "an unknown mode", config: DiscoveryConfig{Mode: 3}, says: []string{"mode 3"}},
		{name: "a negative interval", config: DiscoveryConfig{Interval: -1}, says: []string{"interval -1ns"}},
		{name: "an interval without end", config: DiscoveryConfig{Interval: 25 * time.Hour}, says: []string{"interval 25h0m0s", "24h"}},
		{name: "all at once", config: DiscoveryConfig{Mode: 9, Interval: -1, Guard: Guard{Share: 2}}, says: []string{"mode 9", "interval", "Guard.Share"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := clientOf(t, fake.Servers{}, "a").StartDiscovery(tc.config)
			for _, want := range tc.says {
				expect.That(t, err != nil && strings.Contains(err.Error(), want), "got %v, want %q in it", err, want)
			}
		})
	}
}

// The guard at work is tested in package list, and by TestDiscoveryKeepsItsListWhenAServerIsSuddenlyEmpty.
func TestGuardValidateReportsEveryMistake(t *testing.T) {
	tests := []struct {
		name  string
		guard Guard
		want  []string // in the error, in this order; empty if it is valid
	}{
		{"zero", Guard{}, nil},
		{"both fields", Guard{Share: 1, Hold: time.Second}, nil},
		{"off", Guard{Share: -1}, nil},
		{"a share above all", Guard{Share: 1.5}, []string{"Guard.Share 1.5", "between 0 and 1"}},
		{"not a number", Guard{Share: math.NaN()}, []string{"Guard.Share NaN"}},
		{"two mistakes", Guard{Share: 50, Hold: -time.Second}, []string{"Guard.Share 50", "Guard.Hold -1s", "must not be negative"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.guard.Validate()
			need.That(t, (err == nil) == (tt.want == nil), "error %v, want %q", err, tt.want)
			rest := fmt.Sprint(err)
			for _, part := range tt.want {
				_, after, found := strings.Cut(rest, part)
				expect.That(t, found, "error %q lacks %q", err, part)
				rest = after
			}
		})
	}
}
