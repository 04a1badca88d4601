package registry

import (
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestClockKeepsTheLatestLeaseTimeAndTheNewestWallTime(t *testing.T) {
	tests := []struct {
		name  string
		stamp Stamp
		want  Stamp
	}{
		{"both later", Stamp{6000, 8000}, Stamp{6000, 8000}},
		{"lease clock back", Stamp{4000, 8000}, Stamp{5000, 8000}},
		{"wall clock back", Stamp{6000, 6000}, Stamp{6000, 6000}},
		{"an hour ahead", Stamp{5000 + maxLead, 8000}, Stamp{5000 + maxLead, 8000}},
		{"more than an hour ahead is not believed", Stamp{5001 + maxLead, 8000}, Stamp{5000, 7000}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := New()
			r.Advance(Stamp{5000, 7000})
			r.Advance(tt.stamp)
			got := r.Clock()
			expect.That(t, got == tt.want && r.View().Stamp() == tt.want, "got %v, view %v, want %v", got, r.View().Stamp(), tt.want)
		})
	}
}

func TestClockIgnoresAStampTooFarAhead(t *testing.T) {
	g := newRig(t)
	g.register(instance(orders1, Up, 100))
	old := g.now
	g.pass(maxLead + 1)
	g.register(instance(orders2, Up, 100))
	l := g.lease(orders2)
	expect.That(t, l.RenewedAt == old && l.RegisteredAt == old.Wall, "got %+v, want the time %v", l, old)
}

func TestEstablishKeepsTheFirstClusterAndTheNewestEpoch(t *testing.T) {
	g := newRig(t)
	expect.That(t, g.View().Epoch() == "" && g.Epoch() == (Epoch{}), "before: cluster %q, epoch %v", g.View().Epoch(), g.Epoch())
	g.Establish(Epoch{Term: 1, Index: 2}, "first")
	g.Establish(Epoch{Term: 3, Index: 4}, "second")
	expect.That(t, g.View().Epoch() == "first" && g.Epoch() == (Epoch{Term: 3, Index: 4}) && g.View().Index() == 0,
		"got cluster %q, epoch %v, index %d", g.View().Epoch(), g.Epoch(), g.View().Index())
}

const year = 365 * 24 * 3_600_000

// A leader whose wall clock is a year ahead leads for one entry.
func TestClockFollowsTheNextLeaderAfterAWallTimeOneYearAhead(t *testing.T) {
	for _, tt := range []struct {
		name   string
		thawed bool
	}{{"at once", false}, {"after a restart", true}} {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			g.now.Wall += year
			g.register(instance(orders1, Up, 0)) // gets a timestamp of next year
			g.now.Wall -= year
			if tt.thawed {
				var err error
				g.Registry, err = Thaw(g.Freeze())
				need.OK(t, err)
			}
			g.pass(60_000)
			g.register(instance(orders2, Up, 0))
			if l := g.lease(orders2); l.RegisteredAt != g.now.Wall || l.Instance.LastDirty != g.now.Wall || g.Clock() != g.now {
				t.Errorf("registered at %d with the timestamp %d, clock %v, want the true time %v", l.RegisteredAt, l.Instance.LastDirty, g.Clock(), g.now)
			}
			i := instance(orders1, Up, g.now.Wall-5)
			i.Port = Port{Number: 9090, Enabled: true}
			g.register(i)
			l := g.lease(orders1)
			expect.That(t, l.Instance.Port == i.Port && l.Instance.LastDirty == i.LastDirty,
				"got %+v, want what the client registered with its true timestamp", l.Instance)
		})
	}
}

// Other servers have the copy whose timestamp is ahead, and must find what takes its place newer.
func TestRegistrationInThePlaceOfATimestampAheadIsNewerOnEveryServer(t *testing.T) {
	g, other := newRig(t), newRig(t)
	g.client(Contact{DC: "dc2", Sender: "s", Incarnation: 1, Cut: 15_000})
	ahead := instance(orders1, Up, g.now.Wall+year)
	g.register(ahead)
	tell := func() Result {
		v := g.View()
		return other.apply(Origin{Kind: LocalPeer}, v.ReplicaOf(g.lease(orders1), g.now.Lease))
	}
	tell()
	i := instance(orders1, Down, g.now.Wall)
	g.register(i)
	tell()
	l := other.lease(orders1)
	expect.That(t, l.Instance.Status == Down && l.Instance.LastDirty == i.LastDirty, "the other server has %+v, want what replaced it", l.Instance)
}

func TestRegistrationByAnotherServerIsOlderThanATimestampAhead(t *testing.T) {
	g := newRig(t)
	g.register(instance(orders1, Up, g.now.Wall+year))
	res := g.peer(Register{instance(orders1, Down, g.now.Wall)})
	expect.That(t, res.Outcome == KeptExisting, "got %+v, want the newer one kept", res)
}

func TestRegistrationOlderThanATimestampWithinAnHourIsNotStored(t *testing.T) {
	g := newRig(t)
	g.register(instance(orders1, Up, g.now.Wall+maxAhead))
	res := g.client(Register{instance(orders1, Down, g.now.Wall)})
	expect.That(t, res.Outcome == KeptExisting, "got %+v, want the newer one kept", res)
}

// A network fault ends: self-preservation goes off when enough of the silent were heard again, and the
// others are still to come.
func TestGraceCoversTheLastClientsToComeBack(t *testing.T) {
	const grace = 30_000 + renewalGrace
	tests := []struct {
		name  string
		state PreservationState
		ends  func(g *rig)
		grace int64 // ms that a lease which ended long ago is given
	}{
		{"on, until the condition was false", PreservationOn, func(g *rig) { g.decide(good) }, grace},
		{"on, with upstream's formula", PreservationOn, func(g *rig) { g.decide(good); g.Configure(Settings{Expectation: true}) }, 0},
		{"held, until the hold was over", PreservationHeld, func(g *rig) { g.pass(holding); g.decide(good) }, 0},
		{"on, until an operator released it", PreservationOn, func(g *rig) { g.client(SelfPreservation{To: PreservationReleased, By: ann}) }, 0},
		{"released, until the condition was false", PreservationReleased, func(g *rig) { g.decide(good) }, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			in := instance(orders1, Up, 100)
			in.RenewalInterval, in.Duration = 30, 90
			g.register(in)
			g.pass(hour / 2)
			g.in(tt.state)
			tt.ends(g)
			now := g.now.Lease
			thawed := need.Got(Thaw(g.Freeze()))(t)
			for name, r := range map[string]*Registry{"registry": g.Registry, "thawed": thawed} {
				ends := max(r.View().Ends(g.lease(orders1))-now, 0)
				expect.That(t, ends == tt.grace, "%s: the lease ends in %d ms, want %d", name, ends, tt.grace)
				expect.That(t, tt.grace <= 0 || len(r.Expired(now+tt.grace, 10)) == 0,
					"%s: the lease has ended at the last moment of the grace", name)
				expect.That(t, len(r.Expired(now+tt.grace+1, 10)) == 1, "%s: the lease has not ended after the grace", name)
			}
		})
	}
}
