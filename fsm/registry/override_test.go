package registry

import (
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestOverrideLifeCycle(t *testing.T) {
	g := newRig(t)
	g.register(instance(orders1, Up, 100))
	steps := []struct {
		op         Op
		status     Status
		overridden Status
	}{
		{SetOverride{Key: orders1, Status: OutOfService}, OutOfService, OutOfService},
		{Register{instance(orders1, Up, 200)}, OutOfService, OutOfService},
		{DeleteOverride{Key: orders1, Fallback: Down}, Down, Unknown},
		{Register{instance(orders1, Up, 300)}, Up, Unknown},
	}
	for _, step := range steps {
		res := g.client(step.op)
		i := g.lease(orders1).Instance
		expect.That(t, res.Outcome == Done && res.Index != 0 && i.Status == step.status && i.Overridden == step.overridden,
			"%T: %+v, status %s, override %s; want %s, %s", step.op, res, i.Status, i.Overridden, step.status, step.overridden)
	}
}

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

func TestOverrideThatEqualsTheStatusHoldsAtTheNextChange(t *testing.T) {
	g := newRig(t)
	g.register(instance(orders1, Up, 100))
	g.client(SetOverride{Key: orders1, Status: Up})
	g.peer(Register{instance(orders1, OutOfService, 200)})
	expect.Equal(t, g.status(orders1), Up, "got")
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
			g := newRig(t)
			g.register(instance(orders1, Up, 100))
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

func TestOverrideOfUnknownInstanceIsNotFound(t *testing.T) {
	g := newRig(t)
	for _, op := range []Op{
		SetOverride{Key: orders1, Status: Down}, DeleteOverride{Key: orders1}, UpdateMetadata{Key: orders1},
	} {
		expect.Equal(t, g.client(op), (Result{Outcome: NotFound}), "%T:", op)
	}
}

// Netflix/eureka issue 955: after an override was set and deleted by a console whose clock is ahead,
// the client's heartbeat is refused, it registers again with the timestamp it has, and must be UP.
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
	g := newRig(t)
	g.register(instance(orders1, Up, 100))
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
	got = g.lease(orders1).Override
	expect.That(t, got == nil, "after its end: %+v, want none", got)
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
			g := newRig(t)
			g.register(instance(orders1, Up, 100))
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
			g := newRig(t)
			g.register(instance(orders1, Up, 100))
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

// Another server's copy of what is stored already is no registration, but it may tell what the client
// reports now.
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
	res := g.client(SetOverride{Key: orders1, Status: OutOfService})
	expect.That(t, res == (Result{}), "set again without an author: %+v, want done without a change", res)
	g.client(SetOverride{Key: orders1, Status: OutOfService, For: 60_000})
	g.peer(Renew{Key: orders1, LastDirty: 200, Overridden: Down}) // another server has a newer one
	l := g.lease(orders1)
	expect.That(t, l.Override == nil && l.Instance.Overridden == Down && len(g.Ending(g.now.Lease+60_000)) == 0,
		"replaced by another server's: %+v, %+v; want DOWN without details or end", l.Instance.Overridden, l.Override)
}

func TestOverrideToUnknownIsNone(t *testing.T) {
	g := newRig(t)
	g.register(instance(orders1, Up, 100))
	g.client(SetOverride{Key: orders1, Status: Unknown, For: 60_000, By: keeper})
	l := g.lease(orders1)
	expect.That(t, l.Override == nil && l.Instance.Status == Unknown, "got %s, %+v; want UNKNOWN without details", l.Instance.Status, l.Override)
}

// The leader's ends of overrides and of quarantines take effect as they were proposed, or not at all.
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

func TestOverrideWithoutAnEndDoesNotEnd(t *testing.T) {
	g := newRig(t)
	g.register(instance(orders1, Up, 100))
	g.client(SetOverride{Key: orders1, Status: Down, By: keeper})
	got := g.Ending(1<<63 - 1)
	expect.That(t, len(got) == 0, "%v is to end", got)
}
