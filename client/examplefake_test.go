package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
)

// exampleCluster is a cluster of one server in memory, for the examples: the routes that they use, and
// nothing that goes wrong. Nothing in it ends by itself, neither leases nor sessions.
type exampleCluster struct {
	token string // that requests must bear; "": none

	mu        sync.Mutex
	instances map[registry.Key]*registry.Lease
	events    []string               // of watches; the number of an event is its index
	keys      map[string]string      // values
	fences    map[string]exampleHold // by "lock NAME" and "key NAME"
	sessions  int
	changed   chan struct{} // closed by the next change
}

// exampleHold is the holder of a lock or key.
type exampleHold struct {
	session string
	fence   int
}

func newServer() *httptest.Server { return httptest.NewServer(newExampleCluster().handler()) }

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

func newExampleCluster() *exampleCluster {
	return &exampleCluster{
		instances: make(map[registry.Key]*registry.Lease),
		keys:      make(map[string]string),
		fences:    make(map[string]exampleHold),
		changed:   make(chan struct{}),
	}
}

func (s *exampleCluster) handler() http.Handler {
	routes := http.NewServeMux()
	for pattern, answer := range map[string]http.HandlerFunc{
		"POST /eureka/apps/{app}":                s.register,
		"PUT /eureka/apps/{app}/{id}":            s.renew,
		"DELETE /eureka/apps/{app}/{id}":         s.cancel,
		"GET /eureka/apps":                       s.apps,
		"GET /eureka/apps/{app}":                 s.app,
		"GET /eureka/apps/{app}/{id}":            s.instance,
		"GET /v1/rollcall/apps":                  s.list,
		"GET /v1/rollcall/status":                s.status,
		"GET /v1/rollcall/watch":                 s.watch,
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
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.token != "" && r.Header.Get("Authorization") != "Bearer "+s.token {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		routes.ServeHTTP(w, r)
	})
}

// change wakes the watchers. s.mu must be held.
func (s *exampleCluster) change() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// record adds a change of an instance to what watchers get. s.mu must be held.
func (s *exampleCluster) record(action, why string, l *registry.Lease) {
	index := fmt.Sprintf("demo-%d", len(s.events)+1)
	s.events = append(s.events, fmt.Sprintf(
		`event: change`+"\n"+`id: %s`+"\n"+`data: {"index":%[1]q,"action":%q,"why":%q,"app":%q,"id":%q,"status":%q,"instance":%s}`+"\n\n",
		index, action, why, l.Instance.App, l.Instance.ID(), l.Instance.Status,
		eureka.AppendInstance(nil, eureka.Format{}, l, l.RenewedAt)))
	s.change()
}

func (s *exampleCluster) index() string { return fmt.Sprintf("demo-%d", len(s.events)) }

func (s *exampleCluster) register(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	i, err := eureka.DecodeRegistration(body, eureka.Format{}, r.PathValue("app"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	action := "MODIFIED"
	if s.instances[i.Key()] == nil {
		action = "ADDED"
	}
	interval, duration, _ := registry.ClampLease(i.RenewalInterval, i.Duration)
	s.instances[i.Key()] = &registry.Lease{Instance: i, Interval: interval, Duration: duration, RegisteredAt: 1}
	s.record(action, "registered", s.instances[i.Key()])
	w.WriteHeader(http.StatusNoContent)
}

func exampleKey(r *http.Request) registry.Key {
	return registry.NewKey(r.PathValue("app"), r.PathValue("id"))
}

func (s *exampleCluster) renew(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.instances[exampleKey(r)]
	dirty, _ := strconv.ParseInt(r.URL.Query().Get("lastDirtyTimestamp"), 10, 64)
	if l == nil || dirty > l.Instance.LastDirty {
		w.WriteHeader(http.StatusNotFound)
	}
}

func (s *exampleCluster) cancel(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.instances[exampleKey(r)]
	if l == nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	delete(s.instances, l.Key())
	s.record("DELETED", "canceled", l)
}

// of returns the leases of an application, or with "" all of them, sorted. s.mu must be held.
func (s *exampleCluster) of(app string) iter.Seq[*registry.Lease] {
	app = strings.ToUpper(app)
	keys := slices.SortedFunc(maps.Keys(s.instances), func(a, b registry.Key) int { return strings.Compare(a.String(), b.String()) })
	return func(yield func(*registry.Lease) bool) {
		for _, k := range keys {
			if (app == "" || k.App == app) && !yield(s.instances[k]) {
				return
			}
		}
	}
}

func (s *exampleCluster) apps(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("X-Rollcall-Index", s.index())
	w.Write(eureka.AppendApplications(nil, eureka.Format{}, "1", s.hash(), s.of("")))
}

func (s *exampleCluster) hash() string {
	count := make(map[string]int)
	for _, l := range s.instances {
		count[l.Instance.Status.String()]++
	}
	var b strings.Builder
	for _, status := range slices.Sorted(maps.Keys(count)) {
		fmt.Fprintf(&b, "%s_%d_", status, count[status])
	}
	return b.String()
}

func (s *exampleCluster) app(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := strings.ToUpper(r.PathValue("app"))
	w.Header().Set("X-Rollcall-Index", s.index())
	for range s.of(name) {
		w.Write(eureka.AppendApplication(nil, eureka.Format{}, name, s.of(name)))
		return
	}
	w.WriteHeader(http.StatusNotFound)
}

func (s *exampleCluster) instance(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.instances[exampleKey(r)]; l != nil {
		w.Write(eureka.AppendInstanceDocument(nil, eureka.Format{}, l, l.RenewedAt))
		return
	}
	w.WriteHeader(http.StatusNotFound)
}

func (s *exampleCluster) list(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows := []map[string]any{}
	for l := range s.of(r.URL.Query().Get("app")) {
		rows = append(rows, map[string]any{"app": l.Instance.App, "id": l.Instance.ID(), "status": l.Instance.Status.String()})
	}
	json.NewEncoder(w).Encode(rows)
}

func (s *exampleCluster) status(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	json.NewEncoder(w).Encode(map[string]any{
		"node": "1", "mode": "cp", "ready": true, "quorum": true, "leader": "1",
		"nodes": []map[string]any{{"id": "1", "http": r.Host, "role": "leader", "index": s.index()}},
	})
}

// watch streams the changes after an index, or those from now on.
func (s *exampleCluster) watch(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent := len(s.events)
	fmt.Sscanf(r.URL.Query().Get("index"), "demo-%d", &sent)
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprintf(w, "event: start\nid: demo-%d\ndata: {\"index\":\"demo-%[1]d\"}\n\n", sent)
	for {
		for ; sent < len(s.events); sent++ {
			io.WriteString(w, s.events[sent])
		}
		http.NewResponseController(w).Flush()
		if !s.await(r) {
			return
		}
	}
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
		s.events = append(s.events, "") // a token is an index
		s.fences[name] = exampleHold{session: session, fence: len(s.events)}
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

// newTLSServer is newServer with TLS, for requests that bear a token.
func newTLSServer(token string) *httptest.Server {
	s := newExampleCluster()
	s.token = token
	return httptest.NewTLSServer(s.handler())
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
