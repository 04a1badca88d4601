package registry

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestSetOverride(t *testing.T) {
	tests := []struct {
		name      string
		status    Status // registered with dirty 100
		op        SetOverride
		wantDirty int64
	}{
		{"another status", Up, SetOverride{Status: OutOfService}, 100},
		{"the present status is stored too", Up, SetOverride{Status: Up}, 100},
		{"newer timestamp is taken over", Up, SetOverride{Status: Down, LastDirty: 150}, 150},
		{"older timestamp is not", Up, SetOverride{Status: Down, LastDirty: 50}, 100},
		{"over DOWN", Down, SetOverride{Status: Up}, 100},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			g.register(instance(orders1, tt.status, 100))
			g.pass(5000)
			tt.op.Key = orders1
			expect.Equal(t, g.client(tt.op), (Result{Index: 2}), "got")
			l := g.lease(orders1)
			if l.Instance.Status != tt.op.Status || l.Instance.Overridden != tt.op.Status || l.Instance.LastDirty != tt.wantDirty {
				t.Errorf("got %s, override %s, dirty %d; want %s twice, %d",
					l.Instance.Status, l.Instance.Overridden, l.Instance.LastDirty, tt.op.Status, tt.wantDirty)
			}
			expect.That(t, l.Action == ActionModified && l.UpdatedAt == g.now.Wall && l.RenewedAt == g.now && l.Registered == 1,
				"got %+v, want MODIFIED, updated and renewed now, registered at 1", l)
			expect.Equal(t, g.client(tt.op), (Result{}), "the same again:")
		})
	}
}

func TestSetOverrideToUpMarksTheServiceUp(t *testing.T) {
	g := newRig(t)
	g.register(instance(orders1, Starting, 100))
	g.pass(1000)
	g.client(SetOverride{Key: orders1, Status: Up})
	expect.Equal(t, g.lease(orders1).ServiceUpAt, g.now.Wall, "service up at")
}

func TestDeleteOverride(t *testing.T) {
	tests := []struct {
		name       string
		override   bool
		op         DeleteOverride
		wantStatus Status
		wantDirty  int64
	}{
		{"falls back to UNKNOWN", true, DeleteOverride{}, Unknown, 100},
		{"falls back to a status", true, DeleteOverride{Fallback: Down}, Down, 100},
		{"newer timestamp is taken over", true, DeleteOverride{Fallback: Up, LastDirty: 150}, Up, 150},
		{"older timestamp is not", true, DeleteOverride{Fallback: Up, LastDirty: 50}, Up, 100},
		{"nothing to delete", false, DeleteOverride{Fallback: Down, LastDirty: 150}, Up, 100},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := withOrders(t)
			if tt.override {
				g.client(SetOverride{Key: orders1, Status: OutOfService})
			}
			g.pass(5000)
			tt.op.Key = orders1
			res := g.client(tt.op)
			expect.That(t, res.Outcome == Done && (res.Index != 0) == tt.override, "got %+v, want Done, changed: %t", res, tt.override)
			l := g.lease(orders1)
			if l.Instance.Status != tt.wantStatus || l.Instance.Overridden != Unknown || l.Instance.LastDirty != tt.wantDirty {
				t.Errorf("got %s, override %s, dirty %d; want %s, none, %d",
					l.Instance.Status, l.Instance.Overridden, l.Instance.LastDirty, tt.wantStatus, tt.wantDirty)
			}
			expect.Equal(t, g.View().LastRenewal(l), g.now, "last renewal")
		})
	}
}

func TestActOnAnUnknownInstanceIsNotFound(t *testing.T) {
	g := withOrders(t)
	for _, op := range []Op{
		SetOverride{Key: orders2, Status: Down}, DeleteOverride{Key: orders2}, UpdateMetadata{Key: orders2},
		Quarantine{Key: orders2, For: 1000}, Quarantine{Key: orders2},
	} {
		expect.Equal(t, g.client(op), (Result{Outcome: NotFound}), "%+v:", op)
	}
	expect.Equal(t, g.client(Quarantine{Key: orders1}), Result{}, "end of a quarantine that is none, done without a change:")
}

