package fsm

import (
	"bytes"
	"encoding/binary"
	"hash/crc64"
	"io"
	"math"
	"reflect"
	"runtime/metrics"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// The generators draw everything that the formats can carry, sensible or not.

// highest are the last values of enumerations.
var highest = map[reflect.Type]byte{
	reflect.TypeFor[registry.Status]():            byte(registry.OutOfService),
	reflect.TypeFor[registry.Action]():            byte(registry.ActionDeleted),
	reflect.TypeFor[registry.OriginKind]():        byte(registry.RemoteDC),
	reflect.TypeFor[registry.PreservationState](): byte(registry.PreservationHeld),
	reflect.TypeFor[catalog.CheckStatus]():        byte(catalog.Critical),
	reflect.TypeFor[registry.Outcome]():           lastOutcome,
	reflect.TypeFor[kv.Verb]():                    lastVerb,
	reflect.TypeFor[registry.CatalogVerb]():       byte(registry.CatalogDeleteCAS),
	reflect.TypeFor[kv.Kind]():                    byte(kv.Semaphore),
	reflect.TypeFor[kv.Behavior]():                byte(kv.DeleteKeys),
	reflect.TypeFor[kv.Excess]():                  byte(kv.Forgotten),
	reflect.TypeFor[access.Resource]():            byte(access.CheckTarget),
	reflect.TypeFor[access.Verbs]():               byte(access.Read | access.Write | access.Register | access.Override | access.Exchange | access.Probe),
	reflect.TypeFor[access.Mode]():                byte(access.On),
}

// gen draws every field of a type.
func gen[T any]() *rapid.Generator[T] {
	return rapid.Custom(func(t *rapid.T) (v T) {
		draw(t, reflect.ValueOf(&v).Elem(), "value")
		return v
	})
}

func draw(t *rapid.T, v reflect.Value, name string) {
	if last, ok := highest[v.Type()]; ok {
		v.SetUint(uint64(rapid.ByteMax(last).Draw(t, name)))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for field, at := range v.Fields() {
			if field.IsExported() {
				draw(t, at, field.Name)
			}
		}
	case reflect.Slice:
		if n := rapid.IntRange(0, 3).Draw(t, name); n > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
			for i := range n {
				present(t, v.Index(i), name)
			}
		}
	case reflect.Array:
		for i := range v.Len() {
			draw(t, v.Index(i), name)
		}
	case reflect.Pointer:
		if rapid.Bool().Draw(t, "with "+name) {
			present(t, v, name)
		}
	case reflect.Interface:
		v.Set(reflect.ValueOf(genSimpleKVOp().Draw(t, name))) // of kv.Once
	case reflect.String:
		v.SetString(rapid.String().Draw(t, name))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, name))
	default:
		drawNumber(t, v, name)
	}
	switch v := v.Addr().Interface().(type) {
	case *access.Sender:
		v.Name = rapid.StringN(0, 20, access.MaxName).Draw(t, "sender")
	case *registry.Act:
		note := rapid.StringN(0, 20, maxNote)
		*v = registry.Act{Author: note.Draw(t, "author"), Reason: note.Draw(t, "reason"), Says: note.Draw(t, "says")}
	case *registry.Origin:
		if v.Kind != registry.RemoteDC {
			v.DC = ""
		}
		v.Principal = rapid.StringN(0, 20, maxNote).Draw(t, "principal")
	case *registry.Lease: // every lease has an instance
		if v.Instance == nil {
			present(t, reflect.ValueOf(&v.Instance).Elem(), "instance")
		}
	case *registry.RegisterCatalog: // the two go together
		v.Instance = nil
		if v.Service != nil {
			present(t, reflect.ValueOf(&v.Instance).Elem(), "instance")
		}
	}
}

// present does what draw does, but a pointer is not nil.
func present(t *rapid.T, v reflect.Value, name string) {
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	draw(t, v, name)
}

