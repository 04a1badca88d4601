package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/seed-20419f34/rollcall/client/internal/fake"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// demo is the lock or the semaphore that is called demo.
type demo struct {
	name  string
	limit int // of a semaphore; 0: it is a lock
}

var demos = []demo{
	{name: "a lock"},
	{name: "a permit", limit: 1},
}

func (d demo) acquire(ctx context.Context, c *Client, o LockOptions) (*Held, error) {
	o.Name = "demo"
	if d.limit > 0 {
		return c.AcquireSemaphore(ctx, SemaphoreOptions{LockOptions: o, Limit: d.limit})
	}
	return c.AcquireLock(ctx, o)
}

func (d demo) of(t *testing.T, c *Client) *Held {
	t.Helper()
	return need.Got(d.acquire(t.Context(), c, LockOptions{}))(t)
}

func everyDemo(t *testing.T, test func(t *testing.T, k *coordinator, c *Client, d demo)) {
	for _, d := range demos {
		coordinated(t, d.name, func(t *testing.T, k *coordinator, c *Client) { test(t, k, c, d) })
	}
}

// holding is a lock, a permit or a session that is kept.
type holding interface {
	Err() error
	Context() context.Context
}

// holdings has what a client can hold, and how to acquire it.
var holdings = func() map[string]func(context.Context, *Client) (holding, error) {
	all := map[string]func(context.Context, *Client) (holding, error){
		"a session": func(ctx context.Context, c *Client) (holding, error) { return c.KeepSession(ctx, SessionOptions{}) },
	}
	for _, d := range demos {
		all[d.name] = func(ctx context.Context, c *Client) (holding, error) { return d.acquire(ctx, c, LockOptions{}) }
	}
	return all
}()

func kindOf(h holding) string {
	if held, ok := h.(*Held); ok {
		return kindName(held.permit.kind)
	}
	return "session"
}

func giveUp(ctx context.Context, h holding) error {
	if s, ok := h.(*KeptSession); ok {
		return s.Close(ctx)
	}
	return h.(*Held).Release(ctx)
}

func TestLockWaitsForItsHolder(t *testing.T) {
	everyDemo(t, func(t *testing.T, k *coordinator, c *Client, d demo) {
		first := d.of(t, c)
		time.AfterFunc(15*time.Minute, func() { first.Release(context.Background()) })
		start := time.Now()
		second := d.of(t, c)
		waited := time.Since(start)
		expect.That(t, waited >= 15*time.Minute && waited <= 15*time.Minute+time.Second, "waited %v, want a quarter of an hour", waited)
		expect.That(t, !first.Valid() && second.Fence().Index > first.Fence().Index,
			"first valid %v with token %d, second has token %d", first.Valid(), first.Fence().Index, second.Fence().Index)
		asked := slices.DeleteFunc(k.requests(), func(call string) bool { return strings.HasSuffix(call, "/renew") })
		// A holder and a waiter, with a request a minute each.
		expect.That(t, len(asked) <= 50, "%d requests in a quarter of an hour, want once a minute and waiter", len(asked))
		wantReleased(t, second)
	})
}

func TestLockWaiterThatGivesUpLeavesNothingBehind(t *testing.T) {
	for _, tc := range []struct {
		name string
		try  bool
		want error
	}{
		{name: "a try", try: true, want: ErrNotAcquired},
		{name: "whose time is up", want: context.DeadlineExceeded},
	} {
		t.Run(tc.name, func(t *testing.T) {
			everyDemo(t, func(t *testing.T, k *coordinator, c *Client, d demo) {
				first := d.of(t, c)
				_, before, _ := k.leftovers()
				expect.ErrorIs(t, expect.Err(d.acquire(fake.Within(t, 40*time.Second), c, LockOptions{Try: tc.try})), tc.want, "got")
				sessions, holders, waiters := k.leftovers()
				expect.That(t, sessions == 1 && holders == before && waiters == 0,
					"%d sessions, %d holders and %d waiters are left, want the first's", sessions, holders, waiters)
				wantReleased(t, first)
			})
		})
	}
}

