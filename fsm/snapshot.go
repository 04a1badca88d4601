package fsm

import (
	"encoding/binary"
	"hash/crc64"
	"io"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

const (
	snapshotMagic = "ROLLCALL"
	checksumSize  = 8
	// flushSize is how much of a snapshot is collected before it is written.
	flushSize = 256 << 10
)

var checksumTable = crc64.MakeTable(crc64.ECMA)

// Snapshot is a frozen state.
type Snapshot struct {
	index    uint64
	tenure   int64
	nodes    []frozenNode
	registry registry.Frozen
	kv       kv.Frozen
}

// WriteTo writes version, counts, state and checksum (docs/formats/snapshot.md). Equal states give
// equal bytes.
func (s *Snapshot) WriteTo(w io.Writer) (int64, error) {
	sw := &snapshotWriter{w: w}
	sw.buf = append(append(sw.buf, snapshotMagic...), formatVersion)
	sw.record(s.header().append)
	s.writeMemory(sw)
	s.writeRegistry(sw)
	s.writeCatalog(sw)
	s.writeKV(sw)
	err := sw.close()
	return sw.n, err
}

func (s *Snapshot) writeMemory(w *snapshotWriter) {
	for _, n := range s.nodes {
		w.record(func(b []byte) []byte { return appendNode(b, n) })
		for _, a := range n.answers {
			w.record(func(b []byte) []byte { return appendAnswer(b, a) })
		}
	}
}

func (s *Snapshot) writeRegistry(w *snapshotWriter) {
	f := &s.registry
	for _, slot := range f.Free {
		w.number(slot)
	}
	for _, l := range f.Leases {
		w.record(func(b []byte) []byte { return appendLeaseState(b, l) })
	}
	for _, r := range f.Removals {
		w.record(func(b []byte) []byte { return appendRemoval(b, r) })
	}
	for _, r := range f.Registered {
		w.record(func(b []byte) []byte { return appendRecent(b, r) })
	}
	for _, r := range f.Canceled {
		w.record(func(b []byte) []byte { return appendRecent(b, r) })
	}
	for _, p := range f.Transitions {
		w.record(func(b []byte) []byte { return appendPreservation(b, p) })
	}
	s.writePeers(w)
}

// writePeers writes what is known of other servers.
func (s *Snapshot) writePeers(w *snapshotWriter) {
	f := &s.registry
	for _, l := range f.Links {
		w.record(func(b []byte) []byte { return appendLink(b, l) })
	}
	for _, c := range f.Senders {
		w.record(func(b []byte) []byte { return appendSender(b, c) })
	}
	for _, p := range f.Peers {
		w.record(func(b []byte) []byte { return appendPeer(b, p) })
	}
}

// writeCatalog writes nodes and the heartbeats of checks.
func (s *Snapshot) writeCatalog(w *snapshotWriter) {
	for _, n := range s.registry.Nodes {
		w.record(func(b []byte) []byte { return appendCatalogNode(b, n) })
	}
	for _, h := range s.registry.Heard {
		w.record(func(b []byte) []byte { return appendHeard(b, h) })
	}
}

// writeKV writes coordination.
func (s *Snapshot) writeKV(w *snapshotWriter) {
	k := &s.kv
	for _, e := range k.Entries {
		w.record(func(b []byte) []byte { return appendEntry(b, e) })
	}
	for _, t := range k.Deletions {
		w.record(func(b []byte) []byte { return appendDeletion(b, t) })
	}
	for _, c := range k.Sessions {
		w.record(func(b []byte) []byte { return appendSessionState(b, c) })
	}
	for _, l := range k.Delays {
		w.record(func(b []byte) []byte { return appendDelay(b, l) })
	}
	for _, p := range k.Permits {
		w.record(func(b []byte) []byte { return appendPermits(b, p) })
	}
	for _, a := range k.Answers {
		w.record(func(b []byte) []byte { return appendOnceAnswer(b, a) })
	}
}

// snapshotWriter collects records, writes them in large pieces and keeps the checksum. Its first
// error sticks.
type snapshotWriter struct {
	w   io.Writer
	buf []byte
	sum uint64
	n   int64
	err error
}

// record adds what appendTo appends, preceded by its length.
func (w *snapshotWriter) record(appendTo func([]byte) []byte) {
	if w.err != nil {
		return
	}
	start := len(w.buf)
	w.buf = prefixLength(appendTo(w.buf), start)
	w.flushIfLarge()
}

// number adds a number without a length.
func (w *snapshotWriter) number(v uint32) {
	if w.err != nil {
		return
	}
	w.buf = appendUint32(w.buf, v)
	w.flushIfLarge()
}

func (w *snapshotWriter) flushIfLarge() {
	if len(w.buf) >= flushSize {
		w.flush()
	}
}

func (w *snapshotWriter) flush() {
	w.sum = crc64.Update(w.sum, checksumTable, w.buf)
	w.write()
}

func (w *snapshotWriter) write() {
	if w.err != nil {
		return
	}
	n, err := w.w.Write(w.buf)
	w.err = err
	w.n += int64(n)
	w.buf = w.buf[:0]
}

// close writes what is left and the checksum of everything before it.
func (w *snapshotWriter) close() error {
	w.flush()
	w.buf = binary.BigEndian.AppendUint64(w.buf, w.sum)
	w.write()
	return w.err
}
