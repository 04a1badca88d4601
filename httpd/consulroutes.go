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
	{get, "/v1/kv/{key}", consulForm, (*call).getKey},
	{put, "/v1/kv/{key}", consulForm, (*call).putKey},
	{del, "/v1/kv/{key}", consulForm, (*call).deleteKey},
	{put, "/v1/session/renew/{id}", consulForm, bodiless((*call).renewSession)},
	{put, "/v1/session/create", consulForm, (*call).createSession},
	{put, "/v1/session/destroy/{id}", consulForm, bodiless((*call).destroySession)},
	{get, "/v1/session/info/{id}", consulForm, (*call).sessionInfo},
	{get, "/v1/session/node/{node}", consulForm, (*call).sessionsOfNode},
	{get, "/v1/session/list", consulForm, (*call).sessionList},
	{put, "/v1/txn", consulForm, (*call).txn},
	{get, "/v1/status/leader", consulForm, (*call).statusLeader},
	{get, "/v1/status/peers", consulForm, (*call).statusPeers},

	// All servers are one agent: an instance may be registered with one, send its heartbeats to another and be
	// deregistered by a third. Old Java clients send GET for heartbeats (Ecwid/consul-api, AgentConsulClient).
	{putOrGet, "/v1/agent/check/pass/{id}", consulForm, beatCheck(registry.Passing)},
	{putOrGet, "/v1/agent/check/warn/{id}", consulForm, beatCheck(registry.Warning)},
	{putOrGet, "/v1/agent/check/fail/{id}", consulForm, beatCheck(registry.Critical)},
	{put, "/v1/agent/check/update/{id}", consulForm, (*call).updateCheck},
	{put, "/v1/agent/check/register", consulForm, (*call).registerCheck},
	{putOrGet, "/v1/agent/check/deregister/{id}", consulForm, bodiless((*call).deregisterCheck)},
	{put, "/v1/agent/service/register", consulForm, (*call).registerService},
	{put, "/v1/agent/service/deregister/{id}", consulForm, bodiless((*call).deregisterByAgent)},
	{put, "/v1/agent/service/maintenance/{id}", consulForm, (*call).serviceMaintenance},
	{put, "/v1/agent/maintenance", consulForm, (*call).nodeMaintenance},
	{get, "/v1/agent/self", consulForm, (*call).agentSelf},
	{get, "/v1/agent/members", consulForm, (*call).agentMembers},
	{get, "/v1/agent/services", consulForm, unfiltered((*call).agentServices)},
	{get, "/v1/agent/service/{id}", consulForm, (*call).agentService},
	{get, "/v1/agent/checks", consulForm, unfiltered((*call).agentChecks)},
	{get, "/v1/agent/health/service/id/{id}", consulForm, (*call).agentHealthByID},
	{get, "/v1/agent/health/service/name/{name}", consulForm, (*call).agentHealthByName},

	// The catalog's nodes are the logical one, on which everything is that an agent or a client of Eureka
	// registered, and those that registrars named.
	{put, "/v1/catalog/register", consulForm, (*call).catalogRegister},
	{put, "/v1/catalog/deregister", consulForm, (*call).catalogDeregister},
	{get, "/v1/catalog/datacenters", consulForm, (*call).catalogDatacenters},
	{get, "/v1/catalog/nodes", consulForm, unfiltered((*call).catalogNodes)},
	{get, "/v1/catalog/services", consulForm, unfiltered((*call).catalogServices)},
	{get, "/v1/catalog/service/{name}", consulForm, unfiltered((*call).catalogService)},
	{get, "/v1/catalog/node/{node}", consulForm, unfiltered((*call).catalogNode)},
	{get, "/v1/catalog/node-services/{node}", consulForm, unfiltered((*call).catalogNodeServices)},
	{get, "/v1/health/service/{name}", consulForm, unfiltered((*call).healthService)},
	{get, "/v1/health/checks/{name}", consulForm, unfiltered((*call).healthChecks)},
	{get, "/v1/health/node/{node}", consulForm, unfiltered((*call).healthNode)},
	{get, "/v1/health/state/{state}", consulForm, unfiltered((*call).healthState)},
}

// fenceRoute is our own route of which a variable takes all that is left of the path.
var fenceRoute = ownRoute{route{get, "/v1/rollcall/fence/{key}", jsonForm, (*call).fence}, api.FenceState{}}

// routeAsIs builds the router of the paths that are taken as they came: Consul's API and the fences.
func (h *Handler) routeAsIs() {
	h.consul.NotFoundHandler = http.HandlerFunc(h.unroutedConsul)
	h.consul.MethodNotAllowedHandler = http.HandlerFunc(h.unroutedConsul)
	for _, rt := range consulRoutes {
		rt.do = inOneNamespace(inDatacenter(rt.do))
		h.verbatim(rt)
	}
	h.verbatim(fenceRoute.route)
}

func (h *Handler) verbatim(rt route) {
	rt.do = withCoordination(rt.do)
	h.consul.Handle(strings.Replace(rt.path, "}", ":.*}", 1), h.handle(rt.path, rt, false)).Methods(rt.methods...)
}

// withCoordination refuses what only a node with consensus can do.
func withCoordination(e endpoint) endpoint {
	return func(c *call) (any, error) {
		if c.config.Coordination == nil {
			return nil, errNoCoordination
		}
		return e(c)
	}
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
	return func(c *call) (any, error) {
		for _, t := range tenancies {
			if name := c.r.Header.Get(t.header); !consul.IsDefault(name) {
				return nil, badRequest(fmt.Sprintf("Invalid header: %q - %s are a Consul Enterprise feature", t.header, t.plural))
			}
			if name := c.text(t.param); !consul.IsDefault(name) {
				c.refuse("Invalid query parameter: %q - %s are a Consul Enterprise feature", t.param, t.plural)
			}
			if c.err != nil {
				return nil, c.err
			}
		}
		return e(c)
	}
}

// inDatacenter refuses requests for another datacenter than the own one.
func inDatacenter(e endpoint) endpoint {
	return func(c *call) (any, error) {
		dc := c.text("dc")
		if c.err == nil {
			c.err = c.checkDatacenter(dc)
		}
		if c.err != nil {
			return nil, c.err
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
		return errURITooLong
	}
	if r.ProtoMajor > 1 && r.TLS == nil {
		return errPlainHTTP2
	}
	if !utf8.ValidString(r.URL.Path) || strings.IndexFunc(r.URL.Path, unicode.IsControl) >= 0 {
		return badRequest("the path must be UTF-8 without control characters")
	}
	return checkQuery(r.URL.RawQuery, maxParams)
}

// unroutedConsul answers requests that no route takes.
func (h *Handler) unroutedConsul(w http.ResponseWriter, r *http.Request) {
	form := formOfPath(r.URL.Path)
	methods := allowed(h.consul, r, []string{http.MethodGet, http.MethodPut, http.MethodDelete})
	switch {
	case len(methods) == 0:
		h.fail(w, form, &refusal{status: http.StatusNotFound, text: "this is no path of the part of Consul's API that is served here"})
	case r.Method == http.MethodOptions:
		w.Header().Set("Allow", allowHeader(methods))
	default:
		h.fail(w, form, &refusal{status: http.StatusMethodNotAllowed, text: "method " + r.Method + " not allowed", allow: allowHeader(methods)})
	}
}

func allowHeader(methods []string) string {
	return strings.Join(append([]string{http.MethodOptions}, methods...), ",")
}