func TestLockWaiterTurnsAwayFromAServerThatFellSilent(t *testing.T) {
	everyDemo(t, func(t *testing.T, k *coordinator, _ *Client, d demo) {
		var down atomic.Bool
		a := func(r *http.Request) (*http.Response, error) {
			if down.Load() {
				return fake.Silent(r)
			}
			resp, err := k.respond(r)
			if down.Load() {
				return fake.Silent(r)
			}
			return resp, err
		}
		first := d.of(t, clientOf(t, fake.Servers{"b": k.respond}, "b"))
		time.AfterFunc(time.Second, func() { down.Store(true) })
		time.AfterFunc(30*time.Second, func() { first.Release(context.Background()) })
		start := time.Now()
		second := d.of(t, clientOf(t, fake.Servers{"a": a, "b": k.respond}, "a", "b"))
		waited := time.Since(start)
		expect.That(t, waited <= 31*time.Second, "waited %v, want as long as the first held it", waited)
		wantReleased(t, second)
	})
}

// The server is silent about the wait, and answers a renewal that the session has ended.
func TestLockWaitEndsWithItsSession(t *testing.T) {
	everyDemo(t, func(t *testing.T, k *coordinator, c *Client, d demo) {
		first := d.of(t, c)
		k.setFault(func(r *http.Request) (*http.Response, error) {
			if r.URL.Query().Has("wait") && k.id(3) == "" {
				return fake.Silent(r)
			}
			return nil, nil
		})
		time.AfterFunc(time.Second, func() { k.expireSession(k.id(2)) })
		time.AfterFunc(6*time.Second, func() { first.Release(context.Background()) })
		start := time.Now()
		second := d.of(t, c)
		expect.That(t, second.Session() == k.id(3) && time.Since(start) <= 8*time.Second,
			"acquired %+v after %v, want it by a third session, when the renewal after 5 s was answered", second, time.Since(start))
		wantReleased(t, second)
	})
}

// It loses the response to each write in turn, from one server or from two.
func TestLockOutlivesLostResponses(t *testing.T) {
	for _, d := range demos {
		for _, hosts := range [][]string{{"a"}, {"a", "b"}} {
			for n := range 10 {
				coordinated(t, fmt.Sprintf("write %d of %s at %d servers", n+1, d.name, len(hosts)), func(t *testing.T, k *coordinator, _ *Client) {
					writes := 0
					k.losesResponse = func(r *http.Request) bool {
						if r.Method != "GET" {
							writes++
						}
						return r.Method != "GET" && writes == n+1
					}
					h := d.of(t, clientOf(t, fake.Servers{"a": k.respond, "b": k.respond}, hosts...))
					expect.That(t, h.Fence().Index == k.fence(), "token %d, want %d, by another request of the same session", h.Fence().Index, k.fence())
					wantReleased(t, h)
					time.Sleep(time.Hour) // for the session whose creation was not heard of
					sessions, holders, _ := k.leftovers()
					expect.That(t, sessions <= 1 && holders == 0, "%d sessions and %d holders are left", sessions, holders)
				})
			}
		}
	}
}

