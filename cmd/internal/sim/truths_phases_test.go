package sim_test

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/cmd/internal/sim"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// truthReads are the reads of everything that truthFill has put there, by API, of the routes that docs/reference/reads.md
// says show the state.
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

// truthStale is a stale read of a path.
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

// truthRefused expects that a node refuses each stale read in its API's form: it says nothing of what there is.
func truthRefused(w *sim.World, node string, paths []string) {
	w.Helper()
	for _, path := range paths {
		r := w.Call(node, "GET", truthStale(path), "")
		switch {
		case truthConsul(path):
			expect.That(w, r.Status == http.StatusInternalServerError && r.Body == "No cluster leader", "%s: GET %s: %v", node, path, r)
		case strings.HasPrefix(path, "/eureka/") && r.Status == http.StatusForbidden: // as a published server that is not ready
		default:
			expect.That(w, r.Status == http.StatusServiceUnavailable && r.Header.Get("Retry-After") == "1", "%s: GET %s: %v", node, path, r)
		}
		expect.That(w, r.Took <= 1200*time.Millisecond, "%s: GET %s is refused after %v", node, path, r.Took)
	}
}

// truthAnswered expects that a node answers each stale read, with what truthFill has put there.
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

// TestTruthNodeThatHasHeardNoLeaderSaysNothingOfWhatThereIs kills three nodes and starts one. In 0.1.1 it said that there
// were no keys and no instances.
func TestTruthNodeThatHasHeardNoLeaderSaysNothingOfWhatThereIs(t *testing.T) {
	paths := truthReads(t)
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		truthFill(w)
		truthKillAll(w)
		w.Start("n2")
		w.Wait(5 * time.Second)
		truthRefused(w, "n2", paths)

		// Who looks at a lost cluster sees what the node has, marked.
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

// TestTruthNodeThatReplaysSaysNothingOfWhatThereIs starts a node that hears the leader in time and stores entries late.
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

// TestTruthNodeThatJoinsAndIsRemovedDeniesNothing walks other phases of a node's life: it joins anew, without a vote at
// first, and is removed while it runs.
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
			r := w.Call(node, "GET", "/v1/kv/truth?stale", "")
			expect.That(w, r.Status != http.StatusNotFound, "a node that joins says that there is no key")
			w.Wait(10 * time.Millisecond)
		}
		w.ReadyBy(node, sim.ReadyWithin)
		truthAnswered(w, node, paths)
		need.Equal(w, w.Call(leader, "DELETE", "/v1/rollcall/members/"+node, "").Status, http.StatusOK, "removal")
		for range 50 { // it notices within 2 s, and ends
			r := w.Call(node, "GET", "/v1/kv/truth?stale", "")
			expect.That(w, r.Status == http.StatusOK || r.Status == 0 || r.Status == http.StatusInternalServerError, "a node that was removed says %v", r)
			w.Wait(50 * time.Millisecond)
		}
		expect.That(w, w.Ends(node, 10*time.Second) != nil, "a node that was removed ends as if it was told to")
	})
}

// TestTruthNodeThatStopsSaysWhatItKnows asks while a node waits for its balancers before it ends.
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

// TestTruthWithoutConsensusNothingChanges: a node without consensus has no leader to hear.
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
