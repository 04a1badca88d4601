package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/client/internal/fake"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

// rollcallNodes serves a Rollcall cluster's report of its nodes, which show what shown returns.
func (s *registrar) rollcallNodes(shown func(node string) string) {
	s.does(http.MethodGet, func(r *http.Request) (*http.Response, error) {
		if r.URL.Path == "/v1/rollcall/status" {
			return fake.Respond(200, `{"nodes":[{"id":"n1","http":"a"},{"id":"n2","http":"b"}]}`)
		}
		if want := "/v1/rollcall/apps?app=ORDERS&consistency=stale"; r.URL.RequestURI() != want {
			return fake.Respond(400, "want "+want)
		}
		if text := shown(r.URL.Host); text != "" {
			return fake.Respond(200, `[{"app":"ORDERS","id":"orders-2","status":"UP"},{"app":"ORDERS","id":"orders-1",`+text+`}]`)
		}
		return fake.Respond(200, `[]`)
	})
}

func TestDrainRegistersAtOnceAndWaitsForEveryNodeAndForClients(t *testing.T) {
	const settle = 30 * time.Second
	const up, out = `"status":"UP"`, `"status":"OUT_OF_SERVICE"`
	for _, row := range []struct {
		name  string
		shows func(node string, since time.Duration) string
		took  time.Duration
		says  string // "" if done
	}{
		{name: "all show it", shows: func(string, time.Duration) string { return out }, took: settle},
		{name: "one shows it later", took: settle + time.Second, shows: func(node string, since time.Duration) string {
			if node == "b" && since < time.Second {
				return up
			}
			return out
		}},
		{name: "one never does", took: time.Minute, says: "n2 (b): shows it as UP", shows: func(node string, _ time.Duration) string {
			if node == "b" {
				return up
			}
			return out
		}},
		{name: "one does not list it", took: settle, shows: func(node string, _ time.Duration) string {
			if node == "b" {
				return ""
			}
			return out
		}},
		{name: "an operator forces another status", took: settle, shows: func(string, time.Duration) string { return up + `,"overridden":"UP"` }},
		{name: "an operator took it out already", took: settle, shows: func(string, time.Duration) string { return out + `,"overridden":"OUT_OF_SERVICE"` }},
	} {
		registered(t, row.name, func(t *testing.T, s *registrar) {
			r := s.register(t, sleeping)
			synctest.Wait()
			for r.SetMetadata(pair("v", time.Now().String()+r.Instance().Meta("v"))) { // no token is left
				synctest.Wait()
			}
			time.Sleep(time.Second)
			s.seen("")
			start := time.Now()
			s.rollcallNodes(func(node string) string { return row.shows(node, time.Since(start)) })
			err := r.Drain(fake.Within(t, time.Minute), settle)
			wantSays(t, err, row.says)
			expect.Equal(t, time.Since(start), row.took, "took")
			expect.Slice(t, s.seen("POST"), []string{"1s POST STARTING", "1s POST OUT_OF_SERVICE"}, "registered")
		})
	}
}

func TestDrainAsksStockServersForTheInstance(t *testing.T) {
	for _, row := range []struct {
		name   string
		second func(*http.Request) (*http.Response, error) // of apps/ORDERS/orders-1
		says   string
	}{
		{name: "all show it", second: fake.Always(200, `{"instance":{"app":"ORDERS","instanceId":"orders-1","status":"OUT_OF_SERVICE"}}`)},
		{name: "one does not know it", second: fake.Always(404, "")},
		{name: "an operator forces another status", second: fake.Always(200, `{"instance":{"app":"ORDERS","status":"UP","overriddenStatus":"UP"}}`)},
		{name: "one shows it in service", second: fake.Always(200, `{"instance":{"app":"ORDERS","status":"UP"}}`), says: "http://b: shows it as UP"},
		{name: "one gives no response", second: fake.Unreachable, says: "http://b: "},
		{name: "one answers nonsense", second: fake.Always(200, `{`), says: "http://b: "},
		{name: "one is closed to us", second: fake.Always(403, ""), says: "http://b: http://b answered 403"},
	} {
		registered(t, row.name, func(t *testing.T, s *registrar) {
			stock := func(r *http.Request) (*http.Response, error) {
				switch {
				case r.Method == http.MethodGet && r.URL.Host == "b" && r.URL.Path == "/eureka/apps/ORDERS/orders-1":
					return row.second(r)
				case strings.HasPrefix(r.URL.Path, "/v1/"):
					return fake.Respond(404, "<html>no such page</html>")
				}
				return s.RoundTrip(r)
			}
			c := clientOf(t, fake.Servers{"a": stock, "b": stock}, "a", "b")
			t.Cleanup(func() { closeWithin(t, c, time.Minute) })
			r := need.Got(c.StartRegistration(RegistrationConfig{Instance: orders1()}))(t)
			need.OK(t, r.Registered(t.Context()))
			ctx := fake.Within(t, 3*time.Second)
			if err := r.Drain(ctx, 0); row.says == "" && err != nil || row.says != "" && (err == nil || !strings.Contains(err.Error(), row.says)) {
				t.Errorf("got %v, want %q", err, row.says)
			}
			expect.Equal(t, s.keeps().Status, registry.OutOfService, "the server has")
		})
	}
}

