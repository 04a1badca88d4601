package registry

import (
	"math"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestRegisterMakesALease(t *testing.T) {
	g := newRig(t)
	in := instance(orders1, Up, 100)
	res := g.register(in)
	want := &Lease{
		Instance: in, Handle: Handle{Slot: 0, Gen: 1}, Interval: 30, Duration: 90,
		RegisteredAt: startOfWall, ServiceUpAt: startOfWall, UpdatedAt: startOfWall, RenewedAt: g.now,
		Action: ActionAdded, Life: 1, Registered: 1, Changed: 1, ChangedLease: 1000, Origin: FromClient,
		BeganLease: 1000, StartedLease: 1000, ByClient: 1, Described: 1, Defined: 1,
	}
	got := g.lease(orders1)
	expect.Deep(t, got, want, "got")
	expect.That(t, got.Instance == in, "an instance of which nothing was decided differently was copied")
	expect.That(t, res.Handle == want.Handle && res.Index == 1, "result %+v, want the lease's handle and index 1", res)
}

func TestRegisterClampsAndDefaultsLeaseTimes(t *testing.T) {
	tests := []struct {
		name                       string
		interval, duration         int32
		wantInterval, wantDuration int32
	}{
		{"not given", 0, 0, 30, 90},
		{"negative", -1, -5, 30, 90},
		{"given", 2, 10, 2, 10},
		{"duration only", 0, 10, 30, 10},
		{"too short", 1, 1, 1, 3},
		{"too long", math.MaxInt32, math.MaxInt32, 3600, 86400},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			in := instance(orders1, Up, 100)
			in.RenewalInterval, in.Duration = tt.interval, tt.duration
			g.register(in)
			l := g.lease(orders1)
			expect.That(t, l.Interval == tt.wantInterval && l.Duration == tt.wantDuration,
				"got %d/%d s, want %d/%d", l.Interval, l.Duration, tt.wantInterval, tt.wantDuration)
		})
	}
}

// The conflict rule by lastDirtyTimestamp, and what a new lease starts with.
func TestRegisterAgain(t *testing.T) {
	tests := []struct {
		name      string
		level     byte
		dirty     int64 // the stored one is 100
		outcome   Outcome
		wantHost  string
		wantDirty int64
		defined   Index
		outdated  int64
	}{
		{"newer is taken", Level3, 101, Done, "new", 101, 2, 100},
		{"equal is taken", Level3, 100, Done, "new", 100, 2, 0},
		{"older is taken", Level3, 99, Done, "new", 99, 2, 100},
		{"newer is taken, before", Level3 - 1, 101, Done, "new", 101, 2, 0},
		{"older keeps the existing, before", Level3 - 1, 99, KeptExisting, "old", 100, 1, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			g.SetLevel(tt.level)
			in := instance(orders1, Up, 100)
			in.HostName = "old"
			first := g.register(in)
			g.pass(5000)
			in = instance(orders1, Up, tt.dirty)
			in.HostName = "new"
			res := g.client(Register{in})
			expect.That(t, res.Outcome == tt.outcome && res.Index == 2 && res.Handle == first.Handle,
				"got %+v, want outcome %d, index 2, handle %v", res, tt.outcome, first.Handle)
			l := g.lease(orders1)
			expect.That(t, l.Instance.HostName == tt.wantHost && l.Instance.LastDirty == tt.wantDirty,
				"got host %q dirty %d, want %q %d", l.Instance.HostName, l.Instance.LastDirty, tt.wantHost, tt.wantDirty)
			want := Lease{
				Instance: l.Instance, Handle: first.Handle, Interval: 30, Duration: 90,
				RegisteredAt: g.now.Wall, ServiceUpAt: startOfWall, UpdatedAt: g.now.Wall, RenewedAt: g.now,
				Action: ActionAdded, Life: 1, Registered: 2, Changed: 2, ChangedLease: g.now.Lease,
				BeganLease: 1000, StartedLease: g.now.Lease, ByClient: 2, Described: 2, Defined: tt.defined, Outdated: tt.outdated,
			}
			expect.Equal(t, *l, want, "got")
			expect.Equal(t, g.View().LastRenewal(l), g.now, "last renewal")
		})
	}
}

