package sim_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/cmd/internal/sim"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// registersAs has a client register N/id at a node with a status and a timestamp, at an address.
func registersAs(w *sim.World, node, id, status, address string, dirty int64) {
	w.Helper()
	r := w.Call(node, "POST", "/eureka/apps/N", fmt.Sprintf(`{"instance":{"instanceId":%q,"app":"N","hostName":"h","ipAddr":%q,"status":%q,"lastDirtyTimestamp":%d,`+
		`"dataCenterInfo":{"@class":"com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo","name":"MyOwn"},"leaseInfo":{"durationInSecs":900,"renewalIntervalInSecs":30}}}`, id, address, status, dirty))
	need.That(w, r.Status == http.StatusNoContent, "register %s at %s: %v", id, node, r)
}

// beats sends a heartbeat of N/id to a node, and reports whether it got 404.
func beats(w *sim.World, node, id, status string, dirty int64) (asked bool) {
	w.Helper()
	r := w.Call(node, "PUT", fmt.Sprintf("/eureka/apps/N/%s?status=%s&lastDirtyTimestamp=%d", id, status, dirty), "")
	need.That(w, r.Status == http.StatusOK || r.Status == http.StatusNotFound, "heartbeat of %s at %s: %v", id, node, r)
	return r.Status == http.StatusNotFound
}

// One client hears the 404 and registers again, one registers STARTING each time, one never registers again. The node
// that has asked them to register dies before the next heartbeat, and one node is cut off meanwhile.
func TestHeartbeatsStatusOfTheSameTimestampIsSeenAtAllNodes(t *testing.T) {
	inBothModes(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		newestLevel(w)
		w.Keep("OTHERS/keeps-the-clock-running", 30*time.Second)
		asked := w.Names()[0]
		if w.Mode() == config.CP {
			asked = w.Leader()
		}
		ids := []string{"stock", "stubborn", "deaf"}
		dirty, times := map[string]int64{}, map[string]int{}
		for _, id := range ids {
			dirty[id] = 1000
			registersAs(w, asked, id, "STARTING", "10.1.1.1", 1000)
		}
		w.Wait(reaches(w.Mode()))
		beat := func(node string) {
			for _, id := range ids {
				if !beats(w, node, id, "UP", dirty[id]) {
					continue
				}
				switch times[id]++; id {
				case "stock":
					dirty[id]++
					registersAs(w, node, id, "UP", "10.1.1.1", dirty[id])
				case "stubborn":
					registersAs(w, node, id, "STARTING", "10.1.1.1", dirty[id])
				}
			}
		}
		others := w.Others(asked)
		beat(asked)
		w.Wait(reaches(w.Mode()))
		w.Kill(asked)
		if w.Mode() == config.CP {
			w.Led(others[0])
		} else {
			w.Isolate(others[1])
		}
		for range 3 {
			beat(others[0])
			w.Wait(reaches(w.Mode()))
		}
		w.Heal()
		w.Start(asked)
		w.ReadyBy(asked, time.Minute)
		w.AwaitAll(w.Names(), 2*time.Minute, "has all UP", func(node string) bool {
			for _, id := range ids {
				if statusAt(w, node, "N/"+id) != "UP" {
					return false
				}
			}
			return true
		})
		for _, node := range w.Names() {
			beat(node)
		}
		most := map[string]int{config.CP: 1, config.AP: 2}[w.Mode()] // each node for itself
		for _, id := range ids {
			expect.That(w, times[id] >= 1 && times[id] <= most, "%s was asked to register %d times, want once at each node that was asked", id, times[id])
		}
	})
}

// addressAt returns the address under which a node lists N/id.
func addressAt(w *sim.World, node, id string) string {
	w.Helper()
	type document struct {
		Instance struct{ IPAddr string }
	}
	return documentOf[document](w, w.Call(node, "GET", "/eureka/apps/N/"+id, "")).Instance.IPAddr
}

// A program whose clock was ahead crashes, and another one replaces it at another address, with the right clock.
// Every node of both datacenters lists it after one registration. Messages of the dead one, and of the living one,
// arrive late.
func TestRegistrationAfterACrashIsListedWhateverTheClockBeforeSaid(t *testing.T) {
	inBothModes(t, sim.Cluster{Nodes: 3, Datacenters: 2}, func(w *sim.World) {
		newestLevel(w)
		w.Keep("OTHERS/keeps-the-clock-running", 30*time.Second)
		now := time.Now().UnixMilli()
		dead := now + (59 * time.Minute).Milliseconds()
		arrives := told
		if w.Mode() == config.AP {
			arrives += told
		}
		for _, id := range []string{"here", "moves"} {
			registersAs(w, "n1", id, "UP", "10.1.1.1", dead)
		}
		w.Wait(arrives)
		at := map[string]string{"here": "n2", "moves": "dc2-n2"}
		listed := func(what, address string) {
			w.Helper()
			for id := range at {
				w.AwaitAll(w.Names(), arrives, what+", "+id+" is listed at "+address, func(node string) bool { return addressAt(w, node, id) == address })
			}
		}
		register := func(address string, dirty int64) {
			w.Helper()
			for id, node := range at {
				registersAs(w, node, id, "UP", address, dirty)
			}
		}
		register("10.2.2.2", now)
		listed("after a registration", "10.2.2.2")
		for id, node := range at {
			registersAs(w, node, id, "UP", "10.1.1.1", dead)
			expect.That(w, !beats(w, node, id, "UP", now), "%s: its heartbeat is answered 404", id)
		}
		w.Wait(arrives)
		listed("after what the dead one had sent", "10.2.2.2")
		register("10.3.3.3", dead+2)
		w.Wait(arrives)
		register("10.4.4.4", dead+1)
		asked := 0
		for range 3 {
			for id, node := range at {
				if beats(w, node, id, "UP", dead+2) {
					asked++
					registersAs(w, node, id, "UP", "10.3.3.3", dead+2)
				}
			}
			w.Wait(arrives)
		}
		expect.Equal(w, asked, len(at), "heartbeats that are answered 404, after what was under way for long")
		listed("after the next heartbeat", "10.3.3.3")
	})
}
