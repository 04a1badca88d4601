package load

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
)

// fakeCluster is servers that share one registry: per id the registered version, by the rule that the newer one
// stays.
type fakeCluster struct {
	nodes []*httptest.Server

	mu       sync.Mutex
	versions map[string]int64
	seen     []seen
	verdict  func(seen) int // status of a request that is not done; 0: it is done. nil: all are
}

// seen is a request that came.
type seen struct {
	node    int
	method  string
	id      string
	version int64 // of registrations and renewals
}

func newFakeCluster(t *testing.T, nodes int) *fakeCluster {
	c := &fakeCluster{versions: make(map[string]int64)}
	for n := range nodes {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { c.serve(n, w, r) }))
		t.Cleanup(server.Close)
		c.nodes = append(c.nodes, server)
	}
	return c
}

// addrs are the servers' addresses, host:port.
func (c *fakeCluster) addrs() []string {
	var all []string
	for _, s := range c.nodes {
		all = append(all, s.Listener.Addr().String())
	}
	return all
}

func (c *fakeCluster) serve(node int, w http.ResponseWriter, r *http.Request) {
	s, err := sight(node, r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = append(c.seen, s)
	if c.verdict != nil {
		if status := c.verdict(s); status != 0 {
			w.WriteHeader(status)
			return
		}
	}
	c.do(w, s)
}

// sight reads a request.
func sight(node int, r *http.Request) (seen, error) {
	app, id, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/eureka/v2/apps/"), "/")
	s := seen{node: node, method: r.Method, id: id}
	if r.Method != http.MethodPost {
		return s, nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return s, err
	}
	i, err := eureka.DecodeRegistration(body, eureka.Format{}, app)
	if err != nil {
		return s, err
	}
	s.id, s.version = i.ID(), i.LastDirty-dirtyBase
	return s, nil
}

func (c *fakeCluster) do(w http.ResponseWriter, s seen) {
	version, ok := c.versions[s.id]
	switch {
	case s.method == http.MethodPost:
		c.versions[s.id] = max(version, s.version)
		w.WriteHeader(http.StatusNoContent)
	case !ok:
		w.WriteHeader(http.StatusNotFound)
	case s.method == http.MethodDelete:
		delete(c.versions, s.id)
	case s.method == http.MethodGet:
		i := &registry.Instance{App: "A", InstanceID: s.id, Metadata: []registry.Pair{{Key: "n", Value: strconv.FormatInt(version, 10)}}}
		_, _ = w.Write(eureka.AppendInstanceDocument(nil, eureka.Format{}, &registry.Lease{Instance: i}, registry.Stamp{}))
	}
}

// decide sets what becomes of requests from now on.
func (c *fakeCluster) decide(verdict func(seen) int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.verdict = verdict
}

// forget removes an instance without anybody's cancel.
func (c *fakeCluster) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.versions, id)
}

// version is the registered version of an instance; 0: it is not registered.
func (c *fakeCluster) version(id string) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.versions[id]
}

func (c *fakeCluster) registered() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.versions)
}

// requests are those that came with a method, about an id ("": any).
func (c *fakeCluster) requests(method, id string) []seen {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []seen
	for _, s := range c.seen {
		if s.method == method && (id == "" || s.id == id) {
			all = append(all, s)
		}
	}
	return all
}
