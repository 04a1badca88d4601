package compare

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// fakeCluster is servers in this process that share one registry, so that every node always agrees. node2 leads.
type fakeCluster struct {
	servers []*httptest.Server

	mu     sync.Mutex
	apps   map[string]map[string]json.RawMessage // by application and id
	down   []bool
	rest   int   // heartbeats that a started node lets the others have before it answers
	asleep []int // by node: how many of them are left
	refuse bool  // registrations
	closed int
	late   int   // requests that came after Close
	broken error // what Close returns
}

// startFake starts a cluster of three nodes. It is ended by Close, and if that does not come by the test's end.
func startFake(t *testing.T) *fakeCluster {
	c := &fakeCluster{apps: make(map[string]map[string]json.RawMessage), down: make([]bool, 3), asleep: make([]int, 3)}
	for node := range c.down {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { c.serve(node, w, r) }))
		t.Cleanup(s.Close)
		c.servers = append(c.servers, s)
	}
	return c
}

func (c *fakeCluster) serve(node int, w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed > 0 {
		c.late++
	}
	if c.down[node] || c.asleep[node] > 0 {
		panic(http.ErrAbortHandler) // the connection ends without an answer
	}
	if r.Method == http.MethodPut {
		for i := range c.asleep {
			c.asleep[i]--
		}
	}
	path, ok := strings.CutPrefix(r.URL.Path, "/eureka/v2/apps")
	switch {
	case ok:
		app, id, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
		c.eureka(w, r, app, id)
	case r.URL.Path == "/v1/rollcall/status":
		fmt.Fprint(w, `{"leader": "node2", "term": 1, "quorum": true}`)
	default:
		http.NotFound(w, r)
	}
}

func (c *fakeCluster) eureka(w http.ResponseWriter, r *http.Request, app, id string) {
	switch _, there := c.apps[app][id]; {
	case r.Method == http.MethodPost:
		c.register(w, r, app)
	case app == "" && r.Method == http.MethodGet:
		fmt.Fprintf(w, `{"applications": {"application": %s}}`, c.list())
	case app == "delta":
		fmt.Fprint(w, `{"applications": {"application": []}}`)
	case !there:
		http.NotFound(w, r)
	case r.Method == http.MethodGet:
		fmt.Fprintf(w, `{"instance": %s}`, c.apps[app][id])
	case r.Method == http.MethodDelete:
		delete(c.apps[app], id)
	}
}

func (c *fakeCluster) register(w http.ResponseWriter, r *http.Request, app string) {
	var body struct {
		Instance json.RawMessage `json:"instance"`
	}
	var named struct {
		ID string `json:"instanceId"`
	}
	if err := errors.Join(json.NewDecoder(r.Body).Decode(&body), json.Unmarshal(body.Instance, &named)); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if c.refuse {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if c.apps[app] == nil {
		c.apps[app] = make(map[string]json.RawMessage)
	}
	c.apps[app][named.ID] = body.Instance
	w.WriteHeader(http.StatusNoContent)
}

func (c *fakeCluster) list() []byte {
	type application struct {
		Name      string            `json:"name"`
		Instances []json.RawMessage `json:"instance"`
	}
	all := []application{}
	for name, instances := range c.apps {
		a := application{Name: name}
		for _, i := range instances {
			a.Instances = append(a.Instances, i)
		}
		all = append(all, a)
	}
	text, _ := json.Marshal(all) // of what was JSON before
	return text
}

func (c *fakeCluster) Nodes() []Node {
	var all []Node
	for i, s := range c.servers {
		all = append(all, Node{Name: fmt.Sprintf("node%d", i+1), Datacenter: "dc1", HTTP: s.Listener.Addr().String()})
	}
	return all
}

func (c *fakeCluster) set(node int, down bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down[node] = down
	return nil
}

func (c *fakeCluster) Kill(node int) error                    { return c.set(node, true) }
func (c *fakeCluster) Stop(_ context.Context, node int) error { return c.set(node, true) }

func (c *fakeCluster) Start(_ context.Context, node int) error {
	c.mu.Lock()
	c.asleep[node] = c.rest
	c.mu.Unlock()
	return c.set(node, false)
}

func (c *fakeCluster) Pause(int) error                     { return errors.New("not in this fake") }
func (c *fakeCluster) Resume(int) error                    { return errors.New("not in this fake") }
func (c *fakeCluster) Cut(int, int)                        {}
func (c *fakeCluster) Heal()                               {}
func (c *fakeCluster) SlowDisk(int, time.Duration) error   { return errors.New("not in this fake") }
func (c *fakeCluster) Usage(node int) (trial.Usage, error) { return trial.Usage{Memory: 1 << 20}, nil }

func (c *fakeCluster) lateRequests() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.late
}

func (c *fakeCluster) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed++
	return c.broken
}

// launcher starts fake clusters, and remembers them and what was asked for.
type launcher struct {
	t      *testing.T
	change func(number int, c *fakeCluster) error // before it is handed over; nil: nothing

	specs    []Spec
	clusters []*fakeCluster
}

func (l *launcher) launch(_ context.Context, s Spec) (Cluster, error) {
	c := startFake(l.t)
	number := len(l.specs)
	l.specs, l.clusters = append(l.specs, s), append(l.clusters, c)
	if l.change != nil {
		if err := l.change(number, c); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// small is a scenario whose trial takes as short as it can.
func small() scenario.Scenario {
	return scenario.Scenario{
		Name: "small", Datacenters: 1, Rounds: 1, Length: scenario.Span(time.Second),
		Load: scenario.Load{Instances: 6, Heartbeat: scenario.Span(time.Second), Lease: scenario.Span(3 * time.Second), Writes: 20, Reads: 40, Fetches: 5, OwnKeys: 3, SharedKeys: 2},
	}
}
