package httpd

import (
	"fmt"
	"net/http"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
)

// override is PUT /v1/rollcall/apps/{app}/{id}/override: setStatus with an author, a reason and,
// if asked for, an end.
func (c *call) override() (any, error) {
	return c.act(registry.SetOverride{Key: c.key(), Status: c.statusValue(true), For: c.length(false), By: c.by()})
}

// endOverride is DELETE /v1/rollcall/apps/{app}/{id}/override.
func (c *call) endOverride() (any, error) {
	return c.act(registry.DeleteOverride{Key: c.key(), Fallback: c.statusValue(false), By: c.by()})
}

// quarantine is PUT /v1/rollcall/apps/{app}/{id}/quarantine: out of every list for a time.
func (c *call) quarantine() (any, error) {
	return c.act(registry.Quarantine{Key: c.key(), For: c.length(true), By: c.by()})
}

// endQuarantine is DELETE /v1/rollcall/apps/{app}/{id}/quarantine.
func (c *call) endQuarantine() (any, error) {
	return c.act(registry.Quarantine{Key: c.key(), By: c.by()})
}

// act performs an operator's act on an instance. One that changes nothing is answered with the
// version that holds what it asks for.
func (c *call) act(op registry.Op) (any, error) {
	if c.noBody(); c.err != nil {
		return nil, c.err
	}
	key := c.key()
	result, err := c.apply(registry.FromClient, op)
	if err != nil {
		return nil, err
	}
	if result.Outcome == registry.NotFound {
		return nil, &refusal{status: http.StatusNotFound, text: fmt.Sprintf("%s is not registered", key)}
	}
	v, err := c.viewAfterWrite(c.r.Context())
	if err != nil {
		return nil, err
	}
	done := position{epoch: v.Epoch(), index: result.Index}
	if done.index == 0 {
		done.index = v.Index()
	}
	c.w.Header().Set("X-Rollcall-Index", done.String())
	return api.Acted{App: key.App, ID: key.ID, Index: done.String()}, nil
}
