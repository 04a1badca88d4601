package registry

import (
	"fmt"
	"math"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

var fromDC2 = Origin{Kind: RemoteDC, DC: "dc2"}

// replicaAt returns a replica of orders-1 as another server sends it right now.
func replicaAt(status Status, dirty int64, change ...func(*Replica)) Replica {
	op := Replica{Instance: instance(orders1, status, dirty), Life: 1}
	for _, c := range change {
		c(&op)
	}
	return op
}

func overriddenTo(s Status, edit uint32) func(*Replica) {
	return func(op *Replica) {
		op.Overridden, op.Edit = s, edit
		op.OverrideBy = Act{Author: "ann", Reason: "maintenance"}
	}
}

func hiddenFor(ms int64, edit uint32) func(*Replica) {
	return func(op *Replica) {
		op.QuarantineFor, op.QuarantineBy, op.Edit = ms, Act{Author: "bob", Reason: "broken"}, edit
	}
}

func hostOf(name string) func(*Replica) {
	return func(op *Replica) {
		i := *op.Instance
		i.HostName = name
		op.Instance = &i
	}
}

func lifeOf(n uint32) func(*Replica) { return func(op *Replica) { op.Life = n } }
func ageOf(ms int64) func(*Replica)  { return func(op *Replica) { op.Age = ms } }
func ownedBy(dc string) func(*Replica) {
	return func(op *Replica) { op.Owner = dc }
}

// The stored copy is life 1 at 100, overridden to OUT_OF_SERVICE as edit 1; its client said UP.
func TestReplicaIsMergedByHalves(t *testing.T) {
	type want struct {
		outcome    Outcome
		changed    bool
		host       string
		status     Status
		overridden Status
		reported   Status
		edit       uint32
		action     Action
	}
	kept := want{Done, false, "host-orders-1", OutOfService, OutOfService, Up, 1, ActionModified}
	older := kept
	older.outcome = Older
	tests := []struct {
		name string
		op   Replica
		want want
	}{
		{"equal", replicaAt(Up, 100, overriddenTo(OutOfService, 1)), kept},
		{"older in both halves", replicaAt(Up, 99), older},
		{"newer client, older operators", replicaAt(Starting, 101, hostOf("new")),
			want{Older, true, "new", Starting, OutOfService, Starting, 1, ActionAdded}},
		{"newer client, equal operators", replicaAt(Up, 101, hostOf("new"), overriddenTo(OutOfService, 1)),
			want{Done, true, "new", OutOfService, OutOfService, Up, 1, ActionAdded}},
		{"older client, newer operators", replicaAt(Up, 99, hostOf("old"), overriddenTo(Down, 2)),
			want{Older, true, "host-orders-1", Down, Down, Up, 2, ActionModified}},
		{"equal client, override ended", replicaAt(Up, 100, overriddenTo(Unknown, 2)),
			want{Done, true, "host-orders-1", Up, Unknown, Up, 2, ActionModified}},
		{"override deleted with a fallback", replicaAt(Down, 100, overriddenTo(Unknown, 2)),
			want{Done, true, "host-orders-1", Down, Unknown, Down, 2, ActionModified}},
		{"override deleted without one", replicaAt(Unknown, 100, overriddenTo(Unknown, 2)),
			want{Done, true, "host-orders-1", Unknown, Unknown, Unknown, 2, ActionModified}},
		{"both newer", replicaAt(Down, 101, hostOf("new"), overriddenTo(Unknown, 2)),
			want{Done, true, "new", Down, Unknown, Down, 2, ActionAdded}},
		{"newer life takes all", replicaAt(Up, 50, hostOf("new"), lifeOf(2)),
			want{Done, true, "new", Up, Unknown, Up, 0, ActionAdded}},
		{"tie of operators, greater override", replicaAt(Up, 100, overriddenTo(OutOfService, 1), hiddenFor(5000, 1)),
			want{Done, true, "host-orders-1", OutOfService, OutOfService, Up, 1, ActionModified}},
		{"tie of operators, smaller override", replicaAt(Up, 100, overriddenTo(Down, 1)), older},
		{"tie of what was reported, greater", replicaAt(Down, 100, overriddenTo(OutOfService, 1)),
			want{Done, true, "host-orders-1", Down, OutOfService, Down, 1, ActionModified}},
		{"tie of what was reported, smaller", replicaAt(Unknown, 100, overriddenTo(OutOfService, 1)), older},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			first := g.register(instance(orders1, Up, 100))
			g.client(SetOverride{Key: orders1, Status: OutOfService, By: Act{Author: "ann", Reason: "maintenance"}})
			before := g.View().Index()
			res := g.apply(fromNode, tt.op)
			l, _ := g.View().Find(orders1)
			i := l.Instance
			got := want{res.Outcome, res.Index > before, i.HostName, i.Status, i.Overridden, l.reported(), l.Edit, l.Action}
			expect.That(t, got == tt.want && res.Handle == first.Handle, "got %+v, want %+v", got, tt.want)
			told := g.View().ReplicaOf(l, g.now.Lease)
			expect.That(t, told.Instance.Status == tt.want.reported && told.Overridden == tt.want.overridden, "told on as %+v of %+v", told, told.Instance)
			expect.OK(t, check(g.Registry))
		})
	}
}

