package web

import (
	"context"
	"errors"
	"math"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/golang-lru/simplelru"
	"github.com/prometheus/client_golang/prometheus"
)

// sharedPart divides limits.in-flight-bytes: finished documents may take that part, beside requests under way.
const sharedPart = 4

// sharedDocuments keeps finished documents, each of one version of what it shows: all requests for it share one,
// including requests that wait while it is made. The most recently used ones are kept.
type sharedDocuments struct {
	most  atomic.Int64 // bytes
	built prometheus.Counter

	mu    sync.Mutex // guards the fields below
	all   *simplelru.LRU
	bytes int64 // see sharedDocument.size
}

// sharedOverhead is about what a document takes beside its name and its body: names may be many, and bodies empty.
const sharedOverhead = 512

// sharedKey names a document without its version.
type sharedKey struct {
	what string // differs between all documents: paths and queries do
	gzip bool
}

// sharedDocument is a document, or the attempt to make it.
type sharedDocument struct {
	version  any
	size     int64         // bytes; 0 while it is being made
	finished chan struct{} // closed when the other fields are set
	encoded
	err  error
	left bool // the request that made it ended early: err does not apply to others
}

func newSharedDocuments(metrics prometheus.Registerer) *sharedDocuments {
	s := &sharedDocuments{built: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "rollcall_http_shared_documents_built_total", Help: "Lists built, or attempted, each for all requests that ask for the same version.",
	})}
	// cannot fail: the size is valid
	s.all, _ = simplelru.NewLRU(math.MaxInt, func(_, d any) { s.bytes -= d.(*sharedDocument).size })
	metrics.MustRegister(s.built, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "rollcall_http_shared_documents_bytes", Help: "Bytes of lists kept for the next request.",
	}, s.kept))
	return s
}

func (s *sharedDocuments) kept() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return float64(s.bytes)
}

// get returns a version of a document, which build makes if it is missing.
func (s *sharedDocuments) get(ctx context.Context, key sharedKey, version any, build func() (encoded, error)) (encoded, error) {
	for {
		d, mine := s.join(key, version)
		if mine {
			s.make(ctx, key, d, build)
		}
		select {
		case <-d.finished:
		case <-ctx.Done():
			return encoded{}, ctx.Err()
		}
		if mine || d.err == nil || !d.left {
			return d.encoded, d.err
		}
	}
}

// join returns a version of the document; mine means that it was missing, and the caller must make it.
func (s *sharedDocuments) join(key sharedKey, version any) (d *sharedDocument, mine bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found, ok := s.all.Get(key); ok {
		if d = found.(*sharedDocument); d.version == version {
			return d, false
		}
		s.all.Remove(key)
	}
	// left stays true if build panics
	d = &sharedDocument{version: version, finished: make(chan struct{}), left: true}
	s.all.Add(key, d)
	return d, true
}

// make makes a document and keeps it, unless that failed or another version has replaced it.
func (s *sharedDocuments) make(ctx context.Context, key sharedKey, d *sharedDocument, build func() (encoded, error)) {
	var made encoded
	err := errNotMade
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		defer close(d.finished)
		d.encoded, d.err, d.left = made, err, ctx.Err() != nil || errors.Is(err, errNotMade)
		size := int64(len(made.body)+len(key.what)) + sharedOverhead
		if now, _ := s.all.Get(key); now != any(d) { // Get also marks it as the most recently used
			return
		}
		if err != nil || size > s.most.Load() {
			s.all.Remove(key)
			return
		}
		d.size = size
		for s.bytes += size; s.bytes > s.most.Load(); {
			s.all.RemoveOldest()
		}
	}()
	made, err = build()
	s.built.Inc()
}

// errNotMade remains if a build panics.
var errNotMade = errors.New("the document was not made")

// RespondShared sends a document that is the same for all requests for one version of what. build makes it; weight
// returns about how many bytes of the registry it shows.
func (c *Call) RespondShared(what string, version any, contentType string, weight func() int, build func() ([]byte, error)) (any, error) {
	key := sharedKey{what: what, gzip: WantsGzip(c.R)}
	e, err := c.node.shared.get(c.R.Context(), key, version, func() (encoded, error) {
		if err := c.Reserve(weight()); err != nil {
			return encoded{}, err
		}
		text, err := build()
		if err != nil {
			return encoded{}, err
		}
		return encode(text, key.gzip), nil
	})
	if err != nil {
		return nil, err
	}
	e.send(c.W, http.StatusOK, contentType)
	return Sent, nil
}
