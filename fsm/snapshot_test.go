package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/zstd"
	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store/backup"
)

// lived returns a machine that has something in every section of its snapshot.
func lived(t testing.TB) *node {
	n := newNode(t)
	n.establish()
	registered := n.write(
		registry.Register{Instance: instance("ORDERS", "1")},
		registry.Register{Instance: goldenInstance()},
		registry.Register{Instance: instance("CARTS", "1")},
		registry.Register{Instance: instance("CARTS", "2")},
		registry.Contact{DC: "dc2", Sender: "n3-90aa", Incarnation: 3, Clock: 123_456, Cut: 15_000},
		registry.PausePeer{Peer: "dc2", Paused: true, By: goldenAct},
	)
	n.stamp.Lease += 1000
	n.stamp.Wall += 1000
	n.write(registry.Renew{Handle: registered[0].Handle}, registry.Cancel{Key: registry.Key{App: "CARTS", ID: "1"}})
	n.stamp.Lease += 300_000 // its record loses the content
	n.write(registry.Cancel{Key: registry.Key{App: "CARTS", ID: "2"}},
		registry.SetOverride{Key: goldenKey, Status: registry.OutOfService, For: 60_000, By: goldenAct},
		registry.Quarantine{Key: registry.Key{App: "ORDERS", ID: "1"}, For: 60_000, By: goldenAct},
		registry.SelfPreservation{To: registry.PreservationHeld, For: 60_000, By: goldenAct})
	n.coordinate()
	return n
}

// coordinate adds something to every section of coordination, and to those of the catalog.
func (n *node) coordinate() {
	n.write(checkedService(catalog.Passing))
	n.writeKV(
		kv.CreateSession{ID: "s0", TTL: 60_000, LockDelay: 1_000_000_000, Behavior: kv.DeleteKeys},
		linkedSession,
		kv.KeyOp{Verb: kv.Acquire, Key: "delayed", Session: "s0"},
		heldKey,
		kv.Once{Key: "7c0d", Op: kv.KeyOp{Key: "once", Value: []byte("v")}},
		kv.AcquirePermit{Kind: kv.Lock, Name: "nightly", Session: "s1", Value: []byte("v")},
		kv.AcquirePermit{Kind: kv.Semaphore, Name: "workers", Session: "s0", Limit: 1},
		kv.AcquirePermit{Kind: kv.Lock, Name: "nightly", Session: "s0", Wait: 60_000},
		kv.DestroySession{ID: "s0"},
		kv.CreateSession{ID: "s2", TTL: 60_000},
		kv.AcquirePermit{Kind: kv.Lock, Name: "nightly", Session: "s2", Wait: 60_000},
	)
}

func TestRestoredMachineEqualsTheOriginal(t *testing.T) {
	n := lived(t)
	want := snapshotOf(t, n.m)
	m := NewMachine()
	need.OK(t, m.Restore(iotest.HalfReader(bytes.NewReader(want))))
	got := snapshotOf(t, m)
	expect.That(t, bytes.Equal(got, want), "the restored machine writes another snapshot:\n%x\n%x", got, want)
	expect.That(t, m.Index() == n.m.Index() && m.View().Counts().HashCode() == n.m.View().Counts().HashCode(),
		"index %d, %s, want %d, %s", m.Index(), m.View().Counts().HashCode(), n.m.Index(), n.m.View().Counts().HashCode())
	s := m.Snapshot().whole()
	f := s.registry
	expect.That(t, len(s.nodes) != 0 && len(f.Free) != 0 && len(f.Leases) != 0 && len(f.Removals) >= 2 && len(f.Registered) != 0 && len(f.Canceled) != 0,
		"a section of the test's snapshot is empty: %+v", s)
	if f := s.registry; len(f.Transitions) == 0 || f.Preservation.State != registry.PreservationHeld ||
		f.Leases[0].Lease.Quarantine == nil || f.Leases[1].Lease.Override == nil || len(f.Leases[0].History.Events()) == 0 || len(f.Removals[0].History.Events()) == 0 {
		t.Errorf("a part of the test's snapshot is empty: %+v", s)
	}
	f = s.registry
	expect.That(t, len(f.Links) != 0 && len(f.Senders) != 0 && len(f.Peers) != 0 && f.Leases[0].Client != 0 && f.Leases[0].Lease.ByClient != 0,
		"a part of the test's snapshot is empty: %+v", s)
	if f, k := s.registry, s.kv; f.Reserved == 0 || len(f.Nodes) == 0 || len(f.CheckHeartbeats) == 0 || len(k.Pairs) == 0 || len(k.Deletions) == 0 ||
		len(k.Sessions) == 0 || len(k.Delays) == 0 || len(k.Permits) < 2 || len(k.Kept) == 0 {
		t.Errorf("a section of the test's snapshot is empty: %+v", s)
	}
}

