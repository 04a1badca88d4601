package client

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/client/internal/fake"
	"github.com/seed-20419f34/rollcall/httpd/api"
)

// coordinator is a fake server in memory, of one lock or semaphore ("demo") and of keys. It has the routes, parameters
// and responses of Rollcall's own API, and of Consul's API for keys, and no others, with the rules for TTLs, the queue,
// lock delays, blocking reads and tokens. Any other request fails the test.
type coordinator struct {
	t        *testing.T
	mu       sync.Mutex
	sessions map[string]*fakeSession
	created  int // sessions so far; the newest has the id "s" and this number
	index    int // of the newest change or acquisition
	limit    int // of demo; 0: not fixed yet
	holders  []fakeHolder
	queue    []string                                    // ids of the sessions that wait
	fault    func(*http.Request) (*http.Response, error) // see setFault
	// losesResponse says of a request that it is performed, and that its response is lost; nil: none is.
	losesResponse func(*http.Request) bool
	calls         []string // every request so far, as "METHOD path"

	pairs        map[string]*Pair               // by key
	delayedUntil map[string]time.Time           // end of a key's lock delay, until which no session can acquire it
	responses    map[string]func() keysResponse // by Idempotency-Key
	changed      chan struct{}                  // closed at the next change of a key
}

type fakeSession struct {
	ttl     time.Duration
	request api.SessionRequest
	renewed time.Time
}

type fakeHolder struct {
	session string
	fence   int
	value   string
}

func newCoordinator(t *testing.T) *coordinator {
	return &coordinator{
		t: t, sessions: make(map[string]*fakeSession), index: 40, pairs: make(map[string]*Pair), delayedUntil: make(map[string]time.Time),
		responses: make(map[string]func() keysResponse), changed: make(chan struct{}),
	}
}

// coordinated runs a test in a bubble, with a coordinator and a client of it; as a subtest if it is given a name.
func coordinated(t *testing.T, name string, test func(t *testing.T, k *coordinator, c *Client)) {
	fake.InBubble(t, name, func(t *testing.T) {
		s := newCoordinator(t)
		test(t, s, clientOf(t, fake.Servers{"a": s.respond}, "a"))
	})
}

// respond is the server: it records the request, then the fault responds, or respondJSON, or respondKeys.
func (s *coordinator) respond(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err // a request that is over is not sent
	}
	s.mu.Lock()
	s.calls = append(s.calls, r.Method+" "+r.URL.Path)
	fault, losesResponse := s.fault, s.losesResponse
	s.mu.Unlock()
	if fault != nil {
		if resp, err := fault(r); resp != nil || err != nil {
			return resp, err
		}
	}
	body, _ := io.ReadAll(r.Body)
	respond := s.respondJSON
	if strings.HasPrefix(r.URL.Path, "/v1/kv/") {
		respond = s.respondKeys
	}
	resp, err := respond(r, body)
	if losesResponse != nil && losesResponse(r) {
		return nil, io.ErrUnexpectedEOF
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return resp, err
}

// requests are all that came so far, as "METHOD path".
func (s *coordinator) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

func (s *coordinator) respondJSON(r *http.Request, body []byte) (*http.Response, error) {
	status, document := s.serve(r, body)
	text, err := json.Marshal(document)
	if err != nil {
		s.t.Error(err)
	}
	return fake.Respond(status, string(text))
}

func (s *coordinator) serve(r *http.Request, body []byte) (int, any) {
	path, ok := strings.CutPrefix(r.URL.Path, "/v1/rollcall/")
	parts := strings.Split(path, "/")
	q := r.URL.Query()
	switch {
	case !ok:
	case r.Method == "POST" && path == "sessions":
		return s.create(body)
	case r.Method == "PUT" && len(parts) == 3 && parts[0] == "sessions" && parts[2] == "renew":
		return s.renew(parts[1])
	case r.Method == "DELETE" && len(parts) == 2 && parts[0] == "sessions":
		return s.destroy(parts[1])
	case r.Method == "PUT" && path == "locks/demo":
		s.checkParameters(q, "session", "wait")
		return s.acquire(r, q, string(body), 1)
	case r.Method == "PUT" && path == "semaphores/demo":
		s.checkParameters(q, "session", "wait", "limit")
		var limit int
		fmt.Sscan(q.Get("limit"), &limit)
		return s.acquire(r, q, string(body), limit)
	case r.Method == "DELETE" && (path == "locks/demo" || path == "semaphores/demo"):
		s.checkParameters(q, "session", "fence")
		return s.release(q)
	}
	s.t.Errorf("unexpected request: %s %s", r.Method, r.URL)
	return 404, nil
}

