package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

// wantHolders checks that the list of the semaphore has exactly these.
func wantHolders(t *testing.T, k *coordinator, limit int, held ...*Held) {
	t.Helper()
	want := holdersList{Limit: limit, Holders: make(map[string]bool)}
	for _, h := range held {
		want.Holders[h.Session()] = true
	}
	var got holdersList
	err := json.Unmarshal(k.pair("semaphore/demo/.lock").Value, &got)
	expect.That(t, err == nil && got.Limit == limit && maps.Equal(got.Holders, want.Holders), "the list is %+v, %v, want %+v", got, err, want)
}

// wantGone checks that no session is left, and no keys but these.
func wantGone(t *testing.T, k *coordinator, keys ...string) {
	t.Helper()
	sessions, _, _ := k.leftovers()
	names := k.keys()
	expect.That(t, sessions == 0 && slices.Equal(names, keys), "%d sessions and the keys %q are left, want no session and %q", sessions, names, keys)
}

// wantStamp checks that a value says what was done and when.
func wantStamp(t *testing.T, e Pair, what string) {
	t.Helper()
	stamp, found := strings.CutPrefix(string(e.Value), what+":")
	at, err := time.Parse(time.RFC3339, stamp)
	expect.That(t, found && err == nil && time.Since(at) <= time.Second, "the value is %q, want %s: and the time", e.Value, what)
}

func TestRecipeLockIsAKeyAsConsulsClientsHaveIt(t *testing.T) {
	coordinated(t, "", func(t *testing.T, k *coordinator, c *Client) {
		h := recipeOf(t, c, 0)
		time.Sleep(time.Hour)
		e := k.pair("lock/demo")
		expect.That(t, e.Session == h.Session() && e.Flags == 0x2ddccbc058a50c18 && h.Err() == nil,
			"after an hour: %+v, %v, want it held by session %s with the flags of a lock", e, h.Err(), h.Session())
		expect.That(t, strings.HasPrefix(string(e.Value), "lock:2000-01-01T00:00:00Z"),
			"the value is %q, want lock: and the time of the acquisition", e.Value)
		expect.Equal(t, h.Fence(), kv.Fence{Kind: kv.Key, Name: "lock/demo", Index: kv.Index(e.Fence)}, "the key's fence:")
		wantReleased(t, h)
		wantStamp(t, k.pair("lock/demo"), "unlock")
		wantGone(t, k, "lock/demo")
	})
}

func TestRecipeSemaphoreIsTheKeysAsConsulsClientsHaveThem(t *testing.T) {
	coordinated(t, "", func(t *testing.T, k *coordinator, c *Client) {
		h := recipeOf(t, c, 3)
		contender, list := k.pair("semaphore/demo/"+h.Session()), k.pair("semaphore/demo/.lock")
		expect.That(t, contender.Session == h.Session() && contender.Flags == 0xe0f69a2baa414de0 && list.Flags == 0xe0f69a2baa414de0 && list.Session == "",
			"the contender's key is %+v, and the list %+v, want the first held, and the flags of a semaphore on both", contender, list)
		expect.Equal(t, string(list.Value), fmt.Sprintf(`{"Limit":3,"Holders":{%q:true}}`, h.Session()), "the list is")
		expect.Equal(t, h.Fence(), kv.Fence{Kind: kv.Key, Name: contender.Key, Index: kv.Index(contender.Fence)}, "the fence of the contender's key:")
		expect.Equal(t, k.request.Behavior, "delete", "the session's behavior, so that a dead contender's key goes with it, is")
		wantReleased(t, h)
		wantHolders(t, k, 3)
		expect.Equal(t, k.count("DELETE /v1/kv/"+contender.Key), 1, "how often the contender's key was deleted before its session ended:")
		wantGone(t, k, "semaphore/demo/.lock")
	})
}

