package sim_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/cmd/internal/sim"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// truthContended creates a lock that somebody holds, and a session that does not hold it, and returns the session.
func truthContended(w *sim.World, leader string) string {
	w.Helper()
	need.That(w, w.Lock(leader, "l", w.Session(leader, time.Hour, 0), 0) != 0, "the lock is not acquired")
	return w.Session(leader, time.Hour, 0)
}

// truthNoSession checks that a response about a live session does not say that it has ended.
func truthNoSession(w *sim.World, r sim.Reply, when string) {
	w.Helper()
	expect.That(w, r.Status != http.StatusNotFound, "%s: a session that lives is told %v after %v", when, r, r.Took)
}

// It asks a follower for a lock that another session holds, while the follower lags or is cut off, and so may not
// know the session.
func TestTruthLockIsNotRefusedForASessionThatLives(t *testing.T) {
	const wait = time.Second
	path := func(session string) string {
		return fmt.Sprintf("/v1/rollcall/locks/l?session=%s&wait=%v", session, wait)
	}
	t.Run("behind", func(t *testing.T) {
		sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
			leader := w.Leader()
			behind := w.Others(leader)[0]
			w.SlowDisk(behind, 3*time.Second)
			truthContended(w, leader)
			for i := range 4 {
				waiter := w.Session(leader, time.Hour, 0)
				truthNoSession(w, w.Hold(behind, "PUT", path(waiter), ""), fmt.Sprint("behind, ", i))
			}
			w.SlowDisk(behind, 0)
			w.Wait(4 * time.Second) // its last slow write ends
		})
	})
	for cut := 0 * time.Millisecond; cut <= wait; cut += 100 * time.Millisecond {
		t.Run(fmt.Sprint("cut off after ", cut), func(t *testing.T) {
			sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
				leader := w.Leader()
				node := w.Others(leader)[0]
				waiter := truthContended(w, leader)
				time.AfterFunc(cut, func() { w.Isolate(node) })
				truthNoSession(w, w.Hold(node, "PUT", path(waiter), ""), "cut off")
				w.Heal()
				truthNoSession(w, w.Hold(node, "PUT", path(waiter), ""), "healed")
			})
		})
	}
}

// A client may hang up at any moment, also while its request is being written.
func TestTruthSessionWhoseClientHungUpWaitsNoLonger(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		leader := w.Leader()
		truthContended(w, leader)
		for ms := range 30 {
			path := "/v1/rollcall/locks/l?wait=5m&session=" + w.Session(leader, time.Hour, 0)
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(ms)*time.Millisecond)
			req := need.Got(http.NewRequestWithContext(ctx, "PUT", w.URL(w.Others(leader)[0])+path, nil))(w)
			expect.That(w, expect.Err(w.Client("127.0.9.3").Do(req)) != nil, "there is a response after %d ms", ms)
			cancel()
		}
		w.Wait(time.Second)
		var lock api.Permits
		need.OK(w, json.Unmarshal([]byte(w.Call(leader, "GET", "/v1/rollcall/locks/l", "").Body), &lock))
		expect.Equal(w, len(lock.Queue), 0, "sessions that wait:")
	})
}

// It is the other half: what a node knows for certain, it says.
func TestTruthSessionThatHasEndedIsToldSo(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		leader := w.Leader()
		waiter := truthContended(w, leader)
		time.AfterFunc(300*time.Millisecond, func() { w.DestroySession(leader, waiter) })
		r := w.Hold(w.Others(leader)[0], "PUT", "/v1/rollcall/locks/l?wait=5s&session="+waiter, "")
		expect.That(w, r.Status == http.StatusNotFound && r.Took < time.Second, "got %v after %v", r, r.Took)
	})
}

// truthClient returns our own client, as commands use it.
func truthClient(w *sim.World, nodes ...string) *client.Client {
	w.Helper()
	var servers []string
	for _, n := range nodes {
		servers = append(servers, w.URL(n))
	}
	return need.Got(client.New(client.Config{Servers: servers, HTTPClient: w.Client("127.0.9.2"), InOrder: true}))(w)
}

