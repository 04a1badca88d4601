package registry

import (
	"testing"

	"github.com/seed-20419f34/rollcall/internal/need"
)

// The own datacenter was founded anew, and another one tells how a life before that ended.
func TestACancelOfALifeBeforeTheOwnersRemovesNothing(t *testing.T) {
	tests := []struct {
		name   string
		origin Origin
		age    int64
		gone   bool
	}{
		{"renewed before it began", fromDC2, 21_001 + clocksDiffer, false},
		{"renewed in it", fromDC2, 20_000, true},
		{"by a node of the own datacenter", fromNode, 60_000, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			g.pass(100_000)
			g.register(instance(orders1, Up, 100))
			g.pass(20_000)
			res := g.apply(tt.origin, Remove{Key: orders1, Kind: Canceled, Life: 4, LastDirty: 200, Age: tt.age})
			l, live := g.View().Lease(orders1)
			need.That(t, live != tt.gone, "live %t, result %+v, want gone: %t", live, res, tt.gone)
			if live && (l.Life != 5 || l.ByClient != res.Index || res.Outcome != Older) {
				t.Errorf("life %d, told of at %d, result %+v; want life 5, which everybody is told", l.Life, l.ByClient, res)
			}
		})
	}
}