// The versions are equal; the incoming copy's host makes its fingerprint the greater or the smaller one.
func TestReplicaOfEqualVersionIsDecidedByTheOwnersDatacenter(t *testing.T) {
	var greater, smaller string
	for i := 0; greater == "" || smaller == ""; i++ {
		host := fmt.Sprint("other-", i)
		if replicaAt(Up, 100, hostOf(host)).Instance.Fingerprint() > instance(orders1, Up, 100).Fingerprint() {
			greater = host
		} else {
			smaller = host
		}
	}
	tests := []struct {
		name   string
		stored Origin // of the stored registration
		origin Origin
		owner  string // as sent
		host   string
		taken  bool
	}{
		{"nodes, greater", FromClient, fromNode, "", greater, true},
		{"nodes, smaller", FromClient, fromNode, "", smaller, false},
		{"from its owner, greater", fromDC2, fromDC2, "", greater, false},
		{"from its owner, smaller", fromDC2, fromDC2, "", smaller, false},
		{"at its owner, greater", FromClient, fromDC2, "dc1", greater, false},
		{"at its owner, smaller", FromClient, fromDC2, "dc1", smaller, false},
		{"both say that they own it, greater", FromClient, fromDC2, "", greater, true},
		{"both say that they own it, smaller", FromClient, fromDC2, "", smaller, false},
		{"neither owns it, greater", FromEureka, fromDC2, "dc3", greater, true},
		{"neither owns it, smaller", FromEureka, fromDC2, "dc3", smaller, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			g.apply(tt.stored, Register{instance(orders1, Up, 100)})
			res := g.apply(tt.origin, replicaAt(Up, 100, hostOf(tt.host), ownedBy(tt.owner)))
			got := g.lease(orders1).Instance.HostName == tt.host
			expect.That(t, got == tt.taken && (res.Outcome == Older) != tt.taken, "taken %t, result %+v, want taken %t", got, res, tt.taken)
		})
	}
}