// truthLeaderless leaves one node of three running, which has lost its leader.
func truthLeaderless(w *sim.World) (node string) {
	w.Helper()
	node = w.Others(w.Leader())[0]
	for _, other := range w.Others(node) {
		w.Kill(other)
	}
	w.Wait(5 * time.Second)
	return node
}

// Our own client writes while no node leads. In 0.1.0 it gave up on the server after 5 s of its 7 s, and called
// the outcome unknown.
func TestTruthWriteWithoutALeaderIsRefused(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		cl := truthClient(w, truthLeaderless(w))
		defer cl.Close(w.Context())
		writes := map[string]func() error{
			"a key":      func() error { return cl.KV().Put(w.Context(), "k", []byte("v")) },
			"a session":  func() error { _, err := cl.CreateSession(w.Context(), client.SessionOptions{}); return err },
			"a cancel":   func() error { return cl.Cancel(w.Context(), registry.Key{App: "A", ID: "i"}) },
			"a deletion": func() error { return cl.KV().Delete(w.Context(), "k") },
		}
		for what, write := range writes {
			began := time.Now()
			err := write()
			expect.That(w, err != nil && !errors.Is(err, client.ErrUnknownOutcome) && time.Since(began) < 1200*time.Millisecond,
				"%s: %v after %v", what, err, time.Since(began))
		}
		expect.That(w, !strings.Contains(w.Log(), registry.ErrUnknownOutcome.Error()), "nothing was proposed, and the log says:\n%s", w.Log())
	})
}

// Stock clients leave while a node waits for a leader.
func TestTruthClientThatGivesUpBeforeAnythingIsProposedIsNotUnknown(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		node := truthLeaderless(w)
		stock := w.Client("127.0.9.3")
		for _, call := range [][2]string{{"PUT", "/v1/kv/k"}, {"PUT", "/v1/session/create"}, {"PUT", "/v1/session/renew/none"},
			{"PUT", "/v1/agent/service/deregister/x"}, {"DELETE", "/eureka/apps/A/i"}, {"PUT", "/eureka/apps/A/i"}, {"POST", "/v1/rollcall/sessions"}} {
			for _, patience := range []time.Duration{30 * time.Millisecond, 300 * time.Millisecond, 5 * time.Second} {
				ctx, cancel := context.WithTimeout(w.Context(), patience)
				req := need.Got(http.NewRequestWithContext(ctx, call[0], w.URL(node)+call[1], strings.NewReader("")))(w)
				if resp, err := stock.Do(req); err == nil {
					resp.Body.Close()
				}
				cancel()
				w.Wait(2 * time.Second)
			}
		}
		log := w.Log()
		expect.That(w, strings.Contains(log, registry.ErrGivenUp.Error()), "no call was given up")
		for line := range strings.Lines(log) {
			expect.That(w, !strings.Contains(line, registry.ErrUnknownOutcome.Error()), "nothing was proposed, and the log says: %s", line)
		}
	})
}

// It registers where the registry is full.
func TestTruthFullRegistryRefuses(t *testing.T) {
	full := func(c *config.Config) { c.HTTPD.Limits.InstancesTotal = 1 }
	sim.Run(t, sim.Cluster{Nodes: 3, Configure: full}, func(w *sim.World) {
		w.Register("ORDERS/first", time.Hour)
		w.Wait(time.Second) // every node knows of it
		cl := truthClient(w, w.Names()...)
		defer cl.Close(w.Context())
		err := cl.Register(w.Context(), &registry.Instance{App: "ORDERS", InstanceID: "second", HostName: "h", IPAddr: "10.1.1.1", Status: registry.Up,
			DataCenter: registry.DataCenter{Name: registry.MyOwn}})
		expect.That(w, err != nil && !errors.Is(err, client.ErrUnknownOutcome) && strings.Contains(err.Error(), "full"), "register: %v", err)
	})
}

