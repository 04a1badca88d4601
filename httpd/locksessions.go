package httpd

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/consul"
)

// Bounds and defaults of sessions in our own API. The lock-delay is Consul's.
const (
	defaultTTL       = 15 * time.Second
	minTTL           = time.Second
	maxTTL           = 24 * time.Hour
	defaultLockDelay = 15 * time.Second
	maxLockDelay     = time.Duration(kv.MaxLockDelay)
)

// kindWords are the words for what can be held.
var kindWords = [...]string{kv.Key: "key", kv.Lock: "lock", kv.Semaphore: "semaphore"}

// showSession shows a session at a moment (lease clock, ms).
func showSession(v *kv.View, now int64, s *kv.Session) api.Session {
	shown := api.Session{
		ID: s.ID, Name: s.Name, Node: consul.ShownNode(s.Node), TTL: s.TTLText, LockDelay: min(time.Duration(s.LockDelay), maxLockDelay).String(),
		Behavior: consul.BehaviorWord(s.Behavior), Created: s.CreatedWall, AgeMS: max(now-s.CreatedAt, 0), Holds: []api.Acquisition{},
	}
	if ends := v.Ends(s); ends != 0 {
		shown.EndsInMS = max(ends-now, 1)
	}
	for held := range v.Held(s.ID) {
		shown.Holds = append(shown.Holds, api.Acquisition{Kind: kindWords[held.Kind], Name: held.Name, Fence: uint64(held.Index)})
	}
	return shown
}

// coordinationClock is the lease clock (ms) at which a view is looked at.
func (h *Handler) coordinationClock(v *kv.View) int64 {
	return max(h.config.Service.Health().Clock, v.Lease())
}

// newSession is POST /v1/rollcall/sessions.
func (c *call) newSession() (any, error) {
	op := decoded(c, c.config.Limits.IgnoredBytes, decodeSessionRequest)
	if c.err != nil {
		return nil, c.err
	}
	op.ID = newUUID()
	result, err := c.coordinate(c.r.Context(), op)
	if err != nil {
		return nil, err
	}
	if result.Refusal != "" {
		return nil, badRequest(result.Refusal)
	}
	return c.showWritten(result.Session)
}

func decodeSessionRequest(body []byte) (op kv.CreateSession, err error) {
	asked := api.SessionRequest{TTL: defaultTTL.String(), LockDelay: defaultLockDelay.String()}
	if len(body) > 0 {
		dec := json.NewDecoder(bytes.NewReader(body))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&asked); err != nil || dec.More() {
			return op, badRequest(`the body must be a JSON object with name, ttl ("15s"), lock_delay ("15s") and behavior (release or delete), each of them optional`)
		}
	}
	if len(asked.Name) > maxNameBytes || !utf8.ValidString(asked.Name) || strings.ContainsFunc(asked.Name, unicode.IsControl) {
		return op, badRequest(fmt.Sprintf("name must be UTF-8 of at most %d bytes without control characters", maxNameBytes))
	}
	ttl, err := time.ParseDuration(asked.TTL)
	if err != nil || ttl < minTTL || ttl > maxTTL {
		return op, badRequest(fmt.Sprintf("ttl must be a duration from %v to %v, like %v", minTTL, maxTTL, defaultTTL))
	}
	delay, err := time.ParseDuration(asked.LockDelay)
	if err != nil || delay < 0 || delay > maxLockDelay {
		return op, badRequest(fmt.Sprintf("lock_delay must be a duration from 0s to %v, like %v", maxLockDelay, defaultLockDelay))
	}
	behavior, known := consul.ParseBehavior(asked.Behavior)
	if !known {
		return op, badRequest("behavior must be release or delete")
	}
	return kv.CreateSession{Name: asked.Name, TTL: ttl.Milliseconds(), TTLText: asked.TTL, LockDelay: int64(delay), Behavior: behavior}, nil
}

func noSession(id string) error {
	text := fmt.Sprintf("there is no session %q: it ended, or never was; what it held is lost", id)
	return &refusal{status: http.StatusNotFound, text: text}
}