func TestDigestTellsTheChangedPart(t *testing.T) {
	n := lived(t)
	before := n.m.Snapshot().Digest()
	restored := restoredFrom(t, snapshotOf(t, n.m))
	got := restored.Snapshot().Digest()
	expect.That(t, got.Index == before.Index && slices.Equal(got.Parts, before.Parts), "restored: got %+v, want %+v", got, before)
	// In each part, a record is falsified in one byte or left out.
	falsify := map[string]func(*Snapshot){
		"header":  func(s *Snapshot) { s.tenure ^= 1 },
		"batches": func(s *Snapshot) { s.nodes[0].boot ^= 1 },
		"applications": func(s *Snapshot) {
			s.registry.Leases = slices.Clone(s.registry.Leases)
			s.registry.Leases[0].Client ^= 1
		},
		"peers": func(s *Snapshot) {
			s.registry.Links = slices.Clone(s.registry.Links)
			s.registry.Links[0].LastContact ^= 1
		},
		"catalog":  func(s *Snapshot) { s.registry.CheckHeartbeats = s.registry.CheckHeartbeats[1:] },
		"keys":     func(s *Snapshot) { s.kv.Deletions = slices.Clone(s.kv.Deletions); s.kv.Deletions[0].Index ^= 1 },
		"sessions": func(s *Snapshot) { s.kv.Sessions = s.kv.Sessions[1:] },
		"results":  func(s *Snapshot) { s.kv.Kept = s.kv.Kept[1:] },
		"restore":  func(s *Snapshot) { s.kv.Staged.Pairs = append(s.kv.Staged.Pairs, goldenPair()) },
		"access":   func(s *Snapshot) { s.kv.Access.Bootstrapped = !s.kv.Access.Bootstrapped },
	}
	for p, name := range DigestParts() {
		s := n.m.Snapshot().whole()
		falsify[name](s)
		got := s.Digest()
		for other := range got.Parts {
			expect.That(t, (got.Parts[other] == before.Parts[other]) == (other != p), "%s falsified: the digest of %s is %016x, before it was %016x", name, DigestParts()[other], got.Parts[other], before.Parts[other])
		}
	}
}

func TestSnapshotIsOfOneMoment(t *testing.T) {
	n := lived(t)
	want := snapshotOf(t, n.m)
	frozen := n.m.Snapshot()
	n.stamp.Lease += 5000
	n.write(registry.Register{Instance: instance("LATER", "1")}, registry.Renew{Key: registry.Key{App: "ORDERS", ID: "1"}},
		registry.Cancel{Key: registry.Key{App: "ORDERS", ID: "orders-1"}})
	expect.That(t, bytes.Equal(encoded(t, frozen), want), "entries that were applied after Snapshot are in it")
}

// checkRefused restores b into a machine with state, which must stay.
func checkRefused(t *testing.T, n *node, r io.Reader, want error) {
	t.Helper()
	before, index := n.m.View(), n.m.Index()
	need.ErrorIs(t, n.m.Restore(r), want, "got")
	need.That(t, n.m.View() == before && n.m.Index() == index, "the state was replaced all the same")
}

