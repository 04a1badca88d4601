package own

import (
	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// documented is a route with its document.
type documented struct {
	route
	document any // the document of package api sent with 200; nil if none, or if only servers exchange it
}

// table lists our own API, and the node's health.
var table = append([]documented{
	{route{web.ToRead(access.Operator), web.Get, "/v1/rollcall/status", web.JSONForm, call.clusterStatus}, api.Status{}},
	{route{web.ToRead(access.Operator), web.Get, "/v1/rollcall/verify", web.JSONForm, call.verify}, api.Verification{}},
	{route{web.ToReadApp, web.Get, "/v1/rollcall/apps", web.JSONForm, call.listInstances}, []api.Instance{}},
	{route{web.ToRead(access.App), web.Get, "/v1/rollcall/events", web.JSONForm, web.Viewed(call.events)}, api.Events{}},
	{route{web.ToRead(access.Operator), web.Get, "/v1/rollcall/settings", web.JSONForm, web.Viewed(call.settings)}, nil},
	{route{web.ToRead(access.Operator), web.Get, "/v1/rollcall/self-preservation", web.JSONForm, web.Viewed(call.selfPreservation)}, api.SelfPreservation{}},
	{route{web.ToDo(access.Write, access.Operator), web.Post, "/v1/rollcall/self-preservation/release", web.JSONForm, call.releasePreservation}, api.SelfPreservation{}},
	{route{web.ToDo(access.Write, access.Operator), web.Post, "/v1/rollcall/self-preservation/hold", web.JSONForm, call.holdPreservation}, api.SelfPreservation{}},
	{route{web.ToReadNamed(access.App, "app"), web.Get, "/v1/rollcall/apps/{app}/{id}/explain", web.JSONForm, web.Viewed(call.explain)}, api.Explanation{}},
	{route{web.ByOperation, web.Put, "/v1/rollcall/apps/{app}/{id}/override", web.JSONForm, call.override}, api.Acted{}},
	{route{web.ByOperation, web.Delete, "/v1/rollcall/apps/{app}/{id}/override", web.JSONForm, call.endOverride}, api.Acted{}},
	{route{web.ByOperation, web.Put, "/v1/rollcall/apps/{app}/{id}/quarantine", web.JSONForm, call.quarantine}, api.Acted{}},
	{route{web.ByOperation, web.Delete, "/v1/rollcall/apps/{app}/{id}/quarantine", web.JSONForm, call.endQuarantine}, api.Acted{}},
	{route{pruneNeeds, web.Post, "/v1/rollcall/prune", web.JSONForm, call.prune}, []api.Pruned{}},
	{route{web.ToRead(access.Operator), web.Get, "/v1/rollcall/log-level", web.JSONForm, withLogLevel(call.showLogLevel)}, api.LogLevel{}},
	{route{web.ToDo(access.Write, access.Operator), web.Put, "/v1/rollcall/log-level", web.JSONForm, withLogLevel(call.setLogLevel)}, api.LogLevel{}},
	{route{web.ToDo(access.Write, access.Operator), web.Delete, memberPath, web.JSONForm, call.removeMember}, api.RemovedMember{}},
	{route{web.ToDo(access.Write, access.Operator), web.Get, snapshotPath, web.JSONForm, call.saveSnapshot}, nil},
	{route{web.ToDo(access.Write, access.Operator), web.Put, snapshotPath, web.JSONForm, call.restoreSnapshot}, api.Restored{}},
	{route{web.ToDo(access.Write, access.Operator), web.Post, "/v1/rollcall/transfer", web.JSONForm, web.Bodiless(call.transferLeadership)}, api.Transferred{}},
	{route{web.ToRead(access.Operator), web.Get, "/v1/rollcall/upgrade", web.JSONForm, call.upgradeStatus}, api.Upgrade{}},
	{route{web.ToDo(access.Write, access.Operator), web.Post, "/v1/rollcall/upgrade/finalize", web.JSONForm, web.Bodiless(call.finalizeUpgrade)}, api.Upgrade{}},
	{route{web.ToRead(access.Operator), web.GetOnly, "/v1/rollcall/debug/bundle", web.JSONForm, call.debugBundle}, nil},
	{route{web.ToReadApp, web.GetOnly, "/v1/rollcall/watch", web.JSONForm, call.watch}, api.Changes{}},

	{route{web.Known, web.Post, "/v1/rollcall/replication", web.JSONForm, exchange(Peers.Receive)}, nil},
	{route{web.Known, web.Post, "/v1/rollcall/replication/digest", web.JSONForm, exchange(Peers.Compare)}, nil},
	{route{web.Known, web.GetOnly, "/v1/rollcall/replication/state", web.JSONForm, withPeers(call.replicationState)}, nil},
	{route{web.ToRead(access.Operator), web.Get, "/v1/rollcall/peers", web.JSONForm, withPeers(call.peers)}, api.Peers{}},
	{route{web.ToRead(access.Operator), web.GetOnly, "/v1/rollcall/peers/{name}/diff", web.JSONForm, withPeers(call.diffPeer)}, api.PeerDiff{}},
	{route{web.ToDo(access.Write, access.Operator), web.Post, "/v1/rollcall/peers/{name}/repair", web.JSONForm, withPeers(web.Bodiless(call.repairPeer))}, api.PeerDiff{}},
	{route{web.ToDo(access.Write, access.Operator), web.Post, "/v1/rollcall/peers/{name}/pause", web.JSONForm, withPeers(web.Bodiless(setPaused(true)))}, nil},
	{route{web.ToDo(access.Write, access.Operator), web.Post, "/v1/rollcall/peers/{name}/resume", web.JSONForm, withPeers(web.Bodiless(setPaused(false)))}, nil},
	{route{web.ToDo(access.Write, access.Operator), web.Post, "/v1/rollcall/peers/{name}/forget", web.JSONForm, withPeers(web.Bodiless(call.forgetSender))}, nil},

	{route{web.ToRead(access.Session), web.Get, "/v1/rollcall/sessions", web.JSONForm, web.WithCoordination(call.listSessions)}, []api.Session{}},
	{route{web.ToRead(access.Session), web.Get, "/v1/rollcall/sessions/{id}", web.JSONForm, web.WithCoordination(call.getSession)}, api.Session{}},
	{route{web.ByOperation, web.Post, "/v1/rollcall/sessions", web.JSONForm, web.WithCoordination(call.createSession)}, api.Session{}},
	{route{web.ByOperation, web.Put, "/v1/rollcall/sessions/{id}/renew", web.JSONForm, web.WithCoordination(web.Bodiless(call.renewSession))}, api.Session{}},
	{route{web.ByOperation, web.Delete, "/v1/rollcall/sessions/{id}", web.JSONForm, web.WithCoordination(web.Bodiless(call.destroySession))}, api.Destroyed{}},
	{route{web.ToRead(access.Lock), web.Get, "/v1/rollcall/locks", web.JSONForm, onPermits(kv.Lock, permitsOf.list)}, []api.Permits{}},
	{route{web.ToReadNamed(access.Lock, "name"), web.Get, "/v1/rollcall/locks/{name}", web.JSONForm, onPermits(kv.Lock, permitsOf.show)}, api.Permits{}},
	{route{web.ByOperation, web.Put, "/v1/rollcall/locks/{name}", web.JSONForm, onPermits(kv.Lock, permitsOf.acquire)}, api.Acquired{}},
	{route{web.ByOperation, web.Delete, "/v1/rollcall/locks/{name}", web.JSONForm, onPermits(kv.Lock, permitsOf.release)}, api.Released{}},
	{route{web.ToRead(access.Lock), web.Get, "/v1/rollcall/semaphores", web.JSONForm, onPermits(kv.Semaphore, permitsOf.list)}, []api.Permits{}},
	{route{web.ToReadNamed(access.Lock, "name"), web.Get, "/v1/rollcall/semaphores/{name}", web.JSONForm, onPermits(kv.Semaphore, permitsOf.show)}, api.Permits{}},
	{route{web.ByOperation, web.Put, "/v1/rollcall/semaphores/{name}", web.JSONForm, onPermits(kv.Semaphore, permitsOf.acquire)}, api.Acquired{}},
	{route{web.ByOperation, web.Delete, "/v1/rollcall/semaphores/{name}", web.JSONForm, onPermits(kv.Semaphore, permitsOf.release)}, api.Released{}},

	{route{web.Known, web.Get, "/v1/rollcall/auth", web.JSONForm, call.authStatus}, api.AuthStatus{}},
	{route{web.ToDo(access.Write, access.Auth), web.Put, "/v1/rollcall/auth/mode", web.JSONForm, web.Bodiless(call.setAuthMode)}, api.AuthStatus{}},
	{route{web.ToDo(access.Write, access.Auth), web.Post, "/v1/rollcall/auth/bootstrap", web.JSONForm, created(access.Founding)}, api.NewToken{}},
	{route{web.ToRead(access.Auth), web.Get, "/v1/rollcall/auth/roles", web.JSONForm, call.listRoles}, []api.Role{}},
	{route{web.ToRead(access.Auth), web.Get, "/v1/rollcall/auth/roles/{name}", web.JSONForm, call.getRole}, api.Role{}},
	{route{web.ToDo(access.Write, access.Auth), web.Put, "/v1/rollcall/auth/roles/{name}", web.JSONForm, call.putRole}, api.Role{}},
	{route{web.ToDo(access.Write, access.Auth), web.Delete, "/v1/rollcall/auth/roles/{name}", web.JSONForm, web.Bodiless(call.deleteRole)}, api.Role{}},
	{route{web.ToRead(access.Auth), web.Get, "/v1/rollcall/auth/tokens", web.JSONForm, call.listTokens}, []api.Token{}},
	{route{web.ToDo(access.Write, access.Auth), web.Post, "/v1/rollcall/auth/tokens", web.JSONForm, created(creation)}, api.NewToken{}},
	{route{web.ToDo(access.Write, access.Auth), web.Post, "/v1/rollcall/auth/tokens/{accessor}/rotate", web.JSONForm, web.Bodiless(call.rotateToken)}, api.NewToken{}},
	{route{web.ToDo(access.Write, access.Auth), web.Delete, "/v1/rollcall/auth/tokens/{accessor}", web.JSONForm, web.Bodiless(call.revokeToken)}, api.Token{}},
	{route{web.ToRead(access.Auth), web.Get, "/v1/rollcall/audit", web.JSONForm, call.audit}, api.Audit{}},
	{route{web.ToRead(access.Auth), web.Get, "/v1/rollcall/auth/test", web.JSONForm, call.testPolicy}, api.Decision{}},
	{route{web.ToRead(access.Auth), web.Get, "/v1/rollcall/auth/check", web.JSONForm, web.Viewed(call.checkAccess)}, api.AuthCheck{}},

	{route{web.Open, web.Get, "/healthz", web.JSONForm, call.healthz}, nil},
	{route{web.Open, web.Get, "/readyz", web.JSONForm, call.readyz}, nil},
}, nextRoutes...)

// fence is the route whose variable takes the rest of the path.
var fence = documented{route{fenceNeeds, web.Get, "/v1/rollcall/fence/{key}", web.JSONForm, web.WithCoordination(call.fence)}, api.FenceState{}}

const snapshotPath = "/v1/rollcall/snapshot"

const memberPath = "/v1/rollcall/members/{name}" // of one node of the cluster

// Routes returns our own API except the fences, and the node's health.
func (o *Own) Routes() []web.Route[*web.Call] {
	rows := make([]route, len(table))
	for i, row := range table {
		rows[i] = row.route
	}
	return web.Bind(rows, o.of)
}

// FenceRoute returns the route of the fences. Its path must be taken verbatim: the rest after the fixed part is one
// name.
func (o *Own) FenceRoute() web.Route[*web.Call] {
	return web.Bind([]route{fence.route}, o.of)[0]
}

func (o *Own) of(c *web.Call) call { return call{c, o} }

// Documents returns the documents of package api sent with 200, by the method and path of their routes; nil where
// nothing is sent, or where only servers exchange it.
func Documents() map[string]any {
	documents := map[string]any{}
	for _, row := range append([]documented{fence}, table...) {
		documents[row.Methods[0]+" "+row.Path] = row.document
	}
	return documents
}
