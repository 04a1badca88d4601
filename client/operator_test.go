package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

var by = registry.Act{Author: "anna@bastion", Reason: "kernel update"}

func TestActsSayWhoAndWhyAndForHowLong(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(context.Context, *Client) (string, error)
		want string
	}{
		{name: "override", do: func(ctx context.Context, c *Client) (string, error) {
			return c.Override(ctx, key, registry.OutOfService, by, time.Minute)
		}, want: "PUT /v1/rollcall/apps/ORDERS/orders-1/override?author=anna%40bastion&for=1m0s&reason=kernel+update&value=OUT_OF_SERVICE"},
		{name: "override without end, author and reason", do: func(ctx context.Context, c *Client) (string, error) {
			return c.Override(ctx, key, registry.Up, registry.Act{}, 0)
		}, want: "PUT /v1/rollcall/apps/ORDERS/orders-1/override?value=UP"},
		{name: "end an override", do: func(ctx context.Context, c *Client) (string, error) { return c.EndOverride(ctx, key, by) },
			want: "DELETE /v1/rollcall/apps/ORDERS/orders-1/override?author=anna%40bastion&reason=kernel+update"},
		{name: "quarantine", do: func(ctx context.Context, c *Client) (string, error) { return c.Quarantine(ctx, key, by, time.Hour) },
			want: "PUT /v1/rollcall/apps/ORDERS/orders-1/quarantine?author=anna%40bastion&for=1h0m0s&reason=kernel+update"},
		{name: "end a quarantine", do: func(ctx context.Context, c *Client) (string, error) { return c.EndQuarantine(ctx, key, by) },
			want: "DELETE /v1/rollcall/apps/ORDERS/orders-1/quarantine?author=anna%40bastion&reason=kernel+update"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var sent string
			c := servers{"a": func(r *http.Request) (*http.Response, error) {
				sent = r.Method + " " + r.URL.RequestURI()
				return answered(200, `{"app":"ORDERS","id":"orders-1","index":"e-7"}`)
			}}.client(t, "a")
			index, err := tc.do(t.Context(), c)
			expect.That(t, err == nil && index == "e-7" && sent == tc.want, "sent %q, got %q, %v, want %q and e-7", sent, index, err, tc.want)
			expect.ErrorIs(t, expect.Err(tc.do(t.Context(), servers{"a": always(404, `{"error":"no"}`)}.client(t, "a"))), ErrNotRegistered,
				"of an unknown instance:")
			expect.ErrorIs(t, expect.Err(tc.do(t.Context(), servers{"a": cutOff}.client(t, "a"))), ErrUnknownOutcome, "cut off:")
		})
	}
}

func TestExplainReadsTheWholeDocument(t *testing.T) {
	const document = `{"app":"ORDERS","id":"orders-1","state":"gone","summary":"It is gone.","status":"UP","reported":"UP","registered":1,"lease_seconds":90,"interval_seconds":30,
		"last_renewal":2,"silent_ms":3,"expires_in_ms":-4,"expires_at":5,"expired":true,"clock":"running","override":{"status":"UP","author":"a","reason":"b","since":6,"until":7},
		"quarantine":{"author":"c","reason":"d","since":8,"until":9},"removed":{"at":10,"kind":"evicted"},"self_preservation":{"state":"on","withholds":true,"reason":"few"},
		"history":[{"at":11,"what":"evicted","text":"t","times":2,"author":"e","reason":"f"}]}`
	want := Explanation{
		App: "ORDERS", ID: "orders-1", State: "gone", Summary: "It is gone.",
		Life:             Life{Status: "UP", Reported: "UP", Registered: 1, LeaseSeconds: 90, IntervalSeconds: 30, LastRenewal: 2, SilentMS: 3, ExpiresInMS: -4, ExpiresAt: 5, Expired: true},
		Clock:            "running",
		Override:         &Forced{Status: "UP", Bounded: Bounded{Author: "a", Reason: "b", Since: 6, Until: 7}},
		Quarantine:       &Bounded{Author: "c", Reason: "d", Since: 8, Until: 9},
		Removed:          &Removed{At: 10, Kind: "evicted"},
		SelfPreservation: PreservationEffect{State: "on", Withholds: true, Reason: "few"},
		History:          []HistoryEvent{{At: 11, What: "evicted", Text: "t", Times: 2, Author: "e", Reason: "f"}},
	}
	got, err := servers{"a": always(200, document)}.client(t, "a").Explain(t.Context(), key)
	expect.That(t, err == nil && reflect.DeepEqual(got, want), "got %+v, %v, want %+v", got, err, want)
	expect.ErrorIs(t, expect.Err((servers{"a": always(404, `{"error":"unknown"}`)}).client(t, "a").Explain(t.Context(), key)), ErrNotRegistered,
		"of a stranger:")
}

