package own_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/fsmtest"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/httpdtest"
	"github.com/seed-20419f34/rollcall/httpd/web"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestLockHasOneHolderThatCanReleaseIt(t *testing.T) {
	c := httpdtest.NewCoordinated(t, httpd.Config{})
	a, b := c.OwnSession(t, ""), c.OwnSession(t, "")
	lock := "/v1/rollcall/locks/a%2Fb?session="
	first := c.Acquire(t, lock+strings.ToUpper(a), "for a")
	expect.That(t, first.Acquired && first.Fence == 3 && first.Limit == 1, "the first got %+v, want token 3", first)
	again := c.Acquire(t, lock+a, "for a")
	expect.That(t, again.Acquired && again.Fence == first.Fence, "asked again, it has %+v, want the same token", again)
	other := c.Acquire(t, lock+b, "")
	expect.That(t, !other.Acquired && other.Place == 0 && len(other.Holders) == 1 && other.Holders[0].Session == a && string(other.Holders[0].Value) == "for a" && other.Holders[0].Fence == 3,
		"the other got %+v, want the holder", other)
	for _, row := range []struct{ name, query, want string }{
		{"by another", b, `{"released":false}`},
		{"by a stale token", a + "&fence=2", `{"released":false}`},
		{"by a dead session", "dead", `{"released":false}`},
		{"by its holder", a + "&fence=3", `{"released":true}`},
		{"twice", a, `{"released":false}`},
	} {
		got := c.Send("DELETE", lock+row.query, "")
		expect.That(t, got.Status == 200 && strings.TrimSpace(got.Body) == row.want,
			"released %s: got %d %s, want %s", row.name, got.Status, got.Body, row.want)
	}
	next := c.Acquire(t, lock+b, "")
	expect.That(t, next.Acquired && next.Fence > first.Fence, "then the other got %+v, want a higher token", next)
}

func TestSemaphoreHasAtMostItsLimitOfHolders(t *testing.T) {
	c := httpdtest.NewCoordinated(t, httpd.Config{})
	path := "/v1/rollcall/semaphores/s?limit=2&session="
	sessions := []string{c.OwnSession(t, ""), c.OwnSession(t, ""), c.OwnSession(t, "")}
	for i, want := range []bool{true, true, false} {
		got := c.Acquire(t, path+sessions[i], "")
		expect.That(t, got.Acquired == want && got.Limit == 2 && (want || len(got.Holders) == 2), "contender %d got %+v", i, got)
	}
	c.Send("PUT", "/v1/rollcall/semaphores/s?limit=3&session="+sessions[2], "").Says(t, http.StatusConflict, "limit 2, not 3", "another limit")
	shown := httpdtest.DecodeReply[struct {
		Name    string
		Limit   int
		Holders []struct{ Session string }
	}](t, c.Get("/v1/rollcall/semaphores/s"))
	expect.That(t, shown.Name == "s" && shown.Limit == 2 && len(shown.Holders) == 2 && shown.Holders[0].Session == sessions[0],
		"it is shown as %+v", shown)
	c.Get("/v1/rollcall/locks/s").Says(t, http.StatusNotFound, "no session holds", "a lock of its name")
}

