package store

import (
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestExpiryIsSuspendedUntilTheShortestGraceIsOver(t *testing.T) {
	type lease struct{ interval, duration int32 }
	tests := []struct {
		name   string
		leases []lease
		want   time.Duration // for so long
	}{
		{"nothing can end", nil, -1},
		{"ordinary lease: an interval and five seconds", []lease{{30, 90}}, 35 * time.Second},
		{"short lease: its duration", []lease{{1, 3}}, 3 * time.Second},
		{"the shortest of several", []lease{{30, 90}, {10, 30}, {60, 180}}, 15 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, registry.DefaultSettings(), false, func(g *evictionRig) {
				for i, l := range tt.leases {
					g.register(string(rune('a'+i)), l.interval, l.duration, 0)
				}
				v, established := g.machine.View(), int64(7000)
				end := established + tt.want.Milliseconds()
				if tt.want >= 0 && !allInGrace(v, established, end) {
					t.Errorf("not suspended %v after the leadership began", tt.want)
				}
				expect.That(t, !allInGrace(v, established, end+1), "still suspended more than %v after the leadership began", tt.want)
			})
		})
	}
}

func TestAQuarantinedLeaseIsWithinItsGraceToo(t *testing.T) {
	inBubble(t, registry.DefaultSettings(), false, func(g *evictionRig) {
		g.apply(registry.Quarantine{Key: g.register("i", 1, 3, 0), For: 60_000})
		v := g.machine.View()
		expect.That(t, allInGrace(v, 0, 3000) && !allInGrace(v, 0, 3001), "want it suspended for three seconds")
	})
}

func TestHealthSaysThatExpiryIsSuspendedWhileTheLeadershipIsYoung(t *testing.T) {
	c := startCluster(t, 3, nil)
	n := c.nodes[c.leader()]
	expect.That(t, !n.Health().Suspended, "suspended although there is no lease that could end")
	n.apply(t, registry.Register{Instance: instance("A", "i", 60)}) // its grace: 6 s
	clock := n.Health().Clock
	eventually(t, "the clock runs", func() bool { return n.Health().Clock > clock })
	next := c.nodes[c.moveLeadership()]
	expect.That(t, next.Health().Suspended, "%s leads since now and does not say that expiry is suspended", next.cfg.Node)
	got := next.Health().Clock
	expect.That(t, got >= clock-maxLead.Milliseconds(),
		"the clock of %s shows %d ms, that of %s showed %d ms before", next.cfg.Node, got, n.cfg.Node, clock)
	eventually(t, "the grace is over", func() bool { return !next.Health().Suspended })
}
