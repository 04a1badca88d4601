package sim_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/cmd/internal/sim"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// revokedWithin is when every node refuses a revoked token, and has ended what waits for its caller
// (docs/run/permissions.md).
const revokedWithin = time.Second

// denied reports whether a response refuses the caller, and not the call.
func denied(r sim.Reply) bool {
	return r.Status == http.StatusUnauthorized || r.Status == http.StatusForbidden || r.Status == http.StatusTooManyRequests
}

// A token is revoked that sends heartbeats to every node, and waits at each of them in a watch, a long poll, a
// blocking query and for a lock.
func TestRevokedTokenIsRefusedEverywhereWithinASecond(t *testing.T) {
	on := func(c *config.Config) { c.Auth.Mode = "on" }
	sim.Run(t, sim.Cluster{Nodes: 3, Configure: on}, func(w *sim.World) {
		operator := "Authorization: Bearer " + documentOf[api.NewToken](w, w.Admin("n1", "POST", "/v1/rollcall/auth/bootstrap", "")).Secret
		do := func(method, path, body string) sim.Reply {
			w.Helper()
			r := w.Call("n1", method, path, body, operator)
			need.That(w, r.Status/100 == 2, "%s %s: %v", method, path, r)
			return r
		}
		do("PUT", "/v1/rollcall/auth/roles/service", `{"rules":["app {app} read,register","app * read","kv config/ read","session read,write","lock job read,write"]}`)
		token := func(name string) (api.NewToken, string) {
			created := documentOf[api.NewToken](w, do("POST", "/v1/rollcall/auth/tokens", fmt.Sprintf(`{"name":%q,"app":"ORDERS","roles":["service"]}`, name)))
			return created, "Authorization: Bearer " + created.Secret
		}
		mine, as := token("orders")
		_, still := token("orders-2")
		do("POST", "/eureka/apps/ORDERS", `{"instance":{"instanceId":"orders-1","app":"ORDERS","hostName":"h","ipAddr":"10.1.1.1","status":"UP","dataCenterInfo":{"name":"MyOwn"},"leaseInfo":{"durationInSecs":600}}}`)
		do("PUT", "/v1/kv/config/x", "1")
		index := do("GET", "/v1/kv/config/x", "").Header.Get("X-Consul-Index")
		w.Wait(moment)

		var stop atomic.Bool
		var callers sync.WaitGroup
		refused := make([]time.Time, 3) // by node
		for i, n := range w.Names() {
			callers.Go(func() {
				for ; !stop.Load(); w.Wait(20 * time.Millisecond) {
					r := w.Call(n, "PUT", "/eureka/apps/ORDERS/orders-1", "", as)
					switch {
					case denied(r) && refused[i].IsZero():
						refused[i] = time.Now()
					case !denied(r):
						expect.That(w, r.Status == http.StatusOK && refused[i].IsZero(), "%s: a heartbeat: %v, when the first was refused at %v", n, r, refused[i])
					}
					r = w.Call(n, "PUT", "/eureka/apps/ORDERS/orders-1", "", still)
					expect.Equal(w, r.Status, http.StatusOK, "%s: a heartbeat of the other token:", n)
				}
			})
		}
		var mu sync.Mutex
		ended := map[string]time.Time{}
		var waits []string
		wait := func(n, what, method, path string) {
			name := what + " at " + n
			waits = append(waits, name)
			callers.Go(func() {
				r := w.Hold(n, method, path, "", as)
				expect.That(w, denied(r), "%s returned %v", name, r)
				mu.Lock()
				defer mu.Unlock()
				ended[name] = time.Now()
			})
		}
		holder := documentOf[api.Session](w, do("POST", "/v1/rollcall/sessions", `{"ttl":"1h"}`)).ID
		do("PUT", "/v1/rollcall/locks/job?session="+holder, "")
		var streams []*sim.Stream
		for _, n := range w.Names() {
			session := documentOf[api.Session](w, w.Call(n, "POST", "/v1/rollcall/sessions", `{"ttl":"1h"}`, as)).ID
			wait(n, "the wait for a lock", "PUT", "/v1/rollcall/locks/job?wait=5m&session="+session)
			streams = append(streams, w.Watch(n, "app=ORDERS", as))
			wait(n, "the long poll", "GET", "/v1/rollcall/watch?app=NONE&wait=5m")
			wait(n, "the blocking query", "GET", "/v1/kv/config/x?wait=5m&index="+index)
		}
		w.Wait(5 * time.Second)
		mu.Lock()
		early := len(ended)
		mu.Unlock()
		need.Equal(w, early, 0, "waits that ended before their token was revoked:")
		for _, s := range streams {
			_, err := s.Ended()
			need.OKf(w, err, "the watch at %s, before its token was revoked", s.Node)
		}
		do("DELETE", "/v1/rollcall/auth/tokens/"+mine.Accessor, "")
		answered := time.Now()
		w.Wait(5 * time.Second)
		stop.Store(true)
		callers.Wait()
		for i, n := range w.Names() {
			took := refused[i].Sub(answered)
			expect.That(w, !refused[i].IsZero() && took <= revokedWithin, "%s refused a heartbeat %v after the revocation was answered", n, took)
			expect.That(w, denied(w.Call(n, "GET", "/eureka/apps", "", as)), "%s still shows the registry", n)
		}
		for _, s := range streams {
			at, err := s.Ended()
			expect.That(w, err != nil && at.Sub(answered) <= revokedWithin, "the watch at %s ended %v after the revocation was answered, %v", s.Node, at.Sub(answered), err)
		}
		for _, name := range waits {
			expect.That(w, ended[name].Sub(answered) <= revokedWithin && !ended[name].IsZero(), "%s ended %v after the revocation was answered", name, ended[name].Sub(answered))
		}
	})
}