// drawNumber draws zero, which the formats often leave out, more often than other numbers.
func drawNumber(t *rapid.T, v reflect.Value, name string) {
	unused := 64 - v.Type().Bits()
	switch {
	case rapid.IntRange(0, 3).Draw(t, "kind of "+name) == 0:
	case v.Kind() == reflect.Int: // a count
		v.SetInt(int64(rapid.IntRange(0, math.MaxInt).Draw(t, name)))
	case v.CanInt():
		v.SetInt(rapid.Int64Range(math.MinInt64>>unused, math.MaxInt64>>unused).Draw(t, name))
	default:
		v.SetUint(rapid.Uint64Max(math.MaxUint64>>unused).Draw(t, name))
	}
}

func nilIfEmpty[T any](s []T) []T {
	if len(s) == 0 {
		return nil
	}
	return s
}

// genOp draws from every row of the registry's operations.
func genOp() *rapid.Generator[registry.Op] {
	return rapid.Custom(func(t *rapid.T) registry.Op {
		v := reflect.New(reflect.TypeOf(rapid.SampledFrom(registry.Operations.Rows()).Draw(t, "row").Zero))
		draw(t, v.Elem(), "operation")
		if i := v.Elem().FieldByName("Instance"); i.IsValid() && i.IsNil() {
			present(t, i, "instance")
		}
		switch op := v.Interface().(type) {
		case *registry.Renew: // by its handle or by its key
			if op.Handle.Gen != 0 {
				*op = registry.Renew{Handle: op.Handle, LastDirty: op.LastDirty}
			}
			op.Handle.Slot *= uint32(min(1, op.Handle.Gen))
		case *registry.Remove:
			op.Kind = rapid.SampledFrom([]registry.ChangeKind{registry.Canceled, registry.Evicted}).Draw(t, "kind")
		case *registry.RegisterCatalog:
			if op.Service == nil {
				op.Instance = nil
			}
		}
		return v.Elem().Interface().(registry.Op)
	})
}

func genOrigin() *rapid.Generator[registry.Origin] {
	return rapid.OneOf(
		rapid.Just(registry.FromClient),
		rapid.Just(registry.Origin{Kind: registry.LocalPeer}),
		rapid.Just(registry.FromEureka),
		rapid.Map(rapid.String(), func(dc string) registry.Origin {
			return registry.Origin{Kind: registry.RemoteDC, DC: dc}
		}),
	)
}

// genKVOp draws from every row of coordination's operations.
func genKVOp() *rapid.Generator[kv.Op] { return genKVOpOf(kv.Operations.Rows()) }

func genSimpleKVOp() *rapid.Generator[kv.Op] {
	return genKVOpOf(slices.DeleteFunc(kv.Operations.Rows(), func(r codec.Row) bool {
		switch r.Zero.(type) {
		case kv.Once, kv.StagePart, kv.Restore, kv.DropStaged, kv.Access:
			return true
		}
		return false
	}))
}

func genKVOpOf(rows []codec.Row) *rapid.Generator[kv.Op] {
	return rapid.Custom(func(t *rapid.T) kv.Op {
		v := reflect.New(reflect.TypeOf(rapid.SampledFrom(rows).Draw(t, "row").Zero))
		draw(t, v.Elem(), "operation")
		if op, ok := v.Interface().(*kv.CreateSession); ok && op.Checks == nil && rapid.Bool().Draw(t, "given") {
			op.Checks = []string{}
		}
		return v.Elem().Interface().(kv.Op)
	})
}

func genItem() *rapid.Generator[Item] {
	return rapid.Custom(func(t *rapid.T) Item {
		if rapid.IntRange(0, 2).Draw(t, "which") == 0 {
			return Item{KV: genKVOp().Draw(t, "kv"), By: gen[access.Sender]().Draw(t, "by")}
		}
		it := Item{Origin: genOrigin().Draw(t, "origin"), Op: genOp().Draw(t, "op")}
		if it.Origin.Kind == registry.Client {
			it.By = gen[access.Sender]().Draw(t, "by")
		}
		return it
	})
}

