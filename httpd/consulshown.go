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
		return found{index: index, absent: absent, weight: func() int { return weightOf(leasesOf(c.View, strings.ToUpper(name))) }, answer: func(w http.ResponseWriter, r *http.Request) error {
			tagged := slices.DeleteFunc(c.services(name), func(s consul.Service) bool { return !s.HasTags(tags) })
			return respondConsul(w, r, value(c, tagged))
		}}
	})
}

// readTable answers what value makes of the whole catalog, of which the answer shows weight.
func (h *Handler) readTable(w http.ResponseWriter, r *http.Request, weight func(*shownCatalog) int, value func(*shownCatalog) any) error {
	return h.readCatalog(w, r, "", func(c *shownCatalog) found {
		return found{index: c.tableIndex(), weight: func() int { return weight(c) }, answer: func(w http.ResponseWriter, r *http.Request) error {
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
	name = consul.NodeOf(name)
	weight := func(c *shownCatalog) int { return c.weightOn(name) }
	return h.readTable(w, r, weight, func(c *shownCatalog) any { return value(c, name) })
}

// weightOn is what a node and its services take in an answer.
func (c *shownCatalog) weightOn(node string) int {
	bytes := weightOf(c.ServicesOn(node))
	if n, ok := c.Node(node); ok {
		bytes += n.Weight()
	}
	return bytes
}

// weight is what all nodes and services take in an answer.
func (c *shownCatalog) weight() int { return c.CatalogBytes() + weightOf(c.Leases()) }

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

// consulView is the registry for the answers of the agent, which nobody waits for.
func (h *Handler) consulView(w http.ResponseWriter, r *http.Request) (*shownCatalog, error) {
	q, err := h.readConsulQuery(r)
	if err != nil {
		return nil, err
	}
	age := h.config.Service.Health().Age
	v, err := h.consulViewAt(r.Context(), q.stale)
	if err != nil {
		return nil, err
	}
	h.labelConsul(w.Header(), q.stale, age)
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
