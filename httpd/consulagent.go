package httpd

import (
	"context"
	"net/http"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/consul"
)

// agentRoutes adds the endpoints of the agent. All servers are one: an instance may be registered with
// one, send its heartbeats to another and be deregistered by a third.
func (h *Handler) agentRoutes() {
	// Old Java clients send GET for these (Ecwid/consul-api, AgentConsulClient).
	both := []string{http.MethodPut, http.MethodGet}
	h.consulRoute("/v1/agent/check/pass/{id}", h.beatCheck(passes), both...)
	h.consulRoute("/v1/agent/check/warn/{id}", h.beatCheck(warns), both...)
	h.consulRoute("/v1/agent/check/fail/{id}", h.beatCheck(fails), both...)
	h.consulRoute("/v1/agent/check/update/{id}", h.updateCheck, http.MethodPut)
	h.consulRoute("/v1/agent/check/register", h.registerCheck, http.MethodPut)
	h.consulRoute("/v1/agent/check/deregister/{id}", h.deregisterCheck, both...)
	h.consulRoute("/v1/agent/service/register", h.registerService, http.MethodPut)
	h.consulRoute("/v1/agent/service/deregister/{id}", h.deregisterByAgent, http.MethodPut)
	h.consulRoute("/v1/agent/service/maintenance/{id}", h.serviceMaintenance, http.MethodPut)
	h.consulRoute("/v1/agent/maintenance", h.nodeMaintenance, http.MethodPut)
	h.consulRoute("/v1/agent/self", h.agentSelf, http.MethodGet)
	h.consulRoute("/v1/agent/members", h.agentMembers, http.MethodGet)
	h.consulRoute("/v1/agent/services", unfiltered(h.agentServices), http.MethodGet)
	h.consulRoute("/v1/agent/service/{id}", h.agentService, http.MethodGet)
	h.consulRoute("/v1/agent/checks", unfiltered(h.agentChecks), http.MethodGet)
	h.consulRoute("/v1/agent/health/service/id/{id}", h.agentHealthByID, http.MethodGet)
	h.consulRoute("/v1/agent/health/service/name/{name}", h.agentHealthByName, http.MethodGet)
}

// agentSelf is GET /v1/agent/self. Nobody is asked for it: clients poll it before there is a leader.
func (h *Handler) agentSelf(w http.ResponseWriter, r *http.Request) error {
	home := h.home(h.epoch())
	ctx, cancel := context.WithCancel(r.Context())
	cancel() // what this node knows of itself is enough
	leader, _ := h.config.Coordination.RaftAddresses()
	return respondConsul(w, r, home.Self(h.ownMember(ctx, home), leader))
}

// ownMember is this server as a member.
func (h *Handler) ownMember(ctx context.Context, home consul.Home) consul.Member {
	for _, n := range h.config.Cluster.Status(ctx).Nodes {
		if n.ID == h.config.Node {
			host, port := splitAddress(n.Cluster)
			return home.Member(n.ID, host, port, true)
		}
	}
	return home.Member(h.config.Node, home.Address, home.Port, true)
}

// agentMembers is GET /v1/agent/members: the servers of the cluster.
func (h *Handler) agentMembers(w http.ResponseWriter, r *http.Request) error {
	home := h.home(h.epoch())
	members := []consul.Member{}
	for _, n := range h.config.Cluster.Status(r.Context()).Nodes {
		host, port := splitAddress(n.Cluster)
		members = append(members, home.Member(n.ID, host, port, n.Role != "unreachable" && n.Role != "stopped"))
	}
	if len(members) == 0 {
		members = append(members, h.ownMember(r.Context(), home))
	}
	return respondConsul(w, r, members)
}

// agentServices is GET /v1/agent/services: the services of the logical node by id. Of instances of the
// same id, which only clients of Eureka can register, it shows the first.
func (h *Handler) agentServices(w http.ResponseWriter, r *http.Request) error {
	c, err := h.consulView(w, r)
	if err != nil {
		return err
	}
	if err := h.reserve(w, r, c.weightOn("")); err != nil {
		return err
	}
	services := map[string]consul.AgentService{}
	for _, s := range c.all("", false) {
		if _, taken := services[s.ID]; !taken {
			services[s.ID] = c.home.Agent(s)
		}
	}
	return respondConsul(w, r, services)
}

// What stands for an index where a client waits for other content.
const (
	sameContent  = 1
	otherContent = 2
)

// agentService is GET /v1/agent/service/{id}. Who gives the hash of the content waits for another one.
func (h *Handler) agentService(w http.ResponseWriter, r *http.Request) error {
	id := restOfPath(r)
	hash, _, err := param(r.URL.RawQuery, "hash")
	if err != nil {
		return err
	}
	q, err := h.readConsulQuery(r)
	if err != nil {
		return err
	}
	q.after = 0
	if hash != "" {
		q.after = sameContent
	}
	f, err := h.findOrWait(w, r, q, h.catalogSource("", func(v *registry.View) found {
		return h.shownCatalog(v, nil).withHash(id, hash)
	}))
	if err != nil {
		return err
	}
	h.labelConsul(w.Header(), q.stale, f.age)
	return f.answer(w, r)
}

