package httpd_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/kv/kvtest"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/fsm/registry/registrytest"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/web"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// coordinated is a handler with coordination, asked without a network.
type coordinated struct {
	*registrytest.Memory
	kv      *kvtest.Memory
	handler *httpd.Handler
}

func newCoordinated(t testing.TB, config httpd.Config) *coordinated {
	t.Helper()
	m := registrytest.New()
	c := &coordinated{Memory: m, kv: kvtest.New(m)}
	config.Service, config.Coordination, config.Agents = c.Memory, c.kv, cmp.Or(config.Agents, httpd.OneAgent)
	var err error
	if c.handler, err = httpd.New(config); err != nil {
		t.Fatal(err)
	}
	return c
}

// withCoordination runs a test in a bubble with a handler that has coordination.
func withCoordination(t *testing.T, test func(t *testing.T, c *coordinated)) {
	bubble(t, func(t *testing.T) { test(t, newCoordinated(t, httpd.Config{})) })
}

// withKey is withCoordination where the key a has the value v.
func withKey(t *testing.T, test func(t *testing.T, c *coordinated)) {
	withCoordination(t, func(t *testing.T, c *coordinated) {
		c.put(t, "/v1/kv/a", "v")
		test(t, c)
	})
}

// sendUntil sends a request with these header lines and returns the response, or what there is of it when the
// context ends.
func (c *coordinated) sendUntil(ctx context.Context, method, target, body string, headers ...string) reply {
	r := httptest.NewRequestWithContext(ctx, method, target, strings.NewReader(body))
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	c.handler.ServeHTTP(w, r)
	return reply{status: w.Code, header: w.Header(), body: w.Body.String()}
}

// sendFrom is send by a client at an address.
func (c *coordinated) sendFrom(source, method, target, body string) reply {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.RemoteAddr = source
	w := httptest.NewRecorder()
	c.handler.ServeHTTP(w, r)
	return reply{status: w.Code, header: w.Header(), body: w.Body.String()}
}

func (c *coordinated) send(method, target, body string, headers ...string) reply {
	return c.sendUntil(context.Background(), method, target, body, headers...)
}

func (c *coordinated) get(target string) reply { return c.send(http.MethodGet, target, "") }

// put must succeed with true.
func (c *coordinated) put(t testing.TB, target, body string) reply {
	t.Helper()
	got := c.send(http.MethodPut, target, body)
	need.That(t, got.status == http.StatusOK && got.body == "true", "PUT %s: got %d %q, want 200 true", target, got.status, got.body)
	return got
}

// session creates one with Consul's API.
func (c *coordinated) session(t testing.TB, body string) string {
	t.Helper()
	got := c.send(http.MethodPut, "/v1/session/create", body)
	var created struct{ ID string }
	need.That(t, json.Unmarshal([]byte(got.body), &created) == nil && got.status == http.StatusOK, "create %s: got %d %s", body, got.status, got.body)
	return created.ID
}

// decodeReply decodes the body of a 200.
func decodeReply[T any](t testing.TB, got reply) (into T) {
	t.Helper()
	err := json.Unmarshal([]byte(got.body), &into)
	need.That(t, err == nil && got.status == http.StatusOK, "got %d %q (%v), want 200 and JSON", got.status, got.body, err)
	return into
}

// ownSession creates a session with our own API.
func (c *coordinated) ownSession(t testing.TB, body string) string {
	t.Helper()
	return decodeReply[struct{ ID string }](t, c.send("POST", "/v1/rollcall/sessions", body)).ID
}

// acquisition is the response to a request for a permit.
type acquisition struct {
	Acquired bool
	Fence    uint64
	Place    int
	Limit    int
	Holders  []struct {
		Session string
		Fence   uint64
		Value   []byte
	}
}

