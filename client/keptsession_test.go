package client

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/client/internal/fake"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func keptOf(t *testing.T, c *Client) *KeptSession {
	t.Helper()
	return need.Got(c.KeepSession(t.Context(), SessionOptions{Name: "demo", TTL: 30 * time.Second}))(t)
}

// renewalTimes notes when renewals are sent, since it was made, and passes requests on.
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
		expect.That(t, s.ID() == "s1" && s.Err() == nil && s.Context().Err() == nil, "session %s: %v, want s1 kept", s.ID(), s.Err())
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
			expect.Equal(t, k.count("PUT /v1/rollcall/sessions/s1/renew"), 0, "renewals after its end:")
			expect.That(t, len(c.parts) == 0, "the client still has %d parts, want none", len(c.parts))
			expect.Equal(t, lossesOf(c, "session"), 0, "losses counted")
		})
	}
}

func TestKeptSessionThatWasEndedByAnotherClientIsLost(t *testing.T) {
	coordinated(t, "", func(t *testing.T, k *coordinator, c *Client) {
		s := keptOf(t, c)
		k.destroy(s.ID())
		expect.ErrorIs(t, s.Close(t.Context()), ErrLost, "close:")
		expect.Equal(t, lossesOf(c, "session"), 1, "losses counted")
	})
}

// TestKeptSessionsSecondCloseWaitsForTheFirst, for as long as its context lasts.
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
