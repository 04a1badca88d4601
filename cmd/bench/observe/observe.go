// Package observe looks at a cluster during a trial as clients and operators do, and notes what it sees: lists,
// sightings, leaders, evictions, the replicator's figures. Nothing that it meets is an error: a node that gives no
// answer is an observation, too.
package observe

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/truth"
	"github.com/seed-20419f34/rollcall/cmd/bench/wire"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
)

// Config says whom to observe.
type Config struct {
	Nodes     []string // HTTP addresses, in the order of trial.Trial.Nodes
	Names     []string // the nodes' names, as they call each other
	Mode      scenario.Mode
	Began     time.Time // of the trial
	Book      *truth.Book
	Sightings float64                             // registrations per second whose way is timed
	Every     time.Duration                       // between two lists of a node; 0: 100 ms
	Usage     func(node int) (trial.Usage, error) // CPU, memory, disk and bytes of a node's process, now; asked once a second; nil: never
	Renewals  func() int64                        // heartbeats answered so far; nil: nobody counts them
	Seed      uint64
}

// Observer observes a cluster. Make one with New.
type Observer struct {
	config    Config
	http      *http.Client
	sightings *sightings

	mu    sync.Mutex
	seen  trial.Trial // what Into adds
	lists []lastList  // by node
}

// lastList is the newest list of a node.
type lastList struct {
	asked time.Time // zero: none was
	trial.List
}

// add adds an observation.
func (o *Observer) add(add func(*trial.Trial)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	add(&o.seen)
}

// at is a moment of the trial.
func (o *Observer) at(t time.Time) trial.Micros { return trial.Since(o.config.Began, t) }

// Healed reports whether every node's last list, asked for after the last Mark of the book, lacks nothing that was
// acknowledged before that mark.
func (o *Observer) Healed() bool {
	marked := o.config.Book.Marked()
	o.mu.Lock()
	defer o.mu.Unlock()
	return !slices.ContainsFunc(o.lists, func(l lastList) bool {
		return l.asked.IsZero() || l.asked.Before(marked) || l.Failed || l.Unhealed > 0
	})
}

// Into adds what was observed to a trial, in the order of its times. Call it after Run has returned.
func (o *Observer) Into(t *trial.Trial) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := &o.seen
	t.Lists = append(t.Lists, sorted(s.Lists, func(l trial.List) place { return place{l.Asked, l.Node, ""} })...)
	t.Sightings = append(t.Sightings, sorted(s.Sightings, func(s trial.Sighting) place { return place{s.Acked, s.To, string(s.Way)} })...)
	t.Departures = append(t.Departures, o.config.Book.Departures(o.config.Began)...)
	t.Evictions = append(t.Evictions, sorted(s.Evictions, func(e trial.Eviction) place { return place{e.At, e.Node, e.ID} })...)
	t.Leaders = append(t.Leaders, sorted(s.Leaders, func(l trial.Leader) place { return place{l.At, l.Node, ""} })...)
	t.Replicator = append(t.Replicator, sorted(s.Replicator, func(r trial.Replication) place { return place{r.At, r.Node, ""} })...)
	t.Usage = append(t.Usage, sorted(s.Usage, func(u trial.Usage) place { return place{u.At, u.Node, ""} })...)
}

// place is where an observation stands among its kind.
type place struct {
	at   trial.Micros
	node int
	text string
}

func sorted[T any](all []T, of func(T) place) []T {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b T) int {
		x, y := of(a), of(b)
		return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(x.node, y.node), cmp.Compare(x.text, y.text))
	})
	return all
}

// patience is for how long a node may keep a question: until its answer begins, and again until that ends. A node that
// is paused is not asked for much longer than it is paused.
const patience = time.Second

// newHTTP is a client that keeps its connections, and takes answers as they are: to compress them costs the servers,
// and this process, more than to send them over loopback.
func newHTTP() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableCompression:  true,
		MaxIdleConnsPerHost: 32,
		ReadBufferSize:      64 << 10,
	}}
}

// asker asks one node for documents. One goroutine uses it.
type asker struct {
	http *http.Client
	addr string
	body bytes.Buffer
}

