package consul

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// applyCatalog performs one operation on the registry, and waits for a leader as long as Consul's clients need.
func (c call) applyCatalog(op registry.Op) (registry.Result, error) {
	results, err := c.PerformAwaitingLeader(c.R.Context(), op)
	return c.CountResult(c.R.Context(), registry.FromClient, op, results, err)
}

// catalogRegister is PUT /v1/catalog/register.
func (c call) catalogRegister() (any, error) {
	op := web.Decode(c.Call, c.Limits().RegisterBytes, func(body []byte) (registry.RegisterCatalog, error) {
		op, datacenter, err := decodeRegistration(body, c.addressOf)
		return op, cmp.Or(err, c.checkDatacenter(datacenter))
	})
	if c.Err != nil {
		return nil, c.Err
	}
	op, err := c.onSpelledNode(op)
	if err != nil {
		return nil, err
	}
	old, err := c.renamed(op)
	if err != nil {
		return nil, err
	}
	if err := c.registerCatalog(op, func(v *registry.View) error { return unknownOfCheck(v, op) }); err != nil || old == "" {
		return true, err
	}
	// if it fails, the next registration does it
	return true, c.deregisterPlaced(registry.DeregisterCatalog{Node: old})
}

// addressOf returns the address of a catalog node, by the registry's name, if this node knows it.
func (e *endpoints) addressOf(node string) string {
	if node == "" {
		return e.home("").Address
	}
	v := web.StaleView(e.Service)
	if v == nil {
		return ""
	}
	spelled, _ := v.SpelledNode(node)
	if n, known := v.Node(spelled); known {
		return n.Address
	}
	return ""
}

// unknownOfCheck words the error for a registration whose check belongs to a service that is not on the node.
func unknownOfCheck(v *registry.View, op registry.RegisterCatalog) error {
	node := op.On()
	for _, check := range op.Checks {
		if check.Service == "" || op.Service != nil && op.Service.ID == check.Service {
			continue
		}
		l, _ := v.ServiceOn(node, check.Service)
		switch {
		case l == nil:
			return rejected("Unknown service ID '%s' for check ID '%s'", check.Service, check.ID)
		case l.Service == nil:
			return rejected("%s", eurekasOwn(check.Service))
		}
	}
	return rejected("Unknown service ID of a check")
}

// eurekasOwn says why a service takes no checks.
func eurekasOwn(id string) string {
	return fmt.Sprintf("service %q was registered by a client of Eureka, which reports its status itself: it takes no checks", id)
}

// registerCatalog registers the contents of a body. unknown words the error if a check names a service that does not
// exist.
func (c call) registerCatalog(op registry.RegisterCatalog, unknown func(*registry.View) error) error {
	if len(op.Checks) > catalog.MaxChecks {
		return errTooManyChecks // no need to write it to the log
	}
	if op.Instance != nil {
		if err := c.CheckQuota(c.R.Context(), op.Instance.Key()); err != nil {
			return err
		}
	}
	if err := c.checkProbes(op); err != nil {
		return err
	}
	result, err := c.applyCatalog(op)
	switch {
	case err != nil || result.Outcome == registry.Done:
		return err
	case result.Outcome == registry.TooManyChecks:
		return errTooManyChecks
	case result.Outcome == registry.TooMany && slices.ContainsFunc(op.Checks, func(c *catalog.Check) bool { return c.Alias != nil }):
		return web.BadRequest("Invalid check: " + catalog.TooManyFollowersText)
	case result.Outcome == registry.TooMany:
		return malformed("Invalid address: agent %q has more than %d services and checks, which would follow its address; register the node with its new one first (/v1/catalog/register)", op.On(), registry.MaxRemoved)
	}
	v, err := c.newest()
	if err != nil {
		return err
	}
	switch result.Outcome {
	case registry.NameTaken:
		return nameTaken(v, op.Service.Name)
	case registry.AddressTaken:
		return addressTaken(v, op)
	case registry.CheckTaken:
		return checkTaken(v, op)
	}
	return unknown(v)
}

// errTooManyChecks states the maximum number of checks.
var errTooManyChecks = malformed("Too many checks: a service may have %d, a node itself (all checks without a service) %d, and one registration %d",
	catalog.MaxServiceChecks, catalog.MaxNodeChecks, catalog.MaxChecks)

// checkProbes refuses checks that would probe what they, or the call's token, may not, and records in the others, and
// in alias checks, their owner and source address. A check of a service that this node does not know is judged by the
// node that runs the check, and so are host names.
func (c call) checkProbes(op registry.RegisterCatalog) error {
	by, v := c.Principal(), web.StaleView(c.Service)
	for _, check := range op.Checks {
		if check.Alias != nil && by != nil && by.Accessor != "" && v != nil {
			check.Alias.By, check.Alias.Reads = by.Accessor, v.Followed(op.On(), check.Alias)
		}
		if check.Probe == nil {
			continue
		}
		if by != nil && by.Accessor != "" {
			check.Probe.By, check.Probe.From = by.Accessor, c.address()
		}
		if c.config.JudgeProbe == nil { // the node that runs the check judges it, by its owner
			continue
		}
		service, instance := op.Service, op.Instance
		switch {
		case check.Service == "":
			service, instance = nil, nil
		case service == nil || service.ID != check.Service:
			if service, instance = c.serviceOf(op.On(), check.Service); service == nil {
				continue
			}
		}
		why, needs := c.config.JudgeProbe(check.Probe, service, instance)
		if why != "" {
			return malformed("Invalid check %q: %s", check.ID, why)
		}
		for _, n := range needs {
			n.Counted = n.Counted && (v == nil || v.CountsNewRights())
			if err := access.Allow(c.R.Context(), n); err != nil {
				return web.Because(err, fmt.Sprintf(": check %q comes from %s, and looks at no other address, and at none of a node's machine, without such a rule (check-target ADDRESS:PORT probe); "+
					"HTTP checks send the headers that checks.headers names", check.ID, c.address()))
			}
		}
	}
	return nil
}

