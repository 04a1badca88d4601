package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/client/internal/fake"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// registrar is a stock Eureka server that keeps one instance, by upstream's rules for timestamps and statuses, and
// remembers what it was asked to do.
type registrar struct {
	start time.Time

	mu      sync.Mutex
	visits  []string // as "10s PUT", and for a registration "0s POST UP"
	dirty   []int64  // lastDirtyTimestamps of the registrations
	stored  *registry.Instance
	clamped string // header of its responses to registrations
	// instead has what it does with a method instead of serving it.
	instead map[string]func(*http.Request) (*http.Response, error)
}

func newRegistrar() *registrar { return &registrar{start: time.Now()} }

// registered runs a test in a bubble, with a registrar; as a subtest if name is not empty.
func registered(t *testing.T, name string, test func(t *testing.T, s *registrar)) {
	fake.InBubble(t, name, func(t *testing.T) { test(t, newRegistrar()) })
}

func (s *registrar) RoundTrip(r *http.Request) (*http.Response, error) {
	instance := s.visited(r)
	s.mu.Lock()
	instead := s.instead[r.Method]
	s.mu.Unlock()
	if instead != nil {
		return instead(r)
	}
	return s.serve(r, instance)
}

func (s *registrar) visited(r *http.Request) *registry.Instance {
	if r.Method == http.MethodGet {
		return nil // lookups change nothing
	}
	what := fmt.Sprint(time.Since(s.start), " ", r.Method)
	var instance *registry.Instance
	if r.Method == http.MethodPost {
		body, _ := io.ReadAll(r.Body)
		instance, _ = eureka.DecodeRegistration(body, eureka.Format{}, "orders")
		what += " " + instance.Status.String()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.visits = append(s.visits, what)
	if instance != nil {
		s.dirty = append(s.dirty, instance.LastDirty)
	}
	return instance
}

func (s *registrar) serve(r *http.Request, instance *registry.Instance) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case strings.HasPrefix(r.URL.Path, "/v1/rollcall/"):
		return fake.Respond(404, "")
	case r.Method == http.MethodPost:
		s.store(instance)
		if s.clamped != "" {
			return fake.Respond(204, "", clampedHeader, s.clamped)
		}
		return fake.Respond(204, "")
	case s.stored == nil:
		return fake.Respond(404, "")
	case r.Method == http.MethodDelete:
		s.stored = nil
	case r.Method == http.MethodPut && r.URL.Query().Get("lastDirtyTimestamp") > strconv.FormatInt(s.stored.LastDirty, 10):
		return fake.Respond(404, "")
	case r.Method == http.MethodGet:
		return fake.Respond(200, string(eureka.AppendInstanceDocument(nil, eureka.Format{}, &registry.Lease{Instance: s.stored}, registry.Stamp{})))
	}
	return fake.Respond(200, "")
}

// store takes a client's registration: an older one changes nothing, and LeaseExistsRule holds.
func (s *registrar) store(i *registry.Instance) {
	held := func(status registry.Status) bool { return status == registry.Up || status == registry.OutOfService }
	switch {
	case s.stored == nil:
	case s.stored.LastDirty > i.LastDirty:
		return
	case held(i.Status) && held(s.stored.Status):
		i.Status = s.stored.Status
	}
	s.stored = i
}

// does sets what happens to a method. Nil serves it again.
func (s *registrar) does(method string, instead func(*http.Request) (*http.Response, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.instead == nil {
		s.instead = make(map[string]func(*http.Request) (*http.Response, error))
	}
	s.instead[method] = instead
}

// fails makes it answer every registration and renewal with a status. 0 serves them again.
func (s *registrar) fails(status int) {
	var instead func(*http.Request) (*http.Response, error)
	if status != 0 {
		instead = fake.Always(status, "")
	}
	s.does(http.MethodPost, instead)
	s.does(http.MethodPut, instead)
}

func (s *registrar) loseLeases() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stored = nil
}

// keeps returns the instance as stored, or nil.
func (s *registrar) keeps() *registry.Instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stored
}

