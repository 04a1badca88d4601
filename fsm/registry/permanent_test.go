package registry

import (
	"math"
	"slices"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestPermanentInstanceNeverEndsByItself(t *testing.T) {
	g := withWeb(t)
	g.Establish(Epoch{Term: 1, Index: 1}, "c")
	l := g.lease(web1)
	expect.That(t, l.Permanent && l.Interval == 30 && l.Duration == 90 && g.View().Ends(l) == math.MaxInt64,
		"lease %+v that ends at %d, want a permanent one shown with 30 and 90 s", l, g.View().Ends(l))
	far := g.now.Lease + 365*24*3600*1000
	items := g.Expired(far, 10)
	expect.That(t, len(items) == 0, "expired %+v", items)
	g.client(Evict{Epoch: Epoch{Term: 1, Index: 1}, Items: []EvictItem{{Handle: l.Handle, Registered: l.Registered, RenewedAt: g.View().LastRenewal(l).Lease}}})
	expect.That(t, g.View().Len() == 1, "evicted")
}

func TestPermanentInstancesStayOutsideSelfPreservation(t *testing.T) {
	g := newRig(t)
	g.Configure(Settings{Threshold: 500_000, SelfPreservation: true, Population: 1, ExpectationUpdate: 900_000})
	g.registerInCatalog(service("web", "web-1"))
	g.register(instance(orders1, Up, 100))
	g.register(instance(orders2, Up, 100))
	clients := g.View().Expectation().Clients
	g.pass(61_000)
	g.client(Renew{Key: orders1})
	f := g.View().Freshness(g.now.Lease)
	expect.That(t, f.Leases == 2 && f.Counted == 2 && f.Fresh == 1, "figures %+v, want those of the two leases", f)
	apps := g.View().FreshnessByApp(g.now.Lease)
	expect.That(t, len(apps) == 1, "by application: %+v, want ORDERS alone", apps)
	got := g.View().RoundLimit(0)
	expect.That(t, got == 1, "a round may take %d, want half of the two leases", got)
	g.registerInCatalog(service("web", "web-2"))
	g.client(DeregisterCatalog{Service: "web-1"})
	expect.Equal(t, g.View().Expectation().Clients, clients, "clients expected, as before:")
	// When replaced, they count, and the other way round.
	g.client(Register{instance(Key{App: "WEB", ID: "web-2"}, Up, 100)})
	expect.Equal(t, g.View().Expectation().Clients, clients+1, "clients expected after one got a lease:")
	g.registerInCatalog(service("web", "web-2"))
	expect.Equal(t, g.View().Expectation().Clients, clients, "clients expected, after it lost the lease:")
}

func TestPermanentInstanceGetsNoLeaseByAHeartbeat(t *testing.T) {
	for _, tt := range []struct {
		name   string
		origin Origin
		op     Renew
		want   Outcome
	}{
		{"a client's", FromClient, Renew{Key: web1}, Done},
		{"a client's that is newer", FromClient, Renew{Key: web1, LastDirty: math.MaxInt64}, Done},
		{"a client's that is older", FromClient, Renew{Key: web1, LastDirty: 1}, Done},
		{"a server's", FromEureka, Renew{Key: web1, LastDirty: startOfWall, Overridden: Down}, Done},
		{"a server's that is newer", FromEureka, Renew{Key: web1, LastDirty: math.MaxInt64, Overridden: Down}, Newer},
		{"a server's that is older", FromEureka, Renew{Key: web1, LastDirty: 1}, Older},
		{"a server's of a later life", fromDC2, Renew{Key: web1, Life: 2}, Newer},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := withWeb(t, checkOf("web-1", "a", catalog.Critical))
			before := g.lease(web1)
			g.pass(200_000)
			res := g.apply(tt.origin, tt.op)
			expect.That(t, res.Outcome == tt.want && res.Index == 0, "got %+v, want outcome %d and no change", res, tt.want)
			byHandle := tt.op
			byHandle.Handle = before.Handle
			res = g.apply(tt.origin, byHandle)
			expect.That(t, res.Outcome == tt.want, "by handle: %+v, want outcome %d", res, tt.want)
			expect.That(t, g.lease(web1) == before && g.View().NewestBeat() == 0, "changed to %+v, or told as a renewal", g.lease(web1))
		})
	}
}

