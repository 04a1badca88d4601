package consulroutes

import (
	"net/http"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/httpd/consul"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

var (
	errMissingSession = web.BadRequest("Missing session")
	errMissingNode    = web.BadRequest("Missing node name")
)

// createSession is PUT session/create.
func (c call) createSession() (any, error) {
	self := c.agent().node
	op := web.Decode(c.Call, c.Limits().IgnoredBytes, func(body []byte) (kv.CreateSession, error) {
		return consul.DecodeSession(body, self)
	})
	if c.Err == nil && op.Node != self {
		op.Node, c.Err = c.spelledNode(c.R.Context(), op.Node)
	}
	if c.Err != nil {
		return nil, c.Err
	}
	needs, err := c.sessionNeeds(op, self)
	if err == nil {
		err = c.Allow(needs...)
	}
	if err != nil {
		return nil, err
	}
	op.ID = web.NewUUID()
	result, err := c.CoordinateAwaitingLeader(c.R.Context(), op)
	if result.Refusal == kv.NoNode && op.Node == self { // so the checks can only be the logical node's
		op.Node = ""
		result, err = c.CoordinateAwaitingLeader(c.R.Context(), op)
	}
	if err != nil {
		return nil, err
	}
	if result.Refusal != "" {
		return nil, consulError("apply failed: " + result.Refusal)
	}
	return struct{ ID string }{op.ID}, nil
}

// onSession performs an operation on the session that a path names.
func (c call) onSession(op func(id string) kv.Op) (kv.Result, error) {
	id := c.session()
	if c.Err != nil {
		return kv.Result{}, c.Err
	}
	return c.CoordinateAwaitingLeader(c.R.Context(), op(id))
}

// destroySession is PUT session/destroy/{id}. It also succeeds if there is no such session.
func (c call) destroySession() (any, error) {
	_, err := c.onSession(func(id string) kv.Op { return kv.DestroySession{ID: id} })
	return true, err
}

// renewSession is PUT session/renew/{id}.
func (c call) renewSession() (any, error) {
	result, err := c.onSession(func(id string) kv.Op { return kv.RenewSession{ID: id} })
	if err != nil {
		return nil, err
	}
	if !result.OK {
		return nil, &web.Refusal{Status: http.StatusNotFound, Text: "Session id '" + c.Rest() + "' not found"}
	}
	return []consul.Session{consul.ShowSession(result.Session)}, nil
}

// sessionInfo is GET session/info/{id}: a list with the session, or an empty one.
func (c call) sessionInfo() (any, error) {
	id := c.session()
	return c.readSessions(func(v *kv.View) []consul.Session {
		if s, _ := v.Session(id); s != nil {
			return []consul.Session{consul.ShowSession(s)}
		}
		return []consul.Session{}
	})
}

// sessionsOfNode is GET session/node/{node}.
func (c call) sessionsOfNode() (any, error) {
	node := c.Rest()
	if node == "" {
		return nil, errMissingNode
	}
	node = consul.NodeOf(node)
	return c.readSessions(func(v *kv.View) []consul.Session {
		return showSessions(v, func(s *kv.Session) bool { return strings.EqualFold(s.Node, node) })
	})
}

// sessionList is GET session/list.
func (c call) sessionList() (any, error) {
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

// readSessions responds to a read of sessions, which share one index.
func (c call) readSessions(show func(*kv.View) []consul.Session) (any, error) {
	return c.consulRead(c.KVSource(kv.Topic{Kind: kv.SessionsTopic}, func(v *kv.View) web.Found {
		return web.Found{Index: uint64(v.SessionIndex()), Weight: web.SessionsWeight(v), Document: func() (any, error) {
			return show(v), nil
		}}
	}))
}

// session returns the session that a path names.
func (c call) session() string {
	id := strings.ToLower(c.Rest())
	if id == "" && c.Err == nil {
		c.Err = errMissingSession
	}
	return id
}