// truthMortal is something that must end, even though leaders change.
type truthMortal struct {
	name        string
	life, grace time.Duration // until it ends under one leader, and one grace (docs/adr/0034)
	ended       func(node string) bool

	began time.Time
	took  time.Duration // 0 until it has ended
}

// truthReigns is a cluster whose leadership is handed over repeatedly.
type truthReigns struct {
	w       *sim.World
	mortals []*truthMortal
	changes []truthChange
}

// truthChange is one change of leader.
type truthChange struct{ from, to time.Time }

// bound returns when something that began must have ended, if it ends at a moment: its life, one grace, the time
// without a leader, 1.2 s for each change of leader, and 2.2 s.
func (r *truthReigns) bound(m *truthMortal, at time.Time) time.Duration {
	bound := m.life + m.grace + 2200*time.Millisecond
	for _, c := range r.changes {
		if c.to.After(m.began) && c.from.Before(at) {
			bound += c.to.Sub(c.from) + 1200*time.Millisecond
		}
	}
	return bound
}

// look records what has ended.
func (r *truthReigns) look(node string) {
	r.w.Helper()
	for _, m := range r.mortals {
		if m.took != 0 || !m.ended(node) {
			continue
		}
		m.took = time.Since(m.began)
		bound := r.bound(m, time.Now())
		r.w.Logf("%s: ended after %v, bound %v", m.name, m.took, bound)
		expect.That(r.w, m.took >= m.life-look && m.took <= bound+look,
			"%s has ended after %v and %d changes of leader, want %v to %v", m.name, m.took, len(r.changes), m.life, bound)
	}
}

// reign makes one node lead for a time, and then hand over.
func (r *truthReigns) reign(lasts time.Duration) {
	r.w.Helper()
	leader := r.w.Leader()
	for until := time.Now().Add(lasts); time.Now().Before(until); r.w.Wait(look / 2) {
		r.look(leader)
	}
	from := time.Now()
	r.w.TransferLeadership()
	r.w.Await(5*time.Second, "another node leads", func() bool { return r.w.Leader() != leader })
	r.changes = append(r.changes, truthChange{from, time.Now()})
}

// missing reports whether a node responds with 404 to a stale read.
func (r *truthReigns) missing(path string) func(string) bool {
	return func(node string) bool { return r.w.Call(node, "GET", path, "").Status == http.StatusNotFound }
}

// says reports whether a node's response has a text, or no longer has it.
func (r *truthReigns) says(path, text string, has bool) func(string) bool {
	return func(node string) bool {
		reply := r.w.Call(node, "GET", path, "")
		return reply.Status == http.StatusOK && strings.Contains(reply.Body, text) == has
	}
}

func (r *truthReigns) mortal(name string, life, grace time.Duration, ended func(string) bool) {
	r.mortals = append(r.mortals, &truthMortal{name: name, life: life, grace: grace, ended: ended, began: time.Now()})
}

