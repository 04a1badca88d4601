package consul

import (
	"cmp"
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/kv"
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
		return decodeSession(body, self)
	})
	if c.Err == nil && op.Node != self {
		op.Node, c.Err = c.spelledNode(op.Node)
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
	if result.Refusal == kv.NoNode && op.Node == self { // so only the logical node's checks can be meant
		op.Node = ""
		result, err = c.CoordinateAwaitingLeader(c.R.Context(), op)
	}
	if err != nil {
		return nil, err
	}
	if result.Refusal != "" {
		return nil, rejected("apply failed: %s", result.Refusal)
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

// destroySession is PUT session/destroy/{id}. It also succeeds if the session does not exist.
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
	return []session{showSession(result.Session)}, nil
}

// sessionInfo is GET session/info/{id}: a list with the session, or an empty one.
func (c call) sessionInfo() (any, error) {
	id := c.session()
	return c.readSessions(func(v *kv.View) []session {
		if s, _ := v.Session(id); s != nil {
			return []session{showSession(s)}
		}
		return []session{}
	})
}

// sessionsOfNode is GET session/node/{node}.
func (c call) sessionsOfNode() (any, error) {
	node := c.Rest()
	if node == "" {
		return nil, errMissingNode
	}
	node = nodeOf(node)
	return c.readSessions(func(v *kv.View) []session {
		return showSessions(v, func(s *kv.Session) bool { return strings.EqualFold(s.Node, node) })
	})
}

// sessionList is GET session/list.
func (c call) sessionList() (any, error) {
	return c.readSessions(func(v *kv.View) []session {
		return showSessions(v, func(*kv.Session) bool { return true })
	})
}

func showSessions(v *kv.View, wanted func(*kv.Session) bool) []session {
	shown := []session{} // an empty list, not null
	for s := range v.Sessions() {
		if wanted(s) {
			shown = append(shown, showSession(s))
		}
	}
	return shown
}

// readSessions responds to a read of sessions, which share one index.
func (c call) readSessions(show func(*kv.View) []session) (any, error) {
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

// defaultLockDelay is the lock-delay of a session that names none (hashicorp/consul, agent/session_endpoint.go).
const defaultLockDelay = 15 * time.Second

// ttlFactor is how many of its TTLs a session lives without a renewal. Consul's TTL is a lower bound, and its servers
// wait twice as long (hashicorp/consul, agent/consul/session_ttl.go). Clients count on that: Patroni asks for half of
// what it means, and has two primaries where a session ends sooner.
const ttlFactor = 2

// Bounds of a session's TTL, as clients give it.
const (
	minSessionTTL = 10 * time.Second
	maxSessionTTL = 24 * time.Hour
)

// session is a session in responses.
type session struct {
	ID, Name, Node string
	LockDelay      int64 // ns
	Behavior       string
	TTL            string   // as given
	Checks         []string `json:",omitempty"` // the legacy list, as given
	NodeChecks     []string
	ServiceChecks  []serviceCheck // nil if none, and shown so
	CreateIndex    kv.Index
	ModifyIndex    kv.Index
}

// serviceCheck names a check of a service.
type serviceCheck struct{ ID, Namespace string }

// behaviorWords are the words for what happens to a session's keys when it ends.
var behaviorWords = [...]string{kv.ReleaseKeys: "release", kv.DeleteKeys: "delete"}

// BehaviorWord returns the word for a behavior.
func BehaviorWord(b kv.Behavior) string { return behaviorWords[b] }

// ParseBehavior is the inverse of BehaviorWord; "" is the default.
func ParseBehavior(word string) (kv.Behavior, bool) {
	if word == "" {
		return kv.ReleaseKeys, true
	}
	at := slices.Index(behaviorWords[:], word)
	return kv.Behavior(max(at, 0)), at >= 0
}

// showSession returns a session as responses show it.
func showSession(s *kv.Session) session {
	shown := session{
		ID: s.ID, Name: s.Name, Node: ShownNode(s.Node), LockDelay: s.LockDelay, Behavior: BehaviorWord(s.Behavior), TTL: s.TTLText,
		Checks: s.Checks, NodeChecks: []string{}, CreateIndex: s.CreateIndex, ModifyIndex: s.ModifyIndex,
	}
	for _, id := range s.NodeChecks {
		if !slices.Contains(s.Checks, id) { // those act as checks of the node, and are shown as given
			shown.NodeChecks = append(shown.NodeChecks, id)
		}
	}
	for _, id := range s.ServiceChecks {
		shown.ServiceChecks = append(shown.ServiceChecks, serviceCheck{ID: id})
	}
	return shown
}

// sessionBody is a request for a session.
type sessionBody struct {
	Name, Node, Behavior, TTL string
	Namespace, Partition      string
	LockDelay                 lockDelay
	Checks, NodeChecks        checkList
	ServiceChecks             []serviceCheck
}

// decodeSession reads a request for a session, whose ID the caller draws. An empty body asks for the defaults. The
// session lives for ttlFactor times the TTL that it shows. self is the node of the agent that is asked, by the
// registry's name. Errors: a refusal.
func decodeSession(body []byte, self string) (kv.CreateSession, error) {
	request := sessionBody{LockDelay: lockDelay(defaultLockDelay)}
	if len(body) > 0 {
		if err := json.Unmarshal(body, &request); err != nil {
			return kv.CreateSession{}, undecodable(requestFailed, err)
		}
	}
	if n := len(request.Checks.ids) + len(request.NodeChecks.ids) + len(request.ServiceChecks); n > kv.MaxSessionChecks {
		return kv.CreateSession{}, malformed("Too many checks: a session may depend on %d, not on %d", kv.MaxSessionChecks, n)
	}
	refused := inDefault(request.Namespace, request.Partition)
	for _, c := range request.ServiceChecks {
		refused = cmp.Or(inDefault(c.Namespace, ""), refused)
	}
	if refused != nil {
		return kv.CreateSession{}, refused
	}
	behavior, ok := ParseBehavior(request.Behavior)
	if !ok {
		return kv.CreateSession{}, rejected("Invalid Behavior setting '%s'", request.Behavior)
	}
	ttl, err := sessionTTL(request.TTL)
	if err != nil {
		return kv.CreateSession{}, err
	}
	op := kv.CreateSession{
		Name: request.Name, TTL: ttlFactor * ttl, TTLText: request.TTL, LockDelay: int64(request.LockDelay), Behavior: behavior,
	}
	op.Checks, op.NodeChecks = checksInForce(request.Checks, request.NodeChecks)
	for _, c := range request.ServiceChecks {
		op.ServiceChecks = append(op.ServiceChecks, c.ID)
	}
	ofNode := slices.ContainsFunc(op.NodeChecks, func(id string) bool { return id != catalog.SerfHealth })
	op.Node = sessionNode(request.Node, self, ofNode || len(op.ServiceChecks) > 0)
	return op, nil
}

// sessionNode returns the node of a session, given as its request names it. If checked, the session depends on
// registered checks, which are those of the agent's node unless another one is named. Otherwise the session does not
// need the agent's node, which exists only as long as something is on it: the logical node stands in for it.
func sessionNode(given, self string, checked bool) string {
	node := nodeOf(given)
	switch {
	case given == "" && checked:
		return self
	case node == self && !checked:
		return ""
	}
	return node
}

// sessionTTL parses a given TTL into ms, or returns 0 without one.
func sessionTTL(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	ttl, err := time.ParseDuration(text)
	if err != nil {
		return 0, rejected("Session TTL '%s' invalid: %v", text, err)
	}
	if ttl != 0 && (ttl < minSessionTTL || ttl > maxSessionTTL) {
		return 0, rejected("Invalid Session TTL '%d', must be between [%v=%v]", ttl, minSessionTTL, maxSessionTTL)
	}
	return ttl.Milliseconds(), nil
}

// checksInForce returns the legacy list as responses show it, and the node's checks that the session depends on. A
// given list replaces the default; an empty legacy list means no checks at all.
func checksInForce(legacy, ofNode checkList) (shown, inForce []string) {
	inForce = []string{catalog.SerfHealth}
	if ofNode.given {
		inForce = ofNode.ids
	}
	switch {
	case !legacy.given, slices.Equal(legacy.ids, []string{catalog.SerfHealth}):
		return nil, inForce
	case len(legacy.ids) == 0:
		return nil, nil
	}
	inForce = slices.Clone(inForce)
	for _, id := range legacy.ids {
		if !slices.Contains(inForce, id) {
			inForce = append(inForce, id)
		}
	}
	return legacy.ids, inForce
}

// checkList is a list of check ids, where null differs from absent.
type checkList struct {
	given bool
	ids   []string
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *checkList) UnmarshalJSON(data []byte) error {
	c.given = true
	return json.Unmarshal(data, &c.ids)
}

// lockDelay is a lock-delay as clients write it: a text like "15s", or a number, of seconds below 1000 and of
// nanoseconds from there. A negative one counts as zero.
type lockDelay time.Duration

// UnmarshalJSON implements json.Unmarshaler.
func (l *lockDelay) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}
	if data[0] == '"' {
		var text string
		if err := json.Unmarshal(data, &text); err != nil {
			return err
		}
		delay, err := time.ParseDuration(text)
		*l = lockDelay(max(delay, 0))
		return err
	}
	number, err := strconv.ParseFloat(string(data), 64)
	if err != nil {
		return err
	}
	if number < 1000 {
		number *= float64(time.Second)
	}
	*l = lockDelay(min(max(number, 0), math.MaxInt64/2))
	return nil
}