func TestRestoreRefusesASnapshotWhereverItIsCorrupted(t *testing.T) {
	n := lived(t)
	good := snapshotOf(t, n.m)
	for i := range good {
		for _, flip := range []byte{1, 0x80, 0xff} {
			bad := bytes.Clone(good)
			bad[i] ^= flip
			need.That(t, n.m.Restore(bytes.NewReader(bad)) != nil, "byte %d of %d xor %#x was accepted", i, len(good), flip)
		}
		checkRefused(t, n, bytes.NewReader(good[:i]), ErrCorrupt)
	}
	checkRefused(t, n, bytes.NewReader(append(bytes.Clone(good), 0)), ErrCorrupt)
	expect.That(t, bytes.Equal(snapshotOf(t, n.m), good), "the state changed")
}

// That Thaw refuses each lie about the registry and about coordination is tested there; here is one of each.
func TestRestoreRefusesASnapshotThatLies(t *testing.T) {
	n := lived(t)
	rewrite := func(change func(*Snapshot)) []byte {
		s := need.Got(readSnapshot(bytes.NewReader(snapshotOf(t, n.m))))(t)
		change(&s)
		return encoded(t, &s)
	}
	content := func(b []byte) []byte { return b[len(snapshotMagic) : len(b)-checksumSize] }
	good := rewrite(func(*Snapshot) {})
	newer := bytes.Clone(good)
	newer[len(snapshotMagic)] = codec.Newest + 1
	for _, c := range []struct {
		name     string
		snapshot []byte
		want     error
	}{
		{"empty", nil, ErrCorrupt},
		{"another file", []byte("PK\x03\x04 and so on, a zip archive"), ErrCorrupt},
		{"newer version", newer, ErrNewerVersion},
		{"record after the last section", seal(append(content(good), 1, 0)), ErrCorrupt},
		{"removal of what is only hidden", rewrite(func(s *Snapshot) { s.registry.Removals[0].Kind = registry.Hidden }), ErrCorrupt},
		{"senders out of order", rewrite(func(s *Snapshot) { s.registry.Senders = append(s.registry.Senders, s.registry.Senders[0]) }), ErrCorrupt},
		{"peers out of order", rewrite(func(s *Snapshot) { s.registry.Peers = append(s.registry.Peers, s.registry.Peers[0]) }), ErrCorrupt},
		{"coordination beyond the counter", rewrite(func(s *Snapshot) { s.registry.Reserved = 0 }), ErrCorrupt},
		{"key held by an unknown session", rewrite(func(s *Snapshot) { s.kv.Sessions = nil }), ErrCorrupt},
		{"results of coordination for another number of operations", rewrite(func(s *Snapshot) {
			s.nodes[0].batches[0].results.KV = make([]kv.Result, s.nodes[0].batches[0].results.Len()+1)
		}), ErrCorrupt},
		{"nodes out of order", rewrite(func(s *Snapshot) { s.nodes = append(s.nodes, s.nodes[0]) }), ErrCorrupt},
		{"batches out of order", rewrite(func(s *Snapshot) {
			s.nodes[0].batches = append(s.nodes[0].batches, s.nodes[0].batches[0])
		}), ErrCorrupt},
		{"result of a finished batch", rewrite(func(s *Snapshot) { s.nodes[0].finished = s.nodes[0].batches[0].seq }), ErrCorrupt},
		{"more batches than are remembered", rewrite(func(s *Snapshot) {
			s.nodes[0].batches = nil
			for seq := range uint64(maxRemembered + 1) {
				s.nodes[0].batches = append(s.nodes[0].batches, remembered{seq: seq + 1})
			}
		}), ErrCorrupt},
	} {
		t.Run(c.name, func(t *testing.T) { checkRefused(t, n, bytes.NewReader(c.snapshot), c.want) })
	}
}

