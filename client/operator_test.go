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
	"github.com/seed-20419f34/rollcall/internal/need"
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
		inBubble(t, tc.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
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

func TestAListSaysWhoseTheInstancesAre(t *testing.T) {
	j := newJournal()
	c := servers{"a": j.around(always(200, `[{"app":"ORDERS","id":"o1","status":"UP","overridden":"UP","host":"h","ip":"10.0.0.1","port":80,"secure_port":443,"vip":"v",
		"lease_seconds":90,"interval_seconds":30,"last_renewal":2000,"registered":1000,"datacenter":"dc2","unheard_ms":41000,"metadata":{"zone":"a"}},{"app":"ORDERS","id":"o2"}]`))}.client(t, "a")
	got, err := c.List(t.Context(), "orders")
	need.That(t, err == nil && len(got) == 2 && got[1].Datacenter == "", "got %+v, %v", got, err)
	want := Instance{App: "ORDERS", ID: "o1", Status: "UP", Overridden: "UP", Host: "h", IP: "10.0.0.1", Port: 80, SecurePort: 443, VIP: "v",
		Lease: 90, Interval: 30, LastRenewal: 2000, Registered: 1000, Owner: Owner{Datacenter: "dc2", UnheardMS: 41000}, Metadata: map[string]string{"zone": "a"}}
	expect.That(t, fmt.Sprint(got[0]) == fmt.Sprint(want), "got %+v, want %+v", got[0], want)
	if want := "GET /v1/rollcall/apps"; j.String() != want {
		t.Errorf("sent %s, want %s", j, want)
	}
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
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
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

func TestRemoveMemberSaysWhatBecameOfTheNode(t *testing.T) {
	unknown := always(504, `{"error":"nobody knows"}`, "X-Rollcall-Outcome", "unknown")
	for _, tc := range []struct {
		name          string
		first, second func(*http.Request) (*http.Response, error)
		want          error  // nil: removed, unless says is set
		says          string // in the text of the error
	}{
		{name: "removed", first: always(200, `{"removed":"n1"}`), second: cutOff},
		{name: "no such node", first: always(404, `{"error":"no"}`), second: cutOff, want: ErrUnknownMember, says: `remove node "n1"`},
		{name: "no leader there, removed elsewhere", first: always(503, ""), second: always(200, "")},
		{name: "refused everywhere", first: always(503, `{"error":"only n3 would be left"}`), second: always(503, ""), says: "503 Service Unavailable: only n3 would be left"},
		{name: "not offered", first: always(501, `{"error":"ask a node in mode cp"}`), second: always(200, ""), says: "501 Not Implemented: ask a node in mode cp"},
		{name: "the server does not know", first: unknown, second: always(200, ""), want: ErrUnknownOutcome},
		{name: "cut off, gone elsewhere", first: cutOff, second: always(404, `{"error":"no such node"}`)},
		{name: "cut off, nobody elsewhere", first: cutOff, second: unreachable, want: ErrUnknownOutcome},
		{name: "nobody there, no such node elsewhere", first: unreachable, second: always(404, `{"error":"no such node"}`), want: ErrUnknownMember},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := servers{"a": tc.first, "b": tc.second}.client(t, "a", "b").RemoveMember(t.Context(), "n1")
			failed := tc.want != nil || tc.says != ""
			need.That(t, (err != nil) == failed, "got %v, want an error: %t", err, failed)
			if tc.want != nil && !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
			if err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want %q in it", err, tc.says)
			}
		})
	}
}

func TestRemoveMemberNamesTheNodeInThePath(t *testing.T) {
	j := newJournal()
	need.OK(t, (servers{"a": j.around(always(200, ""))}).client(t, "a").RemoveMember(t.Context(), "n/1"))
	want := "DELETE /v1/rollcall/members/n%2F1"
	expect.That(t, j.String() == want, "sent %q, want %q", j, want)
}