// A client may name the last possible timestamp. Any change after it is still newer on every server.
func TestChangeAfterTheLastTimestampBeginsANewLife(t *testing.T) {
	web2 := Key{App: "WEB", ID: "web-2"}
	for _, tt := range []struct {
		name   string
		key    Key
		origin Origin
		change Op
		level1 int64 // timestamp that 0.1.0 gives
	}{
		{"another datacenter contests it", orders1, fromDC2, replicaAt(Up, math.MaxInt64, hostOf("other"), ownedBy("dc1")), math.MinInt64},
		{"metadata", orders1, FromClient, UpdateMetadata{Key: orders1, Pairs: []Pair{{Key: "k", Value: "v"}}}, math.MaxInt64},
		{"a check", web1, FromClient, SetCheck{Check: "a", Status: catalog.Critical}, math.MaxInt64},
		{"a registration through Consul's API", web2, FromClient, service("web", "web-2"), math.MaxInt64},
	} {
		for level, want := range map[byte]Version{1: {1, tt.level1, 1}, 2: {2, math.MaxInt64, 1}} {
			t.Run(fmt.Sprint(tt.name, ", level ", level), func(t *testing.T) {
				g := newRig(t)
				g.SetLevel(level)
				g.registerInCatalog(service("web", "web-1", checkOf("web-1", "a", catalog.Passing)))
				g.register(instance(orders1, Up, 100))
				g.register(instance(web2, Up, 100))
				g.client(SetOverride{Key: tt.key, Status: OutOfService, LastDirty: math.MaxInt64})
				g.apply(tt.origin, tt.change)
				expect.Equal(t, g.lease(tt.key).Version(), want, "version:")
			})
		}
	}
}

// What a file has but other servers would refuse comes back in the form that they accept.
func TestRestoredInstanceIsAsOtherServersTakeIt(t *testing.T) {
	g := newRig(t)
	g.SetLevel(2)
	i := instance(orders1, Up, -1)
	i.DataCenter.Name = Amazon
	g.Readmit(Image{Instances: []Saved{{Replica: Replica{Instance: i}}}}, Act{})
	got := g.lease(orders1).Instance
	expect.That(t, got.DataCenter.Value("instance-id") == orders1.ID && got.LastDirty == 0, "got %+v, want the instance-id and timestamp 0", got)
}

// The file says what a service reported when it was saved; its checks say what it reports now.
func TestRestoredServiceReportsUnderItsOverrideWhatItsChecksSay(t *testing.T) {
	g := newRig(t)
	g.SetLevel(2)
	op := service("web", "web-1", checkOf("web-1", "a", catalog.Critical))
	op.Service.Checks, op.Instance.Status = op.Checks, Up
	g.Readmit(Image{Instances: []Saved{{Replica{Instance: op.Instance, Overridden: OutOfService, OverrideBy: Act{Author: "ann"}}, op.Service}}}, Act{})
	expect.Equal(t, g.lease(web1).reported(), Down, "reported:")
	g.client(DeleteOverride{Key: web1})
	expect.Equal(t, g.status(web1), Down, "after the override:")
}

func TestReplicaOfAnInstanceThatIsNotStored(t *testing.T) {
	cancelAt := func(life uint32, dirty int64) func(*rig) {
		return func(g *rig) { g.apply(fromNode, Remove{Key: orders1, Kind: Canceled, Life: life, LastDirty: dirty}) }
	}
	evictAt := func(life uint32, dirty int64) func(*rig) {
		return func(g *rig) { g.apply(fromNode, Remove{Key: orders1, Kind: Evicted, Life: life, LastDirty: dirty}) }
	}
	tests := []struct {
		name   string
		before func(*rig)
		op     Replica
		taken  bool
	}{
		{"never here", func(*rig) {}, replicaAt(Up, 100, lifeOf(3)), true},
		{"canceled at the same version", cancelAt(3, 100), replicaAt(Up, 100, lifeOf(3)), false},
		{"canceled before", cancelAt(3, 99), replicaAt(Up, 100, lifeOf(3)), true},
		{"canceled an earlier life", cancelAt(2, 500), replicaAt(Up, 100, lifeOf(3)), true},
		{"canceled a later life", cancelAt(4, 1), replicaAt(Up, 100, lifeOf(3)), false},
		{"evicted", evictAt(3, 100), replicaAt(Up, 100, lifeOf(3)), true},
		{"evicted in a later life", evictAt(4, 100), replicaAt(Up, 100, lifeOf(3)), true},
		{"within its lease and the way", func(*rig) {}, replicaAt(Up, 100, lifeOf(3), ageOf(120_000)), true},
		{"its lease has ended", func(*rig) {}, replicaAt(Up, 100, lifeOf(3), ageOf(120_001)), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			tt.before(g)
			g.pass(200_000)
			res := g.apply(fromDC2, tt.op)
			l, live := g.View().Lease(orders1)
			need.That(t, live == tt.taken && (res.Outcome == Refused) != tt.taken && (res.Index > 0) == tt.taken,
				"live %t, %+v, want taken %t", live, res, tt.taken)
			if !live {
				return
			}
			at := Stamp{g.now.Lease - tt.op.Age, g.now.Wall - tt.op.Age}
			expect.That(t, l.Life == 3 && l.Owner == "dc2" && l.Handle == res.Handle && l.ByRemote == res.Index && l.ByClient == 0,
				"got %+v, want life 3 of dc2, changed by a remote datacenter at %d", l, res.Index)
			got := g.View().LastRenewal(l)
			expect.That(t, got == at && l.StartedLease == at.Lease, "renewed at %v, started at %d, want %v", got, l.StartedLease, at)
			expect.OK(t, check(g.Registry))
		})
	}
}

