package httpd

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// renewRoute is the template of the heartbeat route.
const renewRoute = "{base}/apps/{app}/{id}"

// Heartbeats are most of what a node does, so the common ones are recognized without the router.
// Whatever is unusual about a path (escapes that hide a slash, empty segments, characters that need
// a look) is left to the router, which ends in the same code.

// matchRenew returns the names in the path of an ordinary heartbeat.
func (h *Handler) matchRenew(u *url.URL) (app, id string, ok bool) {
	if u.RawPath != "" {
		return "", "", false
	}
	return matchPlain(u.Path, h.appsPrefixes)
}

func matchPlain(path string, prefixes []string) (app, id string, ok bool) {
	for _, prefix := range prefixes {
		if rest, found := strings.CutPrefix(path, prefix); found {
			app, id, _ = strings.Cut(rest, "/")
			return app, id, plainName(app) && plainName(id)
		}
	}
	return "", "", false
}

// plainName says that a name needs no further check.
func plainName(name string) bool {
	if name == "" || len(name) > web.MaxNameBytes || name == "." || name == ".." {
		return false
	}
	for i := range len(name) {
		if c := name[i]; c < ' ' || c > '~' || c == '/' {
			return false
		}
	}
	return true
}

// serveRenew answers a heartbeat that matchRenew recognized, and perhaps those that follow.
func (h *Handler) serveRenew(w http.ResponseWriter, r *http.Request, app, id string) {
	h.takeOver(w, r, h.beat(w, r, app, id))
}

// beat answers one heartbeat and returns the status answered.
func (h *Handler) beat(w http.ResponseWriter, r *http.Request, app, id string) (status int) {
	start := time.Now()
	status = http.StatusInternalServerError
	defer func() {
		h.recovered(w, recover())
		h.metrics.answeredRenew(status, time.Since(start))
	}()
	err := checkBounds(r, web.MaxParams)
	if err == nil {
		status, err = h.renew(w, r, registry.NewKey(app, id))
	}
	if err != nil {
		status = web.RefusalOf(err).Status
		h.Fail(w, web.EmptyForm, err)
	}
	return status
}

// renewRouted answers a heartbeat that came through the router.
func (c call) renewRouted() (any, error) {
	_, err := c.renew(c.W, c.R, c.Key())
	return web.Sent, err
}

// renew performs a heartbeat and returns the status answered. Neither 200 nor 404 has a body: Jersey
// clients decode any body as an instance, and one that fails to decode is a failed heartbeat, after
// which the client never registers again.
func (h *Handler) renew(w http.ResponseWriter, r *http.Request, key registry.Key) (int, error) {
	op, err := h.renewOp(w, r, key)
	if err != nil {
		return 0, err
	}
	origin := h.originOf(r)
	results, err := h.Perform(r.Context(), origin, op)
	if err != nil {
		err = web.WriteError(err)
		h.CountOperation(op, origin, web.OutcomeOfError(err))
		return 0, err
	}
	result := results[0]
	h.CountRenewal(origin, result.Outcome)
	switch result.Outcome {
	case registry.Done:
		h.LabelWrite(w.Header(), result)
		return http.StatusOK, nil // net/http answers a handler that wrote nothing so, with Content-Length: 0
	case registry.Older:
		if origin.Replicated() {
			return h.renewConflict(w, r, key)
		}
		return http.StatusOK, nil
	}
	w.WriteHeader(http.StatusNotFound)
	return http.StatusNotFound, nil
}

func (h *Handler) renewOp(w http.ResponseWriter, r *http.Request, key registry.Key) (registry.Renew, error) {
	op := registry.Renew{Key: key}
	if err := web.DropBody(w, r, h.config.Limits.IgnoredBytes); err != nil {
		return op, err
	}
	q := web.ParamsOf(r)
	if op.LastDirty = q.LastDirty(); isReplication(r) {
		op.Overridden, _ = registry.ParseStatus(q.Text("overriddenstatus"))
	}
	return op, q.Err
}

// renewConflict answers a replicator whose copy is older with the newer one, for it to take over.
func (h *Handler) renewConflict(w http.ResponseWriter, r *http.Request, key registry.Key) (int, error) {
	v, err := h.ViewAfterWrite(r.Context())
	if err != nil {
		return 0, err
	}
	lease, ok := v.Lease(key)
	if !ok {
		w.WriteHeader(http.StatusConflict) // gone meanwhile: there is nothing to take over
		return http.StatusConflict, nil
	}
	writeInstance(w, r, http.StatusConflict, fullFormat(r, false), v, lease)
	return http.StatusConflict, nil
}
