package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/client/internal/fake"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func lockOf(t *testing.T, c *Client) *Held {
	t.Helper()
	return need.Got(c.AcquireLock(t.Context(), LockOptions{Name: "demo", Value: []byte("me")}))(t)
}

func TestLockIsHeldUntilItIsReleased(t *testing.T) {
	coordinated(t, "", func(t *testing.T, s *coordinator, c *Client) {
		h := lockOf(t, c)
		time.Sleep(time.Hour)
		expect.That(t, h.Valid() && h.Err() == nil && h.Context().Err() == nil && h.Fence().Index == s.fence() && h.Fence().Name == "demo",
			"after an hour: valid %v, %v, fence %+v, want it held with token %d", h.Valid(), h.Err(), h.Fence(), s.fence())
		got := s.renewals(1)
		expect.That(t, got == 719 || got == 720, "renewed %d times in an hour, want once every 5 s", got)
		for range 2 {
			expect.OKf(t, h.Release(t.Context()), "release")
		}
		wantNobody(t, s)
		expect.That(t, !h.Valid() && errors.Is(h.Err(), ErrReleased) && errors.Is(context.Cause(h.Context()), ErrReleased),
			"after its release: valid %v, %v, want %v", h.Valid(), h.Err(), ErrReleased)
	})
}

// The responses of a slow server arrive when part of the TTL is over.
func TestLockTTLCountsFromWhenARenewalWasSent(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fails time.Duration // when renewals begin to fail
		want  time.Duration // when the lock is lost
	}{
		{name: "the creation", fails: 4 * time.Second, want: 15 * time.Second},
		// created at 0, answered at 1, renewed at 6
		{name: "a renewal", fails: 10 * time.Second, want: 21 * time.Second},
	} {
		coordinated(t, tc.name, func(t *testing.T, s *coordinator, _ *Client) {
			slow := func(r *http.Request) (*http.Response, error) {
				resp, err := s.respond(r)
				time.Sleep(time.Second)
				return resp, err
			}
			start := time.Now()
			h := lockOf(t, clientOf(t, fake.Servers{"a": slow}, "a"))
			time.AfterFunc(tc.fails-time.Since(start), func() { s.setFault(fake.Unreachable) })
			<-h.Context().Done()
			expect.Equal(t, time.Since(start), tc.want, "lost after")
			s.setFault(nil)
			h.Release(t.Context())
		})
	}
}

// It moves the deadline instead of the clock: no timer has run, as in a process that has just resumed.
func TestLockOfAPausedHolderIsLostAtTheFirstLook(t *testing.T) {
	for _, tc := range []struct {
		name string
		lost func(*Held) bool
	}{
		{name: "Valid", lost: func(h *Held) bool { return !h.Valid() }},
		{name: "Err", lost: func(h *Held) bool { return errors.Is(h.Err(), ErrLost) }},
		{name: "Release", lost: func(h *Held) bool {
			return errors.Is(h.Release(context.Background()), ErrLost) && errors.Is(h.Err(), ErrLost)
		}},
		{name: "the context's error", lost: func(h *Held) bool { return h.Context().Err() != nil }},
		{name: "the context's channel", lost: func(h *Held) bool {
			select {
			case <-h.Context().Done():
				return true
			default:
				return false
			}
		}},
	} {
		coordinated(t, tc.name, func(t *testing.T, s *coordinator, c *Client) {
			h := lockOf(t, c)
			h.keeper.mu.Lock()
			h.keeper.deadline = time.Now()
			h.keeper.mu.Unlock()
			expect.That(t, tc.lost(h), "it is held after its deadline")
			time.Sleep(time.Minute)
			expect.That(t, !h.Valid(), "it came back")
			expect.Equal(t, s.renewals(1), 0, "renewals of the lost session:")
			h.Release(t.Context())
		})
	}
}

