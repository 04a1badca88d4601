package httpd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/consul"
)

// registerService is PUT /v1/agent/service/register.
func (h *Handler) registerService(w http.ResponseWriter, r *http.Request) error {
	replace, err := presentParam(r.URL.RawQuery, "replace-existing-checks")
	if err != nil {
		return err
	}
	body, err := readBody(w, r, h.config.Limits.RegisterBytes)
	if err != nil {
		return err
	}
	op, err := consul.DecodeService(body, h.addressOf(""))
	if err != nil {
		return err
	}
	op.ReplaceChecks = replace
	h.reapByDefault(op.Checks)
	return h.registerCatalog(r.Context(), op, func(v *registry.View) error { return unknownOfCheck(v, op) })
}

// presentParam reads a parameter that is true where it is given without a value.
func presentParam(query, name string) (bool, error) {
	text, given, err := param(query, name)
	if err != nil || !given || text == "" {
		return given, err
	}
	value, err := strconv.ParseBool(text)
	if err != nil {
		return false, badRequest(fmt.Sprintf("Invalid value for %s: %q", name, text))
	}
	return value, nil
}

// deregisterByAgent is PUT /v1/agent/service/deregister/{id}.
func (h *Handler) deregisterByAgent(w http.ResponseWriter, r *http.Request) error {
	if err := ignoreBody(w, r, h.config.Limits.IgnoredBytes); err != nil {
		return err
	}
	err := h.deregisterService(r.Context(), restOfPath(r))
	if errors.Is(err, errUnknownService) {
		return unknownServiceID(restOfPath(r))
	}
	return err
}

func unknownServiceID(id string) error {
	text := fmt.Sprintf("Unknown service ID %q. Ensure that the service ID is passed, not the service name.", id)
	return &refusal{status: http.StatusNotFound, text: text}
}

// enableParam reads whether maintenance is to begin or to end.
func enableParam(query string) (bool, error) {
	text, given, err := param(query, "enable")
	switch {
	case err != nil:
		return false, err
	case !given:
		return false, badRequest("Missing value for enable")
	}
	enable, err := strconv.ParseBool(text)
	if err != nil {
		return false, badRequest(fmt.Sprintf("Invalid value for enable: %q", text))
	}
	return enable, nil
}

// serviceMaintenance is PUT /v1/agent/service/maintenance/{id}. An instance that a client of Eureka
// registered is kept out of use by an override.
func (h *Handler) serviceMaintenance(w http.ResponseWriter, r *http.Request) error {
	id := restOfPath(r)
	if id == "" {
		return badRequest("Missing service ID")
	}
	enable, err := enableParam(r.URL.RawQuery)
	if err != nil {
		return err
	}
	by, err := actOf(r)
	if err != nil {
		return err
	}
	v, err := h.consulViewAt(r.Context(), false)
	if err != nil {
		return err
	}
	l, ambiguous := v.ServiceOn("", id)
	switch {
	case ambiguous:
		return ambiguousService(v, id)
	case l == nil:
		return unknownServiceID(id)
	case l.Service == nil:
		return h.overrideByAgent(r.Context(), l, enable, by)
	}
	return h.maintain(r.Context(), v, consul.Maintenance(id, by.Reason), enable, unknownServiceID(id))
}

// nodeMaintenance is PUT /v1/agent/maintenance. It only ends: operators begin it to take one host out, and the
// node here is that of the services of all hosts.
func (h *Handler) nodeMaintenance(w http.ResponseWriter, r *http.Request) error {
	enable, err := enableParam(r.URL.RawQuery)
	switch {
	case err != nil:
		return err
	case enable:
		return errNodeMaintenance
	}
	v, err := h.consulViewAt(r.Context(), false)
	if err != nil {
		return err
	}
	return h.maintain(r.Context(), v, consul.Maintenance("", ""), false, nil)
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
