package httpd

import (
	"fmt"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/consul"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// Consul's API has a router of its own, because its paths are taken as they came: what follows the
// fixed part is one name, in which slashes, empty segments and dots mean nothing (hashicorp/consul,
// agent/http.go). No path is ever redirected: Go's client would repeat a PUT as a GET.

// maxConsulURI bounds a request line of Consul's API in bytes: the names of keys may be long.
const maxConsulURI = 8 << 10

// takenAsIs says whether a path, still escaped, is one of Consul's API, or a fence's, whose names are those of its
// keys.
func takenAsIs(path string) bool {
	rest, ok := strings.CutPrefix(path, "/v1/")
	rest = strings.TrimLeft(rest, "/")
	return ok && rest != "rollcall" && (!strings.HasPrefix(rest, "rollcall/") || strings.HasPrefix(rest, "rollcall/fence/"))
}

// consulRoutes are Consul's API. A variable at a path's end takes all that is left of it, slashes too, and nothing as
// well: it is for the endpoint to miss it. The most frequent come first.
var consulRoutes = []route{
	{web.Get, "/v1/kv/{key}", web.ConsulForm, call.getKey},
	{web.Put, "/v1/kv/{key}", web.ConsulForm, call.putKey},
	{web.Delete, "/v1/kv/{key}", web.ConsulForm, call.deleteKey},
	{web.Put, "/v1/session/renew/{id}", web.ConsulForm, web.Bodiless(call.renewSession)},
	{web.Put, "/v1/session/create", web.ConsulForm, call.createSession},
	{web.Put, "/v1/session/destroy/{id}", web.ConsulForm, web.Bodiless(call.destroySession)},
	{web.Get, "/v1/session/info/{id}", web.ConsulForm, call.sessionInfo},
	{web.Get, "/v1/session/node/{node}", web.ConsulForm, call.sessionsOfNode},
	{web.Get, "/v1/session/list", web.ConsulForm, call.sessionList},
	{web.Put, "/v1/txn", web.ConsulForm, call.txn},
	{web.Get, "/v1/status/leader", web.ConsulForm, call.statusLeader},
	{web.Get, "/v1/status/peers", web.ConsulForm, call.statusPeers},

	// All servers are one agent: an instance may be registered with one, send its heartbeats to another and be
	// deregistered by a third. Old Java clients send GET for heartbeats (Ecwid/consul-api, AgentConsulClient).
	{web.PutOrGet, "/v1/agent/check/pass/{id}", web.ConsulForm, beatCheck(registry.Passing)},
	{web.PutOrGet, "/v1/agent/check/warn/{id}", web.ConsulForm, beatCheck(registry.Warning)},
	{web.PutOrGet, "/v1/agent/check/fail/{id}", web.ConsulForm, beatCheck(registry.Critical)},
	{web.Put, "/v1/agent/check/update/{id}", web.ConsulForm, call.updateCheck},
	{web.Put, "/v1/agent/check/register", web.ConsulForm, call.registerCheck},
	{web.PutOrGet, "/v1/agent/check/deregister/{id}", web.ConsulForm, web.Bodiless(call.deregisterCheck)},
	{web.Put, "/v1/agent/service/register", web.ConsulForm, call.registerService},
	{web.Put, "/v1/agent/service/deregister/{id}", web.ConsulForm, web.Bodiless(call.deregisterByAgent)},
	{web.Put, "/v1/agent/service/maintenance/{id}", web.ConsulForm, call.serviceMaintenance},
	{web.Put, "/v1/agent/maintenance", web.ConsulForm, call.nodeMaintenance},
	{web.Get, "/v1/agent/self", web.ConsulForm, call.agentSelf},
	{web.Get, "/v1/agent/members", web.ConsulForm, call.agentMembers},
	{web.Get, "/v1/agent/services", web.ConsulForm, unfiltered(call.agentServices)},
	{web.Get, "/v1/agent/service/{id}", web.ConsulForm, call.agentService},
	{web.Get, "/v1/agent/checks", web.ConsulForm, unfiltered(call.agentChecks)},
	{web.Get, "/v1/agent/health/service/id/{id}", web.ConsulForm, call.agentHealthByID},
	{web.Get, "/v1/agent/health/service/name/{name}", web.ConsulForm, call.agentHealthByName},

	// The catalog's nodes are the logical one, on which everything is that an agent or a client of Eureka
	// registered, and those that registrars named.
	{web.Put, "/v1/catalog/register", web.ConsulForm, call.catalogRegister},
	{web.Put, "/v1/catalog/deregister", web.ConsulForm, call.catalogDeregister},
	{web.Get, "/v1/catalog/datacenters", web.ConsulForm, call.catalogDatacenters},
	{web.Get, "/v1/catalog/nodes", web.ConsulForm, unfiltered(call.catalogNodes)},
	{web.Get, "/v1/catalog/services", web.ConsulForm, unfiltered(call.catalogServices)},
	{web.Get, "/v1/catalog/service/{name}", web.ConsulForm, unfiltered(call.catalogService)},
	{web.Get, "/v1/catalog/node/{node}", web.ConsulForm, unfiltered(call.catalogNode)},
	{web.Get, "/v1/catalog/node-services/{node}", web.ConsulForm, unfiltered(call.catalogNodeServices)},
	{web.Get, "/v1/health/service/{name}", web.ConsulForm, unfiltered(call.healthService)},
	{web.Get, "/v1/health/checks/{name}", web.ConsulForm, unfiltered(call.healthChecks)},
	{web.Get, "/v1/health/node/{node}", web.ConsulForm, unfiltered(call.healthNode)},
	{web.Get, "/v1/health/state/{state}", web.ConsulForm, unfiltered(call.healthState)},
}

// fenceRoute is our own route of which a variable takes all that is left of the path.
var fenceRoute = ownRoute{route{web.Get, "/v1/rollcall/fence/{key}", web.JSONForm, call.fence}, api.FenceState{}}

// routeAsIs builds the router of the paths that are taken as they came: Consul's API and the fences.
func (h *Handler) routeAsIs() {
	h.consul.NotFoundHandler = http.HandlerFunc(h.unroutedConsul)
	h.consul.MethodNotAllowedHandler = http.HandlerFunc(h.unroutedConsul)
	for _, rt := range consulRoutes {
		rt.Do = inOneNamespace(inDatacenter(rt.Do))
		h.verbatim(rt)
	}
	h.verbatim(fenceRoute.route)
}

func (h *Handler) verbatim(rt route) {
	rt.Do = web.WithCoordination(rt.Do)
	h.consul.Handle(strings.Replace(rt.Path, "}", ":.*}", 1), h.handle(rt.Path, h.bound(rt), false)).Methods(rt.Methods...)
}

// tenancies are what Consul Enterprise divides its data by, as the free edition says that it has none
// (hashicorp/consul, agent/http_oss.go).
var tenancies = []struct{ param, header, plural string }{
	{"ns", "X-Consul-Namespace", "Namespaces"},
	{"partition", "X-Consul-Partition", "Partitions"},
}

// inOneNamespace refuses requests for another namespace or partition than the default one: to ignore what they
// say would merge tenants, whose writes overwrite each other.
func inOneNamespace(e endpoint) endpoint {
	return func(c call) (any, error) {
		for _, t := range tenancies {
			if name := c.R.Header.Get(t.header); !consul.IsDefault(name) {
				return nil, web.BadRequest(fmt.Sprintf("Invalid header: %q - %s are a Consul Enterprise feature", t.header, t.plural))
			}
			if name := c.Text(t.param); !consul.IsDefault(name) {
				c.Refuse("Invalid query parameter: %q - %s are a Consul Enterprise feature", t.param, t.plural)
			}
			if c.Err != nil {
				return nil, c.Err
			}
		}
		return e(c)
	}
}

// inDatacenter refuses requests for another datacenter than the own one.
func inDatacenter(e endpoint) endpoint {
	return func(c call) (any, error) {
		dc := c.Text("dc")
		if c.Err == nil {
			c.Err = c.checkDatacenter(dc)
		}
		if c.Err != nil {
			return nil, c.Err
		}
		return e(c)
	}
}

// datacenter is the own one's name in Consul's API, where there must be one.
func (h *Handler) datacenter() string {
	if h.config.Datacenter == "" {
		return "dc1"
	}
	return h.config.Datacenter
}

// admitConsul checks what must hold for every request whose path is taken as it came.
func (h *Handler) admitConsul(r *http.Request) error {
	if len(r.RequestURI) > maxConsulURI {
		return web.ErrURITooLong
	}
	if r.ProtoMajor > 1 && r.TLS == nil {
		return errPlainHTTP2
	}
	if !utf8.ValidString(r.URL.Path) || strings.IndexFunc(r.URL.Path, unicode.IsControl) >= 0 {
		return web.BadRequest("the path must be UTF-8 without control characters")
	}
	return web.CheckQuery(r.URL.RawQuery, web.MaxParams)
}

// unroutedConsul answers requests that no route takes.
func (h *Handler) unroutedConsul(w http.ResponseWriter, r *http.Request) {
	form := web.FormOfPath(r.URL.Path)
	methods := allowed(h.consul, r, []string{http.MethodGet, http.MethodPut, http.MethodDelete})
	switch {
	case len(methods) == 0:
		h.Fail(w, form, &web.Refusal{Status: http.StatusNotFound, Text: "this is no path of the part of Consul's API that is served here"})
	case r.Method == http.MethodOptions:
		w.Header().Set("Allow", allowHeader(methods))
	default:
		h.Fail(w, form, &web.Refusal{Status: http.StatusMethodNotAllowed, Text: "method " + r.Method + " not allowed", Allow: allowHeader(methods)})
	}
}

func allowHeader(methods []string) string {
	return strings.Join(append([]string{http.MethodOptions}, methods...), ",")
}