// No server says when it is over.
func TestRecipeWaitsForALockDelayWithPauses(t *testing.T) {
	coordinated(t, "", func(t *testing.T, k *coordinator, c *Client) {
		first := recipeOf(t, c, 0)
		time.AfterFunc(time.Minute, func() { k.expireSession(first.Session()) })
		start, before := time.Now(), k.count("PUT /v1/kv/lock/demo")
		second := recipeOf(t, c, 0)
		waited := time.Since(start) - time.Minute
		expect.That(t, waited >= DefaultLockDelay && waited <= DefaultLockDelay+2*lockDelayPause,
			"acquired %v after the holder's end, want after its lock delay of %v, within a pause", waited, DefaultLockDelay)
		tries := k.count("PUT /v1/kv/lock/demo") - before
		expect.That(t, tries <= 16, "tried %d times, want once a second at most", tries)
		expect.ErrorIs(t, first.Release(t.Context()), ErrLost, "release of the lost lock:")
		wantReleased(t, second)
	})
}

// Another session acquired the key first, and released it before this one looks why.
func TestRecipeTakesAQuickerContenderForNoLockDelay(t *testing.T) {
	coordinated(t, "", func(t *testing.T, k *coordinator, c *Client) {
		var tries atomic.Int32
		k.setFault(func(r *http.Request) (*http.Response, error) {
			switch tries.Add(1) {
			case 3: // after the creation of the session and a look
				k.perform(kv.CreateSession{ID: "quicker"})
				k.perform(kv.KeyOp{Verb: kv.Acquire, Key: "lock/demo", Session: "quicker", Flags: uint64(lockFlags)})
			case 4:
				k.releaseKey("lock/demo", "quicker")
			}
			return nil, nil
		})
		start := time.Now()
		h := recipeOf(t, c, 0)
		waited := time.Since(start)
		expect.That(t, waited <= 0 && tries.Load() >= 5, "acquired after %v, with %d requests, want at once by a second write", waited, tries.Load())
		k.setFault(nil)
		wantReleased(t, h)
	})
}

func TestRecipeTryDoesNotWait(t *testing.T) {
	for _, tc := range []struct {
		name  string
		limit int
		held  bool
		says  string
	}{
		{name: "a lock that is held", held: true, says: "session %s"},
		{name: "a lock that is delayed", says: "no session until a lock-delay is over"},
		{name: "a semaphore that is full", limit: 1, held: true, says: "sessions %s"},
	} {
		coordinated(t, tc.name, func(t *testing.T, k *coordinator, c *Client) {
			first := recipeOf(t, c, tc.limit)
			if !tc.held {
				k.expireSession(first.Session())
			}
			start := time.Now()
			_, err := byRecipe(t.Context(), c, tc.limit, LockOptions{Try: true})
			expect.That(t, errors.Is(err, ErrNotAcquired) && strings.Contains(err.Error(), strings.ReplaceAll(tc.says, "%s", k.id(1))) && time.Since(start) <= 0,
				"got %v after %v, want %v and %q at once", err, time.Since(start), ErrNotAcquired, tc.says)
			sessions, _, _ := k.leftovers()
			expect.That(t, !slices.Contains(k.keys(), "semaphore/demo/"+k.id(2)) && sessions <= 1,
				"the one that tried left %q and %d sessions", k.keys(), sessions)
			first.Release(t.Context())
		})
	}
}

func TestRecipeKeyOfOtherUseIsAConflict(t *testing.T) {
	for _, tc := range []struct {
		name       string
		limit      int
		key, value string
		flags      uint64
		want       error
	}{
		{name: "a lock's key without flags", key: "lock/demo", want: ErrKeyConflict},
		{name: "a lock's key with a semaphore's flags", key: "lock/demo", flags: semaphoreFlags, want: ErrKeyConflict},
		{name: "a list with a lock's flags", limit: 2, key: "semaphore/demo/.lock", value: `{"Limit":2}`, flags: lockFlags, want: ErrKeyConflict},
		{name: "not a list", limit: 2, key: "semaphore/demo/.lock", value: `{"Holders":["s1"]}`, flags: semaphoreFlags, want: ErrKeyConflict},
		{name: "an empty list", limit: 2, key: "semaphore/demo/.lock", flags: semaphoreFlags},
		{name: "another limit, and no session holds or waits", limit: 2, key: "semaphore/demo/.lock", value: `{"Limit":3,"Holders":{"dead":true}}`, flags: semaphoreFlags},
	} {
		coordinated(t, tc.name, func(t *testing.T, k *coordinator, c *Client) {
			k.setKey(tc.key, tc.value, tc.flags)
			h, err := byRecipe(t.Context(), c, tc.limit, LockOptions{})
			expect.ErrorIs(t, err, tc.want, "got")
			if err == nil {
				wantHolders(t, k, tc.limit, h)
				wantReleased(t, h)
			}
			wantGone(t, k, tc.key)
		})
	}
}