func (c *coordinated) acquire(t testing.TB, target, body string) acquisition {
	t.Helper()
	got := c.send("PUT", target, body)
	a := decodeReply[acquisition](t, got)
	fence := got.header.Get("X-Rollcall-Fence")
	expect.That(t, a.Acquired == (fence != "") && (!a.Acquired || fence == fmt.Sprint(a.Fence)), "%s: acquired %v with token %d, the header says %q", target, a.Acquired, a.Fence, fence)
	return a
}

func TestLockHasOneHolderThatCanReleaseIt(t *testing.T) {
	c := newCoordinated(t, httpd.Config{})
	a, b := c.ownSession(t, ""), c.ownSession(t, "")
	lock := "/v1/rollcall/locks/a%2Fb?session="
	first := c.acquire(t, lock+strings.ToUpper(a), "for a")
	expect.That(t, first.Acquired && first.Fence == 3 && first.Limit == 1, "the first got %+v, want token 3", first)
	again := c.acquire(t, lock+a, "for a")
	expect.That(t, again.Acquired && again.Fence == first.Fence, "asked again, it has %+v, want the same token", again)
	other := c.acquire(t, lock+b, "")
	expect.That(t, !other.Acquired && other.Place == 0 && len(other.Holders) == 1 && other.Holders[0].Session == a && string(other.Holders[0].Value) == "for a" && other.Holders[0].Fence == 3,
		"the other got %+v, want the holder", other)
	for _, row := range []struct{ name, query, want string }{
		{"by another", b, `{"released":false}`},
		{"by a stale token", a + "&fence=2", `{"released":false}`},
		{"by a dead session", "dead", `{"released":false}`},
		{"by its holder", a + "&fence=3", `{"released":true}`},
		{"twice", a, `{"released":false}`},
	} {
		got := c.send("DELETE", lock+row.query, "")
		expect.That(t, got.status == 200 && strings.TrimSpace(got.body) == row.want,
			"released %s: got %d %s, want %s", row.name, got.status, got.body, row.want)
	}
	next := c.acquire(t, lock+b, "")
	expect.That(t, next.Acquired && next.Fence > first.Fence, "then the other got %+v, want a higher token", next)
}

func TestSemaphoreHasAtMostItsLimitOfHolders(t *testing.T) {
	c := newCoordinated(t, httpd.Config{})
	path := "/v1/rollcall/semaphores/s?limit=2&session="
	sessions := []string{c.ownSession(t, ""), c.ownSession(t, ""), c.ownSession(t, "")}
	for i, want := range []bool{true, true, false} {
		got := c.acquire(t, path+sessions[i], "")
		expect.That(t, got.Acquired == want && got.Limit == 2 && (want || len(got.Holders) == 2), "contender %d got %+v", i, got)
	}
	c.send("PUT", "/v1/rollcall/semaphores/s?limit=3&session="+sessions[2], "").says(t, http.StatusConflict, "limit 2, not 3", "another limit")
	shown := decodeReply[struct {
		Name    string
		Limit   int
		Holders []struct{ Session string }
	}](t, c.get("/v1/rollcall/semaphores/s"))
	expect.That(t, shown.Name == "s" && shown.Limit == 2 && len(shown.Holders) == 2 && shown.Holders[0].Session == sessions[0],
		"it is shown as %+v", shown)
	c.get("/v1/rollcall/locks/s").says(t, http.StatusNotFound, "no session holds", "a lock of its name")
}

func TestPermitRequestThatIsMalformedSaysWhatIsRight(t *testing.T) {
	c := newCoordinated(t, httpd.Config{})
	s := c.ownSession(t, "")
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
		got := c.send(row.method, row.target, row.body)
		expect.That(t, got.status == row.status && strings.Contains(got.body, row.says) && json.Valid([]byte(got.body)),
			"%s: got %d %s, want %d and %q", row.name, got.status, got.body, row.status, row.says)
	}
}

