package fsm

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// operation is a row of either table, with every field of the operation filled in.
type operation struct {
	kind, level      byte
	name, typ, table string // table: of the page about formats
	item             Item
}

func operations(t *testing.T) []operation {
	t.Helper()
	filled := func(zero any) any {
		v, next := reflect.New(reflect.TypeOf(zero)).Elem(), uint64(0)
		fill(t, v, &next)
		return v.Interface()
	}
	var all []operation
	for _, r := range registry.Operations.Rows() {
		op := filled(r.Zero).(registry.Op)
		if renew, ok := op.(registry.Renew); ok {
			renew.Handle = registry.Handle{} // see TestEncodingOfARenewalByHandleTakesFourteenBytes
			op = renew
		}
		all = append(all, operation{byte(r.Kind), r.Level, r.Name, r.Type, "", Item{Op: op}})
	}
	for _, r := range kv.Operations.Rows() {
		all = append(all, operation{r.Kind, r.Level, r.Name, r.Type, "kv.", Item{KV: filled(r.Zero).(kv.Op)}})
	}
	return all
}

// This test finds what an added operation still lacks.
func TestEveryOperationHasWhatTheFormatsAndMetricsNeed(t *testing.T) {
	page := need.Got(os.ReadFile("../docs/reference/formats/log-entry.md"))(t)
	names := make(map[string]bool)
	for _, op := range operations(t) {
		t.Run(op.table+op.typ, func(t *testing.T) {
			b := itemBytes(op.item)
			_, got, err := ParseBatch(AppendBatch(nil, codec.Newest, BatchID{}, []Item{op.item}))
			expect.That(t, err == nil && reflect.DeepEqual(got[0], op.item), "got %+v, %v, want %+v", got, err, op.item)
			expect.Equal(t, Size(op.item), len(b), "its size is said to be")
			expect.That(t, op.level >= 1 && op.level <= codec.Newest, "level %d is none of 1 to %d", op.level, codec.Newest)
			expect.That(t, regexp.MustCompile(`^[a-z_]+$`).MatchString(op.name) && !names[op.table+op.name],
				"%q is no name for a metric, or another one's", op.name)
			names[op.table+op.name] = true
			row := regexp.MustCompile(`(?m)^\| ` + strconv.Itoa(int(op.kind)) + ` \| ` + op.typ + ` \|`)
			expect.That(t, row.Match(page), "docs/reference/formats/log-entry.md has no row of kind %d, %s", op.kind, op.typ)
		})
	}
}

// A snapshot is written while views read the same memory.
func TestEncoderChangesNothingOfWhatItWrites(t *testing.T) {
	for _, op := range operations(t) {
		before := strings.Clone(string(itemBytes(op.item)))
		expect.Equal(t, string(itemBytes(op.item)), before, "%s is written as", op.typ)
	}
}

// Replicas compare bytes, so nothing that differs between two runs may decide anything in the states: no clock, no
// goroutine, no float, and no range over a map unless a comment on the line before says why its order does not
// matter. Waiting for changes is not part of the registry's state: Await may select.
func TestStateMachineHasNothingThatDiffersBetweenReplicas(t *testing.T) {
	for _, name := range []string{"registry", "kv", "order"} {
		t.Run(name, func(t *testing.T) { testNothingDiffers(t, name) })
	}
}

func testNothingDiffers(t *testing.T, name string) {
	read := need.Got(packages.Load(&packages.Config{Mode: packages.LoadSyntax}, "./"+name))(t)[0]
	need.That(t, len(read.Errors) == 0 && len(read.Syntax) > 0, "package %s: %v", name, read.Errors)
	fset, info := read.Fset, read.TypesInfo
	for _, file := range read.Syntax {
		commented := linesAfterComments(fset, file)
		ast.Inspect(file, func(n ast.Node) bool {
			if n == nil {
				return false
			}
			at := fset.Position(n.Pos())
			why := differs(n, info)
			expect.That(t, why == "" || why == selects && strings.HasSuffix(at.Filename, "/registry/watchers.go"), "%s: %s", at, why)
			expect.That(t, !rangesOverMap(n, info) || commented[at.Line],
				"%s: ranges over a map without a comment that says why its order does not matter", at)
			return true
		})
	}
}

const selects = "selects"

// differs returns what is wrong with a node, or "".
func differs(n ast.Node, info *types.Info) string {
	switch n := n.(type) {
	case *ast.GoStmt:
		return "starts a goroutine"
	case *ast.SelectStmt:
		return selects
	case *ast.SelectorExpr:
		if pkg, ok := n.X.(*ast.Ident); ok && pkg.Name == "time" && slices.Contains([]string{"Now", "Since", "Until"}, n.Sel.Name) {
			return "reads the clock"
		}
	case ast.Expr:
		if basic, ok := info.TypeOf(n).(*types.Basic); ok && basic.Info()&types.IsFloat != 0 {
			return "computes with a float"
		}
	}
	return ""
}