func TestPermanentInstanceIsReplacedAsAWholeThroughTheOtherAPI(t *testing.T) {
	g := newRig(t)
	i := instance(web1, Up, math.MaxInt64-5) // a clock that runs far ahead
	i.Metadata = []Pair{{Key: "k", Value: "v"}}
	g.register(i)
	g.client(SetOverride{Key: web1, Status: OutOfService, By: Act{Author: "ann"}})
	res := g.registerInCatalog(service("web", "web-1", checkOf("web-1", "a", catalog.Critical)))
	l := g.lease(web1)
	expect.That(t, l.Permanent && l.Service != nil && len(l.Instance.Metadata) == 0 && res.Handle == l.Handle && l.Registered == res.Index,
		"lease %+v of %+v, want the service and nothing of before", l, l.Instance)
	expect.That(t, l.Instance.Status == OutOfService && l.reported() == Down && l.Override.By.Author == "ann",
		"%s, reports %s, by %+v; want the operator's override to stay, over the status by checks", l.Instance.Status, l.reported(), l.Override)
	expect.That(t, l.Instance.LastDirty > math.MaxInt64-5, "timestamp %d, want a newer one", l.Instance.LastDirty)
	old := instance(web1, Up, 100) // of a client whose clock is behind
	g.client(DeleteOverride{Key: web1})
	g.client(AckPeer{Peer: "dc2"})
	g.register(old)
	l = g.lease(web1)
	expect.That(t, !l.Permanent && l.Service == nil && l.Instance.Status == Up && l.Instance.LastDirty == 100 && l.Life == 2,
		"lease %+v of %+v, want what the client says, in a new life: other servers had a newer one", l, l.Instance)
	expect.That(t, len(g.Expired(g.now.Lease+90_001, 1)) == 1, "it has no lease that ends")
}

func TestPermanentInstanceIsReplacedByAnotherServersRegistrationOnlyIfNewer(t *testing.T) {
	g := withWeb(t)
	before := g.lease(web1)
	known := *before.Instance
	for _, tt := range []struct {
		name string
		i    *Instance
		want Outcome
	}{
		{"the same", &known, Done},
		{"older", instance(web1, Down, 100), KeptExisting},
	} {
		res := g.peer(Register{tt.i})
		expect.That(t, res.Outcome == tt.want && res.Index == 0 && g.lease(web1) == before, "%s: %+v, want outcome %d and no change", tt.name, res, tt.want)
	}
	newer := instance(web1, Down, before.Instance.LastDirty+1)
	if res := g.peer(Register{newer}); res.Outcome != Done || g.lease(web1).Permanent || g.lease(web1).Owner != "eureka" {
		t.Errorf("newer: %+v, lease %+v; want it in its place", res, g.lease(web1))
	}
}

func TestPermanentInstancesOverrideHidesTheStatusByChecks(t *testing.T) {
	for _, end := range []struct {
		name string
		op   func(g *rig) Op
	}{
		{"deleted", func(*rig) Op { return DeleteOverride{Key: web1} }},
		{"deleted with another status", func(*rig) Op { return DeleteOverride{Key: web1, Fallback: OutOfService} }},
		{"set to no status", func(*rig) Op { return SetOverride{Key: web1, Status: Unknown} }},
		{"at its end", func(g *rig) Op { return EndOverride{g.Epoch(), g.lease(web1).Handle, g.lease(web1).Override.Set} }},
	} {
		t.Run(end.name, func(t *testing.T) {
			g := newRig(t)
			g.Establish(Epoch{Term: 1, Index: 1}, "c")
			g.registerInCatalog(service("web", "web-1", checkOf("web-1", "a", catalog.Passing)))
			g.client(SetOverride{Key: web1, Status: OutOfService, For: 60_000})
			until := g.lease(web1).Override.Until
			g.report("a", catalog.Critical, "")
			l := g.lease(web1)
			expect.That(t, l.Instance.Status == OutOfService && l.Override.Reported == Down && l.Override.Until == until,
				"%s over %+v, want the override to hold until %d, over DOWN", l.Instance.Status, l.Override, until)
			res := g.client(end.op(g))
			expect.That(t, res.Outcome == Done && g.status(web1) == Down, "ended: %+v, status %s, want DOWN by the check", res, g.status(web1))
			expect.That(t, g.lease(web1).Instance.Overridden == Unknown, "still overridden as %s", g.lease(web1).Instance.Overridden)
		})
	}
}