func TestDrainKeepsHealthFromBeingAskedUntilTheStatusIsSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := newRegistrar(), newSays(registry.Up)
		s.rollcallNodes(func(string) string { return "" })
		r := s.register(t, func(c *RegistrationConfig) { c.Health = h.health })
		time.Sleep(41 * time.Second)
		need.OK(t, r.Drain(t.Context(), 0))
		time.Sleep(59 * time.Second)
		expect.Equal(t, s.keeps().Status, registry.OutOfService, "the server has")
		expect.Equal(t, len(s.seen("PUT")), 10, "heartbeats until 100 s, in spite of the drain:")
		r.SetStatus(registry.Starting)
		time.Sleep(31 * time.Second)
		synctest.Wait()
		expect.Equal(t, s.keeps().Status, registry.Up, "after a check the server has")
		expect.Equal(t, fmt.Sprint(h.asked), "[40s 2m10s]", "Health was asked at")
	})
}

func TestDrainIgnoresAStatusOfHealthThatComesAfterItsStart(t *testing.T) {
	registered(t, "", func(t *testing.T, s *registrar) {
		s.rollcallNodes(func(string) string { return "" })
		r := s.register(t, sleeping, func(c *RegistrationConfig) {
			c.Health = func(context.Context, registry.Status) registry.Status {
				time.Sleep(5 * time.Second)
				return registry.Up
			}
		})
		time.Sleep(42 * time.Second)
		need.OK(t, r.Drain(t.Context(), 10*time.Second))
		expect.Equal(t, s.keeps().Status, registry.OutOfService, "the server has")
	})
}

func TestDrainRegistersAsSoonAsAServerCanBeReached(t *testing.T) {
	registered(t, "", func(t *testing.T, s *registrar) {
		s.rollcallNodes(func(string) string { return "" })
		r := s.register(t, sleeping)
		time.Sleep(time.Second)
		s.fails(503)
		time.AfterFunc(20*time.Second, func() { s.fails(0) })
		need.OK(t, r.Drain(t.Context(), 0))
		took := time.Since(s.start)
		expect.That(t, took >= 21*time.Second && took <= 21*time.Second+wait.LongestRetry, "drained at %v, want within %v of 21s", took, wait.LongestRetry)
	})
}

func TestDrainThatIsCutShortIsStillOutOfService(t *testing.T) {
	for _, row := range []struct {
		name  string
		cut   func(*registrar, *Registration)
		wants error
		says  string
	}{
		{"by its context", func(*registrar, *Registration) {}, context.DeadlineExceeded, "clients may not have fetched it yet"},
		{"by a status", func(_ *registrar, r *Registration) { r.SetStatus(registry.Down) }, errStatusSet, "the status was set meanwhile"},
		{"by the end", func(_ *registrar, r *Registration) { _ = r.Deregister(context.Background()) }, ErrClosed, "closed"},
	} {
		registered(t, row.name, func(t *testing.T, s *registrar) {
			s.rollcallNodes(func(string) string { return "" })
			r := s.register(t, sleeping)
			ctx := fake.Within(t, time.Minute)
			time.AfterFunc(10*time.Second, func() { row.cut(s, r) })
			err := r.Drain(ctx, time.Hour)
			expect.That(t, errors.Is(err, row.wants) && strings.Contains(err.Error(), row.says), "got %v, want %v: %q", err, row.wants, row.says)
		})
	}
}

func TestDrainThatIsRefusedSaysSo(t *testing.T) {
	registered(t, "", func(t *testing.T, s *registrar) {
		r := s.register(t, sleeping)
		synctest.Wait()
		s.fails(403)
		var refusal *StatusError
		err := r.Drain(t.Context(), 0)
		expect.That(t, errors.As(err, &refusal) && refusal.Status == 403, "got %v, want the refusal", err)
	})
}