func TestPermitRequestThatIsMalformedSaysWhatIsRight(t *testing.T) {
	c := httpdtest.NewCoordinated(t, httpd.Config{})
	s := c.OwnSession(t, "")
	for _, row := range []struct {
		name, method, target, body string
		status                     int
		says                       string
	}{
		{"no session", "PUT", "/v1/rollcall/locks/l", "", 400, "session must name"},
		{"no session to release", "DELETE", "/v1/rollcall/locks/l", "", 400, "session must name"},
		{"a dead session", "PUT", "/v1/rollcall/locks/l?session=dead", "", 404, `there is no session \"dead\"`},
		{"a dead session that waits", "PUT", "/v1/rollcall/locks/l?session=dead&wait=1m", "", 404, `there is no session \"dead\"`},
		{"no limit", "PUT", "/v1/rollcall/semaphores/l?session=" + s, "", 400, "limit must be given"},
		{"a limit of 0", "PUT", "/v1/rollcall/semaphores/l?limit=0&session=" + s, "", 400, "1 to 1000000"},
		{"a limit too high", "PUT", "/v1/rollcall/semaphores/l?limit=1000001&session=" + s, "", 400, "1 to 1000000"},
		{"a limit that is no number", "PUT", "/v1/rollcall/semaphores/l?limit=x&session=" + s, "", 400, "limit"},
		{"a wait too long", "PUT", "/v1/rollcall/locks/l?wait=11m&session=" + s, "", 400, "0s to 10m"},
		{"a value too large", "PUT", "/v1/rollcall/locks/l?session=" + s, strings.Repeat("x", 4097), 413, "Too Large"},
		{"a token that is no number", "DELETE", "/v1/rollcall/locks/l?fence=x&session=" + s, "", 400, "fence"},
		{"a list that waits", "GET", "/v1/rollcall/locks?index=test-1", "", 400, "cannot be waited for"},
		{"an index of Consul's form", "GET", "/v1/rollcall/locks/l?index=1", "", 400, "epoch-index"},
		{"no index", "GET", "/v1/rollcall/fence/l", "", 400, "index must be given"},
		{"no name", "GET", "/v1/rollcall/fence/?index=1", "", 400, "name what was acquired"},
		{"another kind", "GET", "/v1/rollcall/fence/l?index=1&kind=mutex", "", 400, "key, lock, semaphore"},
		{"a session without end", "POST", "/v1/rollcall/sessions", `{"ttl":"0s"}`, 400, "1s to 24h"},
		{"a session that ends too late", "POST", "/v1/rollcall/sessions", `{"ttl":"25h"}`, 400, "1s to 24h"},
		{"a lock-delay too long", "POST", "/v1/rollcall/sessions", `{"lock_delay":"61s"}`, 400, "0s to 1m"},
		{"a negative lock-delay", "POST", "/v1/rollcall/sessions", `{"lock_delay":"-1s"}`, 400, "0s to 1m"},
		{"an unknown behavior", "POST", "/v1/rollcall/sessions", `{"behavior":"x"}`, 400, "release or delete"},
		{"a name with a line break", "POST", "/v1/rollcall/sessions", `{"name":"a\nb"}`, 400, "without control characters"},
		{"a member that there is not", "POST", "/v1/rollcall/sessions", `{"tll":"1s"}`, 400, "name, ttl"},
		{"more than an object", "POST", "/v1/rollcall/sessions", `{}{}`, 400, "name, ttl"},
		{"an unknown session", "GET", "/v1/rollcall/sessions/x", "", 404, "there is no session"},
		{"an unknown session to renew", "PUT", "/v1/rollcall/sessions/x/renew", "", 404, "there is no session"},
		{"an unknown session to destroy", "DELETE", "/v1/rollcall/sessions/x", "", 404, "there is no session"},
	} {
		got := c.Send(row.method, row.target, row.body)
		expect.That(t, got.Status == row.status && strings.Contains(got.Body, row.says) && json.Valid([]byte(got.Body)),
			"%s: got %d %s, want %d and %q", row.name, got.Status, got.Body, row.status, row.says)
	}
}