// Netflix/eureka issue 802: UP reached this server first, then a peer's copy of the earlier STARTING. The late copy
// must neither win nor lend its status to the newer timestamp.
func TestRegisterByAPeerOfAnOlderInstanceChangesNothingIssue802(t *testing.T) {
	g := newRig(t)
	g.register(instance(orders1, Up, 1464710678627))
	g.pass(500)
	res := g.peer(Register{instance(orders1, Starting, 1464710678020)})
	expect.That(t, res.Outcome == KeptExisting && res.Index == 2, "got %+v, want KeptExisting in a new lease at 2", res)
	l := g.lease(orders1)
	expect.That(t, l.Instance.Status == Up && l.Instance.LastDirty == 1464710678627 && l.Origin == FromClient,
		"got %s at %d from %v, want the client's UP", l.Instance.Status, l.Instance.LastDirty, l.Origin)
	res = g.client(Renew{Key: orders1, LastDirty: 1464710678627})
	expect.That(t, res.Outcome == Done, "heartbeat after it: %+v, want Done", res)
}

func TestRegisterSetsAMissingDirtyTimestamp(t *testing.T) {
	tests := []struct {
		name   string
		before func(g *rig)
		want   int64
	}{
		{"the time of receipt", func(*rig) {}, startOfWall},
		{"after an older one", func(g *rig) { g.register(instance(orders1, Up, 50)) }, startOfWall},
		{"after a newer one", func(g *rig) { g.register(instance(orders1, Up, startOfWall+9)) }, startOfWall + 10},
		{"after a newer record of removal", func(g *rig) {
			g.register(instance(orders1, Up, startOfWall+9))
			g.client(Cancel{orders1})
		}, startOfWall + 10},
		{"after the last millisecond of all", func(g *rig) { g.register(instance(orders1, Up, math.MaxInt64)) }, math.MaxInt64},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			tt.before(g)
			g.register(instance(orders1, Up, 0))
			expect.Equal(t, g.lease(orders1).Instance.LastDirty, tt.want, "got")
		})
	}
}

func TestRegisterKeepsTheFirstServiceUpTime(t *testing.T) {
	g := newRig(t)
	g.register(instance(orders1, Starting, 100))
	expect.Equal(t, g.lease(orders1).ServiceUpAt, 0, "STARTING: service up at")
	g.pass(1000)
	g.register(instance(orders1, Up, 200))
	first := g.now.Wall
	for dirty, status := range []Status{Down, Up, Starting, Up} {
		g.pass(1000)
		g.register(instance(orders1, status, int64(300+dirty)))
		expect.Equal(t, g.lease(orders1).ServiceUpAt, first, "re-registered %s: service up at", status)
	}
}

func TestReplicatedRegisterThatEqualsTheStoredIsARenewal(t *testing.T) {
	g := newRig(t)
	first := g.register(instance(orders1, Up, 100))
	g.client(SetOverride{Key: orders1, Status: OutOfService})
	before := g.lease(orders1)
	g.pass(7000)
	// The peer says what it was told: UP, without knowing about an override.
	res := g.peer(Register{instance(orders1, Up, 100)})
	expect.That(t, res == (Result{Handle: first.Handle}), "got %+v, want Done without an index", res)
	expect.That(t, g.lease(orders1) == before, "the lease was changed")
	expect.Equal(t, g.View().LastRenewal(before), g.now, "last renewal")
	expect.That(t, g.client(Register{instance(orders1, Up, 100)}).Index != 0, "the same from a client is a new registration, and had no index")
	changed := instance(orders1, Up, 100)
	changed.Metadata = []Pair{{Key: "zone", Value: "a"}}
	res = g.peer(Register{changed})
	expect.That(t, res.Index != 0 && g.lease(orders1).Origin == FromEureka, "a replicated change: %+v, want an index and the peer's origin", res)
}

