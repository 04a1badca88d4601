package registry

import (
	"fmt"
	"maps"
	"slices"

	"pgregory.net/rapid"
)

// step is one random step of a registry's life, the same on every registry it is taken on.
type step struct {
	pass     int64 // ms before it
	origin   Origin
	op       Op        // nil: only the clock moves
	evict    int       // at most so many of what has expired
	epoch    Epoch     // established if not zero
	settings *Settings // configured if there are any
}

func (s step) take(r *Registry, now Stamp) Result {
	if s.settings != nil {
		r.Configure(*s.settings)
	}
	if s.epoch != (Epoch{}) {
		r.Establish(s.epoch, "cluster")
	}
	for r.Clock().Lease+maxLead < now.Lease { // the clock moves by an hour at most
		r.Advance(Stamp{Lease: r.Clock().Lease + maxLead, Wall: now.Wall})
	}
	switch {
	case s.evict > 0:
		r.Advance(now)
		return r.Apply(now, r.Epoch().Term, s.origin, Evict{Epoch: r.Epoch(), Items: r.Expired(now.Lease, s.evict)})
	case s.op == nil:
		r.Advance(now)
		return Result{}
	default:
		return r.Apply(now, r.Epoch().Term, s.origin, s.op)
	}
}

var (
	drawOrigin = rapid.SampledFrom([]Origin{FromClient, FromClient, FromClient, FromEureka, {Kind: LocalPeer}})
	drawStatus = rapid.SampledFrom([]Status{Up, Up, Up, Down, Starting, OutOfService, Unknown})
	drawDirty  = rapid.SampledFrom([]int64{0, 100, 101, 102, 103, startOfWall, startOfWall + 60_000})
	drawPass   = rapid.SampledFrom([]int64{0, 0, 0, 1, 999, 999, 5000, 5000, 29_999, 30_000, 30_000, 61_000, 61_000, maxRemovalAge / 2})
	drawKey    = rapid.Custom(func(t *rapid.T) Key {
		return Key{
			App: rapid.SampledFrom([]string{"BILLING", "ORDERS"}).Draw(t, "app"),
			ID:  rapid.SampledFrom([]string{"1", "2", "3"}).Draw(t, "id"),
		}
	})
	drawInstance = rapid.Custom(func(t *rapid.T) *Instance {
		i := instance(drawKey.Draw(t, "key"), drawStatus.Draw(t, "status"), drawDirty.Draw(t, "dirty"))
		i.VIP = rapid.SampledFrom([]string{"", "a", "a,b", "b,c"}).Draw(t, "vip")
		i.SecureVIP = rapid.SampledFrom([]string{"", "a", "b,a"}).Draw(t, "secure vip")
		i.Duration = rapid.SampledFrom([]int32{0, 3, 10, 600}).Draw(t, "duration")
		i.Overridden = rapid.SampledFrom([]Status{Unknown, Unknown, Unknown, OutOfService}).Draw(t, "override")
		return i
	})
	drawSettings = rapid.Custom(func(t *rapid.T) *Settings {
		s := DefaultSettings()
		s.SelfPreservation, s.Expectation = rapid.Bool().Draw(t, "self-preservation"), rapid.Bool().Draw(t, "expectation")
		s.Threshold = rapid.SampledFrom([]Share{0, 500_000, defaultThreshold, Whole}).Draw(t, "threshold")
		s.Population = rapid.Uint32Range(0, 4).Draw(t, "population")
		s.Bound = rapid.SampledFrom([]int64{0, 10_000, 60_000}).Draw(t, "bound")
		s.ExpectationUpdate = rapid.SampledFrom([]int64{1000, 900_000}).Draw(t, "update")
		s.DoubledLease = rapid.Bool().Draw(t, "doubled")
		return &s
	})
	drawPreservation = rapid.Custom(func(t *rapid.T) SelfPreservation {
		state := rapid.SampledFrom([]PreservationState{PreservationOff, PreservationOn, PreservationReleased, PreservationHeld})
		return SelfPreservation{
			Epoch: rapid.SampledFrom([]Epoch{{}, {1, 1}, {2, 2}}).Draw(t, "epoch"),
			From:  state.Draw(t, "from"),
			To:    state.Draw(t, "to"),
			For:   rapid.SampledFrom([]int64{0, 5000, 60_000}).Draw(t, "for"),
			By:    rapid.SampledFrom([]Act{{}, {"ann", "maintenance"}}).Draw(t, "by"),
		}
	})
	drawStep = rapid.Custom(func(t *rapid.T) step {
		s := step{pass: drawPass.Draw(t, "pass"), origin: drawOrigin.Draw(t, "origin")}
		key, dirty := drawKey.Draw(t, "key"), drawDirty.Draw(t, "dirty")
		switch rapid.IntRange(0, 14).Draw(t, "kind") {
		case 0, 1, 2, 3:
			s.op = Register{drawInstance.Draw(t, "instance")}
		case 4, 5:
			s.op = Renew{Key: key, LastDirty: dirty, Overridden: drawStatus.Draw(t, "override")}
		case 6:
			s.op = Renew{Handle: Handle{Slot: rapid.Uint32Range(0, 5).Draw(t, "slot"), Gen: rapid.Uint32Range(1, 8).Draw(t, "gen")}}
		case 7, 12:
			s.op = Cancel{key}
		case 8:
			s.op = SetOverride{Key: key, Status: drawStatus.Draw(t, "override"), LastDirty: dirty}
		case 9:
			s.op = DeleteOverride{Key: key, Fallback: drawStatus.Draw(t, "fallback"), LastDirty: dirty}
		case 10:
			s.op = UpdateMetadata{Key: key, Pairs: []Pair{{"k", rapid.SampledFrom([]string{"a", "b"}).Draw(t, "v")}}}
		case 11:
			s.evict = rapid.IntRange(0, 3).Draw(t, "evict")
			s.epoch = rapid.SampledFrom([]Epoch{{}, {}, {1, 1}, {2, 2}}).Draw(t, "epoch")
		case 13:
			s.settings = drawSettings.Draw(t, "settings")
		case 14:
			s.op = drawPreservation.Draw(t, "self-preservation")
		}
		return s
	})
	drawSteps = rapid.SliceOfN(drawStep, 30, 200)
)

