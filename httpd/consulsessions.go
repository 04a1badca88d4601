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

// createSession is PUT session/create.
func (c *call) createSession() (any, error) {
	op := decoded(c, c.config.Limits.IgnoredBytes, consul.DecodeSession)
	if c.err != nil {
		return nil, c.err
	}
	op.ID = newUUID()
	result, err := c.persist(c.r.Context(), op)
	if err != nil {
		return nil, err
	}
	if result.Refusal != "" {
		return nil, consulError("apply failed: " + result.Refusal)
	}
	return struct{ ID string }{op.ID}, nil
}

// onSession performs an operation on the session that a path names.
func (c *call) onSession(op func(id string) kv.Op) (kv.Result, error) {
	id := c.session()
	if c.err != nil {
		return kv.Result{}, c.err
	}
	return c.persist(c.r.Context(), op(id))
}

// destroySession is PUT session/destroy/{id}. A session that there is not is destroyed, too.
func (c *call) destroySession() (any, error) {
	_, err := c.onSession(func(id string) kv.Op { return kv.DestroySession{ID: id} })
	return true, err
}

// renewSession is PUT session/renew/{id}.
func (c *call) renewSession() (any, error) {
	result, err := c.onSession(func(id string) kv.Op { return kv.RenewSession{ID: id} })
	if err != nil {
		return nil, err
	}
	if !result.OK {
		return nil, &refusal{status: http.StatusNotFound, text: "Session id '" + c.rest() + "' not found"}
	}
	return []consul.Session{consul.ShowSession(result.Session)}, nil
}

// sessionInfo is GET session/info/{id}: a list of one, or of none.
func (c *call) sessionInfo() (any, error) {
	id := c.session()
	return c.readSessions(func(v *kv.View) []consul.Session {
		if s, _ := v.Session(id); s != nil {
			return []consul.Session{consul.ShowSession(s)}
		}
		return []consul.Session{}
	})
}

// sessionsOfNode is GET session/node/{node}.
func (c *call) sessionsOfNode() (any, error) {
	node := c.rest()
	if node == "" {
		return nil, errMissingNode
	}
	node = consul.NodeOf(node)
	return c.readSessions(func(v *kv.View) []consul.Session {
		return showSessions(v, func(s *kv.Session) bool { return s.Node == node })
	})
}

// sessionList is GET session/list.
func (c *call) sessionList() (any, error) {
	return c.readSessions(func(v *kv.View) []consul.Session {
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
func (c *call) readSessions(show func(*kv.View) []consul.Session) (any, error) {
	return c.consulRead(c.keySource(kv.Topic{Kind: kv.SessionsTopic}, func(v *kv.View) found {
		return found{index: uint64(v.SessionIndex()), weight: sessionsWeight(v), answer: func() (any, error) {
			return show(v), nil
		}}
	}))
}

// session is the session that a path names.
func (c *call) session() string {
	id := strings.ToLower(c.rest())
	if id == "" && c.err == nil {
		c.err = errMissingSession
	}
	return id
}