func TestHeldIsLostOneTTLAfterTheLastRenewalWasSent(t *testing.T) {
	for _, tc := range []struct {
		name   string
		refuse func(*http.Request) (*http.Response, error)
		want   time.Duration
		says   error
	}{
		{name: "no server is there", refuse: fake.Unreachable, want: 20 * time.Second, says: errNotRenewed},
		{name: "servers are silent", refuse: fake.Silent, want: 20 * time.Second, says: errNotRenewed},
		{name: "no leader is there", refuse: fake.Always(503, ""), want: 20 * time.Second, says: errNotRenewed},
		{name: "the outcome is unknown", refuse: fake.Always(504, "", "X-Rollcall-Outcome", "unknown"), want: 20 * time.Second, says: errNotRenewed},
		{name: "the session is gone", refuse: fake.Always(404, `{"error":"no such session"}`), want: 10 * time.Second, says: ErrNoSession},
	} {
		for what, acquire := range holdings {
			coordinated(t, what+": "+tc.name, func(t *testing.T, k *coordinator, _ *Client) {
				c := clientOf(t, fake.Servers{"a": k.respond, "b": k.respond}, "a", "b")
				start := time.Now()
				h := need.Got(acquire(t.Context(), c))(t)
				time.AfterFunc(6*time.Second, func() { k.setFault(tc.refuse) })
				<-h.Context().Done()
				expect.Equal(t, time.Since(start), tc.want, "lost after")
				for _, err := range []error{h.Err(), context.Cause(h.Context())} {
					expect.That(t, errors.Is(err, ErrLost) && errors.Is(err, tc.says), "got %v, want %v and %v", err, ErrLost, tc.says)
				}
				k.setFault(nil)
				for range 2 {
					expect.ErrorIs(t, giveUp(t.Context(), h), ErrLost, "giving it up:")
				}
				expect.Equal(t, lossesOf(c, kindOf(h)), 1, "losses counted")
				sessions, _, _ := k.leftovers()
				expect.That(t, sessions == 0, "the session is left, although it could be ended")
			})
		}
	}
}

func lossesOf(c *Client, kind string) float64 {
	return testutil.ToFloat64(c.metrics.lost.WithLabelValues(kind))
}

// Or when ctx ends, if that is earlier.
func TestReleaseWithoutServersEndsWhenTheSessionExpires(t *testing.T) {
	for _, tc := range []struct {
		name        string
		ctx, within time.Duration
	}{
		{name: "at the TTL", ctx: time.Hour, within: DefaultSessionTTL},
		{name: "at the context's end", ctx: time.Second, within: time.Second},
	} {
		for what, acquire := range holdings {
			coordinated(t, what+" "+tc.name, func(t *testing.T, k *coordinator, c *Client) {
				h := need.Got(acquire(t.Context(), c))(t)
				k.setFault(fake.Silent)
				start := time.Now()
				err := giveUp(fake.Within(t, tc.ctx), h)
				expect.That(t, err != nil && !errors.Is(err, ErrLost), "got %v, want an error: no server was reached", err)
				expect.Equal(t, time.Since(start), tc.within, "took")
			})
		}
	}
}

// The server says so when it is given back.
func TestLockWhoseSessionWasEndedIsLost(t *testing.T) {
	coordinated(t, "", func(t *testing.T, s *coordinator, c *Client) {
		h := lockOf(t, c)
		s.expireSession(h.Session())
		for range 2 {
			expect.ErrorIs(t, h.Release(t.Context()), ErrLost, "release:")
		}
		expect.Equal(t, lossesOf(c, "lock"), 1, "losses counted")
		wantNobody(t, s)
	})
}

func TestNothingIsHeldByAClosedKeeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := need.Got(clientOf(t, fake.Servers{"a": newCoordinator(t).respond}, "a").newKeeper(t.Context(), SessionOptions{}))(t)
		held := &Held{keeper: k}
		need.OK(t, k.startHolding("lock", held))
		need.OK(t, k.close(t.Context(), ErrReleased))
		expect.ErrorIs(t, k.startHolding("lock", held), ErrReleased, "holding after its end:")
	})
}

func TestCloseGivesHeldLocksBack(t *testing.T) {
	for name, acquire := range holdings {
		// complains about a session that ends with what it holds
		coordinated(t, name, func(t *testing.T, k *coordinator, c *Client) {
			held := need.Got(acquire(t.Context(), c))(t)
			expect.OK(t, c.Close(t.Context()))
			wantNobody(t, k)
			err := held.Err()
			expect.That(t, errors.Is(err, ErrReleased) && errors.Is(err, ErrClosed), "it says %v, want %v because of %v", err, ErrReleased, ErrClosed)
			_, err = acquire(t.Context(), c)
			expect.That(t, errors.Is(err, ErrClosed) && k.id(2) == "", "after Close: %v, want %v, and no request", err, ErrClosed)
		})
	}
}