func TestReplicaBringsWhatOperatorsDecided(t *testing.T) {
	g := newRig(t)
	op := replicaAt(Up, 100, overriddenTo(Down, 7), hiddenFor(60_000, 7))
	op.OverrideFor = 30_000
	g.apply(fromDC2, op)
	l, _ := g.View().Find(orders1)
	expect.Deep(t, l.Override, (&Override{By: op.OverrideBy, At: g.now, Until: g.now.Lease + 30_000, Reported: Up, Set: 1}), "override")
	expect.Deep(t, l.Quarantine, (&Quarantined{By: op.QuarantineBy, At: g.now, Until: g.now.Lease + 60_000, Set: 1}), "quarantine")
	expect.That(t, l.Edit == 7 && l.Instance.Status == Down, "got %+v of %+v, want edit 7 and DOWN", l, l.Instance)
	var kinds []EventKind
	for _, e := range g.View().History(orders1) {
		kinds = append(kinds, e.Kind)
	}
	expect.Deep(t, kinds, []EventKind{EventRegistered, EventOverridden, EventQuarantined}, "events")
	g.pass(10_000)
	op.Age, op.OverrideFor, op.QuarantineFor = 10_000, 20_000, 50_000
	expect.Deep(t, g.View().ReplicaOf(l, g.now.Lease), withOwner(op, "dc2"), "told on as")
	g.pass(90_000)
	got := g.View().ReplicaOf(l, g.now.Lease)
	expect.That(t, got.OverrideFor == 1 && got.QuarantineFor == 1, "due and not ended: told as %+v, want the shortest rest", got)
	if got := g.Ending(g.now.Lease); len(got) != 2 {
		t.Errorf("ending %v, want the override and the quarantine", got)
	}
}

func withOwner(op Replica, dc string) Replica {
	op.Owner = dc
	return op
}

// An instance that brought its override has a status that its client did not report.
func TestReplicaHasAnOverrideThatTheInstanceBrought(t *testing.T) {
	a, b := newRig(t), newRig(t)
	in := instance(orders1, Up, 100)
	in.Overridden = OutOfService
	a.register(in)
	b.apply(fromNode, a.View().ReplicaOf(a.lease(orders1), a.now.Lease))
	l := b.lease(orders1)
	expect.That(t, l.Instance.Status == OutOfService && l.Instance.Overridden == OutOfService && l.Override == nil,
		"got %+v of %+v, want it OUT_OF_SERVICE without details", l, l.Instance)
	expect.That(t, l.Sum() == a.lease(orders1).Sum(), "the copies differ")
}

