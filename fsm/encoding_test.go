package fsm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestCodecReadsAnEntryAsItWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		stamp := registry.Stamp{Lease: rapid.Int64().Draw(t, "lease"), Wall: rapid.Int64().Draw(t, "wall")}
		want := entry{stamp: stamp, tenure: rapid.Int64().Draw(t, "tenure")}
		var encoded [][]byte
		for range rapid.IntRange(0, 3).Draw(t, "batches") {
			b := batch{id: gen[BatchID]().Draw(t, "id"), items: nilIfEmpty(rapid.SliceOfN(genItem(), 0, 3).Draw(t, "items")), level: codec.Newest}
			want.batches = append(want.batches, b)
			encoded = append(encoded, AppendBatch(nil, codec.Newest, b.id, b.items))
		}
		got, err := parseEntry(AppendWrite(nil, codec.Newest, stamp, want.tenure, encoded...))
		need.That(t, err == nil && reflect.DeepEqual(got, want), "got %+v, %v, want %+v", got, err, want)
	})
}

func TestCodecReadsResultsAsTheyWereWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := BatchResult{
			ID:      gen[BatchID]().Draw(t, "id"),
			Refused: rapid.Bool().Draw(t, "refused"),
			Late:    rapid.Bool().Draw(t, "late"),
			Results: Results{Registry: nilIfEmpty(rapid.SliceOfN(gen[registry.Result](), 0, 5).Draw(t, "results"))},
		}
		if rapid.Bool().Draw(t, "coordination") {
			n := len(want.Registry)
			want.KV = nilIfEmpty(rapid.SliceOfN(gen[kv.Result](), n, n).Draw(t, "kv"))
		}
		want.ID.Bound = Bound{}
		got, err := ParseResults(AppendResults(nil, codec.Newest, want))
		need.That(t, err == nil && reflect.DeepEqual(got, want), "got %+v, %v, want %+v", got, err, want)
	})
}

// This test finds a field that is added to one of the registry's types without its line in Fields.
func TestEveryFieldIsEncoded(t *testing.T) {
	roundTrips := map[string]struct {
		value any
		trip  func(any) (any, error)
	}{
		"snapshot": {&registry.Frozen{}, func(v any) (any, error) {
			var b bytes.Buffer
			if _, err := (&Snapshot{level: codec.Newest, registry: *v.(*registry.Frozen)}).WriteTo(&b); err != nil {
				return nil, err
			}
			got, err := readSnapshot(&b)
			return &got.registry, err
		}},
		"establish": {&Establish{}, func(v any) (any, error) {
			got, err := parseEntry(AppendEstablish(nil, codec.Newest, *v.(*Establish)))
			return got.establish, err
		}},
		"result": {&registry.Result{}, func(v any) (any, error) {
			return written(v.(*registry.Result), (*registry.Result).Fields)
		}},
		"coordination in a snapshot": {&kv.Frozen{}, func(v any) (any, error) {
			f := v.(*kv.Frozen)
			beside := registry.Frozen{Clock: registry.Stamp{Lease: f.Lease}, Epoch: f.Epoch, Established: f.Established}
			var b bytes.Buffer
			if _, err := (&Snapshot{level: codec.Newest, registry: beside, kv: *f}).WriteTo(&b); err != nil {
				return nil, err
			}
			got, err := readSnapshot(&b)
			return &got.kv, err
		}},
		"batch results": {&BatchResult{}, func(v any) (any, error) {
			got, err := ParseResults(AppendResults(nil, codec.Newest, *v.(*BatchResult)))
			got.ID.Bound = v.(*BatchResult).ID.Bound // which belongs to a batch, not to its result
			return &got, err
		}},
		"lease on disk": {&registry.LeaseState{}, func(v any) (any, error) {
			got, err := ParseLeaseState(AppendLeaseState(nil, codec.Newest, *v.(*registry.LeaseState)))
			return &got, err
		}},
		"removal on disk": {&registry.Removal{}, func(v any) (any, error) {
			got, err := ParseRemoval(AppendRemoval(nil, codec.Newest, *v.(*registry.Removal)))
			return &got, err
		}},
		"registry on disk": {&registry.Frozen{}, func(v any) (any, error) {
			f := v.(*registry.Frozen)
			got, err := ParseFrozen(AppendFrozen(nil, codec.Newest, *f))
			f.Leases, f.Removals, f.Free = nil, nil, nil
			return &got, err
		}},
	}
	for name, rt := range roundTrips {
		t.Run(name, func(t *testing.T) {
			next := uint64(0)
			fill(t, reflect.ValueOf(rt.value).Elem(), &next)
			got, err := rt.trip(rt.value)
			expect.That(t, err == nil && reflect.DeepEqual(got, rt.value), "got %+v, %v, want %+v", got, err, rt.value)
		})
	}
}

