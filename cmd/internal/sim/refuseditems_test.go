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