func rangesOverMap(n ast.Node, info *types.Info) bool {
	loop, ok := n.(*ast.RangeStmt)
	if !ok {
		return false
	}
	_, ok = info.TypeOf(loop.X).Underlying().(*types.Map)
	return ok
}

func linesAfterComments(fset *token.FileSet, file *ast.File) map[int]bool {
	lines := make(map[int]bool)
	for _, c := range file.Comments {
		lines[fset.Position(c.End()).Line+1] = true
	}
	return lines
}

// run judges a batch as the machine does, with results that carry its number.
func (m memory) run(id BatchID) (standing, registry.Index) {
	what, remembered := m.classify(id)
	results := remembered.results
	if what == fresh {
		results = Results{Registry: []registry.Result{{Index: registry.Index(id.Boot*1000 + id.Seq)}}}
		m.remember(id, results)
	}
	if results.Len() == 0 {
		return what, 0
	}
	return what, results.Registry[0].Index
}

func TestMemoryClassifiesBatchesByWhatTheirNodeReported(t *testing.T) {
	type step struct {
		id    BatchID
		want  standing
		index registry.Index
	}
	batch := func(boot, seq, finished uint64) BatchID {
		return BatchID{Node: "a", Boot: boot, Seq: seq, Finished: finished}
	}
	for _, c := range []struct {
		name  string
		steps []step
	}{
		{"new numbers are applied in any order", []step{
			{batch(1, 2, 0), fresh, 1002}, {batch(1, 1, 0), fresh, 1001}, {batch(1, 3, 0), fresh, 1003},
		}},
		{"a repetition gets the same result", []step{
			{batch(1, 1, 0), fresh, 1001}, {batch(1, 2, 0), fresh, 1002}, {batch(1, 1, 0), repeated, 1001}, {batch(1, 2, 0), repeated, 1002},
		}},
		{"what was reported as finished is refused", []step{
			{batch(1, 1, 0), fresh, 1001}, {batch(1, 3, 2), fresh, 1003}, {batch(1, 1, 0), refused, 0}, {batch(1, 2, 0), refused, 0},
		}},
		{"a report never goes back", []step{
			{batch(1, 5, 4), fresh, 1005}, {batch(1, 6, 0), fresh, 1006}, {batch(1, 4, 0), refused, 0}, {batch(1, 5, 4), repeated, 1005},
		}},
		{"a repetition may report too", []step{
			{batch(1, 1, 0), fresh, 1001}, {batch(1, 2, 0), fresh, 1002}, {batch(1, 2, 1), repeated, 1002}, {batch(1, 1, 0), refused, 0},
		}},
		{"a newer boot replaces the older", []step{
			{batch(1, 1, 0), fresh, 1001}, {batch(2, 1, 0), fresh, 2001}, {batch(1, 1, 0), refused, 0}, {batch(1, 2, 0), refused, 0}, {batch(2, 1, 0), repeated, 2001},
		}},
		{"number 0 does not exist", []step{{batch(1, 0, 0), refused, 0}}},
		{"a batch that calls itself finished is refused", []step{{batch(1, 3, 3), refused, 0}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := memory{}
			for i, s := range c.steps {
				got, index := m.run(s.id)
				need.That(t, got == s.want && index == s.index, "step %d, %+v: got standing %d with result %d, want %d with %d", i, s.id, got, index, s.want, s.index)
			}
		})
	}
}

func TestMemoryNumbersTheBatchesOfEachNodeAlone(t *testing.T) {
	m := memory{}
	for _, node := range []string{"a", "b", ""} {
		got, _ := m.run(BatchID{Node: node, Boot: 1, Seq: 1})
		expect.That(t, got == fresh, "node %q: got standing %d, want fresh", node, got)
	}
}

func TestMemoryRefusesBatchesWhoseResultsWereDropped(t *testing.T) {
	m := memory{}
	for seq := uint64(1); seq <= maxRemembered+3; seq++ {
		m.run(BatchID{Node: "a", Boot: 1, Seq: seq})
	}
	expect.Equal(t, len(m["a"].batches), maxRemembered, "batches that are remembered:")
	for seq, want := range map[uint64]standing{1: refused, 3: refused, 4: repeated, maxRemembered + 3: repeated} {
		got, _ := m.run(BatchID{Node: "a", Boot: 1, Seq: seq})
		expect.That(t, got == want, "batch %d: got standing %d, want %d", seq, got, want)
	}
}