// seen returns what the server was asked since the last look, by a method (any if "").
func (s *registrar) seen(method string) []string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := slices.DeleteFunc(s.visits, func(v string) bool { return !strings.Contains(v, method) })
	s.visits = nil
	return seen
}

// wantVisits compares all that the server was asked since the last look.
func (s *registrar) wantVisits(t *testing.T, want ...string) {
	t.Helper()
	got := s.seen("")
	expect.That(t, slices.Equal(got, want), "the server saw\n %s\nwant\n %s", strings.Join(got, "\n "), strings.Join(want, "\n "))
}

func (s *registrar) client(t *testing.T) *Client {
	t.Helper()
	return need.Got(New(Config{Servers: []string{"http://a"}, HTTPClient: &http.Client{Transport: s}, Log: slog.New(slog.DiscardHandler)}))(t)
}

// register registers an instance that is renewed every 10 s, and ends that with the test.
func (s *registrar) register(t *testing.T, how ...func(*RegistrationConfig)) *Registration {
	t.Helper()
	config := RegistrationConfig{Instance: orders1()}
	for _, set := range how {
		set(&config)
	}
	c := s.client(t)
	t.Cleanup(func() { closeWithin(t, c, time.Hour) })
	return need.Got(c.StartRegistration(config))(t)
}

func closeWithin(t *testing.T, c *Client, d time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	expect.OKf(t, c.Close(ctx), "close the client")
}

func orders1() *registry.Instance {
	return &registry.Instance{
		InstanceID: "orders-1", HostName: "h", App: "ORDERS", IPAddr: "10.0.0.1", Status: registry.Up,
		DataCenter: registry.DataCenter{Name: registry.MyOwn}, RenewalInterval: 10, Duration: 30,
		Metadata: []registry.Pair{{Key: "zone", Value: "a"}},
	}
}

// sleeping lets no heartbeat come within an hour.
func sleeping(c *RegistrationConfig) { c.Instance.RenewalInterval, c.Instance.Duration = 3600, 86400 }

func TestRegistrationIsSentAtOnceAndRenewedAtEachInterval(t *testing.T) {
	registered(t, "", func(t *testing.T, s *registrar) {
		r := s.register(t)
		time.Sleep(35 * time.Second)
		expect.OK(t, r.Deregister(t.Context()))
		time.Sleep(time.Hour)
		s.wantVisits(t, "0s POST UP", "10s PUT", "20s PUT", "30s PUT", "35s DELETE")
	})
}

func TestHeartbeatIntervalIsCountedFromWhenItIsSent(t *testing.T) {
	registered(t, "", func(t *testing.T, s *registrar) {
		s.does(http.MethodPut, func(*http.Request) (*http.Response, error) {
			time.Sleep(4 * time.Second)
			return fake.Respond(200, "")
		})
		r := s.register(t)
		time.Sleep(35 * time.Second)
		expect.Equal(t, r.LastHeartbeat().Sub(s.start), 30*time.Second, "the last heartbeat is said to be of")
		s.wantVisits(t, "0s POST UP", "10s PUT", "20s PUT", "30s PUT")
	})
}

func TestRegistrationOfAnUnknownInstanceIsRepeatedAsANewState(t *testing.T) {
	registered(t, "", func(t *testing.T, s *registrar) {
		s.register(t)
		time.Sleep(15 * time.Second)
		s.loseLeases()
		time.Sleep(20 * time.Second)
		s.wantVisits(t, "0s POST UP", "10s PUT", "20s PUT", "20s POST UP", "30s PUT")
		expect.That(t, len(s.dirty) == 2 && s.dirty[0] < s.dirty[1], "lastDirtyTimestamps of the registrations: %v, want two, the second one later", s.dirty)
	})
}

func TestRegistrationLeavesTheGivenInstanceAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, given := newRegistrar(), orders1()
		r := s.register(t, func(c *RegistrationConfig) { c.Instance = given })
		r.SetMetadata(registry.Pair{Key: "zone", Value: "b"}, registry.Pair{Key: "rack", Value: "7"})
		expect.That(t, given.LastDirty == 0 && given.Meta("zone") == "a", "it is %+v now, want it untouched", given)
		synctest.Wait()
		if i := s.keeps(); i.LastDirty != r.Instance().LastDirty || i.Meta("zone") != "b" || i.Meta("rack") != "7" {
			t.Errorf("the server has %+v, want what Instance returns, %+v", i, r.Instance())
		}
	})
}

