package httpd_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/fsm/registry/registrytest"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/web"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// pending is a request under way.
type pending struct {
	got  reply
	took time.Duration
	done chan struct{}
}

// start sends a request that is expected to wait.
func (c *coordinated) start(ctx context.Context, method, target string, headers ...string) *pending {
	p := &pending{done: make(chan struct{})}
	begun := time.Now()
	go func() {
		defer close(p.done)
		p.got = c.sendUntil(ctx, method, target, "", headers...)
		p.took = time.Since(begun)
	}()
	return p
}

// wait is the response and how long it took.
func (p *pending) wait() (reply, time.Duration) {
	<-p.done
	return p.got, p.took
}

// answered says whether there is a response by now, once all that can happen at this time has.
func (p *pending) answered() bool {
	synctest.Wait()
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func TestConsulReadSaysHowFreshItIs(t *testing.T) {
	c := newCoordinated(t, httpd.Config{})
	c.put(t, "/v1/kv/a", "v")
	c.put(t, "/v1/kv/b", "v")
	for _, row := range []struct {
		name, target    string
		health          registry.Health
		index           string
		contact, leader string
		mode            string
		views           int64
	}{
		{"on the leader", "/v1/kv/a", registry.Health{Quorum: true, Leads: true}, "1", "0", "true", "consistent", 1},
		{"elsewhere", "/v1/kv/a", registry.Health{Quorum: true, Age: 21 * time.Millisecond}, "1", "21", "true", "consistent", 1},
		{"consistent", "/v1/kv/a?consistent", registry.Health{Quorum: true}, "1", "0", "true", "consistent", 1},
		{"stale", "/v1/kv/a?stale", registry.Health{Age: 3 * time.Second}, "1", "3000", "false", "stale", 0},
		{"not too stale", "/v1/kv/a?max_stale=3s", registry.Health{Quorum: true, Age: 3 * time.Second}, "1", "3000", "true", "stale", 0},
		{"too stale", "/v1/kv/a?max_stale=2s", registry.Health{Quorum: true, Age: 3 * time.Second}, "1", "3000", "true", "consistent", 1},
		{"too stale, stale", "/v1/kv/a?stale&max_stale=2s", registry.Health{Quorum: true, Age: 3 * time.Second}, "1", "3000", "true", "consistent", 1},
		{"an absent key", "/v1/kv/none", registry.Health{Quorum: true}, "2", "0", "true", "consistent", 1},
		{"an absent tree", "/v1/kv/none?recurse", registry.Health{Quorum: true}, "2", "0", "true", "consistent", 1},
		{"no session yet", "/v1/session/list?wait=1h", registry.Health{Quorum: true}, "1", "0", "true", "consistent", 1},
	} {
		c.Set(func(m *registrytest.Memory) { m.Reported = row.health })
		before := c.kv.views.Load()
		got := c.get(row.target)
		for name, want := range map[string]string{
			"X-Consul-Index": row.index, "X-Consul-LastContact": row.contact, "X-Consul-KnownLeader": row.leader,
			"X-Consul-Default-ACL-Policy": "allow", "X-Consul-Effective-Consistency": row.mode,
		} {
			expect.Equal(t, got.header.Get(name), want, "%s: %s is", row.name, name)
		}
		views := c.kv.views.Load() - before
		expect.That(t, views == row.views, "%s: the leader was asked %d times, want %d", row.name, views, row.views)
	}
	if got := c.put(t, "/v1/kv/a", "w"); got.header.Get("X-Consul-Index") != "" {
		t.Error("a write has an index")
	}
}

func TestConsulReadThatContradictsItselfIsRefused(t *testing.T) {
	c := newCoordinated(t, httpd.Config{})
	for query, want := range map[string]string{
		"stale&consistent":        "Cannot specify ?stale with ?consistent, conflicting semantics.",
		"max_stale=1s&consistent": "Cannot specify ?stale with ?consistent, conflicting semantics.",
		"max_stale=x":             `Invalid max_stale value "x"`,
		"index=x":                 "Invalid index",
		"index=-2":                "Invalid index",
		"index=1.5":               "Invalid index",
		"wait=x":                  "Invalid wait time",
		"wait=10":                 "Invalid wait time",
		"index=1&wait=1d":         "Invalid wait time",
	} {
		for _, path := range []string{"/v1/kv/a?", "/v1/kv/?keys&", "/v1/session/list?"} {
			got := c.get(path + query)
			expect.That(t, got.status == 400 && got.body == want, "%s%s: got %d %q, want 400 %q", path, query, got.status, got.body, want)
		}
	}
}

func TestBlockingQueryThatNeedNotWaitRespondsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCoordinated(t, httpd.Config{})
		c.put(t, "/v1/kv/a", "v")
		c.put(t, "/v1/kv/a", "w")
		for _, query := range []string{"", "?wait=1m", "?index=0&wait=1m", "?index=-1&wait=1m", "?index=&wait=1m", "?index=1&wait=1m"} {
			if got, took := c.start(t.Context(), "GET", "/v1/kv/a"+query).wait(); took != 0 || got.status != 200 || got.header.Get("X-Consul-Index") != "2" {
				t.Errorf("%q: got %d of index %s after %v", query, got.status, got.header.Get("X-Consul-Index"), took)
			}
		}
	})
}