// withHash is a service of the logical node with the hash of its content; known is the one that the
// client has.
func (c *shownCatalog) withHash(id, known string) found {
	l, _ := c.ServiceOn("", id)
	if l == nil || l.Quarantine != nil {
		return found{index: otherContent, answer: func(http.ResponseWriter, *http.Request) error {
			return &refusal{status: http.StatusNotFound, text: "unknown service ID: " + id}
		}}
	}
	s := c.home.Agent(c.service(l)).WithHash()
	f := found{index: otherContent, answer: func(w http.ResponseWriter, r *http.Request) error {
		w.Header().Set("X-Consul-ContentHash", s.ContentHash)
		return respondConsul(w, r, s)
	}}
	if s.ContentHash == known {
		f.index = sameContent
	}
	return f
}

// agentChecks is GET /v1/agent/checks: those of the logical node by id, without the one that it always
// has.
func (h *Handler) agentChecks(w http.ResponseWriter, r *http.Request) error {
	c, err := h.consulView(w, r)
	if err != nil {
		return err
	}
	if err := h.reserve(w, r, c.weightOn("")); err != nil {
		return err
	}
	checks := map[string]consul.Check{}
	for _, check := range c.checksOn("") {
		if _, taken := checks[check.CheckID]; !taken && check.CheckID != registry.SerfHealth {
			checks[check.CheckID] = check.Agent()
		}
	}
	return respondConsul(w, r, checks)
}

// agentHealthByID is GET /v1/agent/health/service/id/{id}.
func (h *Handler) agentHealthByID(w http.ResponseWriter, r *http.Request) error {
	id := restOfPath(r)
	if id == "" {
		return badRequest("Missing serviceID")
	}
	c, err := h.consulView(w, r)
	if err != nil {
		return err
	}
	l, _ := c.ServiceOn("", id)
	if l == nil || l.Quarantine != nil {
		none := consul.AgentHealth{AggregatedStatus: consul.StatusWord(registry.Critical)}
		return respondHealth(w, r, http.StatusNotFound, "ServiceId "+id+" not found", none)
	}
	health := c.health(c.service(l))
	return respondHealth(w, r, healthCode(health.AggregatedStatus), health.AggregatedStatus, health)
}

// agentHealthByName is GET /v1/agent/health/service/name/{name}: the worst of a name's services on the
// logical node.
func (h *Handler) agentHealthByName(w http.ResponseWriter, r *http.Request) error {
	name := restOfPath(r)
	if name == "" {
		return badRequest("Missing service Name")
	}
	c, err := h.consulView(w, r)
	if err != nil {
		return err
	}
	worst, all := consul.StatusWord(registry.Passing), []consul.AgentHealth{}
	for _, s := range c.services(name) {
		if s.Node != "" || c.isItself(s) {
			continue
		}
		health := c.health(s)
		if all = append(all, health); consul.Worse(health.AggregatedStatus, worst) {
			worst = health.AggregatedStatus
		}
	}
	if len(all) == 0 {
		return respondHealth(w, r, http.StatusNotFound, "ServiceName "+name+" not found", all)
	}
	return respondHealth(w, r, healthCode(worst), worst, all)
}

// isItself says whether a service is the one that stands for the cluster.
func (c *shownCatalog) isItself(s consul.Service) bool { return s.ID == c.home.Itself().ID }

// health is a service of the logical node with its checks and those that were registered on the node.
func (c *shownCatalog) health(s consul.Service) consul.AgentHealth {
	node, _ := c.Node("")
	checks := append(consul.NodeChecks(false, node), s.Checks...)
	for i := range checks {
		checks[i] = checks[i].Agent()
	}
	shown := c.home.Agent(s)
	return consul.AgentHealth{AggregatedStatus: consul.Aggregate(checks), Service: &shown, Checks: checks}
}

// healthCode is the status of an answer about health, for load balancers that look at nothing else.
func healthCode(aggregate string) int {
	switch aggregate {
	case consul.StatusWord(registry.Passing):
		return http.StatusOK
	case consul.StatusWord(registry.Warning):
		return http.StatusTooManyRequests
	}
	return http.StatusServiceUnavailable
}

// respondHealth answers with a reason, which is all of the answer where plain text is asked for.
func respondHealth(w http.ResponseWriter, r *http.Request, status int, reason string, value any) error {
	format, _, err := param(r.URL.RawQuery, "format")
	if err != nil {
		return err
	}
	w.Header().Set("X-Consul-Reason", reason)
	if format == "text" || format == "" && strings.HasPrefix(r.Header.Get("Accept"), "text/plain") {
		respond(w, r, status, "text/plain", []byte(reason))
		return nil
	}
	return respondConsulStatus(w, r, status, value)
}
