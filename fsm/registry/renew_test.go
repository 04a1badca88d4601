package registry

import (
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// The answers to a renewal by the sender's lastDirtyTimestamp; the stored one is 100. The lease is renewed whatever
// the answer.
func TestRenewComparesTimestamps(t *testing.T) {
	tests := []struct {
		name   string
		dirty  int64
		origin Origin
		want   Outcome
	}{
		{"client, equal", 100, FromClient, Done},
		{"client, newer", 101, FromClient, Newer},
		{"client, older", 99, FromClient, Done},
		{"client, not given", 0, FromClient, Done},
		{"replicated, equal", 100, FromEureka, Done},
		{"replicated, newer", 101, FromEureka, Newer},
		{"replicated, older", 99, FromEureka, Older},
		{"replicated, not given", 0, FromEureka, Done},
		{"own datacenter, older", 99, Origin{Kind: LocalPeer}, Older},
	}
	for _, byHandle := range []bool{false, true} {
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				g := newRig(t)
				op := Renew{Key: orders1, LastDirty: tt.dirty}
				if h := g.register(instance(orders1, Up, 100)).Handle; byHandle {
					op = Renew{Handle: h, LastDirty: tt.dirty}
				}
				before := g.lease(orders1)
				g.pass(20_000)
				expect.Equal(t, g.apply(tt.origin, op), (Result{Outcome: tt.want}), "got")
				expect.That(t, g.lease(orders1) == before && before.RenewedAt != g.now, "a renewal changed the lease")
				expect.Equal(t, g.View().LastRenewal(before), g.now, "last renewal")
			})
		}
	}
}

func TestRenewOfUnknownInstanceIsNotFound(t *testing.T) {
	g := withOrders(t)
	for _, key := range []Key{orders2, {App: "BILLING", ID: orders1.ID}, {App: "orders", ID: orders1.ID}, {}} {
		expect.Equal(t, g.client(Renew{Key: key}), (Result{Outcome: NotFound}), "renew %s:", key)
	}
}

func TestRenewAfterRemovalIsNotFoundByNameAndGoneByHandle(t *testing.T) {
	g := newRig(t)
	dead := g.register(instance(orders1, Up, 100)).Handle
	g.client(Cancel{orders1})
	got := g.client(Renew{Key: orders1})
	expect.That(t, got.Outcome == NotFound, "by name: %+v, want NotFound", got)
	got = g.client(Renew{Handle: dead})
	expect.That(t, got.Outcome == DeadHandle, "by handle: %+v, want GoneHandle", got)
	live := g.register(instance(orders2, Up, 100)).Handle
	need.That(t, live.Slot == dead.Slot, "the slot was not used again: %v after %v", live, dead)
	got = g.client(Renew{Handle: dead})
	expect.That(t, got.Outcome == DeadHandle, "by the handle of the slot's last lease: %+v, want GoneHandle", got)
	got = g.client(Renew{Handle: Handle{Slot: 1 << 31, Gen: 1}})
	expect.That(t, got.Outcome == DeadHandle, "by a handle outside the table: %+v, want GoneHandle", got)
}

func TestRenewWithoutStatusIsNotFoundAndRenewsNothing(t *testing.T) {
	g := newRig(t)
	g.register(instance(orders1, Unknown, 100))
	before := g.View().LastRenewal(g.lease(orders1))
	g.pass(1000)
	for _, origin := range []Origin{FromClient, FromEureka} {
		expect.Equal(t, g.apply(origin, Renew{Key: orders1, LastDirty: 100}), (Result{Outcome: NotFound}), "from %v:", origin)
	}
	expect.Equal(t, g.View().LastRenewal(g.lease(orders1)), before, "renewed at")
}

