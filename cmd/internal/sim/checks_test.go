package sim_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/cmd/internal/sim"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// A program at one address claims that its service is at another one, and has the leader probe there. Before level 3
// that is counted and listed; from then on the check is critical, and refused when it is registered again, unless a
// role allows it. The same check from a program at that address continues, also under the next leader.
func TestCheckLooksOnlyWhereItWasRegisteredFrom(t *testing.T) {
	on := func(c *config.Config) {
		c.Auth.Mode = "on"
		sim.AtOldestLevel(c)
	}
	sim.Run(t, sim.Cluster{Nodes: 3, Configure: on}, func(w *sim.World) {
		operator := "Authorization: Bearer " + documentOf[api.NewToken](w, w.Admin("n1", "POST", "/v1/rollcall/auth/bootstrap", "")).Secret
		do := func(method, path, body string) sim.Reply {
			w.Helper()
			r := w.Call("n1", method, path, body, operator)
			need.That(w, r.Status/100 == 2, "%s %s: %v", method, path, r)
			return r
		}
		do("PUT", "/v1/rollcall/auth/roles/service", `{"rules":["app {app} read,register"]}`)
		const victim, other = "10.9.0.7", "10.9.0.66"
		served := w.Listen(victim + ":8080")
		go func() {
			for {
				conn, err := served.Accept()
				if err != nil {
					return
				}
				conn.Close()
			}
		}()
		token := func(app string) string {
			return documentOf[api.NewToken](w, do("POST", "/v1/rollcall/auth/tokens", fmt.Sprintf(`{"name":%q,"app":%[1]q,"roles":["service"]}`, app))).Secret
		}
		register := func(app, from, secret string) (status int, body string) {
			w.Helper()
			check := fmt.Sprintf(`{"Name":%q,"ID":%[1]q,"Address":%q,"Port":8080,"Check":{"CheckID":%[1]q,"TCP":"%[2]s:8080","Interval":"1s"}}`, app, victim)
			r := need.Got(http.NewRequestWithContext(w.Context(), "PUT", w.URL("n1")+"/v1/agent/service/register", strings.NewReader(check)))(w)
			r.Header.Set("X-Consul-Token", secret)
			reply := need.Got(w.Client(from).Do(r))(w)
			defer reply.Body.Close()
			return reply.StatusCode, string(need.Got(io.ReadAll(reply.Body))(w))
		}
		says := func(app, status, output, when string) {
			w.Helper()
			w.Await(5*time.Second, when, func() bool {
				r := w.Call("n1", "GET", "/v1/health/checks/"+app, "", operator)
				return strings.Contains(r.Body, `"Status":"`+status+`"`) && strings.Contains(r.Body, output)
			})
		}
		mine, theirs := token("orders"), token("bills")
		for app, from := range map[string]string{"orders": victim, "bills": other} {
			status, body := register(app, from, map[string]string{"orders": mine, "bills": theirs}[app])
			need.That(w, status == 200, "%s before level 3: %d %s", app, status, body)
			says(app, "passing", "Success", app+" before level 3")
		}
		refused := documentOf[api.AuthCheck](w, do("GET", "/v1/rollcall/auth/check", "")).Checks
		want := []api.RefusedCheck{{Node: other, Check: "bills", Service: "bills", From: other, Token: "bills", Roles: []string{"service"}, Rule: "check-target 10.9.0.7:8080 probe"}}
		need.That(w, len(refused) == 1, "listed before level 3: %+v", refused)
		refused[0].Accessor = ""
		expect.Equal(w, fmt.Sprint(refused), fmt.Sprint(want), "listed before level 3")
		w.Await(5*time.Minute, "the newest level is written", func() bool {
			w.Call("n1", "POST", "/v1/rollcall/upgrade/finalize", "", operator)
			return documentOf[api.Upgrade](w, do("GET", "/v1/rollcall/upgrade", "")).Level == codec.Newest
		})
		for range 2 {
			says("bills", "critical", "registered from "+other, "what it says of itself")
			w.Wait(3 * time.Second)
			says("orders", "passing", "Success", "its own address")
			status, body := register("bills", other, theirs)
			expect.That(w, status == 403 && strings.Contains(body, "comes from "+other+","), "registered again: %d %s", status, body)
			status, body = register("orders", victim, mine)
			expect.That(w, status == 200, "its own address, registered again: %d %s", status, body)
			do("POST", "/v1/rollcall/transfer", "")
			w.Wait(5 * time.Second)
		}
		do("PUT", "/v1/rollcall/auth/roles/service", `{"rules":["app {app} read,register","check-target 10.9.0.0/24:8080 probe"]}`)
		says("bills", "passing", "Success", "the role allows it")
	})
}
