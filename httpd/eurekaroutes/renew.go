package eurekaroutes

import (
	"net/http"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// renewRouted responds to a heartbeat that came through the router.
func (c call) renewRouted() (any, error) {
	_, err := c.Renew(c.W, c.R, c.Key(), nil)
	return web.Sent, err
}

// Renew performs a heartbeat and returns the status of the response. s belongs to a connection that carries
// heartbeats, or is nil. Neither 200 nor 404 has a body: Jersey clients decode any body as an instance, and one that
// fails to decode is a failed heartbeat, after which the client never registers again.
func (e *Eureka) Renew(w http.ResponseWriter, r *http.Request, key registry.Key, s *web.Standing) (int, error) {
	origin := e.originOf(r)
	op, err := e.renewOp(w, r, key)
	if err != nil {
		return 0, e.recordRefusal(origin, key, "renew", err)
	}
	ctx, err := e.MayRenew(r, origin, key.App, s)
	if err != nil {
		return 0, e.recordRefusal(origin, key, "renew", err)
	}
	results, err := e.Perform(ctx, origin, op)
	if err != nil || results[0].Outcome == registry.Revoked {
		_, err = e.CountResult(ctx, origin, op, results, err)
		return 0, err
	}
	result := results[0]
	e.CountRenewal(origin, result.Outcome)
	switch result.Outcome {
	case registry.Done:
		e.LabelWrite(w.Header(), result)
		// net/http responds this way for a handler that wrote nothing, with Content-Length: 0
		return http.StatusOK, nil
	case registry.Older:
		if origin.Replicated() {
			return e.renewConflict(w, r, key)
		}
		return http.StatusOK, nil
	}
	w.WriteHeader(http.StatusNotFound)
	return http.StatusNotFound, nil
}

func (e *Eureka) renewOp(w http.ResponseWriter, r *http.Request, key registry.Key) (registry.Renew, error) {
	op := registry.Renew{Key: key}
	if err := web.DropBody(w, r, e.Limits().IgnoredBytes); err != nil {
		return op, err
	}
	q := web.ParamsOf(r)
	if op.LastDirty = q.LastDirty(); isReplication(r) {
		op.Overridden, _ = registry.ParseStatus(q.Text("overriddenstatus"))
		return op, q.Err
	}
	said := web.ParamsOf(r) // a reader of its own: an unreadable status is not refused
	if op.Status, _ = registry.ParseStatus(said.Text("status")); op.Status == registry.Unknown {
		return op, q.Err
	}
	if v := web.StaleView(e.Service); v != nil {
		if l, ok := v.Find(op.Key); ok && l.Contradicts(op) {
			e.contradictions.Inc()
			return op, q.Err
		}
	}
	op.Status = registry.Unknown // it contradicts no registration with the same timestamp that this node knows
	return op, q.Err
}

// renewConflict sends a replicator with an older copy the newer one to take over.
func (e *Eureka) renewConflict(w http.ResponseWriter, r *http.Request, key registry.Key) (int, error) {
	v, err := e.Newest(r.Context())
	if err != nil {
		return 0, err
	}
	lease, ok := v.Lease(key)
	if !ok {
		w.WriteHeader(http.StatusConflict) // removed meanwhile: nothing to take over
		return http.StatusConflict, nil
	}
	writeInstance(w, r, http.StatusConflict, fullFormat(r, false), v, lease)
	return http.StatusConflict, nil
}