// checkParameters fails the test if the query has other parameters than these.
func (s *coordinator) checkParameters(q url.Values, known ...string) {
	for name := range q {
		if !slices.Contains(known, name) {
			s.t.Errorf("unexpected parameter %s", name)
		}
	}
}

func (s *coordinator) create(body []byte) (int, any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var request api.SessionRequest
	if err := json.Unmarshal(body, &request); err != nil {
		return 400, map[string]string{"error": err.Error()}
	}
	ttl, err := time.ParseDuration(request.TTL)
	if err != nil {
		return 400, map[string]string{"error": err.Error()}
	}
	s.created++
	id := fmt.Sprintf("s%d", s.created)
	s.sessions[id] = &fakeSession{ttl: ttl, request: request, renewed: time.Now()}
	return 200, map[string]string{"id": id}
}

func (s *coordinator) renew(id string) (int, any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	session := s.sessions[id]
	if session == nil {
		return 404, map[string]string{"error": "no such session"}
	}
	session.renewed = time.Now()
	return 200, map[string]string{"id": id}
}

func (s *coordinator) destroy(id string) (int, any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions[id] == nil {
		return 404, map[string]string{"error": "no such session"}
	}
	if s.holderIndex(id) >= 0 || s.holdsKey(id) {
		s.t.Errorf("session %s was destroyed while it held the lock, which leaves a lock delay", id)
	}
	s.endSession(id)
	return 200, map[string]bool{"destroyed": true}
}

func (s *coordinator) expire() {
	for id, session := range s.sessions {
		if time.Since(session.renewed) >= session.ttl {
			s.endSession(id)
		}
	}
}

func (s *coordinator) endSession(id string) {
	s.releaseKeysOf(id)
	delete(s.sessions, id)
	s.queue = slices.DeleteFunc(s.queue, func(q string) bool { return q == id })
	s.holders = slices.DeleteFunc(s.holders, func(h fakeHolder) bool { return h.session == id })
}

// holderIndex is where a session stands among the holders of the lock; -1: it is none.
func (s *coordinator) holderIndex(id string) int {
	return slices.IndexFunc(s.holders, func(h fakeHolder) bool { return h.session == id })
}

// acquire waits as the server does. A session whose wait is over, or whose client hung up, leaves the queue.
func (s *coordinator) acquire(r *http.Request, q url.Values, value string, limit int) (int, any) {
	id := q.Get("session")
	patience, _ := time.ParseDuration(q.Get("wait"))
	if limit < 1 {
		s.t.Errorf("limit %d", limit)
	}
	for end := time.Now().Add(patience); ; {
		status, document, done := s.grant(id, value, limit, patience > 0)
		if done || r.Context().Err() != nil || !time.Now().Before(end) {
			s.leaveQueue(id)
			return status, document
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-r.Context().Done():
		}
	}
}

func (s *coordinator) leaveQueue(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = slices.DeleteFunc(s.queue, func(q string) bool { return q == id })
}

