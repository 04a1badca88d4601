package consul_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/fsmtest"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/httpdtest"
	"github.com/seed-20419f34/rollcall/httpd/web"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestConsulReadSaysHowFreshItIs(t *testing.T) {
	c := httpdtest.NewCoordinated(t, httpd.Config{})
	c.Put(t, "/v1/kv/a", "v")
	c.Put(t, "/v1/kv/b", "v")
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
		c.Set(func(m *fsmtest.Memory) { m.Reported = row.health })
		before := c.Kv.Views.Load()
		got := c.Get(row.target)
		for name, want := range map[string]string{
			"X-Consul-Index": row.index, "X-Consul-LastContact": row.contact, "X-Consul-KnownLeader": row.leader,
			"X-Consul-Default-ACL-Policy": "allow", "X-Consul-Effective-Consistency": row.mode,
		} {
			expect.Equal(t, got.Header.Get(name), want, "%s: %s is", row.name, name)
		}
		views := c.Kv.Views.Load() - before
		expect.That(t, views == row.views, "%s: the leader was asked %d times, want %d", row.name, views, row.views)
	}
	expect.That(t, c.Put(t, "/v1/kv/a", "w").Header.Get("X-Consul-Index") == "", "a write has an index")
}

func TestConsulReadThatContradictsItselfIsRefused(t *testing.T) {
	c := httpdtest.NewCoordinated(t, httpd.Config{})
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
			c.Get(path+query).Is(t, 400, want, "%s%s", path, query)
		}
	}
}

func TestBlockingQueryThatNeedNotWaitRespondsAtOnce(t *testing.T) {
	httpdtest.WithKey(t, func(t *testing.T, c *httpdtest.Coordinated) {
		c.Put(t, "/v1/kv/a", "w")
		for _, query := range []string{"", "?wait=1m", "?index=0&wait=1m", "?index=-1&wait=1m", "?index=&wait=1m", "?index=1&wait=1m"} {
			got, took := c.Start(t.Context(), "GET", "/v1/kv/a"+query).Wait()
			expect.That(t, took == 0 && got.Status == 200 && got.Header.Get("X-Consul-Index") == "2", "%q: got %d of index %s after %v", query, got.Status, got.Header.Get("X-Consul-Index"), took)
		}
	})
}