func TestPermanentInstancesMetadataIsPartOfItsService(t *testing.T) {
	g := withWeb(t, checkOf("web-1", "a", catalog.Critical))
	res := g.client(UpdateMetadata{web1, []Pair{{Key: "k", Value: "v"}}})
	l := g.lease(web1)
	expect.That(t, l.Service.ModifyIndex == res.Index && l.Instance.Meta("k") == "v" && l.Instance.Status == Down && l.Permanent,
		"lease %+v of %+v, want the service modified at %d", l, l.Service, res.Index)
}

func TestPermanentInstanceCanceledComesBackInANewLife(t *testing.T) {
	g := withWeb(t)
	dirty := g.lease(web1).Instance.LastDirty
	g.client(Quarantine{Key: web1, For: 60_000})
	g.client(DeregisterCatalog{Service: "web-1"})
	told := Replica{Instance: instance(web1, Up, dirty), Life: 1, Permanent: true}
	res := g.apply(fromDC2, told)
	expect.That(t, res.Outcome == Refused, "a copy that another server still had: %+v, want it refused", res)
	g.registerInCatalog(service("web", "web-1"))
	l, ok := g.View().Find(web1)
	expect.That(t, ok && l.Life == 2 && l.Quarantine != nil && l.Instance.LastDirty > dirty,
		"lease %+v, want a second life, still in quarantine, and newer than before", l)
}

// No client renews it, so its own datacenter vouches for it.
func TestPermanentInstanceComesBackWhereAnotherServerEvictedIt(t *testing.T) {
	g, other := newRig(t), newRig(t)
	g.registerInCatalog(service("web", "web-1"))
	tell := func() { other.apply(fromDC2, g.View().ReplicaOf(g.lease(web1), g.now.Lease)) }
	tell()
	other.apply(fromDC2, Remove{Key: web1, Kind: Evicted, Life: 2})
	_, before := other.View().Find(web1)
	g.pass(60_000)
	other.pass(60_000)
	tell()
	_, after := other.View().Find(web1)
	expect.That(t, !before && after, "there before %t and after %t, want it evicted, and back", before, after)
}

func TestPermanentInstanceIsMergedAsAReplica(t *testing.T) {
	home := newRig(t)
	home.registerInCatalog(service("web", "web-1", checkOf("web-1", "a", catalog.Passing)))
	home.pass(24 * 3600 * 1000)
	home.Advance(home.now)
	away := newRig(t)
	tell := func() Result {
		return away.apply(fromDC2, home.View().ReplicaOf(home.lease(web1), home.now.Lease))
	}
	res := tell()
	need.That(t, res.Outcome == Done && res.Index != 0, "told: %+v, want it taken, however long ago it was registered", res)
	l := away.lease(web1)
	expect.That(t, l.Permanent && l.Service == nil && l.Owner == "dc2" && away.View().Ends(l) == math.MaxInt64,
		"lease %+v, want one of dc2 that never ends, without what stays at home", l)
	res = tell()
	expect.That(t, res.Outcome == Done && res.Index == 0, "told again: %+v, want no change", res)
	home.report("a", catalog.Critical, "")
	tell()
	expect.Equal(t, away.status(web1), Down, "its check is critical, and it is")

	// An override that was set there comes home, and both show the same.
	away.client(SetOverride{Key: web1, Status: OutOfService})
	home.apply(fromDC2, away.View().ReplicaOf(away.lease(web1), away.now.Lease))
	h := home.lease(web1)
	if h.Instance.Status != OutOfService || away.status(web1) != OutOfService || h.Service == nil || h.reported() != Down {
		t.Errorf("%s, reports %s, with service %v; there %s; want both overridden, and the service at home", h.Instance.Status, h.reported(), h.Service, away.status(web1))
	}
	home.report("a", catalog.Passing, "")
	tell()
	expect.That(t, home.status(web1) == OutOfService && away.status(web1) == OutOfService,
		"passing again: %s here, %s there, want the override to hold", home.status(web1), away.status(web1))
	expect.That(t, home.lease(web1).Sum() == away.lease(web1).Sum(), "the two have different sums, and would be repaired for ever")

	// A copy from before a check's change does not undo the change.
	stale := away.View().ReplicaOf(away.lease(web1), away.now.Lease)
	home.report("a", catalog.Critical, "")
	if res := home.apply(fromDC2, stale); res.Outcome != Older || home.lease(web1).reported() != Down {
		t.Errorf("an older copy: %+v, reports %s; want it refused", res, home.lease(web1).reported())
	}

	home.client(DeregisterCatalog{Service: "web-1"})
	rec, _ := home.View().Removal(web1)
	if res := away.apply(fromDC2, home.View().RemoveOf(rec, home.now.Lease)); res.Outcome != Done || away.View().Len() != 0 {
		t.Errorf("removal told: %+v, want it gone there", res)
	}
}

