package httpd

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

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

// home is what answers say of the logical node. Its address is that of the first voter's node-to-node
// listener without the port: every server knows the same one, and it does not change with the leader.
func (h *Handler) home(epoch string) consul.Home {
	_, all := h.config.Coordination.RaftAddresses()
	home := consul.Home{Datacenter: h.datacenter(), Version: h.config.Version, Epoch: epoch, Address: "127.0.0.1"}
	if len(all) > 0 {
		home.Address, home.Port = splitAddress(all[0])
	}
	return home
}

// splitAddress takes host:port apart; what has no port is a host.
func splitAddress(address string) (host string, port int) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return address, 0
	}
	port, _ = strconv.Atoi(text)
	return host, port
}

// shownCatalog is a view of the registry as Consul's API shows it.
type shownCatalog struct {
	*registry.View
	home  consul.Home
	metas []registry.Pair        // what a node's metadata must have to be shown
	nodes map[string]*placedNode // those looked at so far, by the registry's name
}

// placedNode is a node with its own checks.
type placedNode struct {
	consul.Node
	checks []consul.Check
	shown  bool
}

func (h *Handler) shownCatalog(v *registry.View, metas []registry.Pair) *shownCatalog {
	return &shownCatalog{View: v, home: h.home(v.Epoch()), metas: metas, nodes: map[string]*placedNode{}}
}

// on is a node by the registry's name.
func (c *shownCatalog) on(name string) *placedNode {
	n, seen := c.nodes[name]
	if seen {
		return n
	}
	stored, _ := c.Node(name)
	n = &placedNode{Node: c.home.Node(stored), checks: consul.NodeChecks(name == "", stored)}
	n.shown = !slices.ContainsFunc(c.metas, func(want registry.Pair) bool {
		value, has := n.Meta[want.Key]
		return !has || value != want.Value
	})
	c.nodes[name] = n
	return n
}

// knows says whether a node is registered; the logical one always is.
func (c *shownCatalog) knows(name string) bool {
	_, known := c.Node(name)
	return known || name == ""
}

// names are the registry's names of the nodes that are shown, in the order of those that clients know.
func (c *shownCatalog) names() []string {
	all := []string{""}
	for n := range c.Nodes() {
		if n.Name != "" {
			all = append(all, n.Name)
		}
	}
	all = slices.DeleteFunc(all, func(name string) bool { return !c.on(name).shown })
	slices.SortFunc(all, func(a, b string) int { return strings.Compare(consul.ShownNode(a), consul.ShownNode(b)) })
	return all
}

// services are the services of a name, on nodes that are shown, by node and id.
func (c *shownCatalog) services(name string) []consul.Service {
	found := []consul.Service{}
	if itself := c.home.Itself(); strings.EqualFold(name, itself.Name) && c.on("").shown {
		found = append(found, itself)
	}
	app, ok := c.App(strings.ToUpper(name))
	if !ok {
		return found
	}
	known := app.ServiceName()
	for l := range app.Leases() {
		if s := consul.ServiceOf(l, known); c.on(s.Node).shown {
			found = append(found, s)
		}
	}
	slices.SortFunc(found, func(a, b consul.Service) int {
		return cmp.Or(strings.Compare(consul.ShownNode(a.Node), consul.ShownNode(b.Node)), strings.Compare(a.ID, b.ID))
	})
	return found
}

// all are the services of a node, by name and id. The service "consul" is there where itself is set.
func (c *shownCatalog) all(node string, itself bool) []consul.Service {
	found := []consul.Service{}
	if itself && node == "" {
		found = append(found, c.home.Itself())
	}
	for l := range c.ServicesOn(node) {
		if l.Quarantine == nil {
			found = append(found, c.service(l))
		}
	}
	return found
}

// service is a lease as a service.
func (c *shownCatalog) service(l *registry.Lease) consul.Service {
	name := strings.ToLower(l.Instance.App)
	if app, ok := c.App(l.Instance.App); ok {
		name = app.ServiceName()
	}
	return consul.ServiceOf(l, name)
}

// tableIndex is that of the last change of anything in the catalog.
func (c *shownCatalog) tableIndex() uint64 { return uint64(max(c.Index(), c.CatalogIndex())) }

// serviceIndex is that of the last change of a service, of nodes or of checks; of one that is absent,
// of anything, so that it does not go back when the last instance leaves.
func (c *shownCatalog) serviceIndex(name string) (index uint64, absent bool) {
	app, ok := c.App(strings.ToUpper(name))
	if !ok {
		return c.tableIndex(), true
	}
	return uint64(max(app.Changed, c.CatalogIndex())), false
}

