package consul

import (
	"cmp"
	"fmt"
	"iter"
	"net"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// home returns what responses say about the logical node. Its address is the first voter's node-to-node address
// without the port: every server knows it, and it does not change with the leader.
func (e *endpoints) home(epoch string) place {
	_, all := e.config.Coordination.RaftAddresses()
	home := place{Datacenter: e.datacenter(), Version: e.Version, Epoch: epoch, Address: "127.0.0.1"}
	if len(all) > 0 {
		home.Address, home.Port = splitAddress(all[0])
	}
	return home
}

// splitAddress splits host:port; an address without a port is a host.
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
	*nodeForms
	self  agent           // of the call
	metas []registry.Pair // metadata that a node must have to be shown
	// answers reports whether the caller may see what services of an application, or nodes if app is empty, answered
	// to HTTP checks.
	answers func(app string) bool
}

// seen returns checks of a service, or of a node (app ""), as the caller may see them: aliases may follow checks of
// any application.
func (c *shownCatalog) seen(checks []listedCheck, app string) []listedCheck {
	whole, all := c.answers(app), c.answers(web.Everything)
	if whole && all {
		return checks
	}
	checks = slices.Clone(checks)
	for i, check := range checks {
		if !whole || check.follows && !all {
			checks[i] = check.public()
		}
	}
	return checks
}

// serviceOf returns a lease as a service of a name, with its checks as the caller may see them.
func (c *shownCatalog) serviceOf(l *registry.Lease, name string) listedService {
	s := serviceOf(l, name)
	s.Checks = c.seen(s.Checks, l.Key().App)
	return s
}

// checksOfNode returns a node's own checks as the caller may see them.
func (c *shownCatalog) checksOfNode(name string) []listedCheck { return c.seen(c.on(name).checks, "") }

// nodeForms caches nodes as responses show them. A list of services repeats the node of each, and nodes change seldom:
// so a form is made once for all reads, until a node or a check of one changes.
type nodeForms struct {
	home  place
	index registry.Index // of the last such change
	mu    sync.RWMutex
	forms map[string]*nodeForm // by the registry's name
}

// nodeForm is a node with its own checks. Immutable.
type nodeForm struct {
	node   listedNode
	checks []listedCheck
}

func (c call) shownCatalog(v *registry.View, metas []registry.Pair) *shownCatalog {
	home, index := c.home(v.Epoch()), v.CatalogIndex()
	f := c.nodeForms.Load()
	if f == nil || f.index != index || f.home != home {
		f = &nodeForms{home: home, index: index, forms: map[string]*nodeForm{}}
		c.nodeForms.Store(f)
	}
	answers := func(app string) bool { return c.ShowsAnswers(v, app) }
	return &shownCatalog{View: v, nodeForms: f, self: c.agent(), metas: metas, answers: answers}
}

// on returns a node by the registry's name.
func (c *shownCatalog) on(name string) *nodeForm {
	c.mu.RLock()
	n := c.forms[name]
	c.mu.RUnlock()
	if n != nil {
		return n
	}
	stored, known := c.Node(name)
	if !known && name != "" {
		return c.form(name, c.self.asNode()) // it exists for this call only
	}
	n = c.form(name, stored)
	c.mu.Lock()
	c.forms[name] = n
	c.mu.Unlock()
	return n
}

func (c *shownCatalog) form(name string, stored *catalog.Node) *nodeForm {
	return &nodeForm{c.home.node(stored), nodeChecks(name == "", stored)}
}

// shows reports whether a node has the requested metadata.
func (c *shownCatalog) shows(name string) bool {
	return !slices.ContainsFunc(c.metas, func(want registry.Pair) bool {
		value, has := c.on(name).node.Meta[want.Key]
		return !has || value != want.Value
	})
}

// names returns the registry's names of the nodes that are shown, sorted by the names that clients know.
func (c *shownCatalog) names() []string {
	all := []string{""}
	for n := range c.Nodes() {
		if n.Name != "" {
			all = append(all, n.Name)
		}
	}
	all = slices.DeleteFunc(all, func(name string) bool { return !c.shows(name) })
	slices.SortFunc(all, func(a, b string) int { return strings.Compare(ShownNode(a), ShownNode(b)) })
	return all
}

// services returns the services with a name, on nodes that are shown, by node and id.
func (c *shownCatalog) services(name string) []listedService {
	found := []listedService{}
	if itself := c.home.itself(); strings.EqualFold(name, itself.Name) && c.shows("") {
		found = append(found, itself)
	}
	app, ok := c.App(strings.ToUpper(name))
	if !ok {
		return found
	}
	known := app.ServiceName()
	for l := range app.Leases() {
		if s := c.serviceOf(l, known); c.shows(s.Node) {
			found = append(found, s)
		}
	}
	return sortedServices(found)
}

// sortedServices sorts services by node and id.
func sortedServices(services []listedService) []listedService {
	sort.Slice(services, func(i, j int) bool {
		a, b := &services[i], &services[j]
		return cmp.Or(strings.Compare(ShownNode(a.Node), ShownNode(b.Node)), strings.Compare(a.ID, b.ID)) < 0
	})
	return services
}