func TestEqualReplicaIsARenewalSomeTimeAgo(t *testing.T) {
	g := withOrders(t)
	before := g.lease(orders1)
	g.pass(60_000)
	renewed := func(age, want int64) {
		t.Helper()
		res := g.apply(fromNode, replicaAt(Up, 100, ageOf(age)))
		expect.That(t, res.Outcome == Done && res.Index == 0, "%d ms ago: %+v, want no change", age, res)
		got := g.View().LastRenewal(before).Lease
		expect.That(t, got == want && g.lease(orders1) == before, "%d ms ago: renewed at %d, want %d", age, got, want)
	}
	renewed(20_000, 41_000)
	renewed(50_000, 41_000) // an older one moves nothing
	renewed(0, 61_000)
	g.pass(10_000)
	g.apply(fromNode, replicaAt(Up, 99))
	expect.Equal(t, g.View().LastRenewal(before), g.now, "an older copy of the same life: renewed at")
	g.client(Cancel{orders1})
	g.register(instance(orders1, Up, 100))
	g.pass(10_000)
	res := g.apply(fromNode, replicaAt(Up, 999))
	expect.That(t, res.Outcome == Older && g.View().LastRenewal(g.lease(orders1)) != g.now, "a life that is over: %+v, renewed at %v", res, g.now)
}

// Two servers that registered the same life, one knowing about the quarantine and one not, agree that it holds.
func TestQuarantineSurvivesACancelAndARegistrationElsewhere(t *testing.T) {
	g := withOrders(t)
	g.client(Quarantine{Key: orders1, For: 60_000})
	g.client(Cancel{orders1})
	res := g.apply(fromNode, replicaAt(Up, 100, lifeOf(2)))
	l, _ := g.View().Find(orders1)
	expect.That(t, l.Quarantine != nil && l.Quarantine.Set == res.Index && res.Outcome == Older,
		"got %+v, result %+v, want it hidden, and the sender told", l, res)
	expect.OK(t, check(g.Registry))
	g.client(Cancel{orders1})
	g.apply(fromNode, replicaAt(Up, 100, lifeOf(3), hiddenFor(0, 2)))
	if l := g.lease(orders1); l.Edit != 2 {
		t.Errorf("ended by an operator elsewhere: got %+v, want it listed", l)
	}
}

// The sender, which did not know about the quarantine, has to adopt it from here: the newer edit is here.
func TestReplicaGetsTheQuarantineOfARemovalRecordAsANewerEdit(t *testing.T) {
	for _, c := range []struct {
		name    string
		evicted bool
		told    Replica
		want    uint32
	}{
		{"canceled", false, replicaAt(Up, 101), 2},
		{"canceled, and as many edits elsewhere", false, replicaAt(Up, 101, overriddenTo(Down, 1)), 2},
		{"canceled, and a later life", false, replicaAt(Up, 100, lifeOf(2)), 1},
		{"evicted", true, replicaAt(Up, 101), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := withOrders(t)
			g.client(Quarantine{Key: orders1, For: 600_000})
			if g.pass(90_001); c.evicted {
				g.client(Evict{Items: g.Expired(g.now.Lease, 1)})
			} else {
				g.client(Cancel{orders1})
			}
			res := g.apply(fromDC2, c.told)
			l, ok := g.View().Find(orders1)
			need.That(t, ok, "it has not come back: %+v", res)
			expect.That(t, l.Quarantine != nil && l.Edit == c.want && res.Outcome == Older,
				"got %+v, result %+v, want it hidden as edit %d, and the sender told", l, res, c.want)
		})
	}
}

// A later life begins when another server tells about it.
func TestReplicaOfALaterLifeBeginsWhenItWasLastRenewed(t *testing.T) {
	g := withOrders(t)
	g.pass(50_000)
	g.apply(fromDC2, replicaAt(Up, 100, lifeOf(2), ageOf(4000)))
	want := g.now.Lease - 4000
	l := g.lease(orders1)
	expect.That(t, l.BeganLease == want && l.StartedLease == want && g.Freeze().Leases[0].Remote == want,
		"got %+v, want it begun and renewed by dc2 at %d", l, want)
	g.apply(fromNode, Replica{Instance: instance(orders2, Up, 100)})
	l = g.lease(orders2)
	expect.That(t, l.Life == 1, "told without a life: got %+v, want life 1", l)
}