func TestReplicatedRenewBringsAnOverride(t *testing.T) {
	tests := []struct {
		name       string
		dirty      int64 // stored: 100
		origin     Origin
		stored     Status
		overridden Status
		want       Status
		changed    bool
	}{
		{"newer stores it", 101, FromEureka, Unknown, OutOfService, OutOfService, true},
		{"newer replaces it", 101, FromEureka, Up, OutOfService, OutOfService, true},
		{"newer with the same", 101, FromEureka, OutOfService, OutOfService, OutOfService, false},
		{"newer without", 101, FromEureka, OutOfService, Unknown, OutOfService, false},
		{"equal", 100, FromEureka, Unknown, OutOfService, Unknown, false},
		{"older", 99, FromEureka, Unknown, OutOfService, Unknown, false},
		{"a client's is not heard", 101, FromClient, Unknown, OutOfService, Unknown, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := withOrders(t)
			if tt.stored != Unknown {
				g.client(SetOverride{Key: orders1, Status: tt.stored})
			}
			g.pass(1000)
			res := g.apply(tt.origin, Renew{Key: orders1, LastDirty: tt.dirty, Overridden: tt.overridden})
			expect.That(t, (res.Index != 0) == tt.changed, "result %+v, want an index: %t", res, tt.changed)
			got := g.lease(orders1).Instance
			expect.That(t, got.Overridden == tt.want && got.LastDirty == 100, "override %s, dirty %d, want %s, 100", got.Overridden, got.LastDirty, tt.want)
			expect.That(t, !tt.changed || g.inDelta()[orders1] == ActionModified, "delta %v, want MODIFIED", g.inDelta())
		})
	}
}

// Upstream corrects the status silently; clients then see it up to three minutes later.
func TestRenewThatChangesTheStatusIsAChange(t *testing.T) {
	g := newRig(t)
	g.register(instance(orders1, Starting, 100))
	g.register(instance(orders1, Up, 150))
	g.peer(Renew{Key: orders1, LastDirty: 200, Overridden: OutOfService})
	g.pass(300_000)
	g.Advance(g.now)
	need.That(t, len(g.View().Delta().Leases) == 0 && g.status(orders1) == Up, "the override was applied before a renewal")
	res := g.client(Renew{Key: orders1, LastDirty: 150})
	expect.That(t, res.Outcome == Done && res.Index == 4, "got %+v, want Done with index 4", res)
	l := g.lease(orders1)
	expect.That(t, l.Instance.Status == OutOfService && l.Instance.LastDirty == 150 && l.RenewedAt == g.now && l.UpdatedAt == g.now.Wall,
		"got %+v of %+v, want OUT_OF_SERVICE at the same dirty timestamp, renewed and updated now", l, l.Instance)
	expect.That(t, g.inDelta()[orders1] == ActionModified && g.View().Counts().HashCode() == "OUT_OF_SERVICE_1_",
		"delta %v, hash %s", g.inDelta(), g.View().Counts().HashCode())
	res = g.client(Renew{Key: orders1, LastDirty: 150})
	expect.That(t, res.Index == 0, "the next renewal: %+v, want no index", res)
}

func TestRenewByHandleAllocatesNothing(t *testing.T) {
	g := newRig(t)
	h := g.register(instance(orders1, Up, 100)).Handle
	var op Op = Renew{Handle: h, LastDirty: 100}
	expect.Equal(t, testing.AllocsPerRun(100, func() { g.client(op) }), 0, "allocations:")
}

