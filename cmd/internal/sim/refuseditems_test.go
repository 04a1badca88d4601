package sim_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/cmd/internal/sim"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

// replicated is an instance as a Eureka server shows it, with so many pairs of metadata.
func replicated(app, id string, metadata int) string {
	var pairs []string
	for n := range metadata {
		pairs = append(pairs, fmt.Sprintf(`"k%d":"v"`, n))
	}
	return fmt.Sprintf(`{"instanceId":%q,"hostName":"h","app":%q,"ipAddr":"10.0.0.1","status":"UP","dataCenterInfo":{"@class":"com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo","name":"MyOwn"},"lastDirtyTimestamp":"1000","metadata":{%s}}`,
		id, app, strings.Join(pairs, ","))
}

// item is an item of a replication batch.
func item(action, app, id, more string) string {
	return fmt.Sprintf(`{"appName":%q,"id":%q,"lastDirtyTimestamp":1000%s,"action":%q}`, app, id, more, action)
}

// What a Eureka server sends and a node refuses is named: in the log once, in the peers' document, in what explains the
// instance, and by a metric. In the end the server sends what is accepted, and it is forgotten.
func TestRefusedItemOfAEurekaServerIsNamedEverywhere(t *testing.T) {
	for _, mode := range []string{"cp", "ap"} {
		t.Run(mode, func(t *testing.T) {
			sim.Run(t, sim.Cluster{Nodes: 3, Mode: mode, Configure: func(c *config.Config) { c.HTTPD.Limits.InstancesInApp = 1 }}, func(w *sim.World) {
				const n = "n2"
				headers := []string{"Content-Type: application/json", "X-Netflix-Discovery-Replication: true"}
				batch := func(items ...string) sim.Reply {
					return w.Call(n, "POST", "/eureka/peerreplication/batch/", `{"replicationList":[`+strings.Join(items, ",")+`]}`, headers...)
				}
				refused := func() map[string]api.RefusedItem {
					all := map[string]api.RefusedItem{}
					for _, r := range sim.Document[api.Peers](w, n, "/v1/rollcall/peers").Refused {
						all[r.App+"/"+r.ID] = r
					}
					return all
				}
				explained := func(name string) string {
					return sim.Document[api.Explanation](w, n, "/v1/rollcall/apps/"+name+"/explain").Summary
				}
				w.KeepAt(n, "FULL/a", 30*time.Second)
				w.Wait(time.Second) // the node has applied it
				many := item("Register", "BIG", "b", `,"instanceInfo":`+replicated("BIG", "b", 300))
				fine := item("Register", "FINE", "f", `,"instanceInfo":`+replicated("FINE", "f", 3))
				for range 3 {
					r := batch(many, fine, item("Register", "NONE", "n", ""), item("Register", "FULL", "z", `,"instanceInfo":`+replicated("FULL", "z", 1)))
					expect.Equal(t, r.Body, `{"responseList":[{"statusCode":400},{"statusCode":200},{"statusCode":500},{"statusCode":429}]}`, "the answer")
				}
				alone := w.Call(n, "POST", "/eureka/apps/ALONE", `{"instance":`+replicated("ALONE", "a", 300)+`}`, headers...)
				expect.Equal(t, alone.Status, http.StatusBadRequest, "a registration that is sent alone")
				expect.Equal(t, batch(`{"unknown":1}`).Status, http.StatusBadRequest, "a batch that cannot be read")

				all := refused()
				for name, why := range map[string]string{"BIG/b": "metadata", "NONE/n": "lacks", "FULL/z": "too many instances", "ALONE/": "metadata", "/": "unknown key"} {
					r := all[name]
					expect.That(t, strings.Contains(r.Text, why) && r.From == "eureka", "%s is refused: %+v; want a reason with %q", name, r, why)
				}
				expect.That(t, len(all) == 5 && all["BIG/b"].Times == 3 && all["BIG/b"].What == "register of BIG/b", "refused: %+v", all)
				expect.That(t, strings.Contains(explained("BIG/b"), "BIG/b is not registered here. This node refuses what eureka sends of it"), "explained as %q", explained("BIG/b"))
				expect.Equal(t, strings.Count(w.Log(), "id=b "), 1, "lines of the log about BIG/b")
				expect.Equal(t, w.Metric(n, "rollcall_replication_refused_items_total"), 11, "counted")

				batch(item("Register", "BIG", "b", `,"instanceInfo":`+replicated("BIG", "b", 3)))
				expect.That(t, len(refused()) == 3, "refused after a batch and BIG/b were accepted: %+v", refused())
				expect.That(t, !strings.Contains(explained("BIG/b"), "refuses"), "explained as %q", explained("BIG/b"))
			})
		})
	}
}

// Two programs with one id take each other's place. The registry cannot know which one is meant, so it says so.
func TestRegistrationAtAnotherAddressThanTheLivingInstanceIsSaid(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		const n = "n2"
		w.ReadyBy(n, time.Minute)
		register := func(ip string) {
			body := strings.Replace(replicated("ORDERS", "one", 1), "10.0.0.1", ip, 1)
			body = strings.Replace(body, `"status"`, `"port":{"$":8080,"@enabled":"true"},"leaseInfo":{"durationInSecs":30},"status"`, 1)
			w.Led(n)
			expect.Equal(t, w.Call(n, "POST", "/eureka/apps/ORDERS", `{"instance":`+body+`}`, "Content-Type: application/json").Status, http.StatusNoContent, "registered")
			w.Wait(5 * time.Second)
		}
		said := func(want int) {
			t.Helper()
			summary := sim.Document[api.Explanation](w, n, "/v1/rollcall/apps/ORDERS/one/explain").Summary
			words := fmt.Sprintf("(%d such registrations at this node). Two programs need two ids.", want)
			expect.That(t, strings.HasSuffix(summary, words) == (want > 0), "explained as %q; want %d registrations at another address", summary, want)
			expect.Equal(t, w.Metric(n, "rollcall_http_moved_registrations_total"), float64(want), "counted")
			expect.Equal(t, strings.Count(w.Log(), "registered at another address"), min(want, 1), "lines of the log")
		}
		register("10.0.0.1")
		register("10.0.0.1")
		said(0)
		register("10.0.0.2")
		register("10.0.0.1")
		said(2)
		w.CancelAt(n, "ORDERS/one")
		register("10.0.0.3") // it moved after it had ended
		expect.Equal(t, w.Metric(n, "rollcall_http_moved_registrations_total"), 2, "counted after a cancel")
	})
}
