package fsm

import (
	"bytes"
	"encoding/binary"
	"hash/crc64"
	"reflect"
	"runtime/metrics"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// addGolden seeds a fuzz target with the goldens whose names begin with prefix.
func addGolden(f *testing.F, prefix string, strip func([]byte) []byte) {
	f.Helper()
	for _, b := range goldens.Sections(f, prefix) {
		f.Add(strip(b))
	}
}

// goldenItems is every operation of the golden files.
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

// checkAllocated fails if decode allocates out of proportion to its n bytes of input. An operation
// in memory is up to a hundred times as large as the shortest one on disk.
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
		mixed := len(e.batches) > 1 && len(again) == len(b)
		need.That(t, mixed || bytes.Equal(again, b), "encoded again:\n%x, want\n%x", again, b)
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

// FuzzRestore feeds what stands between magic and checksum, which it adds, so that mutations get past
// them.
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
	var again bytes.Buffer
	need.Got(s.WriteTo(&again))(t)
	need.That(t, bytes.Equal(again.Bytes(), b), "written again:\n%x, want\n%x", again.Bytes(), b)
}

// seal puts magic and checksum around version and content.
func seal(content []byte) []byte {
	b := append([]byte(snapshotMagic), content...)
	return binary.BigEndian.AppendUint64(b, crc64.Checksum(b, checksumTable))
}

func snapshotOf(t testing.TB, m *Machine) []byte {
	t.Helper()
	var b bytes.Buffer
	n, err := m.Snapshot().WriteTo(&b)
	need.That(t, err == nil && n == int64(b.Len()), "WriteTo: %d bytes, %v, want %d", n, err, b.Len())
	return b.Bytes()
}

// fuzzDisk checks a record of the local disk, of which parse returns what it is encoded as again.
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

func TestGoldenSnapshotIsReadBack(t *testing.T) {
	want := goldenSnapshot()
	var b bytes.Buffer
	need.Got(want.WriteTo(&b))(t)
	got, err := readSnapshot(&b)
	expect.That(t, err == nil && reflect.DeepEqual(&got, want), "got %+v, %v, want %+v", got, err, want)
}