// A client whose clock went back, or that changes without a new timestamp, is still newer than its copies: it begins
// a new life, if copies exist.
func TestRegistrationNotNewerBeginsANewLifeWhereOthersHaveCopies(t *testing.T) {
	renamed := replicaAt(Up, 100, hostOf("new")).Instance
	tests := []struct {
		name   string
		known  bool
		before func(*rig)
		origin Origin
		in     *Instance
		life   uint32
	}{
		{"newer", true, func(*rig) {}, FromClient, instance(orders1, Down, 101), 1},
		{"the same", true, func(*rig) {}, FromClient, instance(orders1, Up, 100), 1},
		{"another status", true, func(*rig) {}, FromClient, instance(orders1, Down, 100), 2},
		{"another host", true, func(*rig) {}, FromClient, renamed, 2},
		{"another host, no server has copies", false, func(*rig) {}, FromClient, renamed, 1},
		{"another host, of a Eureka server", true, func(*rig) {}, FromEureka, renamed, 1},
		{"older than one without a status", true, func(g *rig) {
			g.client(SetOverride{Key: orders1, Status: Down})
			g.client(DeleteOverride{Key: orders1, LastDirty: 500})
		}, FromClient, instance(orders1, Up, 100), 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			if tt.known {
				g.apply(fromNode, Contact{Sender: "n2"})
			}
			g.register(instance(orders1, Up, 100))
			tt.before(g)
			g.apply(tt.origin, Register{tt.in})
			l := g.lease(orders1)
			expect.That(t, l.Life == tt.life && l.Instance.LastDirty == tt.in.LastDirty && l.Edit == 0,
				"got %+v, dirty %d, want life %d, dirty %d", l, l.Instance.LastDirty, tt.life, tt.in.LastDirty)
		})
	}
}

// Which peers must be told about the last change: indexes, 0 for never. The registration is 1.
func TestLeaseIndexesSayWhichPeersGetAChange(t *testing.T) {
	type marks struct {
		byClient, byRemote, described, overrode Index
		edit                                    uint32
	}
	tests := []struct {
		name   string
		origin Origin
		op     Op
		want   marks
	}{
		{"client registers again", FromClient, Register{instance(orders1, Up, 101)}, marks{2, 0, 2, 0, 0}},
		{"Eureka server registers", FromEureka, Register{instance(orders1, Up, 101)}, marks{1, 2, 2, 0, 0}},
		{"metadata", FromClient, UpdateMetadata{orders1, []Pair{{Key: "a", Value: "b"}}}, marks{2, 0, 2, 0, 0}},
		{"client brings an override", FromClient, Register{instance(orders1, Up, 101).with(Up, Down, 101)}, marks{2, 0, 2, 2, 1}},
		{"override", FromClient, SetOverride{Key: orders1, Status: Down}, marks{2, 0, 1, 2, 1}},
		{"override by a Eureka server", FromEureka, SetOverride{Key: orders1, Status: Down}, marks{1, 2, 1, 2, 1}},
		{"override in a Eureka server's renewal", FromEureka, Renew{Key: orders1, LastDirty: 101, Overridden: Down}, marks{1, 2, 1, 2, 1}},
		{"quarantine", FromClient, Quarantine{Key: orders1, For: 1000}, marks{2, 0, 1, 0, 1}},
		{"node, newer", fromNode, replicaAt(Up, 101), marks{1, 0, 2, 0, 0}},
		{"node, override", fromNode, replicaAt(Up, 100, overriddenTo(Down, 1)), marks{1, 0, 1, 2, 1}},
		{"node, quarantine", fromNode, replicaAt(Up, 100, hiddenFor(1000, 3)), marks{1, 0, 1, 0, 3}},
		{"datacenter, newer", fromDC2, replicaAt(Up, 101), marks{1, 2, 2, 0, 0}},
		{"datacenter, a later life overridden", fromDC2, replicaAt(Up, 101, lifeOf(2), overriddenTo(Down, 1)), marks{1, 2, 2, 2, 1}},
		{"datacenter, both", fromDC2, replicaAt(Up, 101, overriddenTo(Down, 2)), marks{1, 2, 2, 2, 2}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := withOrders(t)
			g.apply(tt.origin, tt.op)
			l, _ := g.View().Find(orders1)
			expect.Equal(t, (marks{l.ByClient, l.ByRemote, l.Described, l.Overrode, l.Edit}), tt.want, "got")
		})
	}
}

