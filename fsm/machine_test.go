package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// node sends batches to a machine like one node of a cluster.
type node struct {
	t     testing.TB
	m     *Machine
	id    BatchID
	index uint64
	stamp registry.Stamp
	few   bool // only as many objects as show what is counted, see applyings
}

func newNode(t testing.TB) *node {
	return &node{t: t, m: NewMachine(), id: BatchID{Node: "n1", Boot: 1},
		stamp: registry.Stamp{Lease: 1000, Wall: 1_700_000_000_000}}
}

const term = 3

// write applies ops as the next batch.
func (n *node) write(ops ...registry.Op) []registry.Result {
	n.t.Helper()
	n.id.Seq++
	r := n.apply(n.batch(ops...)).Batches[0]
	if r.Refused || len(r.Registry) != len(ops) {
		n.t.Fatalf("batch %+v: got %+v, want %d results", n.id, r, len(ops))
	}
	return r.Registry
}

func (n *node) batch(ops ...registry.Op) []byte {
	items := make([]Item, len(ops))
	for i, op := range ops {
		items[i] = Item{Origin: registry.FromClient, Op: op}
	}
	return AppendBatch(nil, codec.Newest, n.id, items)
}

// apply applies batches as one entry.
func (n *node) apply(batches ...[]byte) Applied {
	n.t.Helper()
	n.index++
	done, err := n.m.Apply(n.index, term, AppendWrite(nil, codec.Newest, n.stamp, 0, batches...))
	if err != nil {
		n.t.Fatal(err)
	}
	return done
}

func (n *node) establish() registry.Epoch {
	n.t.Helper()
	n.index++
	settings := registry.DefaultSettings()
	done, err := n.m.Apply(n.index, term, AppendEstablish(nil, codec.Newest, Establish{Node: n.id.Node, Cluster: "c1", Settings: &settings}))
	if err != nil {
		n.t.Fatal(err)
	}
	return done.Epoch
}

func instance(app, id string) *registry.Instance {
	return &registry.Instance{InstanceID: id, App: app, HostName: id + ".example.com", Status: registry.Up,
		VIP: strings.ToLower(app), DataCenter: registry.DataCenter{Name: registry.MyOwn},
		RenewalInterval: 30, Duration: 90, LastDirty: 1_700_000_000_000}
}

func TestMachineAppliesTheBatchesOfAnEntryInOrder(t *testing.T) {
	n := newNode(t)
	key := registry.Key{App: "ORDERS", ID: "1"}
	n.id.Seq = 1
	first := n.batch(registry.Register{Instance: instance("ORDERS", "1")}, registry.Cancel{Key: key})
	n.id.Seq = 2
	second := n.batch(registry.Renew{Key: key})
	done := n.apply(first, second)
	var got []registry.Outcome
	for _, b := range done.Batches {
		for _, r := range b.Registry {
			got = append(got, r.Outcome)
		}
	}
	expect.Deep(t, got, []registry.Outcome{registry.Done, registry.Done, registry.NotFound}, "outcomes")
	expect.Equal(t, done.Batches[1].ID, n.id, "second result is for")
}

func TestMachineRepeatsTheResultsOfABatchWithoutEffect(t *testing.T) {
	n := newNode(t)
	n.id.Seq = 1
	register := n.batch(registry.Register{Instance: instance("ORDERS", "1")})
	first := n.apply(register).Batches[0]
	n.write(registry.Cancel{Key: registry.Key{App: "ORDERS", ID: "1"}})
	index := n.m.View().Index()

	expect.Deep(t, n.apply(register).Batches[0], first, "result")
	if got := n.m.View(); got.Len() != 0 || got.Index() != index {
		t.Errorf("%d leases at index %d, want none at %d: the registration took effect twice", got.Len(), got.Index(), index)
	}
}

func TestMachineRefusesAFinishedBatchWithoutEffect(t *testing.T) {
	n := newNode(t)
	n.id.Seq = 1
	late := n.batch(registry.Register{Instance: instance("ORDERS", "1")})
	n.id = BatchID{Node: n.id.Node, Boot: 1, Seq: 2, Finished: 1}
	n.apply(n.batch())
	got := n.apply(late).Batches[0]
	expect.That(t, got.Refused && got.Registry == nil && n.m.View().Len() == 0,
		"got %+v and %d leases, want a refusal and none", got, n.m.View().Len())
}