func TestPeersAreReadAsTheServerTellsThem(t *testing.T) {
	c := servers{"a": always(200, `{"datacenter":"dc1","node":"n1","sender":"n2","peers":[{"name":"dc2","kind":"datacenter","urls":["http://b:1"],"url":"http://b:1",
		"state":"failing","reason":"refused","cursor":"e-7","lag_changes":3,"lag_ms":1500,"pending":2,"in_flight":1,"last_success":1000,"last_error":{"at":2000,"text":"refused"},
		"sent":{"register":5},"dropped":{"expired":1},"repairs":{"digest":2},"last_repair":{"at":3000,"reason":"digest","sent":4,"removed":1},
		"incoming":{"instances":9,"heard_ms":41000,"cut":true,"on_cut":"keep","kept":2}}],
		"receiver":"n1","senders":[{"sender":"s","datacenter":"dc2","heard_ms":5,"late_ms":6,"late":7,"refused":8}]}`)}.client(t, "a")
	got, err := c.Peers(t.Context())
	need.That(t, err == nil && got.Datacenter == "dc1" && got.Node == "n1" && got.Sender == "n2" && len(got.Peers) == 1, "got %+v, %v", got, err)
	expect.That(t, got.Receiver == "n1" && len(got.Senders) == 1 && got.Senders[0] == (PeerSender{Sender: "s", Datacenter: "dc2", HeardMS: 5, LateMS: 6, Late: 7, Refused: 8}),
		"got %+v", got)
	p := got.Peers[0]
	if p.Name != "dc2" || p.Kind != "datacenter" || len(p.URLs) != 1 || p.URL != "http://b:1" || p.State != "failing" || p.Reason != "refused" || p.Cursor != "e-7" ||
		p.LagChanges != 3 || p.LagMS != 1500 || p.Pending != 2 || p.InFlight != 1 || p.LastSuccess != 1000 || *p.LastError != (PeerError{At: 2000, Text: "refused"}) ||
		p.Sent["register"] != 5 || p.Dropped["expired"] != 1 || p.Repairs["digest"] != 2 || *p.LastRepair != (PeerRepair{At: 3000, Reason: "digest", Sent: 4, Removed: 1}) {
		t.Errorf("got %+v", p)
	}
	in := p.Incoming
	expect.That(t, in.Instances == 9 && *in.HeardMS == 41000 && in.Cut && in.OnCut == "keep" && in.Kept == 2, "got %+v", in)
}

func TestAnUnknownSenderIsNoUnknownPeer(t *testing.T) {
	err := servers{"a": always(404, `{"error":"no such sender"}`)}.client(t, "a").ForgetSender(t.Context(), "s", by)
	expect.That(t, errors.Is(err, ErrUnknownSender) && !errors.Is(err, ErrUnknownPeer) && strings.Contains(err.Error(), `"s"`),
		"got %v, want ErrUnknownSender and the name", err)
	j := newJournal()
	if err := (servers{"a": j.around(always(204, ""))}).client(t, "a").ForgetSender(t.Context(), "a:1/b", by); err != nil || j.String() != "POST /v1/rollcall/peers/a:1%2Fb/forget" {
		t.Errorf("sent %s, got %v", j, err)
	}
}

// actsOnPeers are the calls about one peer, and what they send.
var actsOnPeers = map[string]func(ctx context.Context, c *Client) error{
	"GET /v1/rollcall/peers/a:1%2Fb/diff":    func(ctx context.Context, c *Client) error { _, err := c.PeerDiff(ctx, "a:1/b"); return err },
	"POST /v1/rollcall/peers/a:1%2Fb/repair": func(ctx context.Context, c *Client) error { _, err := c.RepairPeer(ctx, "a:1/b"); return err },
	"POST /v1/rollcall/peers/a:1%2Fb/pause":  func(ctx context.Context, c *Client) error { return c.PausePeer(ctx, "a:1/b", by) },
	"POST /v1/rollcall/peers/a:1%2Fb/resume": func(ctx context.Context, c *Client) error { return c.ResumePeer(ctx, "a:1/b", by) },
}

func TestActsOnPeersNameThePeerInThePathAndSayWhatBecameOfThem(t *testing.T) {
	for _, tc := range []struct {
		name          string
		first, second func(*http.Request) (*http.Response, error)
		want          error  // nil: done, unless says is set
		says          string // in the text of the error
	}{
		{name: "done", first: always(200, `{"apps":1}`), second: cutOff},
		{name: "no such peer", first: always(404, `{"error":"no"}`), second: cutOff, want: ErrUnknownPeer, says: `peer "a:1/b"`},
		{name: "not there, elsewhere", first: always(503, ""), second: always(200, "{}")},
		{name: "a Eureka server", first: always(409, `{"error":"not offered"}`), second: cutOff, says: "409 Conflict: not offered"},
		{name: "no peers", first: always(501, `{"error":"nothing"}`), second: cutOff, says: "501 Not Implemented: nothing"},
		{name: "nobody", first: unreachable, second: unreachable, says: "refused"},
	} {
		for request, act := range actsOnPeers {
			j := newJournal()
			err := act(t.Context(), servers{"a": j.around(tc.first), "b": tc.second}.client(t, "a", "b"))
			if failed := tc.want != nil || tc.says != ""; (err != nil) != failed {
				t.Errorf("%s, %s: got %v, want an error: %t", tc.name, request, err, failed)
				continue
			}
			if tc.want != nil && !errors.Is(err, tc.want) || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%s, %s: got %v, want %v and %q in it", tc.name, request, err, tc.want, tc.says)
			}
			expect.That(t, j.String() == request, "%s: sent %s, want %s", tc.name, j, request)
		}
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