// Netflix/eureka issue 955: after a console whose clock is ahead has set and deleted an override, the client's
// heartbeat is refused, it registers again with the timestamp it has, and must be UP.
func TestOverrideDeletedLetsItsClientRegisterAgainIssue955(t *testing.T) {
	for name, console := range map[string]int64{"console without a timestamp": 0, "console's clock ahead": 900_000} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			g.register(instance(orders1, Up, 1000))
			g.client(SetOverride{Key: orders1, Status: OutOfService, LastDirty: console})
			if res := g.client(Renew{Key: orders1, LastDirty: 1000}); res.Outcome != Done || g.status(orders1) != OutOfService {
				t.Errorf("heartbeat under the override: %+v, %s", res, g.status(orders1))
			}
			g.client(DeleteOverride{Key: orders1, LastDirty: console})
			res := g.client(Renew{Key: orders1, LastDirty: 1000})
			need.That(t, res.Outcome == NotFound, "heartbeat after it: %+v, want NotFound", res)
			g.register(instance(orders1, Up, 1000))
			i := g.lease(orders1).Instance
			expect.That(t, i.Status == Up && i.LastDirty == 1000, "registered again: %s at %d, want UP at 1000", i.Status, i.LastDirty)
			expect.Equal(t, g.client(Renew{Key: orders1, LastDirty: 1000}), (Result{}), "heartbeat at last:")
			g.register(instance(orders1, Down, 2000))
			expect.Equal(t, g.status(orders1), Down, "the client's next change:")
		})
	}
}

func TestOverrideHasDetails(t *testing.T) {
	g := withOrders(t)
	g.pass(1000)
	g.client(SetOverride{Key: orders1, Status: OutOfService, For: 60_000, By: keeper})
	want := Override{By: keeper, At: g.now, Until: g.now.Lease + 60_000, Reported: Up, Set: 2}
	got := g.lease(orders1).Override
	expect.That(t, got != nil && *got == want, "got %+v, want %+v", got, want)
	g.pass(1000)
	g.client(Renew{Key: orders1, LastDirty: 100})
	g.client(UpdateMetadata{Key: orders1, Pairs: []Pair{{Key: "k", Value: "v"}}})
	got = g.lease(orders1).Override
	expect.That(t, got != nil && *got == want, "after a heartbeat and other metadata: %+v, want %+v", got, want)
	g.client(DeleteOverride{Key: orders1, Fallback: Unknown, By: keeper})
	expect.That(t, g.lease(orders1).Override == nil, "after its end there is one")
}

func TestOverrideSetAgain(t *testing.T) {
	const first, second = Index(2), Index(3)
	tests := []struct {
		name  string
		pass  int64
		again SetOverride
		set   Index
		until int64 // after the registration
	}{
		{"the same at once", 0, SetOverride{Status: Down, For: 60_000, By: keeper}, first, 60_000},
		{"the same later ends later", 1000, SetOverride{Status: Down, For: 60_000, By: keeper}, second, 61_000},
		{"without an end", 0, SetOverride{Status: Down, By: keeper}, second, 0},
		{"by another", 0, SetOverride{Status: Down, For: 60_000}, second, 60_000},
		{"another status", 0, SetOverride{Status: OutOfService, For: 60_000, By: keeper}, second, 60_000},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := withOrders(t)
			began := g.now.Lease
			g.client(SetOverride{Key: orders1, Status: Down, For: 60_000, By: keeper})
			g.pass(tt.pass)
			tt.again.Key = orders1
			res := g.client(tt.again)
			changed := tt.set == second
			expect.That(t, res.Outcome == Done && (res.Index != 0) == changed, "got %+v, want a change: %t", res, changed)
			want := Override{By: tt.again.By, At: g.now, Reported: Up, Set: tt.set}
			if tt.until > 0 {
				want.Until = began + tt.until
			}
			got := g.lease(orders1).Override
			expect.That(t, *got == want, "got %+v, want %+v", *got, want)
		})
	}
}