// An instance whose home is a Eureka server is canceled, at its home or elsewhere. Whatever the home sends about it
// afterwards was either sent before the cancel, or says that the instance lives there.
func TestEurekaServerRefutesACancelOnceNothingOfBeforeIsUnderWay(t *testing.T) {
	other := Origin{Kind: RemoteDC, DC: "other"}
	for _, tc := range []struct {
		name     string
		canceled Origin
		interval int32 // of the instance, seconds; 0: 30
		after    int64 // ms
		by       Origin
		dirty    int64 // of the registration; the instance has 100
		life     uint32
	}{
		{name: "a client's, refuted later", canceled: FromClient, after: maxUnderWay + 1, by: FromEureka, dirty: 100, life: 2},
		{name: "a client's, refuted by a clock that went back", canceled: FromClient, after: maxUnderWay + 1, by: FromEureka, dirty: 5, life: 2},
		{name: "another server's, refuted later", canceled: other, after: maxUnderWay + 1, by: FromEureka, dirty: 100, life: 2},
		{name: "a node's, refuted later", canceled: Origin{Kind: LocalPeer}, after: maxUnderWay + 1, by: FromEureka, dirty: 100, life: 2},
		{name: "its home's, refuted later", canceled: FromEureka, after: maxUnderWay + 1, by: FromEureka, dirty: 100, life: 2},
		{name: "its home's, registered again by a clock that went back", canceled: FromEureka, after: maxUnderWay + 1, by: FromEureka, dirty: 5, life: 2},
		{name: "refuted by the server that it moved to", canceled: FromEureka, after: maxUnderWay + 1, by: other, dirty: 100, life: 2},
		{name: "heartbeats every second, refuted after one", canceled: FromClient, interval: 1, after: 1001, by: FromEureka, dirty: 100, life: 2},
		{name: "registered again at once by a newer timestamp", canceled: FromEureka, by: FromEureka, dirty: 101, life: 1},
		{name: "a client's, and what was under way", canceled: FromClient, after: maxUnderWay, by: FromEureka, dirty: 100},
		{name: "its home's, and what was under way", canceled: FromEureka, after: maxUnderWay, by: FromEureka, dirty: 100},
		{name: "its home's, and what was under way of before", canceled: FromEureka, after: maxUnderWay, by: FromEureka, dirty: 5},
		{name: "heartbeats every second, and what was under way", canceled: FromClient, interval: 1, after: 1000, by: FromEureka, dirty: 100},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := newRig(t)
			of := func(dirty int64) *Instance {
				i := instance(orders1, Up, dirty)
				i.RenewalInterval = tc.interval
				return i
			}
			g.peer(Register{of(100)})
			g.apply(tc.canceled, Cancel{orders1})
			g.pass(tc.after)
			beat := Renew{Key: orders1, LastDirty: tc.dirty}
			expect.That(t, g.Ignores(beat), "the log would get a heartbeat that changes nothing")
			res := g.apply(tc.by, beat)
			need.That(t, res.Outcome == NotFound, "its heartbeat: %+v, want that it is not found", res)
			res = g.apply(tc.by, Register{of(tc.dirty)})
			l, back := g.View().Lease(orders1)
			if tc.life == 0 {
				need.That(t, !back && res.Outcome == Refused, "the registration that follows: %+v, back: %v, want it refused", res, back)
				return
			}
			need.That(t, back && l.Life == tc.life && l.Owner == tc.by.DC, "the registration that follows: %+v of %+v, want life %d of %s", res, l, tc.life, tc.by.DC)
			changed := of(tc.dirty)
			changed.Metadata = []Pair{{Key: "color", Value: "blue"}}
			g.apply(tc.by, Register{changed})
			g.apply(tc.by, SetOverride{Key: orders1, Status: OutOfService})
			i := g.lease(orders1).Instance
			expect.That(t, i.Meta("color") == "blue" && i.Status == OutOfService, "after a change at its home: %+v", i)
			expect.OKf(t, expect.Err(Thaw(g.Freeze())), "the state cannot be restored")
		})
	}
}

// A Eureka server sends all nodes of a datacenter without consensus what its client says. If two of them saw the
// cancel at different times, one may still refuse it when the other no longer does.
func TestNodesAgreeOnAnInstanceThatCameBackAfterACancel(t *testing.T) {
	first, second := newRig(t), newRig(t)
	node := Origin{Kind: LocalPeer}
	for _, g := range []*rig{first, second} {
		g.peer(Register{instance(orders1, Up, 100)})
	}
	first.client(Cancel{orders1})
	first.pass(maxUnderWay + 1)
	second.pass(500)
	second.apply(node, Remove{Key: orders1, Kind: Canceled, Life: 1, LastDirty: 100, Owner: "eureka"})
	second.pass(maxUnderWay + 1 - 500)
	back := Register{instance(orders1, Up, 50)}
	expect.Equal(t, first.peer(back).Outcome, Done, "at the node that was asked to cancel it:")
	expect.Equal(t, second.peer(back).Outcome, Refused, "at the node that heard of the cancel later:")
	l := first.lease(orders1)
	said := second.apply(node, Replica{Instance: l.Instance, Life: l.Life, Edit: l.Edit, Owner: l.Owner})
	expect.Equal(t, said.Outcome, Done, "what the first tells the second:")
	expect.Equal(t, second.lease(orders1).Version(), l.Version(), "versions differ:")
}

func TestUpdateMetadataMerges(t *testing.T) {
	g := newRig(t)
	in := instance(orders1, Up, 100)
	in.Metadata = []Pair{{Key: "zone", Value: "a"}, {Key: "version", Value: "1.10"}}
	g.register(in)
	g.pass(5000)
	res := g.client(UpdateMetadata{Key: orders1, Pairs: []Pair{{Key: "color", Value: "blue"}, {Key: "zone", Value: "b"}}})
	expect.That(t, res.Outcome == Done && res.Index == 2, "got %+v, want Done with index 2", res)
	l := g.lease(orders1)
	expect.Slice(t, l.Instance.Metadata, []Pair{{Key: "zone", Value: "b"}, {Key: "version", Value: "1.10"}, {Key: "color", Value: "blue"}}, "got")
	expect.Slice(t, in.Metadata, []Pair{{Key: "zone", Value: "a"}, {Key: "version", Value: "1.10"}}, "the instance that was given was written:")
	expect.That(t, l.Action == ActionModified && l.Instance.LastDirty == 101 && l.Registered == 1 && l.RenewedAt == g.now,
		"got %+v of dirty %d, want MODIFIED, 101, the lease of before, renewed now", l, l.Instance.LastDirty)
}

