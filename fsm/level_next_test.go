//go:build nextlevel

package fsm

import (
	"errors"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

var note = Item{KV: kv.Note{Key: "a", Value: []byte("b")}}

func TestALevelIsKeptBySnapshotsAndNeverGoesBack(t *testing.T) {
	n := newNode(t)
	expect.Equal(t, n.m.Level(), byte(codec.Oldest), "a new state has level")
	expect.Equal(t, snapshotOf(t, n.m)[len(snapshotMagic)], byte(1), "its snapshot has level")
	done := need.Got(n.m.Apply(n.m.Index()+1, term, AppendRaise(nil, 1, 2)))(t)
	expect.That(t, done.Raised && n.m.Level() == 2, "raised: %v, to level %d", done.Raised, n.m.Level())
	for _, again := range [][]byte{AppendRaise(nil, 2, 1), AppendRaise(nil, 1, 2)} { // lower, and decided twice
		need.Got(n.m.Apply(n.m.Index()+1, term, again))(t)
	}
	expect.Equal(t, n.m.Level(), byte(2), "after these it has")
	restored := restoredFrom(t, snapshotOf(t, n.m))
	expect.Equal(t, restored.Level(), byte(2), "restored, it has")
}

func TestALevelAboveWhatIsReadIsRefused(t *testing.T) {
	_, err := NewMachine().Apply(1, 1, AppendRaise(nil, 1, codec.Newest+1))
	expect.ErrorIs(t, err, ErrNewerVersion, "raised beyond the newest level: got")
}

func TestOnlyTheFirstEstablishDecidesTheLevel(t *testing.T) {
	m := NewMachine()
	need.Got(m.Apply(1, 1, AppendEstablish(nil, 1, Establish{Node: "n1", Cluster: "c", Level: 2})))(t)
	expect.Equal(t, m.Level(), byte(2), "a new cluster has level")
	other := NewMachine()
	need.Got(other.Apply(1, 1, AppendEstablish(nil, 1, Establish{Node: "n1", Cluster: "c"})))(t)
	need.Got(other.Apply(2, 2, AppendEstablish(nil, 1, Establish{Node: "n2", Cluster: "c", Level: 2})))(t)
	expect.Equal(t, other.Level(), byte(1), "a cluster that is there has level")
}

func TestAnItemNeedsTheLevelOfItsOperation(t *testing.T) {
	for name, tc := range map[string]struct {
		item Item
		want byte
	}{
		"renew":       {Item{Op: registry.Renew{Key: registry.Key{App: "A", ID: "b"}}}, 1},
		"note":        {note, 4},
		"note, once":  {Item{KV: kv.Once{Key: "k", Op: note.KV}}, 4},
		"write, once": {Item{KV: kv.Once{Key: "k", Op: kv.KeyOp{Verb: kv.Set, Key: "a"}}}, 1},
	} {
		expect.Equal(t, Need(tc.item), tc.want, "%s: needs level", name)
	}
}

func TestABatchOfALowerLevelHasNoOperationOfAHigherOne(t *testing.T) {
	b := AppendBatch(nil, 4, BatchID{Node: "n1"}, []Item{note})
	_, items, err := ParseBatch(b)
	expect.That(t, err == nil && len(items) == 1, "at level 4: %v", err)
	b[0] = 1
	_, _, err = ParseBatch(b)
	var at *ItemError
	expect.That(t, errors.Is(err, ErrCorrupt) && errors.As(err, &at) && at.Item == 0, "at level 1: got %v, want that item 0 cannot be read", err)
}
