package eurekaroutes

import (
	"encoding/binary"
	"iter"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// keepUnused is how long a representation that no request asks for is kept; sweepEvery is how often that is checked.
const (
	keepUnused = 10 * time.Minute
	sweepEvery = time.Minute
)

// documents keeps the newest document of every requested kind and representation. Requests that find it outdated wait
// for one build.
type documents struct {
	service registry.Service
	made    time.Time // uses and sweeps are counted from here, ms
	built   *prometheus.CounterVec
	lists   [2 * 16]list // by kind and representation.slot
	swept   atomic.Int64
}

func newDocuments(s registry.Service) *documents { return &documents{service: s, made: time.Now()} }

// kind is what a document shows of a registry.
type kind int

const (
	whole   kind = iota
	changed      // within the delta window
)

func (k kind) String() string { return [...]string{"full", "delta"}[k] }

// versionOf returns what distinguishes two documents of a kind.
func (k kind) versionOf(v *registry.View) version {
	at := version{epoch: v.Epoch(), index: v.Index()}
	if k == changed {
		at.step = v.DeltaStep()
	}
	return at
}

// shown is the content of a document.
type shown struct {
	version, hash string
	leases        iter.Seq[*registry.Lease]
	count         int
}

func (k kind) of(v *registry.View) shown {
	if k == changed {
		d := v.Delta()
		return shown{strconv.FormatUint(d.Version, 10), d.HashCode, slices.Values(d.Leases), len(d.Leases)}
	}
	return shown{eureka.FullVersion, v.Counts().HashCode(), v.Leases(), v.Len()}
}

// list is the document of one kind and representation.
type list struct {
	used      atomic.Int64 // when it was last asked for, ms since the epoch
	keptBytes atomic.Int64 // bytes kept
	current   atomic.Pointer[document]

	building sync.Mutex // guards the fields below
	chunks   []*chunk
	chunker  chunker
}

// document is a finished document. It is never changed.
type document struct {
	version
	parts [][]byte
	size  int64
}

// covers reports whether a document may answer a read: it has the same history and is not older.
func (d *document) covers(asked version) bool {
	return d != nil && d.epoch == asked.epoch && d.index >= asked.index && d.step >= asked.step
}

func (d *documents) list(k kind, rep representation) *list { return &d.lists[16*int(k)+rep.slot()] }

// newestOf returns the document of a kind, at least as new as v.
func (d *documents) newestOf(k kind, v *registry.View, rep representation) *document {
	l := d.list(k, rep)
	now := time.Since(d.made).Milliseconds()
	l.used.Store(now)
	d.sweep(now)
	asked := k.versionOf(v)
	if doc := l.current.Load(); doc.covers(asked) {
		return doc
	}
	l.building.Lock()
	defer l.building.Unlock()
	if doc := l.current.Load(); doc.covers(asked) {
		return doc
	}
	d.count(k.String(), rep.format)
	// It shows what this node has by now, so that one build serves all requests that wait for it.
	if latest := web.StaleView(d.service); latest != nil && latest.Epoch() == v.Epoch() && latest.Index() >= v.Index() {
		v = latest
	}
	doc := l.rebuild(k, v, rep)
	l.current.Store(doc)
	return doc
}

func (d *documents) count(kind string, f eureka.Format) {
	name := "json"
	if f.XML {
		name = "xml"
	}
	if f.Compact {
		name += "-compact"
	}
	if f.V1 {
		name += "-v1"
	}
	d.built.WithLabelValues(kind, name).Inc()
}

// rebuild makes the document of v, reusing the last one's chunks where they still hold.
func (l *list) rebuild(k kind, v *registry.View, rep representation) *document {
	f, show := rep.format, k.of(v)
	l.chunker.format, l.chunker.compressed = f, rep.gzip
	l.chunks = l.cut(show)
	head := l.chunker.finish(eureka.AppendApplicationsHead(nil, f, show.version, show.hash))
	var end []byte
	if show.count > 0 {
		end = eureka.AppendApplicationTail(end, f)
	}
	tail := l.chunker.finish(eureka.AppendApplicationsTail(end, f, show.version, show.hash))
	all := make([]*chunk, 0, len(l.chunks)+2)
	all = append(append(append(all, head), l.chunks...), tail)

	doc := &document{version: k.versionOf(v)}
	if rep.gzip {
		doc.parts = [][]byte{joinGzip(all)}
	} else {
		doc.parts = make([][]byte, 0, len(all))
		for _, c := range all {
			doc.parts = append(doc.parts, c.data)
		}
	}
	for _, part := range doc.parts {
		doc.size += int64(len(part))
	}
	l.keptBytes.Store(doc.size + 8*int64(show.count)) // besides the text, the leases of the chunks
	return doc
}

// cut divides leases into chunks and encodes the new ones. Few leases form a single chunk: they compress better
// together.
func (l *list) cut(show shown) []*chunk {
	old := make(map[*registry.Lease]*chunk, len(l.chunks))
	for _, c := range l.chunks {
		old[c.leases[0]] = c
	}
	var chunks []*chunk
	var before *registry.Lease // the last lease of the previous chunk
	run := make([]*registry.Lease, 0, maxChunk)
	end := func() {
		lead := leadOf(before, run[0])
		c := old[run[0]]
		if c == nil || c.lead != lead || !slices.Equal(c.leases, run) { // not exactly these leases, in the same state
			c = l.chunker.encode(run, lead)
		}
		chunks = append(chunks, c)
		before, run = run[len(run)-1], run[:0]
	}
	for lease := range show.leases {
		run = append(run, lease)
		if len(run) == maxChunk || show.count > meanChunk && endsChunk(lease) {
			end()
		}
	}
	if len(run) > 0 {
		end()
	}
	return chunks
}

var (
	gzipHeader = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255} // RFC 1952: deflate, no time, unknown system
	gzipEnd    = []byte{3, 0}                                 // RFC 1951: an empty last block
)

// joinGzip makes one gzip stream from deflated chunks: parts of a stream that end on a byte boundary and refer to
// nothing before them can be joined. Afterwards the chunks' data are slices of the stream, so it exists only once.
func joinGzip(chunks []*chunk) []byte {
	size := len(gzipHeader) + len(gzipEnd) + 8
	for _, c := range chunks {
		size += len(c.data)
	}
	stream := append(make([]byte, 0, size), gzipHeader...)
	sum := sumOf(nil)
	for _, c := range chunks {
		begin := len(stream)
		stream = append(stream, c.data...)
		c.data = stream[begin:len(stream):len(stream)]
		sum = sum.then(c.sum)
	}
	stream = append(stream, gzipEnd...)
	stream = binary.LittleEndian.AppendUint32(stream, sum.crc)
	return binary.LittleEndian.AppendUint32(stream, uint32(sum.size))
}

// sweep drops representations that no request has asked for in a while. It runs at most once a minute.
func (d *documents) sweep(now int64) {
	last := d.swept.Load()
	if now-last < sweepEvery.Milliseconds() || !d.swept.CompareAndSwap(last, now) {
		return
	}
	for i := range d.lists {
		l := &d.lists[i]
		if l.current.Load() == nil || now-l.used.Load() < keepUnused.Milliseconds() {
			continue
		}
		l.building.Lock()
		l.current.Store(nil)
		l.keptBytes.Store(0)
		l.chunks, l.chunker = nil, chunker{}
		l.building.Unlock()
	}
}

// bytes returns the size of everything kept.
func (d *documents) bytes() float64 {
	var n int64
	for i := range d.lists {
		n += d.lists[i].keptBytes.Load()
	}
	return float64(n)
}