func TestMachineMovesOnlyTheLeaseClockWithATick(t *testing.T) {
	n := newNode(t)
	n.write(registry.Register{Instance: instance("ORDERS", "1")})
	before := n.m.View().Index()
	n.stamp.Lease += 700
	expect.Equal(t, n.apply().Clock, n.stamp, "clock")
	v := n.m.View()
	expect.That(t, v.Index() == before && v.Stamp() == n.stamp, "view at index %d and %+v, want %d and %+v", v.Index(), v.Stamp(), before, n.stamp)
}

func TestMachineReturnsEpochAndClockOfAnEstablish(t *testing.T) {
	n := newNode(t)
	n.apply()
	done := need.Got(n.m.Apply(9, 4, AppendEstablish(nil, codec.Newest, Establish{Node: "n1", Cluster: "c1"})))(t)
	want := (registry.Epoch{Term: 4, Index: 9})
	expect.That(t, done.Epoch == want && done.Clock == n.stamp && done.Batches == nil, "got %+v, want epoch %+v, clock %+v", done, want, n.stamp)
	expect.Equal(t, n.m.View().Epoch(), "c1", "view of epoch")
}

func TestMachineKeepsSettingsUntilALeaderChangesThem(t *testing.T) {
	n := newNode(t)
	establish := func(s *registry.Settings) registry.Settings {
		n.index++
		need.Got(n.m.Apply(n.index, term, AppendEstablish(nil, codec.Newest, Establish{Settings: s})))(t)
		return n.m.View().Settings()
	}
	for _, c := range []struct {
		name string
		s    *registry.Settings
		want registry.Settings
	}{
		{"none at first", nil, registry.DefaultSettings()},
		{"some", goldenSettings(), *goldenSettings()},
		{"none later", nil, *goldenSettings()},
	} {
		expect.Equal(t, establish(c.s), c.want, "%s: got", c.name)
	}
}

func TestMachineEndsOverridesAndQuarantinesAtTheirTime(t *testing.T) {
	n := newNode(t)
	epoch := n.establish()
	n.write(registry.Register{Instance: instance("ORDERS", "1")}, registry.Register{Instance: instance("ORDERS", "2")})
	one, two := registry.Key{App: "ORDERS", ID: "1"}, registry.Key{App: "ORDERS", ID: "2"}
	n.write(registry.SetOverride{Key: one, Status: registry.OutOfService, For: 5000}, registry.Quarantine{Key: two, For: 6000})
	expect.Deep(t, n.m.Ending(n.stamp.Lease+4000), nil, "ending 4 s later:")
	n.stamp.Lease += 7000
	due := n.m.Ending(n.stamp.Lease)
	need.That(t, len(due) == 2 && due[0].(registry.EndOverride).Epoch == epoch && due[1].(registry.EndQuarantine).Epoch == epoch,
		"ending: %+v, want the override and then the quarantine, under %+v", due, epoch)
	for i, r := range n.write(due...) {
		expect.That(t, r.Outcome == registry.Done && r.Index != 0, "%+v: got %+v, want it done", due[i], r)
	}
	v := n.m.View()
	l, ok := v.Lease(one)
	expect.That(t, ok && l.Instance.Status == registry.Up && l.Instance.Overridden == registry.Unknown, "overridden until 5 s: %+v, want it UP again", l)
	_, ok = v.Lease(two)
	expect.That(t, ok && v.Len() == 2, "quarantined until 6 s: it is not listed, with %d leases", v.Len())
}

