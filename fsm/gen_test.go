package fsm

import (
	"math"
	"reflect"

	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/setting"
)

// The generators draw whatever the formats can carry, sensible or not.

func genStatus() *rapid.Generator[registry.Status] {
	return rapid.Map(rapid.ByteMax(byte(registry.OutOfService)), func(b byte) registry.Status { return registry.Status(b) })
}

func genPort() *rapid.Generator[registry.Port] {
	return rapid.Custom(func(t *rapid.T) registry.Port {
		return registry.Port{Number: rapid.Uint16().Draw(t, "number"), Enabled: rapid.Bool().Draw(t, "enabled")}
	})
}

func genPairs() *rapid.Generator[[]registry.Pair] {
	pair := rapid.Custom(func(t *rapid.T) registry.Pair {
		return registry.Pair{Key: rapid.String().Draw(t, "key"), Value: rapid.String().Draw(t, "value")}
	})
	return rapid.Map(rapid.SliceOfN(pair, 0, 4), nilIfEmpty)
}

func nilIfEmpty[T any](s []T) []T {
	if len(s) == 0 {
		return nil
	}
	return s
}

func genInstance() *rapid.Generator[*registry.Instance] {
	return rapid.Custom(func(t *rapid.T) *registry.Instance {
		text := func(name string) string { return rapid.String().Draw(t, name) }
		return &registry.Instance{
			InstanceID: text("id"), HostName: text("host"), App: text("app"), IPAddr: text("ip"), SID: text("sid"),
			Status: genStatus().Draw(t, "status"), Overridden: genStatus().Draw(t, "override"),
			Port: genPort().Draw(t, "port"), SecurePort: genPort().Draw(t, "securePort"),
			CountryID:       rapid.Int32().Draw(t, "country"),
			DataCenter:      registry.DataCenter{Name: text("dc"), Metadata: genPairs().Draw(t, "dcMetadata")},
			RenewalInterval: rapid.Int32().Draw(t, "interval"), Duration: rapid.Int32().Draw(t, "duration"),
			Metadata: genPairs().Draw(t, "metadata"), AppGroup: text("group"),
			HomePageURL: text("home"), StatusPageURL: text("statusPage"), HealthCheckURL: text("health"),
			SecureHealthURL: text("secureHealth"), VIP: text("vip"), SecureVIP: text("secureVIP"), ASG: text("asg"),
			LastDirty: rapid.Int64().Draw(t, "dirty"),
		}
	})
}

func genKey() *rapid.Generator[registry.Key] {
	return rapid.Custom(func(t *rapid.T) registry.Key {
		return registry.Key{App: rapid.String().Draw(t, "app"), ID: rapid.String().Draw(t, "id")}
	})
}

// genHandle draws handles that name something.
func genHandle() *rapid.Generator[registry.Handle] {
	return rapid.Custom(func(t *rapid.T) registry.Handle {
		return registry.Handle{Slot: rapid.Uint32().Draw(t, "slot"), Gen: rapid.Uint64Min(1).Draw(t, "generation")}
	})
}

func genRenew() *rapid.Generator[registry.Op] {
	return rapid.Custom(func(t *rapid.T) registry.Op {
		op := registry.Renew{LastDirty: rapid.Int64().Draw(t, "dirty")}
		if rapid.Bool().Draw(t, "byHandle") {
			op.Handle = genHandle().Filter(func(h registry.Handle) bool { return h.Gen != 0 }).Draw(t, "handle")
			return op
		}
		op.Key, op.Overridden = genKey().Draw(t, "key"), genStatus().Draw(t, "override")
		return op
	})
}

func genEvict() *rapid.Generator[registry.Op] {
	item := rapid.Custom(func(t *rapid.T) registry.EvictItem {
		return registry.EvictItem{
			Handle:     genHandle().Draw(t, "handle"),
			Registered: registry.Index(rapid.Uint64().Draw(t, "registered")),
			RenewedAt:  rapid.Int64().Draw(t, "renewed"),
		}
	})
	return rapid.Custom(func(t *rapid.T) registry.Op {
		return registry.Evict{
			Epoch: genEpoch().Draw(t, "epoch"),
			Items: nilIfEmpty(rapid.SliceOfN(item, 0, 4).Draw(t, "items")),
		}
	})
}

// genAct draws what an operator may say: often nothing.
func genAct() *rapid.Generator[registry.Act] {
	note := rapid.StringN(0, 20, maxNote)
	return rapid.OneOf(rapid.Just(registry.Act{}), rapid.Custom(func(t *rapid.T) registry.Act {
		return registry.Act{Author: note.Draw(t, "author"), Reason: note.Draw(t, "reason")}
	}))
}