// Numbers of the formats, from docs/reference/formats/log-entry.md.
const (
	opRenew, opRegister, opCancel, opSetOverride, opQuarantine        = 1, 2, 3, 4, 8
	opSelfPreservation, opReplica, opRemove, opPausePeer              = 11, 12, 13, 16
	opRegisterCatalog, opSetCheck, opCoordination                     = 18, 20, 63
	kvKey, kvTxn, kvCreateSession, kvRenewSession, kvOnce             = 1, 2, 3, 4, 11
	keyHasValue, keyHasFlags, keyHasIndex, keyHasSession, keyHasFence = 1, 2, 4, 8, 16
	hasIndex, hasHandle, hasCount                                     = 0x10, 0x20, 0x40
	kvOK, kvHasIndex, kvHasEntries, kvHasPlace                        = 1, 2, 8, 0x40
	lastOutcome                                                       = byte(registry.Held)
	lastVerb                                                          = byte(kv.DeleteTree)
	txnHasKey, txnHasSession, txnHasCatalog                           = 1, 2, 4
	maxNote                                                           = 1024
)

// written returns a record after writing and reading it.
func written[T any](v *T, fields func(*T, *codec.Codec)) (any, error) {
	w := codec.Writer(nil, codec.Newest)
	fields(v, &w)
	got := new(T)
	r := codec.Reader(w.Written())
	fields(got, &r)
	return got, r.End()
}

func itemBytes(it Item) []byte { return itemBytesAt(codec.Newest, it) }

func itemBytesAt(level byte, it Item) []byte {
	c := codec.Writer(nil, level)
	it.fields(&c)
	return c.Written()
}

// fill gives every field a valid nonzero value of its own.
func fill(t *testing.T, v reflect.Value, next *uint64) {
	*next++
	if last, ok := highest[v.Type()]; ok {
		v.SetUint(uint64(last))
		return
	}
	switch v.Interface().(type) {
	case registry.ChangeKind:
		v.SetUint(uint64(registry.Evicted))
		return
	case registry.EventKind:
		v.SetUint(uint64(registry.EventRestored))
		return
	case []byte:
		v.SetBytes(fmt.Append(nil, "x", *next))
		return
	case registry.History:
		var events []registry.Event
		fill(t, reflect.ValueOf(&events).Elem(), next)
		v.Set(reflect.ValueOf(registry.HistoryOf(events)))
		return
	}
	switch v.Kind() {
	case reflect.Interface: // of Once
		v.Set(reflect.ValueOf(kv.RenewSession{ID: "7"}))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem(), next)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i), next)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(t, v.Index(0), next)
		fill(t, v.Index(1), next)
	case reflect.Array:
		for i := range v.Len() {
			v.Index(i).SetUint(*next)
		}
	case reflect.String:
		v.SetString(fmt.Sprint("x", *next))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(int64(*next))
	case reflect.Uint8:
		v.SetUint(codec.Newest) // a level
	case reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(*next)
	default:
		t.Fatalf("no value for a field of type %s: add one here and to the formats", v.Type())
	}
}

func TestEncodingOfARenewalByHandleTakesFourteenBytes(t *testing.T) {
	largest := registry.Renew{
		Key:       registry.Key{App: "ORDERS", ID: "orders-1"}, // not encoded
		Handle:    registry.Handle{Slot: 1<<21 - 1, Gen: 1<<28 - 1},
		LastDirty: 1<<42 - 1, // the year 2109
	}
	it := Item{Origin: registry.FromClient, Op: largest}
	got := itemBytes(it)
	expect.That(t, len(got) <= 14 && Size(it) == len(got), "%d bytes (% x), want at most 14, and its size is said to be %d", len(got), got, Size(it))
	_, items, err := ParseBatch(AppendBatch(nil, codec.Newest, BatchID{}, []Item{it}))
	largest.Key = registry.Key{}
	expect.That(t, err == nil && items[0].Op == largest, "read again it is %+v, %v, want %+v", items, err, largest)
}