// A registration that its timestamp makes newer than the removal goes on with the removed life. The number of edits
// goes on too, so that every node knows what became of the override.
func TestRegisterAfterARemoval(t *testing.T) {
	remove := map[ChangeKind]func(g *rig, h Handle){
		Canceled: func(g *rig, _ Handle) { g.client(Cancel{orders1}) },
		Evicted: func(g *rig, h Handle) {
			l := g.lease(orders1)
			g.client(Evict{Epoch: g.Epoch(), Items: []EvictItem{{h, l.Registered, g.now.Lease}}})
		},
	}
	tests := []struct {
		name    string
		removal ChangeKind
		origin  Origin
		dirty   int64 // of the removed instance: 100
		outcome Outcome
		life    uint32
		edit    uint32
	}{
		{"client after cancel, newer: the same life", Canceled, FromClient, 101, Done, 1, 2},
		{"client after cancel, equal", Canceled, FromClient, 100, Done, 2, 0},
		{"client after cancel, older", Canceled, FromClient, 99, Done, 2, 0},
		{"client after eviction, newer: the same life", Evicted, FromClient, 101, Done, 1, 1},
		{"client after eviction, its timestamp by the server", Evicted, FromClient, 0, Done, 1, 1},
		{"client after eviction, equal", Evicted, FromClient, 100, Done, 2, 0},
		{"client after eviction, older", Evicted, FromClient, 99, Done, 2, 0},
		{"replica after cancel, newer: the same life", Canceled, FromEureka, 101, Done, 1, 2},
		{"replica after cancel, equal", Canceled, FromEureka, 100, Refused, 0, 0},
		{"replica after cancel, older", Canceled, FromEureka, 99, Refused, 0, 0},
		{"replica after eviction, newer: the same life", Evicted, FromEureka, 101, Done, 1, 1},
		{"replica after eviction, equal: the same life", Evicted, FromEureka, 100, Done, 1, 0},
		{"replica after eviction, older: the same life", Evicted, FromEureka, 99, Done, 1, 0},
		{"node of this datacenter after cancel", Canceled, Origin{Kind: LocalPeer}, 100, Refused, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			first := g.register(instance(orders1, Up, 100))
			g.client(SetOverride{Key: orders1, Status: Down})
			remove[tt.removal](g, first.Handle)
			g.pass(1000)
			res := g.apply(tt.origin, Register{instance(orders1, Up, tt.dirty)})
			need.Equal(t, res.Outcome, tt.outcome, "got outcome")
			l, live := g.View().Lease(orders1)
			if tt.outcome == Refused {
				expect.That(t, !live && res.Index == 0 && g.inDelta()[orders1] == ActionDeleted,
					"refused, but live %t, result %+v, delta %v", live, res, g.inDelta())
				return
			}
			expect.That(t, l.Life == tt.life && l.Handle != first.Handle && l.Action == ActionAdded && l.ServiceUpAt == g.now.Wall,
				"got %+v, want life %d, a new handle, ADDED, service up now", l, tt.life)
			expect.That(t, l.Edit == tt.edit && l.Instance.Overridden == Unknown, "got %+v, want edit %d and no override", l, tt.edit)
			expect.That(t, len(g.Freeze().Removals) == 0, "the record of the removal is still there")
		})
	}
}

func TestRegisterWritesAnAmazonInstancesIDIntoItsDataCenter(t *testing.T) {
	g := newRig(t)
	in := instance(orders1, Up, 100)
	in.DataCenter = DataCenter{Name: Amazon, Metadata: []Pair{{Key: "ami-id", Value: "ami-7"}, {Key: "instance-id", Value: ""}}}
	g.register(in)
	got := g.lease(orders1).Instance.DataCenter.Metadata
	want := []Pair{{Key: "ami-id", Value: "ami-7"}, {Key: "instance-id", Value: "orders-1"}}
	expect.Deep(t, got, want, "got")
	expect.That(t, in.DataCenter.Value("instance-id") == "", "the instance that was given was written")
	in = instance(orders2, Up, 100)
	in.InstanceID, in.DataCenter = "", DataCenter{Name: Amazon, Metadata: []Pair{{Key: "instance-id", Value: "i-42"}}}
	g.register(in)
	expect.That(t, g.lease(Key{App: "ORDERS", ID: "i-42"}).Instance == in, "an instance with an Amazon id was copied")
}

func TestRegisterBringsAnOverride(t *testing.T) {
	g := newRig(t)
	in := instance(orders1, Up, 100)
	in.Overridden = OutOfService
	g.register(in)
	i := g.lease(orders1).Instance
	expect.That(t, i.Status == OutOfService && i.Overridden == OutOfService, "got %s, override %s, want OUT_OF_SERVICE twice", i.Status, i.Overridden)
	g.register(instance(orders2, Up, 100))
	in = instance(orders2, Up, 200)
	in.Overridden = OutOfService
	g.register(in)
	if i := g.lease(orders2).Instance; i.Status != OutOfService || i.Overridden != OutOfService {
		t.Errorf("when it registers again: got %s, override %s, want OUT_OF_SERVICE twice", i.Status, i.Overridden)
	}
	in = instance(orders1, Up, 200)
	in.Overridden = Down
	g.register(in)
	i = g.lease(orders1).Instance
	expect.That(t, i.Status == OutOfService && i.Overridden == OutOfService,
		"a second one: got %s, override %s; the stored one holds", i.Status, i.Overridden)
}

