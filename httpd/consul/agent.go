package consul

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/order"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// Ids of services and checks belong to an agent (docs/adr/0024). In Consul an agent is a process beside the programs
// of a host; here every server answers for every agent, and an agent is only a name: its node's.

// Agents decides whose agent takes a call that names no agent.
type Agents string

// The settings of consul.agents.
const (
	// AgentsBySource, the default, gives each source address of calls an agent.
	AgentsBySource Agents = "source"
	// OneAgent is the logical node's, for all calls.
	OneAgent Agents = "one"
)

// agent is the agent that a call is for.
type agent struct {
	node    string // the registry's name of it
	address string // of its host, as far as the call shows it
	named   bool   // by the call: all its services are on one host
}

// agentPath precedes the paths of calls that name their agent: clients have it from their server's address,
// http://host:8761/agent/web-7.
const agentPath = "/agent/"

// namedAgent is the context key for the agent that a call names.
type namedAgent struct{}

// CutAgent removes the agent at the front of a request's path, and puts it into the request's context. Error: the path
// begins like one that names an agent, but names none.
func CutAgent(r *http.Request) (*http.Request, error) {
	rest, ok := strings.CutPrefix(r.URL.EscapedPath(), agentPath)
	if !ok {
		return r, nil
	}
	segment, path, ok := strings.Cut(rest, "/")
	name, err := url.PathUnescape(segment)
	if err != nil {
		return nil, web.BadRequest("the path is not correctly escaped")
	}
	if err := checkAgent(name); err != nil {
		return nil, err
	}
	if !ok || !strings.HasPrefix(path, "v1/") {
		return nil, &web.Refusal{Status: http.StatusNotFound, Text: fmt.Sprintf(
			"an agent's name is one segment of the path, and a path of Consul's API follows it: %s%s/v1/...", agentPath, segment)}
	}
	cut := r.WithContext(context.WithValue(r.Context(), namedAgent{}, name))
	u := *r.URL
	cut.URL = &u
	u.RawPath = "/" + path
	u.Path, _ = url.PathUnescape(u.RawPath) // cannot fail: it was escaped
	return cut, nil
}

// checkAgent refuses text that cannot be the name of an agent.
func checkAgent(name string) error {
	why := ""
	switch {
	case name == "":
		why = "give one"
	case name == "." || name == "..":
		why = "it would mean a folder"
	case len(name) > order.MaxName:
		why = fmt.Sprintf("it must be at most %d bytes long", order.MaxName)
	case strings.Contains(name, "/"):
		why = "it must not have a slash"
	case !order.PlainText(name):
		why = "it must be UTF-8 without control characters"
	default:
		return nil
	}
	return malformed("Invalid agent name %q in the path: %s", name, why)
}

// agent returns the agent that the call is for.
func (c call) agent() agent {
	source := c.source()
	name, named := c.R.Context().Value(namedAgent{}).(string)
	switch {
	case !named && c.config.Agents == OneAgent:
		name = NodeName
	case !named:
		name = source
	}
	a := agent{node: nodeOf(name), address: source}
	if v := web.StaleView(c.Service); v != nil {
		a.node, _ = v.SpelledNode(a.node)
	}
	a.named = named && !a.isLogical()
	if a.isLogical() {
		a.address = c.addressOf("")
	}
	return a
}

// address returns the address that the call comes from, even a loopback one.
func (c call) address() string {
	host, _ := splitAddress(c.R.RemoteAddr)
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().WithZone("").String()
	}
	return host
}

// source returns the address of the host that the call comes from. A program on this server's host may ask this server
// on loopback and the next one on the network: on loopback it counts as coming from this server's host, as other hosts
// name it.
func (c call) source() string {
	ip, err := netip.ParseAddr(c.address())
	if err != nil {
		return c.address()
	}
	switch {
	case ip.IsLoopback() && c.config.Host != "":
		return c.config.Host
	case ip == netip.IPv6Loopback():
		return "127.0.0.1" // the same host
	}
	return ip.String()
}

func (a agent) isLogical() bool { return a.node == "" }