func TestRecipeLimitStaysWhileASessionHoldsOrWaits(t *testing.T) {
	coordinated(t, "", func(t *testing.T, k *coordinator, c *Client) {
		first := recipeOf(t, c, 1)
		expect.ErrorIs(t, expect.Err(byRecipe(t.Context(), c, 2, LockOptions{})), ErrLimit, "got")
		wantReleased(t, first)
		another := recipeOf(t, c, 2)
		wantHolders(t, k, 2, another)
		wantReleased(t, another)
	})
}

// The session has ended, and its contender's key with it.
func TestRecipePermitOfTheDeadGoesToTheNextContender(t *testing.T) {
	coordinated(t, "", func(t *testing.T, k *coordinator, c *Client) {
		first, second := recipeOf(t, c, 2), recipeOf(t, c, 2)
		start := time.Now()
		time.AfterFunc(time.Minute, func() { k.expireSession(first.Session()) })
		third := recipeOf(t, c, 2)
		waited := time.Since(start)
		expect.That(t, waited >= time.Minute && waited <= time.Minute+time.Second,
			"waited %v, want until the session of a holder ended after a minute", waited)
		wantHolders(t, k, 2, second, third)
		expect.ErrorIs(t, first.Release(t.Context()), ErrLost, "release of the lost permit:")
		wantHolders(t, k, 2, second, third)
		wantReleased(t, second, third)
		wantGone(t, k, "semaphore/demo/.lock")
	})
}

// Any client may write or delete keys.
func TestRecipeLockIsLostWhenItsKeysSaySo(t *testing.T) {
	for _, tc := range []struct {
		name  string
		limit int
		harm  func(k *coordinator, h *Held)
		says  error
	}{
		{name: "the key was deleted", harm: func(k *coordinator, _ *Held) { k.deleteKey("lock/demo") }, says: errKeyLost},
		{name: "the key was released by hand", harm: func(k *coordinator, h *Held) { k.releaseKey("lock/demo", h.Session()) }, says: errKeyLost},
		{name: "the list was deleted", limit: 2, harm: func(k *coordinator, _ *Held) { k.deleteKey("semaphore/demo/.lock") }, says: errPruned},
		{name: "the list lacks it", limit: 2, harm: func(k *coordinator, _ *Held) { k.setKey("semaphore/demo/.lock", `{"Limit":2}`, semaphoreFlags) }, says: errPruned},
		{name: "no list any more", limit: 2, harm: func(k *coordinator, _ *Held) { k.setKey("semaphore/demo/.lock", "x", semaphoreFlags) }, says: ErrKeyConflict},
		{name: "the contender's key was deleted", limit: 2, harm: func(k *coordinator, h *Held) { k.deleteKey("semaphore/demo/" + h.Session()) }, says: errPruned},
	} {
		coordinated(t, tc.name, func(t *testing.T, k *coordinator, c *Client) {
			h := recipeOf(t, c, tc.limit)
			time.Sleep(time.Minute)
			tc.harm(k, h)
			synctest.Wait()
			err := h.Err()
			expect.That(t, errors.Is(err, ErrLost) && errors.Is(err, tc.says) && h.Context().Err() != nil,
				"got %v, want %v and %v at once", err, ErrLost, tc.says)
			expect.ErrorIs(t, h.Release(t.Context()), ErrLost, "release:")
			expect.Equal(t, lossesOf(c, kindOf(h)), 1, "losses counted")
		})
	}
}

