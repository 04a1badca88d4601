package consulroutes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/consul"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// registerCheck is PUT /v1/agent/check/register.
func (c call) registerCheck() (any, error) {
	op := web.Decode(c.Call, c.Limits.RegisterBytes, consul.DecodeCheck)
	if c.Err != nil {
		return nil, c.Err
	}
	c.reapByDefault(op.Checks)
	return web.Sent, c.registerCatalog(c.R.Context(), op, func(v *registry.View) error {
		id := op.Checks[0].Service
		if l, _ := v.ServiceOn("", id); l != nil && l.Service == nil {
			return web.BadRequest(eurekasOwn(id))
		}
		return &web.Refusal{Status: http.StatusNotFound, Text: fmt.Sprintf("ServiceID %q does not exist", id)}
	})
}

// reapByDefault gives checks of services, which do not say how long they may be critical, the time after
// which Consul would have reaped the node of an agent that is gone. Otherwise the services of a program that is
// gone would stay for ever.
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
	status := web.Decode(c.Call, c.Limits.RegisterBytes, func(body []byte) (status catalog.CheckStatus, err error) {
		status, output, err = consul.DecodeStatus(body)
		return status, err
	})
	return c.setCheck(status, output)
}

// maxOutput is how much of a check's output is kept, in bytes (hashicorp/consul,
// agent/checks/check.go, DefaultBufSize).
const maxOutput = 4 << 10

// setCheck sets the state of the TTL check in the path.
func (c call) setCheck(status catalog.CheckStatus, output string) (any, error) {
	if c.Err != nil {
		return nil, c.Err
	}
	id := c.Rest()
	if len(output) > maxOutput {
		output = strings.ToValidUTF8(output[:maxOutput], "") + fmt.Sprintf(" ... (captured %d of %d bytes)", maxOutput, len(output))
	}
	result, err := c.applyCatalog(c.R.Context(), registry.SetCheck{Check: id, Status: status, Output: output, TTL: true})
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

// noCheck is the error of a check that was not registered: it may be one that is shown all the same.
func (c call) noCheck(id string) error {
	v, err := c.newestForConsul(c.R.Context())
	if err != nil {
		return err
	}
	for _, check := range c.shownCatalog(v, nil).ofService(strings.TrimPrefix(id, "service:")) {
		if check.CheckID == id {
			return noTTL(id)
		}
	}
	if id == catalog.SerfHealth {
		return noTTL(id)
	}
	return unknownCheckID(id)
}

// ofService are the checks of a service of the logical node.
func (c *shownCatalog) ofService(id string) []consul.Check {
	if l, _ := c.ServiceOn("", id); l != nil {
		return c.service(l).Checks
	}
	return nil
}

func noTTL(id string) error {
	return consulError(fmt.Sprintf("CheckID %q does not have associated TTL", id))
}

func unknownCheckID(id string) error {
	text := fmt.Sprintf("Unknown check ID %q. Ensure that the check ID is passed, not the check name.", id)
	return &web.Refusal{Status: http.StatusNotFound, Text: text}
}

// deregisterCheck is PUT /v1/agent/check/deregister/{id}.
func (c call) deregisterCheck() (any, error) {
	id := c.Rest()
	if id == "" { // an operation without a check would mean the node
		return nil, unknownCheckID(id)
	}
	result, err := c.applyCatalog(c.R.Context(), registry.DeregisterCatalog{Check: id})
	if err == nil && result.Outcome == registry.NotFound {
		return nil, unknownCheckID(id)
	}
	return web.Sent, err
}

// registerService is PUT /v1/agent/service/register.
func (c call) registerService() (any, error) {
	replace := c.Present("replace-existing-checks")
	op := web.Decode(c.Call, c.Limits.RegisterBytes, func(body []byte) (registry.RegisterCatalog, error) {
		return consul.DecodeService(body, c.addressOf(""))
	})
	if c.Err != nil {
		return nil, c.Err
	}
	op.ReplaceChecks = replace
	c.reapByDefault(op.Checks)
	return web.Sent, c.registerCatalog(c.R.Context(), op, func(v *registry.View) error { return unknownOfCheck(v, op) })
}

// deregisterByAgent is PUT /v1/agent/service/deregister/{id}.
func (c call) deregisterByAgent() (any, error) {
	err := c.deregisterService(c.R.Context(), c.Rest())
	if errors.Is(err, errUnknownService) {
		err = unknownServiceID(c.Rest())
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
	v, err := c.newestForConsul(c.R.Context())
	if err != nil {
		return nil, err
	}
	l, ambiguous := v.ServiceOn("", id)
	switch {
	case ambiguous:
		return nil, ambiguousService(v, id)
	case l == nil:
		return nil, unknownServiceID(id)
	case l.Service == nil:
		return web.Sent, c.overrideByAgent(c.R.Context(), l, enable, by)
	}
	return web.Sent, c.maintain(c.R.Context(), v, consul.Maintenance(id, by.Reason), enable, unknownServiceID(id))
}

// nodeMaintenance is PUT /v1/agent/maintenance. It only ends: operators begin it to take one host out, and the
// node here is that of the services of all hosts.
func (c call) nodeMaintenance() (any, error) {
	enable := c.enable()
	switch {
	case c.Err != nil:
		return nil, c.Err
	case enable:
		return nil, errNodeMaintenance
	}
	v, err := c.newestForConsul(c.R.Context())
	if err != nil {
		return nil, err
	}
	return web.Sent, c.maintain(c.R.Context(), v, consul.Maintenance("", ""), false, nil)
}

var errNodeMaintenance = web.BadRequest(fmt.Sprintf("node %q is that of all services of all hosts, and its maintenance would take every one of them out of use; "+
	"use the maintenance of single services: PUT /v1/agent/service/maintenance/{id}?enable=true", consul.NodeName))

// maintain registers a check of maintenance, unless it is there, or takes it away. unknown is the error
// if its service is gone.
func (e *endpoints) maintain(ctx context.Context, v *registry.View, check *catalog.Check, enable bool, unknown error) error {
	_, on := v.CheckOn("", check.ID)
	if on == enable {
		return nil
	}
	if !enable {
		_, err := e.applyCatalog(ctx, registry.DeregisterCatalog{Check: check.ID})
		return err
	}
	return e.registerCatalog(ctx, registry.RegisterCatalog{Checks: []*catalog.Check{check}}, func(*registry.View) error { return unknown })
}

// overrideByAgent is maintenance of an instance that a client of Eureka registered. At its end the
// instance gets the status that the client reported last; where that is not known the client is made to
// report it.
func (e *endpoints) overrideByAgent(ctx context.Context, l *registry.Lease, enable bool, by registry.Act) error {
	on := l.Instance.Overridden == registry.OutOfService
	if on == enable {
		return nil
	}
	op := registry.Op(registry.SetOverride{Key: l.Key(), Status: registry.OutOfService, By: by})
	if !enable {
		end := registry.DeleteOverride{Key: l.Key(), By: by}
		if l.Override != nil {
			end.Fallback = l.Override.Reported
		}
		op = end
	}
	result, err := e.applyCatalog(ctx, op)
	if err == nil && result.Outcome == registry.NotFound {
		return unknownServiceID(l.Instance.ID())
	}
	return err
}

// enable reads whether maintenance is to begin or to end.
func (c call) enable() bool {
	text, given := c.Lookup("enable")
	if !given {
		c.Refuse("Missing value for enable")
	}
	return c.ParseBool(text, "Invalid value for enable: %q", text)
}