func TestSelfPreservationReadsTheWholeDocument(t *testing.T) {
	const document = `{"state":"held","reason":"r","since":1,"until":2,"author":"a","note":"n","enabled":true,"threshold":0.85,"population":10,"condition":true,"withheld":3,
		"figures":{"leases":4,"counted":5,"fresh":6,"expired":7},"upstream":{"decides":true,"expected_clients":8,"threshold":9,"renewals_last_minute":10,"renewals_sliding":11,"allows_eviction":true},
		"applications":[{"app":"A","leases":12,"counted":13,"fresh":14,"expired":15,"overdue":[{"id":"i","silent_ms":16,"ends_in_ms":-17}]}],
		"transitions":[{"state":"on","at":18,"author":"b","reason":"s","counted":19,"fresh":20,"expired":21}],"clock":"applied"}`
	want := SelfPreservation{
		State: "held", Reason: "r", Since: 1, Until: 2, Author: "a", Note: "n", Enabled: true, Threshold: 0.85, Population: 10, Condition: true, Withheld: 3,
		Figures:      Figures{Leases: 4, Counted: 5, Fresh: 6, Expired: 7},
		Upstream:     Upstream{Decides: true, ExpectedClients: 8, Threshold: 9, LastMinute: 10, Sliding: 11, AllowsEviction: true},
		Applications: []AppFigures{{App: "A", Figures: Figures{Leases: 12, Counted: 13, Fresh: 14, Expired: 15}, Overdue: []Overdue{{ID: "i", SilentMS: 16, EndsInMS: -17}}}},
		Transitions:  []PreservationStep{{State: "on", At: 18, Author: "b", Reason: "s", Counted: 19, Fresh: 20, Expired: 21}},
		Clock:        "applied",
	}
	got, err := servers{"a": always(200, document)}.client(t, "a").SelfPreservation(t.Context())
	expect.That(t, err == nil && reflect.DeepEqual(got, want), "got %+v, %v, want %+v", got, err, want)
}

func TestSelfPreservationIsReleasedAndHeld(t *testing.T) {
	const released = `{"state":"released"}`
	for _, tc := range []struct {
		name          string
		first, second func(*http.Request) (*http.Response, error)
		says          string // "": done
	}{
		{name: "done", first: always(200, released)},
		{name: "off", first: always(409, `{"error":"self-preservation is off: there is nothing to release"}`), says: "self-preservation: http://a answered 409 Conflict: self-preservation is off"},
		{name: "no leader there, done elsewhere", first: always(503, ""), second: always(200, released)},
		{name: "cut off, done already elsewhere", first: cutOff, second: func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodGet {
				return answered(200, released)
			}
			return answered(409, "")
		}},
		{name: "cut off, nobody elsewhere", first: cutOff, second: unreachable, says: ErrUnknownOutcome.Error()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for act, do := range map[string]func(*Client) (SelfPreservation, error){
				"release": func(c *Client) (SelfPreservation, error) { return c.ReleaseSelfPreservation(t.Context(), by) },
				"hold":    func(c *Client) (SelfPreservation, error) { return c.HoldSelfPreservation(t.Context(), by, time.Minute) },
			} {
				got, err := do(servers{"a": tc.first, "b": tc.second}.client(t, "a", "b"))
				if tc.says == "" && (err != nil || got.State != "released") || tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)) {
					t.Errorf("%s: got %q, %v, want %q", act, got.State, err, tc.says)
				}
			}
		})
	}
}

func TestQuarantinedAreThoseThatNoOtherListShows(t *testing.T) {
	var sent string
	c := servers{"a": func(r *http.Request) (*http.Response, error) {
		sent = r.URL.RequestURI()
		return answered(200, `[{"app":"A","id":"1","status":"UP"},{"app":"A","id":"2","status":"UP","host":"h","ip":"i","last_renewal":3,"quarantined_until":4}]`)
	}}.client(t, "a")
	got, err := c.Quarantined(t.Context(), "A")
	want := []Instance{{App: "A", ID: "2", Status: "UP", Host: "h", IP: "i", LastRenewal: 3, QuarantinedUntil: 4}}
	expect.That(t, err == nil && reflect.DeepEqual(got, want), "got %+v, %v, want %+v", got, err, want)
	expect.Equal(t, sent, "/v1/rollcall/apps?app=A&quarantined=true", "asked for")
}

func TestSettingsKeepTheirSpelling(t *testing.T) {
	got, err := servers{"a": always(200, `{"a":true,"b":0.85,"c":1000000,"d":"1h0m0s"}`)}.client(t, "a").Settings(t.Context())
	want := (Settings{"a": "true", "b": "0.85", "c": "1000000", "d": "1h0m0s"})
	expect.That(t, err == nil && reflect.DeepEqual(got, want), "got %v, %v, want %v", got, err, want)
}

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
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				start := time.Now()
				err := servers{"a": tc.server}.client(t, "a").Drain(ctx, key, settle, by)
				if tc.says == "" && err != nil || tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)) {
					t.Errorf("got %v, want %q", err, tc.says)
				}
				expect.Equal(t, time.Since(start), tc.took, "took")
			})
		})
	}
}

func TestADrainThatIsCutShortSaysHowFarItCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
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
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := c.Drain(ctx, key, 0, by)
		expect.That(t, err != nil && strings.Contains(err.Error(), "n2 (b) is at e-9"), "got %v, want n2 in it", err)
	})
}