// registering turns op into an operation of the agent.
func (a agent) registering(op registry.RegisterCatalog) registry.RegisterCatalog {
	op.Agent, op.Readdress = true, a.named
	if !a.isLogical() {
		op.Node = &catalog.Node{Name: a.node, Address: a.address}
	}
	return op
}

// asNode returns the agent's node when nothing is registered on it: whoever asks an agent finds it in the catalog.
func (a agent) asNode() *catalog.Node {
	alive := catalog.AgentAlive
	alive.Node, alive.CreateIndex, alive.ModifyIndex = a.node, 1, 1
	return &catalog.Node{Name: a.node, Address: a.address, Checks: []*catalog.Check{&alive}, CreateIndex: 1, ModifyIndex: 1}
}

// otherNodes yields the registry's names of all nodes except that of the call's agent, the logical one first.
func (c call) otherNodes(v *registry.View) iter.Seq[string] {
	own := c.agent().node
	return func(yield func(string) bool) {
		if own != "" && !yield("") {
			return
		}
		for n := range v.Nodes() { // includes the logical one only if something of it is stored
			if n.Name != "" && n.Name != own && !yield(n.Name) {
				return
			}
		}
	}
}

// elsewhere returns the lease of a service with an id that the call's agent lacks: operators remove and maintain
// services from wherever they are. It returns nil if no other agent has one, or if the agent itself had it and lost
// it, so that a program that leaves late does not hit its namesake on another host. Errors: several agents have one.
func (c call) elsewhere(v *registry.View, id string) (found *registry.Lease, err error) {
	if _, ambiguous := v.ServiceOn("", id); ambiguous {
		return nil, ambiguousService(v, id)
	}
	var all []*registry.Lease
	for node := range c.otherNodes(v) {
		if l, _ := v.ServiceOn(node, id); l != nil {
			all = append(all, l)
		}
	}
	switch {
	case len(all) == 0:
		return nil, nil
	case len(all) > 1:
		return nil, severalAgents(fmt.Sprintf("Service ID %q", id), nodeOfLease(all[0]), nodeOfLease(all[1]), len(all))
	}
	if c.had(v, id) {
		return nil, nil
	}
	return all[0], nil
}

// had reports whether the call's agent had a service with an id and lost it, if the removal's record is still kept.
func (c call) had(v *registry.View, id string) bool {
	instance := instanceID(c.agent().node, id)
	for rec := range v.Removals() {
		if rec.Lease.Instance.ID() == instance {
			return true
		}
	}
	return false
}

// isNamesake reports whether a check on another node belongs to a service whose id the call's agent has or had, or to
// the node itself: then the call comes from a program that leaves late, and means a check that is gone.
func (c call) isNamesake(v *registry.View, node, id string) bool {
	check, ok := v.CheckOn(node, id)
	if !ok || check.Service == "" {
		return ok
	}
	own, _ := v.ServiceOn(c.agent().node, check.Service)
	return own != nil || c.had(v, check.Service)
}

// nodeOfLease returns the node of a service, by the registry's name.
func nodeOfLease(l *registry.Lease) string {
	if l.Service == nil {
		return ""
	}
	return l.Service.Node
}

// nodeOfCheck returns the only other agent that has a check with an id, if there is one. Errors: several have it.
func (c call) nodeOfCheck(v *registry.View, id string) (node string, known bool, err error) {
	var all []string
	for other := range c.otherNodes(v) {
		if _, ok := v.CheckOn(other, id); ok {
			all = append(all, other)
		}
	}
	switch len(all) {
	case 0:
		return "", false, nil
	case 1:
		return all[0], true, nil
	}
	return "", false, severalAgents(fmt.Sprintf("Check ID %q", id), all[0], all[1], len(all))
}

// severalAgents names two of the agents that have an id.
func severalAgents(what, one, other string, all int) error {
	more := ""
	if all > 2 {
		more = fmt.Sprintf(", and %d more", all-2)
	}
	return conflict("%s exists at agent %q and at agent %q%s; put the one that is meant in front of the path: %s/v1/...",
		what, ShownNode(one), ShownNode(other), more, pathOf(one))
}
