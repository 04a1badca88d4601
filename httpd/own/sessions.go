package own

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/order"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/consul"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// Bounds and defaults of sessions in our own API. The lock-delay is Consul's.
const (
	defaultTTL       = 15 * time.Second
	minTTL           = time.Second
	maxTTL           = 24 * time.Hour
	defaultLockDelay = 15 * time.Second
	maxLockDelay     = time.Duration(kv.MaxLockDelay)
)

// createSession is POST /v1/rollcall/sessions.
func (c call) createSession() (any, error) {
	op := web.Decode(c.Call, c.Limits().IgnoredBytes, decodeSessionRequest)
	if c.Err != nil {
		return nil, c.Err
	}
	op.ID = web.NewUUID()
	result, err := c.Coordinate(c.R.Context(), op)
	if err != nil {
		return nil, err
	}
	if result.Refusal != "" {
		return nil, web.BadRequest(result.Refusal)
	}
	return c.showWritten(result.Session)
}

func decodeSessionRequest(body []byte) (op kv.CreateSession, err error) {
	request := api.SessionRequest{TTL: defaultTTL.String(), LockDelay: defaultLockDelay.String()}
	if len(body) > 0 {
		dec := json.NewDecoder(bytes.NewReader(body))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&request); err != nil || dec.More() {
			return op, web.BadRequest(`the body must be a JSON object with name, ttl ("15s"), lock_delay ("15s") and behavior (release or delete), each of them optional`)
		}
	}
	if len(request.Name) > order.MaxName || !order.PlainText(request.Name) {
		return op, web.BadRequest(fmt.Sprintf("name must be UTF-8 of at most %d bytes without control characters", order.MaxName))
	}
	ttl, err := time.ParseDuration(request.TTL)
	if err != nil || ttl < minTTL || ttl > maxTTL {
		return op, web.BadRequest(fmt.Sprintf("ttl must be a duration from %v to %v, like %v", minTTL, maxTTL, defaultTTL))
	}
	delay, err := time.ParseDuration(request.LockDelay)
	if err != nil || delay < 0 || delay > maxLockDelay {
		return op, web.BadRequest(fmt.Sprintf("lock_delay must be a duration from 0s to %v, like %v", maxLockDelay, defaultLockDelay))
	}
	behavior, known := consul.ParseBehavior(request.Behavior)
	if !known {
		return op, web.BadRequest("behavior must be release or delete")
	}
	return kv.CreateSession{Name: request.Name, TTL: ttl.Milliseconds(), TTLText: request.TTL, LockDelay: int64(delay), Behavior: behavior}, nil
}

func noSession(id string) error {
	text := fmt.Sprintf("there is no session %q: it ended, or never was; what it held is lost", id)
	return &web.Refusal{Status: http.StatusNotFound, Text: text}
}

// renewSession is PUT /v1/rollcall/sessions/{id}/renew.
func (c call) renewSession() (any, error) {
	id := strings.ToLower(c.Segment("id"))
	result, err := c.Coordinate(c.R.Context(), kv.RenewSession{ID: id})
	if err != nil {
		return nil, err
	}
	if !result.OK {
		return nil, noSession(id)
	}
	return c.showWritten(result.Session)
}

// destroySession is DELETE /v1/rollcall/sessions/{id}.
func (c call) destroySession() (any, error) {
	id := strings.ToLower(c.Segment("id"))
	result, err := c.Coordinate(c.R.Context(), kv.DestroySession{ID: id})
	if err != nil {
		return nil, err
	}
	if result.Index == 0 {
		return nil, noSession(id)
	}
	return api.Destroyed{Destroyed: true}, nil
}

// getSession is GET /v1/rollcall/sessions/{id}.
func (c call) getSession() (any, error) {
	id := strings.ToLower(c.Segment("id"))
	return c.readCoordination(c.KVSource(kv.Topic{Kind: kv.SessionsTopic}, func(v *kv.View) web.Found {
		s, index := v.Session(id)
		return web.Found{Index: uint64(index), Absent: s == nil, Document: func() (any, error) {
			if s == nil {
				return nil, noSession(id)
			}
			return Session(v, c.CoordinationClock(v), s), nil
		}}
	}))
}

// listSessions is GET /v1/rollcall/sessions, by id.
func (c call) listSessions() (any, error) {
	return c.readCoordination(c.KVSource(kv.Topic{Kind: kv.SessionsTopic}, func(v *kv.View) web.Found {
		return web.Found{Index: uint64(v.SessionIndex()), Weight: web.SessionsWeight(v), Document: func() (any, error) {
			now := c.CoordinationClock(v)
			return listed(v.Sessions(), func(s *kv.Session) api.Session { return Session(v, now, s) }), nil
		}}
	}))
}

// showWritten shows a session that was just written, with what this node knows it holds.
func (c call) showWritten(s *kv.Session) (any, error) {
	v, err := c.Coordination.View(c.R.Context(), registry.Stale)
	if err != nil {
		return nil, err
	}
	return Session(v, c.CoordinationClock(v), s), nil
}