func TestOverrideRemembersWhatTheClientReported(t *testing.T) {
	brings := func(status Status, dirty int64) *Instance {
		in := instance(orders1, status, dirty)
		in.Overridden = status
		return in
	}
	tests := []struct {
		name   string
		before []Op // the override
		after  []Op
		want   Status
	}{
		{"before the override", nil, nil, Up},
		{"before a second one", []Op{SetOverride{Key: orders1, Status: Down}}, nil, Up},
		{"by a later registration", nil, []Op{Register{instance(orders1, Down, 200)}}, Down},
		{"by the last of them", nil, []Op{Register{instance(orders1, Down, 200)}, Register{instance(orders1, Up, 300)}}, Up},
		{"by one that is older", nil, []Op{Register{instance(orders1, Down, 50)}}, Down},
		{"not by one that was replaced", nil, []Op{Register{instance(orders1, Up, 50)}, Register{instance(orders1, Down, 100)}}, Up},
		{"not by one that has the override in it", []Op{Register{instance(orders1, Starting, 150)}}, []Op{Register{brings(OutOfService, 200)}}, Starting},
		{"not known of one that came with an override", []Op{Register{brings(OutOfService, 150)}}, nil, Unknown},
		{"known of one that came with an override and DOWN", []Op{Register{func() *Instance { in := brings(OutOfService, 150); in.Status = Down; return in }()}}, nil, Down},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := withOrders(t)
			for _, op := range tt.before {
				g.client(op)
			}
			g.client(SetOverride{Key: orders1, Status: OutOfService, For: 60_000, By: keeper})
			for _, op := range tt.after {
				g.client(op)
			}
			got := g.lease(orders1).Override
			need.That(t, got != nil && got.Reported == tt.want && got.By == keeper, "got %+v, want reported %s, and its author", got, tt.want)
			g.pass(60_000)
			if got := g.endings(); len(got) != 1 || got[0].Outcome != Done || got[0].Index == 0 {
				t.Fatalf("at its time: %+v, want it ended, a change", got)
			}
			l := g.lease(orders1)
			expect.That(t, l.Instance.Status == tt.want && l.Instance.Overridden == Unknown && l.Override == nil && l.Action == ActionModified,
				"ended: %s, override %s, %+v, %s; want %s, none, MODIFIED", l.Instance.Status, l.Instance.Overridden, l.Override, l.Action, tt.want)
		})
	}
}

// Another server's copy of what is already stored is not a registration, but it may tell what the client reports now.
func TestOverrideReportedStatusComesWithAReplicatedRegistration(t *testing.T) {
	g := newRig(t)
	g.register(instance(orders1, OutOfService, 100))
	g.client(SetOverride{Key: orders1, Status: OutOfService, For: 60_000})
	res := g.peer(Register{instance(orders1, Up, 100)})
	expect.That(t, res.Outcome == Done && res.Index == 0 && g.View().Index() == 2, "got %+v, index %d; want no change after 2", res, g.View().Index())
	expect.Equal(t, g.lease(orders1).Override.Reported, Up, "reported")
}

func TestOverrideThatAnInstanceBringsHasNoDetails(t *testing.T) {
	g := newRig(t)
	in := instance(orders1, Up, 100)
	in.Overridden = OutOfService
	g.register(in)
	expect.Equal(t, g.lease(orders1).Override, nil, "registered:")
	expect.Equal(t, g.client(SetOverride{Key: orders1, Status: OutOfService}), (Result{}), "set again without an author:")
	g.client(SetOverride{Key: orders1, Status: OutOfService, For: 60_000})
	g.peer(Renew{Key: orders1, LastDirty: 200, Overridden: Down}) // another server has a newer one
	l := g.lease(orders1)
	expect.That(t, l.Override == nil && l.Instance.Overridden == Down && len(g.Ending(g.now.Lease+60_000)) == 0,
		"replaced by another server's: %+v, %+v; want DOWN without details or end", l.Instance.Overridden, l.Override)
}

