package registry

import (
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

// A copy of an instance that was evicted may be one of before that comes again: only a renewal after the
// last one that was known of, or a newer version, brings it back.
func TestACopyThatWasNotRenewedSinceBringsNoEvictedInstanceBack(t *testing.T) {
	dc2 := Origin{RemoteDC, "dc2"}
	for _, tc := range []struct {
		name  string
		age   int64 // of the copy's last renewal, 20 s after that of the evicted one
		dirty int64 // the evicted instance has 100
		back  bool
	}{
		{name: "the same once more", age: 20_000, dirty: 100},
		{name: "seemingly a little fresher", age: 16_000, dirty: 100},
		{name: "renewed since", age: 5_000, dirty: 100, back: true},
		{name: "of a newer version", age: 20_000, dirty: 101, back: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := newRig(t)
			g.pass(60_000)
			copyOf := func(dirty, age int64) Replica {
				return Replica{Instance: instance(orders1, Up, dirty), Life: 1, Age: age}
			}
			g.apply(dc2, copyOf(100, 0))
			g.pass(19_000)
			l := g.lease(orders1)
			g.client(Evict{Epoch: g.Epoch(), Items: []EvictItem{{l.Handle, l.Registered, g.renewed(l).Lease}}})
			g.pass(1_000)
			res := g.apply(dc2, copyOf(tc.dirty, tc.age))
			_, back := g.View().Lease(orders1)
			expect.That(t, back == tc.back && (res.Outcome == Refused) != tc.back, "it is back: %v (%+v), want %v", back, res, tc.back)
		})
	}
}