func TestLockGoesToTheWaitersInTurn(t *testing.T) {
	withCoordination(t, func(t *testing.T, c *coordinated) {
		lock := "/v1/rollcall/locks/l?session="
		holder := c.ownSession(t, "")
		c.acquire(t, lock+holder, "")
		var sessions []string
		var waiting []*pending
		for range 3 {
			s := c.ownSession(t, "")
			sessions = append(sessions, s)
			waiting = append(waiting, c.start(t.Context(), "PUT", lock+s+"&wait=10m"))
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		shown := decodeReply[struct {
			Queue []struct {
				Session string
				Waited  int64 `json:"waited_ms"`
				Left    int64 `json:"gives_up_ms"`
			}
		}](t, c.get("/v1/rollcall/locks/l"))
		expect.That(t, len(shown.Queue) == 3 && shown.Queue[2].Session == sessions[2] && shown.Queue[0].Waited == 60_000 && shown.Queue[0].Left == 540_000,
			"the queue is shown as %+v", shown.Queue)
		last := uint64(0)
		for i, p := range waiting {
			need.That(t, !p.answered(), "waiter %d has it before its turn", i)
			joined := c.kv.Joined.Load()
			c.send("DELETE", lock+holder, "")
			need.That(t, p.answered(), "waiter %d was not woken", i)
			expect.Equal(t, c.kv.Joined.Load()-joined, 0, "the hand-over to waiter %d woke others:", i)
			a := decodeReply[acquisition](t, p.got)
			expect.That(t, a.Acquired && a.Fence > last && a.Place == i+1, "waiter %d got %+v", i, a)
			holder, last = sessions[i], a.Fence
		}
		expect.Equal(t, c.kv.Watchers.Len(), 0, "waiting still:")
	})
}

func TestLockWaitEndsInTime(t *testing.T) {
	for _, row := range []struct {
		name   string
		during func(c *coordinated, waiter string, disconnect func())
		took   time.Duration
		status int
		want   string
	}{
		{"by its time", func(*coordinated, string, func()) {}, 30 * time.Second, 200, `"acquired":false`},
		{"by the end of its session", func(c *coordinated, waiter string, _ func()) { c.send("DELETE", "/v1/rollcall/sessions/"+waiter, "") }, 0, 404, "there is no session"},
		{"by shutdown", func(c *coordinated, _ string, _ func()) { c.handler.EndWatches() }, 0, 200, `"acquired":false`},
		{"by a disconnect", func(_ *coordinated, _ string, disconnect func()) { disconnect() }, 0, 200, `"acquired":false`},
		{"by leaving the queue", func(c *coordinated, waiter string, _ func()) {
			c.send("DELETE", "/v1/rollcall/locks/l?session="+waiter, "")
		}, 0, 200, `"acquired":false`},
	} {
		inBubble(t, row.name, func(t *testing.T) {
			c := newCoordinated(t, httpd.Config{})
			holder, waiter, next := c.ownSession(t, ""), c.ownSession(t, ""), c.ownSession(t, "")
			c.acquire(t, "/v1/rollcall/locks/l?session="+holder, "")
			ctx, disconnect := context.WithCancel(t.Context())
			defer disconnect()
			p := c.start(ctx, "PUT", "/v1/rollcall/locks/l?wait=30s&session="+waiter)
			synctest.Wait()
			row.during(c, waiter, disconnect)
			got, took := p.wait()
			expect.That(t, took == row.took && got.status == row.status && strings.Contains(got.body, row.want),
				"got %d %s after %v, want %d %s after %v", got.status, got.body, took, row.status, row.want, row.took)
			expect.Equal(t, c.kv.Watchers.Len(), 0, "waiting still:")
			c.send("DELETE", "/v1/rollcall/locks/l?session="+holder, "")
			if got := c.acquire(t, "/v1/rollcall/locks/l?session="+next, ""); !got.Acquired {
				t.Errorf("it left something behind: %+v", got)
			}
		})
	}
}

func TestLockWaitMissesNoGrantRightAfterItJoined(t *testing.T) {
	withCoordination(t, func(t *testing.T, c *coordinated) {
		holder, waiter := c.ownSession(t, ""), c.ownSession(t, "")
		c.acquire(t, "/v1/rollcall/locks/l?session="+holder, "")
		c.Set(func(*registrytest.Memory) {
			c.kv.After = func() { c.kv.Perform(kv.ReleasePermit{Kind: kv.Lock, Name: "l", Session: holder}) }
		})
		got, took := c.start(t.Context(), "PUT", "/v1/rollcall/locks/l?wait=30s&session="+waiter).wait()
		a := decodeReply[acquisition](t, got)
		expect.That(t, a.Acquired && took == 0, "got %+v after %v, want the lock at once", a, took)
	})
}

// It may have asked again at another node, and have been told there that it holds.
func TestLockGrantedWhileItsWaiterLeftStaysTheSessions(t *testing.T) {
	withCoordination(t, func(t *testing.T, c *coordinated) {
		holder, waiter := c.ownSession(t, ""), c.ownSession(t, "")
		c.acquire(t, "/v1/rollcall/locks/l?session="+holder, "")
		ctx, disconnect := context.WithCancel(t.Context())
		p := c.start(ctx, "PUT", "/v1/rollcall/locks/l?wait=30s&session="+waiter)
		synctest.Wait()
		c.Memory.Mu.Lock() // the node, which is behind, does not see the grant
		c.kv.Behind = c.kv.State.View()
		disconnect()
		c.kv.Perform(kv.ReleasePermit{Kind: kv.Lock, Name: "l", Session: holder})
		c.Memory.Mu.Unlock()
		got, _ := p.wait()
		expect.That(t, decodeReply[acquisition](t, got).Acquired, "the response was %s, which no client reads", got.body)
		again := c.acquire(t, "/v1/rollcall/locks/l?session="+waiter, "")
		expect.That(t, again.Acquired && again.Fence < uint64(c.nextIndex()), "it has %+v, want what was granted", again)
	})
}

func (c *coordinated) nextIndex() kv.Index {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	return c.kv.State.View().Index() + 1
}

// A snapshot that a node takes over may have lost a waiter's wake-up on the way.
func TestLockWaitGoesOnAfterItsNodesStateWasReplaced(t *testing.T) {
	withCoordination(t, func(t *testing.T, c *coordinated) {
		holder, waiter := c.ownSession(t, ""), c.ownSession(t, "")
		c.acquire(t, "/v1/rollcall/locks/l?session="+holder, "")
		p := c.start(t.Context(), "PUT", "/v1/rollcall/locks/l?wait=30s&session="+waiter)
		synctest.Wait()
		c.kv.Watchers.WakeAll()
		need.That(t, !p.answered() && c.kv.Watchers.Len() == 1, "it does not wait on: %d %s", p.got.status, p.got.body)
		c.send("DELETE", "/v1/rollcall/locks/l?session="+holder, "")
		got, _ := p.wait()
		expect.That(t, decodeReply[acquisition](t, got).Acquired, "got %s", got.body)
	})
}

func TestLockWaitThatCannotLeaveTheQueueHasAnUnknownOutcome(t *testing.T) {
	withCoordination(t, func(t *testing.T, c *coordinated) {
		holder, waiter := c.ownSession(t, ""), c.ownSession(t, "")
		c.acquire(t, "/v1/rollcall/locks/l?session="+holder, "")
		p := c.start(t.Context(), "PUT", "/v1/rollcall/locks/l?wait=30s&session="+waiter)
		synctest.Wait()
		c.kv.Fail(registry.ErrNoLeader)
		got, took := p.wait()
		expect.That(t, got.status == 504 && got.header.Get("X-Rollcall-Outcome") == "unknown" && took >= 36*time.Second && took <= 38*time.Second,
			"got %d %s after %v, want 504 after 30s and 7s", got.status, got.body, took)
		c.kv.Fail(nil)
		p = c.start(t.Context(), "PUT", "/v1/rollcall/locks/l?wait=30s&session="+waiter)
		synctest.Wait()
		c.kv.Fail(registry.ErrNoLeader)
		c.kv.Watchers.WakeAll() // it asks again
		got, took = p.wait()
		expect.That(t, got.status == 504 && took >= 6*time.Second && took <= 8*time.Second,
			"asking again: got %d %s after %v, want 504 after 7s", got.status, got.body, took)
	})
}

// Our own clients go to another node; Consul's are held.
func TestOwnCoordinationFailsSoonWithoutALeader(t *testing.T) {
	withCoordination(t, func(t *testing.T, c *coordinated) {
		session := c.ownSession(t, "")
		c.kv.Fail(registry.ErrNoLeader)
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
			got := c.send(request[0], request[1], "")
			expect.That(t, got.status == 503 && got.header.Get("Retry-After") == "1" && time.Since(began) <= 0, "%s %s: got %d %s after %v, want 503 at once", request[0], request[1], got.status, got.body, time.Since(began))
		}
	})
}