func TestDecoderRefusesBatchesThatNoEncoderWrites(t *testing.T) {
	item := func(b ...byte) []byte { return append([]byte{codec.Newest, 0, 0, 1, 0, 0, 0, 1}, b...) }
	long := append(binary.AppendUvarint(nil, maxNote+1), bytes.Repeat([]byte{'x'}, maxNote+1)...)
	noStatus := byte(len(registry.Statuses()))
	replica := itemBytes(Item{Op: registry.Replica{Instance: &registry.Instance{}}})
	for _, c := range []struct {
		name  string
		batch []byte
		want  string
	}{
		{"bytes after the last operation", item(opCancel, 0, 0, 7), "1 bytes too many"},
		{"operation of kind 0", item(0, 0, 0), "unknown kind 0"},
		{"operation of unknown kind", item(62, 0, 0), "unknown kind 62"},
		{"token without an accessor", item(0xc0|opCancel, 0, 0, 0), "announced and zero"},
		{"status that does not exist", item(opSetOverride, 0, 0, noStatus, 0, 0, 0, 0), fmt.Sprint("status ", noStatus)},
		{"instance with bytes left", item(append([]byte{opRegister, 30}, make([]byte, 30)...)...), "too many"},
		{"author without end", item(append([]byte{opQuarantine, 0, 0, 0}, append(long, 0)...)...), "author or reason of 1025 bytes"},
		{"reason without end", item(append([]byte{opQuarantine, 0, 0, 0, 0}, long...)...), "author or reason of 1025 bytes"},
		{"state that does not exist", item(opSelfPreservation, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0), "state of self-preservation 4"},
		{"coordination from a node of this datacenter", item(1<<originShift|opCoordination, kvRenewSession, 0), "from origin 1"},
		{"coordination from another datacenter", item(2<<originShift|opCoordination, 0, kvRenewSession, 0), "from origin 2"},
		{"coordination of kind 0", item(opCoordination, 0, 0, 0), "coordination of unknown kind 0"},
		{"coordination of unknown kind", item(opCoordination, kvOnce+5, 0, 0), "coordination of unknown kind 16"},
		{"once inside once", item(opCoordination, kvOnce, 0, kvOnce, 0, kvRenewSession, 0), "coordination of unknown kind 11"},
		{"verb that does not exist", item(opCoordination, kvKey, lastVerb+1, 0, 0), "verb 13"},
		{"fields of a key that do not exist", item(opCoordination, kvKey, 0, 32, 0), "operation of a key of unknown form 0x20"},
		{"value that is none", item(opCoordination, kvKey, 0, keyHasValue, 0, 0), "announced and zero"},
		{"flags that are none", item(opCoordination, kvKey, 0, keyHasFlags, 0, 0), "announced and zero"},
		{"index that is none", item(opCoordination, kvKey, 0, keyHasIndex, 0, 0), "announced and zero"},
		{"session that is none", item(opCoordination, kvKey, 0, keyHasSession, 0, 0), "announced and zero"},
		{"fence of what cannot be held", item(opCoordination, kvKey, 0, keyHasFence, 0, 3, 0, 0), "kind of what is held 3"},
		{"more operations than bytes in a transaction", item(opCoordination, kvTxn, 2, 0), "2 elements announced"},
		{"operation of a transaction of unknown form", item(opCoordination, kvTxn, 1, 8, 0), "operation of a transaction of unknown form 0x8"},
		{"session in a transaction that is none", item(opCoordination, kvTxn, 1, txnHasSession, 0), "announced and zero"},
		{"verb in a transaction that does not exist", item(opCoordination, kvTxn, 1, txnHasKey, lastVerb+1, 0, 0), "verb 13"},
		{"verb for the catalog that does not exist", item(opCoordination, kvTxn, 1, txnHasCatalog, 5, 0, 0, 0, 0, 0), "verb for the catalog 5"},
		{"behavior that does not exist", item(opCoordination, kvCreateSession, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0), "behavior of a session 2"},
		{"parts of a registration that do not exist", item(opRegisterCatalog, 0x80, 1, 0, 0), "registration of unknown form 0x80"},
		{"status of a check that does not exist", item(opSetCheck, 0, 0, 3, 0, 0, 0, 0), "status of a check 3"},
		{"replica without an instance", item(opReplica, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), "instance that ends at byte 10"},
		{"replica with a status that does not exist", item(append(replica[:len(replica)-13:len(replica)-13], noStatus, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)...), fmt.Sprint("status ", noStatus)},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := ParseBatch(c.batch)
			expect.That(t, errors.Is(err, ErrCorrupt) && strings.Contains(err.Error(), c.want),
				"ParseBatch(% x): got %v, want ErrCorrupt that says %q", c.batch, err, c.want)
		})
	}
}

