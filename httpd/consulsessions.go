package httpd

import (
	"net/http"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/httpd/consul"
)

var (
	errMissingSession = badRequest("Missing session")
	errMissingNode    = badRequest("Missing node name")
)

// sessionRoutes adds Consul's API of sessions.
func (h *Handler) sessionRoutes() {
	h.consulRoute("/v1/session/renew/{id}", h.renewSession, http.MethodPut)
	h.consulRoute("/v1/session/create", h.createSession, http.MethodPut)
	h.consulRoute("/v1/session/destroy/{id}", h.destroySession, http.MethodPut)
	h.consulRoute("/v1/session/info/{id}", h.sessionInfo, http.MethodGet)
	h.consulRoute("/v1/session/node/{node}", h.sessionsOfNode, http.MethodGet)
	h.consulRoute("/v1/session/list", h.sessionList, http.MethodGet)
}

// createSession is PUT session/create.
func (h *Handler) createSession(w http.ResponseWriter, r *http.Request) error {
	body, err := readBody(w, r, h.config.Limits.IgnoredBytes)
	if err != nil {
		return err
	}
	op, err := consul.DecodeSession(body)
	if err != nil {
		return err
	}
	op.ID = newUUID()
	result, err := h.persist(r.Context(), op)
	if err != nil {
		return err
	}
	if result.Refusal != "" {
		return consulError("apply failed: " + result.Refusal)
	}
	return respondConsul(w, r, struct{ ID string }{op.ID})
}

// sessionOf is the session that a path names.
func sessionOf(r *http.Request) (string, error) {
	id := strings.ToLower(restOfPath(r))
	if id == "" {
		return "", errMissingSession
	}
	return id, nil
}

// onSession performs an operation on the session that a path names.
func (h *Handler) onSession(w http.ResponseWriter, r *http.Request, op func(id string) kv.Op) (kv.Result, error) {
	if err := ignoreBody(w, r, h.config.Limits.IgnoredBytes); err != nil {
		return kv.Result{}, err
	}
	id, err := sessionOf(r)
	if err != nil {
		return kv.Result{}, err
	}
	return h.persist(r.Context(), op(id))
}

// destroySession is PUT session/destroy/{id}. A session that there is not is destroyed, too.
func (h *Handler) destroySession(w http.ResponseWriter, r *http.Request) error {
	if _, err := h.onSession(w, r, func(id string) kv.Op { return kv.DestroySession{ID: id} }); err != nil {
		return err
	}
	respondBool(w, r, true)
	return nil
}

// renewSession is PUT session/renew/{id}.
func (h *Handler) renewSession(w http.ResponseWriter, r *http.Request) error {
	result, err := h.onSession(w, r, func(id string) kv.Op { return kv.RenewSession{ID: id} })
	if err != nil {
		return err
	}
	if !result.OK {
		return &refusal{status: http.StatusNotFound, text: "Session id '" + restOfPath(r) + "' not found"}
	}
	return respondConsul(w, r, []consul.Session{consul.ShowSession(result.Session)})
}

// sessionInfo is GET session/info/{id}: a list of one, or of none.
func (h *Handler) sessionInfo(w http.ResponseWriter, r *http.Request) error {
	id, err := sessionOf(r)
	if err != nil {
		return err
	}
	return h.readSessions(w, r, func(v *kv.View) []consul.Session {
		if s, _ := v.Session(id); s != nil {
			return []consul.Session{consul.ShowSession(s)}
		}
		return []consul.Session{}
	})
}

// sessionsOfNode is GET session/node/{node}.
func (h *Handler) sessionsOfNode(w http.ResponseWriter, r *http.Request) error {
	node := restOfPath(r)
	if node == "" {
		return errMissingNode
	}
	node = consul.NodeOf(node)
	return h.readSessions(w, r, func(v *kv.View) []consul.Session {
		return showSessions(v, func(s *kv.Session) bool { return s.Node == node })
	})
}

// sessionList is GET session/list.
func (h *Handler) sessionList(w http.ResponseWriter, r *http.Request) error {
	return h.readSessions(w, r, func(v *kv.View) []consul.Session {
		return showSessions(v, func(*kv.Session) bool { return true })
	})
}

func showSessions(v *kv.View, wanted func(*kv.Session) bool) []consul.Session {
	shown := []consul.Session{} // an empty list, not null
	for s := range v.Sessions() {
		if wanted(s) {
			shown = append(shown, consul.ShowSession(s))
		}
	}
	return shown
}

// sessionsWeight is what all sessions take in an answer.
func sessionsWeight(v *kv.View) func() int { return func() int { return 1024 * v.SessionCount() } }

// readSessions answers a read of sessions, which share one index.
func (h *Handler) readSessions(w http.ResponseWriter, r *http.Request, show func(*kv.View) []consul.Session) error {
	return h.consulRead(w, r, h.keySource(kv.Topic{Kind: kv.SessionsTopic}, func(v *kv.View) found {
		return found{index: uint64(v.SessionIndex()), weight: sessionsWeight(v), answer: func(w http.ResponseWriter, r *http.Request) error {
			return respondConsul(w, r, show(v))
		}}
	}))
}
