package fsm

import (
	"math"

	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

func drawText(t *rapid.T, name string) string { return rapid.String().Draw(t, name) }

// drawBytes draws what is nil if it is empty.
func drawBytes(t *rapid.T, name string) []byte {
	return nilIfEmpty(rapid.SliceOfN(rapid.Byte(), 0, 8).Draw(t, name))
}

func drawStrings(t *rapid.T, name string) []string {
	return nilIfEmpty(rapid.SliceOfN(rapid.String(), 0, 3).Draw(t, name))
}

func drawKVIndex(t *rapid.T, name string) kv.Index {
	return kv.Index(rapid.OneOf(rapid.Just(uint64(0)), rapid.Uint64()).Draw(t, name))
}

func drawHeld(t *rapid.T) kv.Kind { return kv.Kind(rapid.ByteMax(byte(kv.Semaphore)).Draw(t, "kind")) }

func genKeyOp() *rapid.Generator[kv.KeyOp] {
	return rapid.Custom(func(t *rapid.T) kv.KeyOp {
		op := kv.KeyOp{Verb: kv.Verb(rapid.ByteMax(lastVerb).Draw(t, "verb")), Key: drawText(t, "key"), Value: drawBytes(t, "value"),
			Flags: rapid.OneOf(rapid.Just(uint64(0)), rapid.Uint64()).Draw(t, "flags"), Index: drawKVIndex(t, "index"),
			Session: drawText(t, "session")}
		if rapid.Bool().Draw(t, "fenced") {
			op.Fence = &kv.Fence{Kind: drawHeld(t), Name: drawText(t, "name"), Index: drawKVIndex(t, "token")}
		}
		return op
	})
}

func genCreateSession() *rapid.Generator[kv.Op] {
	return rapid.Custom(func(t *rapid.T) kv.Op {
		op := kv.CreateSession{ID: drawText(t, "id"), Name: drawText(t, "name"), Node: drawText(t, "node"),
			TTL: rapid.Int64().Draw(t, "ttl"), TTLText: drawText(t, "text"), LockDelay: rapid.Int64().Draw(t, "delay"),
			Behavior:   kv.Behavior(rapid.ByteMax(byte(kv.DeleteKeys)).Draw(t, "behavior")),
			NodeChecks: drawStrings(t, "nodeChecks"), ServiceChecks: drawStrings(t, "serviceChecks")}
		if rapid.Bool().Draw(t, "given") {
			op.Checks = rapid.SliceOfN(rapid.String(), 0, 3).Draw(t, "checks")
		}
		return op
	})
}

// genSimpleKVOp draws every operation of coordination but Once.
func genSimpleKVOp() *rapid.Generator[kv.Op] {
	return rapid.OneOf(
		rapid.Map(genKeyOp(), func(op kv.KeyOp) kv.Op { return op }),
		rapid.Custom(func(t *rapid.T) kv.Op {
			return kv.Txn{Ops: nilIfEmpty(rapid.SliceOfN(genKeyOp(), 0, 3).Draw(t, "ops"))}
		}),
		genCreateSession(),
		rapid.Custom(func(t *rapid.T) kv.Op { return kv.RenewSession{ID: drawText(t, "id")} }),
		rapid.Custom(func(t *rapid.T) kv.Op { return kv.DestroySession{ID: drawText(t, "id")} }),
		rapid.Custom(func(t *rapid.T) kv.Op {
			return kv.ExpireSession{Epoch: genEpoch().Draw(t, "epoch"), ID: drawText(t, "id"), Created: drawKVIndex(t, "created"),
				RenewedAt: rapid.Int64().Draw(t, "renewed")}
		}),
		rapid.Custom(func(t *rapid.T) kv.Op {
			return kv.EndDelay{Epoch: genEpoch().Draw(t, "epoch"), Kind: drawHeld(t), Name: drawText(t, "name"),
				Until: rapid.Int64().Draw(t, "until")}
		}),
		rapid.Custom(func(t *rapid.T) kv.Op {
			return kv.AcquirePermit{Kind: drawHeld(t), Name: drawText(t, "name"), Session: drawText(t, "session"),
				Limit: rapid.Uint32().Draw(t, "limit"), Value: drawBytes(t, "value"), Wait: rapid.Int64().Draw(t, "wait")}
		}),
		rapid.Custom(func(t *rapid.T) kv.Op {
			return kv.ReleasePermit{Kind: drawHeld(t), Name: drawText(t, "name"), Session: drawText(t, "session"), Index: drawKVIndex(t, "index")}
		}),
		rapid.Custom(func(t *rapid.T) kv.Op {
			return kv.LeaveQueue{Kind: drawHeld(t), Name: drawText(t, "name"), Session: drawText(t, "session"), Release: rapid.Bool().Draw(t, "release")}
		}),
	)
}

func genKVOp() *rapid.Generator[kv.Op] {
	return rapid.OneOf(genSimpleKVOp(), rapid.Custom(func(t *rapid.T) kv.Op {
		return kv.Once{Key: drawText(t, "key"), Op: genSimpleKVOp().Draw(t, "op")}
	}))
}

func genEntry() *rapid.Generator[*kv.Entry] {
	return rapid.Custom(func(t *rapid.T) *kv.Entry {
		return &kv.Entry{Key: drawText(t, "key"), Value: drawBytes(t, "value"), Flags: rapid.Uint64().Draw(t, "flags"),
			Session: drawText(t, "session"), LockIndex: rapid.Uint64().Draw(t, "lockIndex"),
			CreateIndex: drawKVIndex(t, "create"), ModifyIndex: drawKVIndex(t, "modify"), Fence: drawKVIndex(t, "fence")}
	})
}

func genKVResult() *rapid.Generator[kv.Result] {
	failure := rapid.Custom(func(t *rapid.T) kv.TxnError {
		return kv.TxnError{OpIndex: rapid.IntRange(0, math.MaxInt).Draw(t, "at"), What: drawText(t, "what")}
	})
	return rapid.Custom(func(t *rapid.T) kv.Result {
		r := kv.Result{OK: rapid.Bool().Draw(t, "ok"), Refusal: drawText(t, "refusal"), Index: drawKVIndex(t, "index"), Fence: drawKVIndex(t, "fence"),
			Entries: nilIfEmpty(rapid.SliceOfN(genEntry(), 0, 2).Draw(t, "entries")),
			Errors:  nilIfEmpty(rapid.SliceOfN(failure, 0, 2).Draw(t, "errors")),
			Place:   rapid.IntRange(0, math.MaxInt).Draw(t, "place"), Limit: rapid.Uint32().Draw(t, "limit"),
			Excess: kv.Excess(rapid.ByteMax(byte(kv.Forgotten)).Draw(t, "excess"))}
		if rapid.Bool().Draw(t, "withSession") {
			r.Session = &kv.Session{ID: drawText(t, "id"), Checks: []string{}, NodeChecks: drawStrings(t, "nodeChecks"), CreateIndex: drawKVIndex(t, "created")}
		}
		return r
	})
}

func genCheck() *rapid.Generator[*registry.Check] {
	return rapid.Custom(func(t *rapid.T) *registry.Check {
		c := &registry.Check{Node: drawText(t, "node"), ID: drawText(t, "id"), Name: drawText(t, "name"), Notes: drawText(t, "notes"),
			Output: drawText(t, "output"), Status: registry.CheckStatus(rapid.ByteMax(byte(registry.Critical)).Draw(t, "status")),
			Service: drawText(t, "service"), Type: drawText(t, "type"), TTL: rapid.Int64().Draw(t, "ttl"), ReapAfter: rapid.Int64().Draw(t, "reap"),
			Definition: drawBytes(t, "definition"), CriticalSince: rapid.Int64().Draw(t, "since")}
		if rapid.Bool().Draw(t, "probed") {
			c.Probe = &registry.Probe{HTTP: drawText(t, "http"), Header: genPairs().Draw(t, "header"), SkipVerify: rapid.Bool().Draw(t, "skip"), NoRedirects: rapid.Bool().Draw(t, "noRedirects"),
				TCP: drawText(t, "tcp"), Interval: rapid.Int64().Draw(t, "interval"), FailuresBeforeCritical: rapid.Int32().Draw(t, "failures")}
		}
		return c
	})
}

func drawChecks(t *rapid.T) []*registry.Check {
	return nilIfEmpty(rapid.SliceOfN(genCheck(), 0, 2).Draw(t, "checks"))
}

func genRegisterCatalog() *rapid.Generator[registry.Op] {
	return rapid.Custom(func(t *rapid.T) registry.Op {
		op := registry.RegisterCatalog{KeepNode: rapid.Bool().Draw(t, "keepNode"), ReplaceChecks: rapid.Bool().Draw(t, "replace"),
			KeepStatus: rapid.Bool().Draw(t, "keepStatus"), Checks: drawChecks(t)}
		if rapid.Bool().Draw(t, "withNode") {
			op.Node = &registry.Node{ID: drawText(t, "id"), Name: drawText(t, "name"), Address: drawText(t, "address"),
				Tagged: genPairs().Draw(t, "tagged"), Meta: genPairs().Draw(t, "meta"), Checks: drawChecks(t)}
		}
		if rapid.Bool().Draw(t, "withService") {
			op.Instance = genInstance().Draw(t, "instance")
			op.Service = &registry.CatalogService{Name: drawText(t, "name"), ID: drawText(t, "id"), Node: drawText(t, "node"), Tags: drawStrings(t, "tags"),
				Address: drawText(t, "address"), Port: rapid.Int32().Draw(t, "port"), WeightPassing: rapid.Int32().Draw(t, "weight"),
				TagOverride: rapid.Bool().Draw(t, "override"), Locality: drawBytes(t, "locality"), Checks: drawChecks(t)}
		}
		return op
	})
}

// genCatalogOp draws the operations on nodes, services and checks.
func genCatalogOp() *rapid.Generator[registry.Op] {
	return rapid.OneOf(
		genRegisterCatalog(),
		rapid.Custom(func(t *rapid.T) registry.Op {
			return registry.DeregisterCatalog{Node: drawText(t, "node"), Service: drawText(t, "service"), Check: drawText(t, "check"),
				Epoch: genEpoch().Draw(t, "epoch"), CriticalSince: rapid.Int64().Draw(t, "since")}
		}),
		rapid.Custom(func(t *rapid.T) registry.Op {
			return registry.SetCheck{Node: drawText(t, "node"), Check: drawText(t, "check"), Status: registry.CheckStatus(rapid.ByteMax(byte(registry.Critical)).Draw(t, "status")),
				Output: drawText(t, "output"), TTL: rapid.Bool().Draw(t, "ttl"), Epoch: genEpoch().Draw(t, "epoch")}
		}),
		rapid.Custom(func(t *rapid.T) registry.Op {
			return registry.ExpireCheck{Epoch: genEpoch().Draw(t, "epoch"), Node: drawText(t, "node"), Check: drawText(t, "check"), RenewedAt: rapid.Int64().Draw(t, "renewed")}
		}),
	)
}
