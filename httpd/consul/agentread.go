package consul

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// agentSelf is GET /v1/agent/self. It needs no other node: clients poll it before there is a leader.
func (c call) agentSelf() (any, error) {
	home, stored := c.home(c.Epoch()), (*catalog.Node)(nil)
	if a := c.agent(); !a.isLogical() {
		stored = a.asNode()
		if v := web.StaleView(c.Service); v != nil {
			if n, known := v.Node(a.node); known {
				stored = n
			}
		}
	}
	ctx, cancel := context.WithCancel(c.R.Context())
	cancel() // this node's own knowledge is enough
	leader, _ := c.config.Coordination.RaftAddresses()
	agent := home.node(stored)
	return self{
		Config: selfConfig{
			Datacenter: home.Datacenter, PrimaryDatacenter: home.Datacenter, NodeName: agent.Node, NodeID: agent.ID, Server: true, Version: APIVersion,
		},
		Member: c.ownMember(ctx, home),
		Stats: map[string]map[string]string{
			"build":    {"version": APIVersion},
			"consul":   {"server": "true", "known_datacenters": "1", "leader_addr": leader},
			"rollcall": {"version": home.Version},
		},
		Meta: agent.Meta,
	}, nil
}

// ownMember returns this server as a member.
func (e *endpoints) ownMember(ctx context.Context, home place) member {
	for _, n := range e.Cluster.Status(ctx).Nodes {
		if n.ID == e.Name {
			host, port := splitAddress(n.Cluster)
			return home.member(n.ID, host, port, true)
		}
	}
	return home.member(e.Name, home.Address, home.Port, true)
}

// agentVersion is GET /v1/agent/version.
func (c call) agentVersion() (any, error) {
	return buildInfo{HumanVersion: APIVersion, Rollcall: c.Version}, nil
}

// agentMembers is GET /v1/agent/members: the servers of the cluster. With wan, which asks for those of all
// datacenters, it returns the same ones with their longer names.
func (c call) agentMembers() (any, error) {
	home := c.home(c.Epoch())
	wan := c.Text("wan") != ""
	filter := filterOf[member](c)
	if c.Err != nil {
		return nil, c.Err
	}
	members := []member{}
	for _, n := range c.Cluster.Status(c.R.Context()).Nodes {
		host, port := splitAddress(n.Cluster)
		members = append(members, home.member(n.ID, host, port, n.Answers()))
	}
	if len(members) == 0 {
		members = append(members, c.ownMember(c.R.Context(), home))
	}
	if wan {
		for i := range members {
			members[i].Name += "." + home.Datacenter
		}
	}
	members = filter.of(members)
	return members, c.Err
}

// agentServices is GET /v1/agent/services: the agent's services by id. Of instances with the same id, which only
// clients of Eureka can register, and only on the logical node, it shows the first.
func (c call) agentServices() (any, error) {
	filter := filterOf[nodeService](c) // it may name the same fields of an AgentService, which sometimes has no proxy
	cat := c.agentCatalog()
	if c.Err != nil {
		return nil, c.Err
	}
	services, taken := map[string]agentService{}, map[string]bool{}
	for _, s := range cat.all(cat.self.node, false) {
		if on := s.onNode(); !taken[s.ID] && filter.wants(&on) {
			services[s.ID] = cat.home.agentService(s)
		}
		taken[s.ID] = true
	}
	return services, c.Err
}

// Indexes for a client that waits for a change of content.
const (
	sameContent  = 1
	otherContent = 2
)

// agentService is GET /v1/agent/service/{id}. With the hash of the content it waits for a change.
func (c call) agentService() (any, error) {
	id, known := c.Rest(), c.Text("hash")
	q := c.consulQuery()
	q.After = 0
	if known != "" {
		q.After = sameContent
	}
	node := registry.Topic{Kind: registry.NodeTopic, Name: c.agent().node}
	return c.readConsul(q, false, c.catalogSource(node, func(v *registry.View) web.Found {
		cat := c.shownCatalog(v, nil)
		l, _ := cat.ServiceOn(cat.self.node, id)
		if l == nil || l.Quarantine != nil {
			return web.Found{Index: otherContent, Document: func() (any, error) {
				return nil, &web.Refusal{Status: http.StatusNotFound, Text: "unknown service ID: " + id}
			}}
		}
		s := cat.home.agentService(cat.service(l))
		text, _ := json.Marshal(s) // cannot fail: texts, numbers and JSON always encode
		sum := sha256.Sum256(text)
		s.ContentHash = fmt.Sprintf("%x", sum[:8])
		f := web.Found{Index: otherContent, Document: func() (any, error) {
			c.W.Header().Set("X-Consul-ContentHash", s.ContentHash)
			return s, nil
		}}
		if s.ContentHash == known {
			f.Index = sameContent
		}
		return f
	}))
}