func TestOverrideToUnknownIsNone(t *testing.T) {
	g := withOrders(t)
	g.client(SetOverride{Key: orders1, Status: Unknown, For: 60_000, By: keeper})
	l := g.lease(orders1)
	expect.That(t, l.Override == nil && l.Instance.Status == Unknown, "got %s, %+v; want UNKNOWN without details", l.Instance.Status, l.Override)
}

// The leader's ends of overrides and quarantines take effect as proposed, or not at all.
func TestProposedEndIsFenced(t *testing.T) {
	override, quarantine := SetOverride{Key: orders1, Status: Down, For: 60_000}, Quarantine{Key: orders1, For: 60_000}
	other := func(op Op) Op {
		switch op := op.(type) {
		case EndOverride:
			op.Epoch.Index++
			return op
		case EndQuarantine:
			op.Epoch.Index++
			return op
		}
		return op
	}
	same := func(op Op) Op { return op }
	for _, tt := range []struct {
		name   string
		act    Op
		before Op // applied after the end was proposed
		change func(Op) Op
		term   uint64
		want   Outcome
	}{
		{"override, another term", override, nil, same, 3, Refused},
		{"override, another epoch", override, nil, other, 2, Refused},
		{"override, another one", override, SetOverride{Key: orders1, Status: Down, For: 90_000}, same, 2, NotFound},
		{"override, ended already", override, DeleteOverride{Key: orders1}, same, 2, NotFound},
		{"override, gone", override, Cancel{orders1}, same, 2, NotFound},
		{"quarantine, another term", quarantine, nil, same, 3, Refused},
		{"quarantine, another epoch", quarantine, nil, other, 2, Refused},
		{"quarantine, another one", quarantine, Quarantine{Key: orders1, For: 90_000}, same, 2, NotFound},
		{"quarantine, ended already", quarantine, Quarantine{Key: orders1}, same, 2, NotFound},
		{"quarantine, gone", quarantine, Cancel{orders1}, same, 2, NotFound},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			g.Establish(Epoch{Term: 2, Index: 7}, "cluster")
			g.register(instance(orders1, Up, 100))
			g.client(tt.act)
			g.pass(60_000)
			op := tt.change(g.Ending(g.now.Lease)[0])
			if tt.before != nil {
				g.client(tt.before)
			}
			index := g.View().Index()
			res := g.Apply(g.now, tt.term, FromClient, op)
			expect.That(t, res == (Result{Outcome: tt.want}) && g.View().Index() == index, "got %+v, want outcome %d without effect", res, tt.want)
		})
	}
}

func TestActWithoutAnEndDoesNotEnd(t *testing.T) {
	for op, pass := range map[Op]int64{SetOverride{Key: orders1, Status: Down, By: keeper}: 1<<62 - 1, Quarantine{Key: orders1, For: 1<<63 - 1}: MaxRemovalAge} {
		g := withOrders(t)
		g.client(op)
		expect.Equal(t, len(g.Ending(g.now.Lease+pass)), 0, "%+v: to be ended:", op)
	}
}

// keeper is an operator.
var keeper = Act{Author: "keeper", Reason: "looks odd"}

// endings applies what is due now, as the leader does.
func (g *rig) endings() []Result {
	var results []Result
	for _, op := range g.Ending(g.now.Lease) {
		results = append(results, g.client(op))
	}
	return results
}

func (g *rig) find(key Key) *Lease {
	g.t.Helper()
	l, ok := g.View().Find(key)
	if !ok {
		g.t.Fatalf("%s has no lease", key)
	}
	return l
}

