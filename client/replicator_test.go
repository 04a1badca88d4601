package client

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
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

func pair(key, value string) registry.Pair { return registry.Pair{Key: key, Value: value} }

func wantCount(t *testing.T, c prometheus.Collector, want float64) {
	t.Helper()
	expect.Equal(t, testutil.ToFloat64(c), want, "counted")
}

// says is a health callback that returns what status holds, and counts how often it was asked.
type says struct {
	status atomic.Int32
	asked  []time.Duration
	start  time.Time
}

func newSays(s registry.Status) *says {
	h := &says{start: time.Now()}
	h.status.Store(int32(s))
	return h
}

func (h *says) health(context.Context, registry.Status) registry.Status {
	h.asked = append(h.asked, time.Since(h.start))
	return registry.Status(h.status.Load())
}

func TestReplicatorChecksAfter40sAndThenEvery30s(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := newRegistrar(), newSays(registry.Up)
		s.register(t, sleeping, func(c *RegistrationConfig) { c.Health = h.health })
		time.Sleep(35 * time.Second)
		h.status.Store(int32(registry.Down))
		time.Sleep(40 * time.Second)
		h.status.Store(int32(registry.Up))
		time.Sleep(60 * time.Second)
		s.wantVisits(t, "0s POST UP", "40s POST DOWN", "1m40s POST UP")
		expect.Slice(t, h.asked, []time.Duration{40 * time.Second, 70 * time.Second, 100 * time.Second, 130 * time.Second}, "Health was asked at")
	})
}

func TestReplicatorRegistersChangesAtOnceWhileThereAreTokensAndThenTogether(t *testing.T) {
	registered(t, "", func(t *testing.T, s *registrar) {
		r := s.register(t, sleeping, func(c *RegistrationConfig) { c.ReplicationDelay = time.Hour })
		synctest.Wait()
		change := func(value string, atOnce bool) {
			t.Helper()
			expect.Equal(t, r.SetMetadata(pair("v", value)), atOnce, "%s: registered at once:", value)
			synctest.Wait()
		}
		change("1", true)
		change("2", true) // the burst; at 4 a minute a token is back after 15 s
		change("3", false)
		change("3", false) // no change, but it still waits
		time.Sleep(5 * time.Second)
		change("4", false)
		expect.That(t, !r.DeleteMetadata("zone"), "a third change that waits is said to be registered at once")
		expect.Equal(t, s.keeps().Meta("v"), "2", "the server has")
		time.Sleep(10 * time.Second)
		s.wantVisits(t, "0s POST UP", "0s POST UP", "0s POST UP", "15s POST UP")
		i := s.keeps()
		expect.That(t, i.Meta("v") == "4" && i.Meta("zone") == "", "the server has %v, want all that changed", i.Metadata)
		change("5", false)
		time.Sleep(20 * time.Second)
		s.wantVisits(t, "30s POST UP")
		wantCount(t, r.client.metrics.limited, 4)
	})
}

func TestReplicatorPutsTheNextCheckOffAfterAnUpdateOnDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := newRegistrar(), newSays(registry.Up)
		r := s.register(t, sleeping, func(c *RegistrationConfig) { c.Health = h.health })
		time.Sleep(39 * time.Second)
		r.SetMetadata(pair("v", "1"))
		time.Sleep(61 * time.Second)
		synctest.Wait()
		expect.Slice(t, h.asked, []time.Duration{69 * time.Second, 99 * time.Second}, "Health is for checks only, the first one 30 s after the update: asked at")
		s.wantVisits(t, "0s POST UP", "39s POST UP")
	})
}

func TestHeartbeatRegistersTheChangeThatWaitsForAToken(t *testing.T) {
	registered(t, "", func(t *testing.T, s *registrar) {
		r := s.register(t)
		time.Sleep(5 * time.Second)
		for _, v := range []string{"1", "2", "3"} {
			r.SetMetadata(pair("v", v))
			synctest.Wait()
		}
		time.Sleep(10 * time.Second)
		expect.Equal(t, s.keeps().Meta("v"), "3", "the server has v=")
		time.Sleep(10 * time.Second) // a token comes at 20 s, and nothing is left to register
		s.wantVisits(t, "0s POST UP", "5s POST UP", "5s POST UP", "10s PUT", "10s POST UP", "20s PUT")
		expect.That(t, r.SetMetadata(pair("v", "4")), "the token was taken for nothing")
	})
}