func genEpoch() *rapid.Generator[registry.Epoch] {
	return rapid.Custom(func(t *rapid.T) registry.Epoch {
		return registry.Epoch{Term: rapid.Uint64().Draw(t, "term"), Index: rapid.Uint64().Draw(t, "index")}
	})
}

func genEndOverride() *rapid.Generator[registry.EndOverride] {
	return rapid.Custom(func(t *rapid.T) registry.EndOverride {
		return registry.EndOverride{Epoch: genEpoch().Draw(t, "epoch"), Handle: genHandle().Draw(t, "handle"),
			Set: registry.Index(rapid.Uint64().Draw(t, "set"))}
	})
}

func genSelfPreservation() *rapid.Generator[registry.Op] {
	state := rapid.Map(rapid.ByteMax(byte(registry.PreservationHeld)), func(b byte) registry.PreservationState { return registry.PreservationState(b) })
	return rapid.Custom(func(t *rapid.T) registry.Op {
		number := func(name string) uint32 { return rapid.Uint32().Draw(t, name) }
		return registry.SelfPreservation{
			Epoch: genEpoch().Draw(t, "epoch"), From: state.Draw(t, "from"), To: state.Draw(t, "to"),
			For: rapid.Int64().Draw(t, "for"), By: genAct().Draw(t, "by"),
			Figures: registry.Figures{Leases: number("leases"), Counted: number("counted"), Fresh: number("fresh"),
				Expired: number("expired"), Renewals: number("renewals"), Threshold: number("threshold")},
		}
	})
}

func genSettings() *rapid.Generator[registry.Settings] {
	return rapid.Custom(func(t *rapid.T) registry.Settings {
		var s registry.Settings
		for _, row := range setting.Of(&s) {
			drawSetting(t, row)
		}
		s.Threshold = min(s.Threshold, registry.Whole)
		return s
	})
}

func drawSetting(t *rapid.T, row setting.Setting) {
	switch v := row.Value; v.Kind() {
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, row.Key))
	case reflect.Uint32:
		v.SetUint(uint64(rapid.Uint32().Draw(t, row.Key)))
	case reflect.Int64:
		v.SetInt(rapid.Int64().Draw(t, row.Key))
	case reflect.String:
		v.SetString(rapid.String().Draw(t, row.Key))
	default:
		t.Fatalf("%s has a type that the state cannot hold: %s", row.Key, v.Type())
	}
}

func genRenewLife() *rapid.Generator[registry.Op] {
	return rapid.Custom(func(t *rapid.T) registry.Op {
		op := registry.Renew{Key: genKey().Draw(t, "key"), LastDirty: rapid.Int64().Draw(t, "dirty"),
			Overridden: genStatus().Draw(t, "override"), Age: rapid.Int64().Draw(t, "age")}
		if op.Age == 0 || rapid.Bool().Draw(t, "ofLife") {
			op.Life = rapid.Uint32Min(1).Draw(t, "life")
		}
		return op
	})
}

func genReplica() *rapid.Generator[registry.Op] {
	return rapid.Custom(func(t *rapid.T) registry.Op {
		return registry.Replica{Instance: genInstance().Draw(t, "instance"),
			Life: rapid.Uint32().Draw(t, "life"), Edit: rapid.Uint32().Draw(t, "edit"),
			Owner: rapid.String().Draw(t, "owner"), Age: rapid.Int64().Draw(t, "age"),
			Permanent:  rapid.Bool().Draw(t, "permanent"),
			Overridden: genStatus().Draw(t, "override"), OverrideBy: genAct().Draw(t, "overrideBy"),
			OverrideFor: rapid.Int64().Draw(t, "overrideFor"), QuarantineFor: rapid.Int64().Draw(t, "quarantineFor"),
			QuarantineBy: genAct().Draw(t, "quarantineBy")}
	})
}

func genRemove() *rapid.Generator[registry.Op] {
	kinds := []registry.ChangeKind{registry.Canceled, registry.Evicted}
	return rapid.Custom(func(t *rapid.T) registry.Op {
		return registry.Remove{Key: genKey().Draw(t, "key"), Kind: rapid.SampledFrom(kinds).Draw(t, "kind"),
			Life: rapid.Uint32().Draw(t, "life"), LastDirty: rapid.Int64().Draw(t, "dirty"),
			Owner: rapid.String().Draw(t, "owner"), Age: rapid.Int64().Draw(t, "age")}
	})
}

