package sim_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/cmd/internal/sim"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/replication/rollcallpeer"
)

// guarded is dc1 with access control, whose clients are ann, and dc2 without, which sends with a token of dc1.
type guarded struct {
	*sim.World
	ann  string              // header of dc1's client, who may do everything
	peer string              // header of dc2
	kept map[string]struct{} // what its clients renew at dc1
	also map[string]struct{} // what others renew at dc2
}

// guardedLease is how long every instance's lease lasts.
const guardedLease = 30 * time.Second

// inGuarded runs a scenario with access control at dc1, in both modes. allow makes dc1 give dc2's token other rights
// than exchange.
func inGuarded(t *testing.T, mode string, scenario func(w *guarded, allow func(rule string))) {
	t.Helper()
	dir := t.TempDir()
	auth, token := filepath.Join(dir, "auth"), filepath.Join(dir, "token")
	ann, annsLine := newToken(t, "ann", "operator")
	peer, peersLine := newToken(t, "from-dc2", "peer")
	allow := func(rule string) {
		writePrivate(t, auth, fmt.Sprintf("roles:\n  operator: [%q, %q, %q, %q]\n  peer: [%q]\ntokens:\n%s%s", "app * read,register,override", "operator read,write", "auth read,write", "metrics read", rule, annsLine, peersLine))
	}
	allow("peer dc2 exchange")
	writePrivate(t, token, peer+"\n")
	settings := func(c *config.Config) {
		if c.Datacenter == "dc1" {
			c.Auth.Mode, c.Auth.File = mode, auth
			return
		}
		c.Replication.TokenFiles = map[string]string{"dc1": token}
	}
	inBothModes(t, sim.Cluster{Nodes: 1, Datacenters: 2, Configure: settings}, func(w *sim.World) {
		allow("peer dc2 exchange")
		w.Await(time.Minute, "dc1 writes level 3", func() bool {
			return sim.Document[api.Upgrade](w, "n1", "/v1/rollcall/upgrade", bearer(ann)).Level == registry.Level3
		})
		scenario(&guarded{World: w, ann: bearer(ann), peer: bearer(peer), kept: map[string]struct{}{}, also: map[string]struct{}{}}, allow)
	})
}

// register registers BILLS/id with a version (a later one is greater), as a client does that says who it is.
func (w *guarded) register(node, id string, version int) {
	w.Helper()
	body := fmt.Sprintf(`{"instance":{"instanceId":%q,"app":"BILLS","hostName":"h","ipAddr":"10.1.1.1","status":"UP","metadata":{"v":"%d"},"lastDirtyTimestamp":"%d",`+
		`"dataCenterInfo":{"@class":"com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo","name":"MyOwn"},"leaseInfo":{"durationInSecs":%d,"renewalIntervalInSecs":10}}}`,
		id, version, 1_798_761_600_000+version*1000, int(guardedLease.Seconds()))
	r := w.Call(node, "POST", "/eureka/apps/BILLS", body, w.ann)
	need.That(w, r.Status == http.StatusNoContent, "register %s at %s: %v", id, node, r)
}

// pass lets time pass while the clients renew.
func (w *guarded) pass(d time.Duration) {
	w.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); w.Wait(min(10*time.Second, time.Until(end))) {
		for node, ids := range map[string]map[string]struct{}{"n1": w.kept, "dc2-n1": w.also} {
			for id := range ids {
				r := w.Call(node, "PUT", "/eureka/apps/BILLS/"+id, "", w.ann)
				need.That(w, r.Status == http.StatusOK, "a renewal of %s at %s: %v", id, node, r)
			}
		}
	}
}

// shows returns what a node lists of BILLS/id: version, status and override; "" if nothing.
func (w *guarded) shows(node, id string) string {
	w.Helper()
	s, ok := w.Lists(node, w.ann)[id]
	if !ok {
		return ""
	}
	return fmt.Sprintf("%s %s", s.Metadata["v"], s)
}

// owed returns what dc1 has refused of dc2 for a while, as dc2 reports it, by id.
func (w *guarded) owed() map[string]api.RefusedItem {
	w.Helper()
	all := map[string]api.RefusedItem{}
	for _, r := range w.Peer("dc2-n1", "dc1").Refused {
		all[r.ID] = r
	}
	return all
}