func TestPermitWaitersHaveALimit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCoordinated(t, httpd.Config{Limits: web.Limits{Watchers: 1}})
		a, b := c.ownSession(t, ""), c.ownSession(t, "")
		c.acquire(t, "/v1/rollcall/locks/l?session="+a, "")
		p := c.start(t.Context(), "PUT", "/v1/rollcall/locks/l?wait=1s&session="+b)
		synctest.Wait()
		got := c.send("PUT", "/v1/rollcall/locks/l?wait=1s&session="+a, "")
		expect.That(t, got.status == 503 && got.header.Get("Retry-After") != "", "one too many: got %d %s, want 503", got.status, got.body)
		p.wait()
		c.send("PUT", "/v1/rollcall/locks/l?wait=1s&session="+a, "").says(t, 200, "", "the place was given back")
	})
}

func TestSessionIsShownWithItsAcquisitions(t *testing.T) {
	withCoordination(t, func(t *testing.T, c *coordinated) {
		c.kv.Pass(time.Hour) // on the clocks of the registry
		s := c.ownSession(t, `{"name":"worker","ttl":"20s","lock_delay":"1s","behavior":"delete"}`)
		c.put(t, "/v1/kv/k?acquire="+s, "")
		c.acquire(t, "/v1/rollcall/locks/l?session="+s, "")
		c.acquire(t, "/v1/rollcall/semaphores/s?limit=1&session="+s, "")
		time.Sleep(5 * time.Second)
		want := fmt.Sprintf(`{"id":"%s","name":"worker","node":"rollcall","ttl":"20s","lock_delay":"1s","behavior":"delete","created":%d,"age_ms":5000,"ends_in_ms":15000,`+
			`"holds":[{"kind":"key","name":"k","fence":2},{"kind":"lock","name":"l","fence":3},{"kind":"semaphore","name":"s","fence":4}]}`, s, time.Now().Add(time.Hour-5*time.Second).UnixMilli())
		got := c.get("/v1/rollcall/sessions/" + strings.ToUpper(s))
		expect.That(t, strings.TrimSpace(got.body) == want && got.header.Get("X-Rollcall-Index") == "test-1", "got %s of index %s, want %s of test-1", got.body, got.header.Get("X-Rollcall-Index"), want)
		if got := c.get("/v1/rollcall/sessions"); strings.TrimSpace(got.body) != "["+want+"]" {
			t.Errorf("the list is %s", got.body)
		}
		renewed := decodeReply[struct {
			EndsIn int64 `json:"ends_in_ms"`
		}](t, c.send("PUT", "/v1/rollcall/sessions/"+s+"/renew", ""))
		expect.That(t, renewed.EndsIn == 20_000, "renewed, it ends in %d ms, want 20000", renewed.EndsIn)
		forever := c.session(t, "")
		if got := c.get("/v1/rollcall/sessions/" + forever).body; !strings.Contains(got, `"ttl":"","lock_delay":"15s","behavior":"release"`) || !strings.Contains(got, `"ends_in_ms":0,"holds":[]`) {
			t.Errorf("one without end is %s", got)
		}
		if got := c.send("DELETE", "/v1/rollcall/sessions/"+s, ""); got.status != 200 || strings.TrimSpace(got.body) != `{"destroyed":true}` {
			t.Errorf("destroyed: got %d %s", got.status, got.body)
		}
		c.get("/v1/rollcall/locks/l").says(t, 200, `"holders":[],"queue":[],"delays_ms":[1000]`, "its lock")
		c.kv.Pass(time.Minute)
		if got := c.get("/v1/rollcall/locks"); strings.TrimSpace(got.body) != "[]" {
			t.Errorf("the locks are %s", got.body)
		}
	})
}