// grant gives the lock to a session if that is first in the queue and a permit is free. done says that waiting is no use:
// the session has it, or can never get it.
func (s *coordinator) grant(id, value string, limit int, queue bool) (status int, document any, done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	if s.sessions[id] == nil {
		return 404, map[string]string{"error": "no such session"}, true
	}
	if len(s.holders)+len(s.queue) == 0 {
		s.limit = limit
	}
	if limit != s.limit {
		return 409, map[string]any{"error": fmt.Sprintf("the limit is %d", s.limit)}, true
	}
	first := len(s.queue) == 0 || s.queue[0] == id
	if at := s.holderIndex(id); at < 0 && first && len(s.holders) < limit {
		s.index++
		s.holders = append(s.holders, fakeHolder{session: id, fence: s.index, value: value})
	}
	if at := s.holderIndex(id); at >= 0 {
		return 200, map[string]any{"acquired": true, "fence": s.holders[at].fence}, true
	}
	if queue && !slices.Contains(s.queue, id) {
		s.queue = append(s.queue, id)
	}
	var holders []map[string]any
	for _, h := range s.holders {
		holders = append(holders, map[string]any{"session": h.session, "fence": h.fence, "value": []byte(h.value)})
	}
	return 200, map[string]any{"acquired": false, "place": slices.Index(s.queue, id) + 1, "holders": holders}, false
}

func (s *coordinator) release(q url.Values) (int, any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	id := q.Get("session")
	s.queue = slices.DeleteFunc(s.queue, func(queued string) bool { return queued == id })
	at := s.holderIndex(id)
	if at < 0 || q.Has("fence") && q.Get("fence") != fmt.Sprint(s.holders[at].fence) {
		return 200, map[string]bool{"released": false}
	}
	s.holders = slices.Delete(s.holders, at, at+1)
	return 200, map[string]bool{"released": true}
}