func (w *guarded) explained(node, id string) string {
	w.Helper()
	return sim.Document[api.Explanation](w.World, node, "/v1/rollcall/apps/BILLS/"+id+"/explain", w.ann).Summary
}

// audited returns how often dc1's audit has an operation on BILLS/id, or on any instance, with an outcome.
func (w *guarded) audited(operation, name, outcome string) (n int) {
	w.Helper()
	for _, r := range sim.Document[api.Audit](w.World, "n1", "/v1/rollcall/audit?limit=1000", w.ann).Records {
		if r.Operation == operation && r.Outcome == outcome && (name == "" || r.Name == name) {
			n++
		}
	}
	return n
}

// acts has what callers of dc2 can do to an instance.
var acts = map[string]func(w *guarded, id string) sim.Reply{
	"registers": func(w *guarded, id string) sim.Reply {
		w.register("dc2-n1", id, 2)
		w.also[id] = struct{}{}
		return sim.Reply{Status: http.StatusOK}
	},
	"renews": func(w *guarded, id string) sim.Reply { return w.Call("dc2-n1", "PUT", "/eureka/apps/BILLS/"+id, "") },
	"overrides": func(w *guarded, id string) sim.Reply {
		return w.Call("dc2-n1", "PUT", "/eureka/apps/BILLS/"+id+"/status?value=OUT_OF_SERVICE", "")
	},
	"drains": func(w *guarded, id string) sim.Reply {
		return w.Call("dc2-n1", "PUT", "/v1/rollcall/apps/BILLS/"+id+"/override?value=OUT_OF_SERVICE&drain=true&author=eve", "")
	},
	"hides": func(w *guarded, id string) sim.Reply {
		return w.Call("dc2-n1", "PUT", "/v1/rollcall/apps/BILLS/"+id+"/quarantine?for=5h&author=eve", "")
	},
	"describes": func(w *guarded, id string) sim.Reply {
		return w.Call("dc2-n1", "PUT", "/eureka/apps/BILLS/"+id+"/metadata?v=9", "")
	},
	"cancels": func(w *guarded, id string) sim.Reply {
		return w.Call("dc2-n1", "DELETE", "/eureka/apps/BILLS/"+id, "")
	},
}

// Whatever the callers of a datacenter without access control do to a living instance of one that has it, it stays
// there as it is, over comparisons and a link that is cut; each side serves its own client's, reports that, and goes
// quiet.
func TestCallersOfAnotherDatacenterChangeNoLivingInstance(t *testing.T) {
	inGuarded(t, "on", func(w *guarded, _ func(string)) {
		for id := range acts {
			w.register("n1", id, 1)
			w.kept[id] = struct{}{}
		}
		w.AwaitAll(w.Names(), told, "has all", func(n string) bool { return len(w.Lists(n, w.ann)) == len(acts) })
		unchanged := func(when string) {
			w.Helper()
			for id := range acts {
				expect.Equal(w, w.shows("n1", id), "1 UP UNKNOWN", "%s, what dc1 lists of the one that dc2 %s:", when, id)
			}
		}
		for _, cut := range []bool{false, true} {
			if cut {
				w.CutDatacenters(1, 2)
				w.pass(20 * time.Second)
			}
			for id, act := range acts {
				r := act(w, id)
				need.That(w, r.Status/100 == 2, "%s: %v", id, r)
			}
			w.pass(time.Minute)
			if cut {
				w.Heal()
			}
			unchanged("at once")
			w.pass(3 * time.Minute)
			unchanged("after comparisons")
			here, there, found := w.Index2("n1"), w.Index2("dc2-n1"), w.repairs()
			w.pass(6 * time.Minute)
			unchanged("in the end")
			expect.Equal(w, w.Index2("n1"), here, "the index of n1, after nothing has happened")
			expect.Equal(w, w.Index2("dc2-n1"), there, "the index of dc2-n1")
			expect.That(w, w.repairs()-found <= 6, "the two repaired each other %d times in 6 minutes", w.repairs()-found)
		}
		expect.Equal(w, w.shows("dc2-n1", "registers"), "2 UP UNKNOWN", "what dc2 lists of its own client")
		expect.Equal(w, w.shows("dc2-n1", "cancels"), "1 UP UNKNOWN", "what dc2 lists of what lives at dc1")
		owed := w.owed()
		for id := range acts {
			held := id != "renews" && id != "cancels"
			r, ok := owed[id]
			expect.That(w, ok == held && (!held || r.Until > r.Last && strings.Contains(r.Text, `dc2 lacks the right "peer dc2 takeover"`)), "dc2 owes, of what it %s: %+v", id, r)
		}
		expect.Equal(w, w.Metric("dc2-n1", `rollcall_replication_contested_instances{peer="dc1"}`), float64(len(owed)), "contested")
		for node, words := range map[string]string{"dc2-n1": "This datacenter serves what its own client says", "n1": "This node refuses what dc2 sends of it"} {
			expect.That(w, strings.Contains(w.explained(node, "registers"), words), "%s explains: %s", node, w.explained(node, "registers"))
		}
		expect.That(w, w.audited("takeover", "", "denied") > 0 && w.audited("takeover", "", "done") == 0, "the audit must have refusals and no takeover")
		p := w.peerOf("n1", "dc2")
		expect.That(w, p.AuthMode == "off" && strings.Contains(p.Reason, "access control is off there and on here"), "n1 says of dc2: %+v", p)
		expect.Equal(w, strings.Count(w.Log(), "access control is off in the other datacenter"), 1, "warnings")
	})
}