func TestRestoreAllocatesNothingForAnnouncedLengths(t *testing.T) {
	huge := []byte{0xff, 0xff, 0xff, 0xff, 0x0f}
	empty := &Snapshot{level: codec.Newest}
	head := codec.Writer(nil, codec.Newest)
	outer := head.Open()
	empty.head(&head)
	head.Close(outer, "header")
	for name, content := range map[string][]byte{
		"length of a record":    huge,
		"number of nodes":       append(bytes.Clone(head.Written()), huge...),
		"number of slots":       append(append(bytes.Clone(head.Written()), 0), huge...),
		"number of leases":      append(append(bytes.Clone(head.Written()), 0, 0), huge...),
		"length of a string":    {6, 0, 0, 0, 0, 0, 0},
		"what ends in a length": append(append(bytes.Clone(head.Written()), 0, 0, 1), huge...),
	} {
		checkAllocated(t, 0, func() {
			expect.ErrorIs(t, expect.Err(readSnapshot(bytes.NewReader(seal(append([]byte{codec.Newest}, content...))))), ErrCorrupt, "%s: got", name)
		})
	}
}

func TestRestoreReportsItsReadersError(t *testing.T) {
	n := lived(t)
	broken := errors.New("disk on fire")
	good := snapshotOf(t, n.m)
	for _, at := range []int{0, 4, 30, len(good) - 3, len(good)} {
		checkRefused(t, n, io.MultiReader(bytes.NewReader(good[:at]), iotest.ErrReader(broken)), broken)
	}
}

func TestWriteToReportsItsWritersError(t *testing.T) {
	s := lived(t).m.Snapshot().whole()
	full := errors.New("no space left")
	for writes := range 2 {
		expect.ErrorIs(t, expect.Err(s.WriteTo(&failingWriter{err: full, good: writes})), full, "after %d good writes: got", writes)
	}
}

// failingWriter fails after a number of good writes.
type failingWriter struct {
	err  error
	good int
}

func (w *failingWriter) Write(b []byte) (int, error) {
	if w.good == 0 {
		return 0, w.err
	}
	w.good--
	return len(b), nil
}

// largestWrite records the size of the largest write.
type largestWrite struct{ size int }

func (w *largestWrite) Write(b []byte) (int, error) {
	w.size = max(w.size, len(b))
	return len(b), nil
}

func TestSnapshotIsWrittenInPieces(t *testing.T) {
	s := goldenSnapshot()
	for range 10_000 {
		s.registry.Leases = append(s.registry.Leases, s.registry.Leases[0])
	}
	var w largestWrite
	n := need.Got(s.WriteTo(&w))(t)
	expect.That(t, w.size <= 2*flushSize && n >= 10*flushSize,
		"largest piece of %d bytes: %d, want at most %d of at least %d", n, w.size, 2*flushSize, 10*flushSize)
}

func TestRestoreReadsALargeRecordInSteps(t *testing.T) {
	n := newNode(t)
	inst := instance("ORDERS", "1")
	inst.HomePageURL = strings.Repeat("long", flushSize)
	n.write(registry.Register{Instance: inst})
	l, ok := restoredFrom(t, snapshotOf(t, n.m)).View().Lease(inst.Key())
	expect.That(t, ok && l.Instance.HomePageURL == inst.HomePageURL, "the restored instance differs")
}

// A snapshot that its own writer refuses would cost the cluster its state, so whatever clients say about keys,
// sessions and locks, sensible or not, must leave a state that can be read back.
func TestRestoreBringsBackAllCoordination(t *testing.T) {
	draw := rapid.Custom(func(t *rapid.T) Item {
		op := genKVOp().Draw(t, "op")
		withoutServices(op)
		if create, ok := op.(kv.CreateSession); ok {
			create.ID = rapid.SampledFrom(twinSessions).Draw(t, "session") // which the server draws, not the client
			return Item{KV: create}
		}
		if once, ok := op.(kv.Once); ok {
			if _, ok := once.Op.(kv.CreateSession); ok {
				once.Op = kv.RenewSession{}
			}
			withoutServices(once.Op)
			return Item{KV: once}
		}
		return Item{KV: op}
	})
	rapid.Check(t, func(t *rapid.T) {
		m := NewMachine()
		id := BatchID{Node: "n", Boot: 1}
		for i := range rapid.Uint64Range(1, 6).Draw(t, "entries") {
			id.Seq++
			stamp := registry.Stamp{Lease: rapid.Int64().Draw(t, "lease"), Wall: rapid.Int64().Draw(t, "wall")}
			items := rapid.SliceOfN(draw, 0, 4).Draw(t, "items")
			need.Got(m.Apply(i+1, term, AppendWrite(nil, codec.Newest, stamp, 0, AppendBatch(nil, codec.Newest, id, items))))(t)
		}
		written := snapshotOf(t, m)
		again := snapshotOf(t, restoredFrom(t, written))
		need.That(t, bytes.Equal(again, written), "written again:\n%x, want\n%x", again, written)
	})
}