// A role that may read what an alias check follows is narrowed and widened: the check stops reporting it, and starts
// again. The same happens when a service of another application replaces what it follows.
func TestAliasFollowsWhatItsTokenMayReadNow(t *testing.T) {
	on := func(c *config.Config) { c.Auth.Mode = "on" }
	sim.Run(t, sim.Cluster{Nodes: 3, Configure: on}, func(w *sim.World) {
		operator := "Authorization: Bearer " + documentOf[api.NewToken](w, w.Admin("n1", "POST", "/v1/rollcall/auth/bootstrap", "")).Secret
		do := func(method, path, body, as string) sim.Reply {
			w.Helper()
			r := w.Call("n1", method, path, body, as)
			need.That(w, r.Status/100 == 2, "%s %s: %v", method, path, r)
			return r
		}
		role := func(rules string) { do("PUT", "/v1/rollcall/auth/roles/service", rules, operator) }
		const wide, narrow = `{"rules":["app ORDERS read,register","app PAY read"]}`, `{"rules":["app ORDERS read,register"]}`
		role(wide)
		as := "Authorization: Bearer " + documentOf[api.NewToken](w, do("POST", "/v1/rollcall/auth/tokens", `{"name":"orders","roles":["service"]}`, operator)).Secret
		do("PUT", "/v1/agent/service/register", `{"Name":"pay","ID":"pay-1","Check":{"CheckID":"p","TTL":"1h"}}`, operator)
		do("PUT", "/v1/agent/check/warn/p?note=secret", "", operator)
		do("PUT", "/v1/agent/service/register", `{"Name":"orders","ID":"orders-1","Check":{"Name":"follows","AliasService":"pay-1"}}`, as)
		const secret, hidden = `failing: secret`, "or the token that registered this check may not read it"
		says := func(output, when string) {
			w.Helper()
			for _, n := range w.Names() {
				r := w.Call(n, "GET", "/v1/health/checks/orders", "", as)
				expect.That(w, strings.Contains(r.Body, output) && (output == secret || !strings.Contains(r.Body, "secret")), "%s, %s: %v, want %q", when, n, r, output)
			}
		}
		w.Wait(revokedWithin)
		says(secret, "registered")
		role(narrow)
		w.Wait(revokedWithin)
		says(hidden, "the role is narrowed")
		do("POST", "/v1/rollcall/transfer", "", operator)
		w.Wait(5 * time.Second)
		role(wide)
		w.Wait(revokedWithin)
		says(secret, "the role is widened")
		do("PUT", "/v1/agent/service/register", `{"Name":"bills","ID":"pay-1","Check":{"CheckID":"p","TTL":"1h"}}`, operator)
		says(hidden, "another application took its place")
		role(`{"rules":["app ORDERS read,register","app BILLS read"]}`)
		w.Wait(revokedWithin)
		says(secret, "which may be read")
	})
}

