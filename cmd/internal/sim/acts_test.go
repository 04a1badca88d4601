package sim_test

import (
	"context"
	"fmt"
	"net/http"
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
	"github.com/seed-20419f34/rollcall/store/expiry"
)

// statusAt is the status with which a node lists an instance; empty: it does not.
func statusAt(w *sim.World, node, path string) string {
	w.Helper()
	r := w.Call(node, "GET", "/eureka/apps/"+path, "")
	if r.Status == http.StatusNotFound {
		return ""
	}
	type document struct {
		Instance struct{ Status string }
	}
	return documentOf[document](w, r).Instance.Status
}

func explain(w *sim.World, node, path string) api.Explanation {
	w.Helper()
	return documentOf[api.Explanation](w, w.Call(node, "GET", "/v1/rollcall/apps/"+path+"/explain", ""))
}

// storyOf is what happened to an instance, as a node tells it.
func storyOf(w *sim.World, node, path string) (events []string) {
	w.Helper()
	for _, e := range explain(w, node, path).History {
		events = append(events, e.What)
	}
	return events
}

// The leader dies while the override holds; without consensus the node through which it was set.
func TestTimedOverrideEndsAtItsTimeThoughALeaderDies(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		sim.Run(t, sim.Cluster{Nodes: 3, Mode: mode}, func(w *sim.World) {
			const forced = 15 * time.Second
			lost := "n3"
			if mode == config.CP {
				lost = w.Leader()
			}
			others := w.Others(lost)
			w.Keep("ORDERS/orders-1", 90*time.Second)
			w.Wait(toldAll)
			set := time.Now()
			r := w.Call(lost, "PUT", fmt.Sprintf("/v1/rollcall/apps/ORDERS/orders-1/override?value=OUT_OF_SERVICE&for=%v&author=ann&reason=deploy+7", forced), "")
			need.Equal(w, r.Status, http.StatusOK, "the override is answered")
			setBy := time.Now()
			w.Wait(reaches(mode))
			killed := time.Now()
			w.Kill(lost)
			stood := time.Duration(0) // of the lease clock
			if mode == config.CP {
				// From the newest entry on, which may be a renewal or a tick.
				stood = w.Led(others[0]).Sub(killed) + expiry.TickAge
			}
			for _, n := range others {
				expect.Equal(w, statusAt(w, n, "ORDERS/orders-1"), "OUT_OF_SERVICE", "%s shows it as", n)
				e := explain(w, n, "ORDERS/orders-1")
				expect.That(w, e.Reported == "UP" && e.Override != nil && e.Override.Author == "ann" && e.Override.Reason == "deploy 7" && e.Override.Until != 0, "%s explains the override by %+v", n, e)
			}
			for _, n := range others {
				w.Await(time.Minute, "the override ends", func() bool { return statusAt(w, n, "ORDERS/orders-1") == "UP" })
				ended := time.Now()
				latest := forced + stood + interval + moment
				if mode == config.AP {
					latest += toldAll
				}
				expect.That(w, ended.Sub(set) >= forced && ended.Sub(setBy) <= latest, "%s: the override ended after %v, want between %v and %v", n, ended.Sub(set), forced, latest)
			}
			if mode == config.CP { // without consensus each node records in its own words what it hears
				for _, n := range others {
					expect.Slice(w, storyOf(w, n, "ORDERS/orders-1"), []string{"registered", "overridden", "override ended"}, "%s tells", n)
				}
			}
		})
	})
}

// hides expects that no list of a node has the instance in quarantine, and that the instance is registered to itself.
func hides(w *sim.World, node string) {
	w.Helper()
	for _, list := range []string{"/eureka/apps", "/eureka/apps/ORDERS", "/eureka/vips/ORDERS", "/eureka/svips/ORDERS", "/v1/rollcall/apps"} {
		r := w.Call(node, "GET", list, "")
		expect.That(w, r.Status == http.StatusOK && !strings.Contains(r.Body, `"sick"`) && strings.Contains(r.Body, `"well"`), "%s: %s is %v, want the well one only", node, list, r)
	}
	type delta struct {
		Applications struct {
			Application []struct {
				Instance []struct{ InstanceID, ActionType string }
			}
		}
	}
	actions := map[string]string{}
	for _, a := range documentOf[delta](w, w.Call(node, "GET", "/eureka/apps/delta", "")).Applications.Application {
		for _, i := range a.Instance {
			actions[i.InstanceID] = i.ActionType
		}
	}
	expect.That(w, actions["sick"] == "DELETED" && actions["well"] == "ADDED", "%s: the delta has %v, want the hidden one as deleted", node, actions)
	for _, single := range []string{"/eureka/apps/ORDERS/sick", "/eureka/instances/sick"} {
		expect.Equal(w, w.Call(node, "GET", single, "").Status, http.StatusNotFound, "%s: %s:", node, single)
	}
	expect.Equal(w, w.Call(node, "PUT", "/eureka/apps/ORDERS/sick", "").Status, http.StatusOK, "%s: a heartbeat in quarantine:", node)
	e := explain(w, node, "ORDERS/sick")
	expect.That(w, e.State == "quarantined" && e.Quarantine != nil && e.Quarantine.Author == "ann" && e.Quarantine.Reason == "it answers nonsense", "%s explains it by %+v", node, e)
}

