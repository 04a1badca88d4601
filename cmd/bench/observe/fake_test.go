package observe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// fakeCluster is nodes that tell each other of registrations, each after its own time.
type fakeCluster struct {
	nodes []*fakeNode
}

// fakeNode is what an observer sees of a server.
type fakeNode struct {
	cluster *fakeCluster
	lag     time.Duration // until it knows what others have registered

	mu        sync.Mutex
	instances map[string]string // documents by id
	watchers  map[chan string]bool
	state     fakeState
	asked     map[string]int // questions, by path
}

// fakeState is how a node behaves.
type fakeState struct {
	down    bool          // it takes no call
	paused  bool          // it takes calls and does not answer
	refuses bool          // it answers 503
	late    time.Duration // before a list of all begins
	slow    time.Duration // before a list ends
	leader  string
	term    int
	metrics string
}

func newFakeCluster(nodes int) *fakeCluster {
	c := new(fakeCluster)
	for range nodes {
		c.nodes = append(c.nodes, &fakeNode{cluster: c, instances: make(map[string]string), watchers: make(map[chan string]bool), asked: make(map[string]int)})
	}
	return c
}

// config is for the observation of the cluster.
func (c *fakeCluster) config() Config {
	var config Config
	for i := range c.nodes {
		config.Nodes = append(config.Nodes, fmt.Sprintf("node%d:8761", i+1))
		config.Names = append(config.Names, fmt.Sprintf("node%d", i+1))
	}
	return config
}

// set changes how a node behaves.
func (n *fakeNode) set(change func(*fakeState)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change(&n.state)
}

func (n *fakeNode) now() fakeState {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.state
}

// put makes a node list an instance in a version.
func (n *fakeNode) put(id string, version int) {
	n.keep(id, fmt.Sprintf(`{"instanceId":%q,"metadata":{"n":"%d"}}`, id, version))
}

func (n *fakeNode) keep(id, document string) {
	n.mu.Lock()
	n.instances[id] = document
	n.mu.Unlock()
	n.tell("ADDED", "registered", id)
}

func (n *fakeNode) remove(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.instances, id)
}

// size is how many instances a node has.
func (n *fakeNode) size() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.instances)
}

// tell sends a change to those who watch.
func (n *fakeNode) tell(action, why, id string) {
	n.event(fmt.Sprintf("event: change\ndata: {\"index\":\"e-2\",\"action\":%q,\"why\":%q,\"app\":\"A\",\"id\":%q}\n\n", action, why, id))
}

// event sends an event to those who watch.
func (n *fakeNode) event(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for w := range n.watchers {
		w <- text
	}
}

// hangUp ends all streams.
func (n *fakeNode) hangUp() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for w := range n.watchers {
		close(w)
		delete(n.watchers, w)
	}
}

// ServeHTTP implements http.Handler.
func (n *fakeNode) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	state := n.now()
	if state.paused {
		<-r.Context().Done()
		return
	}
	if state.refuses {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /eureka/v2/apps", func(w http.ResponseWriter, r *http.Request) {
		if wait(r.Context(), state.late) {
			n.list(w, r)
		}
	})
	mux.HandleFunc("GET /eureka/v2/apps/delta", n.list)
	mux.HandleFunc("GET /eureka/v2/apps/{app}", n.list)
	mux.HandleFunc("GET /eureka/v2/apps/{app}/{id}", n.read)
	mux.HandleFunc("POST /eureka/apps/{app}", n.register)
	mux.HandleFunc("DELETE /eureka/apps/{app}/{id}", n.cancel)
	mux.HandleFunc("GET /v1/rollcall/watch", n.watch)
	mux.HandleFunc("GET /v1/rollcall/status", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"leader":%q,"term":%d}`, state.leader, state.term)
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, state.metrics) })
	mux.ServeHTTP(w, r)
}

func (n *fakeNode) list(w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(http.StatusOK)
	if !wait(r.Context(), n.now().slow) {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked[r.URL.Path]++
	all := slices.Sorted(maps.Values(n.instances))
	fmt.Fprintf(w, `{"applications":{"application":[{"name":"A","instance":[%s]}]}}`, strings.Join(all, ","))
}

func (n *fakeNode) read(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked[r.URL.Path]++
	document, ok := n.instances[r.PathValue("id")]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	fmt.Fprintf(w, `{"instance":%s}`, document)
}

// register takes an instance, and tells the other nodes of it.
func (n *fakeNode) register(w http.ResponseWriter, r *http.Request) {
	var body struct{ Instance json.RawMessage }
	var instance struct{ InstanceID string }
	err := json.NewDecoder(r.Body).Decode(&body)
	if err == nil {
		err = json.Unmarshal(body.Instance, &instance)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	for _, other := range n.cluster.nodes {
		if other == n || other.lag == 0 {
			other.keep(instance.InstanceID, string(body.Instance))
			continue
		}
		time.AfterFunc(other.lag, func() { other.keep(instance.InstanceID, string(body.Instance)) })
	}
	w.WriteHeader(http.StatusNoContent)
}

func (n *fakeNode) cancel(_ http.ResponseWriter, r *http.Request) {
	for _, other := range n.cluster.nodes {
		other.remove(r.PathValue("id"))
	}
}

// watch streams what is told.
func (n *fakeNode) watch(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	events := make(chan string, 1000)
	n.mu.Lock()
	n.watchers[events] = true
	n.mu.Unlock()
	text, open := "event: start\ndata: {\"index\":\"e-1\"}\n\n", true
	for open {
		io.WriteString(w, text)
		w.(http.Flusher).Flush()
		select {
		case text, open = <-events:
		case <-r.Context().Done():
			open = false
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.watchers, events)
}

// errDown is that of a connection to a node that is down.
var errDown = errors.New("connection refused")

// RoundTrip implements http.RoundTripper without a network, so that time can be virtual.
func (c *fakeCluster) RoundTrip(r *http.Request) (*http.Response, error) {
	var number int
	if _, err := fmt.Sscanf(r.URL.Host, "node%d:", &number); err != nil {
		return nil, err
	}
	node := c.nodes[number-1]
	if node.now().down {
		return nil, errDown
	}
	ctx, cancel := context.WithCancel(r.Context())
	body, to := io.Pipe()
	w := &pipedWriter{header: make(http.Header), begun: make(chan int, 1), to: to}
	stop := context.AfterFunc(ctx, func() { to.CloseWithError(ctx.Err()) })
	go func() {
		defer cancel()
		defer stop()
		node.ServeHTTP(w, r.WithContext(ctx))
		w.WriteHeader(http.StatusOK)
		to.Close()
	}()
	select {
	case status := <-w.begun:
		return &http.Response{StatusCode: status, Header: w.header, Body: pipedBody{body, cancel}, Request: r}, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// pipedBody is the body of an answer that its handler still writes.
type pipedBody struct {
	*io.PipeReader
	cancel func()
}

// Close implements io.Closer.
func (b pipedBody) Close() error {
	b.cancel()
	return b.PipeReader.Close()
}

// pipedWriter is the handler's end.
type pipedWriter struct {
	header http.Header
	begun  chan int
	once   sync.Once
	to     *io.PipeWriter
}

// Header implements http.ResponseWriter.
func (w *pipedWriter) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *pipedWriter) WriteHeader(status int) { w.once.Do(func() { w.begun <- status }) }

// Write implements http.ResponseWriter.
func (w *pipedWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.to.Write(p)
}

// Flush implements http.Flusher.
func (w *pipedWriter) Flush() {}