// The status gives no HTTP address of the dead node.
func TestDrainNamesTheNodeThatIsDead(t *testing.T) {
	registered(t, "", func(t *testing.T, s *registrar) {
		r := s.register(t, sleeping)
		synctest.Wait()
		s.does(http.MethodGet, func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/v1/rollcall/status" {
				return fake.Respond(200, `{"nodes":[{"id":"n1","http":"a"},{"id":"n2","cluster":"b:7761","role":"unreachable"}]}`)
			}
			return fake.Respond(200, `[]`)
		})
		expect.ErrorSays(t, r.Drain(fake.Within(t, time.Second), 0), "n2 (b:7761): it is unreachable", "Drain:")
	})
}

// drained returns a server of a cluster of two nodes. The second node goes through indexes.
func drained(indexes ...string) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodPut {
			return fake.Respond(200, `{"index":"e-10"}`)
		}
		index := indexes[0]
		indexes = indexes[min(1, len(indexes)-1):]
		return fake.Respond(200, fmt.Sprintf(`{"nodes":[{"id":"n1","http":"a","role":"leader","index":"e-11"},{"id":"n2","http":"b","cluster":"c","role":"follower","index":%q}]}`, index))
	}
}

func TestDrainWaitsUntilEveryNodeHasAppliedTheOverrideAndForClients(t *testing.T) {
	const settle = 30 * time.Second
	for _, tc := range []struct {
		name   string
		server func(*http.Request) (*http.Response, error)
		took   time.Duration
		says   string // "" if done
	}{
		{name: "all have", server: drained("e-10"), took: settle},
		{name: "one lags", server: drained("e-9", "e-9", "e-10"), took: settle + 2*drainPoll},
		{name: "one comes back", server: drained("", "e-12"), took: settle + drainPoll},
		{name: "one is of another cluster and joins", server: drained("x-12", "e-12"), took: settle + drainPoll},
		{name: "one never does", server: drained("e-9"), took: time.Minute, says: "n2 (b) is at e-9, before e-10"},
		{name: "one cannot be reached", server: drained(""), took: time.Minute, says: "n2 (b) is follower"},
		{name: "an unknown instance", server: fake.Always(404, `{"error":"unknown"}`), says: "not registered"},
		{name: "a cluster without nodes", server: fake.Always(200, `{"index":"e-1"}`), took: time.Minute, says: "the cluster names no nodes"},
		{name: "one lags for a second", server: drained("e-9", "e-9", "e-9", "e-9", "e-9", "e-10"), took: settle + 5*drainPoll},
	} {
		fake.InBubble(t, tc.name, func(t *testing.T) {
			ctx := fake.Within(t, time.Minute)
			start := time.Now()
			wantSays(t, clientOf(t, fake.Servers{"a": tc.server}, "a").Drain(ctx, key, settle, by), tc.says)
			expect.Equal(t, time.Since(start), tc.took, "took")
		})
	}
}

func TestDrainThatIsCutShortSaysHowFarItCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		err := clientOf(t, fake.Servers{"a": drained("e-10")}, "a").Drain(fake.Within(t, time.Second), key, time.Minute, by)
		expect.That(t, err != nil && strings.Contains(err.Error(), "OUT_OF_SERVICE everywhere") && errors.Is(err, context.DeadlineExceeded),
			"got %v, want that the settle time is missing", err)
	})
}

func TestDrainErrorNamesTheLaggingNodeWhenTheClusterStopsResponding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lag := drained("e-9")
		asked := 0
		c := clientOf(t, fake.Servers{"a": func(r *http.Request) (*http.Response, error) {
			if asked++; asked > 2 {
				return fake.Silent(r)
			}
			return lag(r)
		}}, "a")
		expect.ErrorSays(t, c.Drain(fake.Within(t, time.Second), key, 0, by), "n2 (b) is at e-9", "got")
	})
}

// aloneNode returns a node without consensus: it accepts acts and names itself and node b, and shows of the instance
// what shown returns.
func aloneNode(shown func() string) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		switch {
		case r.Method == http.MethodPut:
			return fake.Respond(200, `{"index":"a1-7"}`)
		case strings.HasSuffix(r.URL.Path, "/status"):
			return fake.Respond(200, `{"mode":"ap","nodes":[{"id":"n1","http":"a","index":"a1-7"},{"id":"b","http":"b"}]}`)
		}
		return fake.Respond(200, shown())
	}
}

