package fsm

import (
	"math"
	"reflect"
	"slices"

	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// The generators draw whatever the formats can carry, sensible or not.

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
	case *registry.Lease: // none is without
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

// present is draw, but a pointer is to something.
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

func genSettings() *rapid.Generator[registry.Settings] {
	return rapid.Map(gen[registry.Settings](), func(s registry.Settings) registry.Settings {
		s.Threshold = min(s.Threshold, registry.Whole)
		return s
	})
}

// genOp draws from every row of the registry's operations.
func genOp() *rapid.Generator[registry.Op] {
	return rapid.Custom(func(t *rapid.T) registry.Op {
		v := reflect.New(reflect.TypeOf(rapid.SampledFrom(registry.Rows()).Draw(t, "row").Zero))
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
func genKVOp() *rapid.Generator[kv.Op] { return genKVOpOf(kv.Rows()) }

func genSimpleKVOp() *rapid.Generator[kv.Op] {
	return genKVOpOf(slices.DeleteFunc(kv.Rows(), func(r kv.Row) bool {
		switch r.Zero.(type) {
		case kv.Once, kv.StagePart, kv.Restore, kv.DropStaged, kv.Access:
			return true
		}
		return false
	}))
}

func genKVOpOf(rows []kv.Row) *rapid.Generator[kv.Op] {
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