func TestLockGoesToTheWaitersInTurn(t *testing.T) {
	httpdtest.WithCoordination(t, func(t *testing.T, c *httpdtest.Coordinated) {
		lock := "/v1/rollcall/locks/l?session="
		holder := c.OwnSession(t, "")
		c.Acquire(t, lock+holder, "")
		var sessions []string
		var waiting []*httpdtest.Pending
		for range 3 {
			s := c.OwnSession(t, "")
			sessions = append(sessions, s)
			waiting = append(waiting, c.Start(t.Context(), "PUT", lock+s+"&wait=10m"))
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		shown := httpdtest.DecodeReply[struct {
			Queue []struct {
				Session string
				Waited  int64 `json:"waited_ms"`
				Left    int64 `json:"gives_up_ms"`
			}
		}](t, c.Get("/v1/rollcall/locks/l"))
		expect.That(t, len(shown.Queue) == 3 && shown.Queue[2].Session == sessions[2] && shown.Queue[0].Waited == 60_000 && shown.Queue[0].Left == 540_000,
			"the queue is shown as %+v", shown.Queue)
		last := uint64(0)
		for i, p := range waiting {
			need.That(t, !p.Answered(), "waiter %d has it before its turn", i)
			joined := c.Kv.Joined.Load()
			c.Send("DELETE", lock+holder, "")
			need.That(t, p.Answered(), "waiter %d was not woken", i)
			expect.Equal(t, c.Kv.Joined.Load()-joined, 0, "the hand-over to waiter %d woke others:", i)
			a := httpdtest.DecodeReply[httpdtest.Acquisition](t, p.Got)
			expect.That(t, a.Acquired && a.Fence > last && a.Place == i+1, "waiter %d got %+v", i, a)
			holder, last = sessions[i], a.Fence
		}
		expect.Equal(t, c.Kv.Watchers.Len(), 0, "waiting still:")
	})
}

func TestLockWaitEndsInTime(t *testing.T) {
	for _, row := range []struct {
		name   string
		during func(c *httpdtest.Coordinated, waiter string, disconnect func())
		took   time.Duration
		status int
		want   string
	}{
		{"by its time", func(*httpdtest.Coordinated, string, func()) {}, 30 * time.Second, 200, `"acquired":false`},
		{"by the end of its session", func(c *httpdtest.Coordinated, waiter string, _ func()) {
			c.Send("DELETE", "/v1/rollcall/sessions/"+waiter, "")
		}, 0, 404, "there is no session"},
		{"by shutdown", func(c *httpdtest.Coordinated, _ string, _ func()) { c.Handler.EndWatches() }, 0, 200, `"acquired":false`},
		{"by a disconnect", func(_ *httpdtest.Coordinated, _ string, disconnect func()) { disconnect() }, 0, 200, `"acquired":false`},
		{"by leaving the queue", func(c *httpdtest.Coordinated, waiter string, _ func()) {
			c.Send("DELETE", "/v1/rollcall/locks/l?session="+waiter, "")
		}, 0, 200, `"acquired":false`},
	} {
		httpdtest.InBubble(t, row.name, func(t *testing.T) {
			c := httpdtest.NewCoordinated(t, httpd.Config{})
			holder, waiter, next := c.OwnSession(t, ""), c.OwnSession(t, ""), c.OwnSession(t, "")
			c.Acquire(t, "/v1/rollcall/locks/l?session="+holder, "")
			ctx, disconnect := context.WithCancel(t.Context())
			defer disconnect()
			p := c.Start(ctx, "PUT", "/v1/rollcall/locks/l?wait=30s&session="+waiter)
			synctest.Wait()
			row.during(c, waiter, disconnect)
			got, took := p.Wait()
			expect.That(t, took == row.took && got.Status == row.status && strings.Contains(got.Body, row.want),
				"got %d %s after %v, want %d %s after %v", got.Status, got.Body, took, row.status, row.want, row.took)
			expect.Equal(t, c.Kv.Watchers.Len(), 0, "waiting still:")
			c.Send("DELETE", "/v1/rollcall/locks/l?session="+holder, "")
			if got := c.Acquire(t, "/v1/rollcall/locks/l?session="+next, ""); !got.Acquired {
				t.Errorf("it left something behind: %+v", got)
			}
		})
	}
}

func TestLockWaitMissesNoGrantRightAfterItJoined(t *testing.T) {
	httpdtest.WithCoordination(t, func(t *testing.T, c *httpdtest.Coordinated) {
		holder, waiter := c.OwnSession(t, ""), c.OwnSession(t, "")
		c.Acquire(t, "/v1/rollcall/locks/l?session="+holder, "")
		c.Set(func(*fsmtest.Memory) {
			c.Kv.After = func() { c.Kv.Perform(kv.ReleasePermit{Kind: kv.Lock, Name: "l", Session: holder}) }
		})
		got, took := c.Start(t.Context(), "PUT", "/v1/rollcall/locks/l?wait=30s&session="+waiter).Wait()
		a := httpdtest.DecodeReply[httpdtest.Acquisition](t, got)
		expect.That(t, a.Acquired && took == 0, "got %+v after %v, want the lock at once", a, took)
	})
}

// The waiter may have asked again at another node, and been told there that it holds the lock.
func TestLockGrantedWhileItsWaiterLeftStaysTheSessions(t *testing.T) {
	httpdtest.WithCoordination(t, func(t *testing.T, c *httpdtest.Coordinated) {
		holder, waiter := c.OwnSession(t, ""), c.OwnSession(t, "")
		c.Acquire(t, "/v1/rollcall/locks/l?session="+holder, "")
		ctx, disconnect := context.WithCancel(t.Context())
		p := c.Start(ctx, "PUT", "/v1/rollcall/locks/l?wait=30s&session="+waiter)
		synctest.Wait()
		c.Memory.Mu.Lock() // the lagging node does not see the grant
		c.Kv.Behind = c.Kv.State.View()
		disconnect()
		c.Kv.Perform(kv.ReleasePermit{Kind: kv.Lock, Name: "l", Session: holder})
		c.Memory.Mu.Unlock()
		got, _ := p.Wait()
		expect.That(t, httpdtest.DecodeReply[httpdtest.Acquisition](t, got).Acquired, "the response was %s, which no client reads", got.Body)
		again := c.Acquire(t, "/v1/rollcall/locks/l?session="+waiter, "")
		expect.That(t, again.Acquired && again.Fence < uint64(c.NextIndex()), "it has %+v, want what was granted", again)
	})
}

// A node that is behind still shows what the session had before.
func TestLockThatWasGivenBackIsNotTheWaitersAgain(t *testing.T) {
	httpdtest.WithCoordination(t, func(t *testing.T, c *httpdtest.Coordinated) {
		waiter, holder := c.OwnSession(t, ""), c.OwnSession(t, "")
		c.Acquire(t, "/v1/rollcall/locks/l?session="+waiter, "")
		c.Set(func(*fsmtest.Memory) { c.Kv.Behind = c.Kv.State.View() })
		c.Send("DELETE", "/v1/rollcall/locks/l?session="+waiter, "")
		c.Acquire(t, "/v1/rollcall/locks/l?session="+holder, "")
		got, _ := c.Start(t.Context(), "PUT", "/v1/rollcall/locks/l?wait=1s&session="+waiter).Wait()
		a := httpdtest.DecodeReply[httpdtest.Acquisition](t, got)
		expect.That(t, !a.Acquired, "got %+v, want the lock to be the other's", a)
	})
}

// A snapshot that a node installs may swallow a waiter's wake-up.
func TestLockWaitGoesOnAfterItsNodesStateWasReplaced(t *testing.T) {
	httpdtest.WithCoordination(t, func(t *testing.T, c *httpdtest.Coordinated) {
		holder, waiter := c.OwnSession(t, ""), c.OwnSession(t, "")
		c.Acquire(t, "/v1/rollcall/locks/l?session="+holder, "")
		p := c.Start(t.Context(), "PUT", "/v1/rollcall/locks/l?wait=30s&session="+waiter)
		synctest.Wait()
		c.Kv.Watchers.WakeAll()
		need.That(t, !p.Answered() && c.Kv.Watchers.Len() == 1, "it does not wait on: %d %s", p.Got.Status, p.Got.Body)
		c.Send("DELETE", "/v1/rollcall/locks/l?session="+holder, "")
		got, _ := p.Wait()
		expect.That(t, httpdtest.DecodeReply[httpdtest.Acquisition](t, got).Acquired, "got %s", got.Body)
	})
}

func TestLockWaitThatCannotLeaveTheQueueHasAnUnknownOutcome(t *testing.T) {
	httpdtest.WithCoordination(t, func(t *testing.T, c *httpdtest.Coordinated) {
		holder, waiter := c.OwnSession(t, ""), c.OwnSession(t, "")
		c.Acquire(t, "/v1/rollcall/locks/l?session="+holder, "")
		p := c.Start(t.Context(), "PUT", "/v1/rollcall/locks/l?wait=30s&session="+waiter)
		synctest.Wait()
		c.Kv.Fail(registry.ErrNoLeader)
		got, took := p.Wait()
		expect.That(t, got.Status == 504 && got.Header.Get("X-Rollcall-Outcome") == "unknown" && took >= 36*time.Second && took <= 38*time.Second,
			"got %d %s after %v, want 504 after 30s and 7s", got.Status, got.Body, took)
		c.Kv.Fail(nil)
		p = c.Start(t.Context(), "PUT", "/v1/rollcall/locks/l?wait=30s&session="+waiter)
		synctest.Wait()
		c.Kv.Fail(registry.ErrNoLeader)
		c.Kv.Watchers.WakeAll() // wakes it to ask again
		got, took = p.Wait()
		expect.That(t, got.Status == 504 && took >= 6*time.Second && took <= 8*time.Second,
			"asking again: got %d %s after %v, want 504 after 7s", got.Status, got.Body, took)
	})
}

// Our own clients go to another node; Consul's are held.
func TestOwnCoordinationFailsSoonWithoutALeader(t *testing.T) {
	httpdtest.WithCoordination(t, func(t *testing.T, c *httpdtest.Coordinated) {
		session := c.OwnSession(t, "")
		c.Kv.Fail(registry.ErrNoLeader)
		for _, request := range [][2]string{
			{"POST", "/v1/rollcall/sessions"},
			{"PUT", "/v1/rollcall/sessions/" + session + "/renew"},
			{"GET", "/v1/rollcall/sessions"},
			{"PUT", "/v1/rollcall/locks/l?wait=30s&session=" + session},
			{"DELETE", "/v1/rollcall/locks/l?session=" + session},
			{"GET", "/v1/rollcall/locks/l"},
			{"GET", "/v1/rollcall/fence/k?index=1"},
		} {
			began := time.Now()
			got := c.Send(request[0], request[1], "")
			expect.That(t, got.Status == 503 && got.Header.Get("Retry-After") == "1" && time.Since(began) <= 0, "%s %s: got %d %s after %v, want 503 at once", request[0], request[1], got.Status, got.Body, time.Since(began))
		}
	})
}

func TestPermitWaitersHaveALimit(t *testing.T) {
	httpdtest.Bubble(t, func(t *testing.T) {
		c := httpdtest.NewCoordinated(t, httpd.Config{Limits: web.Limits{Watchers: 1}})
		a, b := c.OwnSession(t, ""), c.OwnSession(t, "")
		c.Acquire(t, "/v1/rollcall/locks/l?session="+a, "")
		p := c.Start(t.Context(), "PUT", "/v1/rollcall/locks/l?wait=1s&session="+b)
		synctest.Wait()
		got := c.Send("PUT", "/v1/rollcall/locks/l?wait=1s&session="+a, "")
		expect.That(t, got.Status == 503 && got.Header.Get("Retry-After") != "", "one too many: got %d %s, want 503", got.Status, got.Body)
		p.Wait()
		c.Send("PUT", "/v1/rollcall/locks/l?wait=1s&session="+a, "").Says(t, 200, "", "the place was given back")
	})
}

func TestSessionIsShownWithItsAcquisitions(t *testing.T) {
	httpdtest.WithCoordination(t, func(t *testing.T, c *httpdtest.Coordinated) {
		c.Kv.Pass(time.Hour) // on the registry's clocks
		s := c.OwnSession(t, `{"name":"worker","ttl":"20s","lock_delay":"1s","behavior":"delete"}`)
		c.Put(t, "/v1/kv/k?acquire="+s, "")
		c.Acquire(t, "/v1/rollcall/locks/l?session="+s, "")
		c.Acquire(t, "/v1/rollcall/semaphores/s?limit=1&session="+s, "")
		time.Sleep(5 * time.Second)
		want := fmt.Sprintf(`{"id":"%s","name":"worker","node":"rollcall","ttl":"20s","lock_delay":"1s","behavior":"delete","created":%d,"age_ms":5000,"ends_in_ms":15000,`+
			`"holds":[{"kind":"key","name":"k","fence":2},{"kind":"lock","name":"l","fence":3},{"kind":"semaphore","name":"s","fence":4}]}`, s, time.Now().Add(time.Hour-5*time.Second).UnixMilli())
		got := c.Get("/v1/rollcall/sessions/" + strings.ToUpper(s))
		expect.That(t, strings.TrimSpace(got.Body) == want && got.Header.Get("X-Rollcall-Index") == "test-1", "got %s of index %s, want %s of test-1", got.Body, got.Header.Get("X-Rollcall-Index"), want)
		if got := c.Get("/v1/rollcall/sessions"); strings.TrimSpace(got.Body) != "["+want+"]" {
			t.Errorf("the list is %s", got.Body)
		}
		renewed := httpdtest.DecodeReply[struct {
			EndsIn int64 `json:"ends_in_ms"`
		}](t, c.Send("PUT", "/v1/rollcall/sessions/"+s+"/renew", ""))
		expect.That(t, renewed.EndsIn == 20_000, "renewed, it ends in %d ms, want 20000", renewed.EndsIn)
		forever := c.Session(t, "")
		if got := c.Get("/v1/rollcall/sessions/" + forever).Body; !strings.Contains(got, `"ttl":"","lock_delay":"15s","behavior":"release"`) || !strings.Contains(got, `"ends_in_ms":0,"holds":[]`) {
			t.Errorf("one without end is %s", got)
		}
		if got := c.Send("DELETE", "/v1/rollcall/sessions/"+s, ""); got.Status != 200 || strings.TrimSpace(got.Body) != `{"destroyed":true}` {
			t.Errorf("destroyed: got %d %s", got.Status, got.Body)
		}
		c.Get("/v1/rollcall/locks/l").Says(t, 200, `"holders":[],"queue":[],"delays_ms":[1000]`, "its lock")
		c.Kv.Pass(time.Minute)
		if got := c.Get("/v1/rollcall/locks"); strings.TrimSpace(got.Body) != "[]" {
			t.Errorf("the locks are %s", got.Body)
		}
	})
}

func TestLockCanBeWatched(t *testing.T) {
	httpdtest.WithCoordination(t, func(t *testing.T, c *httpdtest.Coordinated) {
		s := c.OwnSession(t, `{"ttl":"1h"}`)
		for _, row := range []struct {
			name, path string
			change     func()
		}{
			{"an absent one is acquired", "/v1/rollcall/locks/l", func() { c.Acquire(t, "/v1/rollcall/locks/l?session="+s, "") }},
			{"it is released", "/v1/rollcall/locks/l", func() { c.Send("DELETE", "/v1/rollcall/locks/l?session="+s, "") }},
			{"a semaphore", "/v1/rollcall/semaphores/l", func() { c.Acquire(t, "/v1/rollcall/semaphores/l?limit=5&session="+s, "") }},
			{"its session ends", "/v1/rollcall/sessions/" + s, func() { c.Send("DELETE", "/v1/rollcall/sessions/"+s, "") }},
		} {
			index := c.Get(row.path).Header.Get("X-Rollcall-Index")
			if index == "" { // for a 404
				index = "test-1"
			}
			p := c.Start(t.Context(), "GET", row.path+"?wait=1m&index="+index)
			need.That(t, !p.Answered(), "%s: it did not wait: %d %s", row.name, p.Got.Status, p.Got.Body)
			time.Sleep(time.Second)
			row.change()
			expect.That(t, p.Answered() && p.Got.Header.Get("X-Rollcall-Index") != index, "%s: it was not told", row.name)
			p.Wait()
		}
		got, took := c.Start(t.Context(), "GET", "/v1/rollcall/sessions?index=other-99&wait=1m").Wait()
		expect.That(t, took == 0 && got.Status == 200, "an index of another history: got %d after %v, want 200 at once", got.Status, took)
	})
}

func TestFenceSaysWhetherAnAcquisitionLasts(t *testing.T) {
	c := httpdtest.NewCoordinated(t, httpd.Config{})
	a, b := c.OwnSession(t, ""), c.OwnSession(t, "")
	c.Put(t, "/v1/kv/a//k?acquire="+a, "")                           // 3
	c.Acquire(t, "/v1/rollcall/locks/l?session="+a, "")              // 4
	c.Acquire(t, "/v1/rollcall/semaphores/s?limit=2&session="+a, "") // 5
	c.Acquire(t, "/v1/rollcall/semaphores/s?limit=2&session="+b, "") // 6
	for _, row := range []struct{ name, query, want string }{
		{"a key", "a//k?index=3", `{"kind":"key","name":"a//k","holds":true,"fence":3}`},
		{"by its session", "a//k?index=3&kind=key&session=" + strings.ToUpper(a), `{"kind":"key","name":"a//k","holds":true,"fence":3}`},
		{"by another", "a//k?index=3&session=" + b, `{"kind":"key","name":"a//k","holds":false,"fence":3}`},
		{"a stale one", "a//k?index=2", `{"kind":"key","name":"a//k","holds":false,"fence":3}`},
		{"a key that is not held", "a/k?index=3", `{"kind":"key","name":"a/k","holds":false,"fence":0}`},
		{"escaped", "a%2F%2Fk?index=3", `{"kind":"key","name":"a//k","holds":true,"fence":3}`},
		{"a lock", "l?kind=lock&index=4", `{"kind":"lock","name":"l","holds":true,"fence":4}`},
		{"a semaphore", "s?kind=semaphore&index=5&session=" + a, `{"kind":"semaphore","name":"s","holds":true,"fence":5}`},
		{"another's permit", "s?kind=semaphore&index=5&session=" + b, `{"kind":"semaphore","name":"s","holds":false,"fence":6}`},
	} {
		got := c.Get("/v1/rollcall/fence/" + row.query)
		expect.That(t, got.Status == 200 && strings.TrimSpace(got.Body) == row.want, "%s: got %d %s, want %s", row.name, got.Status, got.Body, row.want)
	}
	expect.That(t, c.Kv.Views.Load() != 0, "no other node was asked")
	c.Kv.Fail(registry.ErrNoLeader)
	httpdtest.Bubble(t, func(t *testing.T) {
		c.Get("/v1/rollcall/fence/l?kind=lock&index=4").Says(t, 503, "", "without a leader")
	})
}
