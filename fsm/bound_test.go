package fsm

import (
	"bytes"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// bounded is a machine in a leadership, and entries with one batch each.
type bounded struct {
	t          *testing.T
	m          *Machine
	leadership uint64
	index      uint64
}

func newBounded(t *testing.T) *bounded {
	b := &bounded{t: t, m: NewMachine()}
	b.establish()
	return b
}

func (b *bounded) establish() {
	b.index++
	b.leadership = b.index
	b.apply(AppendEstablish(nil, Establish{Node: "n1", Cluster: "c"}))
}

func (b *bounded) apply(entry []byte) Applied {
	b.t.Helper()
	done, err := b.m.Apply(b.index, 1, entry)
	if err != nil {
		b.t.Fatal(err)
	}
	b.index++
	return done
}

// send applies an entry of a tenure with a batch that registers an instance.
func (b *bounded) send(tenure int64, seq uint64, bound Bound) BatchResult {
	b.t.Helper()
	id := BatchID{Node: "n2", Boot: 1, Seq: seq, Bound: bound}
	items := []Item{{Op: registry.Register{Instance: largeInstance(int(seq))}}}
	return b.apply(AppendWrite(nil, registry.Stamp{}, tenure, AppendBatch(nil, id, items))).Batches[0]
}

func TestABatchTakesEffectWithinItsBoundOnly(t *testing.T) {
	for _, row := range []struct {
		name   string
		tenure int64
		bound  func(leadership uint64) Bound
		late   bool
	}{
		{"without a bound", 1000, func(uint64) Bound { return Bound{} }, false},
		{"at its end", 1000, func(l uint64) Bound { return Bound{Leadership: l, Until: 1000} }, false},
		{"after it", 1001, func(l uint64) Bound { return Bound{Leadership: l, Until: 1000} }, true},
		{"of an earlier leadership", 0, func(l uint64) Bound { return Bound{Leadership: l - 1, Until: 1000} }, true},
		{"of a later one", 0, func(l uint64) Bound { return Bound{Leadership: l + 1, Until: 1000} }, true},
	} {
		b := newBounded(t)
		b.establish()
		res := b.send(row.tenure, 1, row.bound(b.leadership))
		expect.That(t, res.Late == row.late && !res.Refused, "%s: late %v, refused %v, want late %v", row.name, res.Late, res.Refused, row.late)
		there := b.m.View().Len() == 1
		expect.That(t, there != row.late, "%s: it took effect: %v", row.name, there)
	}
}

// An entry may stand in the log behind others that its leader stamped later.
func TestTheNewestTenureCountsAlsoAfterASnapshot(t *testing.T) {
	b := newBounded(t)
	b.send(2000, 1, Bound{})
	res := b.send(500, 2, Bound{Leadership: b.leadership, Until: 1000})
	expect.That(t, res.Late, "behind an entry of a later time: it took effect")
	var snapshot bytes.Buffer
	need.Got(b.m.Snapshot().WriteTo(&snapshot))(t)
	b.m = NewMachine()
	need.OK(t, b.m.Restore(&snapshot))
	res = b.send(500, 3, Bound{Leadership: b.leadership, Until: 1000})
	expect.That(t, res.Late, "after a snapshot: it took effect")
	b.establish()
	res = b.send(500, 4, Bound{Leadership: b.leadership, Until: 1000})
	expect.That(t, !res.Late, "in the next leadership, whose tenure begins anew: late")
}

func TestALateCopyDoesNotKeepAnotherFromTakingEffect(t *testing.T) {
	b := newBounded(t)
	res := b.send(2000, 1, Bound{Leadership: b.leadership, Until: 1000})
	need.That(t, res.Late, "the first copy is not late")
	res = b.send(2000, 1, Bound{Leadership: b.leadership, Until: 3000})
	expect.That(t, !res.Late && !res.Refused, "the second copy: late %v, refused %v", res.Late, res.Refused)
	res = b.send(9000, 1, Bound{Leadership: b.leadership, Until: 3000})
	expect.That(t, !res.Late && !res.Refused && len(res.Results) == 1, "a third copy of what took effect: %+v, want the answer", res)
}