func TestCloseEndsTheWaitForALock(t *testing.T) {
	for name, acquire := range holdings {
		if name == "a session" {
			continue // no session waits for one
		}
		coordinated(t, name, func(t *testing.T, k *coordinator, _ *Client) {
			need.Got(acquire(t.Context(), clientOf(t, fake.Servers{"a": k.respond}, "a")))(t)
			second := clientOf(t, fake.Servers{"a": k.respond}, "a")
			waits := make(chan error, 1)
			go func() {
				_, err := acquire(t.Context(), second)
				waits <- err
			}()
			time.Sleep(time.Minute)
			start := time.Now()
			expect.OK(t, second.Close(t.Context()))
			if err := <-waits; !errors.Is(err, ErrClosed) || time.Since(start) > time.Second {
				t.Errorf("the waiter got %v after %v, want %v at once", err, time.Since(start), ErrClosed)
			}
			sessions, _, waiters := k.leftovers()
			expect.That(t, sessions == 1 && waiters == 0, "%d sessions and %d waiters are left, want the first holder's session", sessions, waiters)
			k.expireSession(k.id(1)) // the first holder's
			time.Sleep(time.Minute)
		})
	}
}

// Neither a holder nor a waiter keeps Close.
func TestCloseWithoutServersIsBounded(t *testing.T) {
	for name, acquire := range holdings {
		for when, before := range map[string]time.Duration{"held": time.Minute, "being acquired": 0} {
			coordinated(t, name+" "+when, func(t *testing.T, k *coordinator, c *Client) {
				if before == 0 {
					k.setFault(fake.Silent)
				}
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					held, err := acquire(t.Context(), c)
					expect.That(t, (err == nil) == (before > 0), "got %v, %v", held, err)
				}()
				time.Sleep(before)
				synctest.Wait()
				k.setFault(fake.Silent)
				start := time.Now()
				err := c.Close(fake.Within(t, 3*time.Second))
				if took := time.Since(start); took > 3*time.Second+closeGrace || err == nil && before > 0 {
					t.Errorf("took %v, and returned %v, want 3 s, and what could not be given back", took, err)
				}
				<-ended
			})
		}
	}
}

func TestCloseIgnoresALostLock(t *testing.T) {
	for name, acquire := range holdings {
		coordinated(t, name, func(t *testing.T, k *coordinator, c *Client) {
			held := need.Got(acquire(t.Context(), c))(t)
			k.expireSession(k.id(1))
			time.Sleep(time.Minute)
			expect.OKf(t, c.Close(t.Context()), "close, with nothing to give back")
			expect.ErrorIs(t, held.Err(), ErrLost, "it says")
		})
	}
}

// Close begins when the lock has just been acquired.
func TestCloseKeepsALockFromBeingHeld(t *testing.T) {
	coordinated(t, "", func(t *testing.T, k *coordinator, _ *Client) {
		closed := make(chan error, 1)
		var c *Client
		slow := func(r *http.Request) (*http.Response, error) {
			resp, err := k.respond(r)
			if strings.HasSuffix(r.URL.Path, "/locks/demo") && r.Method == "PUT" {
				go func() { closed <- c.Close(context.Background()) }()
				<-r.Context().Done()
			}
			return resp, err
		}
		c = clientOf(t, fake.Servers{"a": slow}, "a")
		expect.ErrorIs(t, expect.Err(c.AcquireLock(t.Context(), LockOptions{Name: "demo"})), ErrClosed, "got")
		expect.OK(t, <-closed)
		wantNobody(t, k)
	})
}

func keptOf(t *testing.T, c *Client) *KeptSession {
	t.Helper()
	return need.Got(c.KeepSession(t.Context(), SessionOptions{Name: "demo", TTL: 30 * time.Second}))(t)
}