func TestLockWaitEndsWithARefusal(t *testing.T) {
	for _, tc := range []struct {
		name   string
		refuse func(*http.Request) (*http.Response, error)
		says   string
	}{
		{name: "no coordination", refuse: fake.Always(501, `{"error":"needs consensus"}`), says: "needs consensus"},
		{name: "a bad request", refuse: fake.Always(400, `{"error":"the TTL is too short"}`), says: "the TTL is too short"},
	} {
		fake.InBubble(t, tc.name, func(t *testing.T) {
			c := clientOf(t, fake.Servers{"a": tc.refuse}, "a")
			expect.ErrorSays(t, expect.Err(c.AcquireLock(t.Context(), LockOptions{Name: "demo"})), tc.says, "got")
			lead := func(context.Context, *Held) error { return nil }
			expect.ErrorSays(t, c.Elect(t.Context(), LockOptions{Name: "demo"}, lead), tc.says, "Elect:")
		})
	}
	_, err := clientOf(t, fake.Servers{"a": fake.Unreachable}, "a").AcquireLock(t.Context(), LockOptions{Name: "demo", Try: true})
	expect.That(t, err != nil, "a try without servers came back without an error")
	_, err = clientOf(t, fake.Servers{"a": fake.Unreachable}, "a").AcquireLock(t.Context(), LockOptions{})
	expect.That(t, err != nil, "a lock without a name was acquired")
}

func TestSemaphoreHasAsManyHoldersAsItsLimit(t *testing.T) {
	coordinated(t, "", func(t *testing.T, _ *coordinator, c *Client) {
		permit := func(limit int) (*Held, error) {
			return c.AcquireSemaphore(t.Context(), SemaphoreOptions{Limit: limit, LockOptions: LockOptions{Name: "demo", Try: true}})
		}
		var held []*Held
		for range 2 {
			held = append(held, need.Got(permit(2))(t))
		}
		expect.ErrorIs(t, expect.Err(permit(2)), ErrNotAcquired, "the third got")
		expect.ErrorIs(t, expect.Err(permit(3)), ErrLimit, "with another limit:")
		expect.That(t, expect.Err(permit(0)) != nil, "a limit of 0 was taken")
		for _, h := range held {
			expect.OK(t, h.Release(t.Context()))
		}
	})
}

func TestLockSessionHasTheLocksNameAloneIfThatIsLong(t *testing.T) {
	long := permit{kind: kv.Lock, LockOptions: LockOptions{Name: strings.Repeat("x", 255)}}
	expect.Equal(t, long.sessionName(), long.Name, "the name is")
}

func TestLockSessionHasTheLocksOptions(t *testing.T) {
	for _, tc := range []struct {
		name    string
		options LockOptions
		want    api.SessionRequest
	}{
		{name: "defaults", want: api.SessionRequest{Name: `lock "demo"`, TTL: "15s", LockDelay: "15s", Behavior: "release"}},
		{name: "given", options: LockOptions{TTL: 3 * time.Second, LockDelay: time.Second}, want: api.SessionRequest{Name: `lock "demo"`, TTL: "3s", LockDelay: "1s", Behavior: "release"}},
		{name: "no lock delay", options: LockOptions{LockDelay: -1}, want: api.SessionRequest{Name: `lock "demo"`, TTL: "15s", LockDelay: "0s", Behavior: "release"}},
	} {
		coordinated(t, tc.name, func(t *testing.T, s *coordinator, c *Client) {
			tc.options.Name = "demo"
			h := need.Got(c.AcquireLock(t.Context(), tc.options))(t)
			expect.Equal(t, s.request, tc.want, "got")
			h.Release(t.Context())
		})
	}
}

var errLed = errors.New("led")

// electing takes part in the election called demo, and returns its result.
func electing(ctx context.Context, c *Client, lead func(context.Context, *Held) error) <-chan error {
	result := make(chan error, 1)
	go func() { result <- c.Elect(ctx, LockOptions{Name: "demo", LockDelay: -1}, lead) }()
	return result
}

func wantNobody(t *testing.T, k *coordinator) {
	t.Helper()
	sessions, holders, waiters := k.leftovers()
	expect.That(t, sessions+holders+waiters == 0, "%d sessions, %d holders and %d waiters are left, want none", sessions, holders, waiters)
}

