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
		status, err = h.eureka.Renew(w, r, registry.NewKey(app, id))
	}
	if err != nil {
		status = web.RefusalOf(err).Status
		h.Fail(w, web.EmptyForm, err)
	}
	return status
}