func TestBlockingQueryWaitsForItsTimeAndUpToASixteenthMore(t *testing.T) {
	httpdtest.WithKey(t, func(t *testing.T, c *httpdtest.Coordinated) {
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
			got, took := c.Start(t.Context(), "GET", "/v1/kv/a?"+row.query).Wait()
			expect.That(t, took >= row.wait && took <= row.wait+row.wait/16 && got.Status == 200 && got.Header.Get("X-Consul-Index") == "1", "%s: got %d of index %s after %v, want 200 of 1 after %v and at most a sixteenth more", row.query, got.Status, got.Header.Get("X-Consul-Index"), took, row.wait)
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
		httpdtest.InBubble(t, row.name, func(t *testing.T) {
			c := httpdtest.NewCoordinated(t, httpd.Config{})
			session := c.Session(t, "")
			c.Put(t, "/v1/kv/a/b?flags=7", "")
			c.Put(t, "/v1/kv/a/c/d", "")
			c.Put(t, "/v1/kv/held?acquire="+session, "")
			watched := strings.ReplaceAll(row.watched, "/S", "/"+session)
			sep := "?"
			if strings.Contains(watched, "?") {
				sep = "&"
			}
			before := c.Get(watched).Header.Get("X-Consul-Index")
			p := c.Start(t.Context(), "GET", watched+sep+"wait=1m&index="+before)
			need.That(t, !p.Answered(), "it did not wait: %d %s", p.Got.Status, p.Got.Body)
			change := strings.NewReplacer("=S", "="+session, "/S", "/"+session).Replace(row.change)
			got := c.Send(row.method, change, "")
			need.That(t, got.Status == 200, "the change: %d %s", got.Status, got.Body)
			expect.That(t, p.Answered() == row.wakes, "it was woken: %v, want %v", !row.wakes, row.wakes)
			expect.That(t, !row.wakes || p.Got.Header.Get("X-Consul-Index") != before, "it was woken at the same index %s", before)
			if !row.wakes {
				p.Wait()
			}
		})
	}
}

// A key that is absent again at the next read is nothing new.
func TestBlockingQueryGoesOnWaitingForAKeyThatCameAndWent(t *testing.T) {
	httpdtest.WithCoordination(t, func(t *testing.T, c *httpdtest.Coordinated) {
		c.Put(t, "/v1/kv/other", "")
		p := c.Start(t.Context(), "GET", "/v1/kv/a?index=1&wait=1m")
		synctest.Wait()
		joined := c.Kv.Joined.Load()
		// In one step, so that no read comes between.
		need.Got(c.Kv.Apply(t.Context(), kv.KeyOp{Verb: kv.Set, Key: "a"}, kv.KeyOp{Verb: kv.Delete, Key: "a"}))(t)
		need.That(t, !p.Answered(), "it was answered: %d of index %s", p.Got.Status, p.Got.Header.Get("X-Consul-Index"))
		expect.That(t, c.Kv.Joined.Load() != joined, "it was not woken, so there was no other read")
		c.Put(t, "/v1/kv/a", "")
		expect.That(t, p.Answered() && p.Got.Status == 200, "it was not woken when the key was there")
	})
}

func TestBlockingQueryMissesNoChangeDuringItsRead(t *testing.T) {
	httpdtest.WithKey(t, func(t *testing.T, c *httpdtest.Coordinated) {
		c.Set(func(*fsmtest.Memory) {
			c.Kv.After = func() { c.Kv.Perform(kv.KeyOp{Verb: kv.Set, Key: "a", Value: []byte("w")}) }
		})
		got, took := c.Start(t.Context(), "GET", "/v1/kv/a?index=1&wait=1m").Wait()
		expect.That(t, took == 0 && got.Header.Get("X-Consul-Index") == "2", "got %d of index %s after %v, want 2 at once", got.Status, got.Header.Get("X-Consul-Index"), took)
	})
}

func TestBlockingQueryAsksTheLeaderEachTimeUnlessItIsStale(t *testing.T) {
	httpdtest.WithCoordination(t, func(t *testing.T, c *httpdtest.Coordinated) {
		for _, row := range []struct {
			query string
			views int64
		}{{"", 2}, {"&consistent", 2}, {"&stale", 0}} {
			c.Send("DELETE", "/v1/kv/a", "")
			c.Put(t, "/v1/kv/a", "")
			index := c.Get("/v1/kv/a").Header.Get("X-Consul-Index")
			before := c.Kv.Views.Load()
			p := c.Start(t.Context(), "GET", "/v1/kv/a?index="+index+row.query)
			synctest.Wait()
			c.Put(t, "/v1/kv/a", "new")
			p.Wait()
			views := c.Kv.Views.Load() - before
			expect.That(t, views == row.views, "%q: the leader was asked %d times, want %d", row.query, views, row.views)
		}
	})
}

func TestConsulRequestWaitsSevenSecondsForALeader(t *testing.T) {
	httpdtest.WithKey(t, func(t *testing.T, c *httpdtest.Coordinated) {
		ask := func(method, target string) *httpdtest.Pending { return c.Start(t.Context(), method, target) }
		c.Kv.Fail(registry.ErrNoLeader)
		for _, p := range []*httpdtest.Pending{ask("GET", "/v1/kv/a"), ask("PUT", "/v1/kv/a"), ask("PUT", "/v1/session/renew/x"), ask("GET", "/v1/session/list?consistent")} {
			got, took := p.Wait()
			expect.That(t, got.Status == 500 && got.Body == "No cluster leader" && took >= 6900*time.Millisecond && took <= 7100*time.Millisecond,
				"got %d %q after %v, want 500 after 7s", got.Status, got.Body, took)
		}
		read, write, stale := ask("GET", "/v1/kv/a"), ask("PUT", "/v1/kv/b"), ask("GET", "/v1/kv/a?stale")
		time.Sleep(6 * time.Second)
		expect.That(t, !read.Answered() && !write.Answered() && stale.Answered(), "after 6s only the stale read should be answered")
		c.Kv.Fail(nil)
		for _, p := range []*httpdtest.Pending{read, write} {
			got, took := p.Wait()
			expect.That(t, got.Status == 200 && took <= 6100*time.Millisecond,
				"with a leader again: got %d %s after %v, want 200 at once", got.Status, got.Body, took)
		}
		got, _ := stale.Wait()
		expect.That(t, got.Header.Get("X-Consul-KnownLeader") == "false", "a stale read without a leader says that one is known")
	})
}

func TestBlockingQueryOutlivesTheLossOfTheLeader(t *testing.T) {
	httpdtest.WithKey(t, func(t *testing.T, c *httpdtest.Coordinated) {
		p := c.Start(t.Context(), "GET", "/v1/kv/a?index=1&wait=5m")
		synctest.Wait()
		c.Kv.Fail(registry.ErrNoLeader)
		time.Sleep(time.Minute)
		c.Kv.Fail(nil)
		need.That(t, !p.Answered(), "it was answered without a leader: %d %s", p.Got.Status, p.Got.Body)
		c.Put(t, "/v1/kv/a", "w")
		expect.That(t, p.Answered() && p.Got.Status == 200, "it was not woken afterwards")
		// A query that begins, or looks again, without a leader is held.
		c.Kv.Fail(registry.ErrNoLeader)
		p = c.Start(t.Context(), "GET", "/v1/kv/a?index=2&wait=5m")
		time.Sleep(5 * time.Second)
		c.Kv.Fail(nil)
		time.Sleep(time.Second)
		expect.That(t, !p.Answered(), "it was answered: %d %s", p.Got.Status, p.Got.Body)
		c.Put(t, "/v1/kv/a", "x")
		got, _ := p.Wait()
		expect.That(t, got.Header.Get("X-Consul-Index") == "3", "got %d of index %s, want 3", got.Status, got.Header.Get("X-Consul-Index"))
	})
}

// The state that a node had when it lost its leader is not news minutes later.
func TestBlockingQueryWhoseTimeIsOverWithoutALeaderFails(t *testing.T) {
	httpdtest.WithKey(t, func(t *testing.T, c *httpdtest.Coordinated) {
		p := c.Start(t.Context(), "GET", "/v1/kv/a?index=1&wait=16s&consistent")
		synctest.Wait()
		c.Kv.Fail(registry.ErrNoLeader)
		got, took := p.Wait()
		expect.That(t, got.Status == 500 && got.Body == "No cluster leader" && took >= 22*time.Second && took <= 25*time.Second,
			"got %d %s after %v, want 500 after 16s and 7s", got.Status, got.Body, took)
	})
}

func TestBlockingQueryTimesAreSpread(t *testing.T) {
	httpdtest.WithKey(t, func(t *testing.T, c *httpdtest.Coordinated) {
		var waiting []*httpdtest.Pending
		for range 20 {
			waiting = append(waiting, c.Start(t.Context(), "GET", "/v1/kv/a?index=1&wait=10m"))
		}
		times := map[time.Duration]bool{}
		for _, p := range waiting {
			_, took := p.Wait()
			times[took] = true
		}
		expect.That(t, len(times) >= 10, "20 that began together ended at %d moments", len(times))
	})
}

// Only a write that certainly did not happen is repeated.
func TestConsulWriteOfUnknownOutcomeIsNotRepeated(t *testing.T) {
	httpdtest.WithCoordination(t, func(t *testing.T, c *httpdtest.Coordinated) {
		c.Kv.Fail(errors.Join(registry.ErrUnknownOutcome, registry.ErrNoLeader))
		got, took := c.Start(t.Context(), "PUT", "/v1/kv/a").Wait()
		expect.That(t, got.Status == 504 && got.Header.Get("X-Rollcall-Outcome") == "unknown" && took == 0,
			"got %d %s after %v, want 504 at once", got.Status, got.Body, took)
	})
}

func TestBlockingQueryEndsWithItsConnection(t *testing.T) {
	httpdtest.Bubble(t, func(t *testing.T) {
		c := httpdtest.NewCoordinated(t, httpd.Config{Limits: web.Limits{Watchers: 1}})
		c.Put(t, "/v1/kv/a", "v")
		ctx, cancel := context.WithCancel(t.Context())
		p := c.Start(ctx, "GET", "/v1/kv/a?index=1")
		synctest.Wait()
		c.Get("/v1/kv/a?index=1").Says(t, 500, "limits.watchers", "one too many")
		cancel()
		expect.That(t, p.Answered() && c.Kv.Watchers.Len() == 0, "%d wait after the client went away", c.Kv.Watchers.Len())
		c.Get("/v1/kv/a?index=1&wait=1ms").Says(t, 200, "", "the place was given back")
	})
}

func TestBlockingQueryRespondsAtShutdownWithWhatThereIs(t *testing.T) {
	httpdtest.WithKey(t, func(t *testing.T, c *httpdtest.Coordinated) {
		p := c.Start(t.Context(), "GET", "/v1/kv/a?index=1")
		synctest.Wait()
		c.Handler.EndWatches()
		got, took := p.Wait()
		expect.That(t, took == 0 && got.Status == 200 && got.Header.Get("X-Consul-Index") == "1" && strings.Contains(got.Body, `"Value":"dg=="`),
			"got %d %s after %v, want what there is at once", got.Status, got.Body, took)
		c.Get("/v1/kv/a?index=1").Says(t, 500, "shutting down", "a new one")
	})
}

func TestBlockingQueryThatWaitsForALeaderRespondsAtShutdown(t *testing.T) {
	httpdtest.WithKey(t, func(t *testing.T, c *httpdtest.Coordinated) {
		p := c.Start(t.Context(), "GET", "/v1/kv/a?index=1")
		synctest.Wait()
		c.Kv.Fail(registry.ErrNoLeader)
		c.Kv.Watchers.WakeAll()
		time.Sleep(time.Second)
		c.Handler.EndWatches()
		got, took := p.Wait()
		expect.That(t, took == time.Second && got.Status == 200 && strings.Contains(got.Body, `"Value":"dg=="`),
			"got %d %s after %v, want what it read before at once", got.Status, got.Body, took)
	})
}

// The server's time limits for a whole request would cut a long wait short.
func TestBlockingQueryIsNotCutByTheServersTimeLimit(t *testing.T) {
	httpdtest.Bubble(t, func(t *testing.T) {
		m := fsmtest.New()
		locker := fsmtest.NewCoordination(m)
		n := httpdtest.NewBubbled(t, httpd.Config{Service: m, Coordination: locker})
		got := n.Send(t, http.MethodPut, "/v1/kv/a", "v")
		need.Equal(t, got.Body, "true", "put: %d", got.Status)
		begun := time.Now()
		got = n.Send(t, http.MethodGet, "/v1/kv/a?index=1&wait=9m", "")
		took := time.Since(begun)
		expect.That(t, got.Status == 200 && took >= 9*time.Minute && got.Header.Get("X-Consul-Index") == "1",
			"got %d %s after %v", got.Status, got.Body, took)
	})
}

func TestBlockingQueryIndexNeverGoesBack(t *testing.T) {
	c := httpdtest.NewCoordinated(t, httpd.Config{})
	last := map[string]int{}
	look := func(step string) {
		for _, path := range []string{"/v1/kv/?recurse", "/v1/kv/a?recurse", "/v1/kv/a?keys", "/v1/session/list"} {
			var index int
			_, err := fmt.Sscan(c.Get(path).Header.Get("X-Consul-Index"), &index)
			expect.That(t, err == nil && index >= last[path] && index != 0, "%s: the index of %s went from %d to %d (%v)", step, path, last[path], index, err)
			last[path] = index
		}
	}
	for _, step := range []struct{ method, target string }{
		{"PUT", "/v1/kv/b"}, {"PUT", "/v1/kv/a/1"}, {"PUT", "/v1/kv/a/2"}, {"DELETE", "/v1/kv/a/2"}, {"DELETE", "/v1/kv/a?recurse"}, {"PUT", "/v1/kv/a/1"}, {"DELETE", "/v1/kv/?recurse"}, {"PUT", "/v1/session/create"},
	} {
		c.Send(step.method, step.target, "")
		look(step.method + " " + step.target)
	}
}

// filterable is a catalog that filters select from.
var filterable = []struct{ target, body string }{
	{"/v1/catalog/register", `{"Node":"n1","Address":"10.0.0.1","NodeMeta":{"rack":"7"},"TaggedAddresses":{"lan":"10.0.0.1"},` +
		`"Service":{"Service":"web","ID":"w1","Tags":["a","v1"],"Port":80,"Meta":{"version":"1"},"Weights":{"Passing":3,"Warning":1},"TaggedAddresses":{"lan":{"Address":"10.1.0.1","Port":8080}}},` +
		`"Checks":[{"CheckID":"alive","Name":"alive","Status":"passing"},{"CheckID":"c1","Name":"http","Status":"passing","ServiceID":"w1","Output":"ok","Type":"http"}]}`},
	{"/v1/catalog/register", `{"Node":"n2","Address":"10.0.0.2","NodeMeta":{"rack":"8"},` +
		`"Service":{"Service":"web","ID":"w2","Tags":["b"],"Address":"10.1.0.2","Port":81,"Meta":{"version":"2","env":"prod"},"EnableTagOverride":true},` +
		`"Check":{"CheckID":"c2","Name":"http","Status":"critical","ServiceID":"w2","Output":"refused (500)"}}`},
	{"/v1/catalog/register", `{"Node":"n2","Address":"10.0.0.2","NodeMeta":{"rack":"8"},"Service":{"Service":"db","ID":"d1","Port":5432}}`},
	{"/v1/agent/service/register", `{"Name":"api","ID":"a1","Port":90,"Tags":["x"],"Check":{"CheckID":"ttl1","TTL":"1h","Status":"passing"}}`},
	{"/v1/agent/service/register", `{"Name":"api","ID":"a2","Port":91,"Meta":{"version":"2"}}`},
}

// filtered lists filters with what Consul 1.15.6 shows of the catalog above, see shownBy. For unreadable filters the
// texts are Consul's, with 400 instead of its 500. Three rows differ from Consul, as noted there.
var filtered = []struct{ target, filter, want string }{
	{"/v1/catalog/nodes", `Node == n1`, `n1`},
	{"/v1/catalog/nodes", `Node != "n1" and Node matches "^n"`, `n2`},
	{"/v1/catalog/nodes", `Meta.rack == 7`, `n1`},
	{"/v1/catalog/nodes", `rack in Meta`, `n1 n2`},
	{"/v1/catalog/nodes", `Meta.rack is empty`, `400 Failed: Invalid match operator "Is Empty" for selector "Meta.rack"`},
	{"/v1/catalog/nodes", "Address matches `^10[.]0`", `n1 n2`},
	{"/v1/catalog/nodes", `TaggedAddresses.lan == "10.0.0.1"`, `n1`},
	{"/v1/catalog/nodes", `not (Node == n1 or Node == none) and rack in Meta`, `n2`},
	{"/v1/catalog/nodes?node-meta=rack:8", `Node == n1`, ""},
	{"/v1/catalog/services", `ServiceName == web`, `web:[a,b,v1]`}, // with several instances its tags are unordered
	{"/v1/catalog/services", `ServiceTags is empty and ServicePort != 8300`, `api:[] consul:[] db:[]`},
	{"/v1/catalog/services", `b in ServiceTags`, `web:[b]`},
	{"/v1/catalog/services", `Node == n2`, `db:[] web:[b]`},
	// shows nothing before Consul 1.16.3, whose CHANGELOG.md lists the fix (GH-18322)
	{"/v1/catalog/services", `NodeMeta.rack == "7"`, `web:[a,v1]`},
	{"/v1/catalog/services?node-meta=rack:8", `ServiceName matches "e"`, `web:[b]`},
	{"/v1/catalog/services", `ServiceName == none`, ""},
	{"/v1/catalog/service/web", `ServiceMeta.version == 2`, `w2`},
	{"/v1/catalog/service/web", `ServiceMeta.env != prod`, `w1`},
	{"/v1/catalog/service/web", "ServiceMeta.env matches `x`", `w1`},
	{"/v1/catalog/service/web", "ServiceMeta.env not matches `x`", `w1 w2`},
	{"/v1/catalog/service/web", `ServiceMeta.env contains ro`, `w2`},
	{"/v1/catalog/service/web", `env not in ServiceMeta`, `w1`},
	{"/v1/catalog/service/web", `ServiceAddress is empty`, `400 Failed: Invalid match operator "Is Empty" for selector "ServiceAddress"`},
	{"/v1/catalog/service/web", `ServiceAddress == ""`, `w1`},
	{"/v1/catalog/service/web", `ServicePort == 80 or ServiceEnableTagOverride == true`, `w1 w2`},
	{"/v1/catalog/service/web", `ServicePort == "0x50"`, `w1`},
	{"/v1/catalog/service/web", `ServiceWeights.Passing == 3`, `w1`},
	{"/v1/catalog/service/web", `ServiceTaggedAddresses.lan.Port == 8080`, `w1`},
	{"/v1/catalog/service/web", `ServiceTaggedAddresses.lan.Port != 8080`, `w2`},
	{"/v1/catalog/service/web", `ServiceProxy.DestinationServiceName == "x" or ServiceConnect.Native == true`, ""},
	{"/v1/catalog/service/web", `ServiceProxy.Upstreams is empty and ServiceProxy.Expose.Paths.Path != "/"`, ""},
	{"/v1/catalog/service/web?tag=a", `ServiceMeta.version == 2`, ""},
	{"/v1/catalog/node/n2", `Service == web`, `w2`},
	{"/v1/catalog/node/n2", `Port == 5432`, `d1`},
	{"/v1/catalog/node/none", `Port == 5432`, ""},
	{"/v1/catalog/node-services/n2", `Port > 5`, `400 Failed: 1:6 (5): no match found, expected: "!=", "==", "contains", "in", "is", "matches", "not" or [ \t\r\n]`},
	{"/v1/catalog/node-services/n2", `Meta is not empty`, `w2`},
	{"/v1/catalog/node-services/n2", `Service == none`, ""},
	{"/v1/health/service/web", `Service.ID == w1`, `w1`},
	{"/v1/health/service/web", `Checks.Status == critical`, `w2`},
	{"/v1/health/service/web", `Checks.Status != critical`, `w1`},
	{"/v1/health/service/web", `not Checks.Status == critical`, `w1`},
	{"/v1/health/service/web", "Checks.Output matches `[(]5`", `w2`},
	{"/v1/health/service/web", `"v1" in Service.Tags and Node.Meta.rack == "7"`, `w1`},
	{"/v1/health/service/web", `v in Service.Tags`, ""},
	{"/v1/health/service/web", `Node.Datacenter == dc1 and Node.PeerName is empty`, `400 Failed: Invalid match operator "Is Empty" for selector "Node.PeerName"`},
	{"/v1/health/service/web", `Node.Datacenter == dc1 and Node.PeerName == ""`, `w1 w2`},
	{"/v1/health/service/web?passing", `Service.Port != 7`, `w1`},
	{"/v1/health/service/web?passing", `Service.ID == w2`, ""},
	{"/v1/health/service/web?tag=b", `Service.ID != w2`, ""},
	{"/v1/health/checks/web", `Status == critical`, `c2`},
	{"/v1/health/checks/web", `Name == http and ServiceTags contains a`, `c1`},
	{"/v1/health/node/n1", `ServiceID == ""`, `alive`},
	{"/v1/health/node/n1", `Type == http`, `c1`},
	{"/v1/health/state/any", `CheckID == c1 or CheckID == c2`, `c1 c2`},
	{"/v1/health/state/critical", `Node == n2`, `c2`},
	{"/v1/health/state/passing", `Node == n2`, ""},
	{"/v1/agent/services", `Service == api and Port == 90`, `a1`},
	{"/v1/agent/services", `Meta.version == 2 or x in Tags`, `a1 a2`},
	{"/v1/agent/services", `Connect.Native == true`, ""}, // Consul's handler panics: EOF
	{"/v1/agent/checks", `Name == "Service 'api' check"`, `ttl1`},
	{"/v1/agent/checks", `ServiceID == a2`, ""},
	{"/v1/agent/members", `Name == none`, ""},
	{"/v1/agent/members", `Tags.role == consul and Name == none`, ""},
	// Filters that cannot be read.
	{"/v1/catalog/nodes", `Node`, `400 Failed: 1:5 (4): no match found, expected: "!=", ".", "==", "[", [ \t\r\n] or [a-zA-Z0-9_]`},
	{"/v1/catalog/nodes", `Node == `, "400 Failed: 1:9 (8): no match found, expected: \"-\", \"0\", \"\\\"\", \"`\", [ \\t\\r\\n], [1-9] or [a-zA-Z]"},
	{"/v1/catalog/nodes", `(Node == n1`, `400 Failed: 1:12 (11): rule "grouping": Unmatched parentheses`},
	{"/v1/catalog/nodes", "Node == `n1", `400 Failed: 1:12 (11): rule "string": Unterminated string literal`},
	{"/v1/catalog/nodes", `Node = n1`, `400 Failed: 1:6 (5): no match found, expected: "!=", "==", "contains", "in", "is", "matches", "not" or [ \t\r\n]`},
	{"/v1/catalog/nodes", `None == n1`, `400 Failed: Selector "None" is not valid`},
	{"/v1/catalog/nodes", `node == n1`, `400 Failed: Selector "node" is not valid`},
	{"/v1/catalog/nodes", `CreateIndex == 1`, `400 Failed: Selector "CreateIndex" is not valid`},
	{"/v1/catalog/nodes", `Meta == x`, `400 Failed: Invalid match operator "Equal" for selector "Meta"`},
	{"/v1/catalog/nodes", "Node matches `(`", "400 Failed: Failed to compile regular expression \"(\": error parsing regexp: missing closing ): `(`"},
	{"/v1/catalog/nodes", `Node is empty`, `400 Failed: Invalid match operator "Is Empty" for selector "Node"`},
	{"/v1/catalog/service/web", `ServicePort == http`, `400 Failed: Failed to coerce value "http" for selector "ServicePort": strconv.ParseInt: parsing "http": invalid syntax`},
	{"/v1/catalog/service/web", `ServiceEnableTagOverride == maybe`, `400 Failed: Failed to coerce value "maybe" for selector "ServiceEnableTagOverride": strconv.ParseBool: parsing "maybe": invalid syntax`},
	{"/v1/health/service/web", `Service.Proxy.Nothing == 1`, `400 Failed: Selector "Service.Proxy.Nothing" is not valid`},
	{"/v1/health/service/web", `Service.ID.x == 1`, `400 Failed: Selector "Service.ID.x" is not valid`},
	{"/v1/health/service/web", `any Checks as c { c.Status == passing }`, `400 Failed: 1:5 (4): no match found, expected: "!=", "==", "contains", "in", "is", "matches", "not" or [ \t\r\n]`},
	{"/v1/health/service/web", `Checks == 1`, `400 Failed: Invalid match operator "Equal" for selector "Checks"`},
	{"/v1/agent/services", `None == x`, `400 Failed: Selector "None" is not valid`},
	{"/v1/agent/checks", `Name`, `400 Failed: 1:5 (4): no match found, expected: "!=", ".", "==", "[", [ \t\r\n] or [a-zA-Z0-9_]`},
}

// shownIn finds the names or ids in responses, by the beginnings of their targets.
var shownIn = []struct{ target, pattern string }{
	{"/v1/catalog/nodes", `"Node":"(.*?)"`},
	{"/v1/catalog/services", `"(\w+":\[.*?\])`},
	{"/v1/catalog/service/", `"ServiceID":"(.*?)"`},
	{"/v1/health/service/", `"ID":"(\w+)","Service"`},
	{"/v1/catalog/node", `"ID":"(\w+)","Service"`},
	{"/v1/health/", `"CheckID":"(.*?)"`},
	{"/v1/agent/checks", `"CheckID":"(.*?)"`},
	{"/v1/agent/services", `"ID":"(.*?)"`},
	{"/v1/agent/members", `"Name":"(.*?)"`},
}

// shownBy summarizes a response to a target, or returns the text of an error.
func shownBy(target string, status int, body string) string {
	if status != 200 {
		return fmt.Sprint(status, " ", strings.Replace(body, "Failed to create boolean expression evaluator:", "Failed:", 1))
	}
	i := slices.IndexFunc(shownIn, func(row struct{ target, pattern string }) bool { return strings.HasPrefix(target, row.target) })
	var all []string
	for _, found := range regexp.MustCompile(shownIn[i].pattern).FindAllStringSubmatch(body, -1) {
		all = append(all, strings.ReplaceAll(found[1], `"`, ""))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// withFilter returns a target with a filter as a parameter.
func withFilter(target, filter string) string {
	separator := "?"
	if strings.Contains(target, "?") {
		separator = "&"
	}
	return target + separator + "filter=" + url.QueryEscape(filter)
}

func TestConsulFiltersSelectAsInConsul(t *testing.T) {
	n := httpdtest.NewCatalog(t)
	for _, put := range filterable {
		n.Must(t, "PUT", put.target, put.body)
	}
	for _, row := range filtered {
		got := n.Call(t, "GET", withFilter(row.target, row.filter), "")
		expect.Equal(t, shownBy(row.target, got.Status, got.Body), row.want, "GET %s by %s shows", row.target, row.filter)
	}
}

func TestConsulFilterHasBounds(t *testing.T) {
	n := httpdtest.NewCatalog(t)
	n.Must(t, "PUT", filterable[0].target, filterable[0].body)
	for _, row := range []struct{ name, filter, want string }{
		{"10 kB", "Service.ID == w1" + strings.Repeat(" or Service.ID == none", 490), "w1"},
		{"10 kB in one text", `Service.ID != "` + strings.Repeat("x", 10<<10) + `"`, "w1"},
		{"many nots", strings.Repeat("not ", 2000) + "Service.ID == w1", "w1"},
		{"a nest", strings.Repeat("(", 5) + "Service.ID == w1" + strings.Repeat(")", 5), "w1"},
		{"parentheses in texts", `Service.ID == w1 or Service.ID == "` + strings.Repeat("(", 100) + "\" or Service.ID == `" + strings.Repeat("(", 100) + "`", "w1"},
		{"100 deep", strings.Repeat("(", 100) + "Service.ID == w1" + strings.Repeat(")", 100), "400 Failed: the parentheses nest 100 deep, and may nest 7 deep"},
		{"never closed", strings.Repeat("(", 1000) + "Service.ID == w1", "400 Failed: the parentheses nest 1000 deep, and may nest 7 deep"},
		{"many nests", strings.Repeat("((((((Service.ID == w1)))))) or ", 200) + "Service.ID == w1", "400 Failed: 1:… max number of expresssions parsed"},
		{"large patterns", "Service.ID matches `(x{100}){10}|(y{100}){10}` or Service.ID matches `" + strings.Repeat("(z{1000})", 10) + "`",
			"400 Failed: the regular expressions take … instructions, and may take 10000: repeat less"},
		{"bytes that are no text", "Service.ID == \xff", "400 Failed: 1:…: invalid encoding"},
	} {
		target := withFilter("/v1/health/service/web", row.filter)
		got := n.Call(t, "GET", target, "")
		head, tail, cut := strings.Cut(row.want, "…")
		shown := shownBy(target, got.Status, got.Body)
		expect.That(t, shown == row.want || cut && strings.HasPrefix(shown, head) && strings.HasSuffix(shown, tail), "%s: got %.300s, want %s", row.name, shown, row.want)
	}
	expect.Equal(t, n.Call(t, "GET", "/v1/health/service/web", "").Status, 200, "afterwards the status is")
}

func TestConsulFilterLeavesIndexesAsTheyAre(t *testing.T) {
	httpdtest.Bubble(t, func(t *testing.T) {
		n := newCatalogIn(t)
		put := func(body string) {
			got := n.Send(t, "PUT", "/v1/agent/service/register", body)
			need.That(t, got.Status == 200, "got %d %s", got.Status, got.Body)
		}
		put(`{"Name":"web","ID":"w1"}`)
		index := n.Get(t, "/v1/health/service/web").Index(t)
		target := withFilter("/v1/health/service/web", "Service.ID == w1")
		expect.Equal(t, n.Get(t, target).Index(t), index, "with a filter the index is")
		begun := time.Now()
		httpdtest.After(t, time.Minute, func() { put(`{"Name":"web","ID":"w2"}`) })
		got := n.Get(t, fmt.Sprintf("%s&index=%d&wait=9m", target, index))
		took := time.Since(begun)
		expect.That(t, took == time.Minute && got.Index(t) > index && shownBy(target, got.Status, got.Body) == "w1",
			"after %v it was answered %s, want w1 after 1 min, when the service changed", took, got.Body)
		begun = time.Now()
		got = n.Get(t, fmt.Sprintf("%s&index=%d&wait=9m", withFilter("/v1/health/service/web", "None == w1"), got.Index(t)))
		expect.That(t, got.Status == 400 && time.Since(begun) == 0, "a filter that cannot be read was answered %d after %v, want 400 at once", got.Status, time.Since(begun))
	})
}

// Changes, and which blocking queries they wake, with Consul 1.15.6 (an agent in mode -dev, put through the same
// steps) and here. With Consul, w is an answer that says nothing new. So here a w may be missing, but never a W. A w
// here without a w or W there is one too many, and is in the table so that no other joins it.
func TestBlockingQueriesWakeAsConsulsDo(t *testing.T) {
	targets := []string{
		"/v1/catalog/nodes", "/v1/catalog/services", "/v1/catalog/service/web", "/v1/catalog/service/db", "/v1/catalog/service/none",
		"/v1/catalog/node/rollcall", "/v1/catalog/node/far", "/v1/catalog/node-services/far",
		"/v1/health/service/web", "/v1/health/service/db", "/v1/health/service/cache", "/v1/health/checks/web",
		"/v1/health/node/rollcall", "/v1/health/node/far", "/v1/health/state/any", "/v1/health/state/critical",
	}
	const (
		register, deregister = "/v1/catalog/register", "/v1/catalog/deregister"
		service              = "/v1/agent/service/register"
		web                  = `{"Name":"web","ID":"w1","Address":"10.0.0.1","Check":{"TTL":"1h","Status":"passing"},`
	)
	httpdtest.Bubble(t, func(t *testing.T) {
		n := newCatalogIn(t)
		put := func(target, body string) {
			got := n.Send(t, "PUT", target, body)
			need.That(t, got.Status == 200, "%s %s: got %d %s", target, body, got.Status, got.Body)
		}
		put(service, web+`"Port":80}`)
		put(service, `{"Name":"db","ID":"d1","Port":81,"Address":"10.0.0.1","Check":{"TTL":"1h","Status":"passing"}}`)
		put(register, `{"Node":"far","Address":"10.9.0.1","NodeMeta":{"a":"1"},"Service":{"Service":"web","ID":"fw","Port":90},"Checks":[{"CheckID":"fwc","Name":"fwc","ServiceID":"fw","Status":"passing"},{"CheckID":"fn","Name":"fn","Status":"passing"}]}`)
		put(register, `{"Node":"near","Address":"10.9.0.2","Service":{"Service":"cache","ID":"nc","Port":91},"Check":{"CheckID":"nn","Name":"nn","Status":"passing"}}`)
		for _, row := range []struct{ name, target, body, consul, here string }{
			{"a heartbeat that says nothing new", "/v1/agent/check/pass/service:w1", "", "................", "................"},
			{"a service is registered as it is", service, web + `"Port":80}`, "................", "................"},
			{"a service's check turns critical", "/v1/agent/check/fail/service:w1", "", "........W..WW.WW", "........W..WW.WW"},
			{"and passes again", "/v1/agent/check/pass/service:w1", "", "........W..WW.WW", "........W..WW.WW"},
			{"a service gets a tag", service, web + `"Port":80,"Tags":["a"]}`, ".WW.wW..W..WW.Ww", ".WW..W..W..WW.Ww"},
			{"a service gets another port", service, web + `"Port":82,"Tags":["a"]}`, ".wW.wW..W.......", ".wW..W..W..ww..."},
			{"it has a second instance", service, `{"Name":"web","ID":"w2","Port":83,"Address":"10.0.0.1"}`, ".wW.wW..W.......", ".wW..W..W..ww..."},
			{"which goes", "/v1/agent/service/deregister/w2", "", ".wW.wW..W.......", ".wW..W..W..ww..."},
			{"a new service", service, `{"Name":"new","ID":"n1","Port":84,"Address":"10.0.0.1","Check":{"TTL":"1h","Status":"passing"}}`, ".W..wW......W.Ww", ".W...W......W.Ww"},
			{"which goes", "/v1/agent/service/deregister/n1", "", ".W..wW......W.Ww", ".W...W......W.Ww"},
			{"a check of a service of far turns critical", register, `{"Node":"far","SkipNodeUpdate":true,"Check":{"CheckID":"fwc","Name":"fwc","ServiceID":"fw","Status":"critical"}}`, "........W..W.WWW", "........W..W.WWW"},
			{"a check of the node far turns critical", register, `{"Node":"far","SkipNodeUpdate":true,"Check":{"CheckID":"fn","Name":"fn","Status":"critical"}}`, "........W....WWW", "........W....WWW"},
			{"a check of the node near turns critical", register, `{"Node":"near","SkipNodeUpdate":true,"Check":{"CheckID":"nn","Name":"nn","Status":"critical"}}`, "..........W...WW", "..........W...WW"},
			{"which goes", deregister, `{"Node":"near","CheckID":"nn"}`, "..........W...WW", "..........W...WW"},
			{"the node near gets another address", register, `{"Node":"near","Address":"10.9.0.3"}`, "W.........W.....", "W.........W....."},
			{"the node far gets another address", register, `{"Node":"far","Address":"10.9.0.4","NodeMeta":{"a":"1"}}`, "W.W...WWW.......", "W.W...WWW..w.w.."},
			{"a service is added on far", register, `{"Node":"far","SkipNodeUpdate":true,"Service":{"Service":"ext","ID":"fe","Port":92}}`, ".W....WW........", ".W....WW.....w.."},
			{"which goes", deregister, `{"Node":"far","ServiceID":"fe"}`, ".W..w.WW........", ".W....WW.....w.."},
			{"a node appears", register, `{"Node":"other","Address":"10.9.0.9"}`, "W...............", "W..............."},
			{"and goes", deregister, `{"Node":"other"}`, "W...............", "W..............."},
			{"the node near goes, with its service", deregister, `{"Node":"near"}`, "WW..w.....W.....", "WW........W....."},
		} {
			got := n.Wakes(t, row.name, targets, func() { put(row.target, row.body) })
			expect.Equal(t, got, row.here, "%s: woken are", row.name)
			for i := range row.consul {
				expect.That(t, row.consul[i] != 'W' || got[i] == 'W', "%s: %s is %c here, with Consul %c", row.name, targets[i], got[i], row.consul[i])
			}
		}
	})
}

// randomChange returns an operation on a few services on three nodes, however they are registered. The same random
// numbers give the same operation.
func randomChange(random *rand.Rand) registry.Op {
	one := func(texts ...string) string { return texts[random.IntN(len(texts))] }
	node, id, app := one("", "n1", "n2"), one("1", "2"), one("WEB", "DB")
	key := registry.NewKey(app, one("1", "2", "n1:1", "n2:2"))
	act := registry.Act{Author: "ops", Reason: one("", "test")}
	checkID := one("a", "b", catalog.ServiceMaintenance+"1", catalog.NodeMaintenance)
	status := catalog.CheckStatus(random.IntN(3))
	switch random.IntN(14) {
	case 0, 1:
		i := httpdtest.NewInstance(app, key.ID)
		i.Status, i.LastDirty = registry.Status(random.IntN(3)), 0
		if random.IntN(2) == 0 {
			i.Port.Number, i.Metadata = 8081, []registry.Pair{{Key: "k", Value: one("", "v")}}
		}
		return registry.Register{Instance: i}
	case 2:
		return registry.Cancel{Key: key}
	case 3:
		return registry.SetOverride{Key: key, Status: registry.Status(1 + random.IntN(4)), By: act}
	case 4:
		return registry.DeleteOverride{Key: key, Fallback: registry.Up}
	case 5:
		return registry.Quarantine{Key: key, For: int64(random.IntN(2)) * 60_000, By: act}
	case 6:
		return registry.UpdateMetadata{Key: key, Pairs: []registry.Pair{{Key: "k", Value: one("v", "w")}}}
	case 7:
		return registry.DeregisterCatalog{Node: node, Service: id}
	case 8:
		return registry.DeregisterCatalog{Node: node, Check: checkID}
	case 9:
		return registry.DeregisterCatalog{Node: node}
	case 10, 11:
		return registry.SetCheck{Node: node, Check: checkID, Status: status, Output: one("", "x")}
	}
	op := registry.RegisterCatalog{KeepNode: random.IntN(2) == 0, ReplaceChecks: random.IntN(2) == 0, Agent: random.IntN(2) == 0}
	if node != "" {
		op.Node = &catalog.Node{Name: node, Address: one("10.1.0.1", "10.1.0.2"), Meta: []registry.Pair{{Key: "zone", Value: one("a", "b")}}}
	} else if random.IntN(3) == 0 {
		op.Node = &catalog.Node{Meta: []registry.Pair{{Key: "zone", Value: one("a", "b")}}}
	}
	if random.IntN(3) > 0 {
		s := &catalog.Service{Name: one("web", "Web", "db"), ID: id, Node: node, Port: int32(random.IntN(2)), WeightPassing: 1, WeightWarning: 1}
		if random.IntN(2) == 0 {
			s.Tags = []string{one("t", "u")}
		}
		in := httpdtest.NewInstance(strings.ToUpper(s.Name), id)
		if node != "" {
			in.InstanceID = node + ":" + id
		}
		op.Service, op.Instance = s, in
	}
	for range random.IntN(3) {
		check := &catalog.Check{Node: node, ID: one("a", "b"), Service: one("", id), Status: status}
		if random.IntN(4) == 0 {
			check.Alias = &catalog.Alias{Named: true, Node: one("", "n1", "n2"), Service: one("", "1", "2")}
		}
		op.Checks = append(op.Checks, check)
	}
	return op
}

// Whatever happens, a blocking query is answered when what it reads has changed, with a higher index; and after a
// restart each index is unchanged.
func TestBlockingQueriesMissNoChangeOfTheCatalog(t *testing.T) {
	targets := []string{
		"/v1/catalog/nodes", "/v1/catalog/services", "/v1/catalog/services?node-meta=zone:a", "/v1/health/state/any", "/v1/health/state/critical",
		"/v1/health/state/any?node-meta=zone:a", "/v1/catalog/nodes?node-meta=zone:a",
	}
	for _, name := range []string{"web", "db"} {
		targets = append(targets, "/v1/catalog/service/"+name, "/v1/health/service/"+name, "/v1/health/checks/"+name)
	}
	for _, node := range []string{"rollcall", "n1", "n2"} {
		targets = append(targets, "/v1/catalog/node/"+node, "/v1/catalog/node-services/"+node, "/v1/health/node/"+node)
	}
	targets = append(targets, "/v1/health/service/web?passing", "/v1/catalog/service/web?tag=t", "/v1/catalog/service/web?node-meta=zone:a",
		"/v1/catalog/services?filter=NodeMeta.zone==a", "/v1/health/service/web?filter=Checks.Status==critical", "/v1/health/connect/web", "/v1/catalog/service/consul", "/v1/health/service/consul",
		"/v1/health/checks/web?node-meta=zone:a", "/v1/health/node/n1?node-meta=zone:a")
	changes := 120
	if raced {
		changes = 25
	}
	for seed := range uint64(2) {
		httpdtest.Bubble(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 19))
			n := newCatalogIn(t)
			// an empty catalog also has an index of 1
			n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("FIRST", "1")})
			for i := range changes {
				ops := []registry.Op{randomChange(random)}
				for random.IntN(3) == 0 {
					ops = append(ops, randomChange(random))
				}
				n.Wakes(t, fmt.Sprintf("seed %d, change %d, %+v", seed, i, ops), targets, func() { n.Perform(t, ops...) })
				if random.IntN(40) == 0 {
					n.Pass(13 * time.Hour)
				}
				if random.IntN(40) == 0 {
					n.Restart(t, targets)
				}
				need.That(t, !t.Failed(), "it goes on no further")
			}
		})
	}
}