// populate creates one of everything that ends by the lease clock.
func (r *truthReigns) populate() {
	w := r.w
	w.Helper()
	node := w.Names()[0]
	done := func(method, path, body string) {
		w.Helper()
		reply := w.Call(node, method, path, body)
		need.That(w, reply.Status/100 == 2, "%s %s: %v", method, path, reply)
	}
	const life = 12 * time.Second
	w.Register("DEAD/a", life)
	r.mortal("lease", life, leaseGrace(life), r.missing("/eureka/apps/DEAD/a?consistency=stale"))
	session := w.Session(node, life, 0)
	r.mortal("session", life, graceOf(life), r.missing("/v1/rollcall/sessions/"+session+"?consistency=stale"))
	done("PUT", "/v1/agent/service/register", `{"Name":"ttl","Check":{"TTL":"12s","Status":"passing"}}`)
	r.mortal("TTL check", life, graceOf(life), r.says("/v1/health/checks/ttl?stale", "critical", true))
	done("PUT", "/v1/agent/service/register",
		`{"Name":"reaped","Check":{"TTL":"1h","Status":"critical","DeregisterCriticalServiceAfter":"1m"}}`)
	r.mortal("service that is critical", time.Minute, 0, r.says("/v1/health/service/reaped?stale", "reaped", false))
	w.Register("ACTS/a", time.Hour)
	w.Register("ACTS/b", time.Hour)
	done("PUT", "/v1/rollcall/apps/ACTS/a/override?value=OUT_OF_SERVICE&for=20s&author=ann&reason=r", "")
	r.mortal("override", 20*time.Second, 0, func(n string) bool { return statusAt(w, n, "ACTS/a?consistency=stale") == "UP" })
	done("PUT", "/v1/rollcall/apps/ACTS/b/quarantine?for=20s&author=ann&reason=r", "")
	r.mortal("quarantine", 20*time.Second, 0, func(n string) bool { return statusAt(w, n, "ACTS/b?consistency=stale") == "UP" })
	for _, held := range []string{"/v1/kv/held?acquire=", "/v1/rollcall/locks/held?session="} {
		holder := w.Session(node, time.Hour, 15*time.Second)
		done("PUT", held+holder, "")
		w.DestroySession(node, holder)
		next := w.Session(node, time.Hour, 0)
		r.mortal("lock-delay of "+held, 15*time.Second, 0, func(n string) bool {
			body := w.Call(n, "PUT", held+next, "").Body
			return strings.HasPrefix(body, "true") || strings.Contains(body, `"acquired":true`)
		})
	}
}

// Leadership is handed over 25 times. In 0.1.0 each leader gave a lease a grace of its own, so a dead one outlived
// them all.
func TestTruthWhatIsDeadEndsHoweverOftenLeadersChange(t *testing.T) {
	for _, lasts := range []time.Duration{4 * time.Second, 3 * time.Second} {
		t.Run(fmt.Sprint(lasts), func(t *testing.T) {
			sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
				r := truthReigns{w: w}
				live := w.Keep("LIVE/a", 12*time.Second)
				kept := w.Session("n1", 12*time.Second, 0)
				lost := w.KeepSession(kept, 12*time.Second)
				r.populate()
				for range 25 {
					r.reign(lasts)
				}
				for _, m := range r.mortals {
					expect.That(w, m.took != 0, "%s has not ended after %v", m.name, time.Since(m.began))
				}
				w.NeverGone(live)
				expect.That(w, !lost(), "the session that is renewed has ended")
			})
		})
	}
}

// truthReads returns the reads of everything that truthFill has put there, by API, for the routes that show the state
// according to docs/reference/reads.md.
func truthReads(t testing.TB) (paths []string) {
	t.Helper()
	page := string(need.Got(os.ReadFile("../../../docs/reference/reads.md"))(t))
	names := strings.NewReplacer("{app}", "TRUTH", "{id}", "i1", "{name}", "truth", "{key}", "truth", "{node}", "rollcall", "{state}", "any",
		"{vip}", "truth", "{svip}", "truth")
	for _, m := range regexp.MustCompile("(?m)^\\| `GET (/[^`]*)` \\| the state \\|").FindAllStringSubmatch(page, -1) {
		switch {
		case strings.Contains(m[1], "/auth/"), strings.Contains(m[1], "/fence/"), strings.Contains(m[1], "/session/info/"),
			strings.Contains(m[1], "/sessions/{id}"): // they have no stale reads, or name what a scenario does not know
		default:
			paths = append(paths, names.Replace(m[1]))
		}
	}
	need.That(t, len(paths) > 30, "docs/reference/reads.md has %d reads of the state", len(paths))
	return paths
}

func truthConsul(path string) bool {
	return strings.HasPrefix(path, "/v1/") && !strings.HasPrefix(path, "/v1/rollcall/")
}