func TestDecoderRefusesResultsThatNoEncoderWrites(t *testing.T) {
	result2 := func(b ...byte) []byte { return append([]byte{codec.Newest, 0, 0, 1, 0, 0, 0, 1}, b...) }
	result := func(b ...byte) []byte { return append(result2(b...), 0) } // without coordination
	maxCount := binary.AppendUvarint([]byte{hasCount}, math.MaxInt)
	for _, c := range []struct {
		name    string
		results []byte
		want    string // "" if it is valid
	}{
		{"largest count", result(maxCount...), ""},
		{"count of zero", result(hasCount, 0), "announced and zero"},
		{"index of zero", result(hasIndex, 0), "announced and zero"},
		{"handle of zeros", result(hasHandle, 0, 0), "announced and zero"},
		{"last outcome", result(lastOutcome), ""},
		{"coordination", result2(0, 1, kvOK|kvHasIndex, 1), ""},
		{"coordination for two operations where there was one", result2(0, 2, 1, 1), "2 results of coordination for 1 operations"},
		{"coordination of unknown form", result2(append([]byte{0, 1}, binary.AppendUvarint(nil, 1<<12)...)...), "unknown form 0x1000"},
		{"coordination with an index of zero", result2(0, 1, kvHasIndex, 0), "announced and zero"},
		{"coordination with no entries", result2(0, 1, kvHasEntries, 0), "announced and zero"},
		{"coordination with a place beyond an int", result2(append([]byte{0, 1, kvHasPlace}, binary.AppendUvarint(nil, math.MaxInt+1)...)...), "out of range"},
		{"unknown field", result(0x80), "unknown form 0x80"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ParseResults(c.results)
			if c.want == "" {
				expect.OKf(t, err, "ParseResults(% x)", c.results)
				return
			}
			expect.That(t, errors.Is(err, ErrCorrupt) && strings.Contains(err.Error(), c.want), "ParseResults(% x): got %v, want %q", c.results, err, c.want)
		})
	}
}

// setTo is a setting in an entry.
type setTo struct {
	key   string
	value int64
}

func TestDecoderRefusesEntriesThatNoEncoderWrites(t *testing.T) {
	const threshold, doubled = "self-preservation.renewal-percent-threshold", "eureka-compat.doubled-lease"
	establish := AppendEstablish(nil, codec.Newest, Establish{Settings: &registry.Settings{}})
	// with returns an entry with some settings, each a key and a number; a boolean has only the key, here -1.
	with := func(rows ...setTo) []byte {
		b := append(establish[:len(establish)-1:len(establish)-1], byte(len(rows)))
		for _, row := range rows {
			b = append(append(b, byte(len(row.key))), row.key...)
			if row.value >= 0 {
				b = binary.AppendUvarint(b, uint64(row.value))
			}
		}
		return b
	}
	whole := with(setTo{doubled, -1}, setTo{threshold, 1_000_000})
	need.OKf(t, expect.Err(parseEntry(whole)), "threshold of 1")
	for _, c := range []struct {
		name  string
		entry []byte
		want  string
	}{
		{"share above the whole", with(setTo{threshold, 1_000_001}), "share of 1000001 millionths"},
		{"share of nothing", with(setTo{threshold, 0}), "announced and zero"},
		{"unknown setting", with(setTo{"self-preservation.mood", 1}), "setting \"self-preservation.mood\" is unknown"},
		{"setting given twice", with(setTo{doubled, -1}, setTo{doubled, -1}), "given twice"},
		{"settings out of order", with(setTo{threshold, 1}, setTo{doubled, -1}), "not in its order"},
		{"settings cut short", whole[:len(whole)-4], "elements announced"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := parseEntry(c.entry)
			expect.That(t, errors.Is(err, ErrCorrupt) && strings.Contains(err.Error(), c.want),
				"parseEntry(% x): got %v, want ErrCorrupt that says %q", c.entry, err, c.want)
		})
	}
}