func TestBlockingQueryWaitsForItsTimeAndUpToASixteenthMore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCoordinated(t, httpd.Config{})
		c.put(t, "/v1/kv/a", "v")
		for _, row := range []struct {
			query string
			wait  time.Duration
		}{
			{"index=1&wait=250ms", 250 * time.Millisecond},
			{"index=1&wait=15000ms", 15 * time.Second},
			{"index=1", 5 * time.Minute},
			{"index=1&wait=0ms", 5 * time.Minute},
			{"index=1&wait=", 5 * time.Minute},
			{"index=1&wait=-1s", 5 * time.Minute},
			{"index=1&wait=1h", 10 * time.Minute},
			{"index=99&wait=1s", time.Second},
			{"index=18446744073709551615&wait=1s&stale", time.Second},
		} {
			got, took := c.start(t.Context(), "GET", "/v1/kv/a?"+row.query).wait()
			if took < row.wait || took > row.wait+row.wait/16 || got.status != 200 || got.header.Get("X-Consul-Index") != "1" {
				t.Errorf("%s: got %d of index %s after %v, want 200 of 1 after %v and at most a sixteenth more", row.query, got.status, got.header.Get("X-Consul-Index"), took, row.wait)
			}
		}
	})
}

// Changes that wake a query, and changes that do not.
func TestBlockingQueryIsWokenByItsTopic(t *testing.T) {
	for _, row := range []struct {
		name, watched, change, method string
		wakes                         bool
	}{
		{"its key is written", "/v1/kv/a/b", "/v1/kv/a/b", "PUT", true},
		{"its key is deleted", "/v1/kv/a/b", "/v1/kv/a/b", "DELETE", true},
		{"its tree is deleted", "/v1/kv/a/b", "/v1/kv/a?recurse", "DELETE", true},
		{"another key is written", "/v1/kv/a/b", "/v1/kv/a/bc", "PUT", false},
		{"its key is written as it is", "/v1/kv/a/b", "/v1/kv/a/b?cas=2&flags=7", "PUT", false},
		{"its key appears", "/v1/kv/new", "/v1/kv/new", "PUT", true},
		{"its key stays absent", "/v1/kv/new", "/v1/kv/a/b", "PUT", false},
		{"a key of its tree is written", "/v1/kv/a?recurse", "/v1/kv/a/b", "PUT", true},
		{"a key of its tree is deleted", "/v1/kv/a/?recurse", "/v1/kv/a/b", "DELETE", true},
		{"the newest key of its tree is deleted", "/v1/kv/a/?keys&separator=/", "/v1/kv/a/c/d", "DELETE", true},
		{"another tree is written", "/v1/kv/a/?recurse", "/v1/kv/b", "PUT", false},
		{"its tree stays empty", "/v1/kv/none?keys", "/v1/kv/b", "PUT", false},
		{"a session begins", "/v1/session/list", "/v1/session/create", "PUT", true},
		{"its session ends", "/v1/session/info/S", "/v1/session/destroy/S", "PUT", true},
		{"its session is renewed", "/v1/session/info/S", "/v1/session/renew/S", "PUT", false},
		{"the holder's session ends", "/v1/kv/held", "/v1/session/destroy/S", "PUT", true},
		{"the holder releases", "/v1/kv/held", "/v1/kv/held?release=S", "PUT", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newCoordinated(t, httpd.Config{})
				session := c.session(t, "")
				c.put(t, "/v1/kv/a/b?flags=7", "")
				c.put(t, "/v1/kv/a/c/d", "")
				c.put(t, "/v1/kv/held?acquire="+session, "")
				watched := strings.ReplaceAll(row.watched, "/S", "/"+session)
				sep := "?"
				if strings.Contains(watched, "?") {
					sep = "&"
				}
				before := c.get(watched).header.Get("X-Consul-Index")
				p := c.start(t.Context(), "GET", watched+sep+"wait=1m&index="+before)
				need.That(t, !p.answered(), "it did not wait: %d %s", p.got.status, p.got.body)
				change := strings.NewReplacer("=S", "="+session, "/S", "/"+session).Replace(row.change)
				got := c.send(row.method, change, "")
				need.That(t, got.status == 200, "the change: %d %s", got.status, got.body)
				expect.That(t, p.answered() == row.wakes, "it was woken: %v, want %v", !row.wakes, row.wakes)
				expect.That(t, !row.wakes || p.got.header.Get("X-Consul-Index") != before, "it was woken at the same index %s", before)
				if !row.wakes {
					p.wait()
				}
			})
		})
	}
}