// serviceOf returns a service of a node, by the registry's name, if this node knows it.
func (e *endpoints) serviceOf(name, id string) (*catalog.Service, *registry.Instance) {
	v := web.StaleView(e.Service)
	if v == nil {
		return nil, nil
	}
	if l, _ := v.ServiceOn(name, id); l != nil && l.Service != nil {
		return l.Service, l.Instance
	}
	return nil, nil
}

// addressTaken names the addresses of two services of an agent that share an id.
func addressTaken(v *registry.View, op registry.RegisterCatalog) error {
	s, has := op.Service, "another one"
	if l, ok := v.Find(op.Instance.Key()); ok && l.Service != nil && l.Service.Node != op.On() {
		return conflict("Service ID %q of agent %q is refused: clients of Eureka would know it as instance %q of application %q, which is service ID %q of agent %q; give it an ID of its own",
			s.ID, ShownNode(op.On()), l.Instance.ID(), l.Instance.App, l.Service.ID, ShownNode(l.Service.Node))
	}
	if l, _ := v.ServiceOn(op.On(), s.ID); l != nil && l.Service != nil {
		has = shownAddress(l.Service.Address)
	}
	return conflict("Service ID %q of agent %q is registered with the address %s and is not replaced by one with the address %s: %s, or with an ID of its own; "+
		"or, if the service has moved, deregister the old one first: PUT %s/v1/agent/service/deregister/%s",
		s.ID, ShownNode(op.On()), has, shownAddress(s.Address), sharedAgent, pathOf(op.On()), url.PathEscape(s.ID))
}

// sharedAgent says why ids clash here that would not clash in Consul.
const sharedAgent = "both may be of different hosts behind one address. Register through an agent for each host (" + agentPath + "NAME in front of the path)"

// pathOf returns the prefix of a path that names an agent.
func pathOf(node string) string { return agentPath + url.PathEscape(ShownNode(node)) }

func shownAddress(address string) string {
	if address == "" {
		return "of the node (none was given)"
	}
	return strconv.Quote(address)
}

// checkTaken names the first check that is another's, and its owner.
func checkTaken(v *registry.View, op registry.RegisterCatalog) error {
	for _, given := range op.Checks {
		old, ok := v.CheckOn(op.On(), given.ID)
		if !ok || old.Service == given.Service {
			continue
		}
		return conflict("Check ID %q of agent %q belongs to a check of %s and is not moved to %s: %s, or with an ID of its own, or deregister the old one first: "+
			"PUT %s/v1/agent/check/deregister/%s",
			given.ID, ShownNode(op.On()), shownOwner(old.Service), shownOwner(given.Service), sharedAgent, pathOf(op.On()), url.PathEscape(given.ID))
	}
	return conflict("A check ID belonged to another service's check, which is gone: register again")
}

func shownOwner(service string) string {
	if service == "" {
		return "the node"
	}
	return fmt.Sprintf("service %q", service)
}

func conflict(format string, args ...any) error {
	return &web.Refusal{Status: http.StatusConflict, Text: fmt.Sprintf(format, args...)}
}

// nameTaken names the spelling that a service already has: the case of application names does not matter.
func nameTaken(v *registry.View, name string) error {
	other := strings.ToLower(name)
	if app, ok := v.App(strings.ToUpper(name)); ok {
		other = app.ServiceName()
	}
	return malformed("Invalid service name %q: there is a service %q, and names that differ in case only are one application; use that one", name, other)
}

// catalogDeregister is PUT /v1/catalog/deregister. It is final, and answers true whatever existed.
func (c call) catalogDeregister() (any, error) {
	op := web.Decode(c.Call, c.Limits().RegisterBytes, func(body []byte) (registry.DeregisterCatalog, error) {
		op, datacenter, err := decodeDeregistration(body)
		return op, cmp.Or(err, c.checkDatacenter(datacenter))
	})
	if c.Err == nil {
		op.Node, c.Err = c.spelledNode(op.Node)
	}
	if c.Err != nil {
		return nil, c.Err
	}
	return true, c.deregisterPlaced(op)
}

// deregisterPlaced removes what exists, however it was registered.
func (c call) deregisterPlaced(op registry.DeregisterCatalog) error {
	if op.Node == "" && op.Service == "" && op.Check == "" {
		return rejected("node %q stands for the cluster itself and is not deregistered; give a ServiceID or a CheckID", NodeName)
	}
	result, err := c.applyCatalog(op)
	if err == nil && result.Outcome == registry.TooMany {
		result, err = c.removeNode(op)
	}
	if err != nil || op.Node != "" || op.Service == "" || result.Outcome != registry.NotFound {
		return err
	}
	v, err := c.newest()
	if err != nil {
		return err
	}
	if _, ambiguous := v.ServiceOn("", op.Service); ambiguous {
		return ambiguousService(v, op.Service)
	}
	return nil
}

// ambiguousService names the applications where clients of Eureka registered instances with the same id.
func ambiguousService(v *registry.View, id string) error {
	var apps []string
	for l := range v.All() {
		if l.Instance.ID() == id {
			apps = append(apps, l.Instance.App)
		}
	}
	return rejected("service ID %q names instances of several applications: %s; use Eureka's API, which names the application (DELETE /eureka/apps/APP/ID)",
		id, strings.Join(apps, ", "))
}