func genContact() *rapid.Generator[registry.Op] {
	return rapid.Custom(func(t *rapid.T) registry.Op {
		return registry.Contact{DC: rapid.String().Draw(t, "dc"), Sender: rapid.String().Draw(t, "sender"),
			Incarnation: rapid.Uint64().Draw(t, "incarnation"), Clock: rapid.Int64().Draw(t, "clock"),
			Cut: rapid.Int64().Draw(t, "cut"), Age: rapid.Int64().Draw(t, "age")}
	})
}

// genOp draws from every kind of the closed set.
func genOp() *rapid.Generator[registry.Op] {
	return rapid.OneOf(
		genRenew(),
		rapid.Custom(func(t *rapid.T) registry.Op {
			return registry.Register{Instance: genInstance().Draw(t, "instance")}
		}),
		rapid.Custom(func(t *rapid.T) registry.Op { return registry.Cancel{Key: genKey().Draw(t, "key")} }),
		rapid.Custom(func(t *rapid.T) registry.Op {
			return registry.SetOverride{Key: genKey().Draw(t, "key"), Status: genStatus().Draw(t, "status"),
				LastDirty: rapid.Int64().Draw(t, "dirty"), By: genAct().Draw(t, "by"),
				For: rapid.OneOf(rapid.Just(int64(0)), rapid.Int64()).Draw(t, "for")}
		}),
		rapid.Custom(func(t *rapid.T) registry.Op {
			return registry.DeleteOverride{Key: genKey().Draw(t, "key"), Fallback: genStatus().Draw(t, "fallback"),
				LastDirty: rapid.Int64().Draw(t, "dirty"), By: genAct().Draw(t, "by")}
		}),
		rapid.Map(genEndOverride(), func(op registry.EndOverride) registry.Op { return op }),
		rapid.Custom(func(t *rapid.T) registry.Op {
			return registry.Quarantine{Key: genKey().Draw(t, "key"), For: rapid.Int64().Draw(t, "for"), By: genAct().Draw(t, "by")}
		}),
		rapid.Map(genEndOverride(), func(op registry.EndOverride) registry.Op { return registry.EndQuarantine(op) }),
		genSelfPreservation(),
		rapid.Custom(func(t *rapid.T) registry.Op {
			return registry.UpdateMetadata{Key: genKey().Draw(t, "key"), Pairs: genPairs().Draw(t, "pairs")}
		}),
		genEvict(),
		genRenewLife(),
		genReplica(),
		genRemove(),
		genContact(),
		genCatalogOp(),
		rapid.Custom(func(t *rapid.T) registry.Op {
			return registry.AckPeer{Peer: rapid.String().Draw(t, "peer"), Cursor: registry.Index(rapid.Uint64().Draw(t, "cursor"))}
		}),
		rapid.Custom(func(t *rapid.T) registry.Op {
			return registry.ForgetSender{Sender: rapid.String().Draw(t, "sender"), By: genAct().Draw(t, "by")}
		}),
		rapid.Custom(func(t *rapid.T) registry.Op {
			return registry.PausePeer{Peer: rapid.String().Draw(t, "peer"), Paused: rapid.Bool().Draw(t, "paused"), By: genAct().Draw(t, "by")}
		}),
	)
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

func genItem() *rapid.Generator[Item] {
	return rapid.Custom(func(t *rapid.T) Item {
		if rapid.IntRange(0, 2).Draw(t, "which") == 0 {
			return Item{KV: genKVOp().Draw(t, "kv")}
		}
		return Item{Origin: genOrigin().Draw(t, "origin"), Op: genOp().Draw(t, "op")}
	})
}

func genBatchID() *rapid.Generator[BatchID] {
	return rapid.Custom(func(t *rapid.T) BatchID {
		return BatchID{Node: rapid.String().Draw(t, "node"), Boot: rapid.Uint64().Draw(t, "boot"),
			Seq: rapid.Uint64().Draw(t, "seq"), Answered: rapid.Uint64().Draw(t, "answered"),
			Bound: Bound{Leadership: rapid.Uint64().Draw(t, "leadership"), Until: rapid.Int64().Draw(t, "until")}}
	})
}

func genResult() *rapid.Generator[registry.Result] {
	return rapid.Custom(func(t *rapid.T) registry.Result {
		return registry.Result{
			Outcome: registry.Outcome(rapid.ByteMax(lastOutcome).Draw(t, "outcome")),
			Index:   registry.Index(rapid.Uint64().Draw(t, "index")),
			Handle:  registry.Handle{Slot: rapid.Uint32().Draw(t, "slot"), Gen: rapid.Uint64().Draw(t, "generation")},
			Count:   rapid.IntRange(0, math.MaxInt).Draw(t, "count"),
		}
	})
}
