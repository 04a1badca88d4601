package fsm

import (
	"fmt"
	"io"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Snapshot is a frozen state.
type Snapshot struct {
	level    byte   // of the cluster; the snapshot is written at it
	index    uint64 // of the newest applied entry
	tenure   int64  // see Machine
	nodes    []frozenNode
	captured *registry.Captured // source of registry, which is made on demand; nil: registry is there
	registry registry.Frozen
	kv       kv.Frozen
}

// whole returns the snapshot with its registry.
func (s *Snapshot) whole() *Snapshot {
	if s.captured == nil {
		return s
	}
	c := *s
	c.registry, c.captured = s.captured.Frozen(), nil
	return &c
}

// WriteTo writes version, state and checksum (docs/reference/formats/snapshot.md). Equal states give equal bytes.
func (s *Snapshot) WriteTo(w io.Writer) (int64, error) {
	out := newStreamWriter(w, s.level)
	s.whole().walk(out)
	err := out.close()
	return out.n, err
}

// readSnapshot reads what WriteTo wrote. The clock and the epoch of coordination are the registry's.
func readSnapshot(r io.Reader) (s Snapshot, err error) {
	in := newStreamReader(r)
	s.level = in.level
	s.walk(in)
	f := &s.registry
	s.kv.Lease, s.kv.Epoch, s.kv.Established = f.Clock.Lease, f.Epoch, f.Established
	return s, in.close()
}

// part is a part of a snapshot with its own digest.
type part struct {
	name string
	walk func(*Snapshot, *stream)
}

// parts are the layout of a snapshot: first the single values, then the sections, each preceded by its number of
// records.
var parts = []part{
	{"header", func(s *Snapshot, t *stream) { t.record("header", s.head) }},
	{"batches", (*Snapshot).walkNodes},
	{"applications", func(s *Snapshot, t *stream) { // instances, and what is known about those that are gone
		f := &s.registry
		slots(t, &f.Free)
		section(t, "lease", &f.Leases, (*registry.LeaseState).Fields)
		section(t, "removal", &f.Removals, (*registry.Removal).Fields)
		section(t, "recent registration", &f.Registered, (*registry.Recent).Fields)
		section(t, "recent cancel", &f.Canceled, (*registry.Recent).Fields)
		section(t, "transition", &f.Transitions, (*registry.Preservation).Fields)
	}},
	{"peers", func(s *Snapshot, t *stream) {
		section(t, "link", &s.registry.Links, (*registry.Link).Fields)
		section(t, "sender", &s.registry.Senders, (*registry.Sender).Fields)
		section(t, "peer", &s.registry.Peers, (*registry.PeerState).Fields)
	}},
	{"catalog", func(s *Snapshot, t *stream) {
		section(t, "node of the catalog", &s.registry.Nodes, codec.Each((*catalog.Node).Fields))
		section(t, "heartbeat of a check", &s.registry.CheckHeartbeats, (*catalog.CheckHeartbeat).Fields)
	}},
	{"keys", func(s *Snapshot, t *stream) {
		section(t, "key", &s.kv.Pairs, codec.Each((*kv.Pair).Fields))
		section(t, "deletion", &s.kv.Deletions, (*kv.Deletion).Fields)
	}},
	{"sessions", func(s *Snapshot, t *stream) {
		section(t, "session", &s.kv.Sessions, (*kv.SessionState).Fields)
		section(t, "lock-delay", &s.kv.Delays, (*kv.Delay).Fields)
		section(t, "lock or semaphore", &s.kv.Permits, codec.Each((*kv.Permits).Fields))
	}},
	{"results", func(s *Snapshot, t *stream) {
		section(t, "result of what is done once", &s.kv.Kept, (*kv.KeptResult).Fields)
	}},
	{"restore", func(s *Snapshot, t *stream) {
		staged := &s.kv.Staged
		section(t, "staged node", &staged.Nodes, codec.Each((*catalog.Node).Fields))
		section(t, "staged instance", &staged.Instances, (*registry.Saved).Fields)
		section(t, "staged key", &staged.Pairs, codec.Each((*kv.Pair).Fields))
		section(t, "staged session", &staged.Sessions, codec.Each((*kv.Session).Fields))
		section(t, "staged lock or semaphore", &staged.Permits, codec.Each((*kv.Permits).Fields))
		t.record("staged roles and tokens", staged.Access.Fields)
	}},
	{"access", func(s *Snapshot, t *stream) { t.record("roles and tokens", s.kv.Access.Fields) }},
}

func (s *Snapshot) walk(t *stream) {
	for _, p := range parts {
		p.walk(s, t)
	}
}

// Digest is what replicas compare instead of their states: a checksum (CRC-64) of each part.
type Digest struct {
	Index uint64   // of the newest applied entry
	Parts []uint64 // in the order of DigestParts
}

// DigestParts returns the names of the parts of a state.
func DigestParts() []string {
	names := make([]string, len(parts))
	for i, p := range parts {
		names[i] = p.name
	}
	return names
}

// Digest walks the whole state. Equal states have equal digests; states that differ in one byte of a record do not.
func (s *Snapshot) Digest() Digest {
	s = s.whole()
	d := Digest{Index: s.index}
	for _, p := range parts {
		t := newStreamWriter(io.Discard, s.level)
		p.walk(s, t)
		t.flush()
		d.Parts = append(d.Parts, t.sum)
	}
	return d
}

func (s *Snapshot) head(c *codec.Codec) {
	c.Uint64(&s.index)
	c.Int64(&s.tenure)
	s.registry.Head(c)
	s.kv.Head(c)
}

// walkNodes walks nodes in ascending order, each followed by the few batches that are remembered of it.
func (s *Snapshot) walkNodes(t *stream) {
	section(t, "node", &s.nodes, (*frozenNode).fields)
	for i := range s.nodes {
		n := &s.nodes[i]
		if i > 0 && s.nodes[i-1].name >= n.name {
			t.fail("node %q after %q, want ascending order", n.name, s.nodes[i-1].name)
		}
		section(t, "remembered batch", &n.batches, (*remembered).fields)
		newest := n.finished
		for _, a := range n.batches {
			if a.seq <= newest {
				t.fail("batch %d of node %q after %d, want ascending order", a.seq, n.name, newest)
			}
			newest = a.seq
		}
		if len(n.batches) > maxRemembered {
			t.fail("%d remembered batches, want at most %d", len(n.batches), maxRemembered)
		}
	}
}

// slots walks the numbers of free slots.
func slots(t *stream, all *[]uint32) {
	n := t.number(uint32(len(*all)), "number of free slots")
	for i := uint32(0); i < n && t.err == nil; i++ {
		if t.reading() {
			*all = append(*all, 0)
		}
		if v := t.number((*all)[i], "free slot"); t.reading() {
			(*all)[i] = v
		}
	}
}

// section walks records, preceded by their number. Memory is allocated for what was read, not for what the number
// says.
func section[T any](t *stream, what string, all *[]T, fields func(*T, *codec.Codec)) {
	n := t.number(uint32(len(*all)), "number of records: "+what)
	for i := uint32(0); i < n && t.err == nil; i++ {
		if t.reading() {
			var none T
			*all = append(*all, none)
		}
		t.record(what, func(c *codec.Codec) { fields(&(*all)[i], c) })
	}
}

// Restore reads a snapshot completely, verifies it, and only then replaces the state in one step.
// Its errors wrap ErrNewerVersion, ErrCorrupt or the reader's error; the state is unchanged then.
func (m *Machine) Restore(r io.Reader) error {
	s, err := readSnapshot(r)
	if err != nil {
		return fmt.Errorf("restore a snapshot: %w", err)
	}
	thawed, coordination, err := thaw(s.registry, s.kv)
	if err != nil {
		return fmt.Errorf("restore a snapshot of entry %d: %w: %w", s.index, ErrCorrupt, err)
	}
	remembered := make(memory, len(s.nodes))
	for i := range s.nodes {
		kept := s.nodes[i].nodeMemory // a copy, so that one node does not keep the memory of all
		remembered[s.nodes[i].name] = &kept
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.registry, m.kv, m.memory, m.tenure = thawed, coordination, remembered, s.tenure
	m.level.Store(uint32(s.level))
	m.obeyLevel()
	m.publish(s.index)
	return nil
}

// thaw builds the two halves of a state; coordination asks the registry about nodes and checks.
func thaw(f registry.Frozen, k kv.Frozen) (*registry.Registry, *kv.State, error) {
	r, err := registry.Thaw(f)
	if err != nil {
		return nil, nil, err
	}
	if newest := max(f.Index, f.Reserved); k.Index > newest {
		return nil, nil, fmt.Errorf("coordination is at index %d, beyond the newest, which is %d", k.Index, newest)
	}
	c, err := kv.Thaw(k, r)
	return r, c, err
}
