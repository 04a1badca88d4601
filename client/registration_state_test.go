package client

import (
	"net/http"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

// former is what a process left behind that had the same id.
func former(status registry.Status, dirty time.Time) *registry.Instance {
	i := orders1()
	i.Status, i.LastDirty, i.Metadata = status, dirty.UnixMilli(), nil
	return i
}

func TestWhatAFormerProcessLeftBehindIsOvercome(t *testing.T) {
	const up, out = registry.Up, registry.OutOfService
	for _, row := range []struct {
		name    string
		left    registry.Status
		newer   time.Duration // than the new process
		reports registry.Status
		want    []string
	}{
		{"a drained instance", out, -time.Minute, up, []string{"0s POST UP", "0s POST STARTING", "0s POST UP", "10s PUT"}},
		{"one that was up", up, -time.Minute, up, []string{"0s POST UP", "10s PUT"}},
		{"one that was up, of one that is not yet", up, -time.Minute, out, []string{"0s POST OUT_OF_SERVICE", "0s POST STARTING", "0s POST OUT_OF_SERVICE", "10s PUT"}},
		{"one that was down", registry.Down, -time.Minute, up, []string{"0s POST UP", "10s PUT"}},
		{"a newer one, before the clock was set back", up, time.Hour, up, []string{"0s POST UP", "0s POST UP", "10s PUT"}},
		{"a newer one that was drained", out, time.Hour, up, []string{"0s POST UP", "0s POST STARTING", "0s POST UP", "10s PUT"}},
	} {
		inBubble(t, row.name, func(t *testing.T) {
			s := newRegistrar()
			s.stored = former(row.left, time.Now().Add(row.newer))
			s.register(t, func(c *RegistrationConfig) { c.Instance.Status = row.reports })
			time.Sleep(15 * time.Second)
			s.wantVisits(t, row.want...)
			i := s.keeps()
			expect.That(t, i.Status == row.reports && i.Meta("zone") == "a",
				"the server has %v %v, want %v and the metadata of the new process", i.Status, i.Metadata, row.reports)
		})
	}
}

func TestALookThatFailsIsRepeatedAfterTheNextHeartbeat(t *testing.T) {
	for name, blind := range map[string]func(*http.Request) (*http.Response, error){
		"no answer":          unreachable,
		"nonsense":           always(200, "{"),
		"a server that lags": always(200, `{"instance":{"app":"ORDERS","status":"UP","lastDirtyTimestamp":"1"}}`),
	} {
		inBubble(t, name, func(t *testing.T) {
			s := newRegistrar()
			s.stored = former(registry.OutOfService, time.Now())
			s.does(http.MethodGet, blind)
			s.register(t)
			time.Sleep(15 * time.Second)
			s.wantVisits(t, "0s POST UP", "10s PUT")
			s.does(http.MethodGet, nil)
			time.Sleep(10 * time.Second)
			s.wantVisits(t, "20s PUT", "20s POST STARTING", "20s POST UP")
		})
	}
}

func TestTheClusterIsLookedAtOnce(t *testing.T) {
	for name, answer := range map[string]func(*http.Request) (*http.Response, error){
		"as it was told":               nil,
		"hidden":                       always(404, ""),
		"a document without timestamp": always(200, `{"instance":{"app":"ORDERS","status":"UP"}}`),
		"forced by an operator":        always(200, `{"instance":{"app":"ORDERS","status":"OUT_OF_SERVICE","overriddenStatus":"OUT_OF_SERVICE"}}`),
	} {
		inBubble(t, name, func(t *testing.T) {
			s, looks := newRegistrar(), 0
			s.does(http.MethodGet, func(r *http.Request) (*http.Response, error) {
				looks++
				if answer != nil {
					return answer(r)
				}
				return s.serve(r, nil)
			})
			s.register(t)
			time.Sleep(time.Minute)
			s.wantVisits(t, "0s POST UP", "10s PUT", "20s PUT", "30s PUT", "40s PUT", "50s PUT", "1m0s PUT")
			expect.That(t, looks == 1, "looked %d times, want once", looks)
		})
	}
}
