package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

// drained is a server of a cluster of two nodes, the second of which goes through indexes.
func drained(indexes ...string) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodPut {
			return answered(200, `{"index":"e-10"}`)
		}
		index := indexes[0]
		indexes = indexes[min(1, len(indexes)-1):]
		return answered(200, fmt.Sprintf(`{"nodes":[{"id":"n1","http":"a","role":"leader","index":"e-11"},{"id":"n2","http":"b","cluster":"c","role":"follower","index":%q}]}`, index))
	}
}

func TestDrainWaitsUntilEveryNodeHasAppliedTheOverrideAndTheSettleTime(t *testing.T) {
	const settle = 30 * time.Second
	for _, tc := range []struct {
		name   string
		server func(*http.Request) (*http.Response, error)
		took   time.Duration
		says   string // "": done
	}{
		{name: "all have", server: drained("e-10"), took: settle},
		{name: "one lags", server: drained("e-9", "e-9", "e-10"), took: settle + 2*drainPoll},
		{name: "one comes back", server: drained("", "e-12"), took: settle + drainPoll},
		{name: "one is of another cluster and joins", server: drained("x-12", "e-12"), took: settle + drainPoll},
		{name: "one never does", server: drained("e-9"), took: time.Minute, says: "n2 (b) is at e-9, before e-10"},
		{name: "one cannot be reached", server: drained(""), took: time.Minute, says: "n2 (b) is follower"},
		{name: "an unknown instance", server: always(404, `{"error":"unknown"}`), says: "not registered"},
		{name: "a cluster without nodes", server: always(200, `{"index":"e-1"}`), took: time.Minute, says: "the cluster names no nodes"},
		{name: "one lags for a second", server: drained("e-9", "e-9", "e-9", "e-9", "e-9", "e-10"), took: settle + 5*drainPoll},
	} {
		inBubble(t, tc.name, func(t *testing.T) {
			ctx := within(t, time.Minute)
			start := time.Now()
			err := servers{"a": tc.server}.client(t, "a").Drain(ctx, key, settle, by)
			if tc.says == "" && err != nil || tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)) {
				t.Errorf("got %v, want %q", err, tc.says)
			}
			expect.Equal(t, time.Since(start), tc.took, "took")
		})
	}
}

func TestADrainThatIsCutShortSaysHowFarItCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := within(t, time.Second)
		err := servers{"a": drained("e-10")}.client(t, "a").Drain(ctx, key, time.Minute, by)
		expect.That(t, err != nil && strings.Contains(err.Error(), "OUT_OF_SERVICE everywhere") && errors.Is(err, context.DeadlineExceeded),
			"got %v, want that the settle time is missing", err)
	})
}

func TestAClusterThatStopsAnsweringLeavesTheLaggingNodeInTheError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lag := drained("e-9")
		asked := 0
		c := servers{"a": func(r *http.Request) (*http.Response, error) {
			if asked++; asked > 2 {
				return silent(r)
			}
			return lag(r)
		}}.client(t, "a")
		ctx := within(t, time.Second)
		err := c.Drain(ctx, key, 0, by)
		expect.That(t, err != nil && strings.Contains(err.Error(), "n2 (b) is at e-9"), "got %v, want n2 in it", err)
	})
}

// aloneNode is a node without consensus: it accepts acts and names itself and node b; what it shows of
// the instance is what shown returns.
func aloneNode(shown func() string) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		switch {
		case r.Method == http.MethodPut:
			return answered(200, `{"index":"a1-7"}`)
		case strings.HasSuffix(r.URL.Path, "/status"):
			return answered(200, `{"mode":"ap","nodes":[{"id":"n1","http":"a","index":"a1-7"},{"id":"b","http":"b"}]}`)
		}
		return answered(200, shown())
	}
}

// Nodes without consensus count their changes each by itself, so their indexes say nothing.
func TestADrainWithoutConsensusAsksEveryNodeForTheInstance(t *testing.T) {
	const out = `[{"app":"A","id":"other","status":"UP"},{"app":"A","id":"b","status":"OUT_OF_SERVICE","overridden":"OUT_OF_SERVICE"}]`
	const settle = 30 * time.Second
	for _, tc := range []struct {
		name string
		b    func(since time.Duration) string // what node b shows
		says string                           // "": drained
		took time.Duration
	}{
		{name: "both show it", b: func(time.Duration) string { return out }, took: settle},
		{name: "one does not show it at all", b: func(time.Duration) string { return `[]` }, took: settle},
		{name: "one shows it as DOWN, which an override leaves", b: func(time.Duration) string { return `[{"id":"b","status":"DOWN","overridden":"OUT_OF_SERVICE"}]` }, took: settle},
		{name: "one is late", b: func(since time.Duration) string {
			if since < drainPoll {
				return `[{"id":"b","status":"UP"}]`
			}
			return out
		}, took: settle + drainPoll},
		{name: "one never does", b: func(time.Duration) string { return `[{"id":"b","status":"UP"}]` }, says: "b (b): shows it as UP", took: time.Minute},
		{name: "one cannot be asked", says: "b (b): ", took: time.Minute},
	} {
		inBubble(t, tc.name, func(t *testing.T) {
			ctx := within(t, time.Minute)
			start := time.Now()
			s := servers{"a": aloneNode(func() string { return out }), "b": unreachable}
			if tc.b != nil {
				s["b"] = aloneNode(func() string { return tc.b(time.Since(start)) })
			}
			err := s.client(t, "a").Drain(ctx, registry.NewKey("A", "b"), settle, by)
			if tc.says == "" && err != nil || tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)) {
				t.Errorf("got %v, want %q", err, tc.says)
			}
			expect.Equal(t, time.Since(start), tc.took, "took")
		})
	}
}

// A comparison asks a peer that may be far away for much.
func TestAComparisonMayTakeMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := servers{"a": func(r *http.Request) (*http.Response, error) {
			select {
			case <-time.After(2 * time.Minute): // virtual
				return answered(200, `{"apps":1,"missing":2,"extra":3,"items":[{"app":"A","id":"1","what":"older"}]}`)
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		}}.client(t, "a")
		got, err := c.PeerDiff(t.Context(), "dc2")
		expect.That(t, err == nil && got.Apps == 1 && got.Missing == 2 && got.Extra == 3 && len(got.Items) == 1 && got.Items[0] == (DiffedItem{App: "A", ID: "1", What: "older"}),
			"got %+v, %v", got, err)
	})
}