func TestRegistrationWithAnOverrideIsAChangeOfTheOverride(t *testing.T) {
	for _, op := range []Op{Register{instance(orders1, Up, 100).with(Up, Down, 100)}, replicaAt(Up, 100, overriddenTo(Down, 1))} {
		g := newRig(t)
		g.client(op)
		l := g.lease(orders1)
		expect.That(t, l.Overrode == 1 && l.Described == 1, "%+v: got %+v, want both changed at 1", op, l)
	}
}

func TestReplicaEditCountsEndsOfOverridesAndQuarantines(t *testing.T) {
	g := withOrders(t)
	g.client(SetOverride{Key: orders1, Status: Down, For: 1000})
	g.client(Quarantine{Key: orders1, For: 1000})
	g.pass(1000)
	g.endings()
	l := g.lease(orders1)
	expect.That(t, l.Edit == 4 && l.Overrode == 4 && l.ByClient == 5, "got %+v, want edit 4, overrode 4, told at 5", l)
	g.client(SetOverride{Key: orders1, Status: Down})
	g.client(DeleteOverride{Key: orders1, Fallback: Up})
	g.client(DeleteOverride{Key: orders1, Fallback: Up})
	g.client(Quarantine{Key: orders1, For: 1000})
	g.client(Quarantine{Key: orders1})
	l = g.lease(orders1)
	expect.That(t, l.Edit == 8, "got %+v, want edit 8", l)
	g.client(Cancel{orders1})
	g.register(instance(orders1, Up, 100))
	l = g.lease(orders1)
	expect.That(t, l.Edit == 0 && l.Life == 2, "in its next life: got %+v, want edit 0", l)
}

// The checks of a service decide on its status, so it cannot adopt the other side's; if that side would not adopt this
// one's either, the service gets a newer version.
func TestServiceInsistsOnTheStatusThatItsChecksGive(t *testing.T) {
	for _, tt := range []struct {
		name         string
		here, there  Status
		dirty        int64
		owner        string // of the copy that arrives
		level        byte
		wantsAnother bool
	}{
		{"both own it, the other status is greater", Up, OutOfService, 7, "", Level3, true},
		{"both own it, the other status is smaller and yields", Down, Up, 7, "", Level3, false},
		{"ceded, the other status is greater", Up, Starting, 7, Here, Level3, true},
		{"ceded, the other status is smaller", Down, Up, 7, Here, Level3, true},
		{"equal statuses", Up, Up, 7, "", Level3, false},
		{"the other version is newer", Up, OutOfService, 8, "", Level3, false},
		{"the other version is older", Up, OutOfService, 6, Here, Level3, false},
		{"below level 3", Up, OutOfService, 7, "", Level3 - 1, false},
	} {
		stored := &Lease{Instance: instance(orders1, tt.here, 7), Life: 1, Service: &catalog.Service{}}
		op := replicaAt(tt.there, tt.dirty)
		op.Owner = tt.owner
		said, decided := newEncounter(fromDC2, stored, op).contested(tt.level)
		expect.That(t, said == tt.wantsAnother && !decided, "%s: insists on what was said %v, on what was decided %v", tt.name, said, decided)
	}
}