// A request beyond a bound must not become an entry that stops every node.
func TestEncoderCutsTextsAtTheirBound(t *testing.T) {
	long := strings.Repeat("x", maxNote+1)
	_, items, err := ParseBatch(AppendBatch(nil, codec.Newest, BatchID{}, []Item{{Op: registry.Quarantine{By: registry.Act{Author: long, Reason: long}}}}))
	need.OK(t, err)
	want := registry.Act{Author: long[:maxNote], Reason: long[:maxNote]}
	got := items[0].Op.(registry.Quarantine).By
	expect.That(t, got == want, "author and reason of %d and %d bytes, want %d", len(got.Author), len(got.Reason), maxNote)
	e, err := parseEntry(AppendEstablish(nil, codec.Newest, Establish{Settings: &registry.Settings{Threshold: registry.Whole + 1}}))
	expect.That(t, err == nil && e.establish.Settings.Threshold == registry.Whole, "threshold above 1: got %+v, %v, want 1", e.establish, err)
}

// An operation outside the closed sets is a defect of the program that proposes it.
func TestEncoderPanicsOnOperationsWithoutAnEncoding(t *testing.T) {
	for name, it := range map[string]Item{
		"nothing":              {},
		"nothing once":         {KV: kv.Once{}},
		"once inside once":     {KV: kv.Once{Op: kv.Once{Op: kv.RenewSession{}}}},
		"pointer to something": {KV: &kv.RenewSession{}},
	} {
		func() {
			defer func() {
				expect.That(t, recover() != nil, "%s: it was encoded", name)
			}()
			itemBytes(it)
		}()
	}
}

// The store allows operations of 1 MiB; the largest value takes half of that.
func TestCodecReadsTheLargestValueAsItWasWritten(t *testing.T) {
	value := bytes.Repeat([]byte{0xff}, 512<<10)
	ops := []kv.Op{kv.KeyOp{Key: "k", Value: value}, keyTxn(make([]kv.KeyOp, 128))}
	for _, op := range ops {
		b := AppendBatch(nil, codec.Newest, BatchID{}, []Item{{KV: op}})
		_, items, err := ParseBatch(b)
		need.That(t, err == nil && reflect.DeepEqual(items[0].KV, op), "%T: %v", op, err)
		expect.That(t, len(b) <= 1<<20, "%T takes %d bytes, want at most 1 MiB", op, len(b))
	}
	b := AppendBatch(nil, codec.Newest, BatchID{}, []Item{{KV: ops[0]}})
	_, items, _ := ParseBatch(b)
	clear(b)
	expect.That(t, bytes.Equal(items[0].KV.(kv.KeyOp).Value, value), "the value refers to the buffer that it was read from")
}

// damaged is an invalid record.
type damaged struct {
	name   string
	record []byte
	parse  func([]byte) error
	want   string // "" if it is valid
}

// record returns a record with a value that has no name.
func record[T any, P interface {
	*T
	Fields(*codec.Codec)
}](name string, v P, want string) damaged {
	fields := func(v *T, c *codec.Codec) { P(v).Fields(c) }
	parse := func(b []byte) error { _, err := parseRecord(name, codec.SharingReader(b, 1), fields); return err }
	return damaged{name, appendRecord(nil, codec.Newest, (*T)(v), fields), parse, want}
}

