package httpd

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/consul"
)

// registerCheck is PUT /v1/agent/check/register.
func (h *Handler) registerCheck(w http.ResponseWriter, r *http.Request) error {
	body, err := readBody(w, r, h.config.Limits.RegisterBytes)
	if err != nil {
		return err
	}
	op, err := consul.DecodeCheck(body)
	if err != nil {
		return err
	}
	h.reapByDefault(op.Checks)
	return h.registerCatalog(r.Context(), op, func(v *registry.View) error {
		id := op.Checks[0].Service
		if l, _ := v.ServiceOn("", id); l != nil && l.Service == nil {
			return badRequest(eurekasOwn(id))
		}
		return &refusal{status: http.StatusNotFound, text: fmt.Sprintf("ServiceID %q does not exist", id)}
	})
}

// reapByDefault gives checks of services, which do not say how long they may be critical, the time after
// which Consul would have reaped the node of an agent that is gone. Nobody else would ever remove what their
// program left behind.
func (h *Handler) reapByDefault(checks []*registry.Check) {
	for _, c := range checks {
		if c.Service != "" && c.ReapAfter == 0 {
			c.ReapAfter = h.config.ReapCritical.Milliseconds()
		}
	}
}

// The states that heartbeats of a check report.
const (
	passes = registry.Passing
	warns  = registry.Warning
	fails  = registry.Critical
)

// beatCheck is PUT /v1/agent/check/pass|warn|fail/{id}.
func (h *Handler) beatCheck(status registry.CheckStatus) endpoint {
	return func(w http.ResponseWriter, r *http.Request) error {
		note, _, err := param(r.URL.RawQuery, "note")
		if err != nil {
			return err
		}
		if err := ignoreBody(w, r, h.config.Limits.IgnoredBytes); err != nil {
			return err
		}
		return h.setCheck(r, status, note)
	}
}

// updateCheck is PUT /v1/agent/check/update/{id}.
func (h *Handler) updateCheck(w http.ResponseWriter, r *http.Request) error {
	body, err := readBody(w, r, h.config.Limits.RegisterBytes)
	if err != nil {
		return err
	}
	status, output, err := consul.DecodeStatus(body)
	if err != nil {
		return err
	}
	return h.setCheck(r, status, output)
}

// maxOutput is how much of a check's output is kept, in bytes (hashicorp/consul,
// agent/checks/check.go, DefaultBufSize).
const maxOutput = 4 << 10

// setCheck sets the state of the TTL check in the path.
func (h *Handler) setCheck(r *http.Request, status registry.CheckStatus, output string) error {
	id := restOfPath(r)
	if len(output) > maxOutput {
		output = strings.ToValidUTF8(output[:maxOutput], "") + fmt.Sprintf(" ... (captured %d of %d bytes)", maxOutput, len(output))
	}
	result, err := h.applyCatalog(r.Context(), registry.SetCheck{Check: id, Status: status, Output: output, TTL: true})
	if err != nil {
		return err
	}
	switch result.Outcome {
	case registry.NotFound:
		return h.noCheck(r, id)
	case registry.NoTTL:
		return noTTL(id)
	}
	return nil
}

// noCheck is the error of a check that was not registered: it may be one that is shown all the same.
func (h *Handler) noCheck(r *http.Request, id string) error {
	c, err := h.consulViewAt(r.Context(), false)
	if err != nil {
		return err
	}
	for _, check := range h.shownCatalog(c, nil).ofService(strings.TrimPrefix(id, "service:")) {
		if check.CheckID == id {
			return noTTL(id)
		}
	}
	if id == registry.SerfHealth {
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
	return &refusal{status: http.StatusNotFound, text: text}
}

// deregisterCheck is PUT /v1/agent/check/deregister/{id}.
func (h *Handler) deregisterCheck(w http.ResponseWriter, r *http.Request) error {
	if err := ignoreBody(w, r, h.config.Limits.IgnoredBytes); err != nil {
		return err
	}
	id := restOfPath(r)
	if id == "" { // an operation without a check would mean the node
		return unknownCheckID(id)
	}
	result, err := h.applyCatalog(r.Context(), registry.DeregisterCatalog{Check: id})
	if err == nil && result.Outcome == registry.NotFound {
		return unknownCheckID(id)
	}
	return err
}