// readCatalog answers from the registry, at once or when an application (a service's name; "": any), a
// node or a check of one changes.
func (h *Handler) readCatalog(w http.ResponseWriter, r *http.Request, service string, read func(*shownCatalog) found) error {
	metas, err := nodeMetas(r)
	if err != nil {
		return err
	}
	return h.consulRead(w, r, h.catalogSource(strings.ToUpper(service), func(v *registry.View) found {
		return read(h.shownCatalog(v, metas))
	}))
}

// readService answers what value makes of the services of the name in the path.
func (h *Handler) readService(w http.ResponseWriter, r *http.Request, value func(*shownCatalog, []consul.Service) any) error {
	name := restOfPath(r)
	if name == "" {
		return badRequest("Missing service name")
	}
	tags, err := params(r.URL.RawQuery, "tag")
	if err != nil {
		return err
	}
	return h.readCatalog(w, r, name, func(c *shownCatalog) found {
		index, absent := c.serviceIndex(name)
		return found{index: index, absent: absent, answer: func(w http.ResponseWriter, r *http.Request) error {
			tagged := slices.DeleteFunc(c.services(name), func(s consul.Service) bool { return !s.HasTags(tags) })
			return respondConsul(w, r, value(c, tagged))
		}}
	})
}

// readTable answers what value makes of the whole catalog.
func (h *Handler) readTable(w http.ResponseWriter, r *http.Request, value func(*shownCatalog) any) error {
	return h.readCatalog(w, r, "", func(c *shownCatalog) found {
		return found{index: c.tableIndex(), answer: func(w http.ResponseWriter, r *http.Request) error {
			return respondConsul(w, r, value(c))
		}}
	})
}

// readNode answers what value makes of the node in the path, by the registry's name.
func (h *Handler) readNode(w http.ResponseWriter, r *http.Request, value func(c *shownCatalog, node string) any) error {
	name := restOfPath(r)
	if name == "" {
		return badRequest("Missing node name")
	}
	return h.readTable(w, r, func(c *shownCatalog) any { return value(c, consul.NodeOf(name)) })
}

// params returns all values of a parameter.
func params(query, name string) (values []string, err error) {
	for part := range strings.SplitSeq(query, "&") {
		value, given, err := param(part, name)
		if err != nil {
			return nil, err
		}
		if given {
			values = append(values, value)
		}
	}
	return values, nil
}

// nodeMetas reads node-meta, of which each is key:value.
func nodeMetas(r *http.Request) ([]registry.Pair, error) {
	texts, err := params(r.URL.RawQuery, "node-meta")
	if err != nil {
		return nil, err
	}
	var metas []registry.Pair
	for _, text := range texts {
		key, value, _ := strings.Cut(text, ":")
		metas = append(metas, registry.Pair{Key: key, Value: value})
	}
	return metas, nil
}

// catalogDatacenters is GET /v1/catalog/datacenters: the own one. Others are replicated to, and have
// catalogs of their own.
func (h *Handler) catalogDatacenters(w http.ResponseWriter, r *http.Request) error {
	return respondConsul(w, r, []string{h.datacenter()})
}

// catalogNodes is GET /v1/catalog/nodes.
func (h *Handler) catalogNodes(w http.ResponseWriter, r *http.Request) error {
	return h.readCatalog(w, r, "", func(c *shownCatalog) found {
		return found{index: uint64(c.CatalogIndex()), answer: func(w http.ResponseWriter, r *http.Request) error {
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
	return h.readTable(w, r, func(c *shownCatalog) any {
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

// consulView is the registry for the answers of the agent, which nobody waits for.
func (h *Handler) consulView(w http.ResponseWriter, r *http.Request) (*shownCatalog, error) {
	q, err := h.readConsulQuery(r)
	if err != nil {
		return nil, err
	}
	v, err := h.consulViewAt(r.Context(), q.stale)
	if err != nil {
		return nil, err
	}
	h.labelConsul(w.Header(), q.stale)
	return h.shownCatalog(v, nil), nil
}

// consulViewAt waits for a leader as long as Consul's clients need it.
func (h *Handler) consulViewAt(ctx context.Context, stale bool) (*registry.View, error) {
	var v *registry.View
	source := h.catalogSource("", func(read *registry.View) found {
		v = read
		return found{}
	})
	_, err := evaluate(ctx, consulQuery{stale: stale}, source)
	return v, err
}
