package client

import (
	"context"
	"errors"
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
		ctx := fake.Within(t, time.Second)
		expect.ErrorSays(t, r.stop(ctx), "heartbeats of ORDERS/orders-1", "while one does not end in time:")
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
