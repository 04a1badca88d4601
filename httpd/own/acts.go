package own

import (
	"fmt"
	"net/http"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// override is PUT /v1/rollcall/apps/{app}/{id}/override: setStatus with an author, a reason and optionally an end: at
// a time, or (drain) when the instance is started again.
func (c call) override() (any, error) {
	op := registry.SetOverride{Key: c.Key(), Status: c.StatusValue(true), For: c.length(false), By: c.By(), Drain: c.Flag("drain")}
	if op.Drain && (op.Status != registry.OutOfService || op.For > 0) {
		c.Refuse("drain is for OUT_OF_SERVICE, and only without for")
	}
	return c.act(op)
}

// endOverride is DELETE /v1/rollcall/apps/{app}/{id}/override.
func (c call) endOverride() (any, error) {
	return c.act(registry.DeleteOverride{Key: c.Key(), Fallback: c.StatusValue(false), By: c.By()})
}

// quarantine is PUT /v1/rollcall/apps/{app}/{id}/quarantine: it hides an instance from every list for a time.
func (c call) quarantine() (any, error) {
	return c.act(registry.Quarantine{Key: c.Key(), For: c.length(true), By: c.By()})
}

// endQuarantine is DELETE /v1/rollcall/apps/{app}/{id}/quarantine.
func (c call) endQuarantine() (any, error) {
	return c.act(registry.Quarantine{Key: c.Key(), By: c.By()})
}

// act performs an operator's act on an instance. The response to an act that changes nothing has a version of the
// registry where what the act asks for already holds.
func (c call) act(op registry.Op) (any, error) {
	if c.IgnoreBody(); c.Err != nil {
		return nil, c.Err
	}
	key := c.Key()
	result, err := c.Apply(registry.FromClient, op)
	if err != nil {
		return nil, err
	}
	if result.Outcome == registry.NotFound {
		return nil, &web.Refusal{Status: http.StatusNotFound, Text: fmt.Sprintf("%s is not registered", key)}
	}
	v, err := c.ViewAfterWrite(c.R.Context())
	if err != nil {
		return nil, err
	}
	done := position{epoch: v.Epoch(), index: result.Index}
	if done.index == 0 {
		done.index = v.Index()
	}
	c.W.Header().Set("X-Rollcall-Index", done.String())
	_, ends := op.(registry.DeleteOverride) // an act, which may not exist
	if q, ok := op.(registry.Quarantine); ok {
		ends = q.For == 0
	}
	_, live := v.Find(key)
	nothing := ends && live && result.Index == 0 && result.Count == 0
	return api.Acted{App: key.App, ID: key.ID, Index: done.String(), Nothing: nothing}, nil
}

// Bounds of an act's duration.
const (
	minFor = time.Second
	maxFor = 7 * 24 * time.Hour
)

// length reads how long an act holds, in ms, or returns 0 if it is neither given nor required.
func (c call) length(required bool) int64 {
	wrong := fmt.Sprintf("for must be a duration from %v to %vh, like 30m", minFor, maxFor.Hours())
	d, given := c.Duration("for", minFor, maxFor, wrong)
	if required && !given {
		c.Refuse("%s", wrong)
	}
	return d.Milliseconds()
}