// Nodes without consensus each count their own changes, so their indexes say nothing.
func TestDrainWithoutConsensusAsksEveryNodeForTheInstance(t *testing.T) {
	const out = `[{"app":"A","id":"other","status":"UP"},{"app":"A","id":"b","status":"OUT_OF_SERVICE","overridden":"OUT_OF_SERVICE"}]`
	const settle = 30 * time.Second
	for _, tc := range []struct {
		name string
		b    func(since time.Duration) string // what node b shows
		says string                           // "" if drained
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
		fake.InBubble(t, tc.name, func(t *testing.T) {
			ctx := fake.Within(t, time.Minute)
			start := time.Now()
			s := fake.Servers{"a": aloneNode(func() string { return out }), "b": fake.Unreachable}
			if tc.b != nil {
				s["b"] = aloneNode(func() string { return tc.b(time.Since(start)) })
			}
			wantSays(t, clientOf(t, s, "a").Drain(ctx, registry.NewKey("A", "b"), settle, by), tc.says)
			expect.Equal(t, time.Since(start), tc.took, "took")
		})
	}
}

func TestDeregisterCancelsWhatMayBeRegistered(t *testing.T) {
	type config = RegistrationConfig
	for _, row := range []struct {
		name string
		set  func(*config)
		then func(*registrar) // one second after the start
		want []string
		says string // part of the error; "" if there is none
	}{
		{name: "what is registered", want: []string{"0s POST UP", "5s DELETE"}},
		{name: "but not what is to stay", set: func(c *config) { c.Stay = true }, want: []string{"0s POST UP"}},
		{name: "what is not there any more", then: func(s *registrar) { s.loseLeases() }, want: []string{"0s POST UP", "5s DELETE"}},
		{name: "not while the server fails", then: func(s *registrar) { s.does(http.MethodDelete, fake.Always(500, "")) }, want: []string{"0s POST UP", "5s DELETE"}, says: "500"},
	} {
		registered(t, row.name, func(t *testing.T, s *registrar) {
			c := s.client(t)
			config := config{Instance: orders1()}
			if row.set != nil {
				row.set(&config)
			}
			r := need.Got(c.StartRegistration(config))(t)
			time.Sleep(time.Second)
			if row.then != nil {
				row.then(s)
			}
			time.Sleep(4 * time.Second)
			for range 2 {
				wantSays(t, r.Deregister(t.Context()), row.says)
			}
			closeWithin(t, c, time.Minute)
			s.wantVisits(t, row.want...)
		})
	}
}

func TestDeregisterSendsNoCancelOnlyIfNothingWasRegistered(t *testing.T) {
	for _, row := range []struct {
		name     string
		response func(*http.Request) (*http.Response, error)
		cancel   bool
	}{
		{"refused", fake.Always(400, ""), false},
		{"nothing done", fake.Always(503, ""), false},
		{"never sent", fake.Unreachable, false},
		{"cut off", fake.CutOff, true},
		{"outcome unknown", fake.Always(504, "", "X-Rollcall-Outcome", "unknown"), true},
		{"under way", fake.Silent, true},
	} {
		registered(t, row.name, func(t *testing.T, s *registrar) {
			s.does(http.MethodPost, row.response)
			r := s.register(t)
			time.Sleep(100 * time.Millisecond)
			expect.OK(t, r.Deregister(t.Context()))
			want := []string{"0s POST UP"}
			if row.cancel {
				want = append(want, "100ms DELETE")
			}
			s.wantVisits(t, want...)
		})
	}
}

func TestDeregisterBeforeTheFirstRegistrationSendsNothing(t *testing.T) {
	registered(t, "", func(t *testing.T, s *registrar) {
		r := newRegistration(s.client(t), RegistrationConfig{Instance: orders1()}.withDefaults(), nil)
		close(r.stopped) // there are no loops
		expect.OK(t, r.Deregister(t.Context()))
		s.wantVisits(t)
	})
}

func TestDeregisterIsFollowedByNoRegistration(t *testing.T) {
	registered(t, "", func(t *testing.T, s *registrar) {
		r := s.register(t)
		time.Sleep(time.Second)
		s.does(http.MethodPost, fake.Silent)
		r.SetMetadata(pair("v", "1"))
		time.Sleep(time.Second)
		drained := make(chan error)
		go func() { drained <- r.Drain(t.Context(), 0) }() // waits for its turn
		synctest.Wait()
		expect.OK(t, r.Deregister(t.Context()))
		expect.ErrorIs(t, <-drained, ErrClosed, "the drain ended with")
		s.does(http.MethodPost, nil)
		expect.That(t, !r.SetStatus(registry.Down), "a change after the end is said to be registered at once")
		time.Sleep(time.Hour)
		s.wantVisits(t, "0s POST UP", "1s POST UP", "2s DELETE")
	})
}

