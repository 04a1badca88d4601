package client

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/client/internal/fake"
	"github.com/seed-20419f34/rollcall/fsm/fsmtest"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/consul"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// coordinator is a server in memory, with the routes and the state of a leading node. It records requests, and a test
// can make it fail.
type coordinator struct {
	t      *testing.T
	memory *fsmtest.Memory
	kv     *fsmtest.Coordination
	server http.Handler

	mu    sync.Mutex                                  // guards the fields below
	fault func(*http.Request) (*http.Response, error) // see setFault
	// losesResponse reports whether a request is performed but its response lost. May be nil.
	losesResponse func(*http.Request) bool
	calls         []string           // every request so far, as "METHOD path"
	ids           []string           // ids of the sessions that clients created, in order
	request       api.SessionRequest // the newest
}

// newCoordinator returns a coordinator that ends whatever has expired every five seconds, until the test ends.
func newCoordinator(t *testing.T) *coordinator {
	s := &coordinator{t: t, memory: fsmtest.New()}
	s.kv = fsmtest.NewCoordination(s.memory)
	s.server = need.Got(httpd.New(httpd.Config{Service: s.memory, Coordination: s.kv, Agents: consul.OneAgent}))(t)
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	go func() {
		for tick := time.Tick(5 * time.Second); ; {
			select {
			case <-tick:
				s.memory.Set(func(m *fsmtest.Memory) { m.Registry.Advance(m.Stamp()) })
				s.kv.Due()
			case <-stop:
				return
			}
		}
	}()
	return s
}

// coordinated runs a test in a bubble, with a coordinator and a client of it; as a subtest if name is not empty.
func coordinated(t *testing.T, name string, test func(t *testing.T, k *coordinator, c *Client)) {
	fake.InBubble(t, name, func(t *testing.T) {
		s := newCoordinator(t)
		test(t, s, clientOf(t, fake.Servers{"a": s.respond}, "a"))
	})
}

// respond is the server: it records the request, then the fault responds, or the server's routes.
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
	resp := s.serve(r)
	if losesResponse != nil && losesResponse(r) {
		return nil, io.ErrUnexpectedEOF
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return resp, nil
}

// serve has the server's routes respond. The test fails if a read is not linearizable, or if a session ends that
// still holds something and so leaves a lock delay.
func (s *coordinator) serve(r *http.Request) *http.Response {
	var body []byte
	if r.Body != nil {
		body = need.Got(io.ReadAll(r.Body))(s.t)
	}
	if id, ok := strings.CutPrefix(r.URL.Path, "/v1/rollcall/sessions/"); ok && r.Method == "DELETE" {
		for f := range s.view().Held(id) {
			s.t.Errorf("session %s was destroyed while it held %+v, which leaves a lock-delay", id, f)
		}
	}
	served := httptest.NewRequestWithContext(r.Context(), r.Method, r.URL.String(), bytes.NewReader(body))
	served.Header = r.Header.Clone()
	w := httptest.NewRecorder()
	s.server.ServeHTTP(w, served)
	if w.Code == http.StatusOK && r.Method == "POST" && r.URL.Path == "/v1/rollcall/sessions" {
		var created api.Session
		need.OK(s.t, json.Unmarshal(w.Body.Bytes(), &created))
		s.mu.Lock()
		s.ids, s.request = append(s.ids, created.ID), api.SessionRequest{}
		need.OK(s.t, json.Unmarshal(body, &s.request))
		s.mu.Unlock()
	}
	return w.Result()
}

// requests returns all that arrived so far, as "METHOD path".
func (s *coordinator) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

func (s *coordinator) count(call string) int {
	return len(slices.DeleteFunc(s.requests(), func(c string) bool { return c != call }))
}

// setFault makes fault respond instead of the server. If the fault returns neither a response nor an error, the
// request goes to the server. Nil removes the fault.
func (s *coordinator) setFault(fault func(*http.Request) (*http.Response, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// id returns the ID of the nth session that was created, counting from 1, or "" if it does not exist yet.
func (s *coordinator) id(nth int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if nth > len(s.ids) {
		return ""
	}
	return s.ids[nth-1]
}

func (s *coordinator) renewals(nth int) int {
	return s.count("PUT /v1/rollcall/sessions/" + s.id(nth) + "/renew")
}

func (s *coordinator) expireSession(id string) {
	s.memory.Set(func(*fsmtest.Memory) { s.kv.Perform(kv.DestroySession{ID: id}) })
}

func (s *coordinator) view() (v *kv.View) {
	s.memory.Set(func(*fsmtest.Memory) { v = s.kv.State.View() })
	return v
}

// leftovers counts what clients left behind: sessions, and the holders and waiters of the lock and the semaphore
// demo.
func (s *coordinator) leftovers() (sessions, holders, waiters int) {
	v := s.view()
	for _, kind := range []kv.Kind{kv.Lock, kv.Semaphore} {
		if p, _ := v.Permits(kind, "demo"); p != nil {
			holders, waiters = holders+len(p.Holders), waiters+len(p.Queue)
		}
	}
	return v.SessionCount(), holders, waiters
}

// fence returns the token of the only holder of the lock or the semaphore demo.
func (s *coordinator) fence() kv.Index {
	v := s.view()
	for _, kind := range []kv.Kind{kv.Lock, kv.Semaphore} {
		if p, _ := v.Permits(kind, "demo"); p != nil && len(p.Holders) == 1 {
			return p.Holders[0].Fence
		}
	}
	return 0
}
