package httpd

import (
	"net/http"
	"slices"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/consul"
)

// catalogRoutes adds the endpoints of the catalog. Its nodes are the logical one, on which everything
// is that an agent or a client of Eureka registered, and those that registrars named.
func (h *Handler) catalogRoutes() {
	h.consulRoute("/v1/catalog/register", h.catalogRegister, http.MethodPut)
	h.consulRoute("/v1/catalog/deregister", h.catalogDeregister, http.MethodPut)
	h.consulRoute("/v1/catalog/datacenters", h.catalogDatacenters, http.MethodGet)
	h.consulRoute("/v1/catalog/nodes", unfiltered(h.catalogNodes), http.MethodGet)
	h.consulRoute("/v1/catalog/services", unfiltered(h.catalogServices), http.MethodGet)
	h.consulRoute("/v1/catalog/service/{name}", unfiltered(h.catalogService), http.MethodGet)
	h.consulRoute("/v1/catalog/node/{node}", unfiltered(h.catalogNode), http.MethodGet)
	h.consulRoute("/v1/catalog/node-services/{node}", unfiltered(h.catalogNodeServices), http.MethodGet)
}

// unfiltered refuses a filter: an answer that ignored it would be taken for what it selects.
func unfiltered(e endpoint) endpoint {
	return func(w http.ResponseWriter, r *http.Request) error {
		text, _, err := param(r.URL.RawQuery, "filter")
		if err != nil {
			return err
		}
		if text != "" {
			return badRequest("Failed to create boolean expression evaluator: filter expressions are not offered here; " +
				"ask without filter (tag, node-meta and passing are offered) and select from the answer")
		}
		return e(w, r)
	}
}

// catalogDatacenters is GET /v1/catalog/datacenters: the own one. Others are replicated to, and have
// catalogs of their own.
func (h *Handler) catalogDatacenters(w http.ResponseWriter, r *http.Request) error {
	return respondConsul(w, r, []string{h.datacenter()})
}

// catalogNodes is GET /v1/catalog/nodes.
func (h *Handler) catalogNodes(w http.ResponseWriter, r *http.Request) error {
	return h.readCatalog(w, r, "", func(c *shownCatalog) found {
		return found{index: uint64(c.CatalogIndex()), weight: c.CatalogBytes, answer: func(w http.ResponseWriter, r *http.Request) error {
			nodes := []consul.Node{}
			for _, name := range c.names() {
				nodes = append(nodes, c.on(name).Node)
			}
			return respondConsul(w, r, nodes)
		}}
	})
}

// catalogServices is GET /v1/catalog/services: the names, each with the tags of all its instances.
func (h *Handler) catalogServices(w http.ResponseWriter, r *http.Request) error {
	return h.readTable(w, r, (*shownCatalog).namesWeight, func(c *shownCatalog) any {
		tags := map[string][]string{}
		if c.on("").shown {
			tags[c.home.Itself().Name] = []string{}
		}
		for app := range c.Apps() {
			if found, some := c.tagsOf(app); some {
				tags[app.ServiceName()] = found
			}
		}
		return tags
	})
}

// namesWeight is what names and tags take in an answer.
func (c *shownCatalog) namesWeight() (bytes int) {
	for l := range c.Leases() {
		bytes += len(l.Instance.App)
		if l.Service != nil {
			for _, tag := range l.Service.Tags {
				bytes += len(tag)
			}
		}
	}
	return bytes
}

// tagsOf are the tags of an application's instances, sorted; some: one is on a node that is shown.
func (c *shownCatalog) tagsOf(app *registry.App) (tags []string, some bool) {
	tags = []string{}
	for l := range app.Leases() {
		node := ""
		if l.Service != nil {
			node = l.Service.Node
		}
		if !c.on(node).shown {
			continue
		}
		some = true
		if l.Service != nil {
			tags = append(tags, l.Service.Tags...)
		}
	}
	slices.Sort(tags)
	return slices.Compact(tags), some
}

// catalogService is GET /v1/catalog/service/{name}.
func (h *Handler) catalogService(w http.ResponseWriter, r *http.Request) error {
	return h.readService(w, r, func(c *shownCatalog, services []consul.Service) any {
		shown := make([]consul.CatalogService, len(services))
		for i, s := range services {
			shown[i] = s.With(c.on(s.Node).Node)
		}
		return shown
	})
}

// nodeWithServices is a node with its services by id, or in a list.
type nodeWithServices[S any] struct {
	Node     *consul.Node
	Services S
}

// catalogNode is GET /v1/catalog/node/{node}. Of instances of the same id, which only clients of Eureka
// can register, it shows the first.
func (h *Handler) catalogNode(w http.ResponseWriter, r *http.Request) error {
	return h.readNode(w, r, func(c *shownCatalog, node string) any {
		if !c.knows(node) || !c.on(node).shown {
			return nil
		}
		services := map[string]consul.NodeService{}
		for _, s := range c.all(node, true) {
			if _, taken := services[s.ID]; !taken {
				services[s.ID] = s.OnNode()
			}
		}
		return nodeWithServices[map[string]consul.NodeService]{&c.on(node).Node, services}
	})
}

// catalogNodeServices is GET /v1/catalog/node-services/{node}.
func (h *Handler) catalogNodeServices(w http.ResponseWriter, r *http.Request) error {
	return h.readNode(w, r, func(c *shownCatalog, node string) any {
		if !c.knows(node) || !c.on(node).shown {
			return nodeWithServices[[]consul.NodeService]{}
		}
		services := []consul.NodeService{}
		for _, s := range c.all(node, true) {
			services = append(services, s.OnNode())
		}
		return nodeWithServices[[]consul.NodeService]{&c.on(node).Node, services}
	})
}