// withoutServices removes the services that a transaction would register: the server ensures that a service's
// instance is in its application, and that its checks are named after it.
func withoutServices(op kv.Op) {
	txn, _ := op.(kv.Txn)
	for _, one := range txn.Ops {
		if one.Catalog != nil && one.Catalog.Register != nil {
			one.Catalog.Register.Service, one.Catalog.Register.Instance = nil, nil
		}
	}
}

// Such a result has an index of the registry's, after the last change of any key.
func TestRestoreBringsBackTheResultOfATransactionOnTheCatalogAlone(t *testing.T) {
	m := NewMachine()
	set := kv.TxnOp{Catalog: &registry.CatalogOp{Verb: registry.CatalogSet, Node: "db-1", Register: &registry.RegisterCatalog{Node: &catalog.Node{Name: "db-1"}}}}
	item := Item{KV: kv.Once{Key: "k", Op: kv.Txn{Ops: []kv.TxnOp{set}}}}
	batch := AppendBatch(nil, codec.Newest, BatchID{Node: "n", Boot: 1, Seq: 1}, []Item{item})
	need.Got(m.Apply(1, 1, AppendWrite(nil, codec.Newest, registry.Stamp{}, 0, batch)))(t)
	restoredFrom(t, snapshotOf(t, m))
}

// backupOf returns a snapshot for people of a machine's state.
func backupOf(t need.T, m *Machine) []byte {
	var b bytes.Buffer
	_, _, err := backup.Write(&b, backup.Source{Registry: m.View(), KV: m.KV(), Header: backup.Header{Level: codec.Newest, Mode: "cp", Cluster: "c1"}})
	need.OK(t, err)
	return b.Bytes()
}

// stages returns the operations that bring a snapshot, and its header.
func stages(t need.T, id string, saved []byte) (ops []kv.Op, h backup.Header) {
	r := need.Got(backup.Open(bytes.NewReader(saved)))(t)
	for {
		part, err := r.Next()
		if err != nil {
			return ops, r.Header
		}
		ops = append(ops, kv.StagePart{ID: id, By: goldenAct, Part: uint64(len(ops)), Content: bytes.Clone(part)})
	}
}

// history is a random history with restores and recoveries. It remembers which indexes and tokens its readers were
// told: they must never be told lower ones.
type history struct {
	*twins
	saved  [][]byte // snapshots for people
	raft   [][]byte // snapshots of Raft, from which a node may be recovered
	lowest map[string]registry.Index
	n      int
}

func TestNoIndexAndNoTokenGoesBackThroughRestoresAndRecoveries(t *testing.T) {
	histories := 0
	for histories < 300 && !t.Failed() {
		rapid.Check(t, func(t *rapid.T) {
			histories++
			h := &history{twins: newTwins(), lowest: map[string]registry.Index{}}
			h.establish(t)
			actions := h.actions()
			delete(actions, "preserve")
			actions["save"], actions["bring back"], actions["bring back 2"], actions["recover"] = h.save, h.bringBack, h.bringBack, h.recover
			actions["acquire"], actions["acquire 2"], actions["save elsewhere"] = h.acquire, h.acquire, h.saveElsewhere
			actions[""] = h.look
			for range rapid.IntRange(8, 25).Draw(t, "steps") {
				actions[rapid.SampledFrom(sortedNames(actions)).Draw(t, "action")](t)
				h.look(t)
			}
			h.compareSnapshots(t)
			h.compareCoordination(t)
		})
		if testing.Short() {
			return
		}
	}
}