func TestUpdateMetadataSurvivesPeersAndYieldsToTheClientsNextChange(t *testing.T) {
	g := newRig(t)
	g.register(instance(orders1, Up, 100)) // by a clock far behind the server's
	g.client(UpdateMetadata{Key: orders1, Pairs: []Pair{{Key: "color", Value: "blue"}}})
	res := g.peer(Register{instance(orders1, Up, 100)})
	expect.That(t, res.Outcome == KeptExisting, "a peer's copy of before: %+v, want KeptExisting", res)
	expect.Equal(t, g.lease(orders1).Instance.Meta("color"), "blue", "color")
	res = g.client(Renew{Key: orders1, LastDirty: 100})
	expect.That(t, res.Outcome == Done, "the client's heartbeat: %+v, want Done", res)
	g.register(instance(orders1, Down, 105))
	expect.Equal(t, g.status(orders1), Down, "the client's next change:")
}

func TestUpdateMetadataThatChangesNothingRenewsOnly(t *testing.T) {
	g := newRig(t)
	in := instance(orders1, Up, 100)
	in.Metadata = []Pair{{Key: "zone", Value: "a"}}
	g.register(in)
	g.pass(5000)
	for _, pairs := range [][]Pair{nil, {{Key: "zone", Value: "a"}}} {
		expect.Equal(t, g.client(UpdateMetadata{Key: orders1, Pairs: pairs}), (Result{}), "%v:", pairs)
	}
	if l := g.lease(orders1); l.Instance != in || g.View().LastRenewal(l) != g.now {
		t.Errorf("got %+v renewed at %v, want the instance of before, renewed now", l.Instance, g.View().LastRenewal(l))
	}
}

func TestRenewalsOfAConnectionMayWaitForATenthOfItsTime(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	type step struct {
		name string
		at   time.Duration
		want bool
		took time.Duration // if it may wait
	}
	tests := []struct {
		name  string
		steps []step
	}{
		{"long waits", []step{
			{"the first", 0, true, 100 * time.Millisecond},
			{"the next one after the response", 100 * time.Millisecond, false, 0},
			{"one that came a moment before a second has passed", time.Second - 1, false, 0},
			{"one after a second", time.Second, true, 100 * time.Millisecond},
			{"the one after that", time.Second + time.Millisecond, false, 0},
		}},
		{"short waits", []step{
			{"the first", 0, true, 10 * time.Millisecond},
			{"one that came a moment before ten times as long has passed", 100*time.Millisecond - 1, false, 0},
			{"one after that", 100 * time.Millisecond, true, 0},
			{"one after no wait at all", 101 * time.Millisecond, true, 0},
		}},
		{"one without a leader for long", []step{
			{"the first", 0, true, 4 * time.Second},
			{"the next one after the response", 4 * time.Second, false, 0},
			{"one some time after that", 10 * time.Second, true, 0},
		}},
		{"a clock that is set back", []step{
			{"the first", 0, true, 100 * time.Millisecond},
			{"one after that", -time.Hour, true, 0},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := LineOf(OnLine(t.Context()))
			for _, s := range tt.steps {
				came := start.Add(s.at)
				may := l.MayWait(came)
				expect.Equal(t, may, s.want, s.name+" may wait:")
				if may {
					expect.Equal(t, l.MayWait(came), false, "another one, while "+s.name+" waits, may wait:")
					l.Waited(came, came.Add(s.took))
				}
			}
		})
	}
	one, other := LineOf(OnLine(t.Context())), LineOf(OnLine(t.Context()))
	expect.That(t, one.MayWait(start) && other.MayWait(start), "those of two connections may not both wait")
	expect.Equal(t, LineOf(t.Context()).MayWait(start), false, "one of no connection may wait:")
}