func TestQuarantineHidesAnInstanceFromEveryReader(t *testing.T) {
	g := newRig(t)
	for _, key := range []Key{orders1, orders2, billing1} {
		in := instance(key, Up, 100)
		in.SecureVIP = "s"
		g.register(in)
	}
	g.pass(5000)
	need.Equal(t, g.client(Quarantine{Key: orders1, For: 60_000, By: keeper}), Result{Index: 4}, "got")
	g.client(Quarantine{Key: billing1, For: 60_000})
	v := g.View()
	wantKeys(t, "all", keysOf(v.Leases()), orders2)
	wantKeys(t, "by id", keysOf(v.ByID(orders1.ID)))
	wantKeys(t, "by VIP", keysOf(v.ByVIP("ORDERS")), orders2)
	wantKeys(t, "by secure VIP", keysOf(v.BySecureVIP("s")), orders2)
	wantKeys(t, "quarantined", keysOf(v.Quarantined), billing1, orders1)
	_, ok := v.Lease(orders1)
	expect.That(t, !ok, "it has a lease for readers")
	_, ok = v.App("BILLING")
	expect.That(t, !ok, "an application whose only instance is quarantined exists")
	app, _ := v.App("ORDERS")
	expect.That(t, app.Len() == 1 && app.Changed == 4, "application of %d instances, changed at %d; want 1, 4", app.Len(), app.Changed)
	expect.That(t, v.Len() == 1 && v.Total() == 3 && v.Counts().HashCode() == "UP_1_",
		"%d listed of %d, hash %s; want 1 of 3, UP_1_", v.Len(), v.Total(), v.Counts().HashCode())
	l := g.find(orders1)
	details := Quarantined{By: keeper, At: g.now, Until: g.now.Lease + 60_000, Set: 4}
	expect.That(t, l.Quarantine != nil && *l.Quarantine == details && l.Instance.Status == Up && l.Registered == 1,
		"got %+v, %+v; want it UP and quarantined %+v", l, l.Quarantine, details)
	got := v.LastRenewal(l)
	expect.That(t, got.Lease == 1000, "renewed at %d by the operator, want only by its client at 1000", got.Lease)
}

func TestQuarantinedInstanceIsRemovedInTheDeltaAndHiddenInTheChangeList(t *testing.T) {
	g := newRig(t)
	a, b, c := Key{App: "ORDERS", ID: "a"}, Key{App: "ORDERS", ID: "b"}, Key{App: "ORDERS", ID: "c"}
	for _, key := range []Key{a, b, c} {
		g.register(instance(key, Up, 100))
	}
	g.client(Quarantine{Key: a, For: 60_000})
	g.client(Cancel{b})
	d := g.View().Delta()
	shown := ""
	for _, l := range d.Leases {
		shown += l.Key().ID + " " + l.Action.String() + ", "
	}
	want := "c ADDED, a DELETED, b DELETED, "
	expect.That(t, shown == want && d.HashCode == "UP_1_", "delta %s hash %s, want %s UP_1_", shown, d.HashCode, want)
	expect.That(t, g.find(a).Action != ActionDeleted, "the lease itself was marked as removed")
	changes, err := g.View().Changes(3, 0)
	expect.That(t, err == nil && len(changes) == 2 && changes[0].Kind == Hidden && changes[0].Lease == g.find(a) && changes[1].Kind == Canceled,
		"changes %+v, %v; want the hidden lease and the cancel", changes, err)
	g.client(Quarantine{Key: a, By: keeper}) // now
	expect.Equal(t, g.inDelta()[a], ActionAdded, "after its end:")
	changes, _ = g.View().Changes(5, 0)
	expect.That(t, len(changes) == 1 && changes[0].Kind == Live && changes[0].Index == 6, "after its end: %+v, want a live lease at 6", changes)
}

func TestQuarantinedInstanceThatFallsSilentIsEvicted(t *testing.T) {
	g := withOrders(t)
	g.client(Quarantine{Key: orders1, For: 600_000})
	g.pass(90_001)
	res := g.client(Evict{Items: g.Expired(g.now.Lease, 10)})
	_, ok := g.View().Find(orders1)
	expect.That(t, res.Count == 1 && !ok, "got %+v, found %t; want it evicted", res, ok)
	got := g.Ending(g.now.Lease + 600_000)
	expect.That(t, len(got) == 0, "%v is to end, want nothing: it is gone", got)
}

