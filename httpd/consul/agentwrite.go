package consul

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// registerCheck is PUT /v1/agent/check/register.
func (c call) registerCheck() (any, error) {
	op := web.Decode(c.Call, c.Limits().RegisterBytes, decodeCheck)
	if c.Err != nil {
		return nil, c.Err
	}
	c.reapByDefault(op.Checks)
	op, err := c.onSpelledNode(c.agent().registering(op))
	if err != nil {
		return nil, err
	}
	return web.Sent, c.registerCatalog(op, func(v *registry.View) error {
		id := op.Checks[0].Service
		if l, _ := v.ServiceOn(op.On(), id); l != nil && l.Service == nil {
			return web.BadRequest(eurekasOwn(id))
		}
		return &web.Refusal{Status: http.StatusNotFound, Text: fmt.Sprintf("ServiceID %q does not exist", id)}
	})
}

// reapByDefault gives the operator's time limit to checks of services that do not say how long they may be critical.
// By default nothing limits it, and the services stay, as in Consul.
func (e *endpoints) reapByDefault(checks []*catalog.Check) {
	for _, c := range checks {
		if c.Service != "" && c.ReapAfter == 0 {
			c.ReapAfter = e.config.ReapCritical.Milliseconds()
		}
	}
}

// beatCheck is PUT /v1/agent/check/pass|warn|fail/{id}.
func beatCheck(status catalog.CheckStatus) endpoint {
	return func(c call) (any, error) {
		note := c.Text("note")
		c.IgnoreBody()
		return c.setCheck(status, note)
	}
}

// updateCheck is PUT /v1/agent/check/update/{id}.
func (c call) updateCheck() (any, error) {
	var output string
	status := web.Decode(c.Call, c.Limits().RegisterBytes, func(body []byte) (status catalog.CheckStatus, err error) {
		status, output, err = decodeStatus(body)
		return status, err
	})
	return c.setCheck(status, output)
}

// maxOutput is how much of a check's output is kept, in bytes (hashicorp/consul,
// agent/checks/check.go, DefaultBufSize).
const maxOutput = 4 << 10

// setCheck sets the state of the TTL check in the path: the agent's own, so that it does not keep a namesake on
// another host alive. Checks of the logical node belong to all hosts.
func (c call) setCheck(status catalog.CheckStatus, output string) (any, error) {
	if c.Err != nil {
		return nil, c.Err
	}
	id := c.Rest()
	if len(output) > maxOutput {
		output = strings.ToValidUTF8(output[:maxOutput], "") + fmt.Sprintf(" ... (captured %d of %d bytes)", maxOutput, len(output))
	}
	own, err := c.ownNode()
	if err != nil {
		return nil, err
	}
	op := registry.SetCheck{Node: own, Check: id, Status: status, Output: output, TTL: true}
	result, err := c.applyCatalog(op)
	if err == nil && result.Outcome == registry.NotFound && own != "" {
		op.Node = ""
		result, err = c.applyCatalog(op)
	}
	if err != nil {
		return nil, err
	}
	switch result.Outcome {
	case registry.NotFound:
		return nil, c.noCheck(id)
	case registry.NoTTL:
		return nil, noTTL(id)
	}
	return web.Sent, nil
}

// noCheck returns the error for a check that was not registered, although it may be shown.
func (c call) noCheck(id string) error {
	v, err := c.newest()
	if err != nil {
		return err
	}
	cat, shown := c.shownCatalog(v, nil), id == catalog.SerfHealth
	if l, _ := cat.ServiceOn(cat.self.node, strings.TrimPrefix(id, "service:")); l != nil {
		shown = shown || slices.ContainsFunc(cat.service(l).Checks, func(check listedCheck) bool { return check.CheckID == id })
	}
	if shown {
		return noTTL(id)
	}
	return c.unknownCheck(v, id)
}