func TestPermanentInstanceIsNeitherLateNorCededToASender(t *testing.T) {
	g := withWeb(t)
	g.client(Contact{DC: "dc2"})
	g.pass(600_000)
	echo := g.View().ReplicaOf(g.lease(web1), g.now.Lease)
	echo.Age = 0
	g.apply(fromDC2, echo)
	g.apply(fromDC2, Renew{Key: web1, Life: 1})
	expect.That(t, g.lease(web1).Local(), "it belongs to %s now", g.lease(web1).Owner)
	for _, e := range g.View().History(web1) {
		expect.That(t, e.Kind != EventRenewedLate, "its history has %+v", e)
	}
}

func TestPermanentYieldsLeasesWithoutEnd(t *testing.T) {
	g := withOrders(t)
	wantKeys(t, "none", keysOf(g.View().Permanent))
	g.registerInCatalog(service("web", "web-1"))
	g.registerInCatalog(serviceOn("n1", "web", "web-1"))
	g.client(Quarantine{Key: web1, For: 1000})
	wantKeys(t, "two", keysOf(g.View().Permanent), Key{App: "WEB", ID: "n1:web-1"}, web1)
}

func TestPermanentInstancesStatusIsNotDecidedByAReplica(t *testing.T) {
	g := withWeb(t, checkOf("web-1", "a", catalog.Critical))
	op := g.View().ReplicaOf(g.lease(web1), g.now.Lease)
	i := *op.Instance
	i.Status = Up
	op.Instance, op.Owner, op.Edit, op.Overridden = &i, "dc1", 1, OutOfService
	res := g.apply(fromDC2, op)
	expect.That(t, res.Outcome == Older && res.Index != 0, "got %+v, want the override taken, and the status not", res)
	if l := g.lease(web1); l.Instance.Status != OutOfService || l.reported() != Down {
		t.Errorf("shown as %s, reports %s; want the override over the status by the check", l.Instance.Status, l.reported())
	}
}

// Servers that have the same version of an instance without a lease must adopt the one with a lease.
func TestPermanentInstanceThatGetsALeaseBeginsANewLife(t *testing.T) {
	g := newRig(t)
	g.client(AckPeer{Peer: "dc2"})
	g.registerInCatalog(service("web", "web-1"))
	same := *g.lease(web1).Instance
	g.register(&same)
	l := g.lease(web1)
	expect.That(t, !l.Permanent && l.Life == 2, "lease %+v, want one of a second life", l)
}

func TestPermanentInstanceOfAnotherDatacenterMayChangeItsOwner(t *testing.T) {
	g := withOrders(t)
	op := Replica{Instance: instance(web1, Up, 100), Life: 1, Permanent: true}
	g.apply(fromDC2, op)
	g.apply(Origin{Kind: RemoteDC, DC: "dc3"}, op)
	expect.Equal(t, g.lease(web1).Owner, "dc3", "it belongs to")
	expect.OK(t, check(g.Registry))
}