// agentChecks is GET /v1/agent/checks: the agent's checks by id, without the one that every agent has.
func (c call) agentChecks() (any, error) {
	filter := filterOf[listedCheck](c)
	cat := c.agentCatalog()
	if c.Err != nil {
		return nil, c.Err
	}
	checks := map[string]listedCheck{}
	for _, check := range cat.checksOn(cat.self.node) {
		if _, taken := checks[check.CheckID]; !taken && check.CheckID != catalog.SerfHealth {
			checks[check.CheckID] = check.withoutIndexes()
		}
	}
	filter.ofMap(checks)
	return checks, c.Err
}

// agentHealthByID is GET /v1/agent/health/service/id/{id}.
func (c call) agentHealthByID() (any, error) {
	id := c.Rest()
	if id == "" {
		return nil, web.BadRequest("Missing serviceID")
	}
	cat := c.catalog()
	if c.Err != nil {
		return nil, c.Err
	}
	l, _ := cat.ServiceOn(cat.self.node, id)
	if l == nil || l.Quarantine != nil {
		none := agentHealth{AggregatedStatus: StatusWord(catalog.Critical)}
		return c.respondHealth(http.StatusNotFound, "ServiceId "+id+" not found", none)
	}
	health := cat.health(cat.service(l))
	return c.respondHealth(healthCode(health.AggregatedStatus), health.AggregatedStatus, health)
}

// agentHealthByName is GET /v1/agent/health/service/name/{name}: the worst state among a name's services on the
// agent's node.
func (c call) agentHealthByName() (any, error) {
	name := c.Rest()
	if name == "" {
		return nil, web.BadRequest("Missing service Name")
	}
	cat := c.catalog()
	if c.Err != nil {
		return nil, c.Err
	}
	worst, all := StatusWord(catalog.Passing), []agentHealth{}
	for _, s := range cat.services(name) {
		if s.Node != cat.self.node || s.ID == cat.home.itself().ID {
			continue
		}
		health := cat.health(s)
		if all = append(all, health); rank(health.AggregatedStatus) > rank(worst) {
			worst = health.AggregatedStatus
		}
	}
	if len(all) == 0 {
		return c.respondHealth(http.StatusNotFound, "ServiceName "+name+" Not Found", all)
	}
	return c.respondHealth(healthCode(worst), worst, all)
}

// health returns a service of the agent with its checks and those registered on its node.
func (c *shownCatalog) health(s listedService) agentHealth {
	node, _ := c.Node(c.self.node)
	checks := append(c.seen(nodeChecks(false, node), ""), s.Checks...)
	checks = slices.DeleteFunc(checks, func(c listedCheck) bool { return c.CheckID == catalog.SerfHealth })
	for i := range checks {
		checks[i] = checks[i].withoutIndexes()
	}
	shown := c.home.agentService(s)
	return agentHealth{AggregatedStatus: aggregate(checks), Service: &shown, Checks: checks}
}

// respondHealth sends a reason with a document, or alone where plain text is asked for.
func (c call) respondHealth(status int, reason string, value any) (any, error) {
	format := c.Text("format")
	if c.Err != nil {
		return nil, c.Err
	}
	c.W.Header().Set("X-Consul-Reason", reason)
	if format == "text" || format == "" && strings.HasPrefix(c.R.Header.Get("Accept"), "text/plain") {
		web.Respond(c.W, c.R, status, "text/plain", []byte(reason))
		return web.Sent, nil
	}
	c.Status = status
	return value, nil
}

// healthCode returns the status of a response about health, for load balancers that look at nothing else.
func healthCode(aggregate string) int {
	switch aggregate {
	case StatusWord(catalog.Passing):
		return http.StatusOK
	case StatusWord(catalog.Warning):
		return http.StatusTooManyRequests
	}
	return http.StatusServiceUnavailable
}

// statusLeader is GET status/leader: the leader's node-to-node address, or "". Programs poll it while they start, and
// for their own health, without their token: Consul requires none.
func (c call) statusLeader() (any, error) {
	leader, _ := c.config.Coordination.RaftAddresses()
	return leader, nil
}

// statusPeers is GET status/peers: the voters' node-to-node addresses.
func (c call) statusPeers() (any, error) {
	_, all := c.config.Coordination.RaftAddresses()
	return append([]string{}, all...), nil // an empty list, not null
}