// repairs returns how often the two have found something to send each other.
func (w *guarded) repairs() int {
	w.Helper()
	return int(w.peerOf("n1", "dc2").Repairs["digest"] + w.Peer("dc2-n1", "dc1").Repairs["digest"])
}

// peerOf is Peer at a node that authenticates callers.
func (w *guarded) peerOf(node, name string) api.Peer {
	w.Helper()
	for _, p := range sim.Document[api.Peers](w.World, node, "/v1/rollcall/peers", w.ann).Peers {
		if p.Name == name {
			return p
		}
	}
	w.Fatalf("%s has no peer %s", node, name)
	return api.Peer{}
}

// Index2 is Index at a node that authenticates callers.
func (w *guarded) Index2(node string) string {
	w.Helper()
	return w.Call(node, "GET", "/eureka/apps", "", w.ann).Header.Get("X-Rollcall-Index")
}

// A client that moves takes its instance along: to dc2 when its lease at dc1 has ended, or at once if it has the
// right, and back at once. It does so even if it moves while the link is cut.
func TestClientThatMovesTakesItsInstanceAlong(t *testing.T) {
	inGuarded(t, "on", func(w *guarded, allow func(string)) {
		owns := func(node, id, want string) func() bool {
			return func() bool {
				return strings.HasPrefix(w.shows(node, id), want+" ")
			}
		}
		move := func(id string, version int, to, from map[string]struct{}, node string) {
			delete(from, id)
			to[id] = struct{}{}
			w.register(node, id, version)
		}
		for _, id := range []string{"a", "beats", "cut"} {
			w.register("n1", id, 1)
			w.kept[id] = struct{}{}
		}
		w.pass(2 * time.Minute)
		for range 2 { // there and back, twice
			for _, cut := range []bool{false, true} {
				if cut {
					w.CutDatacenters(1, 2)
				}
				version := 10 + int(time.Since(time.UnixMilli(1_798_761_600_000)).Seconds())
				move("a", version, w.also, w.kept, "dc2-n1")
				moved := time.Now()
				if cut {
					w.pass(20 * time.Second)
					w.Heal()
				}
				w.pass(reach)
				expect.That(w, cut || !owns("n1", "a", fmt.Sprint(version))(), "dc1 has given a living instance away")
				for !owns("n1", "a", fmt.Sprint(version))() && time.Since(moved) < 2*guardedLease {
					w.pass(time.Second)
				}
				took := time.Since(moved)
				expect.That(w, took >= guardedLease-10*time.Second-reach && took <= guardedLease+10*time.Second, "dc1 has it %v after the client has moved, whose lease was %v", took, guardedLease)
				w.pass(2 * time.Minute)
				expect.Equal(w, len(w.owed()), 0, "owed after the move")
				move("a", version+1, w.kept, w.also, "n1")
				w.pass(told)
				expect.That(w, owns("n1", "a", fmt.Sprint(version+1))() && owns("dc2-n1", "a", fmt.Sprint(version+1))(), "after it has moved back, dc1 and dc2 list %q and %q", w.shows("n1", "a"), w.shows("dc2-n1", "a"))
				w.pass(time.Minute)
			}
		}
		// By its heartbeats alone: dc1 lists it all the time.
		delete(w.kept, "beats")
		w.also["beats"] = struct{}{}
		for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); w.pass(time.Second) {
			need.That(w, owns("n1", "beats", "1")(), "dc1 does not list what renews itself at dc2")
		}
		expect.That(w, strings.Contains(w.explained("n1", "beats"), "dc2"), "explained as %s", w.explained("n1", "beats"))

		allow("peer dc2 exchange,takeover")
		w.pass(inForce)
		expect.Equal(w, w.audited("takeover", "BILLS/cut", "done"), 0, "takeovers in the audit")
		move("cut", 5000, w.also, w.kept, "dc2-n1")
		w.Wait(told)
		expect.That(w, owns("n1", "cut", "5000")(), "with the right, dc1 lists %q", w.shows("n1", "cut"))
		expect.Equal(w, w.audited("takeover", "BILLS/cut", "done"), 1, "takeovers in the audit")
	})
}