// unknownCheck says that the call's agent lacks a check with an id, and which agent has one.
func (c call) unknownCheck(v *registry.View, id string) error {
	unknown := unknownCheckID(id)
	if node, known, _ := c.nodeOfCheck(v, id); known {
		unknown.Text += fmt.Sprintf(" Agent %q has a check of that ID, and this call is for agent %q: name the agent in front of the path, %s/v1/...",
			ShownNode(node), ShownNode(c.agent().node), pathOf(node))
	}
	return unknown
}

func noTTL(id string) error {
	return rejected("CheckID %q does not have associated TTL", id)
}

func unknownCheckID(id string) *web.Refusal {
	text := fmt.Sprintf("Unknown check ID %q. Ensure that the check ID is passed, not the check name.", id)
	return &web.Refusal{Status: http.StatusNotFound, Text: text}
}

// deregisterCheck is PUT /v1/agent/check/deregister/{id}.
func (c call) deregisterCheck() (any, error) {
	id := c.Rest()
	// without a check the operation would mean the node, and an agent is alive
	if id == "" || id == catalog.SerfHealth {
		return nil, unknownCheckID(id)
	}
	own, err := c.ownNode()
	if err != nil {
		return nil, err
	}
	found, err := c.removed(registry.DeregisterCatalog{Node: own, Check: id})
	if err != nil || found {
		return web.Sent, err
	}
	v, err := c.newest()
	if err != nil {
		return nil, err
	}
	node, known, err := c.nodeOfCheck(v, id)
	if err != nil {
		return nil, err
	}
	if !known || c.isNamesake(v, node, id) {
		return nil, c.unknownCheck(v, id)
	}
	if found, err = c.removed(registry.DeregisterCatalog{Node: node, Check: id}); err == nil && !found {
		err = unknownCheckID(id)
	}
	return web.Sent, err
}

// removed reports whether there was something to remove.
func (c call) removed(op registry.DeregisterCatalog) (found bool, err error) {
	result, err := c.applyCatalog(op)
	return result.Outcome != registry.NotFound, err
}

// registerService is PUT /v1/agent/service/register.
func (c call) registerService() (any, error) {
	replace, a := c.Present("replace-existing-checks"), c.agent()
	op := web.Decode(c.Call, c.Limits().RegisterBytes, func(body []byte) (registry.RegisterCatalog, error) {
		return decodeService(body, a.node, a.address)
	})
	if c.Err != nil {
		return nil, c.Err
	}
	op.ReplaceChecks = replace
	c.reapByDefault(op.Checks)
	op, err := c.onSpelledNode(a.registering(op))
	if err != nil {
		return nil, err
	}
	return web.Sent, c.registerCatalog(op, func(v *registry.View) error { return unknownOfCheck(v, op) })
}

// deregisterByAgent is PUT /v1/agent/service/deregister/{id}: it removes the agent's own service or, if it lacks
// that id, the only one that another agent has.
func (c call) deregisterByAgent() (any, error) {
	id := c.Rest()
	if id == "" { // means nothing, never everything: clean-up loops pass the service id of node checks
		return nil, unknownServiceID(id)
	}
	own, err := c.ownNode()
	if err != nil {
		return nil, err
	}
	found, err := c.removed(registry.DeregisterCatalog{Node: own, Service: id})
	if err != nil || found {
		return web.Sent, err
	}
	v, err := c.newest()
	if err != nil {
		return nil, err
	}
	l, err := c.elsewhere(v, id)
	if err != nil {
		return nil, err
	}
	if l != nil {
		found, err = c.removed(registry.DeregisterCatalog{Node: nodeOfLease(l), Service: id})
	}
	if err == nil && !found {
		err = unknownServiceID(id)
	}
	return web.Sent, err
}

func unknownServiceID(id string) error {
	text := fmt.Sprintf("Unknown service ID %q. Ensure that the service ID is passed, not the service name.", id)
	return &web.Refusal{Status: http.StatusNotFound, Text: text}
}