// addGolden seeds a fuzz target with the goldens whose names begin with prefix.
func addGolden(f *testing.F, prefix string, strip func([]byte) []byte) {
	f.Helper()
	for _, b := range goldens.Sections(f, prefix) {
		f.Add(strip(b))
	}
}

// goldenItems returns every operation of the golden files.
func goldenItems() []Item {
	var all []Item
	for _, ops := range []map[string]registry.Op{goldenOps(), goldenCatalogOps()} {
		for _, op := range ops {
			all = append(all, Item{Op: op})
		}
	}
	for _, op := range goldenKVOps() {
		all = append(all, Item{KV: op})
	}
	return all
}

func whole(b []byte) []byte { return b }

// checkAllocated fails if decode allocates out of proportion to its n bytes of input. An operation in memory is up to
// a hundred times as large as the shortest one on disk.
func checkAllocated(t *testing.T, n int, decode func()) {
	t.Helper()
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	before := sample[0].Value.Uint64()
	decode()
	metrics.Read(sample)
	got, limit := sample[0].Value.Uint64()-before, uint64(n)*200+4<<20
	expect.That(t, got <= limit, "decoding %d bytes allocated %d, want at most %d", n, got, limit)
}

// encode writes an entry at a level, and its batches, which may have been made before the level rose, at theirs.
func (e entry) encode(level byte, batch byte) []byte {
	if e.establish != nil {
		return AppendEstablish(nil, level, *e.establish)
	}
	if e.raise != 0 {
		return AppendRaise(nil, level, e.raise)
	}
	var batches [][]byte
	for _, b := range e.batches {
		batches = append(batches, AppendBatch(nil, batch, b.id, b.items))
	}
	return AppendWrite(nil, level, e.stamp, e.tenure, batches...)
}

func FuzzApplyEntry(f *testing.F) {
	addGolden(f, "entry-", whole)
	for _, it := range goldenItems() {
		f.Add(AppendWrite(nil, codec.Newest, registry.Stamp{Lease: 1, Wall: 2}, 0, AppendBatch(nil, codec.Newest, BatchID{Node: "n", Boot: 1, Seq: 1}, []Item{it})))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var e entry
		var err error
		checkAllocated(t, len(b), func() { e, err = parseEntry(b) })
		m := NewMachine()
		_, applyErr := m.Apply(7, 3, b)
		if err != nil {
			need.That(t, applyErr != nil && m.Index() == 0,
				"Apply: %v at index %d, want an error and no effect, because of %v", applyErr, m.Index(), err)
			return
		}
		need.That(t, applyErr == nil && m.Index() == 7, "Apply of a valid entry: %v, index %d", applyErr, m.Index())
		again := e.encode(b[0], b[0])
		for level := byte(codec.Oldest); level <= codec.Newest && !bytes.Equal(again, b); level++ {
			again = e.encode(b[0], level)
		}
		need.That(t, (len(e.batches) > 1 && len(again) == len(b)) || bytes.Equal(again, b), "encoded again:\n%x, want\n%x", again, b)
	})
}

func FuzzParseBatch(f *testing.F) {
	addGolden(f, "batch", whole)
	for _, it := range goldenItems() {
		if it.Op != nil {
			it.Origin = registry.FromEureka
		}
		f.Add(AppendBatch(nil, codec.Newest, BatchID{Node: "n", Boot: 1, Seq: 1}, []Item{it}))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		checkAllocated(t, len(b), func() {
			id, items, err := ParseBatch(b)
			if err != nil {
				return
			}
			again := AppendBatch(nil, b[0], id, items)
			need.That(t, bytes.Equal(again, b), "encoded again:\n%x, want\n%x", again, b)
		})
	})
}