// Below the mode on nothing is refused, and what would be is counted and named.
func TestTakeoverIsCountedBeforeItIsRefused(t *testing.T) {
	inGuarded(t, "log-only", func(w *guarded, _ func(string)) {
		w.register("n1", "a", 1)
		w.kept["a"] = struct{}{}
		w.pass(10 * time.Second)
		w.register("dc2-n1", "a", 2)
		w.pass(10 * time.Second)
		expect.Equal(w, w.shows("n1", "a"), "2 UP UNKNOWN", "what dc1 lists")
		expect.That(w, w.audited("takeover", "", "would-deny") == 1 && w.audited("takeover", "BILLS/a", "done") == 1, "the audit lacks it")
		expect.Equal(w, strings.Count(w.Log(), "a peer has taken over a living instance without the right"), 1, "lines of the log")
		r := w.Call("n1", "GET", "/metrics", "", w.ann)
		expect.That(w, strings.Contains(r.Body, `rollcall_auth_would_deny_total{principal="from-dc2",resource="peer",verb="takeover"} 1`), "no metric counts it")
	})
}

// A peer that names this datacenter as the owner of an instance that it does not have, or claims a life that nobody
// reaches, is refused by name.
func TestPeerThatMakesThingsUpIsRefused(t *testing.T) {
	inGuarded(t, "on", func(w *guarded, _ func(string)) {
		m := messageFrom("x-1", 1, "claims")
		claims, absurd := m.Items[0].Op.(registry.Replica), m.Items[0].Op.(registry.Replica)
		claims.Owner, absurd.Life = "dc1", registry.MaxLives+1
		m.Items = []rollcallpeer.Item{rollcallpeer.ItemOf(codec.Newest, claims), rollcallpeer.ItemOf(codec.Newest, absurd)}
		r := w.Call("n1", "POST", "/v1/rollcall/replication", string(rollcallpeer.Encode(codec.Newest, m)), "Content-Type: application/octet-stream", w.peer)
		var a rollcallpeer.Reply
		need.That(w, r.Status == http.StatusOK && rollcallpeer.Decode([]byte(r.Body), &a) == nil, "%v", r)
		for i, words := range []string{"to enter an instance as this datacenter's own", "to skip more than 16777216 lives"} {
			expect.That(w, a.Results[i].Status == rollcallpeer.Invalid && strings.Contains(a.Results[i].Error, `"peer dc2 takeover" `+words), "item %d: %+v", i, a.Results[i])
		}
		expect.Equal(w, len(w.Lists("n1", w.ann)), 0, "instances")
	})
}