func TestSetStatusToTheCurrentOneChangesNothing(t *testing.T) {
	registered(t, "", func(t *testing.T, s *registrar) {
		r := s.register(t, sleeping)
		time.Sleep(time.Second)
		before := r.Instance()
		expect.That(t, r.SetStatus(registry.Up) && r.SetMetadata(pair("zone", "a")) && r.DeleteMetadata("rack") && r.SetMetadata(),
			"something is said not to be registered at once")
		time.Sleep(time.Minute)
		s.wantVisits(t, "0s POST UP")
		expect.That(t, r.Instance() == before, "there is another state of the instance")
	})
}

func TestReplicatorRegistersAChangeWithATokenAtOnceWhateverFollows(t *testing.T) {
	s := newRegistrationState(orders1())
	s.requestUpdate(true)
	s.requestUpdate(false)
	demanded, waiting := s.request()
	expect.That(t, demanded && waiting, "demanded: %v, waiting: %v, want both", demanded, waiting)
}

func TestReplicationIntervalLongerThanTheBurstInMinutesStillLimits(t *testing.T) {
	for _, row := range []struct {
		interval time.Duration
		burst    int
		want     int64 // per minute
	}{
		{30 * time.Second, 2, 4}, {7 * time.Second, 2, 17}, {9 * time.Second, 3, 20}, {90 * time.Second, 2, 1}, {time.Hour, 2, 1}, {time.Second, 1, 60},
	} {
		expect.Equal(t, (RegistrationConfig{ReplicationInterval: row.interval, ReplicationBurst: row.burst}).rate(), row.want,
			"burst %d in %v: a minute", row.burst, row.interval)
	}
}

func TestReplicatorRepairsAFailedUpdateAtTheNextCheckWhileHeartbeatsAreBlocked(t *testing.T) {
	registered(t, "", func(t *testing.T, s *registrar) {
		s.does(http.MethodPut, fake.Silent)
		r := s.register(t)
		time.Sleep(5 * time.Second)
		s.does(http.MethodPost, fake.Always(503, ""))
		r.SetMetadata(pair("v", "1"))
		synctest.Wait()
		s.does(http.MethodPost, nil)
		time.Sleep(29 * time.Second)
		need.Equal(t, s.keeps().Meta("v"), "", "the test cannot see what repairs it: before the check the server has v=")
		time.Sleep(time.Second)
		synctest.Wait()
		expect.Equal(t, s.keeps().Meta("v"), "1", "after the check the server has v=")
		wantCount(t, r.client.metrics.registrations.WithLabelValues("changed", "ok"), 1)
	})
}

func TestHeartbeatRepairsAFailedUpdateWhileTheReplicatorIsBlocked(t *testing.T) {
	registered(t, "", func(t *testing.T, s *registrar) {
		r := s.register(t, func(c *RegistrationConfig) { c.ReplicationDelay, c.ReplicationInterval = time.Hour, time.Hour })
		time.Sleep(5 * time.Second)
		s.does(http.MethodPost, fake.Always(503, ""))
		r.SetMetadata(pair("v", "1"))
		synctest.Wait()
		s.does(http.MethodPost, nil)
		time.Sleep(20 * time.Second)
		s.wantVisits(t, "0s POST UP", "5s POST UP", "10s PUT", "10s POST UP", "20s PUT")
		expect.Equal(t, s.keeps().Meta("v"), "1", "the server has v=")
		wantCount(t, r.client.metrics.registrations.WithLabelValues("not_found", "ok"), 1)
	})
}

