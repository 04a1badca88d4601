package ownroutes

import (
	"fmt"
	"net/http"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/show"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// selfPreservation is GET /v1/rollcall/self-preservation.
func (c call) selfPreservation(v web.FreshView) (any, error) {
	return show.Preservation(v.View, c.leaseClock(v.View)), nil
}

// releasePreservation is POST /v1/rollcall/self-preservation/release.
func (c call) releasePreservation() (any, error) {
	return c.preserve(registry.SelfPreservation{To: registry.PreservationReleased})
}

// holdPreservation is POST /v1/rollcall/self-preservation/hold.
func (c call) holdPreservation() (any, error) {
	return c.preserve(registry.SelfPreservation{To: registry.PreservationHeld, For: c.length(true)})
}

// preserve performs an operator's transition, with the numbers as this node sees them, and responds
// with self-preservation as it is then.
func (c call) preserve(op registry.SelfPreservation) (any, error) {
	c.IgnoreBody()
	op.By = c.By()
	if c.Err != nil {
		return nil, c.Err
	}
	before := web.StaleView(c.Service)
	if before == nil {
		return nil, registry.ErrClosed
	}
	op.From, op.Figures = before.Preservation().State, before.Freshness(c.leaseClock(before).Now)
	result, err := c.Apply(registry.FromClient, op)
	if err != nil {
		return nil, err
	}
	after, err := c.ViewAfterWrite(c.R.Context())
	if err != nil {
		return nil, err
	}
	if result.Outcome == registry.Refused {
		return nil, &web.Refusal{Status: http.StatusConflict, Text: refusedRelease(after.Preservation())}
	}
	c.Log.Info("an operator changed self-preservation", "state", op.To, "for_ms", op.For, "author", op.By.Author, "reason", op.By.Reason)
	after.Label(c.W.Header(), after.Index())
	return show.Preservation(after.View, c.leaseClock(after.View)), nil
}

// refusedRelease says why there was nothing to release.
func refusedRelease(p registry.Preservation) string {
	if p.State == registry.PreservationReleased {
		return fmt.Sprintf("self-preservation is released since %s: there is nothing to release", show.Time(p.Since.Wall))
	}
	return fmt.Sprintf("self-preservation is %s: there is nothing to release", p.State)
}