func TestBlockingQueriesOfOneKeyAllWake(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCoordinated(t, httpd.Config{})
		c.put(t, "/v1/kv/a", "")
		var waiting []*pending
		for range 100 {
			waiting = append(waiting, c.start(t.Context(), "GET", "/v1/kv/a?index=1"))
		}
		synctest.Wait()
		c.put(t, "/v1/kv/a", "new")
		for i, p := range waiting {
			need.That(t, p.answered() && p.took == 0, "watcher %d was not woken", i)
		}
		left := c.kv.watchers.Len()
		expect.That(t, left == 0, "%d wait still", left)
	})
}

// A key that is absent at the next read, too, is nothing new.
func TestBlockingQueryGoesOnWaitingForAKeyThatCameAndWent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCoordinated(t, httpd.Config{})
		c.put(t, "/v1/kv/other", "")
		p := c.start(t.Context(), "GET", "/v1/kv/a?index=1&wait=1m")
		synctest.Wait()
		joined := c.kv.joined.Load()
		// In one step, so that no read comes between.
		need.Got(c.kv.Apply(t.Context(), kv.KeyOp{Verb: kv.Set, Key: "a"}, kv.KeyOp{Verb: kv.Delete, Key: "a"}))(t)
		if p.answered() {
			t.Fatalf("it was answered: %d of index %s", p.got.status, p.got.header.Get("X-Consul-Index"))
		}
		expect.That(t, c.kv.joined.Load() != joined, "it was not woken, so there was no other read")
		c.put(t, "/v1/kv/a", "")
		expect.That(t, p.answered() && p.got.status == 200, "it was not woken when the key was there")
	})
}

func TestBlockingQueryMissesNoChangeDuringItsRead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCoordinated(t, httpd.Config{})
		c.put(t, "/v1/kv/a", "v")
		c.Set(func(*registrytest.Memory) {
			c.kv.after = func() { c.kv.perform(kv.KeyOp{Verb: kv.Set, Key: "a", Value: []byte("w")}) }
		})
		if got, took := c.start(t.Context(), "GET", "/v1/kv/a?index=1&wait=1m").wait(); took != 0 || got.header.Get("X-Consul-Index") != "2" {
			t.Errorf("got %d of index %s after %v, want 2 at once", got.status, got.header.Get("X-Consul-Index"), took)
		}
	})
}

func TestBlockingQueryAsksTheLeaderEachTimeUnlessItIsStale(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCoordinated(t, httpd.Config{})
		for _, row := range []struct {
			query string
			views int64
		}{{"", 2}, {"&consistent", 2}, {"&stale", 0}} {
			c.send("DELETE", "/v1/kv/a", "")
			c.put(t, "/v1/kv/a", "")
			index := c.get("/v1/kv/a").header.Get("X-Consul-Index")
			before := c.kv.views.Load()
			p := c.start(t.Context(), "GET", "/v1/kv/a?index="+index+row.query)
			synctest.Wait()
			c.put(t, "/v1/kv/a", "new")
			p.wait()
			views := c.kv.views.Load() - before
			expect.That(t, views == row.views, "%q: the leader was asked %d times, want %d", row.query, views, row.views)
		}
	})
}

