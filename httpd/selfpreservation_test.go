package httpd_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/fsm/registry/registrytest"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/internal/setting"
)

// preservationDocument has the fields that the tests compare in the document of self-preservation.
type preservationDocument struct {
	State, Reason, Author, Note, Clock string
	Since, Until                       int64
	Enabled, Condition                 bool
	Threshold                          float64
	Population, Withheld               int
	Figures                            struct{ Leases, Counted, Fresh, Expired int }
	Upstream                           map[string]any
	Applications                       []struct {
		App                             string
		Leases, Counted, Fresh, Expired int
		Overdue                         []struct {
			ID     string
			Silent int64 `json:"silent_ms"`
			Ends   int64 `json:"ends_in_ms"`
		}
	}
	Transitions []struct {
		State, Author, Reason   string
		At                      int64
		Counted, Fresh, Expired int
	}
}

// preservation sends a request under /v1/rollcall/self-preservation, and returns the document that must come back.
func (n *bubbled) preservation(t *testing.T, method, path string) preservationDocument {
	t.Helper()
	got := need.Got(n.roundTrip(t, request(method, "/v1/rollcall/self-preservation"+path, "")))(t)
	var p preservationDocument
	err := json.Unmarshal([]byte(got.body), &p)
	need.That(t, err == nil && got.status == http.StatusOK, "%s %s: %d %s, %v", method, path, got.status, got.body, err)
	return p
}

func TestSelfPreservationExplainsItself(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newBubbled(t, httpd.Config{})
		midnight := time.Now().UnixMilli()
		p := n.preservation(t, "GET", "")
		expect.That(t, p.State == "off" && p.Since == 0 && p.Until == 0 && p.Enabled && p.Threshold == 0.85 && p.Population == 10 && !p.Condition && p.Applications != nil && p.Transitions != nil && p.Clock == "running",
			"at first: %+v", p)
		n.fleet(t, 20, 8, 2*time.Minute)
		p = n.preservation(t, "GET", "")
		expect.That(t, p.State == "on" && p.Since == midnight+70_000 && p.Until == midnight+70_000+3_600_000 && p.Condition && p.Withheld == 12 && p.Author == "",
			"on: %+v", p)
		f := p.Figures
		expect.That(t, f.Leases == 20 && f.Counted == 20 && f.Fresh == 8 && f.Expired == 12, "figures: %+v", f)
		need.That(t, len(p.Applications) == 1 && p.Applications[0].App == "FLEET" && p.Applications[0].Expired == 12 && len(p.Applications[0].Overdue) == 12,
			"applications: %+v", p.Applications)
		o := p.Applications[0].Overdue[0]
		expect.That(t, o.ID != "" && o.Silent == 120_000 && o.Ends == -30_000, "overdue: %+v", o)
		expect.That(t, len(p.Transitions) == 1 && p.Transitions[0].State == "on" && p.Transitions[0].At == midnight+70_000 && p.Transitions[0].Fresh == 8 && p.Transitions[0].Counted == 20,
			"transitions: %+v", p.Transitions)
		for _, key := range []string{"decides", "expected_clients", "threshold", "renewals_last_minute", "renewals_sliding", "allows_eviction"} {
			_, ok := p.Upstream[key]
			expect.That(t, ok, "upstream lacks %s: %v", key, p.Upstream)
		}
		for _, says := range []string{"is on since 2000-01-01 00:01:10 UTC", "8 of 20 leases", "until 2000-01-01 01:01:10 UTC", "12 leases have ended", "/release"} {
			expect.That(t, strings.Contains(p.Reason, says), "the reason lacks %q: %s", says, p.Reason)
		}
	})
}

func TestSelfPreservationIsReleasedAndHeldByOperators(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newBubbled(t, httpd.Config{})
		n.fleet(t, 20, 8, 2*time.Minute)
		now := time.Now().UnixMilli()
		p := n.preservation(t, "POST", "/release?author=ops&reason=they+are+gone")
		expect.That(t, p.State == "released" && p.Author == "ops" && p.Note == "they are gone" && p.Since == now && p.Withheld == 0 && len(p.Transitions) == 2 && p.Transitions[0].Author == "ops" && p.Transitions[0].Expired == 12,
			"released: %+v", p)
		want := "Released by ops at 2000-01-01 00:02:00 UTC (they are gone). Evictions go on although 8 of 20 leases"
		expect.That(t, strings.HasPrefix(p.Reason, want), "released: %s", p.Reason)
		p = n.preservation(t, "POST", "/hold?for=30m&author=ops&reason=wait")
		expect.That(t, p.State == "held" && p.Until == now+1_800_000 && p.Withheld == 12 && p.Note == "wait", "held: %+v", p)
		expect.That(t, strings.HasPrefix(p.Reason, "Held by ops at 2000-01-01 00:02:00 UTC (wait). Evictions are withheld until 2000-01-01 00:32:00 UTC: 12 leases have ended."), "held: %s", p.Reason)
		if p := n.preservation(t, "POST", "/hold?for=168h"); p.Author == "" || p.Until != now+7*24*3_600_000 {
			t.Errorf("a hold replaces another, and has an author in any case: %+v", p)
		}
		for range 100 { // without the hold each round would evict its share
			n.Lead()
		}
		got := n.Newest().Len()
		expect.That(t, got == 20, "%d leases are left under a hold", got)
	})
}

func TestSelfPreservationThatIsOffCannotBeReleased(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newBubbled(t, httpd.Config{})
		refused := func(says string) {
			t.Helper()
			got, err := n.roundTrip(t, request("POST", "/v1/rollcall/self-preservation/release", ""))
			expect.That(t, err == nil && got.status == http.StatusConflict && strings.Contains(got.body, says),
				"got %d %s, %v, want 409 and %q", got.status, got.body, err, says)
		}
		refused(`{"error":"self-preservation is off: there is nothing to release"}`)
		n.fleet(t, 20, 8, 2*time.Minute)
		n.preservation(t, "POST", "/release")
		refused("self-preservation is released since 2000-01-01 00:02:00 UTC: there is nothing to release")
	})
}

func TestSelfPreservationThatIsSwitchedOffSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newBubbled(t, httpd.Config{})
		n.Set(func(m *registrytest.Memory) {
			s := registry.DefaultSettings()
			s.SelfPreservation = false
			m.Registry.Configure(s)
		})
		p := n.preservation(t, "GET", "")
		expect.That(t, !p.Enabled && strings.HasPrefix(p.Reason, "Self-preservation is switched off; 0 of 0 leases"), "got %+v", p)
	})
}

func TestSettingsAreShownByTheirKeys(t *testing.T) {
	n := newNode(t, httpd.Config{}, nil)
	n.Set(func(m *registrytest.Memory) {
		s := registry.DefaultSettings()
		s.OnCut = "dc2=expire"
		m.Registry.Configure(s)
	})
	got := n.send(t, request("GET", "/v1/rollcall/settings", "")).body
	for _, want := range []string{`"self-preservation.enabled":true`, `"self-preservation.renewal-percent-threshold":0.85`, `"self-preservation.min-instances":10`,
		`"self-preservation.max-duration":"1h0m0s"`, `"eureka-compat.expected-client-renewal-interval":"30s"`, `"replication.on-cut":"dc2=expire"`} {
		expect.That(t, strings.Contains(got, want), "got %s, want %s in it", got, want)
	}
	for _, row := range setting.Of(new(registry.Settings)) {
		expect.That(t, strings.Contains(got, fmt.Sprintf("%q:", row.Key)), "got %s, without %s", got, row.Key)
	}
}
