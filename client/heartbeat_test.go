package client

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/client/internal/fake"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

// former is what a process left behind that had the same id.
func former(status registry.Status, dirty time.Time) *registry.Instance {
	i := orders1()
	i.Status, i.LastDirty, i.Metadata = status, dirty.UnixMilli(), nil
	return i
}

func TestRegistrationReplacesWhatAFormerProcessLeftBehind(t *testing.T) {
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
		registered(t, row.name, func(t *testing.T, s *registrar) {
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

func TestRegistrationRepeatsAFailedLookupAfterTheNextHeartbeat(t *testing.T) {
	for name, blind := range map[string]func(*http.Request) (*http.Response, error){
		"no response":        fake.Unreachable,
		"nonsense":           fake.Always(200, "{"),
		"a server that lags": fake.Always(200, `{"instance":{"app":"ORDERS","status":"UP","lastDirtyTimestamp":"1"}}`),
	} {
		registered(t, name, func(t *testing.T, s *registrar) {
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

func TestRegistrationIsLookedUpOnce(t *testing.T) {
	for name, response := range map[string]func(*http.Request) (*http.Response, error){
		"as it was sent":               nil,
		"hidden":                       fake.Always(404, ""),
		"a document without timestamp": fake.Always(200, `{"instance":{"app":"ORDERS","status":"UP"}}`),
		"forced by an operator":        fake.Always(200, `{"instance":{"app":"ORDERS","status":"OUT_OF_SERVICE","overriddenStatus":"OUT_OF_SERVICE"}}`),
	} {
		fake.InBubble(t, name, func(t *testing.T) {
			s, looks := newRegistrar(), 0
			s.does(http.MethodGet, func(r *http.Request) (*http.Response, error) {
				looks++
				if response != nil {
					return response(r)
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

func TestHeartbeatThatFailsIsTriedAgainSoonerAndSlowerEachTime(t *testing.T) {
	for _, row := range []struct {
		interval time.Duration
		failures int
		longest  time.Duration
	}{
		{30 * time.Second, 1, 3 * time.Second},
		{30 * time.Second, 2, 6 * time.Second},
		{30 * time.Second, 3, 12 * time.Second},
		{30 * time.Second, 4, 15 * time.Second},
		{30 * time.Second, 1 << 40, 15 * time.Second},
		{time.Second, 1, 100 * time.Millisecond},
		{time.Hour, 5, 30 * time.Minute},
	} {
		least, most := row.interval, time.Duration(0)
		for range 1000 {
			pause := beatPause(row.interval, row.failures)
			least, most = min(least, pause), max(most, pause)
		}
		expect.That(t, least >= row.longest/2 && most < row.longest && most-least >= row.longest/4,
			"interval %v, failure %d: %v to %v, want them spread from %v to %v", row.interval, row.failures, least, most, row.longest/2, row.longest)
	}
}

func TestHeartbeatsKeepALeaseThroughAnOutage(t *testing.T) {
	for range 20 { // of the back-off's jitter
		registered(t, "", func(t *testing.T, s *registrar) {
			r := s.register(t)
			time.Sleep(9 * time.Second)
			s.fails(503)
			time.Sleep(13 * time.Second)
			s.fails(0)
			time.Sleep(7900 * time.Millisecond) // just before the lease of 30 s from the registration ends
			at := r.LastHeartbeat().Sub(s.start)
			expect.That(t, at >= 22*time.Second, "the last heartbeat that was taken is of %v, want one after the outage", at)
			tries := s.seen("PUT")
			expect.That(t, len(tries) >= 6 && len(tries) <= 9, "%d heartbeats, want 6 to 9: %v", len(tries), tries)
		})
	}
}

func TestHeartbeatsGoOnAtTheirIntervalAfterAnOutage(t *testing.T) {
	registered(t, "", func(t *testing.T, s *registrar) {
		r := s.register(t)
		time.Sleep(15 * time.Second)
		s.fails(503)
		time.Sleep(30 * time.Second)
		s.fails(0)
		time.Sleep(10 * time.Second)
		s.seen("")
		back := r.LastHeartbeat()
		time.Sleep(time.Until(back.Add(20 * time.Second)))
		s.wantVisits(t, back.Add(10*time.Second).Sub(s.start).String()+" PUT", back.Add(20*time.Second).Sub(s.start).String()+" PUT")
	})
}

// The cluster renews what it has an older state of, so renewals go on although it refuses the newer one.
func TestHeartbeatsRenewALeaseWhileItsNewStateIsRefused(t *testing.T) {
	registered(t, "", func(t *testing.T, s *registrar) {
		r := s.register(t)
		time.Sleep(5 * time.Second)
		s.does(http.MethodPost, fake.Always(413, ""))
		r.SetMetadata(pair("a", strings.Repeat("x", 100)))
		time.Sleep(5 * time.Second)
		s.wantVisits(t, "0s POST UP", "5s POST UP", "10s PUT", "10s POST UP")
		time.Sleep(time.Minute)
		n := len(s.seen("PUT"))
		expect.That(t, n >= 6, "%d renewals in a minute, want 6 at least", n)
	})
}

func TestHeartbeatsAreCountedByOutcome(t *testing.T) {
	registered(t, "", func(t *testing.T, s *registrar) {
		r := s.register(t)
		time.Sleep(15 * time.Second)
		s.loseLeases()
		time.Sleep(10 * time.Second)
		s.fails(503)
		time.Sleep(5500 * time.Millisecond)
		wantCount(t, r.client.metrics.heartbeats.WithLabelValues("ok"), 1)
		wantCount(t, r.client.metrics.heartbeats.WithLabelValues("not_found"), 1)
		wantCount(t, r.client.metrics.heartbeats.WithLabelValues("failed"), 1)
		wantCount(t, r.client.metrics.registrations.WithLabelValues("first", "ok"), 1)
		wantCount(t, r.client.metrics.registrations.WithLabelValues("not_found", "ok"), 1)
	})
}

// slowly does with a request what the server does, and brings the response after a time.
func (s *registrar) slowly(d time.Duration) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		resp, err := s.serve(r, nil)
		time.Sleep(d)
		return resp, err
	}
}

func TestRegistrationThatOvertakesTheResponseToAHeartbeatIsNotRepeated(t *testing.T) {
	registered(t, "", func(t *testing.T, s *registrar) {
		s.does(http.MethodPut, s.slowly(3*time.Second))
		r := s.register(t)
		time.Sleep(5 * time.Second)
		s.loseLeases()
		time.Sleep(6 * time.Second) // the heartbeat of 10 s is on its way back with a 404
		r.SetMetadata(pair("v", "1"))
		time.Sleep(4 * time.Second)
		s.wantVisits(t, "0s POST UP", "10s PUT", "11s POST UP")
	})
}

func TestHeartbeatsResponseThatIsOldSetsNoTimeBack(t *testing.T) {
	registered(t, "", func(t *testing.T, s *registrar) {
		s.does(http.MethodPut, s.slowly(3*time.Second))
		r := s.register(t)
		time.Sleep(11 * time.Second)
		r.SetMetadata(pair("v", "1"))
		time.Sleep(4 * time.Second)
		expect.Equal(t, r.LastHeartbeat().Sub(s.start), 11*time.Second, "the last heartbeat, when the change was registered, is said to be of")
	})
}