func TestChangeIsEncodedOnceForAllBlockingQueries(t *testing.T) {
	httpdtest.Bubble(t, func(t *testing.T) {
		config, catalog := httpdtest.CatalogConfig()
		config.Metrics = prometheus.NewRegistry()
		n := httpdtest.NewBubbled(t, config)
		catalog.Memory = n.Memory
		const service = "/v1/agent/service/register"
		n.Send(t, "PUT", service, `{"Name":"web","ID":"w1","Port":80}`)
		before := n.Send(t, "GET", "/v1/health/service/web", "")
		built := func() float64 {
			return httpdtest.Gathered(t, config.Metrics, "rollcall_http_shared_documents_built_total", nil)
		}
		start := built()
		const many = 1000
		bodies := make(chan string, many)
		for range many {
			go func() {
				got, _ := n.RoundTrip(t, httpdtest.Request("GET", "/v1/health/service/web?wait=5m&index="+before.Header.Get("X-Consul-Index"), ""))
				bodies <- got.Body
			}()
		}
		synctest.Wait()
		n.Send(t, "PUT", service, `{"Name":"web","ID":"w2","Port":81}`)
		for range many {
			got := <-bodies
			need.That(t, strings.Contains(got, `"w2"`), "a query returned %q", got)
		}
		expect.Equal(t, built()-start, 1, "encoded for 1,000 queries:")
	})
}