// renewOwn is PUT /v1/rollcall/sessions/{id}/renew.
func (c *call) renewOwn() (any, error) {
	id := strings.ToLower(c.segment("id"))
	result, err := c.coordinate(c.r.Context(), kv.RenewSession{ID: id})
	if err != nil {
		return nil, err
	}
	if !result.OK {
		return nil, noSession(id)
	}
	return c.showWritten(result.Session)
}

// destroyOwn is DELETE /v1/rollcall/sessions/{id}.
func (c *call) destroyOwn() (any, error) {
	id := strings.ToLower(c.segment("id"))
	result, err := c.coordinate(c.r.Context(), kv.DestroySession{ID: id})
	if err != nil {
		return nil, err
	}
	if result.Index == 0 {
		return nil, noSession(id)
	}
	return api.Destroyed{Destroyed: true}, nil
}

// ownSession is GET /v1/rollcall/sessions/{id}.
func (c *call) ownSession() (any, error) {
	id := strings.ToLower(c.segment("id"))
	return c.ownRead(c.keySource(kv.Topic{Kind: kv.SessionsTopic}, func(v *kv.View) found {
		s, index := v.Session(id)
		return found{index: uint64(index), absent: s == nil, answer: func() (any, error) {
			if s == nil {
				return nil, noSession(id)
			}
			return showSession(v, c.coordinationClock(v), s), nil
		}}
	}))
}

// ownSessions is GET /v1/rollcall/sessions, by id.
func (c *call) ownSessions() (any, error) {
	return c.ownRead(c.keySource(kv.Topic{Kind: kv.SessionsTopic}, func(v *kv.View) found {
		return found{index: uint64(v.SessionIndex()), weight: sessionsWeight(v), answer: func() (any, error) {
			now := c.coordinationClock(v)
			shown := []api.Session{} // an empty list, not null
			for s := range v.Sessions() {
				shown = append(shown, showSession(v, now, s))
			}
			return shown, nil
		}}
	}))
}

// showWritten shows a session that was just written, with what it holds as far as this node knows.
func (c *call) showWritten(s *kv.Session) (any, error) {
	v, err := c.config.Coordination.View(c.r.Context(), registry.Stale)
	if err != nil {
		return nil, err
	}
	return showSession(v, c.coordinationClock(v), s), nil
}

// Coordination is what Consul's API, and our own of sessions, locks and semaphores, need of a node
// beyond the registry. Only a node with consensus has it.
type Coordination interface {
	kv.Service
	// WatchCatalog begins to wait for a change of an application (upper case; "": of any), of a node or of
	// a check; see registry.Watchers.Join.
	WatchCatalog(app string) (woken <-chan struct{}, leave func())
	// RaftAddresses are the node-to-node addresses of the leader ("": none is known) and of all voters,
	// sorted.
	RaftAddresses() (leader string, all []string)
}

// coordinate performs one operation on sessions, keys or locks, or fails soon if there is no leader: our own
// clients then go to another node.
func (h *Handler) coordinate(ctx context.Context, op kv.Op) (kv.Result, error) {
	return theOnly(h.config.Coordination.Apply(ctx, op))
}

// persist is coordinate that waits for a leader as long as Consul's clients need it.
func (h *Handler) persist(ctx context.Context, op kv.Op) (kv.Result, error) {
	return theOnly(untilLeader(ctx, func(ctx context.Context) ([]kv.Result, error) {
		return h.config.Coordination.Apply(ctx, op)
	}))
}

func theOnly(results []kv.Result, err error) (kv.Result, error) {
	if err != nil {
		return kv.Result{}, writeOutcome(err)
	}
	return results[0], nil
}

// once makes op one that is performed once, if the call has an Idempotency-Key.
func (c *call) once(op kv.Op) kv.Op {
	keys := c.r.Header["Idempotency-Key"]
	if len(keys) == 0 {
		return op
	}
	if key := keys[0]; key != "" && len(key) <= kv.MaxOnceKey {
		return kv.Once{Key: key, Op: op}
	}
	c.refuse("Idempotency-Key must have 1 to %d bytes", kv.MaxOnceKey)
	return op
}

// newUUID draws a random UUID (RFC 9562, version 4), in lower case.
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