func TestMachineChangesNothingByAnUndecodableEntry(t *testing.T) {
	n := newNode(t)
	n.write(registry.Register{Instance: instance("ORDERS", "1")})
	want := snapshotOf(t, n.m)
	good := n.batch(registry.Cancel{Key: registry.Key{App: "ORDERS", ID: "1"}})
	newer := append([]byte{codec.Newest + 1}, good[1:]...)
	unknown := AppendBatch(nil, codec.Newest, BatchID{Node: "n1", Boot: 1, Seq: 9}, []Item{{Op: registry.Cancel{}}})
	unknown[len(unknown)-3] = 44
	for _, c := range []struct {
		name  string
		entry []byte
		want  error
		says  string
	}{
		{"empty", nil, ErrCorrupt, "early"},
		{"newer entry", []byte{codec.Newest + 1, 99, 99}, ErrNewerVersion, "newer version"},
		{"unknown kind of entry", []byte{codec.Newest, 77}, ErrCorrupt, "entry of unknown kind 77"},
		{"cut short behind a good batch", AppendWrite(nil, codec.Newest, n.stamp, 0, good, good)[:len(good)+25], ErrCorrupt, ""},
		{"newer batch behind a good one", AppendWrite(nil, codec.Newest, n.stamp, 0, good, newer), ErrNewerVersion, "batch 1"},
		{"unknown operation behind a good batch", AppendWrite(nil, codec.Newest, n.stamp, 0, good, unknown), ErrCorrupt, "batch 1: operation 0: corrupt at byte 11: operation of unknown kind 44"},
		{"something behind the last batch", append(AppendWrite(nil, codec.Newest, n.stamp, 0, good), 0), ErrCorrupt, "too many"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := n.m.Apply(4711, term, c.entry)
			expect.That(t, errors.Is(err, c.want) && strings.Contains(err.Error(), "log entry 4711: ") && strings.Contains(err.Error(), c.says),
				"got %v, want log entry 4711: %v … %s", err, c.want, c.says)
			expect.That(t, bytes.Equal(snapshotOf(t, n.m), want), "the state changed")
		})
	}
}

func TestMachineRefusesAnEntryOutOfOrder(t *testing.T) {
	m := NewMachine()
	tick := AppendWrite(nil, codec.Newest, registry.Stamp{Lease: 1}, 0)
	need.Got(m.Apply(5, term, tick))(t)
	for _, index := range []uint64{0, 4, 5} {
		_, err := m.Apply(index, term, tick)
		expect.That(t, err != nil && m.Index() == 5, "entry %d after 5: got %v, index %d, want an error and 5", index, err, m.Index())
	}
	_, err := m.Apply(8, term, tick)
	expect.That(t, err == nil && m.Index() == 8, "entry 8 after 5: got %v, index %d, want 8 (Raft has entries of its own)", err, m.Index())
}

func TestMachineAppliesTheEntriesBeforeOneThatItRefuses(t *testing.T) {
	n := newNode(t)
	n.establish()
	entry := func(index uint64, app string) Entry {
		n.id.Seq++
		return Entry{index, term, AppendWrite(nil, codec.Newest, n.stamp, 0, n.batch(registry.Register{Instance: instance(app, "i1")}))}
	}
	first, next := n.index+1, n.index+2
	tests := []struct {
		name    string
		refused Entry
	}{
		{"an entry out of order", entry(first, "REFUSED")},
		{"an entry that cannot be read", Entry{next, term, []byte{0xff}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t)
			n.establish()
			done, err := n.m.ApplyAll([]Entry{entry(first, "APPLIED"), tt.refused, entry(next+1, "REFUSED")})
			expect.That(t, err != nil && len(done) == 1 && n.m.Index() == first, "%d entries applied, up to %d: %v; want one, up to %d", len(done), n.m.Index(), err, first)
			expect.Equal(t, n.m.View().Len(), 1, "instances")
		})
	}
}