// response is what a node said.
type response struct {
	status    int
	body      []byte    // valid until the next question
	firstByte time.Time // its first bytes
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

// find is get for a document that is of use only if it is there.
func (a *asker) find(ctx context.Context, path string) (response, error) {
	resp, err := a.get(ctx, path)
	if err == nil && resp.status != http.StatusOK {
		err = fmt.Errorf("%s of %s: status %d", path, a.addr, resp.status)
	}
	return resp, err
}

// asker returns one for a node.
func (o *Observer) asker(node int) *asker {
	return &asker{http: o.http, addr: o.config.Nodes[node]}
}

// newClient is a client of some servers.
func newClient(h *http.Client, timeout time.Duration, servers ...string) *client.Client {
	c, err := client.New(client.Config{Servers: servers, HTTPClient: h, Timeout: timeout})
	if err != nil {
		panic(err) // whoever started the servers gave a wrong address
	}
	return c
}

// repeat calls do again and again until ctx ends, every so often, but never sooner than the pause that it asks for.
// Calls that could not begin in time are left out.
func repeat(ctx context.Context, every time.Duration, do func() (pause time.Duration)) {
	for due := time.Now(); ; {
		pause := do()
		due = due.Add(every)
		if earliest := time.Now().Add(pause); due.Before(earliest) {
			due = earliest
		}
		if !wire.Pause(ctx, time.Until(due)) {
			return
		}
	}
}

const (
	registryPath = "/eureka/v2/apps"
	// listShare is the most of its time that the reading of a node's lists takes: large registries are read less often.
	listShare = 10
)

// follow fetches a node's list, as an unmodified client does, again and again, and judges it by the book. The nodes
// are asked in turn, not all at once.
func (o *Observer) follow(ctx context.Context, node int) {
	asker, reader := o.asker(node), newListReader()
	turn := o.config.Every * time.Duration(node) / time.Duration(len(o.config.Nodes))
	if !wire.Pause(ctx, turn) {
		return
	}
	repeat(ctx, o.config.Every, func() (pause time.Duration) {
		asked := time.Now()
		list, work := o.list(ctx, node, asker, reader)
		if ctx.Err() == nil {
			o.addList(lastList{asked, list})
		}
		return (listShare - 1) * work
	})
}

// list fetches and judges one list. work is the part of the time that was spent here, and not with waiting for the node.
func (o *Observer) list(ctx context.Context, node int, a *asker, reader *listReader) (list trial.List, work time.Duration) {
	asked := time.Now()
	resp, err := a.find(ctx, registryPath)
	answered := time.Now()
	list = trial.List{Node: node, Failed: true}
	if err == nil {
		if listing, err := reader.registry(resp.body); err == nil {
			list = o.config.Book.Judge(node, listing, asked, answered)
		}
		work = time.Since(resp.firstByte)
	}
	list.Asked, list.Answered = o.at(asked), o.at(answered)
	return list, work
}

func (o *Observer) addList(l lastList) {
	o.add(func(t *trial.Trial) {
		t.Lists = append(t.Lists, l.List)
		o.lists[l.Node] = l
	})
}

// usage notes every second what a node's process has used, beside what its clients have had of it.
func (o *Observer) usage(ctx context.Context, node int) {
	if o.config.Usage == nil {
		return
	}
	repeat(ctx, time.Second, func() time.Duration {
		at := time.Now()
		u, err := o.config.Usage(node)
		if err != nil {
			return 0 // between two processes there is none
		}
		u.At, u.Node, u.Instances = o.at(at), node, o.config.Book.Expected()
		if o.config.Renewals != nil {
			u.Renewals = o.config.Renewals()
		}
		o.add(func(t *trial.Trial) { t.Usage = append(t.Usage, u) })
		return 0
	})
}

// versionKey is the metadata key under which clients of a trial write the version of a registration.
const versionKey = "n"

// listReader reads Eureka's documents for the ids and versions of their instances. One goroutine uses it.
type listReader struct {
	listing truth.Listing
	names   map[string]string // ids that were seen, so that they are allocated once
}

func newListReader() *listReader {
	return &listReader{listing: make(truth.Listing), names: make(map[string]string)}
}

// registry reads the document of all applications. The result is valid until the next call.
func (l *listReader) registry(document []byte) (truth.Listing, error) {
	clear(l.listing)
	return l.listing, eureka.EachInstance(document, versionKey, l.add)
}

// instance reads the document of one instance. The result is valid until the next call.
func (l *listReader) instance(document []byte) (truth.Listing, error) {
	clear(l.listing)
	return l.listing, eureka.OneInstance(document, versionKey, l.add)
}

func (l *listReader) add(id, version []byte) {
	name, ok := l.names[string(id)]
	if !ok {
		name = string(id)
		l.names[name] = name
	}
	l.listing[name], _ = strconv.ParseInt(string(version), 10, 64) // not ours: the document has no version
}
