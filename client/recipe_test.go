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
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func wantReleased(t *testing.T, held ...*Held) {
	t.Helper()
	for _, h := range held {
		expect.OK(t, h.Release(t.Context()))
	}
}

// wantHolders expects these in the list of the semaphore.
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

// wantGone expects that no session is left, and of keys only these.
func wantGone(t *testing.T, k *coordinator, keys ...string) {
	t.Helper()
	sessions, _, _ := k.leftovers()
	names := k.keys()
	expect.That(t, sessions == 0 && slices.Equal(names, keys), "%d sessions and the keys %q are left, want no session and %q", sessions, names, keys)
}

// wantStamp expects a value that says what was done and when.
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
		expect.Equal(t, h.Fence(), kv.Fence{Kind: kv.Key, Name: "lock/demo", Index: kv.Index(e.Fence)}, "the fence is that of the key:")
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
		expect.Equal(t, h.Fence(), kv.Fence{Kind: kv.Key, Name: contender.Key, Index: kv.Index(contender.Fence)}, "the fence is that of the contender's key:")
		expect.Equal(t, k.request.Behavior, "delete", "the session's behavior, so that a dead contender's key goes with it, is")
		wantReleased(t, h)
		wantHolders(t, k, 3)
		expect.Equal(t, k.count("DELETE /v1/kv/"+contender.Key), 1, "how often the contender's key was deleted before its session ended:")
		wantGone(t, k, "semaphore/demo/.lock")
	})
}

// TestRecipeWaitsForALockDelayWithPauses: no server says when it is over.
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

// TestRecipeTakesAQuickerContenderForNoLockDelay: another session has acquired the key before, and released it when
// this one looks why.
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
		if waited := time.Since(start); waited > 0 || tries.Load() < 5 {
			t.Errorf("acquired after %v, with %d requests, want at once by a second write", waited, tries.Load())
		}
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
		{name: "a list that is none", limit: 2, key: "semaphore/demo/.lock", value: `{"Holders":["s1"]}`, flags: semaphoreFlags, want: ErrKeyConflict},
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

// TestRecipePermitOfTheDeadGoesToTheNextContender: the session has ended, and its contender's key with it.
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

// TestRecipeLockIsLostWhenItsKeysSaySo: any client may write or delete keys.
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
		{name: "the list is none", limit: 2, harm: func(k *coordinator, _ *Held) { k.setKey("semaphore/demo/.lock", "x", semaphoreFlags) }, says: ErrKeyConflict},
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

// TestRecipeHoldersAreNeverMoreThanTheLimit has contenders that get their responses late, so that they are in each
// other's way, some of whom are killed.
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

// TestRecipeWaiterWhoseSessionEndsComesBackWithAnother: the server says so when it writes.
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

// TestRecipeWaiterLogsAnOutageOnce: an outage that takes the session with it is a few lines in the log
// and not one for each try, and so is the next.
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

// TestRecipeReadsAtLinearizableConsistency: a client that is content with old data must not lock by them.
func TestRecipeReadsAtLinearizableConsistency(t *testing.T) {
	coordinated(t, "", func(t *testing.T, k *coordinator, c *Client) { // complains of reads that are not linearizable
		for _, consistency := range []string{"", "stale", "leader"} {
			c := need.Got(New(Config{Servers: []string{"http://a"}, Consistency: consistency, HTTPClient: &http.Client{Transport: fake.Servers{"a": k.respond}}}))(t)
			wantReleased(t, recipeOf(t, c, 0))
			wantReleased(t, recipeOf(t, c, 2))
		}
	})
}

// TestRecipeContenderWhoseKeyWasDeletedContendsAgain: without it the others take it for dead.
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