func TestHealthThatHangsDelaysNeitherHeartbeatsNorChangesNorChecks(t *testing.T) {
	registered(t, "", func(t *testing.T, s *registrar) {
		r := s.register(t, func(c *RegistrationConfig) {
			c.Health = func(ctx context.Context, _ registry.Status) registry.Status { <-ctx.Done(); return registry.Down }
			c.ReplicationDelay, c.ReplicationInterval = 11*time.Second, 11*time.Second
		})
		time.Sleep(15 * time.Second)
		r.SetMetadata(pair("v", "1"))
		synctest.Wait()
		expect.Equal(t, s.keeps().Meta("v"), "1", "right after the change the server has v")
		s.does(http.MethodPost, fake.Always(503, ""))
		s.does(http.MethodPut, fake.Silent)
		r.SetMetadata(pair("v", "2"))
		synctest.Wait()
		s.does(http.MethodPost, nil)
		time.Sleep(12 * time.Second)
		expect.Slice(t, s.seen("POST"), []string{"0s POST UP", "15s POST UP", "15s POST UP", "26s POST UP"}, "registered")
		expect.Equal(t, s.keeps().Meta("v"), "2", "after a check the server has v=")
	})
}

func TestHealthThatPanicsIsDown(t *testing.T) {
	registered(t, "", func(t *testing.T, s *registrar) {
		var ill atomic.Bool
		ill.Store(true)
		s.register(t, sleeping, func(c *RegistrationConfig) {
			c.Health = func(context.Context, registry.Status) registry.Status {
				if ill.Load() {
					panic("no database")
				}
				return registry.Up
			}
		})
		time.Sleep(50 * time.Second)
		ill.Store(false)
		time.Sleep(30 * time.Second)
		s.wantVisits(t, "0s POST UP", "40s POST DOWN", "1m10s POST UP")
	})
}

func TestHealthGetsTheStatusThatWasReportedLast(t *testing.T) {
	registered(t, "", func(t *testing.T, s *registrar) {
		var statuses []string
		s.register(t, sleeping, func(c *RegistrationConfig) {
			c.Health = func(_ context.Context, current registry.Status) registry.Status {
				statuses = append(statuses, current.String())
				return registry.Down
			}
		})
		time.Sleep(75 * time.Second)
		synctest.Wait()
		expect.Equal(t, strings.Join(statuses, " "), "UP DOWN", "got")
	})
}

// Upstream's LeaseExistsRule: a server keeps an instance UP that registers itself as OUT_OF_SERVICE.
func TestSetStatusReachesAStatusByWayOfStartingWhereTheServerRefusesIt(t *testing.T) {
	const up, down, out, starting = registry.Up, registry.Down, registry.OutOfService, registry.Starting
	for _, row := range []struct {
		name string
		set  []registry.Status
		want []string
	}{
		{"out of service", []registry.Status{out}, []string{"STARTING", "OUT_OF_SERVICE"}},
		{"and back", []registry.Status{out, up}, []string{"STARTING", "OUT_OF_SERVICE", "STARTING", "UP"}},
		{"by way of another status", []registry.Status{down, out, starting, up}, []string{"DOWN", "OUT_OF_SERVICE", "STARTING", "UP"}},
	} {
		registered(t, row.name, func(t *testing.T, s *registrar) {
			r := s.register(t, sleeping, func(c *RegistrationConfig) { c.ReplicationBurst = 10 })
			want := []string{"0s POST UP"}
			synctest.Wait()
			for _, status := range row.set {
				r.SetStatus(status)
				synctest.Wait()
				expect.Equal(t, s.keeps().Status, status, "the server has")
			}
			for _, w := range row.want {
				want = append(want, "0s POST "+w)
			}
			s.wantVisits(t, want...)
		})
	}
}

// The response to a change is lost, so it is not known which status the server has.
func TestSetStatusOfUnknownOutcomeCountsAsBoth(t *testing.T) {
	registered(t, "", func(t *testing.T, s *registrar) {
		r := s.register(t, sleeping, func(c *RegistrationConfig) { c.ReplicationBurst = 10 })
		synctest.Wait()
		s.does(http.MethodPost, fake.CutOff)
		r.SetStatus(registry.OutOfService)
		synctest.Wait()
		s.does(http.MethodPost, nil)
		time.Sleep(40 * time.Second)
		synctest.Wait()
		expect.Equal(t, s.keeps().Status, registry.OutOfService, "the server has")
		s.wantVisits(t, "0s POST UP", "0s POST STARTING", "30s POST STARTING", "30s POST OUT_OF_SERVICE")
	})
}

// former returns what a process with the same id left behind.
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
	for range 20 { // for the back-off's jitter
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

// The cluster renews an instance even if it has an older state of it, so renewals go on although it refuses the newer
// one.
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

// slowly does with a request what the server does, and delivers the response after a delay.
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
