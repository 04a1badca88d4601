package compare

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

// observed is what to observe.
type observed struct {
	Nodes  []string // HTTP addresses, in the order of trial.Trial.Nodes
	Names  []string // the nodes' names, as they call each other
	Column scenario.Column
	Began  time.Time // of the trial
	// Quiet is how long after Began no node is asked for anything: what is measured then is what clients cost. 0 means
	// never.
	Quiet     time.Duration
	Length    time.Duration // of the load, during which registrations are sighted
	Book      *trial.Book
	Sightings float64       // registrations per second whose way to every node is timed
	Every     time.Duration // between two lists of a node; 0 means 100 ms
	// current CPU, memory, disk and bytes of a node's process; asked once a second; may be nil
	Usage    func(node int) (trial.Usage, error)
	Renewals func() int64                 // heartbeats answered so far; nil if not counted
	Machine  func() (trial.Health, error) // a look at the machine, once a second; may be nil
	Seed     uint64
	// Transport carries the questions; nil means connections that are kept, without compression: over loopback that
	// costs the servers and this process more than it saves.
	Transport http.RoundTripper
}

// caches reports whether documents are older than what the servers know.
func (c observed) caches() bool { return c.Column.System == scenario.Eureka }

// observer observes a cluster. Make one with New.
type observer struct {
	config    observed
	http      *http.Client
	sightings *sightings

	mu    sync.Mutex
	seen  trial.Trial // what into adds
	nodes []view
}

// view is what was last seen of a node.
type view struct {
	asked   time.Time // for the list; zero before the first
	list    trial.List
	dropped bool          // it is lost, and no longer asked
	watched time.Duration // for how long its stream of changes was read
	status  client.Status // what it said about itself
}

// drop records that a node is lost: it is not asked from now on.
func (o *observer) drop(node int) {
	o.of(node, func(n *view) { n.dropped = true })
}

func (o *observer) isDropped(node int) (dropped bool) {
	o.of(node, func(n *view) { dropped = n.dropped })
	return dropped
}

// watched returns how long a node's stream of changes was read.
func (o *observer) watched(node int) (watched trial.Micros) {
	o.of(node, func(n *view) { watched = trial.Of(n.watched) })
	return watched
}

// add adds an observation.
func (o *observer) add(add func(*trial.Trial)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	add(&o.seen)
}

// of reads or changes what was last seen of a node.
func (o *observer) of(number int, do func(*view)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	do(&o.nodes[number])
}

// at returns a moment of the trial.
func (o *observer) at(t time.Time) trial.Micros { return trial.Since(o.config.Began, t) }

// patience bounds the time until a response begins, and again the time until it ends. So a paused node is asked again
// soon after its pause.
const patience = time.Second

// asker asks one node for documents. One goroutine uses it.
type asker struct {
	http *http.Client
	addr string
	body bytes.Buffer
}

// response is a node's response.
type response struct {
	status    int
	body      []byte    // valid until the next request
	firstByte time.Time // when its header arrived
}

// asker returns an asker for a node.
func (o *observer) asker(node int) *asker {
	return &asker{http: o.http, addr: o.config.Nodes[node]}
}

// get asks for a document.
func (a *asker) get(ctx context.Context, path string) (response, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	limit := time.AfterFunc(patience, cancel)
	defer limit.Stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+a.addr+path, nil)
	if err != nil {
		return response{}, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := a.http.Do(req)
	if err != nil {
		return response{}, err
	}
	defer resp.Body.Close()
	limit.Reset(patience)
	begun := time.Now()
	a.body.Reset()
	if _, err := a.body.ReadFrom(resp.Body); err != nil {
		return response{}, fmt.Errorf("read %s of %s: %w", path, a.addr, err)
	}
	return response{status: resp.StatusCode, body: a.body.Bytes(), firstByte: begun}, nil
}

// find is get for a document that is only useful if it exists.
func (a *asker) find(ctx context.Context, path string) (response, error) {
	resp, err := a.get(ctx, path)
	if err == nil && resp.status != http.StatusOK {
		err = fmt.Errorf("%s of %s: status %d", path, a.addr, resp.status)
	}
	return resp, err
}

// repeat calls do at an interval until ctx ends, but never sooner than after the pause that do returns. Calls that
// could not begin in time are left out.
func repeat(ctx context.Context, every time.Duration, do func() (pause time.Duration)) {
	for due := time.Now(); ; {
		pause := do()
		due = due.Add(every)
		if earliest := time.Now().Add(pause); due.Before(earliest) {
			due = earliest
		}
		if !wait.For(ctx, time.Until(due)) {
			return
		}
	}
}