func TestDecoderRefusesSnapshotRecordsThatNoEncoderWrites(t *testing.T) {
	lease := &registry.Lease{Instance: goldenInstance()}
	removal := func(kind registry.ChangeKind) []byte {
		return AppendRemoval(nil, codec.Newest, registry.Removal{Kind: kind, Lease: lease})
	}
	state := AppendLeaseState(nil, codec.Newest, registry.LeaseState{Lease: lease})
	history := func(events ...byte) []byte { // instead of an empty one, before the renewals
		return append(append(state[:len(state)-6:len(state)-6], events...), 0, 0, 0, 0, 0)
	}
	event := func(kind registry.EventKind) []byte { return history(1, 0, 0, byte(kind), 0, 0, 0, 0, 0, 0, 0, 0) }
	acts := slices.Clone(state)
	acts[len(acts)-18] = 0x40
	parseLease := func(b []byte) error { _, err := ParseLeaseState(b); return err }
	parseRemoval := func(b []byte) error { _, err := ParseRemoval(b); return err }
	named := func(change func(l *registry.Lease, e *registry.Event)) []byte {
		l, i, e := *lease, *lease.Instance, registry.Event{Times: 1}
		l.Instance, l.Override = &i, new(registry.Override)
		change(&l, &e)
		return AppendLeaseState(nil, codec.Newest, registry.LeaseState{Lease: &l, History: registry.HistoryOf([]registry.Event{e})})
	}
	for _, c := range []damaged{
		{"removal by eviction", removal(registry.Evicted), parseRemoval, ""},
		{"removal of what is only hidden", removal(registry.Hidden), parseRemoval, "kind of removal 3"},
		{"last event", event(registry.EventRestored), parseLease, ""},
		{"event that does not exist", event(registry.EventRestored + 1), parseLease, "event 15"},
		{"more events than bytes", history(100, 0), parseLease, "100 elements announced"},
		{"more events than are kept", history(append([]byte{17}, make([]byte, 17*9)...)...), parseLease, "17 events"},
		{"acts that do not exist", acts, parseLease, "acts of unknown form 0x40"},
		{"statuses that exist", named(func(*registry.Lease, *registry.Event) {}), parseLease, ""},
		{"status", named(func(l *registry.Lease, _ *registry.Event) { l.Instance.Status = 9 }), parseLease, "status 9"},
		{"override", named(func(l *registry.Lease, _ *registry.Event) { l.Instance.Overridden = 9 }), parseLease, "status 9"},
		{"reported status", named(func(l *registry.Lease, _ *registry.Event) { l.Override.Reported = 9 }), parseLease, "status 9"},
		{"status of an event", named(func(_ *registry.Lease, e *registry.Event) { e.Status = 9 }), parseLease, "status 9"},
		record("state of self-preservation", &registry.Preservation{State: 4}, "state of self-preservation 4"),
		record("status of a check", &catalog.Node{Checks: []*catalog.Check{{Status: 3}}}, "status of a check 3"),
		record("behavior of a session", &kv.SessionState{Session: &kv.Session{Behavior: 2}}, "behavior of a session 2"),
		record("kind of what is held", &kv.Permits{Kind: 3}, "kind of what is held 3"),
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.parse(c.record)
			if c.want == "" {
				expect.OK(t, err)
				return
			}
			expect.That(t, errors.Is(err, ErrCorrupt) && strings.Contains(err.Error(), c.want), "got %v, want %q", err, c.want)
		})
	}
}

func TestDecoderDoesNotCallAnotherVersionCorrupt(t *testing.T) {
	f := goldenSnapshot().registry
	batch := AppendBatch(nil, codec.Newest, BatchID{}, nil)
	for name, c := range map[string]struct {
		good  []byte
		parse func([]byte) error
	}{
		"batch": {batch, func(b []byte) error { _, _, err := ParseBatch(b); return err }},
		"entry": {AppendWrite(nil, codec.Newest, registry.Stamp{}, 0), func(b []byte) error { _, err := parseEntry(b); return err }},
		"inside": {batch, func(b []byte) error {
			_, err := parseEntry(AppendWrite(nil, codec.Newest, registry.Stamp{}, 0, b))
			return err
		}},
		"results":  {AppendResults(nil, codec.Newest, BatchResult{}), func(b []byte) error { _, err := ParseResults(b); return err }},
		"lease":    {AppendLeaseState(nil, codec.Newest, f.Leases[0]), func(b []byte) error { _, err := ParseLeaseState(b); return err }},
		"removal":  {AppendRemoval(nil, codec.Newest, f.Removals[0]), func(b []byte) error { _, err := ParseRemoval(b); return err }},
		"registry": {AppendFrozen(nil, codec.Newest, f), func(b []byte) error { _, err := ParseFrozen(b); return err }},
	} {
		err := c.parse(append([]byte{codec.Newest + 1}, c.good[1:]...))
		expect.That(t, errors.Is(err, ErrNewerVersion) && !errors.Is(err, ErrCorrupt), "%s of the next version: got %v, want ErrNewerVersion", name, err)
	}
}