func TestQuarantineEndsAtItsTime(t *testing.T) {
	g := newRig(t)
	g.Establish(Epoch{Term: 2, Index: 7}, "cluster")
	handle := g.register(instance(orders1, Up, 100)).Handle
	g.client(Quarantine{Key: orders1, For: 60_000, By: keeper})
	g.pass(59_999)
	got := g.Ending(g.now.Lease)
	need.That(t, len(got) == 0, "before its time: %v", got)
	g.pass(1)
	want := Op(EndQuarantine{Epoch: Epoch{Term: 2, Index: 7}, Handle: handle, Set: 2})
	got = g.Ending(g.now.Lease)
	need.That(t, slices.Equal(got, []Op{want}), "at its time: %v, want %v", got, want)
	expect.Equal(t, g.client(want), (Result{Index: 3}), "got")
	l := g.lease(orders1)
	expect.That(t, l.Quarantine == nil && l.Action == ActionAdded && l.Changed == 3 && l.Registered == 1,
		"got %+v, want it listed as added, in the same lease", l)
	got = g.Ending(g.now.Lease)
	expect.That(t, len(got) == 0, "afterwards: %v", got)
}

func TestQuarantineSetAgain(t *testing.T) {
	tests := []struct {
		name    string
		pass    int64
		again   Quarantine
		changes bool
	}{
		{"the same at once", 0, Quarantine{For: 60_000, By: keeper}, false},
		{"the same later ends later", 1000, Quarantine{For: 60_000, By: keeper}, true},
		{"shorter", 0, Quarantine{For: 30_000, By: keeper}, true},
		{"by another", 0, Quarantine{For: 60_000}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := withOrders(t)
			g.client(Quarantine{Key: orders1, For: 60_000, By: keeper})
			g.pass(tt.pass)
			tt.again.Key = orders1
			res := g.client(tt.again)
			expect.That(t, res.Outcome == Done && (res.Index != 0) == tt.changes, "got %+v, want a change: %t", res, tt.changes)
			expect.Equal(t, g.find(orders1).Quarantine.Until, g.now.Lease+tt.again.For, "until")
		})
	}
}

func TestQuarantineSurvivesARemoval(t *testing.T) {
	evict := func(g *rig) {
		g.pass(90_001)
		g.client(Evict{Items: g.Expired(g.now.Lease, 10)})
	}
	tests := []struct {
		name   string
		remove func(g *rig)
		pass   int64
		hidden bool
	}{
		{"cancel", func(g *rig) { g.client(Cancel{orders1}) }, 1000, true},
		{"eviction", evict, 1000, true},
		{"record that was reduced", func(g *rig) { g.client(Cancel{orders1}) }, 300_000, true},
		{"until its time", func(g *rig) { g.client(Cancel{orders1}) }, 599_999, true},
		{"not beyond its time", func(g *rig) { g.client(Cancel{orders1}) }, 600_000, false},
		{"not if it was ended meanwhile", func(g *rig) { g.client(Cancel{orders1}); g.client(Quarantine{Key: orders1, By: keeper}) }, 1000, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := withOrders(t)
			g.client(Quarantine{Key: orders1, For: 600_000, By: keeper})
			until := g.find(orders1).Quarantine.Until
			tt.remove(g)
			g.pass(tt.pass)
			res := g.client(Register{instance(orders1, Up, 200)})
			l := g.find(orders1)
			need.That(t, (l.Quarantine != nil) == tt.hidden, "registered again: quarantine %+v, want one: %t", l.Quarantine, tt.hidden)
			if !tt.hidden {
				return
			}
			q := l.Quarantine
			expect.That(t, q.Until == until && q.By == keeper && q.Set == res.Index && q.Set == l.Registered,
				"quarantine %+v, want by the same until %d, set at %d", q, until, res.Index)
			g.pass(until - g.now.Lease)
			got := g.endings()
			expect.That(t, len(got) == 1 && got[0].Outcome == Done, "at its time: %+v, want it ended", got)
			g.lease(orders1)
		})
	}
}

