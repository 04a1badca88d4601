package fsm

import (
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// operation is a row of either table, with every field of the operation filled in.
type operation struct {
	kind, level      byte
	name, typ, table string // table: of the page on formats
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
	for _, r := range registry.Rows() {
		op := filled(r.Zero).(registry.Op)
		if renew, ok := op.(registry.Renew); ok {
			renew.Handle = registry.Handle{} // see TestCodecReadsARenewalByHandleAsItWasWritten
			op = renew
		}
		all = append(all, operation{byte(r.Kind), r.Level, r.Name, r.Type, "", Item{Op: op}})
	}
	for _, r := range kv.Rows() {
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

func TestCodecReadsARenewalByHandleAsItWasWritten(t *testing.T) {
	want := registry.Renew{Handle: registry.Handle{Slot: 300, Gen: 70_000}, LastDirty: 7}
	op := want
	op.Key = registry.Key{App: "ORDERS", ID: "orders-1"} // is not encoded
	it := Item{Op: op}
	_, got, err := ParseBatch(AppendBatch(nil, codec.Newest, BatchID{}, []Item{it}))
	expect.That(t, err == nil && got[0].Op == want, "got %+v, %v, want %+v", got, err, want)
	size, b := Size(it), itemBytes(it)
	expect.That(t, size == len(b), "its size is said to be %d, and it takes %d", size, len(b))
}

// A snapshot is written while views read the same memory.
func TestEncoderChangesNothingOfWhatItWrites(t *testing.T) {
	for _, op := range operations(t) {
		before := strings.Clone(string(itemBytes(op.item)))
		again := string(itemBytes(op.item))
		expect.That(t, again == before, "%s is written as % x, and then as % x", op.typ, before, again)
	}
}
