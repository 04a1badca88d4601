package sim_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/sim"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// truthMortal is something that must end, though leaders change.
type truthMortal struct {
	name        string
	life, grace time.Duration // until it ends under one leader, and one grace (docs/adr/0034)
	ended       func(node string) bool

	began time.Time
	took  time.Duration // 0: it has not ended
}

// truthReigns is a cluster whose leadership is handed over again and again.
type truthReigns struct {
	w       *sim.World
	mortals []*truthMortal
	changes []truthChange
}

// truthChange is one change of leader.
type truthChange struct{ from, to time.Time }

// bound is when something that began must have ended, if it ends at a moment: its life, one grace, the time without a
// leader, 1.2 s for each change of leader, and 2.2 s.
func (r *truthReigns) bound(m *truthMortal, at time.Time) time.Duration {
	bound := m.life + m.grace + 2200*time.Millisecond
	for _, c := range r.changes {
		if c.to.After(m.began) && c.from.Before(at) {
			bound += c.to.Sub(c.from) + 1200*time.Millisecond
		}
	}
	return bound
}

// look notes what has ended.
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

// reign has one node lead for a time, and then hands over.
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

// says reports whether a node's response has a text, or has it no longer.
func (r *truthReigns) says(path, text string, has bool) func(string) bool {
	return func(node string) bool {
		reply := r.w.Call(node, "GET", path, "")
		return reply.Status == http.StatusOK && strings.Contains(reply.Body, text) == has
	}
}

func (r *truthReigns) mortal(name string, life, grace time.Duration, ended func(string) bool) {
	r.mortals = append(r.mortals, &truthMortal{name: name, life: life, grace: grace, ended: ended, began: time.Now()})
}

// populate makes one of everything that ends by the lease clock.
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

// TestTruthWhatIsDeadEndsHoweverOftenLeadersChange hands leadership over 25 times. In 0.1.0 each leader gave a lease a
// grace of its own, so that one that was dead outlived them all.
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