func TestConsulRequestWaitsSevenSecondsForALeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCoordinated(t, httpd.Config{})
		c.put(t, "/v1/kv/a", "v")
		ask := func(method, target string) *pending { return c.start(t.Context(), method, target) }
		c.kv.fail(registry.ErrNoLeader)
		for _, p := range []*pending{ask("GET", "/v1/kv/a"), ask("PUT", "/v1/kv/a"), ask("PUT", "/v1/session/renew/x"), ask("GET", "/v1/session/list?consistent")} {
			got, took := p.wait()
			expect.That(t, got.status == 500 && got.body == "No cluster leader" && took >= 6900*time.Millisecond && took <= 7100*time.Millisecond,
				"got %d %q after %v, want 500 after 7s", got.status, got.body, took)
		}
		read, write, stale := ask("GET", "/v1/kv/a"), ask("PUT", "/v1/kv/b"), ask("GET", "/v1/kv/a?stale")
		time.Sleep(6 * time.Second)
		expect.That(t, !read.answered() && !write.answered() && stale.answered(), "after 6s only the stale read should be answered")
		c.kv.fail(nil)
		for _, p := range []*pending{read, write} {
			got, took := p.wait()
			expect.That(t, got.status == 200 && took <= 6100*time.Millisecond,
				"with a leader again: got %d %s after %v, want 200 at once", got.status, got.body, took)
		}
		if got, _ := stale.wait(); got.header.Get("X-Consul-KnownLeader") != "false" {
			t.Errorf("a stale read without a leader says that one is known")
		}
	})
}

func TestBlockingQueryOutlivesTheLossOfTheLeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCoordinated(t, httpd.Config{})
		c.put(t, "/v1/kv/a", "v")
		p := c.start(t.Context(), "GET", "/v1/kv/a?index=1&wait=5m")
		synctest.Wait()
		c.kv.fail(registry.ErrNoLeader)
		time.Sleep(time.Minute)
		c.kv.fail(nil)
		need.That(t, !p.answered(), "it was answered without a leader: %d %s", p.got.status, p.got.body)
		c.put(t, "/v1/kv/a", "w")
		expect.That(t, p.answered() && p.got.status == 200, "it was not woken afterwards")
		// One that begins, or looks again, while there is none is held.
		c.kv.fail(registry.ErrNoLeader)
		p = c.start(t.Context(), "GET", "/v1/kv/a?index=2&wait=5m")
		time.Sleep(5 * time.Second)
		c.kv.fail(nil)
		time.Sleep(time.Second)
		expect.That(t, !p.answered(), "it was answered: %d %s", p.got.status, p.got.body)
		c.put(t, "/v1/kv/a", "x")
		if got, _ := p.wait(); got.header.Get("X-Consul-Index") != "3" {
			t.Errorf("got %d of index %s, want 3", got.status, got.header.Get("X-Consul-Index"))
		}
	})
}

// The state that a node had when it lost its leader is no news minutes later.
func TestBlockingQueryWhoseTimeIsOverWithoutALeaderFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCoordinated(t, httpd.Config{})
		c.put(t, "/v1/kv/a", "v")
		p := c.start(t.Context(), "GET", "/v1/kv/a?index=1&wait=16s&consistent")
		synctest.Wait()
		c.kv.fail(registry.ErrNoLeader)
		got, took := p.wait()
		expect.That(t, got.status == 500 && got.body == "No cluster leader" && took >= 22*time.Second && took <= 25*time.Second,
			"got %d %s after %v, want 500 after 16s and 7s", got.status, got.body, took)
	})
}

func TestBlockingQueryTimesAreSpread(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCoordinated(t, httpd.Config{})
		c.put(t, "/v1/kv/a", "v")
		var waiting []*pending
		for range 20 {
			waiting = append(waiting, c.start(t.Context(), "GET", "/v1/kv/a?index=1&wait=10m"))
		}
		times := map[time.Duration]bool{}
		for _, p := range waiting {
			_, took := p.wait()
			times[took] = true
		}
		expect.That(t, len(times) >= 10, "20 that began together ended at %d moments", len(times))
	})
}

// Only what was certainly not done is done again.
func TestConsulWriteOfUnknownOutcomeIsNotRepeated(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCoordinated(t, httpd.Config{})
		c.kv.fail(errors.Join(registry.ErrUnknownOutcome, registry.ErrNoLeader))
		got, took := c.start(t.Context(), "PUT", "/v1/kv/a").wait()
		expect.That(t, got.status == 504 && got.header.Get("X-Rollcall-Outcome") == "unknown" && took == 0,
			"got %d %s after %v, want 504 at once", got.status, got.body, took)
	})
}