// Contenders get their responses late, so that they hinder each other, and some are killed.
func TestRecipeHoldersAreNeverMoreThanTheLimit(t *testing.T) {
	for _, limit := range []int{0, 1, 3} {
		fake.InBubble(t, fmt.Sprintf("limit %d", limit), func(t *testing.T) {
			const contenders, turns = 8, 6
			k := newCoordinator(t)
			late := func(r *http.Request) (*http.Response, error) {
				time.Sleep(rand.N(20 * time.Millisecond))
				resp, err := k.respond(r)
				time.Sleep(rand.N(20 * time.Millisecond))
				return resp, err
			}
			c := clientOf(t, fake.Servers{"a": late}, "a")
			var inside atomic.Int64
			done := make(chan struct{})
			for range contenders {
				go func() {
					defer func() { done <- struct{}{} }()
					for turn := range turns {
						h := recipeOf(t, c, limit)
						n := inside.Add(1)
						expect.That(t, n <= max(int64(limit), 1), "%d hold it at a time", n)
						time.Sleep(time.Second)
						inside.Add(-1)
						if turn == 2 {
							k.expireSession(h.Session())
							h.Release(t.Context())
							continue
						}
						wantReleased(t, h)
					}
				}()
			}
			for range contenders {
				<-done
			}
			if limit > 0 {
				wantHolders(t, k, limit)
			}
			wantGone(t, k, map[bool]string{true: "semaphore/demo/.lock", false: "lock/demo"}[limit > 0])
		})
	}
}

// The server says so when the waiter writes.
func TestRecipeWaiterWhoseSessionEndsComesBackWithAnother(t *testing.T) {
	for _, limit := range []int{0, 1} {
		coordinated(t, fmt.Sprintf("limit %d", limit), func(t *testing.T, k *coordinator, c *Client) {
			killed := false
			k.setFault(func(r *http.Request) (*http.Response, error) {
				first := k.id(1)
				if first != "" && strings.Contains(r.URL.RawQuery, "acquire="+first) && !killed {
					killed = true
					k.expireSession(first)
				}
				return nil, nil
			})
			start := time.Now()
			h := recipeOf(t, c, limit)
			expect.That(t, h.Session() == k.id(2) && time.Since(start) < DefaultSessionTTL/3,
				"acquired by session %s after %v, want by the second one, before any renewal", h.Session(), time.Since(start))
			wantReleased(t, h)
		})
	}
}

// An outage that ends the session makes a few lines in the log and not one per try, and so does the next.
func TestRecipeWaiterLogsAnOutageOnce(t *testing.T) {
	for _, recipe := range []bool{false, true} {
		coordinated(t, fmt.Sprintf("recipe %v", recipe), func(t *testing.T, k *coordinator, c *Client) {
			o := LockOptions{Name: "demo", Recipe: recipe}
			first := need.Got(c.AcquireLock(t.Context(), o))(t)
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
				h, err := waiter.AcquireLock(t.Context(), o)
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
}

// A client that accepts old data must not base a lock on it.
func TestRecipeReadsAtLinearizableConsistency(t *testing.T) {
	// complains about reads that are not linearizable
	coordinated(t, "", func(t *testing.T, k *coordinator, c *Client) {
		for _, consistency := range []string{"", "stale", "leader"} {
			c := need.Got(New(Config{Servers: []string{"http://a"}, Consistency: consistency, HTTPClient: &http.Client{Transport: fake.Servers{"a": k.respond}}}))(t)
			wantReleased(t, recipeOf(t, c, 0))
			wantReleased(t, recipeOf(t, c, 2))
		}
	})
}

// Without it the others take it for dead.
func TestRecipeContenderWhoseKeyWasDeletedContendsAgain(t *testing.T) {
	coordinated(t, "", func(t *testing.T, k *coordinator, c *Client) {
		first := recipeOf(t, c, 1)
		time.AfterFunc(time.Minute, func() { k.deleteKey("semaphore/demo/" + k.id(2)) })
		time.AfterFunc(time.Hour, func() { first.Release(context.Background()) })
		second := recipeOf(t, c, 1)
		if e := k.pair("semaphore/demo/" + k.id(2)); e.Session != k.id(2) || kv.Index(e.Fence) != second.Fence().Index {
			t.Errorf("the key is %+v, want it held again, with the token %d", e, second.Fence().Index)
		}
		wantReleased(t, second)
	})
}