func TestOverrideBelongsToOneApplicationAndEndsWithTheLease(t *testing.T) {
	for name, remove := range map[string]func(g *rig){
		"cancel": func(g *rig) { g.client(Cancel{orders1}) },
		"eviction": func(g *rig) {
			l := g.lease(orders1)
			g.client(Evict{Items: []EvictItem{{l.Handle, l.Registered, g.View().LastRenewal(l).Lease}}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			twin := Key{App: "BILLING", ID: orders1.ID}
			g.register(instance(orders1, Up, 100))
			g.register(instance(twin, Up, 100))
			g.client(SetOverride{Key: orders1, Status: OutOfService})
			g.register(instance(twin, Up, 200))
			expect.Equal(t, g.status(twin), Up, "the same id of another application:")
			remove(g)
			g.register(instance(orders1, Up, 200))
			i := g.lease(orders1).Instance
			expect.That(t, i.Status == Up && i.Overridden == Unknown, "after the removal: %s, override %s, want UP without", i.Status, i.Overridden)
		})
	}
}

func TestHandleSlotIsKeptOverReregistrationAndReusedAfterRemoval(t *testing.T) {
	g := newRig(t)
	first := g.register(instance(orders1, Up, 100)).Handle
	second := g.register(instance(orders2, Up, 100)).Handle
	expect.Equal(t, g.register(instance(orders1, Up, 200)).Handle, first, "re-registration: handle")
	g.client(Cancel{orders1})
	g.client(Cancel{orders2})
	expect.Deep(t, g.Freeze().Free, []uint32{second.Slot, first.Slot}, "free slots")
	expect.Equal(t, g.register(instance(billing1, Up, 100)).Handle, (Handle{second.Slot, 3}), "next handle")
}

// Every row of the outcome table of the status rules; "any" stands for each value.
func TestStatusRuleChain(t *testing.T) {
	const replicated = true
	all := Statuses()
	tests := []struct {
		name       string
		reported   Status
		overrides  []Status
		existing   []Status
		replicated bool
		want       Status
	}{
		{"first UP", Up, []Status{Unknown}, []Status{Unknown}, false, Up},
		{"UP does not leave OUT_OF_SERVICE", Up, []Status{Unknown}, []Status{OutOfService}, false, OutOfService},
		{"replicated UP leaves OUT_OF_SERVICE", Up, []Status{Unknown}, []Status{OutOfService}, replicated, Up},
		{"UP after DOWN, STARTING, UNKNOWN", Up, []Status{Unknown}, []Status{Down, Starting, Unknown}, false, Up},
		{"UP under an override", Up, []Status{OutOfService}, all, false, OutOfService},
		{"UP under an override, replicated", Up, []Status{OutOfService}, all, replicated, OutOfService},
		{"UP under an override DOWN", Up, []Status{Down}, all, false, Down},
		{"first OUT_OF_SERVICE", OutOfService, []Status{Unknown}, []Status{Unknown}, false, OutOfService},
		{"OUT_OF_SERVICE does not leave UP", OutOfService, []Status{Unknown}, []Status{Up}, false, Up},
		{"replicated OUT_OF_SERVICE leaves UP", OutOfService, []Status{Unknown}, []Status{Up}, replicated, OutOfService},
		{"OUT_OF_SERVICE under an override UP", OutOfService, []Status{Up}, all, false, Up},
		{"DOWN", Down, all, all, false, Down},
		{"DOWN, replicated", Down, all, all, replicated, Down},
		{"STARTING", Starting, all, all, false, Starting},
		{"STARTING, replicated", Starting, all, all, replicated, Starting},
		{"UNKNOWN", Unknown, all, all, false, Unknown},
		{"UNKNOWN, replicated", Unknown, all, all, replicated, Unknown},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, override := range tt.overrides {
				for _, existing := range tt.existing {
					expect.Equal(t, decide(tt.reported, override, existing, tt.replicated), tt.want,
						"reported %s, override %s, existing %s: got", tt.reported, override, existing)
				}
			}
		})
	}
}

// The same chain through Register: the existing lease and the override of the key count.
func TestRegisterDecidesTheStatusByTheRules(t *testing.T) {
	tests := []struct {
		name     string
		existing Status
		override Status // set after the first registration; Unknown: not set
		reported Status
		origin   Origin
		want     Status
	}{
		{"a client does not take itself out", Up, Unknown, OutOfService, FromClient, Up},
		{"a peer does", Up, Unknown, OutOfService, FromEureka, OutOfService},
		{"a client does not bring itself back", OutOfService, Unknown, Up, FromClient, OutOfService},
		{"a peer brings it back", OutOfService, Unknown, Up, FromEureka, Up},
		{"an override holds", Up, OutOfService, Up, FromClient, OutOfService},
		{"an override holds against a peer", Up, OutOfService, Up, FromEureka, OutOfService},
		{"an override that is the present status holds too", Up, Up, OutOfService, FromEureka, Up},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			g.register(instance(orders1, tt.existing, 100))
			if tt.override != Unknown {
				g.client(SetOverride{Key: orders1, Status: tt.override})
			}
			g.apply(tt.origin, Register{instance(orders1, tt.reported, 200)})
			expect.Equal(t, g.status(orders1), tt.want, "got")
		})
	}
}