func TestBlockingQueryEndsWithItsConnection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCoordinated(t, httpd.Config{Limits: web.Limits{Watchers: 1}})
		c.put(t, "/v1/kv/a", "v")
		ctx, cancel := context.WithCancel(t.Context())
		p := c.start(ctx, "GET", "/v1/kv/a?index=1")
		synctest.Wait()
		got := c.get("/v1/kv/a?index=1")
		expect.That(t, got.status == 500 && strings.Contains(got.body, "limits.watchers"),
			"one too many: got %d %s, want 500 and which limit", got.status, got.body)
		cancel()
		if !p.answered() || c.kv.watchers.Len() != 0 {
			t.Errorf("%d wait after the client went away", c.kv.watchers.Len())
		}
		got = c.get("/v1/kv/a?index=1&wait=1ms")
		expect.That(t, got.status == 200, "the place was not given back: %d %s", got.status, got.body)
	})
}

func TestBlockingQueryRespondsAtShutdownWithWhatThereIs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCoordinated(t, httpd.Config{})
		c.put(t, "/v1/kv/a", "v")
		p := c.start(t.Context(), "GET", "/v1/kv/a?index=1")
		synctest.Wait()
		c.handler.EndWatches()
		got, took := p.wait()
		expect.That(t, took == 0 && got.status == 200 && got.header.Get("X-Consul-Index") == "1" && strings.Contains(got.body, `"Value":"dg=="`),
			"got %d %s after %v, want what there is at once", got.status, got.body, took)
		if got := c.get("/v1/kv/a?index=1"); got.status != 500 || !strings.Contains(got.body, "shutting down") {
			t.Errorf("a new one: got %d %s, want 500", got.status, got.body)
		}
	})
}

func TestBlockingQueryThatWaitsForALeaderRespondsAtShutdown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCoordinated(t, httpd.Config{})
		c.put(t, "/v1/kv/a", "v")
		p := c.start(t.Context(), "GET", "/v1/kv/a?index=1")
		synctest.Wait()
		c.kv.fail(registry.ErrNoLeader)
		c.kv.watchers.WakeAll()
		time.Sleep(time.Second)
		c.handler.EndWatches()
		got, took := p.wait()
		expect.That(t, took == time.Second && got.status == 200 && strings.Contains(got.body, `"Value":"dg=="`),
			"got %d %s after %v, want what it read before at once", got.status, got.body, took)
	})
}

// The server's time limits for a whole request would cut a long wait off.
func TestBlockingQueryIsNotCutByTheServersTimeLimit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := registrytest.New()
		locker := newLocker(m)
		n := newBubbled(t, httpd.Config{Service: m, Coordination: locker})
		got := n.send(t, http.MethodPut, "/v1/kv/a", "v")
		need.Equal(t, got.body, "true", "put: %d", got.status)
		begun := time.Now()
		got = n.send(t, http.MethodGet, "/v1/kv/a?index=1&wait=9m", "")
		took := time.Since(begun)
		expect.That(t, got.status == 200 && took >= 9*time.Minute && got.header.Get("X-Consul-Index") == "1",
			"got %d %s after %v", got.status, got.body, took)
	})
}

func TestBlockingQueryIndexNeverGoesBack(t *testing.T) {
	c := newCoordinated(t, httpd.Config{})
	last := map[string]int{}
	look := func(step string) {
		for _, path := range []string{"/v1/kv/?recurse", "/v1/kv/a?recurse", "/v1/kv/a?keys", "/v1/session/list"} {
			var index int
			_, err := fmt.Sscan(c.get(path).header.Get("X-Consul-Index"), &index)
			expect.That(t, err == nil && index >= last[path] && index != 0, "%s: the index of %s went from %d to %d (%v)", step, path, last[path], index, err)
			last[path] = index
		}
	}
	for _, step := range []struct{ method, target string }{
		{"PUT", "/v1/kv/b"}, {"PUT", "/v1/kv/a/1"}, {"PUT", "/v1/kv/a/2"}, {"DELETE", "/v1/kv/a/2"}, {"DELETE", "/v1/kv/a?recurse"}, {"PUT", "/v1/kv/a/1"}, {"DELETE", "/v1/kv/?recurse"}, {"PUT", "/v1/session/create"},
	} {
		c.send(step.method, step.target, "")
		look(step.method + " " + step.target)
	}
}
