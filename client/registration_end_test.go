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

	"github.com/seed-20419f34/rollcall/client/internal/wait"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestDeregisterCancelsWhatMayBeRegistered(t *testing.T) {
	type config = RegistrationConfig
	for _, row := range []struct {
		name string
		set  func(*config)
		then func(*registrar) // one second after the start
		want []string
		says string // of the error; "": none
	}{
		{name: "what is registered", want: []string{"0s POST UP", "5s DELETE"}},
		{name: "but not what is to stay", set: func(c *config) { c.Stay = true }, want: []string{"0s POST UP"}},
		{name: "what is not there any more", then: func(s *registrar) { s.loseLeases() }, want: []string{"0s POST UP", "5s DELETE"}},
		{name: "not while the server fails", then: func(s *registrar) { s.does(http.MethodDelete, always(500, "")) }, want: []string{"0s POST UP", "5s DELETE"}, says: "500"},
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
		name   string
		answer func(*http.Request) (*http.Response, error)
		cancel bool
	}{
		{"refused", always(400, ""), false},
		{"nothing done", always(503, ""), false},
		{"never sent", unreachable, false},
		{"cut off", cutOff, true},
		{"outcome unknown", always(504, "", "X-Rollcall-Outcome", "unknown"), true},
		{"under way", silent, true},
	} {
		registered(t, row.name, func(t *testing.T, s *registrar) {
			s.does(http.MethodPost, row.answer)
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
		s.does(http.MethodPost, silent)
		r.SetMetadata(pair("v", "1"))
		time.Sleep(time.Second)
		drained := make(chan error)
		go func() { drained <- r.Drain(t.Context(), 0) }() // waits for its turn
		synctest.Wait()
		expect.OK(t, r.Deregister(t.Context()))
		expect.ErrorIs(t, <-drained, ErrClosed, "the drain ended with")
		s.does(http.MethodPost, nil)
		expect.That(t, !r.SetStatus(registry.Down), "a change after the end is said to be told")
		time.Sleep(time.Hour)
		s.wantVisits(t, "0s POST UP", "1s POST UP", "2s DELETE")
	})
}

func TestDeregisterAndCloseTogetherCancelOnce(t *testing.T) {
	registered(t, "", func(t *testing.T, s *registrar) {
		s.does(http.MethodDelete, func(*http.Request) (*http.Response, error) {
			time.Sleep(time.Second)
			return answered(200, "")
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
		err = r.Deregister(within(t, 5*time.Second))
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
		s.does(http.MethodDelete, silent)
		expect.ErrorIs(t, r.Deregister(within(t, 2*time.Second)), context.DeadlineExceeded, "got")
		expect.Equal(t, time.Since(s.start), 3*time.Second, "it took until")
	})
}

func TestDeregisterWaitsForBothLoops(t *testing.T) {
	registered(t, "", func(t *testing.T, s *registrar) {
		s.does(http.MethodPut, s.slowly(5*time.Second)) // and does not hear that it is cut off
		c := s.client(t)
		r := need.Got(c.StartRegistration(RegistrationConfig{Instance: orders1()}))(t)
		time.Sleep(11 * time.Second)
		ctx := within(t, time.Second)
		expect.ErrorSays(t, r.stop(ctx), "heartbeats of ORDERS/orders-1", "while one does not end in time:")
		if err := r.stop(t.Context()); err != nil || time.Since(s.start) != 15*time.Second {
			t.Errorf("stopped at %v, %v, want when the heartbeat ends, at 15s", time.Since(s.start), err)
		}
		closeWithin(t, c, time.Minute)
	})
}

func TestDeregisterCancelsAfterARefusalThatFollowedATryOfUnknownOutcome(t *testing.T) {
	registered(t, "", func(t *testing.T, s *registrar) {
		s.does(http.MethodPost, always(400, ""))
		c, err := New(Config{Servers: []string{"http://a", "http://b"}, InOrder: true, HTTPClient: &http.Client{Transport: servers{
			"a": func(r *http.Request) (*http.Response, error) {
				if r.Method == http.MethodPost {
					return cutOff(r)
				}
				return unreachable(r)
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

// rollcallNodes serves what a cluster of Rollcall's says of its nodes, which show what shown returns.
func (s *registrar) rollcallNodes(shown func(node string) string) {
	s.does(http.MethodGet, func(r *http.Request) (*http.Response, error) {
		if r.URL.Path == "/v1/rollcall/status" {
			return answered(200, `{"nodes":[{"id":"n1","http":"a"},{"id":"n2","http":"b"}]}`)
		}
		if want := "/v1/rollcall/apps?app=ORDERS&consistency=stale"; r.URL.RequestURI() != want {
			return answered(400, "want "+want)
		}
		if text := shown(r.URL.Host); text != "" {
			return answered(200, `[{"app":"ORDERS","id":"orders-2","status":"UP"},{"app":"ORDERS","id":"orders-1",`+text+`}]`)
		}
		return answered(200, `[]`)
	})
}

func TestDrainRegistersAtOnceAndWaitsForEveryNodeAndForClients(t *testing.T) {
	const settle = 30 * time.Second
	const up, out = `"status":"UP"`, `"status":"OUT_OF_SERVICE"`
	for _, row := range []struct {
		name  string
		shows func(node string, since time.Duration) string
		took  time.Duration
		says  string // "": done
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
			err := r.Drain(within(t, time.Minute), settle)
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
		{name: "all show it", second: always(200, `{"instance":{"app":"ORDERS","instanceId":"orders-1","status":"OUT_OF_SERVICE"}}`)},
		{name: "one does not know it", second: always(404, "")},
		{name: "an operator forces another status", second: always(200, `{"instance":{"app":"ORDERS","status":"UP","overriddenStatus":"UP"}}`)},
		{name: "one shows it in service", second: always(200, `{"instance":{"app":"ORDERS","status":"UP"}}`), says: "http://b: shows it as UP"},
		{name: "one gives no answer", second: unreachable, says: "http://b: "},
		{name: "one answers nonsense", second: always(200, `{`), says: "http://b: "},
		{name: "one is closed to us", second: always(403, ""), says: "http://b: http://b answered 403"},
	} {
		registered(t, row.name, func(t *testing.T, s *registrar) {
			stock := func(r *http.Request) (*http.Response, error) {
				switch {
				case r.Method == http.MethodGet && r.URL.Host == "b" && r.URL.Path == "/eureka/apps/ORDERS/orders-1":
					return row.second(r)
				case strings.HasPrefix(r.URL.Path, "/v1/"):
					return answered(404, "<html>no such page</html>")
				}
				return s.RoundTrip(r)
			}
			c := servers{"a": stock, "b": stock}.client(t, "a", "b")
			t.Cleanup(func() { closeWithin(t, c, time.Minute) })
			r := need.Got(c.StartRegistration(RegistrationConfig{Instance: orders1()}))(t)
			need.OK(t, r.Registered(t.Context()))
			ctx := within(t, 3*time.Second)
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
			ctx := within(t, time.Minute)
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

func TestDrainWaitsForAServerByTheStatusThatItShows(t *testing.T) {
	for _, row := range []struct {
		status, forced string
		waits          bool
	}{
		{"OUT_OF_SERVICE", "", false},
		{"OUT_OF_SERVICE", "OUT_OF_SERVICE", false},
		{"UP", "", true},
		{"STARTING", "", true},
		{"STARTING", "OUT_OF_SERVICE", true},
		{"UP", "UP", false},
		{"DOWN", "DOWN", false},
	} {
		expect.Equal(t, inService(row.status, row.forced) != nil, row.waits, "%s, forced to %q: waited for:", row.status, row.forced)
	}
}

func TestDrainAsksNodesAsTheUserOfTheServersURL(t *testing.T) {
	var user string
	c, err := New(Config{Servers: []string{"http://anna:secret@a"}, HTTPClient: &http.Client{Transport: servers{
		"b": func(r *http.Request) (*http.Response, error) {
			user, _, _ = r.BasicAuth()
			return answered(200, "[]")
		},
	}}})
	need.OK(t, err)
	i, err := c.shownAt(t.Context(), NodeStatus{ID: "n2", HTTP: "b"}, key)
	expect.That(t, i == nil && err == nil && user == "anna", "asked as %q, got %v, %v, want anna", user, i, err)
}

// TestDrainNamesTheNodeThatIsDead: there is no address to ask it at.
func TestDrainNamesTheNodeThatIsDead(t *testing.T) {
	registered(t, "", func(t *testing.T, s *registrar) {
		r := s.register(t, sleeping)
		synctest.Wait()
		s.does(http.MethodGet, func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/v1/rollcall/status" {
				return answered(200, `{"nodes":[{"id":"n1","http":"a"},{"id":"n2","cluster":"b:7761","role":"unreachable"}]}`)
			}
			return answered(200, `[]`)
		})
		expect.ErrorSays(t, r.Drain(within(t, time.Second), 0), "n2 (b:7761): it is unreachable", "Drain:")
	})
}
