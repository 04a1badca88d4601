package registry

import (
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// A cancel of a Eureka server may be one of before that was sent again: it names no life.
func TestOnlyItsOwnCancelDoesAEurekaServersRenewalTakeBack(t *testing.T) {
	for _, tc := range []struct {
		name     string
		canceled Origin
		renewed  Origin
		dirty    int64 // of the renewal; the instance has 100
		back     bool
	}{
		{name: "its own", canceled: FromEureka, renewed: FromEureka, dirty: 100, back: true},
		{name: "a client's", canceled: FromClient, renewed: FromEureka, dirty: 100},
		{name: "another server's", canceled: Origin{RemoteDC, "other"}, renewed: FromEureka, dirty: 100},
		{name: "its own, with a renewal from before", canceled: FromEureka, renewed: FromEureka, dirty: 99},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := newRig(t)
			g.peer(Contact{DC: "eureka", Cut: 90_000})
			g.peer(Register{instance(orders1, Up, 100)})
			life := g.lease(orders1).Life
			g.apply(tc.canceled, Cancel{orders1})
			res := g.apply(tc.renewed, Renew{Key: orders1, LastDirty: tc.dirty})
			need.That(t, res.Outcome == NotFound, "renewed: %+v, want that it is not found", res)
			g.peer(Register{instance(orders1, Up, 100)})
			l, back := g.View().Lease(orders1)
			if back != tc.back || back && l.Life != life+1 {
				t.Errorf("after the registration that follows it is back: %v (%+v), want %v in life %d", back, l, tc.back, life+1)
			}
			expect.OKf(t, expect.Err(Thaw(g.Freeze())), "the state cannot be restored")
		})
	}
}