// A removal from another server may be the first thing that a registry ever hears.
func TestRemovalOfTheUnknownIsRecordedWithItsReasonInAnEmptyRegistry(t *testing.T) {
	for _, origin := range []Origin{fromNode, {Kind: RemoteDC, DC: "dc2"}, FromEureka} {
		g := newRig(t)
		before := g.View()
		g.apply(origin, Remove{Key: orders1, Kind: Canceled, Life: 1, LastDirty: 100})
		v := g.View()
		changes := need.Got(v.Changes(0, 0))(t)
		need.That(t, len(changes) == 1, "%d changes, want the removal", len(changes))
		for _, seen := range []*View{v, before} { // the older view has no record of it
			why, ok := seen.Why(changes[0])
			expect.That(t, ok == (seen == v) && (!ok || why == EventCanceled), "its reason is %s, %t", why, ok)
			expect.That(t, seen.LastRenewal(changes[0].Lease) == Stamp{}, "it was renewed at %v", seen.LastRenewal(changes[0].Lease))
		}
		expect.That(t, len(v.History(orders1)) == 1, "history %v, want the removal", v.History(orders1))
		for c, h := range v.NewestFirst() {
			expect.That(t, c.Lease == changes[0].Lease && len(h.Events()) == 1, "got %+v with %v", c, h.Events())
		}
	}
}

// A removed lease's handle no longer means anything: its slot belongs to another lease, here or on another node.
func TestRemovedLeaseHasNoSlot(t *testing.T) {
	g := withOrders(t)
	live := g.lease(orders1)
	g.pass(5000)
	g.client(Renew{Key: orders1})
	removed := *live
	removed.EvictedAt, removed.RenewedAt = g.now.Wall, Stamp{Lease: 7, Wall: 8}
	nameless := *live
	nameless.Handle = Handle{}
	expect.Equal(t, g.View().LastRenewal(live), g.now, "renewal of the live lease")
	expect.Equal(t, g.View().LastRenewal(&removed), removed.RenewedAt, "renewal of a removed lease with the handle of a live one")
	expect.Equal(t, g.View().Age(&removed, g.now.Lease), g.now.Lease-7, "age of a removed lease")
	g.client(Cancel{orders1}) // frees slot 0, which still holds the last renewal
	expect.Equal(t, g.View().LastRenewal(&nameless), nameless.RenewedAt, "renewal of a lease without a handle")
	_, ok := g.View().Why(Change{Lease: &removed, Index: 99})
	expect.That(t, !ok, "a removed lease has a reason without a record")
}

// A write to a slot beyond the table belongs to nobody.
func TestSlotBeyondTheTableIsFree(t *testing.T) {
	table := newRenewals()
	for _, slots := range []int{0, 1, renewalsPerChunk} {
		table.grow(slots)
		for _, slot := range []uint32{renewalsPerChunk, 1<<32 - 1} {
			table.assign(Handle{Slot: slot, Gen: 1}, Stamp{Lease: 7}, nil)
			expect.Equal(t, table.at(slot).generation.Load(), 0, "generation in slot %d of %d", slot, slots)
		}
	}
}

// Handles come from log entries, disks and other nodes.
func TestHandlesThatWereNeverGivenOutNameNothing(t *testing.T) {
	for _, leases := range []int{0, 1, renewalsPerChunk + 1} {
		for _, h := range []Handle{{Gen: 9}, {Slot: 1, Gen: 1}, {Slot: 255, Gen: 999}, {Slot: 256, Gen: 1}, {Slot: 1 << 20, Gen: 1}, {Slot: 1<<32 - 1, Gen: 1<<64 - 1}, {Slot: 1<<32 - 1}} {
			g := newRig(t)
			for i := range leases {
				g.register(instance(Key{App: "ORDERS", ID: string(rune('a' + i))}, Up, 100))
			}
			before := g.View()
			expect.Equal(t, g.client(Renew{Handle: h, Key: orders1}), Result{Outcome: DeadHandle}, "renew by %v", h)
			expect.Equal(t, g.client(Evict{Items: []EvictItem{{Handle: h}}}), Result{}, "evict of %v", h)
			expect.Equal(t, g.client(EndOverride{Handle: h, Set: 1}).Index, 0, "end of an override of %v", h)
			expect.Equal(t, g.client(EndQuarantine{Handle: h, Set: 1}).Index, 0, "end of a quarantine of %v", h)
			_, ok := g.StateOf(h)
			expect.That(t, !ok && g.Owner(h) == "", "%v has a state or an owner", h)
			l := &Lease{Instance: instance(orders1, Up, 100), Handle: h, RenewedAt: Stamp{Lease: 3}}
			v := g.View()
			expect.Equal(t, v.LastRenewal(l), l.RenewedAt, "renewal of %v", h)
			_, ok = v.Why(Change{Lease: l, Index: 9999})
			expect.That(t, !ok, "%v has a reason", h)
			expect.That(t, v.Index() == before.Index(), "%v changed something", h)
		}
	}
}
