package eurekaroutes

import (
	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// table has the routes of the protocol under each base path. Frequent routes without a cache come first.
var table = []route{
	{web.ByOperation, web.Post, "/apps/{app}", web.EurekaForm, call.register},
	{web.ToRead(access.App), web.Get, "/apps", web.EurekaForm, loaded(cached(allApps, listed(whole)))},
	{web.ToRead(access.App), web.Get, "/apps/delta", web.EurekaForm, loaded(cached(allAppsDelta, listed(changed)))},
	{web.ToReadNamed(access.App, "app"), web.Get, "/apps/{app}", web.EurekaForm, loaded(cached(oneApp, web.Viewed(call.application)))},
	{web.ToReadNamed(access.App, "app"), web.Get, "/apps/{app}/{id}", web.EurekaForm, web.Viewed(call.instance)},
	{web.ToRead(access.App), web.Get, "/instances/{id}", web.EurekaForm, web.Viewed(call.instanceAnywhere)},
	{web.ToRead(access.App), web.Get, "/vips/{vip}", web.EurekaForm, loaded(cached(oneVIP, byAddress("vip", web.FreshView.ByVIP)))},
	{web.ToRead(access.App), web.Get, "/svips/{svip}", web.EurekaForm, loaded(cached(oneSecureVIP, byAddress("svip", web.FreshView.BySecureVIP)))},
	{web.ToRead(access.Operator), web.Get, "/status", web.EurekaForm, call.serverStatus},
	{web.ToRead(access.App), web.Get, statusOverridesPath, web.EurekaForm, web.Viewed(call.statusOverrides)},
	{web.ByOperation, web.Put, "/apps/{app}/{id}", web.EmptyForm, call.renewRouted},
	{web.ByOperation, web.Delete, "/apps/{app}/{id}", web.EmptyForm, call.cancel},
	{web.ByOperation, web.Put, "/apps/{app}/{id}/status", web.EurekaForm, call.setStatus},
	{web.ByOperation, web.Delete, "/apps/{app}/{id}/status", web.EurekaForm, call.deleteStatus},
	{web.ByOperation, web.Put, MetadataPath, web.EurekaForm, call.updateMetadata},
	{web.ByOperation, web.Post, "/peerreplication/batch", web.EurekaForm, web.BoundBatches(web.BatchPatience, call.batch)},
	{web.ToDo(access.Override, access.App), web.Put, "/asg/{asg}/status", web.EmptyForm, web.Bodiless(call.autoScalingGroup)},
}

// rootTable has the routes that also exist at the root.
var rootTable = []route{
	{web.ToRead(access.App), web.Get, statusOverridesPath, web.EurekaForm, web.Viewed(call.statusOverrides)},
}

// MetadataPath is the path of the route whose parameters are data: up to web.MaxMetaParams are allowed.
const MetadataPath = "/apps/{app}/{id}/metadata"

const statusOverridesPath = "/serverinfo/statusoverrides"

// Routes returns the routes of the protocol that exist under each base path.
func (e *Eureka) Routes() []web.Route[*web.Call] { return web.Bind(table, e.of) }

// RootRoutes returns the routes that also exist without a base path.
func (e *Eureka) RootRoutes() []web.Route[*web.Call] { return web.Bind(rootTable, e.of) }

func (e *Eureka) of(c *web.Call) call { return call{c, e} }