// Whatever else happens to it here, an instance is hidden from the start of its quarantine to the end, exactly.
func TestQuarantineHidesAnInstanceFromItsStartToItsEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := New()
		now := Stamp{Lease: 1000, Wall: startOfWall}
		until := map[Key]int64{} // of quarantined instances, live or gone
		for _, s := range drawSteps.Draw(t, "steps") {
			if _, elsewhere := s.op.(Replica); elsewhere {
				continue
			}
			now.Lease, now.Wall = now.Lease+s.pass, now.Wall+s.pass
			before := r.View()
			ending := r.Ending(now.Lease)
			s.apply(r, now)
			if q, ok := s.op.(Quarantine); ok && q.For <= 0 {
				delete(until, q.Key)
			} else if _, live := before.Find(q.Key); ok && live {
				until[q.Key] = now.Lease + q.For
			}
			for key, at := range until {
				_, live := before.Find(key)
				ended := s.end && slices.ContainsFunc(ending, func(op Op) bool { _, ok := op.(EndQuarantine); return ok && live && at <= now.Lease })
				// A removed instance's quarantine is not ended: it just no longer has an effect.
				if ended || !live && at <= now.Lease {
					delete(until, key)
				}
			}
			v := r.View()
			for l := range v.All() {
				at, want := until[l.Key()]
				need.That(t, want == (l.Quarantine != nil) && (!want || l.Quarantine.Until == at),
					"%s after %+v: quarantine %+v, want one: %t, until %d", l.Key(), s, l.Quarantine, want, at)
			}
		}
	})
}

// Documents of an application are rebuilt whenever it changes.
func TestQuarantinedInstanceChangesItsApplication(t *testing.T) {
	tests := []struct {
		name string
		ops  []Op
	}{
		{"registration", []Op{Register{instance(orders1, Down, 200)}}},
		{"override", []Op{SetOverride{Key: orders1, Status: Down}}},
		{"longer quarantine", []Op{Quarantine{Key: orders1, For: 120_000}}},
		{"end of the quarantine", []Op{Quarantine{Key: orders1}}},
		{"cancel", []Op{Cancel{orders1}}},
		{"registration after a cancel", []Op{Cancel{orders1}, Register{instance(orders1, Up, 200)}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := withOrders(t, orders2)
			g.client(Quarantine{Key: orders1, For: 60_000})
			for _, op := range tt.ops {
				g.client(op)
			}
			thawed := need.Got(Thaw(g.Freeze()))(t)
			for name, v := range map[string]*View{"live": g.View(), "thawed": thawed.View()} {
				app, _ := v.App("ORDERS")
				expect.That(t, app.Changed == Index(3+len(tt.ops)), "%s: changed at %d, want %d", name, app.Changed, 3+len(tt.ops))
			}
		})
	}
}

func TestEndingIsInTheOrderOfTime(t *testing.T) {
	g := newRig(t)
	var want []Op
	for i, ms := range []int64{3000, 1000, 2000, 1000} {
		key := Key{App: "ORDERS", ID: fmt.Sprint(i)}
		g.register(instance(key, Up, 100))
		g.client(SetOverride{Key: key, Status: Down, For: ms})
		g.client(Quarantine{Key: key, For: ms})
	}
	for _, slot := range []uint32{1, 3, 2, 0} { // those of equal time in the order they were set
		h := Handle{Slot: slot, Gen: uint64(slot + 1)}
		set := Index(slot*3 + 2)
		want = append(want, EndOverride{Handle: h, Set: set}, EndQuarantine{Handle: h, Set: set + 1})
	}
	expect.Slice(t, g.Ending(g.now.Lease+3000), want, "got")
	expect.Slice(t, g.Ending(g.now.Lease+2999), want[:6], "a moment before the last: got")
}