func (h *history) save(t *rapid.T) {
	h.saved = append(h.saved, backupOf(t, h.straight))
	h.raft = append(h.raft, snapshotOf(t, h.straight))
}

// bringBack restores one of the snapshots, or its beginning.
func (h *history) bringBack(t *rapid.T) {
	if len(h.saved) == 0 {
		return
	}
	h.n++
	id := fmt.Sprint("r", h.n)
	ops, header := stages(t, id, rapid.SampledFrom(h.saved).Draw(t, "snapshot"))
	op := kv.Restore{ID: id, Parts: uint64(len(ops)), By: goldenAct, Newest: header.Index, KeepSessions: rapid.Bool().Draw(t, "keep sessions")}
	if rapid.Bool().Draw(t, "keys only") {
		op.KeysOnly, op.Prefix = true, rapid.SampledFrom([]string{"", "a", "a/"}).Draw(t, "prefix")
	}
	if rapid.IntRange(0, 5).Draw(t, "cut") == 0 {
		ops = ops[:len(ops)/2]
	}
	for _, stage := range ops {
		h.apply(t, [][]byte{h.batch(t, []Item{{KV: stage}})})
		if rapid.IntRange(0, 5).Draw(t, "restart") == 0 {
			h.restore(t)
		}
	}
	h.apply(t, [][]byte{h.batch(t, []Item{{KV: op}})})
	if done := h.straight.KV().LastRestoration(); done != nil && done.ID == id {
		need.That(t, done.Index > header.Index, "restored at %d from a state at %d", done.Index, header.Index)
	}
}

// acquire makes a new session hold a key.
func (h *history) acquire(t *rapid.T) {
	h.n++
	id, key := fmt.Sprint("h", h.n), rapid.SampledFrom(twinKeys).Draw(t, "key")
	h.apply(t, [][]byte{h.batch(t, []Item{{KV: kv.KeyOp{Verb: kv.Delete, Key: rapid.SampledFrom(twinKeys).Draw(t, "deleted")}},
		{KV: kv.CreateSession{ID: id}}, {KV: kv.KeyOp{Verb: kv.Acquire, Key: key, Session: id, Value: []byte(id)}}, {KV: kv.DestroySession{ID: rapid.SampledFrom([]string{id, "none"}).Draw(t, "ended")}}})})
}

// saveElsewhere saves the state with an index that is far ahead, as another cluster would have it.
func (h *history) saveElsewhere(t *rapid.T) {
	m := restoredFrom(t, snapshotOf(t, h.straight))
	m.Recover(0)
	m.Recover(0)
	h.saved = append(h.saved, backupOf(t, m))
}

// recover goes on from a snapshot of Raft as the only remaining state.
func (h *history) recover(t *rapid.T) {
	if len(h.raft) == 0 || rapid.Bool().Draw(t, "not now") {
		return
	}
	h.stamp.Wall = max(h.stamp.Wall, 1_767_225_600_000) + 100*3_600_000 // disks are not lost every hour
	wall := h.stamp.Wall
	left := rapid.SampledFrom(h.raft).Draw(t, "left")
	for _, m := range []**Machine{&h.straight, &h.restored, &h.together} {
		recovered := restoredFrom(t, left)
		recovered.Recover(wall)
		*m = recovered
	}
	h.stamp = registry.Stamp{Lease: h.straight.View().Stamp().Lease, Wall: wall}
	h.waiting, h.brought = nil, nil
	h.sent = nil // batches of lost entries
	for node, id := range h.ids {
		h.ids[node] = BatchID{Node: node, Boot: id.Boot + 1}
	}
	h.index = max(h.index, h.straight.Index())
	h.establish(t)
}

