package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/fsm/registry/registrytest"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/api"
)

// exampleCluster is a cluster of one server in memory, for the examples: the routes of the registry are the server's own, those
// of sessions, locks and keys are as much as the examples use. Nothing goes wrong in it, and no session ends by itself.
type exampleCluster struct {
	*httptest.Server
	registry *registrytest.Memory

	mu       sync.Mutex
	keys     map[string]string      // values
	fences   map[string]exampleHold // by "lock NAME" and "key NAME"
	sessions int
	granted  int
	changed  chan struct{} // closed by the next change of a lock
}

// exampleHold is the holder of a lock or key.
type exampleHold struct {
	session string
	fence   int
}

func newServer() *exampleCluster {
	s := newExampleCluster("")
	s.Start()
	return s
}

// newTLSServer is newServer with TLS, for requests that bear a token.
func newTLSServer(token string) *exampleCluster {
	s := newExampleCluster(token)
	s.StartTLS()
	return s
}

// newClient is a client of a server. end closes both.
func newClient() (c *client.Client, end func()) {
	server := newServer()
	c, err := client.New(client.Config{Servers: []string{server.URL}})
	check(err)
	return c, func() { c.Close(context.Background()); server.Close() }
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func newExampleCluster(token string) *exampleCluster {
	s := &exampleCluster{
		registry: registrytest.New(), keys: make(map[string]string), fences: make(map[string]exampleHold), changed: make(chan struct{}),
	}
	own, err := httpd.New(httpd.Config{Service: s.registry, Cluster: s, Node: "1"})
	check(err)
	routes := http.NewServeMux()
	for pattern, answer := range map[string]http.HandlerFunc{
		"/":                                      own.ServeHTTP,
		"POST /v1/rollcall/sessions":             s.createSession,
		"PUT /v1/rollcall/sessions/{id}/renew":   s.answerSession,
		"DELETE /v1/rollcall/sessions/{session}": s.endSession,
		"GET /v1/rollcall/locks/{name}":          s.lock,
		"PUT /v1/rollcall/locks/{name}":          s.acquire,
		"DELETE /v1/rollcall/locks/{name}":       s.release,
		"GET /v1/kv/{key}":                       s.get,
		"PUT /v1/kv/{key}":                       s.writeKey,
	} {
		routes.HandleFunc(pattern, answer)
	}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if token != "" && r.Header.Get("Authorization") != "Bearer "+token {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		r.Header.Del("Authorization")
		routes.ServeHTTP(w, r)
	}))
	return s
}

// Status implements httpd.Cluster.
func (s *exampleCluster) Status(context.Context) api.Status {
	now := s.registry.Newest()
	return api.Status{Mode: "cp", Leader: "1", Nodes: []api.NodeStatus{
		{ID: "1", HTTP: s.Listener.Addr().String(), Role: "leader", Index: fmt.Sprintf("%s-%d", now.Epoch(), now.Index())},
	}}
}

// change wakes those who wait for a lock. s.mu must be held.
func (s *exampleCluster) change() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// await waits for the next change, without s.mu, and says whether there was one.
func (s *exampleCluster) await(r *http.Request) bool {
	changed := s.changed
	s.mu.Unlock()
	defer s.mu.Lock()
	select {
	case <-changed:
		return true
	case <-r.Context().Done():
		return false
	}
}

func (s *exampleCluster) createSession(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions++
	fmt.Fprintf(w, `{"id":"session-%d"}`, s.sessions)
}

func (s *exampleCluster) answerSession(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, `{"id":%q}`, r.PathValue("id"))
}

func (s *exampleCluster) endSession(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.fences, func(_ string, h exampleHold) bool { return h.session == r.PathValue("session") })
	s.change()
	io.WriteString(w, `{"destroyed":true}`)
}

// grant makes a session the holder of what is free, and returns the holder. s.mu must be held.
func (s *exampleCluster) grant(name, session string) exampleHold {
	if _, held := s.fences[name]; !held {
		s.granted++
		s.fences[name] = exampleHold{session: session, fence: s.granted}
	}
	return s.fences[name]
}

func (s *exampleCluster) acquire(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name, session := "lock "+r.PathValue("name"), r.URL.Query().Get("session")
	for s.grant(name, session).session != session {
		if !r.URL.Query().Has("wait") || !s.await(r) {
			io.WriteString(w, `{"acquired":false}`)
			return
		}
	}
	fmt.Fprintf(w, `{"acquired":true,"fence":%d}`, s.fences[name].fence)
}

func (s *exampleCluster) release(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := "lock " + r.PathValue("name")
	held := s.fences[name].session == r.URL.Query().Get("session")
	if held {
		delete(s.fences, name)
		s.change()
	}
	fmt.Fprintf(w, `{"released":%t}`, held)
}

func (s *exampleCluster) lock(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, held := s.fences["lock "+r.PathValue("name")]
	if !held {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	json.NewEncoder(w).Encode(map[string]any{"holders": []map[string]any{{"session": h.session, "fence": h.fence}}})
}

func (s *exampleCluster) get(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := r.PathValue("key")
	value, ok := s.keys[key]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	json.NewEncoder(w).Encode([]map[string]any{{"Key": key, "Value": []byte(value), "Session": s.fences["key "+key].session}})
}

func (s *exampleCluster) writeKey(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	key, q := r.PathValue("key"), r.URL.Query()
	s.mu.Lock()
	defer s.mu.Unlock()
	ok := true
	if q.Has("acquire") {
		h := s.grant("key "+key, q.Get("acquire"))
		ok = h.session == q.Get("acquire")
		w.Header().Set("X-Rollcall-Fence", strconv.Itoa(h.fence))
	}
	if q.Has("fence-lock") {
		h, held := s.fences["lock "+q.Get("fence-lock")]
		ok = ok && held && strconv.Itoa(h.fence) == q.Get("fence")
	}
	if ok {
		s.keys[key] = string(body)
		s.change()
	}
	fmt.Fprintln(w, ok)
}

// instance is one that another process registered.
func instance(app, id, zone string) *registry.Instance {
	return &registry.Instance{
		InstanceID: id, HostName: id, App: strings.ToUpper(app), IPAddr: "10.0.0.1", Status: registry.Up,
		Port: registry.Port{Number: 8080, Enabled: true}, DataCenter: registry.DataCenter{Name: registry.MyOwn},
		VIP: app + ".internal", Metadata: []registry.Pair{{Key: "zone", Value: zone}}, LastDirty: 1,
	}
}

func newService(text string) *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text) }))
}

func instanceAt(server *httptest.Server, app string) *registry.Instance {
	address := server.Listener.Addr().(*net.TCPAddr)
	i := instance(app, app+"-1", "a")
	i.HostName, i.IPAddr, i.Port.Number = address.IP.String(), address.IP.String(), uint16(address.Port)
	return i
}

// What the services of the examples do.
func pingDatabase(context.Context) error                 { return nil }
func stopServing(context.Context)                        {}
func makeReport(context.Context) ([]byte, error)         { return []byte("42"), nil }
func schedule(ctx context.Context, token kv.Fence) error { return nil }
