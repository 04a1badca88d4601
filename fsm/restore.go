package fsm

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"slices"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Restore reads a snapshot completely, verifies it, and only then replaces the state in one step.
// Its errors wrap ErrNewerVersion, ErrOlderVersion, ErrCorrupt or the reader's error; the state is unchanged then.
func (m *Machine) Restore(r io.Reader) error {
	s, err := readSnapshot(r)
	if err != nil {
		return fmt.Errorf("restore a snapshot: %w", err)
	}
	thawed, coordination, err := thaw(s.registry, s.kv)
	if err != nil {
		return fmt.Errorf("restore a snapshot of entry %d: %w: %w", s.index, ErrCorrupt, err)
	}
	remembered := thawMemory(s.nodes)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.registry, m.kv, m.memory, m.tenure = thawed, coordination, remembered, s.tenure
	m.publish(s.index)
	return nil
}

// thaw builds the two halves of a state; coordination asks the registry for nodes and checks.
func thaw(f registry.Frozen, k kv.Frozen) (*registry.Registry, *kv.State, error) {
	r, err := registry.Thaw(f)
	if err != nil {
		return nil, nil, err
	}
	if newest := max(f.Index, f.Taken); registry.Index(k.Index) > newest {
		return nil, nil, fmt.Errorf("coordination is at index %d, beyond the newest, which is %d", k.Index, newest)
	}
	c, err := kv.Thaw(k, catalog{r})
	return r, c, err
}

func thawMemory(nodes []frozenNode) memory {
	m := make(memory, len(nodes))
	for _, n := range nodes {
		thawed := n.nodeMemory
		m[n.name] = &thawed
	}
	return m
}

func readSnapshot(r io.Reader) (Snapshot, error) {
	sr := &snapshotReader{r: bufio.NewReaderSize(r, flushSize)}
	sr.preamble()
	var h header
	sr.record("header", func(d *decoder) { h = d.header() })
	s := Snapshot{index: h.index, tenure: h.tenure, registry: h.registry, kv: h.kv}
	s.nodes = sr.nodes(h.counts.nodes)
	f := &s.registry
	f.Free = sr.free(h.counts.free)
	f.Leases = section(sr, "lease", h.counts.leases, (*decoder).leaseState)
	f.Removals = section(sr, "removal", h.counts.removals, (*decoder).removal)
	f.Registered = section(sr, "recent registration", h.counts.registered, (*decoder).recent)
	f.Canceled = section(sr, "recent cancel", h.counts.canceled, (*decoder).recent)
	f.Transitions = section(sr, "transition", h.counts.transitions, (*decoder).preservation)
	f.Links = section(sr, "link", h.counts.links, (*decoder).link)
	f.Senders = section(sr, "sender", h.counts.senders, (*decoder).sender)
	f.Peers = section(sr, "peer", h.counts.peers, (*decoder).peer)
	f.Nodes = section(sr, "node of the catalog", h.counts.catalog, (*decoder).catalogNode)
	f.Heard = section(sr, "heartbeat of a check", h.counts.heard, (*decoder).heard)
	sr.coordination(&s.kv, h.counts)
	return s, sr.close()
}

func (r *snapshotReader) coordination(f *kv.Frozen, c counts) {
	f.Entries = section(r, "key", c.entries, (*decoder).entry)
	f.Deletions = section(r, "deletion", c.deletions, (*decoder).deletion)
	f.Sessions = section(r, "session", c.sessions, (*decoder).sessionState)
	f.Delays = section(r, "lock-delay", c.delays, (*decoder).delay)
	f.Permits = section(r, "lock or semaphore", c.permits, (*decoder).permits)
	f.Answers = section(r, "answer to what is done once", c.onceAnswers, (*decoder).onceAnswer)
}

// section reads n records. What is allocated follows what was read, whatever n says.
func section[T any](r *snapshotReader, what string, n uint64, decode func(*decoder) T) []T {
	var all []T
	for i := uint64(0); i < n && r.err == nil; i++ {
		r.record(what, func(d *decoder) { all = append(all, decode(d)) })
	}
	return all
}

func (r *snapshotReader) free(n uint64) []uint32 {
	var slots []uint32
	for i := uint64(0); i < n && r.err == nil; i++ {
		slots = append(slots, r.number("free slot"))
	}
	return slots
}