// serviceMaintenance is PUT /v1/agent/service/maintenance/{id}. An instance that a client of Eureka
// registered is kept out of use by an override.
func (c call) serviceMaintenance() (any, error) {
	id := c.Rest()
	if id == "" {
		return nil, web.BadRequest("Missing service ID")
	}
	enable, by := c.enable(), c.By()
	if c.Err != nil {
		return nil, c.Err
	}
	v, err := c.newest()
	if err != nil {
		return nil, err
	}
	a := c.agent()
	l, _ := v.ServiceOn(a.node, id)
	if l == nil {
		if l, err = c.elsewhere(v, id); err != nil {
			return nil, err
		}
	}
	switch {
	case l == nil:
		return nil, unknownServiceID(id)
	case l.Service == nil:
		return web.Sent, c.overrideByAgent(v, l, enable, by)
	case l.Service.Node != a.node:
		a = agent{node: l.Service.Node}
	}
	return web.Sent, c.maintain(v, a, maintenance(id, by.Reason), enable, unknownServiceID(id))
}

// nodeMaintenance is PUT /v1/agent/maintenance. On the logical node it can only end maintenance: operators begin it to
// take one host out, and that node has the services of all hosts.
func (c call) nodeMaintenance() (any, error) {
	enable, by, a := c.enable(), c.By(), c.agent()
	switch {
	case c.Err != nil:
		return nil, c.Err
	case enable && a.isLogical():
		return nil, errNodeMaintenance
	}
	v, err := c.newest()
	if err != nil {
		return nil, err
	}
	return web.Sent, c.maintain(v, c.agent(), maintenance("", by.Reason), enable, nil)
}

var errNodeMaintenance = malformed("node %q has the services of all hosts, and its maintenance would take every one of them out of use; "+
	"name a host's agent in front of the path, %sNAME/v1/agent/maintenance?enable=true, or use the maintenance of single services: "+
	"PUT /v1/agent/service/maintenance/{id}?enable=true", NodeName, agentPath)

// maintain registers a maintenance check on an agent unless it exists, or removes it. unknown is the error if its
// service is gone.
func (c call) maintain(v *registry.View, a agent, check *catalog.Check, enable bool, unknown error) error {
	_, on := v.CheckOn(a.node, check.ID)
	op := a.registering(registry.RegisterCatalog{Checks: []*catalog.Check{check}})
	// it stays as it is: the source of the call says nothing about the node's host
	if _, known := v.Node(a.node); known {
		op.Agent, op.KeepNode = false, true
	}
	if on == enable {
		return c.Allow(registry.Needs(op, v)...) // as if it had to be done
	}
	if !enable {
		_, err := c.removed(registry.DeregisterCatalog{Node: a.node, Check: check.ID})
		return err
	}
	return c.registerCatalog(op, func(*registry.View) error { return unknown })
}

// overrideByAgent puts an instance that a client of Eureka registered into maintenance. At its end the instance gets
// the status that the client reported last; if that is unknown, the client is made to report it.
func (c call) overrideByAgent(v *registry.View, l *registry.Lease, enable bool, by registry.Act) error {
	on := l.Instance.Overridden == registry.OutOfService
	op := registry.Op(registry.SetOverride{Key: l.Key(), Status: registry.OutOfService, By: by})
	if on == enable {
		return c.Allow(registry.Needs(op, v)...) // as if it had to be done
	}
	if !enable {
		end := registry.DeleteOverride{Key: l.Key(), By: by}
		if l.Override != nil {
			end.Fallback = l.Override.Reported
		}
		op = end
	}
	result, err := c.applyCatalog(op)
	if err == nil && result.Outcome == registry.NotFound {
		return unknownServiceID(l.Instance.ID())
	}
	return err
}

// enable reads whether maintenance begins or ends.
func (c call) enable() bool {
	text, given := c.Lookup("enable")
	if !given {
		c.Refuse("Missing value for enable")
	}
	return c.ParseBool(text, "Invalid value for enable: %q", text)
}