// Readers that saw an index must get a view that contains its entry; entry i has the stamp i.
func TestViewContainsTheEntryOfTheIndexSeenBefore(t *testing.T) {
	m := NewMachine()
	var wg sync.WaitGroup
	stop := make(chan struct{})
	reader := func(read func() error) {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := read(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 3 {
		reader(func() error {
			index := m.Index()
			v := m.View()
			if got := v.Stamp().Lease; got < int64(index) {
				return fmt.Errorf("view of entry %d after index %d", got, index)
			}
			for l := range v.Leases() {
				v.LastRenewal(l)
			}
			return nil
		})
	}
	reader(func() error {
		_, err := m.Snapshot().WriteTo(io.Discard)
		m.Expired(1<<40, 10)
		return err
	})
	for i := uint64(1); i <= 300; i++ {
		id := BatchID{Node: "n", Boot: 1, Seq: i, Finished: i - 1}
		inst := instance("ORDERS", fmt.Sprint(i%20))
		items := []Item{{Op: registry.Register{Instance: inst}}, {Op: registry.Renew{Key: inst.Key()}}}
		stamp := registry.Stamp{Lease: int64(i), Wall: int64(i)}
		need.Got(m.Apply(i, term, AppendWrite(nil, codec.Newest, stamp, 0, AppendBatch(nil, codec.Newest, id, items))))(t)
	}
	close(stop)
	wg.Wait()
}

// write returns an entry with one batch of node n1.
func write(index, seq uint64, items ...Item) Entry {
	b := AppendBatch(nil, codec.Newest, BatchID{Node: "n1.aa", Boot: 1, Seq: seq}, items)
	return Entry{Index: index, Term: 1, Data: AppendWrite(nil, codec.Newest, registry.Stamp{Lease: int64(index) * 1000, Wall: 1e12}, 0, b)}
}

func setKey(key string) Item { return Item{KV: kv.KeyOp{Verb: kv.Set, Key: key}} }

// panickingOver returns a machine that panics after it has performed an operation on key.
func panickingOver(key string) *Machine {
	m := NewMachine()
	m.Performed = func(it Item) {
		if op, ok := it.KV.(kv.KeyOp); ok && op.Key == key {
			panic("planted")
		}
	}
	return m
}

func applied(m *Machine, entries ...Entry) ([]Applied, error) { return m.ApplyAll(entries) }

func TestPanicIsNamedAndNobodyReadsHalfOfAnEntry(t *testing.T) {
	m := panickingOver("bad")
	_, err := applied(m, write(1, 1, setKey("a")))
	need.OK(t, err)
	before := m.published.Load()
	named := setKey("bad")
	named.By = access.Sender{Name: "ann"}
	_, err = applied(m, write(2, 2, setKey("b")), write(3, 3, setKey("c"), named, setKey("d")))
	const want = "log entry 3 panicked (planted) over key of bad (operation 2 of 3 of batch 3 of node n1.aa, sent by ann)"
	need.That(t, err != nil && err.Error() == want, "got %v, want %s", err, want)
	expect.That(t, m.published.Load() == before, "readers see what was applied before a panic in the same call")
	expect.That(t, !m.mu.TryLock(), "the state, which has half of an entry, can be read")
}

func TestSkippedEntryHasNoEffectAndIsPassed(t *testing.T) {
	entries := []Entry{write(1, 1, setKey("a")), write(2, 2, setKey("b"), setKey("bad")), write(3, 3, setKey("c"))}
	skips := panickingOver("bad")
	skips.Skip([]uint64{2})
	all, err := applied(skips, entries...)
	need.OK(t, err)
	need.That(t, all[1].Skipped && !all[0].Skipped && !all[2].Skipped, "%+v", all)
	need.That(t, len(all[1].Batches) == 1 && all[1].Batches[0].ID.Seq == 2 && all[1].Batches[0].Refused, "the result of the batch: %+v", all[1].Batches)
	expect.Equal(t, skips.Index(), 3, "index")
	for key, want := range map[string]bool{"a": true, "b": false, "bad": false, "c": true} {
		pair, _ := skips.KV().Get(key)
		expect.Equal(t, pair != nil, want, key+" is there")
	}
	one := NewMachine() // one by one, and from a snapshot halfway
	one.Skip([]uint64{2})
	for _, e := range entries {
		_, err := one.Apply(e.Index, e.Term, e.Data)
		need.OK(t, err)
		restored := NewMachine()
		restored.Skip([]uint64{2})
		need.OK(t, restored.Restore(bytes.NewReader(snapshotOf(t, one))))
		one = restored
	}
	expect.That(t, bytes.Equal(snapshotOf(t, skips), snapshotOf(t, one)), "the states differ")
}

func TestOnlyWritesAreDescribedAsWhatCanBeSkipped(t *testing.T) {
	key := registry.NewKey("orders", "o-1")
	got, err := DescribeWrite(write(1, 1, setKey("a"), Item{Op: registry.Cancel{Key: key}}, Item{Op: registry.Evict{}}, Item{Op: registry.SetCheck{Node: "n", Check: "c"}}, Item{Op: registry.Renew{Handle: registry.Handle{Slot: 3, Gen: 4}}}).Data)
	need.OK(t, err)
	expect.Slice(t, got, []string{"key of a", "cancel of ORDERS/o-1", "evict", "check of c", "renew of {3 4}"}, "operations")
	_, err = DescribeWrite(AppendEstablish(nil, codec.Newest, Establish{Node: "n1.aa", Cluster: "c"}))
	expect.ErrorSays(t, err, "leadership of n1.aa", "an Establish")
	_, err = DescribeWrite(AppendRaise(nil, codec.Oldest, codec.Newest))
	expect.ErrorSays(t, err, "raises the level", "a Raise")
	_, err = DescribeWrite([]byte{1, 9, 9})
	expect.That(t, err != nil, "what is no entry was described")
}