// look compares everything that readers are told with the highest that they were told before.
func (h *history) look(t *rapid.T) {
	told := func(what string, now registry.Index) {
		need.That(t, now >= h.lowest[what], "%s is %d, after %d", what, now, h.lowest[what])
		h.lowest[what] = now
	}
	v, k := h.straight.View(), h.straight.KV()
	told("the registry's index", v.Index())
	told("the index of coordination", max(k.Index(), v.Index()))
	told("the sessions' index", k.SessionIndex())
	told("the catalog's index", v.CatalogIndex())
	for _, topic := range []registry.Topic{{}, {Kind: registry.AllTopic}, {Kind: registry.ServicesTopic}, {Kind: registry.NodesTopic}, {Kind: registry.ChecksTopic}, {Kind: registry.NodeTopic}} {
		at, _ := v.LastChange(topic)
		told(fmt.Sprint("topic ", topic), at)
	}
	for _, key := range twinKeys {
		p, index := k.Get(key)
		if p != nil {
			told("the ModifyIndex of "+key, p.ModifyIndex)
		}
		if p != nil && p.Session != "" {
			told("the token of "+key, p.Fence)
		}
		told("the index of "+key, index)
		_, index, _ = k.List(key)
		told("the index below "+key, index)
	}
	for _, name := range twinPermits {
		for _, kind := range []kv.Kind{kv.Lock, kv.Semaphore} {
			if p, _ := k.Permits(kind, name); p != nil {
				for _, holder := range p.Holders {
					told(fmt.Sprint("a token of ", kind, name, holder.Session), holder.Fence)
				}
			}
		}
	}
}

// A plan predicts what a restore then does.
func TestPlanOfARestoreIsWhatTheRestoreDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &history{twins: newTwins(), lowest: map[string]registry.Index{}}
		h.establish(t)
		actions := h.actions()
		names := sortedNames(actions)
		for range rapid.IntRange(0, 12).Draw(t, "steps before") {
			actions[rapid.SampledFrom(names).Draw(t, "action")](t)
		}
		saved := backupOf(t, h.straight)
		for range rapid.IntRange(0, 12).Draw(t, "steps after") {
			actions[rapid.SampledFrom(names).Draw(t, "action")](t)
		}
		then := need.Got(backup.Read(bytes.NewReader(saved)))(t)
		now := need.Got(backup.Read(bytes.NewReader(backupOf(t, h.straight))))(t)
		ops, header := stages(t, "r", saved)
		op := kv.Restore{ID: "r", Parts: uint64(len(ops)), By: goldenAct, Newest: header.Index}
		if rapid.Bool().Draw(t, "keys only") {
			op.KeysOnly, op.Prefix = true, "a"
			ops = narrowed(t, ops, op.Prefix)
			op.Parts = uint64(len(ops))
		}
		plan := backup.PlanOf(&then.Image, &now.Image, op)
		if len(ops) == 0 {
			return // nothing was saved
		}
		for _, stage := range append(ops, op) {
			h.both(t, AppendWrite(nil, codec.Newest, h.stamp, 0, h.batch(t, []Item{{KV: stage}})))
		}
		done := h.straight.KV().LastRestoration()
		need.That(t, done != nil, "nothing was restored")
		got := fmt.Sprint(done.KeysDeleted, done.SessionsEnded)
		want := fmt.Sprint(len(plan.KeysDeleted), len(plan.SessionsEnded))
		expect.That(t, got == want, "deleted keys and ended sessions are %s, and the plan says %s", got, want)
		expect.That(t, done.Keys == len(plan.KeysWritten), "%d keys were written, and the plan says %d", done.Keys, len(plan.KeysWritten))
		expect.That(t, done.Instances <= len(plan.Instances), "%d instances came back, and the plan says %d", done.Instances, len(plan.Instances))
	})
}

// narrowed returns the stages of a restore of keys alone, as a cluster stages them.
func narrowed(t need.T, ops []kv.Op, prefix string) (narrow []kv.Op) {
	for _, op := range ops {
		stage := op.(kv.StagePart)
		content := need.Got(backup.Narrow(stage.Content, codec.Newest, prefix))(t)
		if content != nil {
			stage.Part, stage.Content = uint64(len(narrow)), content
			narrow = append(narrow, stage)
		}
	}
	return narrow
}