func TestSetCheckIsAChangeOnlyIfStatusOrOutputIsNew(t *testing.T) {
	for _, tt := range []struct {
		name    string
		before  catalog.CheckStatus
		status  catalog.CheckStatus
		output  string // it was "old"
		changes bool
		want    string // output
	}{
		{"the same", catalog.Passing, catalog.Passing, "old", false, "old"},
		{"a passing check's output", catalog.Passing, catalog.Passing, "new", false, "old"},
		{"a warning's output", catalog.Warning, catalog.Warning, "new", true, "new"},
		{"a critical check's output", catalog.Critical, catalog.Critical, "new", true, "new"},
		{"the same, critical", catalog.Critical, catalog.Critical, "old", false, "old"},
		{"worse", catalog.Passing, catalog.Critical, "new", true, "new"},
		{"better", catalog.Critical, catalog.Passing, "new", true, "new"},
		{"warning", catalog.Passing, catalog.Warning, "", true, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			c := checkOf("web-1", "a", tt.before)
			c.Output = "old"
			g.registerInCatalog(service("web", "web-1", c))
			app, _ := g.View().App("WEB")
			index, changed := g.View().Index(), app.Changed
			res := g.report("a", tt.status, tt.output)
			app, _ = g.View().App("WEB")
			if moved := g.View().Index() > index; moved != tt.changes || (res.Index > 0) != moved || (app.Changed > changed) != moved {
				t.Errorf("index %d to %d, application's %d to %d, result %+v; want a change: %t", index, g.View().Index(), changed, app.Changed, res, tt.changes)
			}
			got := g.check("", "a")
			expect.That(t, got.Status == tt.status && got.Output == tt.want && (got.ModifyIndex > index) == tt.changes && got.CreateIndex <= index,
				"check %+v, want status %d and output %q", got, tt.status, tt.want)
			want := map[bool]Status{true: Down, false: Up}[tt.status == catalog.Critical]
			expect.That(t, g.status(web1) == want, "service is %s, want %s", g.status(web1), want)
			s := g.lease(web1).Service
			expect.That(t, s.ModifyIndex <= index, "the service was modified at %d by its check", s.ModifyIndex)
		})
	}
}

// Other servers get only the status that follows from a service's checks: its instance gets a newer timestamp when
// that status changes, and at no other time.
func TestCheckThatChangesTheStatusMakesItNewerForOtherServers(t *testing.T) {
	g := withWeb(t, checkOf("web-1", "a", catalog.Passing))
	dirty := g.lease(web1).Instance.LastDirty
	g.pass(1000)
	g.report("a", catalog.Warning, "slow")
	l := g.lease(web1)
	expect.That(t, l.Instance.LastDirty == dirty && l.Described != l.Changed,
		"a change without another status: timestamp %d after %d, described at %d of %d", l.Instance.LastDirty, dirty, l.Described, l.Changed)
	g.report("a", catalog.Critical, "gone")
	l = g.lease(web1)
	expect.That(t, l.Instance.LastDirty > dirty && l.Described == l.Changed && l.ByClient == l.Changed,
		"another status: timestamp %d after %d, described at %d of %d", l.Instance.LastDirty, dirty, l.Described, l.Changed)
}

func TestSetCheckNeedsItsNodeItsTTLAndTheLeadersEpoch(t *testing.T) {
	g := withWeb(t, checkOf("web-1", "a", catalog.Passing))
	g.Establish(Epoch{Term: 2, Index: 7}, "c")
	for _, tt := range []struct {
		name string
		op   SetCheck
		want Outcome
	}{
		{"no check", SetCheck{Check: "x"}, NotFound},
		{"of another node", SetCheck{Node: "n1", Check: "a"}, NotFound},
		{"without a TTL", SetCheck{Check: "a", TTL: true, Status: catalog.Critical}, NoTTL},
		{"by a leader of before", SetCheck{Check: "a", Status: catalog.Critical, Epoch: Epoch{Term: 1, Index: 1}}, Refused},
		{"by the leader", SetCheck{Check: "a", Status: catalog.Critical, Epoch: Epoch{Term: 2, Index: 7}}, Done},
	} {
		res := g.client(tt.op)
		expect.That(t, res.Outcome == tt.want, "%s: %+v, want outcome %d", tt.name, res, tt.want)
		expect.Equal(t, g.check("", "a").Status == catalog.Critical, (tt.want == Done), "%s: critical", tt.name)
	}
}

// An operation that no leader should have proposed must not make a state whose snapshot every node rejects.
func TestCheckWithNegativeTimesHasNone(t *testing.T) {
	g := newRig(t)
	given := withTTL("a", -1)
	given.Service, given.ReapAfter = "web-1", -1
	g.registerInCatalog(service("web", "web-1", given))
	c := g.check("", "a")
	expect.That(t, c.TTL == 0 && c.ReapAfter == 0, "TTL %d and end after %d, want none", c.TTL, c.ReapAfter)
	expect.OK(t, expect.Err(Thaw(g.Freeze())))
}

// withTTL returns a passing check with a TTL.
func withTTL(id string, ttl int64) *catalog.Check {
	c := checkOf("web-1", id, catalog.Passing)
	c.TTL = ttl
	return c
}