// setFault has requests answered by fault in place of the server. A fault that returns neither a response nor an error
// leaves the request to the server; nil: there is no fault any more.
func (s *coordinator) setFault(fault func(*http.Request) (*http.Response, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// leftovers counts what clients left behind: sessions, holders and waiters.
func (s *coordinator) leftovers() (sessions, holders, waiters int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions), len(s.holders), len(s.queue)
}

func (s *coordinator) count(call string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, c := range s.calls {
		if c == call {
			n++
		}
	}
	return n
}

// keysResponse is a status, a text and the values of headers.
type keysResponse struct {
	status       int
	text         string
	index, fence uint64
}

func (s *coordinator) respondKeys(r *http.Request, body []byte) (*http.Response, error) {
	key := strings.TrimPrefix(r.URL.Path, "/v1/kv/")
	q := r.URL.Query()
	var response keysResponse
	switch r.Method {
	case "GET":
		s.checkParameters(q, "recurse", "index", "wait", "consistent")
		response = s.awaitKeys(r, key, q)
	default:
		s.checkParameters(q, "flags", "cas", "acquire", "release")
		response = s.writeKeyOnce(r, key, q, body)
	}
	return fake.Respond(response.status, response.text, "X-Consul-Index", fmt.Sprint(max(response.index, 1)), "X-Rollcall-Fence", fmt.Sprint(response.fence))
}

// awaitKeys reads, and waits as the server does until the index of what is read differs from the one of the request.
func (s *coordinator) awaitKeys(r *http.Request, key string, q url.Values) keysResponse {
	if !q.Has("consistent") {
		s.t.Errorf("read of %q: not linearizable", key)
	}
	behind, _ := strconv.ParseUint(q.Get("index"), 10, 64)
	patience, _ := time.ParseDuration(q.Get("wait"))
	over := time.After(patience)
	for {
		response, changed := s.readKeys(key, q.Has("recurse"))
		if response.index != behind {
			return response
		}
		select {
		case <-changed:
		case <-time.After(time.Second): // sessions end without a request
		case <-over:
			return response
		case <-r.Context().Done():
			return response
		}
	}
}

// readKeys is a read that does not wait.
func (s *coordinator) readKeys(key string, recurse bool) (keysResponse, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	var found []Pair
	for _, name := range slices.Sorted(maps.Keys(s.pairs)) {
		if name == key || recurse && strings.HasPrefix(name, key) {
			found = append(found, *s.pairs[name])
		}
	}
	response := keysResponse{status: 404, index: uint64(s.index)}
	if len(found) > 0 {
		text, _ := json.Marshal(found)
		response.status, response.text = 200, string(text)
	}
	if len(found) == 1 && !recurse {
		response.index, response.fence = found[0].ModifyIndex, found[0].Fence
	}
	return response, s.changed
}

// writeKeyOnce performs a write, unless one with its Idempotency-Key was performed: then it repeats that one's response.
func (s *coordinator) writeKeyOnce(r *http.Request, key string, q url.Values, body []byte) keysResponse {
	s.mu.Lock()
	defer s.mu.Unlock()
	once := cmp.Or(r.Header.Get("Idempotency-Key"), fmt.Sprint(len(s.responses)))
	if was := s.responses[once]; was != nil {
		return was()
	}
	s.expire()
	response := s.writeKey(r.Method, key, q, body)
	s.responses[once] = func() keysResponse { return response }
	return response
}

func (s *coordinator) writeKey(method, key string, q url.Values, body []byte) keysResponse {
	yes, no := keysResponse{status: 200, text: "true"}, keysResponse{status: 200, text: "false"}
	pair := s.pairs[key]
	if method == "DELETE" {
		delete(s.pairs, key)
		s.recordChange()
		return yes
	}
	was := Pair{Key: key}
	if pair != nil {
		was = *pair
	}
	is := was
	is.Value = body
	is.Flags, _ = strconv.ParseUint(q.Get("flags"), 10, 64)
	switch {
	case q.Has("acquire") && s.sessions[q.Get("acquire")] == nil:
		return keysResponse{status: 500, text: fmt.Sprintf("raft apply failed: invalid session %q", q.Get("acquire"))}
	case q.Has("acquire") && was.Session != "" && was.Session != q.Get("acquire"),
		q.Has("acquire") && time.Now().Before(s.delayedUntil[key]),
		q.Has("release") && (was.Session == "" || was.Session != q.Get("release")),
		q.Has("cas") && q.Get("cas") != fmt.Sprint(was.ModifyIndex):
		return no
	case q.Has("acquire"):
		is.Session = q.Get("acquire")
	case q.Has("release"):
		is.Session = ""
	}
	s.recordChange()
	is.ModifyIndex = uint64(s.index)
	if was.Session != is.Session {
		is.Fence = is.ModifyIndex
	}
	s.pairs[key] = &is
	yes.fence = is.Fence
	return yes
}

// recordChange gives a change the next index, and wakes the readers that wait.
func (s *coordinator) recordChange() {
	s.index++
	close(s.changed)
	s.changed = make(chan struct{})
}

// holdsKey says whether a session holds a key on which the end of the session would put a lock delay.
func (s *coordinator) holdsKey(session string) bool {
	for _, pair := range s.pairs {
		if pair.Session == session && s.sessions[session].request.Behavior != "delete" {
			return true
		}
	}
	return false
}

// releaseKeysOf releases the keys of a session that ends, or deletes them, and puts the session's lock delay on them.
func (s *coordinator) releaseKeysOf(session string) {
	request := s.sessions[session].request
	delay, _ := time.ParseDuration(request.LockDelay)
	for name, e := range s.pairs {
		if e.Session != session {
			continue
		}
		s.recordChange()
		s.delayedUntil[name] = time.Now().Add(delay)
		e.Session, e.Fence, e.ModifyIndex = "", 0, uint64(s.index)
		if request.Behavior == "delete" {
			delete(s.pairs, name)
		}
	}
}

func (s *coordinator) setKey(key, value string, flags uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writeKey("PUT", key, url.Values{"flags": {fmt.Sprint(flags)}}, []byte(value))
}

// pair is a key with its value; the zero Pair if there is none.
func (s *coordinator) pair(key string) Pair {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	if e := s.pairs[key]; e != nil {
		return *e
	}
	return Pair{}
}

func (s *coordinator) expireSession(session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endSession(session)
}

// keys are the keys that have a value, in order.
func (s *coordinator) keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.pairs))
}

func (s *coordinator) deleteKey(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writeKey("DELETE", key, nil, nil)
}

func (s *coordinator) releaseKey(key, session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writeKey("PUT", key, url.Values{"release": {session}}, nil)
}