func TestElectReturnsWhatLeadReturns(t *testing.T) {
	for _, want := range []error{nil, errLed} {
		coordinated(t, fmt.Sprint(want), func(t *testing.T, k *coordinator, c *Client) {
			type key struct{}
			ctx := context.WithValue(t.Context(), key{}, "mine")
			err := c.Elect(ctx, LockOptions{Name: "demo"}, func(ctx context.Context, h *Held) error {
				time.Sleep(time.Hour)
				expect.That(t, ctx.Err() == nil && h.Err() == nil && h.Fence().Index == k.fence() && ctx.Value(key{}) == "mine",
					"after an hour: %v, %v, token %d, value %v, want leadership with token %d", ctx.Err(), h.Err(), h.Fence().Index, ctx.Value(key{}), k.fence())
				return want
			})
			expect.Equal(t, err, want, "got")
			wantNobody(t, k)
			expect.That(t, len(c.parts) == 0, "the client still has %d parts", len(c.parts))
		})
	}
}

func TestElectHasOneLeaderAtATime(t *testing.T) {
	coordinated(t, "", func(t *testing.T, k *coordinator, c *Client) {
		leaders, terms := 0, 0 // the lock guards them
		lead := func(ctx context.Context, _ *Held) error {
			leaders++
			expect.That(t, leaders <= 1, "%d lead at a time", leaders)
			time.Sleep(time.Minute)
			leaders--
			terms++
			return nil
		}
		var results []<-chan error
		for range 4 {
			results = append(results, electing(t.Context(), c, lead))
		}
		for _, r := range results {
			expect.OK(t, <-r)
		}
		expect.That(t, terms == 4, "%d led, want each of 4", terms)
		wantNobody(t, k)
	})
}

// When lead has returned, and not before; until then nothing is given back.
func TestElectTakesPartAgainAfterALoss(t *testing.T) {
	coordinated(t, "", func(t *testing.T, k *coordinator, c *Client) {
		start := time.Now()
		var began, lost []time.Duration
		var tokens []uint64
		err := c.Elect(t.Context(), LockOptions{Name: "demo", LockDelay: -1}, func(ctx context.Context, h *Held) error {
			began = append(began, time.Since(start))
			tokens = append(tokens, uint64(h.Fence().Index))
			if len(began) == 3 {
				return errLed
			}
			time.AfterFunc(6*time.Second, func() { k.setFault(fake.Unreachable) })
			<-ctx.Done()
			lost = append(lost, time.Since(start))
			expect.ErrorIs(t, context.Cause(ctx), ErrLost, "the context ended because of")
			k.setFault(nil)
			given := k.count("DELETE /v1/rollcall/locks/demo")
			time.Sleep(time.Hour)
			expect.Equal(t, k.count("DELETE /v1/rollcall/locks/demo"), given, "how often it was given back before lead returned:")
			return nil
		})
		expect.That(t, err == errLed, "got %v, want what the third term returned", err)
		// Renewed at 5 s, and lost 15 s after that; lead takes an hour to return.
		expect.Slice(t, lost, []time.Duration{20 * time.Second, time.Hour + 40*time.Second}, "lost after")
		expect.Slice(t, began, []time.Duration{0, time.Hour + 20*time.Second, 2*time.Hour + 40*time.Second}, "terms began, at once when lead had returned, after")
		expect.That(t, slices.IsSorted(tokens) && len(slices.Compact(tokens)) == 3, "tokens are %v, want higher ones in each term", tokens)
		wantNobody(t, k)
	})
}