// truthStale returns a stale read of a path.
func truthStale(path string) string {
	switch {
	case truthConsul(path):
		return path + "?stale"
	case strings.HasSuffix(path, "/snapshot"):
		return path + "?stale"
	case strings.HasSuffix(path, "/watch"):
		return path + "?wait=1ms&consistency=stale"
	}
	return path + "?consistency=stale"
}

// truthFill registers, writes and holds something for the reads to show.
func truthFill(w *sim.World) {
	w.Helper()
	w.Register("TRUTH/i1", time.Hour)
	truthFillAt(w, "n1")
	r := w.Call("n1", "PUT", "/v1/agent/service/register", `{"Name":"truth","ID":"i1","Port":80,"Check":{"TTL":"1h","Status":"passing","CheckID":"c"}}`)
	need.Equal(w, r.Status, http.StatusOK, "register: %v", r)
	need.That(w, w.Lock("n1", "truth", w.Session("n1", time.Hour, 0), 0) != 0, "lock")
}

// truthRefused checks that a node refuses each stale read in its API's form: it says nothing of what exists.
func truthRefused(w *sim.World, node string, paths []string) {
	w.Helper()
	for _, path := range paths {
		r := w.Call(node, "GET", truthStale(path), "")
		switch {
		case truthConsul(path):
			expect.That(w, r.Status == http.StatusInternalServerError && r.Body == "No cluster leader", "%s: GET %s: %v", node, path, r)
		// as a published server that is not ready
		case strings.HasPrefix(path, "/eureka/") && r.Status == http.StatusForbidden:
		default:
			expect.That(w, r.Status == http.StatusServiceUnavailable && r.Header.Get("Retry-After") == "1", "%s: GET %s: %v", node, path, r)
		}
		expect.That(w, r.Took <= 1200*time.Millisecond, "%s: GET %s is refused after %v", node, path, r.Took)
	}
}

// truthAnswered checks that a node answers each stale read, with what truthFill has put there.
func truthAnswered(w *sim.World, node string, paths []string) {
	w.Helper()
	for _, path := range paths {
		r := w.Call(node, "GET", truthStale(path), "")
		expect.That(w, r.Status < 500, "%s: GET %s: %v", node, path, r)
	}
	for _, path := range []string{"/eureka/apps/TRUTH/i1", "/v1/kv/truth", "/v1/health/service/truth", "/v1/rollcall/locks/truth"} {
		r := w.Call(node, "GET", truthStale(path), "")
		expect.That(w, r.Status == http.StatusOK && len(r.Body) > 10, "%s: GET %s: %v", node, path, r)
	}
}

func truthKillAll(w *sim.World) {
	for _, n := range w.Names() {
		w.Kill(n)
	}
}

// It kills three nodes and starts one. In 0.1.1 that one said that there were no keys and no instances.
func TestTruthNodeThatHasHeardNoLeaderSaysNothingOfWhatThereIs(t *testing.T) {
	paths := truthReads(t)
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		truthFill(w)
		truthKillAll(w)
		w.Start("n2")
		w.Wait(5 * time.Second)
		truthRefused(w, "n2", paths)

		// Somebody who examines a lost cluster sees what the node has, marked.
		r := w.Admin("n2", "GET", "/v1/rollcall/apps?consistency=stale&unheard=true", "")
		expect.That(w, r.Status == http.StatusOK && r.Header.Get("X-Rollcall-Unheard") == "true", "by the socket: %v", r)
		r = w.Call("n2", "GET", "/v1/rollcall/apps?consistency=stale&unheard=true", "")
		expect.Equal(w, r.Status, http.StatusBadRequest, "not by the socket: %v", r)

		w.Start("n1")
		w.ReadyBy("n2", sim.ReadyWithin)
		truthAnswered(w, "n2", paths)
		r = w.Admin("n2", "GET", "/v1/rollcall/apps?consistency=stale&unheard=true", "")
		expect.That(w, r.Status == http.StatusOK && r.Header.Get("X-Rollcall-Unheard") == "", "by the socket, later: %v", r)

		// A node that has heard a leader, and loses it, goes on.
		w.Kill("n1")
		w.Wait(10 * time.Second)
		truthAnswered(w, "n2", paths)
	})
}