// applyEnding performs what is due now, as the leader would, and returns it.
func (g *rig) applyEnding() []Op {
	ops := g.Ending(g.now.Lease)
	for _, op := range ops {
		if res := g.client(op); res.Outcome != Done {
			g.t.Fatalf("%+v: %+v, want it done", op, res)
		}
	}
	return ops
}

func TestCheckTurnsCriticalWhenItsTTLHasPassed(t *testing.T) {
	g := withWeb(t, withTTL("a", 10_000), withTTL("b", 20_000))
	g.Establish(Epoch{Term: 1, Index: 1}, "c")
	g.pass(9000)
	index := g.View().Index()
	g.report("a", catalog.Passing, "fine") // says nothing new, but is still a heartbeat
	if got := g.View().LastHeartbeat(g.check("", "a")); got != g.now.Lease || g.View().Index() != index {
		t.Errorf("heard at %d, index %d; want %d and %d", got, g.View().Index(), g.now.Lease, index)
	}
	g.pass(10_000)
	ops := g.applyEnding()
	expect.That(t, len(ops) == 0, "at the last moment: %+v, want nothing due", ops)
	g.pass(1)
	g.Lost()
	need.Slice(t, g.applyEnding(), []Op{ExpireCheck{Epoch: Epoch{Term: 1, Index: 1}, Check: "a", RenewedAt: 10_000}}, "due")
	if c := g.check("", "a"); c.Status != catalog.Critical || c.Output != "TTL expired" || c.CriticalSince != g.now.Lease || g.status(web1) != Down {
		t.Errorf("check %+v of an instance that is %s, want both to say that the TTL has passed", c, g.status(web1))
	}
	lost := g.Lost()
	expect.That(t, slices.Equal(lost, []catalog.CheckRef{{Node: "", ID: "a"}}), "lost %v, want the check that turned critical", lost)
	g.pass(1000)
	ops = g.applyEnding()
	expect.That(t, len(ops) == 1 && g.check("", "b").Status == catalog.Critical, "due %+v, want the other one, and nothing more of the first", ops)
	g.report("a", catalog.Warning, "slow")
	g.pass(10_001)
	g.applyEnding()
	expect.Equal(t, g.check("", "a").Output, "TTL expired (last output before timeout follows): slow", "output")
}

func TestExpireCheckDoesNothingUnlessTheCheckIsStillSilent(t *testing.T) {
	for _, tt := range []struct {
		name   string
		before func(g *rig)
		op     ExpireCheck
		want   Outcome
	}{
		{"it fits", func(*rig) {}, ExpireCheck{Epoch{Term: 1, Index: 1}, "", "a", 1000}, Done},
		{"a heartbeat came", func(g *rig) { g.pass(1); g.report("a", catalog.Passing, "") }, ExpireCheck{Epoch{Term: 1, Index: 1}, "", "a", 1000}, NotFound},
		{"it is critical already", func(g *rig) { g.client(SetCheck{Check: "a", Status: catalog.Critical}) }, ExpireCheck{Epoch{Term: 1, Index: 1}, "", "a", 1000}, NotFound},
		{"it is gone", func(g *rig) { g.client(Cancel{web1}) }, ExpireCheck{Epoch{Term: 1, Index: 1}, "", "a", 1000}, NotFound},
		{"it expects no heartbeats", func(g *rig) { g.registerInCatalog(service("web", "web-1", checkOf("web-1", "a", catalog.Passing))) }, ExpireCheck{Epoch{Term: 1, Index: 1}, "", "a", 1000}, NotFound},
		{"another leader", func(*rig) {}, ExpireCheck{Epoch{Term: 1, Index: 2}, "", "a", 1000}, Refused},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := withWeb(t, withTTL("a", 10_000))
			g.Establish(Epoch{Term: 1, Index: 1}, "c")
			tt.before(g)
			res := g.client(tt.op)
			expect.That(t, res.Outcome == tt.want, "got %+v, want outcome %d", res, tt.want)
		})
	}
}

func TestCheckGetsAGraceAfterALeadershipBegan(t *testing.T) {
	for _, tt := range []struct{ ttl, want int64 }{{3000, 3000}, {10_000, 7000}, {60_000, 32_000}} {
		g := withWeb(t, withTTL("a", tt.ttl))
		end := g.now.Lease + tt.ttl + tt.want
		for term := range uint64(2) { // the next leader does not give it a second grace
			g.pass(tt.ttl + 1000*int64(term))
			g.Advance(g.now)
			g.Establish(Epoch{Term: 1 + term, Index: 1}, "c")
			ops := g.Ending(end)
			expect.That(t, len(ops) == 0, "TTL %d, term %d: due before its end: %+v", tt.ttl, 1+term, ops)
			expect.That(t, len(g.Ending(end+1)) == 1, "TTL %d, term %d: not due after its end", tt.ttl, 1+term)
		}
	}
}