// check verifies that everything the registry keeps twice agrees.
func check(r *Registry) error {
	v := r.View()
	leases := slices.Collect(v.Leases())
	byID, byVIP, bySecureVIP := map[string]int{}, map[string]int{}, map[string]int{}
	var counts [len(statusNames)]int
	for _, l := range leases {
		key := l.Key()
		counts[l.Instance.Status]++
		byID[key.ID]++
		countParts(byVIP, l.Instance.VIP)
		countParts(bySecureVIP, l.Instance.SecureVIP)
		if r.handles.byKey(key) != l || r.handles.byHandle(l.Handle) != l {
			return fmt.Errorf("%s: the handle table has another lease", key)
		}
		if c, err := v.Changes(l.Changed-1, 1); err == nil && (len(c) != 1 || c[0].Lease != l) {
			return fmt.Errorf("%s: not in the change list at %d", key, l.Changed)
		}
		if at := r.expiry.position[l.Handle.Slot]; r.expiry.order[at] != l.Handle.Slot || r.expiry.end[l.Handle.Slot] > r.end(l) {
			return fmt.Errorf("%s: not in the heap, or later than its end", key)
		}
		if _, removed := r.record(key); removed {
			return fmt.Errorf("%s: live, with a record of removal", key)
		}
	}
	n := len(leases)
	if counts != v.tables.counts || v.Len() != n || len(r.handles.slots) != n || r.expiry.Len() != n || v.tables.live.Len() != n {
		return fmt.Errorf("%d leases by status %v; counted %v, %d, slots %d, heap %d, change list %d",
			n, counts, v.tables.counts, v.Len(), len(r.handles.slots), r.expiry.Len(), v.tables.live.Len())
	}
	if v.tables.removed.Len() != len(r.records) {
		return fmt.Errorf("%d records, %d by key", v.tables.removed.Len(), len(r.records))
	}
	for id, n := range byID {
		if got := len(keysOf(v.ByID(id))); got != n {
			return fmt.Errorf("by id %s: %d, want %d", id, got, n)
		}
	}
	for _, vip := range []string{"a", "b", "c"} {
		if got := len(keysOf(v.ByVIP(vip))); got != byVIP[vip] {
			return fmt.Errorf("by VIP %s: %d, want %d", vip, got, byVIP[vip])
		}
		if got := len(keysOf(v.BySecureVIP(vip))); got != bySecureVIP[vip] {
			return fmt.Errorf("by secure VIP %s: %d, want %d", vip, got, bySecureVIP[vip])
		}
	}
	return nil
}

func countParts(counts map[string]int, address string) {
	unique := map[string]bool{}
	for part := range parts(address) {
		unique[part] = true
	}
	for part := range maps.Keys(unique) {
		counts[part]++
	}
}