func TestQuarantineHidesOnEveryNodeAndEndsAtItsTime(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		sim.Run(t, sim.Cluster{Nodes: 3, Mode: mode}, func(w *sim.World) {
			for _, id := range []string{"sick", "well"} {
				document := fmt.Sprintf(`{"instance":{"instanceId":%q,"app":"ORDERS","hostName":"h","ipAddr":"10.1.1.1","vipAddress":"ORDERS","secureVipAddress":"ORDERS",`+
					`"status":"UP","dataCenterInfo":{"name":"MyOwn"},"leaseInfo":{"durationInSecs":3600}}}`, id)
				need.Equal(w, w.Call("n1", "POST", "/eureka/apps/ORDERS", document).Status, http.StatusNoContent, "the registration is answered")
			}
			w.Wait(reaches(mode))
			quarantine := func(node string, d time.Duration) {
				r := w.Call(node, "PUT", fmt.Sprintf("/v1/rollcall/apps/ORDERS/sick/quarantine?for=%v&author=ann&reason=it+answers+nonsense", d), "")
				need.Equal(w, r.Status, http.StatusOK, "%v: the quarantine is answered", r)
			}
			quarantine("n2", 10*time.Minute)
			w.Wait(reaches(mode))
			for _, n := range w.Names() {
				hides(w, n)
			}
			need.Equal(w, w.Call("n3", "DELETE", "/v1/rollcall/apps/ORDERS/sick/quarantine", "").Status, http.StatusOK, "its end is answered")
			w.Wait(reaches(mode))
			for _, n := range w.Names() {
				listed(w, n, "sick", "well")
			}
			const hidden = 30 * time.Second
			set := time.Now()
			quarantine("n1", hidden)
			setBy := time.Now()
			w.Wait(time.Until(set.Add(hidden)) - interval)
			for _, n := range w.Names() {
				expect.Equal(w, statusAt(w, n, "ORDERS/sick"), "", "%s shows it, before the end of its quarantine, as", n)
			}
			w.Wait(time.Until(setBy.Add(hidden)) + 2*interval + reaches(mode))
			for _, n := range w.Names() {
				expect.Equal(w, statusAt(w, n, "ORDERS/sick"), "UP", "%s shows it, after the end of its quarantine, as", n)
			}
			if mode == config.CP {
				for _, n := range w.Names() {
					expect.Slice(w, storyOf(w, n, "ORDERS/sick"), []string{"registered", "quarantined", "quarantine ended", "quarantined", "quarantine ended"}, "%s tells", n)
				}
			}
		})
	})
}

// A node is cut off, so that drain must go on waiting for it.
func TestDrainReturnsAfterEveryNodeHasAppliedItAndItsPauseHasPassed(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		sim.Run(t, sim.Cluster{Nodes: 3, Mode: mode}, func(w *sim.World) {
			const settle, poll = 30 * time.Second, 200 * time.Millisecond // poll: of the client
			late := "n3"
			if mode == config.CP {
				late = w.Others(w.Leader())[0]
			}
			at := w.Others(late)[0]
			w.Keep("ORDERS/orders-1", 90*time.Second)
			w.Wait(toldAll)
			w.Isolate(late)
			cl := need.Got(client.New(client.Config{Servers: []string{w.URL(at)}, HTTPClient: w.Client("127.0.9.2")}))(w)
			key := registry.Key{App: "ORDERS", ID: "orders-1"}
			drained := make(chan error, 1)
			go func() { drained <- cl.Drain(w.Context(), key, settle, registry.Act{Author: "ann"}) }()
			w.Wait(time.Minute) // less than its lease, after whose end a node without consensus shows nothing any more
			for _, n := range w.Others(late) {
				expect.Equal(w, statusAt(w, n, "ORDERS/orders-1"), "OUT_OF_SERVICE", "%s shows it as", n)
			}
			need.Equal(w, len(drained), 0, "drains that have ended while a node had not applied them:")
			w.Heal()
			healed := time.Now()
			w.Await(time.Minute, late+" shows it", func() bool {
				r := w.Call(late, "GET", "/v1/rollcall/apps?consistency=stale", "")
				return strings.Contains(r.Body, `"OUT_OF_SERVICE"`)
			})
			shown := time.Now()
			need.OK(w, <-drained)
			took := time.Since(shown)
			w.Logf("applied %v after the links were whole, drained %v later", shown.Sub(healed), took)
			expect.That(w, took >= settle-poll && took <= settle+poll+toldAll, "drain ended %v after the last node showed it, want between %v and %v", took, settle-poll, settle+poll+toldAll)
			need.OK(w, cl.Close(context.Background()))
		})
	})
}
