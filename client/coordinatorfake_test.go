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

	"github.com/seed-20419f34/rollcall/httpd/api"
)

// coordinator is a server of one lock ("demo") or semaphore in memory, and of keys: the routes, parameters and
// answers of Rollcall's own API, and of Consul's for keys, and no others, with the rules for TTLs, queue,
// lock-delays, blocking reads and tokens.
type coordinator struct {
	t        *testing.T
	mu       sync.Mutex
	sessions map[string]*fakeSession
	made     int
	index    int
	limit    int // 0: not fixed yet
	holders  []fakeHolder
	queue    []string // sessions
	refuse   func(*http.Request) (*http.Response, error)
	// mislay performs a request and loses its response, if it says so.
	mislay func(*http.Request) bool
	calls  []string // METHOD path, values of sessions' ids included

	entries   map[string]*Pair               // keys
	delays    map[string]time.Time           // until when a key cannot be acquired
	responses map[string]func() keysResponse // by Idempotency-Key
	changed   chan struct{}                  // closed at the next change of a key
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
		t: t, sessions: make(map[string]*fakeSession), index: 40, entries: make(map[string]*Pair), delays: make(map[string]time.Time),
		responses: make(map[string]func() keysResponse), changed: make(chan struct{}),
	}
}

// coordinated runs a test in a bubble, with a coordinator and a client of it; as a subtest if it is given a name.
func coordinated(t *testing.T, name string, test func(t *testing.T, k *coordinator, c *Client)) {
	inBubble(t, name, func(t *testing.T) {
		k := newCoordinator(t)
		test(t, k, servers{"a": k.respond}.client(t, "a"))
	})
}

// respond is one server of the cluster.
func (s *coordinator) respond(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err // it is not sent
	}
	s.mu.Lock()
	s.calls = append(s.calls, r.Method+" "+r.URL.Path)
	refuse, mislay := s.refuse, s.mislay
	s.mu.Unlock()
	if refuse != nil {
		if resp, err := refuse(r); resp != nil || err != nil {
			return resp, err
		}
	}
	body, _ := io.ReadAll(r.Body)
	respond := s.respondJSON
	if strings.HasPrefix(r.URL.Path, "/v1/kv/") {
		respond = s.respondKeys
	}
	resp, err := respond(r, body)
	if mislay != nil && mislay(r) {
		return nil, io.ErrUnexpectedEOF
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return resp, err
}

// asked are the calls that came so far.
func (s *coordinator) asked() []string {
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
	return responded(status, string(text))
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
		s.parameters(q, "session", "wait")
		return s.acquire(r, q, string(body), 1)
	case r.Method == "PUT" && path == "semaphores/demo":
		s.parameters(q, "session", "wait", "limit")
		var limit int
		fmt.Sscan(q.Get("limit"), &limit)
		return s.acquire(r, q, string(body), limit)
	case r.Method == "DELETE" && (path == "locks/demo" || path == "semaphores/demo"):
		s.parameters(q, "session", "fence")
		return s.release(q)
	}
	s.t.Errorf("unexpected request: %s %s", r.Method, r.URL)
	return 404, nil
}

// parameters complains of others than these.
func (s *coordinator) parameters(q url.Values, known ...string) {
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
	s.made++
	id := fmt.Sprintf("s%d", s.made)
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
	if s.holds(id) >= 0 || s.locked(id) {
		s.t.Errorf("session %s was destroyed while it held the lock, which leaves a lock-delay", id)
	}
	s.endSession(id)
	return 200, map[string]bool{"destroyed": true}
}

// expire ends the sessions whose TTL has passed.
func (s *coordinator) expire() {
	for id, session := range s.sessions {
		if time.Since(session.renewed) >= session.ttl {
			s.endSession(id)
		}
	}
}

func (s *coordinator) endSession(id string) {
	s.bereave(id)
	delete(s.sessions, id)
	s.queue = slices.DeleteFunc(s.queue, func(q string) bool { return q == id })
	s.holders = slices.DeleteFunc(s.holders, func(h fakeHolder) bool { return h.session == id })
}

func (s *coordinator) holds(id string) int {
	return slices.IndexFunc(s.holders, func(h fakeHolder) bool { return h.session == id })
}

// acquire waits as the server does, and lets a waiter that gives up leave the queue.
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
	if at := s.holds(id); at < 0 && first && len(s.holders) < limit {
		s.index++
		s.holders = append(s.holders, fakeHolder{session: id, fence: s.index, value: value})
	}
	if at := s.holds(id); at >= 0 {
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
	at := s.holds(id)
	if at < 0 || q.Has("fence") && q.Get("fence") != fmt.Sprint(s.holders[at].fence) {
		return 200, map[string]bool{"released": false}
	}
	s.holders = slices.Delete(s.holders, at, at+1)
	return 200, map[string]bool{"released": true}
}

// refusing makes the server answer otherwise; nil: as usual again.
func (s *coordinator) refusing(refuse func(*http.Request) (*http.Response, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = refuse
}

// left says what is left behind: sessions, holders and waiters.
func (s *coordinator) left() (sessions, holders, waiters int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions), len(s.holders), len(s.queue)
}

// count is how often a request was made.
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