func sortedNames(actions map[string]func(*rapid.T)) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(actions)), func(name string) bool { return name == "" })
}

// founded returns a machine whose cluster was founded at level 1.
func founded(t need.T) *Machine {
	m := NewMachine()
	need.Got(m.Apply(1, 1, AppendEstablish(nil, 1, Establish{Node: "n1", Cluster: "c1"})))(t)
	return m
}

// Two recoveries of old copies of one state, a minute apart: the second knows nothing about the first, and must not
// give out the same indexes again.
func TestRecoveriesWithinAnHourGiveNoIndexTwice(t *testing.T) {
	m := founded(t)
	left := snapshotOf(t, m)
	recovered := func(wall int64) *Machine {
		m := restoredFrom(t, left)
		m.Recover(wall)
		return m
	}
	const noon = 1_780_000_000_000
	first := recovered(noon)
	second := recovered(noon + 60_000)
	expect.That(t, second.KV().Index() > first.KV().Index()+60_000, "recovered at %d, and a minute later at %d again", first.KV().Index(), second.KV().Index())
}

// A file that contradicts itself must not make a state whose snapshot every node rejects.
func TestRestoreOfTokensBeyondTheFilesIndexIsRefused(t *testing.T) {
	for _, wrong := range []kv.Pair{{Key: "a", Fence: 1 << 40}, {Key: "a", LockIndex: math.MaxUint64}} {
		m := founded(t)
		wrong.CreateIndex, wrong.ModifyIndex = 1, 1
		image := kv.Image{Pairs: []*kv.Pair{&wrong}}
		packer := need.Got(zstd.NewWriter(nil))(t)
		for i, op := range []kv.Op{kv.StagePart{ID: "r", Content: packer.EncodeAll(image.Encode(1), nil)}, kv.Restore{ID: "r", Parts: 1, Newest: 1, KeysOnly: true}} {
			batch := AppendBatch(nil, 1, BatchID{Node: "n1", Boot: 1, Seq: uint64(i + 1)}, []Item{{KV: op}})
			need.Got(m.Apply(uint64(i+2), 1, AppendWrite(nil, 1, registry.Stamp{Lease: 1, Wall: 1}, 0, batch)))(t)
		}
		restoredFrom(t, snapshotOf(t, m))
		expect.That(t, m.KV().Len() == 0, "%+v was restored", wrong)
	}
}

// A restore of keys alone also leaves out a key that ended with its session.
func TestRestoreOfKeysAloneLeavesKeysAwayThatEndedWithTheirSession(t *testing.T) {
	m := founded(t)
	do := func(ops ...kv.Op) {
		var items []Item
		for _, op := range ops {
			items = append(items, Item{KV: op})
		}
		next := m.Index() + 1
		need.Got(m.Apply(next, 1, AppendWrite(nil, 1, registry.Stamp{Lease: 1, Wall: 1}, 0, AppendBatch(nil, 1, BatchID{Node: "n1", Boot: 1, Seq: next}, items))))(t)
	}
	do(kv.CreateSession{ID: "s", Behavior: kv.DeleteKeys}, kv.KeyOp{Verb: kv.Acquire, Key: "a/held", Session: "s"}, kv.KeyOp{Verb: kv.Set, Key: "a/plain"})
	saved := backupOf(t, m)
	do(kv.DestroySession{ID: "s"}, kv.KeyOp{Verb: kv.DeleteTree, Key: "a/"})
	ops, header := stages(t, "r", saved)
	ops = narrowed(t, ops, "a/")
	do(append(ops, kv.Restore{ID: "r", Parts: uint64(len(ops)), Newest: header.Index, KeysOnly: true, Prefix: "a/"})...)
	held, _ := m.KV().Get("a/held")
	plain, _ := m.KV().Get("a/plain")
	expect.That(t, held == nil && plain != nil, "the key that its session deletes is %+v, the other one %+v", held, plain)
}