// all returns the services of a node, by name and id, with the service "consul" if itself is set.
func (c *shownCatalog) all(node string, itself bool) []listedService {
	found := []listedService{}
	if itself && node == "" {
		found = append(found, c.home.itself())
	}
	for l := range c.ServicesOn(node) {
		if l.Quarantine == nil {
			found = append(found, c.service(l))
		}
	}
	return found
}

// service returns a lease as a service.
func (c *shownCatalog) service(l *registry.Lease) listedService {
	name := strings.ToLower(l.Instance.App)
	if app, ok := c.App(l.Instance.App); ok {
		name = app.ServiceName()
	}
	return c.serviceOf(l, name)
}

// byNode returns the topic of a read that selects nodes: it includes everything that nodes can be selected by.
func byNode(t registry.Topic) registry.Topic {
	switch t.Kind {
	case registry.ServicesTopic:
		return registry.Topic{Kind: registry.ServicesByNodeTopic}
	case registry.InstancesTopic:
		return registry.Topic{Kind: registry.HealthTopic, Name: t.Name}
	case registry.ChecksTopic, registry.NodeChecksTopic:
		return registry.Topic{Kind: registry.AllTopic}
	}
	return t
}

// listing is a document made from the catalog.
type listing struct {
	weight func(*shownCatalog) int // returns the size of its content
	value  func(*shownCatalog) any
	// version distinguishes the states of the document; if nil, the registry's index does.
	version func(*shownCatalog) catalogVersion
	app     string // in capitals: the only one whose services it lists; empty if it lists those of all
	// topic returns what it depends on, where that differs by view; if nil, it is the topic that is waited for.
	topic func(*shownCatalog) registry.Topic
}

// catalogVersion is a version of a document.
type catalogVersion struct {
	home  place
	index registry.Index
	app   *registry.App // nil means all
	self  agent         // the zero value if it is the same for all agents
}

// readCatalog responds with a listing, at once or when a topic changes.
func (c call) readCatalog(t registry.Topic, list listing) (any, error) {
	var metas []registry.Pair
	for _, text := range c.All("node-meta") {
		key, value, _ := strings.Cut(text, ":")
		metas = append(metas, registry.Pair{Key: key, Value: value})
	}
	if metas != nil {
		t = byNode(t)
	}
	return c.consulRead(c.catalogSource(t, func(v *registry.View) web.Found {
		cat, about := c.shownCatalog(v, metas), t
		if list.topic != nil {
			about = list.topic(cat)
		}
		if metas != nil {
			about = byNode(about)
		}
		index, absent := v.LastChange(about)
		return web.Found{Index: uint64(index), Absent: absent, Document: func() (any, error) { return c.respondCatalog(cat, list) }}
	}))
}

// respondCatalog sends a listing, which is built once for all calls that ask for the same.
func (c call) respondCatalog(cat *shownCatalog, list listing) (any, error) {
	version := catalogVersion{index: cat.Index()}
	if list.version != nil {
		version = list.version(cat)
	}
	version.home = cat.home
	build := func() ([]byte, error) {
		document := list.value(cat)
		if c.Err != nil {
			return nil, c.Err // a filter failed
		}
		return c.EncodeConsul(document)
	}
	// All callers who may see the same answers share one document. In a list of all applications these are every
	// answer or none.
	of := func(app string) bool { return c.ShowsAnswers(cat.View, app) }
	all, app, node := of(web.Everything), of(cmp.Or(list.app, web.Everything)), of("")
	cat.answers = func(name string) bool { return all && name != "" || app && name == list.app || node && name == "" }
	what := fmt.Sprintf("%s?%s %t %t %t", c.R.URL.Path, shownBy(c.R.URL.RawQuery), all, app, node)
	return c.RespondShared(what, version, "application/json", func() int { return list.weight(cat) }, build)
}

// shownBy returns a query without the parameters that do not affect what a list shows, only when and by whom
// it is read.
func shownBy(query string) string {
	var kept strings.Builder
	for part := range strings.SplitSeq(query, "&") {
		switch name, _, _ := strings.Cut(part, "="); name {
		case "", "index", "wait", "stale", "consistent", "cached", "max_stale", "token":
		default:
			kept.WriteString("&" + part)
		}
	}
	return kept.String()
}

