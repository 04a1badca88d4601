package fsm

import (
	"bytes"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/golden"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// goldensOfLevel2 has what level 2 writes otherwise than level 1: the version in front, and the results that its bounds give.
const goldensOfLevel2 = golden.File("testdata/level-2.txtar")

func TestGoldenLevel2(t *testing.T) {
	id := BatchID{Node: "n1-7f3a", Boot: 2, Seq: 41, Finished: 39}
	batch := AppendBatch(nil, 2, id, []Item{{Op: goldenOps()["renew-handle"]}, {Op: goldenOps()["cancel"]}})
	goldensOfLevel2.Check(t, "entry-write", AppendWrite(nil, 2, registry.Stamp{Lease: 61_000, Wall: 1_700_000_000_200}, 1200, batch))
	goldensOfLevel2.Check(t, "entry-raise", AppendRaise(nil, 1, 2))
	goldensOfLevel2.Check(t, "results-bounds", AppendResults(nil, 2, BatchResult{ID: id,
		Results: []registry.Result{{Outcome: registry.TooMany}, {}}, KV: []kv.Result{{}, {Excess: kv.Crowded, Refusal: "too many"}}}))
	s := goldenSnapshot()
	s.level = 2
	var b bytes.Buffer
	need.Got(s.WriteTo(&b))(t)
	goldensOfLevel2.Check(t, "snapshot", b.Bytes())
	read := need.Got(readSnapshot(bytes.NewReader(goldens.Sections(t, "snapshot")["snapshot"])))(t)
	expect.Equal(t, read.level, byte(1), "the snapshot of level 1 is read as of level")
}
