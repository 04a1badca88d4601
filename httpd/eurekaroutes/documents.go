package eurekaroutes

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// keepUnused is how long a representation is kept that no request asks for; sweepEvery how often that is
// checked.
const (
	keepUnused = 10 * time.Minute
	sweepEvery = time.Minute
)

// documents keeps the newest document of every representation that is asked for, and the newest
// delta of every form. Requests for one representation that find it old wait for one build.
type documents struct {
	service registry.Service
	built   *prometheus.CounterVec
	lists   [16]list // by representation.slot
	deltas  [8]delta // by slot of the form
	swept   atomic.Int64
}

func newDocuments(s registry.Service) *documents { return &documents{service: s} }

// list is the document of one representation.
type list struct {
	used      atomic.Int64 // when it was last asked for, ms since the epoch
	keptBytes atomic.Int64 // bytes kept
	current   atomic.Pointer[document]

	building sync.Mutex // guards what follows
	chunks   []*chunk
	chunker  chunker
}

// document is a finished document. It is never changed.
type document struct {
	epoch string
	index registry.Index
	parts [][]byte
	size  int64
}

// covers says whether a document may respond to a read of v: it is of the same history and not older.
func (d *document) covers(v *registry.View) bool {
	return d != nil && d.epoch == v.Epoch() && d.index >= v.Index()
}

// full returns the document of the whole registry, at least as new as v.
func (d *documents) full(v *registry.View, rep representation) *document {
	l := &d.lists[rep.slot()]
	now := time.Now()
	l.used.Store(now.UnixMilli())
	d.sweep(now)
	if doc := l.current.Load(); doc.covers(v) {
		return doc
	}
	l.building.Lock()
	defer l.building.Unlock()
	if doc := l.current.Load(); doc.covers(v) {
		return doc
	}
	d.count("full", rep.format)
	doc := l.rebuild(d.newest(v), rep)
	l.current.Store(doc)
	return doc
}

// newest is what this node has by now, so that one build serves all requests that wait for it.
func (d *documents) newest(v *registry.View) *registry.View {
	latest := web.StaleView(d.service)
	if latest == nil || latest.Epoch() != v.Epoch() || latest.Index() < v.Index() {
		return v
	}
	return latest
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

// rebuild makes the document of v, from the chunks of the last one as far as they still hold.
func (l *list) rebuild(v *registry.View, rep representation) *document {
	l.chunker.format, l.chunker.compressed = rep.format, rep.gzip
	l.chunks = l.cut(v)
	head := l.chunker.finish(eureka.AppendApplicationsHead(nil, rep.format, eureka.FullVersion, v.HashCode()))
	tail := l.chunker.finish(l.tail(v, rep.format))
	all := make([]*chunk, 0, len(l.chunks)+2)
	all = append(append(append(all, head), l.chunks...), tail)

	doc := &document{epoch: v.Epoch(), index: v.Index()}
	if rep.gzip {
		doc.parts = [][]byte{joinGzip(all)}
	} else {
		doc.parts = texts(all)
	}
	for _, part := range doc.parts {
		doc.size += int64(len(part))
	}
	l.keptBytes.Store(doc.size + 8*int64(v.Len())) // beside the text, the leases of the chunks
	return doc
}

func (l *list) tail(v *registry.View, f eureka.Format) []byte {
	var text []byte
	if v.Len() > 0 {
		text = eureka.AppendApplicationTail(text, f)
	}
	return eureka.AppendApplicationsTail(text, f, eureka.FullVersion, v.HashCode())
}

// cut divides the leases of v into chunks and encodes those that are new.
func (l *list) cut(v *registry.View) []*chunk {
	old := make(map[*registry.Lease]*chunk, len(l.chunks))
	for _, c := range l.chunks {
		old[c.leases[0]] = c
	}
	var chunks []*chunk
	var before *registry.Lease // the last lease of the chunk before
	run := make([]*registry.Lease, 0, maxChunk)
	end := func() {
		lead := leadOf(before, run[0])
		c := old[run[0]]
		if c == nil || !c.is(run, lead) {
			c = l.chunker.encode(run, lead)
		}
		chunks = append(chunks, c)
		before, run = run[len(run)-1], run[:0]
	}
	for lease := range v.Leases() {
		run = append(run, lease)
		if len(run) == maxChunk || endsChunk(lease) {
			end()
		}
	}
	if len(run) > 0 {
		end()
	}
	return chunks
}

func texts(chunks []*chunk) [][]byte {
	parts := make([][]byte, len(chunks))
	for i, c := range chunks {
		parts[i] = c.data
	}
	return parts
}

var (
	gzipHeader = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255} // RFC 1952: deflate, no time, unknown system
	gzipEnd    = []byte{3, 0}                                 // RFC 1951: a last block, empty
)

// joinGzip makes one gzip stream of deflated chunks: the parts of a stream that end on a byte
// boundary and refer to nothing before them can be joined. The chunks' data are part of the stream afterwards: it is there once.
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

// sweep drops representations that no request asked for in a while. It runs at most once a minute.
func (d *documents) sweep(now time.Time) {
	last := d.swept.Load()
	if now.UnixMilli()-last < sweepEvery.Milliseconds() || !d.swept.CompareAndSwap(last, now.UnixMilli()) {
		return
	}
	for i := range d.lists {
		d.lists[i].dropUnused(now)
	}
}

func (l *list) dropUnused(now time.Time) {
	if l.current.Load() == nil || now.UnixMilli()-l.used.Load() < keepUnused.Milliseconds() {
		return
	}
	l.building.Lock()
	defer l.building.Unlock()
	l.current.Store(nil)
	l.keptBytes.Store(0)
	l.chunks, l.chunker = nil, chunker{}
}

// bytes is the size of everything kept.
func (d *documents) bytes() float64 {
	var n int64
	for i := range d.lists {
		n += d.lists[i].keptBytes.Load()
	}
	return float64(n)
}

// delta is the document of the delta in one form.
type delta struct {
	mu    sync.Mutex // guards what follows
	epoch string
	index registry.Index
	step  int64
	text  []byte
	gzip  []byte // nil until a request asks for it
}

// deltaDocument is a delta as it is sent.
type deltaDocument struct {
	index registry.Index
	data  []byte
}

// delta returns the document of the delta, at least as new as v.
func (d *documents) delta(v *registry.View, rep representation) deltaDocument {
	c := &d.deltas[representation{format: rep.format}.slot()]
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.text == nil || c.epoch != v.Epoch() || c.index < v.Index() || c.step < v.DeltaStep() {
		v = d.newest(v)
		d.count("delta", rep.format)
		c.epoch, c.index, c.step = v.Epoch(), v.Index(), v.DeltaStep()
		c.text, c.gzip = eureka.AppendDelta(nil, rep.format, v.Delta()), nil
	}
	if !rep.gzip {
		return deltaDocument{index: c.index, data: c.text}
	}
	if c.gzip == nil {
		c.gzip = web.Compress(c.text)
	}
	return deltaDocument{index: c.index, data: c.gzip}
}
