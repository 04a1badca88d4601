package client

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

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
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
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
		})
	}
}