func TestElectEndsWithItsContext(t *testing.T) {
	for _, tc := range []struct {
		name string
		held bool // by another session
	}{
		{name: "while it leads"},
		{name: "while it waits", held: true},
	} {
		coordinated(t, tc.name, func(t *testing.T, k *coordinator, c *Client) {
			var other *Held
			if tc.held {
				other = lockOf(t, c)
			}
			why := errors.New("enough")
			ctx, cancel := context.WithCancelCause(t.Context())
			result := electing(ctx, c, func(ctx context.Context, h *Held) error {
				<-ctx.Done()
				if cause := context.Cause(ctx); cause != why || h.Err() != nil {
					t.Errorf("the context ended because of %v, and the lock says %v, want %v, and the lock still held", cause, h.Err(), why)
				}
				time.Sleep(time.Minute)
				expect.OKf(t, h.Err(), "before lead has returned")
				return errLed
			})
			time.Sleep(time.Minute)
			cancel(why)
			expect.OKf(t, <-result, "the context ended first, and Elect returned")
			if tc.held {
				wantReleased(t, other)
			}
			wantNobody(t, k)
		})
	}
}

// It ends at the moment when the lock is acquired.
func TestElectDoesNotLeadAfterItsContextHasEnded(t *testing.T) {
	coordinated(t, "", func(t *testing.T, _ *coordinator, c *Client) {
		ctx, cancel := context.WithCancel(t.Context())
		h := lockOf(t, c)
		cancel()
		expect.OKf(t, h.lead(ctx, func(context.Context, *Held) error { return errLed }), "it led")
		wantReleased(t, h)
	})
}

func TestElectEndsThePausedLeadersContextAtTheFirstLook(t *testing.T) {
	for name, look := range map[string]func(context.Context) bool{
		"Err": func(ctx context.Context) bool { return ctx.Err() != nil },
		"Done": func(ctx context.Context) bool {
			select {
			case <-ctx.Done():
				return true
			default:
				return false
			}
		},
	} {
		coordinated(t, name, func(t *testing.T, _ *coordinator, c *Client) {
			terms := 0
			err := c.Elect(t.Context(), LockOptions{Name: "demo", LockDelay: -1}, func(ctx context.Context, h *Held) error {
				if terms++; terms == 2 {
					return nil
				}
				h.keeper.mu.Lock()
				h.keeper.deadline = time.Now()
				h.keeper.mu.Unlock()
				expect.That(t, look(ctx) && errors.Is(context.Cause(ctx), ErrLost), "it leads after its deadline: %v", context.Cause(ctx))
				return nil
			})
			expect.That(t, err == nil && terms == 2, "got %v after %d terms, want another term after the lost one", err, terms)
		})
	}
}

func TestElectLeavesNoLockBehindAfterAPanicOfLead(t *testing.T) {
	coordinated(t, "", func(t *testing.T, k *coordinator, c *Client) {
		func() {
			defer func() {
				expect.Equal(t, recover(), "oops", "recovered")
			}()
			_ = c.Elect(t.Context(), LockOptions{Name: "demo"}, func(context.Context, *Held) error { panic("oops") })
		}()
		wantNobody(t, k)
		expect.OK(t, c.Close(t.Context()))
	})
}

// lead released the lock itself.
func TestElectDoesNotCountAResignationAsALoss(t *testing.T) {
	coordinated(t, "", func(t *testing.T, k *coordinator, c *Client) {
		err := c.Elect(t.Context(), LockOptions{Name: "demo"}, func(ctx context.Context, h *Held) error {
			wantReleased(t, h)
			expect.That(t, errors.Is(context.Cause(ctx), ErrReleased), "the context says %v, want %v", context.Cause(ctx), ErrReleased)
			return errLed
		})
		expect.That(t, err == errLed, "got %v, want what lead returned", err)
		wantNobody(t, k)
	})
}