// renewalTimes records when renewals are sent, counted from its call, and passes requests on.
func renewalTimes(next func(*http.Request) (*http.Response, error)) (func(*http.Request) (*http.Response, error), func() []time.Duration) {
	start := time.Now()
	var mu sync.Mutex
	var times []time.Duration
	return func(r *http.Request) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/renew") {
				mu.Lock()
				times = append(times, time.Since(start))
				mu.Unlock()
			}
			return next(r)
		}, func() []time.Duration {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(times)
		}
}

func TestKeptSessionIsRenewedEveryThirdOfItsTTLAndEveryTenthWhileThatFails(t *testing.T) {
	coordinated(t, "", func(t *testing.T, k *coordinator, _ *Client) {
		server, times := renewalTimes(k.respond)
		s := keptOf(t, clientOf(t, fake.Servers{"a": server}, "a"))
		time.Sleep(25 * time.Second)
		k.setFault(fake.Unreachable)
		time.Sleep(10 * time.Second)
		k.setFault(nil)
		time.Sleep(20 * time.Second)
		var want []time.Duration
		for _, s := range []time.Duration{10, 20, 30, 33, 36, 46} {
			want = append(want, s*time.Second)
		}
		expect.Slice(t, times(), want, "servers were away from 25 s to 35 s; renewed after")
		expect.That(t, s.ID() == k.id(1) && s.Err() == nil && s.Context().Err() == nil, "session %s: %v, want the first kept", s.ID(), s.Err())
		expect.OK(t, s.Close(t.Context()))
	})
}

func TestKeptSessionIsEndedOnceWhenItIsClosed(t *testing.T) {
	for name, mislay := range map[string]bool{"and its response arrives": false, "and its response is lost": true} {
		coordinated(t, name, func(t *testing.T, k *coordinator, c *Client) {
			k.losesResponse = func(r *http.Request) bool {
				first := mislay && r.Method == "DELETE"
				mislay = mislay && !first
				return first
			}
			s := keptOf(t, c)
			for range 2 {
				expect.OKf(t, s.Close(t.Context()), "close")
			}
			if sessions, _, _ := k.leftovers(); sessions != 0 || !errors.Is(s.Err(), ErrReleased) || !errors.Is(context.Cause(s.Context()), ErrReleased) {
				t.Errorf("%d sessions are left, and the session says %v, want none and %v", sessions, s.Err(), ErrReleased)
			}
			time.Sleep(time.Hour)
			expect.Equal(t, k.renewals(1), 0, "renewals after its end:")
			expect.That(t, len(c.parts) == 0, "the client still has %d parts, want none", len(c.parts))
			expect.Equal(t, lossesOf(c, "session"), 0, "losses counted")
		})
	}
}

func TestKeptSessionThatWasEndedByAnotherClientIsLost(t *testing.T) {
	coordinated(t, "", func(t *testing.T, k *coordinator, c *Client) {
		s := keptOf(t, c)
		k.expireSession(s.ID())
		expect.ErrorIs(t, s.Close(t.Context()), ErrLost, "close:")
		expect.Equal(t, lossesOf(c, "session"), 1, "losses counted")
	})
}

// For as long as its context lasts.
func TestKeptSessionsSecondCloseWaitsForTheFirst(t *testing.T) {
	coordinated(t, "", func(t *testing.T, k *coordinator, c *Client) {
		s := keptOf(t, c)
		k.setFault(func(*http.Request) (*http.Response, error) {
			time.Sleep(4 * time.Second)
			return nil, nil
		})
		go s.Close(t.Context())
		synctest.Wait()
		start := time.Now()
		ctx := fake.Within(t, time.Second)
		if err := s.Close(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("got %v after %v, want the context's end after 1 s", err, time.Since(start))
		}
		if err := s.Close(t.Context()); err != nil || time.Since(start) != 4*time.Second {
			t.Errorf("got %v after %v, want what the first returned after 4 s", err, time.Since(start))
		}
	})
}