func FuzzParseResults(f *testing.F) {
	addGolden(f, "results", whole)
	f.Fuzz(func(t *testing.T, b []byte) {
		checkAllocated(t, len(b), func() {
			r, err := ParseResults(b)
			if err != nil {
				return
			}
			again := AppendResults(nil, b[0], r)
			need.That(t, bytes.Equal(again, b), "encoded again:\n%x, want\n%x", again, b)
		})
	})
}

// FuzzRestore varies what is between magic and checksum, and adds these, so that mutations get past them.
func FuzzRestore(f *testing.F) {
	addGolden(f, "snapshot", func(b []byte) []byte { return b[len(snapshotMagic) : len(b)-checksumSize] })
	f.Add([]byte{codec.Newest})
	f.Fuzz(func(t *testing.T, content []byte) {
		b := seal(content)
		checkAllocated(t, len(b), func() { checkReadSnapshot(t, b) })
		m := NewMachine()
		if err := m.Restore(bytes.NewReader(b)); err != nil {
			need.That(t, m.Index() == 0 && m.View().Len() == 0, "Restore failed with %v and left index %d, %d leases", err, m.Index(), m.View().Len())
			return
		}
		again := snapshotOf(t, m)
		need.That(t, bytes.Equal(again, b), "written again:\n%x, want\n%x", again, b)
	})
}

func checkReadSnapshot(t *testing.T, b []byte) {
	s, err := readSnapshot(bytes.NewReader(b))
	if err != nil {
		return
	}
	again := encoded(t, &s)
	need.That(t, bytes.Equal(again, b), "written again:\n%x, want\n%x", again, b)
}

// seal puts magic and checksum around version and content.
func seal(content []byte) []byte {
	b := append([]byte(snapshotMagic), content...)
	return binary.BigEndian.AppendUint64(b, crc64.Checksum(b, checksumTable))
}

func snapshotOf(t need.T, m *Machine) []byte { return encoded(t, m.Snapshot()) }

func encoded(t need.T, s io.WriterTo) []byte {
	t.Helper()
	var b bytes.Buffer
	n, err := s.WriteTo(&b)
	need.That(t, err == nil && n == int64(b.Len()), "WriteTo: %d bytes, %v, want %d", n, err, b.Len())
	return b.Bytes()
}

func restoredFrom(t need.T, snapshot []byte) *Machine {
	t.Helper()
	m := NewMachine()
	need.OK(t, m.Restore(bytes.NewReader(snapshot)))
	return m
}

// fuzzDisk checks a record of the local disk. parse reads it and encodes it again.
func fuzzDisk(f *testing.F, file string, parse func([]byte) ([]byte, error)) {
	f.Add(goldens.Sections(f, file)[file])
	f.Fuzz(func(t *testing.T, b []byte) {
		checkAllocated(t, len(b), func() {
			again, err := parse(b)
			need.That(t, err != nil || bytes.Equal(again, b), "encoded again:\n%x, want\n%x", again, b)
		})
	})
}

func FuzzParseLeaseState(f *testing.F) { fuzzDisk(f, "disk-lease", leaseStateAgain) }
func FuzzParseRemoval(f *testing.F)    { fuzzDisk(f, "disk-removal", removalAgain) }
func FuzzParseFrozen(f *testing.F)     { fuzzDisk(f, "disk-registry", frozenAgain) }

func leaseStateAgain(b []byte) ([]byte, error) {
	l, err := ParseLeaseState(b)
	if err != nil {
		return nil, err
	}
	return AppendLeaseState(nil, b[0], l), nil
}

func removalAgain(b []byte) ([]byte, error) {
	r, err := ParseRemoval(b)
	if err != nil {
		return nil, err
	}
	return AppendRemoval(nil, b[0], r), nil
}

func frozenAgain(b []byte) ([]byte, error) {
	r, err := ParseFrozen(b)
	if err != nil {
		return nil, err
	}
	return AppendFrozen(nil, b[0], r), nil
}
