package client

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestChangesThatComeTogetherArePublishedTogether(t *testing.T) {
	const changes = 1000
	var text strings.Builder
	text.WriteString(started(1))
	for n := range changes {
		text.WriteString(changeEvent("e", listChange{n + 2, registry.ActionAdded, orders(fmt.Sprint(n), registry.Up)}))
	}
	c := servers{"a": cut(text.String())}.client(t, "a")
	told, published := 0, 0
	var last int
	w := &watchStream{client: c, each: func(WatchEvent) error { told++; return nil }, idle: func() {
		if told != last {
			published++
		}
		last = told
	}}
	_ = w.follow(t.Context(), c.servers.order()[0]) // its end is the end of the text
	most := text.Len()/fetchSSE + 2
	expect.That(t, told == changes+1 && last == told && published <= most,
		"%d events in %d lots, the last one after %d, want %d in %d at most", told, published, last, changes+1, most)
}

func TestWithoutItsDocumentAnInstanceIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newListServer(newListModel("e", orders("o1", registry.Up), orders("o2", registry.Up)), true)
		s.instead("/v1/rollcall/watch", stream(started(2),
			"event: change\nid: e-3\ndata: {\"index\":\"e-3\",\"action\":\"MODIFIED\",\"app\":\"ORDERS\",\"id\":\"o1\"}\n\n"))
		d := discover(t, DiscoveryConfig{}, s)
		synctest.Wait()
		d.wantList(t, "after the change", "ORDERS/o2=UP")
	})
}

func TestAServerThatTheClientHasNoMoreIsNotWatchedAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known := newListModel("e", orders("o1", registry.Up))
		a, b := newListServer(known, true), newListServer(known, true)
		d := discover(t, DiscoveryConfig{}, a, b)
		synctest.Wait()
		a.wantAsked(t, "at first", "full watch@e-1")
		need.OK(t, d.client.SetServers([]string{"http://b"}))
		pass(20 * time.Second) // which a mark comes within
		b.wantAsked(t, "when it is the only one", "watch@e-1")
		a.hangUp()
		known.put(orders("o2", registry.Up))
		synctest.Wait()
		d.wantList(t, "after that", known.words(""))
		a.wantAsked(t, "after that", "")
	})
}

func TestAServerThatIsCutOffFromItsClusterIsLeft(t *testing.T) {
	for _, tc := range []struct {
		name     string
		isolated int // servers
		moves    int // within ten minutes
	}{
		{name: "nobody", isolated: 0, moves: 0},
		{name: "one", isolated: 1, moves: 1},
		{name: "all, which are borne for 45 s, 90 s, 180 s, 360 s", isolated: 2, moves: 4},
	} {
		inBubble(t, tc.name, func(t *testing.T) {
			known := newListModel("e", orders("o1", registry.Up))
			a, b := newListServer(known, true), newListServer(known, true)
			discover(t, DiscoveryConfig{}, a, b)
			synctest.Wait()
			a.wantAsked(t, "at first", "full watch@e-1")
			for _, s := range []*listServer{a, b}[:tc.isolated] {
				s.isolate()
			}
			pass(10 * time.Minute)
			asked := strings.Fields(a.got() + " " + b.got())
			expect.That(t, len(asked) == tc.moves && !strings.Contains(strings.Join(asked, ""), "full"),
				"the servers are asked for %q, want %d watches", asked, tc.moves)
		})
	}
}

func TestAServerThatOnlyResetsIsNotAskedForEverythingAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newListServer(newListModel("e", orders("o1", registry.Up)), true)
		s.instead("/v1/rollcall/watch", cut(started(1), wasReset))
		d := discover(t, DiscoveryConfig{}, s)
		pass(10 * time.Minute)
		// At once, once more, and then after 30 s, 60 s, 120 s and 150 s at least.
		fetches := strings.Count(s.got(), "full")
		expect.That(t, fetches >= 4 && fetches <= 7, "%d fetches in ten minutes", fetches)
		s.instead("/v1/rollcall/watch", nil)
		pass(10 * DefaultRefreshInterval)
		if d.Status().Source != SourceWatch || d.Age() > 15*time.Second {
			t.Errorf("the status is %+v, want a watch", d.Status())
		}
	})
}

func TestWhatIsHeldIsForgottenWhenItIsToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newListServer(newListModel("e", orders("o1", registry.Up), orders("o2", registry.Up)), true)
		d := discover(t, DiscoveryConfig{}, s)
		synctest.Wait()
		s.restart("f")
		s.hangUp()
		pass(longestRetry)
		held := d.Status().Held
		need.That(t, held == 2, "%d are held, want 2", held)
		s.put(orders("o1", registry.Up))
		s.remove(orders("o2", registry.Up))
		synctest.Wait()
		d.wantList(t, "after what is told", "ORDERS/o1=UP")
		held = d.Status().Held
		expect.That(t, held == 0, "%d are held, want none", held)
	})
}

func TestADiscoveryIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newListServer(newListModel("", orders("o1", registry.Up), orders("o2", registry.Up)), false)
		c := clientOf(t, s)
		r := prometheus.NewRegistry()
		need.OK(t, r.Register(c.metrics))
		need.Got(c.StartDiscovery(DiscoveryConfig{}))(t)
		pass(DefaultRefreshInterval) // a delta
		s.lies("UP_9_")
		pass(DefaultRefreshInterval) // a delta of another hash, everything
		s.lies("")
		s.instead("", unreachable)
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

func TestADiscoveryIsConfiguredWithoutMistakes(t *testing.T) {
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
			_, err := servers{}.client(t, "a").StartDiscovery(tc.config)
			for _, want := range tc.says {
				expect.That(t, err != nil && strings.Contains(err.Error(), want), "got %v, want %q in it", err, want)
			}
		})
	}
}
