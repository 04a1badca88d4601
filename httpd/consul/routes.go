package consul

import (
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

type route web.Route[call]

// Routes returns the routes of Consul's API. They need verbatim paths: the rest after the fixed part is one name.
func Routes(n *web.Node, config Config) []web.Route[*web.Call] {
	e := &endpoints{Node: n, config: config}
	rows := make([]route, len(table))
	for i, rt := range table {
		do, ofAgent := rt.Do, strings.HasPrefix(rt.Path, "/v1/agent/")
		rt.Do = web.WithCoordination(func(c call) (any, error) {
			if err := c.checkTenancy(ofAgent); err != nil {
				return nil, err
			}
			return do(c)
		})
		rows[i] = rt
	}
	return web.Bind(rows, func(c *web.Call) call { return call{Call: c, endpoints: e} })
}

// table lists the routes of Consul's API. A variable at a path's end takes all the rest, slashes included, even
// nothing: the endpoint says what is missing. The most frequent routes come first.
var table = []route{
	{keyNeeds, web.Get, "/v1/kv/{key}", web.ConsulForm, call.getKey},
	{web.ByOperation, web.Put, "/v1/kv/{key}", web.ConsulForm, call.putKey},
	{web.ByOperation, web.Delete, "/v1/kv/{key}", web.ConsulForm, call.deleteKey},
	{web.ToReadRest(access.App), web.Get, "/v1/health/service/{name}", web.ConsulForm, cached(call.healthService)},
	{web.ToReadRest(access.App), web.Get, "/v1/catalog/service/{name}", web.ConsulForm, cached(call.catalogService)},
	{web.ByOperation, web.Put, "/v1/session/renew/{id}", web.ConsulForm, web.Bodiless(call.renewSession)},
	{web.ByOperation, web.Put, "/v1/session/create", web.ConsulForm, call.createSession},
	{web.ByOperation, web.Put, "/v1/session/destroy/{id}", web.ConsulForm, web.Bodiless(call.destroySession)},
	{web.ToRead(access.Session), web.Get, "/v1/session/info/{id}", web.ConsulForm, call.sessionInfo},
	{web.ToRead(access.Session), web.Get, "/v1/session/node/{node}", web.ConsulForm, call.sessionsOfNode},
	{web.ToRead(access.Session), web.Get, "/v1/session/list", web.ConsulForm, call.sessionList},
	{web.ByOperation, web.Put, "/v1/txn", web.ConsulForm, call.txn},
	{web.Open, web.Get, "/v1/status/leader", web.ConsulForm, call.statusLeader},
	{web.Known, web.Get, "/v1/status/peers", web.ConsulForm, call.statusPeers},

	// Every server answers for every agent: an instance may be registered with one, send its heartbeats to another and
	// be deregistered by a third. Old Java clients send GET for heartbeats (Ecwid/consul-api, AgentConsulClient).
	{web.ByOperation, web.PutOrGet, "/v1/agent/check/pass/{id}", web.ConsulForm, beatCheck(catalog.Passing)},
	{web.ByOperation, web.PutOrGet, "/v1/agent/check/warn/{id}", web.ConsulForm, beatCheck(catalog.Warning)},
	{web.ByOperation, web.PutOrGet, "/v1/agent/check/fail/{id}", web.ConsulForm, beatCheck(catalog.Critical)},
	{web.ByOperation, web.Put, "/v1/agent/check/update/{id}", web.ConsulForm, call.updateCheck},
	{web.ByOperation, web.Put, "/v1/agent/check/register", web.ConsulForm, call.registerCheck},
	{web.ByOperation, web.PutOrGet, "/v1/agent/check/deregister/{id}", web.ConsulForm, web.Bodiless(call.deregisterCheck)},
	{web.ByOperation, web.Put, "/v1/agent/service/register", web.ConsulForm, call.registerService},
	{web.ByOperation, web.Put, "/v1/agent/service/deregister/{id}", web.ConsulForm, web.Bodiless(call.deregisterByAgent)},
	{web.ByOperation, web.Put, "/v1/agent/service/maintenance/{id}", web.ConsulForm, call.serviceMaintenance},
	{web.ByOperation, web.Put, "/v1/agent/maintenance", web.ConsulForm, call.nodeMaintenance},
	{web.Known, web.Get, "/v1/agent/self", web.ConsulForm, call.agentSelf},
	{web.Known, web.Get, "/v1/agent/version", web.ConsulForm, call.agentVersion},
	{web.Known, web.Get, "/v1/agent/members", web.ConsulForm, call.agentMembers},
	{web.ToRead(access.App), web.Get, "/v1/agent/services", web.ConsulForm, call.agentServices},
	{web.ToRead(access.App), web.Get, "/v1/agent/service/{id}", web.ConsulForm, call.agentService},
	{web.ToRead(access.App), web.Get, "/v1/agent/checks", web.ConsulForm, call.agentChecks},
	{web.ToRead(access.App), web.Get, "/v1/agent/health/service/id/{id}", web.ConsulForm, call.agentHealthByID},
	{web.ToReadRest(access.App), web.Get, "/v1/agent/health/service/name/{name}", web.ConsulForm, call.agentHealthByName},

	// The catalog has the logical node, with everything that clients of Eureka registered, the nodes of agents, and
	// those that registrars named.
	{web.ByOperation, web.Put, "/v1/catalog/register", web.ConsulForm, call.catalogRegister},
	{web.ByOperation, web.Put, "/v1/catalog/deregister", web.ConsulForm, call.catalogDeregister},
	{web.Known, web.Get, "/v1/catalog/datacenters", web.ConsulForm, call.catalogDatacenters},
	{web.ToRead(access.Node), web.Get, "/v1/catalog/nodes", web.ConsulForm, call.catalogNodes},
	{web.ToRead(access.App), web.Get, "/v1/catalog/services", web.ConsulForm, cached(call.catalogServices)},
	{web.ToReadRest(access.App), web.Get, "/v1/catalog/connect/{name}", web.ConsulForm, cached(call.catalogConnect)},
	{nodeNeeds, web.Get, "/v1/catalog/node/{node}", web.ConsulForm, call.catalogNode},
	{nodeNeeds, web.Get, "/v1/catalog/node-services/{node}", web.ConsulForm, cached(call.catalogNodeServices)},
	{web.ToReadRest(access.App), web.Get, "/v1/health/connect/{name}", web.ConsulForm, cached(call.healthConnect)},
	{web.ToReadRest(access.App), web.Get, "/v1/health/checks/{name}", web.ConsulForm, call.healthChecks},
	{nodeNeeds, web.Get, "/v1/health/node/{node}", web.ConsulForm, call.healthNode},
	{nodeNeeds, web.Get, "/v1/health/state/{state}", web.ConsulForm, call.healthState},

	{web.Known, web.Get, "/v1/acl/token/self", web.ConsulForm, call.ownToken},
	{web.ToDo(access.Write, access.Auth), web.Put, "/v1/acl/bootstrap", web.ConsulForm, call.bootstrap},
}