func TestDeregisterAndCloseTogetherCancelOnce(t *testing.T) {
	registered(t, "", func(t *testing.T, s *registrar) {
		s.does(http.MethodDelete, func(*http.Request) (*http.Response, error) {
			time.Sleep(time.Second)
			return fake.Respond(200, "")
		})
		r := s.register(t)
		time.Sleep(time.Second)
		var g sync.WaitGroup
		for _, end := range []func(context.Context) error{r.Deregister, r.client.Close, r.Deregister} {
			g.Go(func() {
				expect.OK(t, end(t.Context()))
				expect.Equal(t, time.Since(s.start), 2*time.Second, "returned, after the cancel, at")
			})
		}
		g.Wait()
		s.wantVisits(t, "0s POST UP", "1s DELETE")
	})
}

func TestDeregisterWaitsForAHangingHealthAsLongAsItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		s := newRegistrar()
		c := s.client(t)
		r, err := c.StartRegistration(RegistrationConfig{
			Instance: orders1(), ReplicationDelay: time.Second,
			Health: func(context.Context, registry.Status) registry.Status { <-release; return registry.Up },
		})
		need.OK(t, err)
		time.Sleep(2 * time.Second)
		err = r.Deregister(fake.Within(t, 5*time.Second))
		expect.That(t, errors.Is(err, context.DeadlineExceeded) && strings.Contains(err.Error(), "health callback of ORDERS/orders-1"),
			"got %v, want that the callback did not return in time", err)
		s.wantVisits(t, "0s POST UP", "2s DELETE")
		expect.Equal(t, time.Since(s.start), 7*time.Second, "the end took until")
		closeWithin(t, c, time.Second)
	})
}

func TestDeregisterIsBoundedByItsContext(t *testing.T) {
	registered(t, "", func(t *testing.T, s *registrar) {
		r := need.Got(s.client(t).StartRegistration(RegistrationConfig{Instance: orders1()}))(t)
		time.Sleep(time.Second)
		s.does(http.MethodDelete, fake.Silent)
		expect.ErrorIs(t, r.Deregister(fake.Within(t, 2*time.Second)), context.DeadlineExceeded, "got")
		expect.Equal(t, time.Since(s.start), 3*time.Second, "it took until")
	})
}

func TestDeregisterWaitsForBothLoops(t *testing.T) {
	registered(t, "", func(t *testing.T, s *registrar) {
		s.does(http.MethodPut, s.slowly(5*time.Second)) // and does not hear that it is cut off
		c := s.client(t)
		r := need.Got(c.StartRegistration(RegistrationConfig{Instance: orders1()}))(t)
		time.Sleep(11 * time.Second)
		expect.ErrorSays(t, r.stop(fake.Within(t, time.Second)), "heartbeats of ORDERS/orders-1", "while one does not end in time:")
		if err := r.stop(t.Context()); err != nil || time.Since(s.start) != 15*time.Second {
			t.Errorf("stopped at %v, %v, want when the heartbeat ends, at 15s", time.Since(s.start), err)
		}
		closeWithin(t, c, time.Minute)
	})
}

func TestDeregisterCancelsAfterARefusalThatFollowedATryOfUnknownOutcome(t *testing.T) {
	registered(t, "", func(t *testing.T, s *registrar) {
		s.does(http.MethodPost, fake.Always(400, ""))
		c, err := New(Config{Servers: []string{"http://a", "http://b"}, InOrder: true, HTTPClient: &http.Client{Transport: fake.Servers{
			"a": func(r *http.Request) (*http.Response, error) {
				if r.Method == http.MethodPost {
					return fake.CutOff(r)
				}
				return fake.Unreachable(r)
			},
			"b": s.RoundTrip,
		}}})
		need.OK(t, err)
		need.Got(c.StartRegistration(RegistrationConfig{Instance: orders1()}))(t)
		time.Sleep(100 * time.Millisecond)
		closeWithin(t, c, time.Minute)
		s.wantVisits(t, "0s POST UP", "100ms DELETE")
	})
}