func TestRegistrationHasTheApplicationInUpperCase(t *testing.T) {
	registered(t, "", func(t *testing.T, s *registrar) {
		expect.Equal(t, s.register(t, func(c *RegistrationConfig) { c.Instance.App = "orders" }).Instance().Key(), key, "it is")
	})
}

func TestRegisteredWaitsForTheFirstSuccess(t *testing.T) {
	registered(t, "", func(t *testing.T, s *registrar) {
		s.fails(503)
		r := s.register(t)
		err := r.Registered(fake.Within(t, 10*time.Second))
		expect.That(t, errors.Is(err, context.DeadlineExceeded) && strings.Contains(err.Error(), "503"),
			"while no server registers it: %v, want the end of the context and the 503", err)
		s.fails(0)
		err = r.Registered(t.Context())
		expect.That(t, err == nil && s.keeps() != nil, "got %v, want that it is registered", err)
	})
}

func TestRegisteredSaysThatARegistrationIsRefusedAndTriesGoOn(t *testing.T) {
	for _, status := range []int{400, 401, 403, 413} {
		registered(t, "", func(t *testing.T, s *registrar) {
			s.fails(status)
			r := s.register(t)
			var refusal *StatusError
			err := r.Registered(t.Context())
			expect.That(t, errors.As(err, &refusal) && refusal.Status == status, "got %v, want the %d", err, status)
			s.fails(0)
			time.Sleep(10 * time.Second)
			expect.OKf(t, r.Registered(t.Context()), "after a later try")
		})
	}
}

func TestRegisteredEndsWithTheRegistration(t *testing.T) {
	registered(t, "", func(t *testing.T, s *registrar) {
		s.fails(503)
		r := s.register(t)
		time.AfterFunc(5*time.Second, func() { _ = r.Deregister(context.Background()) })
		expect.ErrorIs(t, r.Registered(t.Context()), ErrClosed, "got")
	})
}

func TestRegistrationConfigReportsEveryMistake(t *testing.T) {
	for _, row := range []struct {
		name   string
		config RegistrationConfig
		says   []string
	}{
		{"no instance", RegistrationConfig{ReplicationDelay: -1}, []string{"no Instance", "ReplicationDelay -1ns is negative"}},
		{"an empty one", RegistrationConfig{Instance: &registry.Instance{}}, []string{"no App", "no HostName", "no IPAddr", "no DataCenter.Name", "no InstanceID"}},
		{"a lease as long as its interval", RegistrationConfig{Instance: &registry.Instance{RenewalInterval: 30, Duration: 30}},
			[]string{"RenewalInterval (30s) is not shorter than its Duration (30s)"}},
		{"the replicator", RegistrationConfig{Instance: orders1(), ReplicationInterval: time.Millisecond, ReplicationBurst: -1},
			[]string{"ReplicationInterval 1ms is less than a second", "ReplicationBurst -1 is negative"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := newRegistrar().client(t).StartRegistration(row.config)
			for _, want := range row.says {
				expect.That(t, err != nil && strings.Contains(err.Error(), want), "the error is %v, want %q in it", err, want)
			}
		})
	}
}

func TestClosedClientStartsNoRegistration(t *testing.T) {
	registered(t, "", func(t *testing.T, s *registrar) {
		c := s.client(t)
		closeWithin(t, c, time.Minute)
		expect.ErrorIs(t, expect.Err(c.StartRegistration(RegistrationConfig{Instance: orders1()})), ErrClosed, "got")
		s.wantVisits(t)
	})
}

