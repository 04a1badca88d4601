package eurekaroutes

import "github.com/seed-20419f34/rollcall/httpd/web"

// table has the routes of the protocol under each base path.
var table = []route{
	{web.Get, "/apps", web.EurekaForm, loaded(cached(allApps, call.fullList))},
	{web.Get, "/apps/delta", web.EurekaForm, loaded(cached(allAppsDelta, call.delta))},
	{web.Get, "/apps/{app}", web.EurekaForm, loaded(cached(oneApp, web.Viewed(call.application)))},
	{web.Get, "/apps/{app}/{id}", web.EurekaForm, web.Viewed(call.instance)},
	{web.Get, "/instances/{id}", web.EurekaForm, web.Viewed(call.instanceAnywhere)},
	{web.Get, "/vips/{vip}", web.EurekaForm, loaded(cached(oneVIP, byAddress("vip", web.FreshView.ByVIP)))},
	{web.Get, "/svips/{svip}", web.EurekaForm, loaded(cached(oneSecureVIP, byAddress("svip", web.FreshView.BySecureVIP)))},
	{web.Get, "/status", web.EurekaForm, call.serverStatus},
	{web.Get, statusOverridesPath, web.EurekaForm, web.Viewed(call.statusOverrides)},
	{web.Post, "/apps/{app}", web.EurekaForm, call.register},
	{web.Put, "/apps/{app}/{id}", web.EmptyForm, call.renewRouted},
	{web.Delete, "/apps/{app}/{id}", web.EmptyForm, call.cancel},
	{web.Put, "/apps/{app}/{id}/status", web.EurekaForm, call.setStatus},
	{web.Delete, "/apps/{app}/{id}/status", web.EurekaForm, call.deleteStatus},
	{web.Put, MetadataPath, web.EurekaForm, call.updateMetadata},
	{web.Post, "/peerreplication/batch", web.EurekaForm, web.BoundBatches(web.BatchPatience, call.batch)},
	{web.Put, "/asg/{asg}/status", web.EmptyForm, web.Bodiless(call.autoScalingGroup)},
}

// rootTable has those that are at the root, too.
var rootTable = []route{
	{web.Get, statusOverridesPath, web.EurekaForm, web.Viewed(call.statusOverrides)},
}

// MetadataPath is the path of the route whose parameters are data: there may be web.MaxMetaParams of them.
const MetadataPath = "/apps/{app}/{id}/metadata"

const statusOverridesPath = "/serverinfo/statusoverrides"

// Routes are the routes of the protocol, to be had under each base path.
func (e *Eureka) Routes() []web.Route[*web.Call] { return web.Bind(table, e.endpoints.of) }

// RootRoutes are those to be had without a base path.
func (e *Eureka) RootRoutes() []web.Route[*web.Call] { return web.Bind(rootTable, e.endpoints.of) }

func (e *endpoints) of(c *web.Call) call { return call{c, e} }