func TestMemoryIsFrozenSortedAndUnchanged(t *testing.T) {
	m := memory{}
	for _, node := range []string{"c", "a", "b"} {
		m.run(BatchID{Node: node, Boot: 1, Seq: 1})
	}
	frozen := m.freeze()
	m.run(BatchID{Node: "a", Boot: 1, Seq: 3, Finished: 2})
	m.run(BatchID{Node: "b", Boot: 2, Seq: 1})
	var got string
	for _, n := range frozen {
		got += fmt.Sprintf("%s/%d/%d/%d ", n.name, n.boot, n.finished, n.batches[0].seq)
	}
	expect.Equal(t, got, "a/1/0/1 b/1/0/1 c/1/0/1 ", "got")
}

// Pairs that transactions read must not stay in memory, and in every snapshot, with the results of their batch.
func TestMemoryKeepsLittleOfWhatWasRead(t *testing.T) {
	n := newNode(t)
	value := make([]byte, 60<<10)
	set := kv.KeyOp{Verb: kv.Set, Key: "k", Value: value}
	n.perform(Item{KV: set})
	var items []Item
	for range 100 {
		items = append(items, Item{KV: keyTxn([]kv.KeyOp{{Verb: kv.Set, Key: "other"}, {Verb: kv.Get, Key: "k"}})})
	}
	n.id.Finished, n.id.Seq = n.id.Seq, n.id.Seq+1
	batch := AppendBatch(nil, codec.Newest, n.id, items)
	first, again := n.apply(batch).Batches[0], n.apply(batch).Batches[0]
	read := 0
	for i, r := range first.KV {
		need.That(t, r.Weight() >= 60<<10, "transaction %d: result %+v, want what it read", i, r)
		k := again.KV[i]
		need.That(t, k.OK && k.Index == r.Index && (k.Excess == kv.Forgotten) == (k.Pairs == nil),
			"transaction %d again: result %+v, want index %d, and what it read or that it was forgotten", i, k, r.Index)
		read += k.Weight()
	}
	expect.That(t, read <= keptRead && read != 0, "of what was read %d bytes were kept, want at most %d", read, keptRead)
}

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
	b.apply(AppendEstablish(nil, codec.Newest, Establish{Node: "n1", Cluster: "c"}))
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

// send applies an entry, at a tenure, with a batch that registers an instance.
func (b *bounded) send(tenure int64, seq uint64, bound Bound) BatchResult {
	b.t.Helper()
	id := BatchID{Node: "n2", Boot: 1, Seq: seq, Bound: bound}
	items := []Item{{Op: registry.Register{Instance: largeInstance(int(seq))}}}
	return b.apply(AppendWrite(nil, codec.Newest, registry.Stamp{}, tenure, AppendBatch(nil, codec.Newest, id, items))).Batches[0]
}

func TestMachineAppliesABatchWithinItsBoundOnly(t *testing.T) {
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

// An entry may be behind others in the log that its leader stamped later.
func TestMachineCountsTheNewestTenureAlsoAfterASnapshot(t *testing.T) {
	b := newBounded(t)
	b.send(2000, 1, Bound{})
	res := b.send(500, 2, Bound{Leadership: b.leadership, Until: 1000})
	expect.That(t, res.Late, "behind an entry of a later time: it took effect")
	b.m = restoredFrom(t, snapshotOf(t, b.m))
	res = b.send(500, 3, Bound{Leadership: b.leadership, Until: 1000})
	expect.That(t, res.Late, "after a snapshot: it took effect")
	b.establish()
	expect.That(t, !b.send(500, 4, Bound{Leadership: b.leadership, Until: 1000}).Late, "in the next leadership, whose tenure begins anew: late")
}

// A node that has just joined sends at the level that it knows, and there a drain is an override for good.
func TestBatchOfALowerLevelHasNoEffectAfterTheRise(t *testing.T) {
	for _, level := range []byte{codec.Oldest, registry.Level3 - 1, codec.Newest} {
		b := newBounded(t)
		id := BatchID{Node: "n2", Boot: 1, Seq: 1}
		items := []Item{{Op: registry.Register{Instance: largeInstance(1)}}}
		entry := AppendWrite(nil, codec.Newest, registry.Stamp{}, 0, AppendBatch(nil, level, id, items))
		res := b.apply(entry).Batches[0]
		there := b.m.View().Len() == 1
		expect.That(t, res.Late == (level < codec.Newest) && there != res.Late, "at level %d: late %v, it took effect: %v", level, res.Late, there)
	}
}

func TestMachineAppliesAnotherCopyOfALateBatch(t *testing.T) {
	b := newBounded(t)
	res := b.send(2000, 1, Bound{Leadership: b.leadership, Until: 1000})
	need.That(t, res.Late, "the first copy is not late")
	res = b.send(2000, 1, Bound{Leadership: b.leadership, Until: 3000})
	expect.That(t, !res.Late && !res.Refused, "the second copy: late %v, refused %v", res.Late, res.Refused)
	res = b.send(9000, 1, Bound{Leadership: b.leadership, Until: 3000})
	expect.That(t, !res.Late && !res.Refused && len(res.Registry) == 1, "a third copy of what took effect: %+v, want the result", res)
}