func TestHealthyAndTheGaugeSayHowLongTheInstanceWasNotHeardOf(t *testing.T) {
	registered(t, "", func(t *testing.T, s *registrar) {
		s.fails(503)
		r := s.register(t)
		wantSilence := func(want time.Duration) {
			t.Helper()
			expect.Equal(t, r.state.silence(), want, "silent for")
		}
		time.Sleep(100 * time.Millisecond)
		if err := r.Healthy(); err == nil || !strings.Contains(err.Error(), "since the start") || !strings.Contains(err.Error(), "503") || !r.LastHeartbeat().IsZero() {
			t.Errorf("before the first registration: %v, last heartbeat %v", err, r.LastHeartbeat())
		}
		wantSilence(100 * time.Millisecond)
		s.fails(0)
		err := r.Registered(t.Context())
		need.That(t, err == nil && r.Healthy() == nil, "once registered: %v, %v", err, r.Healthy())
		wantSilence(0)
		s.fails(500)
		time.Sleep(30 * time.Second)
		expect.OKf(t, r.Healthy(), "at the very end of its lease")
		time.Sleep(time.Second)
		err = r.Healthy()
		expect.That(t, err != nil && strings.Contains(err.Error(), "for 31s, and its lease is 30s") && strings.Contains(err.Error(), "500"),
			"past its lease: %v", err)
		wantSilence(31 * time.Second)
	})
}

func TestIntervalIsTheInstancesUnlessTheServerClampedIt(t *testing.T) {
	for _, row := range []struct {
		name               string
		interval, duration int32 // of the instance, seconds
		clamped            string
		want               leaseTimes
	}{
		{"as given", 10, 30, "", leaseTimes{10 * time.Second, 30 * time.Second}},
		{"not given", 0, 0, "", leaseTimes{30 * time.Second, 90 * time.Second}},
		{"out of our bounds", 7200, 1 << 30, "", leaseTimes{time.Hour, 24 * time.Hour}},
		{"both clamped", 1, 3, "renewalIntervalInSecs=5, durationInSecs=20", leaseTimes{5 * time.Second, 20 * time.Second}},
		{"the duration clamped", 10, 30, "durationInSecs=60", leaseTimes{10 * time.Second, time.Minute}},
		{"without a space", 1, 3, "renewalIntervalInSecs=5,durationInSecs=20", leaseTimes{5 * time.Second, 20 * time.Second}},
		{"other words", 10, 30, "renewalintervalinsecs=5, durationInSecs=-1, durationInSecs=x, evictionInSecs=3, =4, renewalIntervalInSecs", leaseTimes{10 * time.Second, 30 * time.Second}},
		{"out of all bounds", 10, 30, "renewalIntervalInSecs=2147483647, durationInSecs=2147483648", leaseTimes{time.Hour, 30 * time.Second}},
	} {
		expect.Equal(t, leaseOf(&registry.Instance{RenewalInterval: row.interval, Duration: row.duration}, row.clamped), row.want, "%s: got", row.name)
	}
}

func TestHeartbeatsFollowTheIntervalThatTheServerClamped(t *testing.T) {
	registered(t, "", func(t *testing.T, s *registrar) {
		s.clamped = "renewalIntervalInSecs=20, durationInSecs=60"
		r := s.register(t)
		time.Sleep(45 * time.Second)
		s.wantVisits(t, "0s POST UP", "20s PUT", "40s PUT")
		expect.Equal(t, r.Interval(), 20*time.Second, "the interval is")
		s.fails(503)
		time.Sleep(54 * time.Second) // 59 s after the last one
		expect.OKf(t, r.Healthy(), "within the lease that the server took")
	})
}

func FuzzParseClamped(f *testing.F) {
	f.Add("renewalIntervalInSecs=3600, durationInSecs=86400")
	f.Add("durationInSecs=3")
	f.Add(",=, renewalIntervalInSecs=99999999999999999999")
	f.Fuzz(func(t *testing.T, header string) {
		interval, duration := parseClamped(header)
		expect.That(t, interval >= 0 && duration >= 0, "%q: %d, %d", header, interval, duration)
		lease := leaseOf(&registry.Instance{}, header)
		expect.That(t, lease.interval >= time.Second && lease.interval <= time.Hour && lease.duration >= 3*time.Second && lease.duration <= 24*time.Hour,
			"%q: %v is out of bounds", header, lease)
	})
}

