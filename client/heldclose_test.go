package client

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// holdings are what a client can hold, and how to acquire it.
var holdings = map[string]func(context.Context, *Client) (interface{ Err() error }, error){
	"a session": func(ctx context.Context, c *Client) (interface{ Err() error }, error) {
		return c.KeepSession(ctx, SessionOptions{})
	},
	"a lock": func(ctx context.Context, c *Client) (interface{ Err() error }, error) {
		return c.AcquireLock(ctx, LockOptions{Name: "demo"})
	},
	"a permit": func(ctx context.Context, c *Client) (interface{ Err() error }, error) {
		return c.AcquireSemaphore(ctx, SemaphoreOptions{LockOptions: LockOptions{Name: "demo"}, Limit: 1})
	},
	"a lock by recipe": func(ctx context.Context, c *Client) (interface{ Err() error }, error) {
		return byRecipe(ctx, c, 0, LockOptions{})
	},
	"a permit by recipe": func(ctx context.Context, c *Client) (interface{ Err() error }, error) {
		return byRecipe(ctx, c, 1, LockOptions{})
	},
}

func TestCloseGivesBackWhatIsHeld(t *testing.T) {
	for name, acquire := range holdings {
		coordinated(t, name, func(t *testing.T, k *coordinator, c *Client) { // complains of a session that ends with what it holds
			held := need.Got(acquire(t.Context(), c))(t)
			expect.OK(t, c.Close(t.Context()))
			sessions, holders, _ := k.left()
			expect.That(t, sessions+holders == 0, "%d sessions and %d holders are left", sessions, holders)
			err := held.Err()
			expect.That(t, errors.Is(err, ErrReleased) && errors.Is(err, ErrClosed), "it says %v, want %v because of %v", err, ErrReleased, ErrClosed)
			if _, err := acquire(t.Context(), c); !errors.Is(err, ErrClosed) || k.made != 1 {
				t.Errorf("after Close: %v, want %v, and no request", err, ErrClosed)
			}
		})
	}
}

func TestCloseEndsTheWaitForALock(t *testing.T) {
	for name, acquire := range holdings {
		if name == "a session" {
			continue // nobody waits for one
		}
		coordinated(t, name, func(t *testing.T, k *coordinator, _ *Client) {
			need.Got(acquire(t.Context(), servers{"a": k.answer}.client(t, "a")))(t)
			second := servers{"a": k.answer}.client(t, "a")
			waits := make(chan error, 1)
			go func() {
				_, err := acquire(t.Context(), second)
				waits <- err
			}()
			time.Sleep(time.Minute)
			start := time.Now()
			expect.OK(t, second.Close(t.Context()))
			if err := <-waits; !errors.Is(err, ErrClosed) || time.Since(start) > time.Second {
				t.Errorf("who waited got %v after %v, want %v at once", err, time.Since(start), ErrClosed)
			}
			sessions, _, waiters := k.left()
			expect.That(t, sessions == 1 && waiters == 0, "%d sessions and %d waiters are left, want the first holder's session", sessions, waiters)
			k.kill("s1") // the first holder's
			time.Sleep(time.Minute)
		})
	}
}

// TestCloseWithoutServersIsBounded: neither a holder nor one who waits keeps Close.
func TestCloseWithoutServersIsBounded(t *testing.T) {
	for name, acquire := range holdings {
		for when, before := range map[string]time.Duration{"held": time.Minute, "being acquired": 0} {
			coordinated(t, name+" "+when, func(t *testing.T, k *coordinator, c *Client) {
				if before == 0 {
					k.refusing(silent)
				}
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					held, err := acquire(t.Context(), c)
					expect.That(t, (err == nil) == (before > 0), "got %v, %v", held, err)
				}()
				time.Sleep(before)
				synctest.Wait()
				k.refusing(silent)
				start := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				err := c.Close(ctx)
				if took := time.Since(start); took > 3*time.Second+closeGrace || err == nil && before > 0 {
					t.Errorf("took %v, and returned %v, want 3 s, and what could not be told", took, err)
				}
				<-ended
			})
		}
	}
}

func TestALostLockIsNoErrorOfClose(t *testing.T) {
	for name, acquire := range holdings {
		coordinated(t, name, func(t *testing.T, k *coordinator, c *Client) {
			held := need.Got(acquire(t.Context(), c))(t)
			k.kill("s1")
			time.Sleep(time.Minute)
			err := c.Close(t.Context())
			expect.That(t, err == nil, "close: %v, want no error: there was nothing to give back", err)
			expect.ErrorIs(t, held.Err(), ErrLost, "it says")
		})
	}
}

// TestALockIsNotHeldByAClientThatCloses: Close begins when the lock has just been acquired.
func TestALockIsNotHeldByAClientThatCloses(t *testing.T) {
	coordinated(t, "", func(t *testing.T, k *coordinator, _ *Client) {
		closed := make(chan error, 1)
		var c *Client
		slow := func(r *http.Request) (*http.Response, error) {
			resp, err := k.answer(r)
			if strings.HasSuffix(r.URL.Path, "/locks/demo") && r.Method == "PUT" {
				go func() { closed <- c.Close(context.Background()) }()
				<-r.Context().Done()
			}
			return resp, err
		}
		c = servers{"a": slow}.client(t, "a")
		if h, err := c.AcquireLock(t.Context(), LockOptions{Name: "demo"}); !errors.Is(err, ErrClosed) {
			t.Errorf("got %v, %v, want %v", h, err, ErrClosed)
		}
		expect.OK(t, <-closed)
		sessions, holders, _ := k.left()
		expect.That(t, sessions+holders == 0, "%d sessions and %d holders are left", sessions, holders)
	})
}
