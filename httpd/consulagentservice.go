package httpd

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/consul"
)

// registerService is PUT /v1/agent/service/register.
func (c *call) registerService() (any, error) {
	replace := c.present("replace-existing-checks")
	op := decoded(c, c.config.Limits.RegisterBytes, func(body []byte) (registry.RegisterCatalog, error) {
		return consul.DecodeService(body, c.addressOf(""))
	})
	if c.err != nil {
		return nil, c.err
	}
	op.ReplaceChecks = replace
	c.reapByDefault(op.Checks)
	return answered, c.registerCatalog(c.r.Context(), op, func(v *registry.View) error { return unknownOfCheck(v, op) })
}

// deregisterByAgent is PUT /v1/agent/service/deregister/{id}.
func (c *call) deregisterByAgent() (any, error) {
	if c.noBody(); c.err != nil {
		return nil, c.err
	}
	err := c.deregisterService(c.r.Context(), c.rest())
	if errors.Is(err, errUnknownService) {
		err = unknownServiceID(c.rest())
	}
	return answered, err
}

func unknownServiceID(id string) error {
	text := fmt.Sprintf("Unknown service ID %q. Ensure that the service ID is passed, not the service name.", id)
	return &refusal{status: http.StatusNotFound, text: text}
}

// serviceMaintenance is PUT /v1/agent/service/maintenance/{id}. An instance that a client of Eureka
// registered is kept out of use by an override.
func (c *call) serviceMaintenance() (any, error) {
	id := c.rest()
	if id == "" {
		return nil, badRequest("Missing service ID")
	}
	enable, by := c.enable(), c.by()
	if c.err != nil {
		return nil, c.err
	}
	v, err := c.newestForConsul(c.r.Context())
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
		return answered, c.overrideByAgent(c.r.Context(), l, enable, by)
	}
	return answered, c.maintain(c.r.Context(), v, consul.Maintenance(id, by.Reason), enable, unknownServiceID(id))
}

// nodeMaintenance is PUT /v1/agent/maintenance. It only ends: operators begin it to take one host out, and the
// node here is that of the services of all hosts.
func (c *call) nodeMaintenance() (any, error) {
	enable := c.enable()
	switch {
	case c.err != nil:
		return nil, c.err
	case enable:
		return nil, errNodeMaintenance
	}
	v, err := c.newestForConsul(c.r.Context())
	if err != nil {
		return nil, err
	}
	return answered, c.maintain(c.r.Context(), v, consul.Maintenance("", ""), false, nil)
}

var errNodeMaintenance = badRequest(fmt.Sprintf("node %q is that of all services of all hosts, and its maintenance would take every one of them out of use; "+
	"use the maintenance of single services: PUT /v1/agent/service/maintenance/{id}?enable=true", consul.NodeName))

// maintain registers a check of maintenance, unless it is there, or takes it away. unknown is the error
// if its service is gone.
func (h *Handler) maintain(ctx context.Context, v *registry.View, check *registry.Check, enable bool, unknown error) error {
	_, on := v.CheckOn("", check.ID)
	if on == enable {
		return nil
	}
	if !enable {
		_, err := h.applyCatalog(ctx, registry.DeregisterCatalog{Check: check.ID})
		return err
	}
	return h.registerCatalog(ctx, registry.RegisterCatalog{Checks: []*registry.Check{check}}, func(*registry.View) error { return unknown })
}

// overrideByAgent is maintenance of an instance that a client of Eureka registered. At its end the
// instance gets the status that the client reported last; where that is not known the client is made to
// report it.
func (h *Handler) overrideByAgent(ctx context.Context, l *registry.Lease, enable bool, by registry.Act) error {
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
	result, err := h.applyCatalog(ctx, op)
	if err == nil && result.Outcome == registry.NotFound {
		return unknownServiceID(l.Instance.ID())
	}
	return err
}

// enable reads whether maintenance is to begin or to end.
func (q *query) enable() bool {
	text, given := q.lookup("enable")
	if !given {
		q.refuse("Missing value for enable")
	}
	return q.truth(text, "Invalid value for enable: %q", text)
}