func TestNewInstanceCanBeRegistered(t *testing.T) {
	i := NewInstance("Orders", 8080)
	expect.OK(t, checkInstance(i))
	host, err := os.Hostname()
	if err != nil {
		t.Skipf("this machine has no name: %v", err)
	}
	expect.Equal(t, i.ID(), host+":orders:8080", "its id is")
	if i.App != "ORDERS" || i.VIP != "orders" || i.HostName != host || i.Status != registry.Up || i.RenewalInterval != 30 || i.Duration != 90 ||
		i.Port != (registry.Port{Number: 8080, Enabled: true}) {
		t.Errorf("it is %+v", i)
	}
	expect.That(t, net.ParseIP(i.IPAddr) != nil, "its address is %q", i.IPAddr)
}

func TestNewInstanceWithoutAPortDoesNotListen(t *testing.T) {
	i := NewInstance("orders", 0)
	expect.That(t, !i.Port.Enabled && strings.HasSuffix(i.ID(), ":orders:0"), "it is %+v", i)
}

// changedInstance returns an instance of ORDERS after changes.
func changedInstance(id string, changes ...func(*registry.Instance)) *registry.Instance {
	i := orders(id, registry.Up)
	for _, change := range changes {
		change(i)
	}
	return i
}

func withZone(zone string) func(*registry.Instance) {
	return func(i *registry.Instance) { i.Metadata = []registry.Pair{{Key: "zone", Value: zone}} }
}

func TestZoneOfAnInstance(t *testing.T) {
	amazon := func(zone string) func(*registry.Instance) {
		return func(i *registry.Instance) {
			i.DataCenter = registry.DataCenter{Name: registry.Amazon, Metadata: []registry.Pair{{Key: "availability-zone", Value: zone}}}
		}
	}
	tests := []struct {
		name   string
		change []func(*registry.Instance)
		want   string
	}{
		{"it says none", nil, ""},
		{"in its metadata", []func(*registry.Instance){withZone("eu-1a")}, "eu-1a"},
		{"Amazon's", []func(*registry.Instance){amazon("us-east-1c")}, "us-east-1c"},
		{"its metadata counts more than Amazon's", []func(*registry.Instance){amazon("us-east-1c"), withZone("eu-1a")}, "eu-1a"},
		{"an empty entry is none", []func(*registry.Instance){amazon("us-east-1c"), withZone("")}, "us-east-1c"},
		{"another data center's metadata does not count", []func(*registry.Instance){amazon("us-east-1c"), func(i *registry.Instance) {
			i.DataCenter.Name = registry.MyOwn
		}}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			expect.Equal(t, ZoneOf(changedInstance("1", tt.change...)), tt.want, "zone")
		})
	}
}

func TestPreferZone(t *testing.T) {
	a1, a2, b, none := changedInstance("1", withZone("a")), changedInstance("2", withZone("a")), changedInstance("3", withZone("b")), changedInstance("4")
	tests := []struct {
		name      string
		zone      string
		instances []*registry.Instance
		want      []*registry.Instance
	}{
		{"those of the zone, in their order", "a", []*registry.Instance{a2, b, a1, none}, []*registry.Instance{a2, a1}},
		{"in another case", "A", []*registry.Instance{a1, b}, []*registry.Instance{a1}},
		{"all where the zone has none", "c", []*registry.Instance{a1, b, none}, []*registry.Instance{a1, b, none}},
		{"all without a zone, not those without one", "", []*registry.Instance{a1, none}, []*registry.Instance{a1, none}},
		{"all are in the zone", "a", []*registry.Instance{a1, a2}, []*registry.Instance{a1, a2}},
		{"of none", "a", nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			given := slices.Clone(tt.instances)
			got := PreferZone(tt.zone, tt.instances)
			expect.That(t, slices.Equal(got, tt.want), "got %v, want %v", got, tt.want)
			expect.That(t, slices.Equal(given, tt.instances), "the list that was given was changed")
		})
	}
}