// For as long as its context lasts: nothing is given back before lead has returned.
func TestCloseWaitsForLead(t *testing.T) {
	for _, tc := range []struct {
		name     string
		lasts    time.Duration // how long lead takes to return
		limit    time.Duration // of Close
		released bool          // the lock is given back in time
	}{
		{name: "lead returns in time", lasts: 3 * time.Second, limit: 10 * time.Second, released: true},
		{name: "lead does not return in time", lasts: 10 * time.Second, limit: 3 * time.Second},
	} {
		coordinated(t, tc.name, func(t *testing.T, k *coordinator, _ *Client) {
			var early bool
			returned := false
			c := clientOf(t, fake.Servers{"a": func(r *http.Request) (*http.Response, error) {
				early = early || r.Method == "DELETE" && !returned
				return k.respond(r)
			}}, "a")
			result := electing(t.Context(), c, func(ctx context.Context, h *Held) error {
				<-ctx.Done()
				expect.That(t, errors.Is(context.Cause(ctx), ErrClosed), "the context ended because of %v, want %v", context.Cause(ctx), ErrClosed)
				time.Sleep(tc.lasts)
				returned = true
				return errLed
			})
			time.Sleep(time.Minute)
			start := time.Now()
			err := c.Close(fake.Within(t, tc.limit))
			took, most := time.Since(start), min(tc.lasts, tc.limit)
			expect.That(t, took <= most+closeGrace && (err == nil) == tc.released, "took %v, and returned %v, want %v", took, err, most)
			if err := <-result; !errors.Is(err, ErrClosed) || early {
				t.Errorf("Elect returned %v, given back early %v, want %v", err, early, ErrClosed)
			}
			_, holders, _ := k.leftovers()
			expect.That(t, (holders == 0) == tc.released, "%d holders are left", holders)
		})
	}
}

func TestLeaderIsTheHolderOfTheLock(t *testing.T) {
	c := clientOf(t, fake.Servers{"a": fake.Always(200, `{"name":"demo","limit":1,"holders":[{"session":"s1","fence":4,"since":5,"value":"bWU="}]}`)}, "a")
	if h, err := c.Leader(t.Context(), "demo"); err != nil || h.Session != "s1" || h.Fence != 4 || string(h.Value) != "me" {
		t.Errorf("got %+v, %v, want the holder", h, err)
	}
	for name, server := range map[string]func(*http.Request) (*http.Response, error){
		"there never was a leader": fake.Always(404, `{"error":"nobody holds or waits for it"}`),
		"a lock delay is on":       fake.Always(200, `{"name":"demo","limit":1,"delays_ms":[100]}`),
	} {
		h, err := clientOf(t, fake.Servers{"a": server}, "a").Leader(t.Context(), "demo")
		expect.That(t, errors.Is(err, ErrNoLeader), "%s: %+v, %v, want %v", name, h, err, ErrNoLeader)
	}
	_, err := clientOf(t, fake.Servers{"a": fake.Unreachable}, "a").Leader(t.Context(), "demo")
	expect.That(t, err != nil && !errors.Is(err, ErrNoLeader), "without servers: %v, want an error of theirs", err)
}

func wantReleased(t *testing.T, held ...*Held) {
	t.Helper()
	for _, h := range held {
		expect.OK(t, h.Release(t.Context()))
	}
}

// TestWaiterLogsAnOutageOnce: an outage that takes the session with it is a few lines in the log
// and not one for each try, and so is the next.
func TestWaiterLogsAnOutageOnce(t *testing.T) {
	coordinated(t, "", func(t *testing.T, k *coordinator, c *Client) {
		first := lockOf(t, c)
		var down atomic.Bool
		waiter := clientOf(t, fake.Servers{"a": func(r *http.Request) (*http.Response, error) {
			if down.Load() {
				return fake.Unreachable(r)
			}
			return k.respond(r)
		}}, "a")
		var log logged
		waiter.log = slog.New(slog.NewTextHandler(&log, nil))
		second := make(chan error)
		go func() {
			h, err := waiter.AcquireLock(t.Context(), LockOptions{Name: "demo"})
			if err == nil {
				err = h.Release(t.Context())
			}
			second <- err
		}()
		for range 2 {
			time.Sleep(time.Minute)
			down.Store(true)
			time.Sleep(10 * time.Minute)
			down.Store(false)
		}
		time.Sleep(time.Minute)
		wantReleased(t, first)
		expect.OK(t, <-second)
		for _, message := range []string{"waiting was cut, trying again", "not acquired, trying again"} {
			n := strings.Count(log.String(), message)
			expect.That(t, n == 2, "%q is in the log %d times, want once per outage:\n%s", message, n, log.String())
		}
	})
}
