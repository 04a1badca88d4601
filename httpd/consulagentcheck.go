package httpd

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/consul"
)

// registerCheck is PUT /v1/agent/check/register.
func (c *call) registerCheck() (any, error) {
	op := decoded(c, c.config.Limits.RegisterBytes, consul.DecodeCheck)
	if c.err != nil {
		return nil, c.err
	}
	c.reapByDefault(op.Checks)
	return answered, c.registerCatalog(c.r.Context(), op, func(v *registry.View) error {
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

// beatCheck is PUT /v1/agent/check/pass|warn|fail/{id}.
func beatCheck(status registry.CheckStatus) endpoint {
	return func(c *call) (any, error) {
		note := c.text("note")
		c.noBody()
		return c.setCheck(status, note)
	}
}

// updateCheck is PUT /v1/agent/check/update/{id}.
func (c *call) updateCheck() (any, error) {
	var output string
	status := decoded(c, c.config.Limits.RegisterBytes, func(body []byte) (status registry.CheckStatus, err error) {
		status, output, err = consul.DecodeStatus(body)
		return status, err
	})
	return c.setCheck(status, output)
}

// maxOutput is how much of a check's output is kept, in bytes (hashicorp/consul,
// agent/checks/check.go, DefaultBufSize).
const maxOutput = 4 << 10

// setCheck sets the state of the TTL check in the path.
func (c *call) setCheck(status registry.CheckStatus, output string) (any, error) {
	if c.err != nil {
		return nil, c.err
	}
	id := c.rest()
	if len(output) > maxOutput {
		output = strings.ToValidUTF8(output[:maxOutput], "") + fmt.Sprintf(" ... (captured %d of %d bytes)", maxOutput, len(output))
	}
	result, err := c.applyCatalog(c.r.Context(), registry.SetCheck{Check: id, Status: status, Output: output, TTL: true})
	if err != nil {
		return nil, err
	}
	switch result.Outcome {
	case registry.NotFound:
		return nil, c.noCheck(id)
	case registry.NoTTL:
		return nil, noTTL(id)
	}
	return answered, nil
}

// noCheck is the error of a check that was not registered: it may be one that is shown all the same.
func (c *call) noCheck(id string) error {
	v, err := c.newestForConsul(c.r.Context())
	if err != nil {
		return err
	}
	for _, check := range c.shownCatalog(v, nil).ofService(strings.TrimPrefix(id, "service:")) {
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
func (c *call) deregisterCheck() (any, error) {
	if c.noBody(); c.err != nil {
		return nil, c.err
	}
	id := c.rest()
	if id == "" { // an operation without a check would mean the node
		return nil, unknownCheckID(id)
	}
	result, err := c.applyCatalog(c.r.Context(), registry.DeregisterCatalog{Check: id})
	if err == nil && result.Outcome == registry.NotFound {
		return nil, unknownCheckID(id)
	}
	return answered, err
}