// A follower that is cut off for half a second allows calls by the roles that it knows. What they wait for, a newer
// state or the log, comes after a role was narrowed and a token revoked: they show nothing and change nothing.
func TestWhatAFollowerAllowedIsJudgedByTheNewestRoles(t *testing.T) {
	on := func(c *config.Config) {
		c.Auth.Mode, c.Replication.Datacenters = "on", map[string]string{"dc2": "http://127.0.2.1:8761"}
	}
	sim.Run(t, sim.Cluster{Nodes: 3, Configure: on}, func(w *sim.World) {
		operator := "Authorization: Bearer " + documentOf[api.NewToken](w, w.Admin("n1", "POST", "/v1/rollcall/auth/bootstrap", "")).Secret
		leader := documentOf[api.Status](w, w.Call("n1", "GET", "/v1/rollcall/status", "", operator)).Leader
		behind := w.Others(leader)[0]
		do := func(method, path, body string) sim.Reply {
			w.Helper()
			r := w.Call(leader, method, path, body, operator)
			need.That(w, r.Status/100 == 2, "%s %s: %v", method, path, r)
			return r
		}
		const wide, narrow = `{"rules":["app * read","app MINE register,override","auth read","operator write","kv mine/ read,write","session write","lock job read,write"]}`, `{"rules":["app NONE read"]}`
		callers := map[string]api.NewToken{}
		for _, name := range []string{"narrowed", "revoked"} {
			do("PUT", "/v1/rollcall/auth/roles/"+name, wide)
			callers[name] = documentOf[api.NewToken](w, do("POST", "/v1/rollcall/auth/tokens", fmt.Sprintf(`{"name":%q,"roles":[%q]}`, name, name)))
		}
		do("PUT", "/v1/kv/mine/new", "hidden")
		saved := do("GET", "/v1/rollcall/snapshot", "").Body
		do("DELETE", "/v1/kv/mine/new", "")
		do("PUT", "/v1/kv/mine/old", "hidden")
		const hidden = `{"instance":{"instanceId":%q,"app":"MINE","hostName":"h","ipAddr":"10.1.1.1","status":"UP","dataCenterInfo":{"name":"MyOwn"},"leaseInfo":{"durationInSecs":600}}}`
		do("POST", "/eureka/apps/MINE", strings.Replace(fmt.Sprintf(hidden, "hidden"), `"status"`, `"lastDirtyTimestamp":"5","status"`, 1))
		// heartbeats with another status count at once
		do("PUT", "/v1/rollcall/apps/MINE/hidden/override?value=OUT_OF_SERVICE&author=ann", "")
		w.Wait(revokedWithin)
		sessions := map[string]string{}
		for name, k := range callers {
			sessions[name] = documentOf[api.Session](w, w.Call(behind, "POST", "/v1/rollcall/sessions", `{"ttl":"1h"}`, "Authorization: Bearer "+k.Secret)).ID
		}
		w.Wait(moment)
		w.Isolate(behind)
		do("PUT", "/v1/rollcall/auth/roles/late", `{"rules":["app hidden* read"]}`)
		do("PUT", "/v1/rollcall/auth/roles/narrowed", narrow)
		do("DELETE", "/v1/rollcall/auth/tokens/"+callers["revoked"].Accessor, "")
		var calls sync.WaitGroup
		for name, k := range callers {
			want := map[string]int{"narrowed": http.StatusForbidden, "revoked": http.StatusUnauthorized}[name]
			for _, c := range [][3]string{
				{"GET", "/eureka/apps"},
				{"GET", "/eureka/apps/MINE"},
				{"GET", "/v1/rollcall/apps"},
				{"GET", "/v1/rollcall/fence/mine/old?index=1"},
				{"GET", "/v1/rollcall/watch?consistency=linearizable&wait=2s"},
				{"GET", "/v1/kv/mine/old"},
				{"GET", "/v1/kv/mine/old?index=1"},
				{"PUT", "/v1/txn", `[{"KV":{"Verb":"get","Key":"mine/old"}}]`},
				{"GET", "/v1/health/service/MINE"},
				{"GET", "/v1/rollcall/snapshot"},
				{"GET", "/v1/rollcall/auth/roles/late"},
				{"POST", "/v1/rollcall/prune?not-passing&dry-run&service=MINE"},
				{"PUT", "/v1/kv/mine/new", "written"},
				{"PUT", "/v1/txn", `[{"KV":{"Verb":"set","Key":"mine/new","Value":"eA=="}}]`},
				{"PUT", "/v1/rollcall/locks/job?session=" + sessions[name]},
				{"PUT", "/v1/session/create", `{}`},
				{"POST", "/eureka/apps/MINE", fmt.Sprintf(hidden, "new")},
				{"DELETE", "/eureka/apps/MINE/hidden"},
				{"PUT", "/eureka/apps/MINE/hidden?status=DOWN&lastDirtyTimestamp=5"},
				{"PUT", "/v1/rollcall/snapshot?keys-only&reason=test", saved},
				{"POST", "/v1/rollcall/peers/dc2/pause"},
				{"POST", "/v1/rollcall/peers/n1/forget"},
				{"DELETE", "/v1/rollcall/members/n9"},
				{"POST", "/v1/rollcall/transfer?to=n9"},
				{"POST", "/v1/rollcall/upgrade/finalize"},
				{"POST", "/v1/rollcall/self-preservation/hold?for=1m&reason=x"},
				{"PUT", "/v1/agent/service/register", `{"Name":"mine","ID":"new-2"}`},
			} {
				calls.Go(func() {
					r := w.Call(behind, c[0], c[1], c[2], "Authorization: Bearer "+k.Secret)
					refused := want
					if strings.HasPrefix(c[1], "/v1/") && !strings.HasPrefix(c[1], "/v1/rollcall/") {
						refused = http.StatusForbidden // as Consul reports both
					}
					expect.That(w, r.Status == refused && !strings.Contains(r.Body, "hidden"), "%s %s, whose token is %s: %v, want %d", c[0], c[1], name, r, refused)
				})
			}
		}
		w.Wait(500 * time.Millisecond)
		w.Heal()
		calls.Wait()
		expect.Equal(w, w.Call(leader, "GET", "/v1/kv/mine/?keys", "", operator).Body, `["mine/old"]`, "the keys are")
		expect.Equal(w, strings.Count(do("GET", "/eureka/apps", "").Body, `"instanceId"`), 1, "instances:")
		expect.Equal(w, w.Call(leader, "GET", "/v1/rollcall/locks/job", "", operator).Status, http.StatusNotFound, "the lock of what was refused:")
	})
}