// readService responds with value applied to the services with the name in the path, for a kind of topic.
func (c call) readService(kind registry.TopicKind, value func(*shownCatalog, []listedService) any) (any, error) {
	name := c.Rest()
	if name == "" {
		c.Refuse("Missing service name")
	}
	tags := c.All("tag")
	app := strings.ToUpper(name)
	weight := func(cat *shownCatalog) int { return web.WeightOf(web.LeasesOf(cat.View, app)) }
	t := registry.Topic{Kind: kind, Name: app}
	version := func(cat *shownCatalog) catalogVersion { // its instances, and their nodes
		instances, _ := cat.App(app)
		at, _ := cat.LastChange(registry.Topic{Kind: registry.HealthTopic, Name: app})
		return catalogVersion{app: instances, index: at}
	}
	if strings.EqualFold(name, itselfID) {
		// The service "consul" is not an application, and is shown with the logical node.
		t, version = registry.Topic{Kind: registry.ServicesByNodeTopic}, nil
		if kind == registry.HealthTopic {
			t.Kind = registry.AllTopic
		}
	}
	shows := func(cat *shownCatalog) any {
		tagged := slices.DeleteFunc(cat.services(name), func(s listedService) bool { return !s.hasTags(tags) })
		return value(cat, tagged)
	}
	return c.readCatalog(t, listing{weight: weight, value: shows, version: version, app: app})
}

// readConnect responds with value applied to the services through which a mesh connects to the name in the path.
func (c call) readConnect(value func(*shownCatalog, []listedService) any) (any, error) {
	name := c.Rest()
	if name == "" {
		c.Refuse("Missing service name")
	}
	tags := c.All("tag")
	weight := func(cat *shownCatalog) int { return web.WeightOf(cat.connectedTo(name)) }
	return c.readCatalog(registry.Topic{Kind: registry.AllTopic}, listing{weight: weight, value: func(cat *shownCatalog) any {
		found := []listedService{}
		for l := range cat.connectedTo(name) {
			if s := cat.service(l); s.hasTags(tags) && cat.shows(s.Node) {
				found = append(found, s)
			}
		}
		return value(cat, sortedServices(found))
	}})
}

// connectedTo yields the services through which a mesh connects to a name: its proxies, and services of that
// name that need none.
func (c *shownCatalog) connectedTo(name string) iter.Seq[*registry.Lease] {
	return func(yield func(*registry.Lease) bool) {
		for l := range c.Leases() {
			if l.Service != nil && strings.EqualFold(meshName(l.Service), name) && !yield(l) {
				return
			}
		}
	}
}

// readNode responds with value applied to the node in the path, by the registry's name, for a kind of topic, or with
// none if no such node is shown.
func (c call) readNode(kind registry.TopicKind, none any, value func(cat *shownCatalog, node string) any) (any, error) {
	name := c.Rest()
	if name == "" {
		return nil, web.BadRequest("Missing node name")
	}
	// A node that does not exist yet may appear under another spelling, so wait for any change.
	t := registry.Topic{Kind: registry.AllTopic}
	if v := web.StaleView(c.Service); v != nil {
		if spelled, known := v.SpelledNode(nodeOf(name)); known {
			t = registry.Topic{Kind: kind, Name: spelled}
		}
	}
	return c.readCatalog(t, listing{
		weight: func(cat *shownCatalog) int { return cat.weightOn(cat.spelled(name)) },
		value: func(cat *shownCatalog) any {
			node := cat.spelled(name)
			// The logical node always exists, and an agent's does for its own callers.
			if _, known := cat.Node(node); !known && node != "" && node != cat.self.node || !cat.shows(node) {
				return none
			}
			return value(cat, node)
		},
		// An agent always finds its own node.
		version: func(cat *shownCatalog) catalogVersion { return catalogVersion{index: cat.Index(), self: cat.self} },
		topic:   func(cat *shownCatalog) registry.Topic { return registry.Topic{Kind: kind, Name: cat.spelled(name)} },
	})
}

// weightOn returns the size of a node and its services in a response.
func (c *shownCatalog) weightOn(node string) int {
	bytes := web.WeightOf(c.ServicesOn(node))
	if n, ok := c.Node(node); ok {
		bytes += n.Weight()
	}
	return bytes
}

// weight returns the size of all nodes and services in a response.
func (c *shownCatalog) weight() int { return c.CatalogBytes() + web.WeightOf(c.Leases()) }

// catalog returns the registry for responses of the agent, which never wait for a change.
func (c call) catalog() (cat *shownCatalog) {
	q := c.consulQuery()
	if c.Err != nil {
		return nil
	}
	var f web.Found
	f, c.Err = web.ReadOnce(c.R.Context(), q, c.catalogSource(registry.Topic{Kind: registry.AllTopic}, func(v *registry.View) web.Found {
		cat = c.shownCatalog(v, nil)
		return web.Found{}
	}))
	if c.Err == nil {
		c.labelConsul(q.Read, f.Age)
	}
	return cat
}

// agentCatalog is catalog for a response that shows everything on the agent's node.
func (c call) agentCatalog() *shownCatalog {
	cat := c.catalog()
	if c.Err == nil {
		c.Err = c.Reserve(cat.weightOn(cat.self.node))
	}
	return cat
}

// spelled returns the registry's name for a node in the view. An agent that is not registered finds itself.
func (c *shownCatalog) spelled(shown string) string {
	name, known := c.SpelledNode(nodeOf(shown))
	if !known && strings.EqualFold(name, c.self.node) {
		return c.self.node
	}
	return name
}