func TestLockCanBeWatched(t *testing.T) {
	withCoordination(t, func(t *testing.T, c *coordinated) {
		s := c.ownSession(t, `{"ttl":"1h"}`)
		for _, row := range []struct {
			name, path string
			change     func()
		}{
			{"an absent one is acquired", "/v1/rollcall/locks/l", func() { c.acquire(t, "/v1/rollcall/locks/l?session="+s, "") }},
			{"it is released", "/v1/rollcall/locks/l", func() { c.send("DELETE", "/v1/rollcall/locks/l?session="+s, "") }},
			{"a semaphore", "/v1/rollcall/semaphores/l", func() { c.acquire(t, "/v1/rollcall/semaphores/l?limit=5&session="+s, "") }},
			{"its session ends", "/v1/rollcall/sessions/" + s, func() { c.send("DELETE", "/v1/rollcall/sessions/"+s, "") }},
		} {
			index := c.get(row.path).header.Get("X-Rollcall-Index")
			if index == "" { // of a 404
				index = "test-1"
			}
			p := c.start(t.Context(), "GET", row.path+"?wait=1m&index="+index)
			need.That(t, !p.answered(), "%s: it did not wait: %d %s", row.name, p.got.status, p.got.body)
			time.Sleep(time.Second)
			row.change()
			expect.That(t, p.answered() && p.got.header.Get("X-Rollcall-Index") != index, "%s: it was not told", row.name)
			p.wait()
		}
		got, took := c.start(t.Context(), "GET", "/v1/rollcall/sessions?index=other-99&wait=1m").wait()
		expect.That(t, took == 0 && got.status == 200, "an index of another history: got %d after %v, want 200 at once", got.status, took)
	})
}

func TestFenceSaysWhetherAnAcquisitionLasts(t *testing.T) {
	c := newCoordinated(t, httpd.Config{})
	a, b := c.ownSession(t, ""), c.ownSession(t, "")
	c.put(t, "/v1/kv/a//k?acquire="+a, "")                           // 3
	c.acquire(t, "/v1/rollcall/locks/l?session="+a, "")              // 4
	c.acquire(t, "/v1/rollcall/semaphores/s?limit=2&session="+a, "") // 5
	c.acquire(t, "/v1/rollcall/semaphores/s?limit=2&session="+b, "") // 6
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
		got := c.get("/v1/rollcall/fence/" + row.query)
		expect.That(t, got.status == 200 && strings.TrimSpace(got.body) == row.want, "%s: got %d %s, want %s", row.name, got.status, got.body, row.want)
	}
	expect.That(t, c.kv.Views.Load() != 0, "no other node was asked")
	c.kv.Fail(registry.ErrNoLeader)
	bubble(t, func(t *testing.T) {
		c.get("/v1/rollcall/fence/l?kind=lock&index=4").says(t, 503, "", "without a leader")
	})
}
