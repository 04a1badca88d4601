package consul

import (
	"cmp"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// catalogDatacenters is GET /v1/catalog/datacenters: only this one. Others, which this one replicates to, have their
// own catalogs.
func (c call) catalogDatacenters() (any, error) {
	return []string{c.datacenter()}, nil
}

// catalogNodes is GET /v1/catalog/nodes.
func (c call) catalogNodes() (any, error) {
	filter := filterOf[listedNode](c)
	weight := func(cat *shownCatalog) int { return cat.CatalogBytes() }
	return c.readCatalog(registry.Topic{Kind: registry.NodesTopic}, listing{weight: weight, value: func(cat *shownCatalog) any {
		nodes := []listedNode{}
		for _, name := range cat.names() {
			nodes = append(nodes, cat.on(name).node)
		}
		return filter.of(nodes)
	}})
}

// catalogServices is GET /v1/catalog/services: the names, each with the tags of the instances that a filter selects.
func (c call) catalogServices() (any, error) {
	filter := filterOf[catalogService](c)
	topic := registry.Topic{Kind: registry.ServicesTopic}
	if filter.is != nil {
		topic = byNode(topic) // it may select by what nodes hold
	}
	return c.readCatalog(topic, listing{weight: (*shownCatalog).namesWeight, value: func(cat *shownCatalog) any {
		wanted := func(s listedService) bool {
			shown := s.with(cat.on(s.Node).node)
			return filter.wants(&shown)
		}
		tags := map[string][]string{}
		if itself := cat.home.itself(); cat.shows("") && wanted(itself) {
			tags[itself.Name] = itself.Tags
		}
		for app := range cat.Apps() {
			selected := func(l *registry.Lease) bool {
				return filter.is == nil || wanted(serviceOf(l, app.ServiceName()))
			}
			if found, some := cat.tagsOf(app, selected); some {
				tags[app.ServiceName()] = found
			}
		}
		return tags
	}})
}

// namesWeight returns the size of names and tags in a response.
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

// tagsOf returns the sorted tags of the wanted instances of an application; some reports whether any of them is on a
// node that is shown.
func (c *shownCatalog) tagsOf(app *registry.App, wanted func(*registry.Lease) bool) (tags []string, some bool) {
	tags = []string{}
	for l := range app.Leases() {
		node := ""
		if l.Service != nil {
			node = l.Service.Node
		}
		if !c.shows(node) || !wanted(l) {
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
func (c call) catalogService() (any, error) {
	return c.readService(registry.ServiceTopic, c.listServices())
}

// catalogConnect is GET /v1/catalog/connect/{name}.
func (c call) catalogConnect() (any, error) { return c.readConnect(c.listServices()) }

func (c call) listServices() func(*shownCatalog, []listedService) any {
	filter := filterOf[catalogService](c)
	return func(cat *shownCatalog, services []listedService) any {
		shown := make([]catalogService, len(services))
		for i, s := range services {
			shown[i] = s.with(cat.on(s.Node).node)
		}
		return filter.of(shown)
	}
}

// nodeWithServices is a node with its services by id, or in a list.
type nodeWithServices[S any] struct {
	Node     *listedNode
	Services S
}

// catalogNode is GET /v1/catalog/node/{node}. If several instances share an id, which only clients of Eureka can
// cause, it shows the first.
func (c call) catalogNode() (any, error) {
	filter := filterOf[nodeService](c)
	return c.readNode(registry.NodeTopic, nil, func(cat *shownCatalog, node string) any {
		services := map[string]nodeService{}
		for _, s := range cat.all(node, true) {
			if _, taken := services[s.ID]; !taken {
				services[s.ID] = s.onNode()
			}
		}
		filter.ofMap(services)
		return nodeWithServices[map[string]nodeService]{&cat.on(node).node, services}
	})
}

// catalogNodeServices is GET /v1/catalog/node-services/{node}.
func (c call) catalogNodeServices() (any, error) {
	filter := filterOf[nodeService](c)
	return c.readNode(registry.NodeTopic, nodeWithServices[[]nodeService]{}, func(cat *shownCatalog, node string) any {
		services := []nodeService{}
		for _, s := range cat.all(node, true) {
			services = append(services, s.onNode())
		}
		return nodeWithServices[[]nodeService]{&cat.on(node).node, filter.of(services)}
	})
}

// healthService is GET /v1/health/service/{name}.
func (c call) healthService() (any, error) {
	return c.readService(registry.HealthTopic, c.listHealth())
}

// healthConnect is GET /v1/health/connect/{name}.
func (c call) healthConnect() (any, error) { return c.readConnect(c.listHealth()) }

// listHealth lists services with their checks.
func (c call) listHealth() func(*shownCatalog, []listedService) any {
	text, passing := c.Lookup("passing") // selects only services whose checks are all passing
	if text != "" {
		passing = c.ParseBool(text, "Invalid value for ?passing")
	}
	filter := filterOf[listedHealth](c)
	peer := c.Text("peer")
	return func(cat *shownCatalog, services []listedService) any {
		if peer != "" {
			services = nil // nothing is imported from other clusters
		}
		shown := make([]listedHealth, 0, len(services))
		for _, s := range services {
			node := cat.on(s.Node)
			if one := healthOf(node.node, cat.checksOfNode(s.Node), s); !passing || one.passing() {
				shown = append(shown, one)
			}
		}
		return filter.of(shown)
	}
}

// healthChecks is GET /v1/health/checks/{name}.
func (c call) healthChecks() (any, error) {
	filter := filterOf[listedCheck](c)
	return c.readService(registry.InstancesTopic, func(_ *shownCatalog, services []listedService) any {
		checks := []listedCheck{}
		for _, s := range services {
			checks = append(checks, s.Checks...)
		}
		return sortedChecks(filter.of(checks))
	})
}

// healthNode is GET /v1/health/node/{node}.
func (c call) healthNode() (any, error) {
	filter := filterOf[listedCheck](c)
	return c.readNode(registry.NodeChecksTopic, []listedCheck{}, func(cat *shownCatalog, node string) any {
		return sortedChecks(filter.of(cat.checksOn(node)))
	})
}

// checksOn returns all checks of a node: its own and those of its services.
func (c *shownCatalog) checksOn(node string) []listedCheck {
	checks := slices.Clone(c.checksOfNode(node))
	for _, s := range c.all(node, false) {
		checks = append(checks, s.Checks...)
	}
	return checks
}

// anyState is the word for all states.
const anyState = "any"

// healthState is GET /v1/health/state/{state}; an unknown state has no checks.
func (c call) healthState() (any, error) {
	state := c.Rest()
	if state == "" {
		return nil, web.BadRequest("Missing check state")
	}
	filter := filterOf[listedCheck](c)
	return c.readCatalog(registry.Topic{Kind: registry.ChecksTopic}, listing{weight: (*shownCatalog).weight, value: func(cat *shownCatalog) any {
		checks := []listedCheck{}
		for _, node := range cat.names() {
			checks = append(checks, cat.checksOn(node)...)
		}
		checks = slices.DeleteFunc(checks, func(check listedCheck) bool { return state != anyState && check.Status != state })
		return sortedChecks(filter.of(checks))
	}})
}

// sortedChecks sorts checks by node and id.
func sortedChecks(checks []listedCheck) []listedCheck {
	slices.SortStableFunc(checks, func(a, b listedCheck) int {
		return cmp.Or(strings.Compare(a.Node, b.Node), strings.Compare(a.CheckID, b.CheckID))
	})
	return checks
}
