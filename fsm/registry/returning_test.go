package registry

import (
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// A network fault ends: self-preservation goes off when enough of the silent were heard again, and the
// others are still to come.
func TestWhoComesBackLastIsGivenTime(t *testing.T) {
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
				if tt.grace > 0 && len(r.Expired(now+tt.grace, 10)) != 0 {
					t.Errorf("%s: the lease has ended at the last moment of the grace", name)
				}
				expect.That(t, len(r.Expired(now+tt.grace+1, 10)) == 1, "%s: the lease has not ended after the grace", name)
			}
		})
	}
}