// It starts a node that hears the leader in time and stores entries late.
func TestTruthNodeThatReplaysSaysNothingOfWhatThereIs(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		leader := w.Leader()
		late := w.Others(leader)[0]
		w.Kill(late)
		truthFillAt(w, leader)
		w.SlowDisk(late, 2*time.Second)
		w.Start(late)
		heard := false
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); w.Wait(20 * time.Millisecond) {
			r := w.Call(late, "GET", "/v1/kv/truth?stale", "")
			expect.That(w, r.Status != http.StatusNotFound, "%v after its start it says that there is no key", time.Since(end.Add(-30*time.Second)))
			heard = heard || r.Status == http.StatusOK
		}
		w.SlowDisk(late, 0)
		w.Wait(5 * time.Second)
		expect.That(w, heard, "it never has the key")
	})
}

// truthFillAt writes keys at a node.
func truthFillAt(w *sim.World, node string) {
	w.Helper()
	for i := range 20 {
		need.That(w, w.Put(node, fmt.Sprint("truth", i), "", "x"), "put")
	}
	need.That(w, w.Put(node, "truth", "", "x"), "put")
}

// It walks through other phases of a node's life: the node joins anew, at first without a vote, and is removed while
// it runs.
func TestTruthNodeThatJoinsAndIsRemovedDeniesNothing(t *testing.T) {
	paths := truthReads(t)
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		truthFill(w)
		leader := w.Leader()
		node := w.Others(leader)[0]
		need.OK(w, w.Stop(node))
		w.Call(leader, "DELETE", "/v1/rollcall/members/"+node, "")
		w.Wipe(node)
		w.Start(node)
		for range 300 { // from its start on, until it is a learner that has caught up
			expect.That(w, w.Call(node, "GET", "/v1/kv/truth?stale", "").Status != http.StatusNotFound, "a node that joins says that there is no key")
			w.Wait(10 * time.Millisecond)
		}
		w.ReadyBy(node, sim.ReadyWithin)
		truthAnswered(w, node, paths)
		need.Equal(w, w.Call(leader, "DELETE", "/v1/rollcall/members/"+node, "").Status, http.StatusOK, "removal")
		for range 50 { // it notices within 2 s, and stops
			r := w.Call(node, "GET", "/v1/kv/truth?stale", "")
			expect.That(w, r.Status == http.StatusOK || r.Status == 0 || r.Status == http.StatusInternalServerError, "a node that was removed says %v", r)
			w.Wait(50 * time.Millisecond)
		}
		expect.That(w, w.Ends(node, 10*time.Second) != nil, "a node that was removed ends as if it was told to")
	})
}

// It asks while a node waits for its balancers before it stops.
func TestTruthNodeThatStopsSaysWhatItKnows(t *testing.T) {
	paths := truthReads(t)
	delay := func(c *config.Config) { c.ShutdownDelay = 5 * time.Second }
	sim.Run(t, sim.Cluster{Nodes: 3, Configure: delay}, func(w *sim.World) {
		truthFill(w)
		node := w.Others(w.Leader())[0]
		stopped := make(chan error, 1)
		go func() { stopped <- w.Stop(node) }()
		w.Wait(time.Second)
		truthAnswered(w, node, paths)
		need.OK(w, <-stopped)
	})
}

// A node without consensus has no leader to hear.
func TestTruthWithoutConsensusNothingChanges(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3, Mode: config.AP}, func(w *sim.World) {
		w.Register("TRUTH/i1", time.Hour)
		truthKillAll(w)
		w.Start("n1")
		w.ReadyBy("n1", sim.ReadyWithin)
		r := w.Call("n1", "GET", "/eureka/apps/TRUTH/i1?consistency=stale", "")
		expect.That(w, r.Status < 500, "it refuses: %v", r)
	})
}