func TestDecodedRegistrationKeepsNothingElseOfItsBatchAlive(t *testing.T) {
	inst := &registry.Instance{App: "ORDERS", HostName: "h"}
	b := AppendBatch(nil, codec.Newest, BatchID{Node: "n"}, []Item{{Op: registry.Register{Instance: inst}}, {Op: registry.Replica{Instance: inst, Owner: "dc2"}}})
	_, items, err := ParseBatch(b)
	need.OK(t, err)
	clear(b)
	got := items[0].Op.(registry.Register).Instance
	expect.That(t, reflect.DeepEqual(got, inst), "got %+v after the buffer was overwritten, want what was encoded", got)
	if got := items[1].Op.(registry.Replica); !reflect.DeepEqual(got.Instance, inst) || got.Owner != "dc2" {
		t.Errorf("got %+v of %+v after the buffer was overwritten, want what was encoded", got, got.Instance)
	}
}

func TestEncodingOfARenewalOfALifeHasItsName(t *testing.T) {
	want := registry.Renew{Key: goldenKey, LastDirty: 7, Life: 2, Age: 30}
	op := want
	op.Handle = registry.Handle{Slot: 1, Gen: 1}
	_, items, err := ParseBatch(AppendBatch(nil, codec.Newest, BatchID{}, []Item{{Op: op}}))
	expect.That(t, err == nil && items[0].Op == want, "got %+v, %v, want %+v", items, err, want)
}

func TestEncodingOfARemovalOfNoKindIsACancel(t *testing.T) {
	for _, kind := range []registry.ChangeKind{registry.Live, registry.Canceled, registry.Hidden} {
		_, items, err := ParseBatch(AppendBatch(nil, codec.Newest, BatchID{}, []Item{{Op: registry.Remove{Kind: kind}}}))
		expect.That(t, err == nil && items[0].Op.(registry.Remove).Kind == registry.Canceled, "kind %d: got %+v, %v, want it canceled", kind, items, err)
	}
}

func TestLocalDiskRecordsThatNoEncoderWritesAreRefused(t *testing.T) {
	f := goldenSnapshot().registry
	for _, c := range []struct {
		name   string
		record []byte
		again  func([]byte) ([]byte, error)
	}{
		{"lease", AppendLeaseState(nil, codec.Newest, f.Leases[0]), leaseStateAgain},
		{"removal", AppendRemoval(nil, codec.Newest, f.Removals[0]), removalAgain},
		{"registry", AppendFrozen(nil, codec.Newest, f), frozenAgain},
	} {
		t.Run(c.name, func(t *testing.T) {
			for want, bad := range map[string][]byte{
				"it ends too early":       nil,
				"level 0":                 append([]byte{0}, c.record[1:]...),
				"1 bytes too many":        append(c.record[:len(c.record):len(c.record)], 0),
				c.name + " on disk: corr": c.record[:len(c.record)-1],
			} {
				_, err := c.again(bad)
				expect.That(t, errors.Is(err, ErrCorrupt) && strings.Contains(err.Error(), want), "got %v, want ErrCorrupt that says %q", err, want)
			}
			again, err := c.again(c.record)
			expect.That(t, err == nil && bytes.Equal(again, c.record), "encoded again: %x, %v, want %x", again, err, c.record)
		})
	}
}