func (r *snapshotReader) nodes(n uint64) []frozenNode {
	var nodes []frozenNode
	for i := uint64(0); i < n && r.err == nil; i++ {
		var node frozenNode
		var answers uint64
		r.record("node", func(d *decoder) { node, answers = d.node() })
		if i > 0 && nodes[i-1].name >= node.name {
			r.fail("node %q after %q, want ascending order", node.name, nodes[i-1].name)
		}
		node.answers = r.answers(node, answers)
		nodes = append(nodes, node)
	}
	return nodes
}

func (r *snapshotReader) answers(node frozenNode, n uint64) []answer {
	newest := node.answered
	answers := section(r, "answer", n, (*decoder).answer)
	for _, a := range answers {
		if a.seq <= newest {
			r.fail("answer %d of node %q after %d, want ascending order", a.seq, node.name, newest)
		}
		newest = a.seq
	}
	return answers
}

// snapshotReader reads records and keeps the checksum. Its first error sticks.
type snapshotReader struct {
	r    *bufio.Reader
	sum  uint64
	body []byte // of the record at hand; reused
	err  error
}

func (r *snapshotReader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
	}
}

// readFail reports an error of the reader. A premature end is corruption, the rest is not.
func (r *snapshotReader) readFail(what string, err error) {
	switch {
	case r.err != nil:
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		r.fail("it ends inside its %s", what)
	default:
		r.err = fmt.Errorf("read its %s: %w", what, err)
	}
}

// preamble checks what stands before the records.
func (r *snapshotReader) preamble() {
	var b [len(snapshotMagic) + 1]byte
	if _, err := io.ReadFull(r.r, b[:]); err != nil {
		r.readFail("preamble", err)
		return
	}
	if string(b[:len(snapshotMagic)]) != snapshotMagic {
		r.fail("it begins with %q, want %q", b[:len(snapshotMagic)], snapshotMagic)
		return
	}
	d := decoder{b: b[len(snapshotMagic):]}
	d.version()
	r.err = d.end()
	r.sum = crc64.Update(r.sum, checksumTable, b[:])
}

// record reads one record and has it decoded.
func (r *snapshotReader) record(what string, decode func(*decoder)) {
	r.readBody(what)
	if r.err != nil {
		return
	}
	d := newSharing(r.body)
	decode(&d)
	if err := d.end(); err != nil {
		r.err = fmt.Errorf("%s: %w", what, err)
	}
}

// readBody reads a record's length and content into r.body.
func (r *snapshotReader) readBody(what string) {
	r.body = r.body[:0]
	// In steps, because the length may lie about what follows.
	for left := int(r.number(what)); left > 0 && r.err == nil; left -= flushSize {
		r.readStep(what, min(left, flushSize))
	}
	r.sum = crc64.Update(r.sum, checksumTable, r.body)
}

func (r *snapshotReader) readStep(what string, n int) {
	start := len(r.body)
	r.body = slices.Grow(r.body, n)[:start+n]
	if _, err := io.ReadFull(r.r, r.body[start:]); err != nil {
		r.readFail(what, err)
	}
}

// number reads a number of at most 32 bits that stands between the records.
func (r *snapshotReader) number(what string) uint32 {
	if r.err != nil {
		return 0
	}
	b, err := r.r.Peek(binary.MaxVarintLen32) // the checksum that ends the snapshot is longer
	if err != nil {
		r.readFail(what, err)
		return 0
	}
	d := decoder{b: b}
	n := d.uint32()
	if d.err != nil {
		r.fail("length or number of a %s: %s", what, d.err)
		return 0
	}
	r.sum = crc64.Update(r.sum, checksumTable, b[:d.off])
	_, r.err = r.r.Discard(d.off)
	return n
}

// close compares the checksum and refuses what follows it.
func (r *snapshotReader) close() error {
	var b [checksumSize]byte
	if r.err != nil {
		return r.err
	}
	if _, err := io.ReadFull(r.r, b[:]); err != nil {
		r.readFail("checksum", err)
		return r.err
	}
	if got := binary.BigEndian.Uint64(b[:]); got != r.sum {
		r.fail("checksum %016x, the content has %016x", got, r.sum)
		return r.err
	}
	switch _, err := r.r.ReadByte(); err {
	case nil:
		r.fail("something follows the checksum")
	case io.EOF:
	default:
		r.readFail("end", err)
	}
	return r.err
}
