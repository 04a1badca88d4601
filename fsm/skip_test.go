package fsm

import (
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// write is an entry with one batch of node n1.
func write(index, seq uint64, items ...Item) Entry {
	b := AppendBatch(nil, codec.Newest, BatchID{Node: "n1.aa", Boot: 1, Seq: seq}, items)
	return Entry{Index: index, Term: 1, Data: AppendWrite(nil, codec.Newest, registry.Stamp{Lease: int64(index) * 1000, Wall: 1e12}, 0, b)}
}

func setKey(key string) Item { return Item{KV: kv.KeyOp{Verb: kv.Set, Key: key}} }

// panickingOver is a machine that panics over what has a key, after it was performed.
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
	one := NewMachine() // one by one, and from a snapshot in the middle
	one.Skip([]uint64{2})
	for _, e := range entries {
		_, err := one.Apply(e.Index, e.Term, e.Data)
		need.OK(t, err)
		var b strings.Builder
		_, err = one.Snapshot().WriteTo(&b)
		need.OK(t, err)
		restored := NewMachine()
		restored.Skip([]uint64{2})
		need.OK(t, restored.Restore(strings.NewReader(b.String())))
		one = restored
	}
	var a, b strings.Builder
	_, err = skips.Snapshot().WriteTo(&a)
	need.OK(t, err)
	_, err = one.Snapshot().WriteTo(&b)
	need.OK(t, err)
	expect.That(t, a.String() == b.String(), "the states differ")
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