func TestLocalDiskRecordsReferToNothingOfTheirBuffer(t *testing.T) {
	f := goldenSnapshot().registry
	lease, removal, frozen := AppendLeaseState(nil, codec.Newest, f.Leases[0]), AppendRemoval(nil, codec.Newest, f.Removals[0]), AppendFrozen(nil, codec.Newest, f)
	l, leaseErr := ParseLeaseState(lease)
	r, removalErr := ParseRemoval(removal)
	g, registryErr := ParseFrozen(frozen)
	need.OK(t, errors.Join(leaseErr, removalErr, registryErr))
	for _, b := range [][]byte{lease, removal, frozen} {
		clear(b)
	}
	g.Leases, g.Removals, g.Free = []registry.LeaseState{l}, []registry.Removal{r}, f.Free
	expect.That(t, reflect.DeepEqual(g, f), "got %+v after the buffers were overwritten, want %+v", g, f)
}

// The least size of an element bounds how many can follow.
func TestDecoderReadsListsOfEmptyElements(t *testing.T) {
	const many = 100
	for name, want := range map[string]registry.Frozen{
		"recent registrations": {Registered: make([]registry.Recent, many)},
		"recent cancels":       {Canceled: make([]registry.Recent, many)},
		"transitions":          {Transitions: make([]registry.Preservation, many)},
		"links":                {Links: make([]registry.Link, many)},
		"senders":              {Senders: make([]registry.Sender, many)},
		"peers":                {Peers: make([]registry.PeerState, many)},
		"nodes":                {Nodes: slices.Repeat([]*catalog.Node{{}}, many)},
		"heartbeats":           {CheckHeartbeats: make([]catalog.CheckHeartbeat, many)},
	} {
		b := AppendFrozen(nil, codec.Newest, want)
		got, err := ParseFrozen(b)
		expect.That(t, err == nil && reflect.DeepEqual(got, want), "%s: got %+v, %v, want %+v", name, got, err, want)
	}
	for _, op := range []registry.Op{registry.AckPeer{}, registry.PausePeer{}, registry.ForgetSender{}, registry.Contact{}, registry.Cancel{},
		registry.RegisterCatalog{}, registry.DeregisterCatalog{}, registry.SetCheck{}, registry.ExpireCheck{}} {
		items := slices.Repeat([]Item{{Op: op}}, many)
		_, got, err := ParseBatch(AppendBatch(nil, codec.Newest, BatchID{}, items))
		expect.That(t, err == nil && reflect.DeepEqual(got, items), "%T: got %+v, %v, want %d", op, got, err, many)
	}
	for _, it := range []Item{
		{Op: registry.RegisterCatalog{Checks: slices.Repeat([]*catalog.Check{{}}, many)}},
		{Op: registry.RegisterCatalog{Service: &catalog.Service{Tagged: make([]catalog.TaggedAddress, many)}, Instance: &registry.Instance{}}},
		{KV: keyTxn(make([]kv.KeyOp, many))},
		{KV: kv.Txn{Ops: make([]kv.TxnOp, many)}},
		{KV: kv.RenewSession{}},
		{KV: kv.CreateSession{NodeChecks: make([]string, many)}},
	} {
		_, got, err := ParseBatch(AppendBatch(nil, codec.Newest, BatchID{}, []Item{it}))
		expect.That(t, err == nil && reflect.DeepEqual(got, []Item{it}), "%T%T: got %+v, %v, want %d", it.Op, it.KV, got, err, many)
	}
	for _, r := range []kv.Result{{Pairs: slices.Repeat([]*kv.Pair{{}}, many)}, {Errors: make([]kv.TxnError, many)}, {Found: make([]kv.Found, many)}} {
		want := BatchResult{Results: Results{Registry: make([]registry.Result, 1), KV: []kv.Result{r}}}
		got, err := ParseResults(AppendResults(nil, codec.Newest, want))
		expect.That(t, err == nil && reflect.DeepEqual(got, want), "results: got %+v, %v, want %d entries or errors", got, err, many)
	}
	for _, want := range []*kv.Permits{{Holders: make([]kv.Holder, many)}, {Queue: make([]kv.Waiter, many)}, {Delays: make([]int64, many)}} {
		got, err := written(want, (*kv.Permits).Fields)
		expect.That(t, err == nil && reflect.DeepEqual(got, want), "permits: got %+v, %v, want %d holders, waiters or delays", got, err, many)
	}
}