func (k *coordinator) respondKeys(r *http.Request, body []byte) (*http.Response, error) {
	key := strings.TrimPrefix(r.URL.Path, "/v1/kv/")
	q := r.URL.Query()
	var a keysResponse
	switch r.Method {
	case "GET":
		k.parameters(q, "recurse", "index", "wait", "consistent")
		a = k.read(r, key, q)
	default:
		k.parameters(q, "flags", "cas", "acquire", "release")
		a = k.writeOnce(r, key, q, body)
	}
	return responded(a.status, a.text, "X-Consul-Index", fmt.Sprint(max(a.index, 1)), "X-Rollcall-Fence", fmt.Sprint(a.fence))
}

// read waits behind an index as the server does.
func (k *coordinator) read(r *http.Request, key string, q url.Values) keysResponse {
	if !q.Has("consistent") {
		k.t.Errorf("read of %q: not linearizable", key)
	}
	behind, _ := strconv.ParseUint(q.Get("index"), 10, 64)
	patience, _ := time.ParseDuration(q.Get("wait"))
	over := time.After(patience)
	for {
		a, changed := k.readKeys(key, q.Has("recurse"))
		if a.index != behind {
			return a
		}
		select {
		case <-changed:
		case <-time.After(time.Second): // sessions end without a request
		case <-over:
			return a
		case <-r.Context().Done():
			return a
		}
	}
}

// readKeys is a read that does not wait.
func (k *coordinator) readKeys(key string, recurse bool) (keysResponse, <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expire()
	var found []Pair
	for _, name := range slices.Sorted(maps.Keys(k.entries)) {
		if name == key || recurse && strings.HasPrefix(name, key) {
			found = append(found, *k.entries[name])
		}
	}
	a := keysResponse{status: 404, index: uint64(k.index)}
	if len(found) > 0 {
		text, _ := json.Marshal(found)
		a.status, a.text = 200, string(text)
	}
	if len(found) == 1 && !recurse {
		a.index, a.fence = found[0].ModifyIndex, found[0].Fence
	}
	return a, k.changed
}

// writeOnce answers a repeated write as it answered the first.
func (k *coordinator) writeOnce(r *http.Request, key string, q url.Values, body []byte) keysResponse {
	k.mu.Lock()
	defer k.mu.Unlock()
	once := cmp.Or(r.Header.Get("Idempotency-Key"), fmt.Sprint(len(k.responses)))
	if was := k.responses[once]; was != nil {
		return was()
	}
	k.expire()
	a := k.write(r.Method, key, q, body)
	k.responses[once] = func() keysResponse { return a }
	return a
}

func (k *coordinator) write(method, key string, q url.Values, body []byte) keysResponse {
	yes, no := keysResponse{status: 200, text: "true"}, keysResponse{status: 200, text: "false"}
	e := k.entries[key]
	if method == "DELETE" {
		delete(k.entries, key)
		k.change()
		return yes
	}
	was := Pair{Key: key}
	if e != nil {
		was = *e
	}
	is := was
	is.Value = body
	is.Flags, _ = strconv.ParseUint(q.Get("flags"), 10, 64)
	switch {
	case q.Has("acquire") && k.sessions[q.Get("acquire")] == nil:
		return keysResponse{status: 500, text: fmt.Sprintf("raft apply failed: invalid session %q", q.Get("acquire"))}
	case q.Has("acquire") && was.Session != "" && was.Session != q.Get("acquire"),
		q.Has("acquire") && time.Now().Before(k.delays[key]),
		q.Has("release") && (was.Session == "" || was.Session != q.Get("release")),
		q.Has("cas") && q.Get("cas") != fmt.Sprint(was.ModifyIndex):
		return no
	case q.Has("acquire"):
		is.Session = q.Get("acquire")
	case q.Has("release"):
		is.Session = ""
	}
	k.change()
	is.ModifyIndex = uint64(k.index)
	if was.Session != is.Session {
		is.Fence = is.ModifyIndex
	}
	k.entries[key] = &is
	yes.fence = is.Fence
	return yes
}

func (k *coordinator) change() {
	k.index++
	close(k.changed)
	k.changed = make(chan struct{})
}

// locked says whether a session has a lock, which its end would put a lock-delay on.
func (k *coordinator) locked(session string) bool {
	for _, e := range k.entries {
		if e.Session == session && k.sessions[session].request.Behavior != "delete" {
			return true
		}
	}
	return false
}

// bereave ends what a session holds.
func (k *coordinator) bereave(session string) {
	request := k.sessions[session].request
	delay, _ := time.ParseDuration(request.LockDelay)
	for name, e := range k.entries {
		if e.Session != session {
			continue
		}
		k.change()
		k.delays[name] = time.Now().Add(delay)
		e.Session, e.Fence, e.ModifyIndex = "", 0, uint64(k.index)
		if request.Behavior == "delete" {
			delete(k.entries, name)
		}
	}
}

// setKey writes a key as any client may.
func (k *coordinator) setKey(key, value string, flags uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.write("PUT", key, url.Values{"flags": {fmt.Sprint(flags)}}, []byte(value))
}

// entry is a key's entry, with no key if there is none.
func (k *coordinator) entry(key string) Pair {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expire()
	if e := k.entries[key]; e != nil {
		return *e
	}
	return Pair{}
}

// kill ends a session as its TTL does.
func (k *coordinator) kill(session string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.endSession(session)
}

// names are the keys there are.
func (k *coordinator) names() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Sorted(maps.Keys(k.entries))
}

// remove deletes a key as any client may.
func (k *coordinator) remove(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.write("DELETE", key, nil, nil)
}

// free releases a key in the holder's name.
func (k *coordinator) free(key, session string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.write("PUT", key, url.Values{"release": {session}}, nil)
}