func TestCheckCriticalForTooLongRemovesItsService(t *testing.T) {
	reaped := func(id string) *catalog.Check {
		c := checkOf("web-1", id, catalog.Passing)
		c.ReapAfter = 60_000
		return c
	}
	g := newRig(t)
	node := reaped("n")
	node.Service = ""
	g.registerInCatalog(service("web", "web-1", reaped("a"), node))
	g.Establish(Epoch{Term: 1, Index: 1}, "c")
	g.report("a", catalog.Critical, "")
	g.report("n", catalog.Critical, "") // no service is reaped for a node's check
	since := g.now.Lease
	g.pass(30_000)
	g.report("a", catalog.Critical, "still") // it stays critical since the first report
	g.pass(30_000)
	ops := g.applyEnding()
	need.That(t, len(ops) == 0, "at the last moment: %+v, want nothing due", ops)
	r, err := Thaw(g.Freeze()) // how long it has been critical is part of the state
	need.OK(t, err)
	g.Registry = r
	g.pass(1)
	late := DeregisterCatalog{Service: "web-1", Check: "a", Epoch: Epoch{Term: 1, Index: 1}, CriticalSince: since}
	if ops := g.Ending(g.now.Lease); len(ops) != 1 || ops[0] != late {
		t.Fatalf("due %+v, want %+v", ops, late)
	}
	g.report("a", catalog.Passing, "")
	res := g.client(late)
	expect.That(t, res.Outcome == NotFound, "it passes again: %+v, want nothing done", res)
	g.report("a", catalog.Critical, "")
	res = g.client(late)
	expect.That(t, res.Outcome == NotFound, "critical since another moment: %+v, want nothing done", res)
	g.pass(60_001)
	stale := g.Ending(g.now.Lease)[0].(DeregisterCatalog)
	stale.Epoch = Epoch{Term: 1, Index: 2}
	res = g.client(stale)
	expect.That(t, res.Outcome == Refused, "by another leader: %+v, want it refused", res)
	g.applyEnding()
	_, ok := g.View().Lease(web1)
	expect.That(t, !ok, "the service is still there")
	rec, _ := g.View().Removal(web1)
	events := rec.History.Events()
	last := events[len(events)-1]
	expect.That(t, rec.Kind == Canceled && last.By.Reason == "its check a was critical for too long",
		"record of kind %d, by %+v; want it canceled, with the reason", rec.Kind, last.By)
}

func TestLostHasEachCheckThatTurnsCriticalOrIsRemoved(t *testing.T) {
	a := []catalog.CheckRef{{Node: "", ID: "a"}}
	for _, tt := range []struct {
		name string
		op   Op
		want []catalog.CheckRef
	}{
		{"critical", SetCheck{Check: "a", Status: catalog.Critical}, a},
		{"warning", SetCheck{Check: "a", Status: catalog.Warning}, nil},
		{"registered as critical", service("web", "web-1", checkOf("web-1", "a", catalog.Critical)), a},
		{"registered as it is", service("web", "web-1", checkOf("web-1", "a", catalog.Passing)), nil},
		{"a new one that is critical", service("web", "web-1", checkOf("web-1", "b", catalog.Critical)), nil},
		{"its instance canceled", Cancel{web1}, a},
		{"its instance replaced by one with a lease", Register{instance(web1, Up, math.MaxInt64)}, a},
		{"its instance replaced by another server's", Replica{Instance: instance(web1, Up, math.MaxInt64), Life: 1}, a},
		{"its instance removed elsewhere", Remove{Key: web1, Kind: Canceled, Life: 9}, a},
		{"its instance in quarantine", Quarantine{Key: web1, For: 1000}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := withWeb(t, checkOf("web-1", "a", catalog.Passing))
			g.Lost()
			g.client(tt.op)
			expect.Slice(t, g.Lost(), tt.want, "lost")
			status, known := g.CheckState("", "a")
			expect.That(t, known != (tt.want != nil && status != catalog.Critical), "check is known: %t, with status %d", known, status)
		})
	}
}
