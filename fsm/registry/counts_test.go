package registry

import (
	"math/rand/v2"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// What an application counts by status is what a walk over its leases finds, whatever happened to them; also in views of before.
func TestCountsOfAnApplicationAreWhatAWalkFinds(t *testing.T) {
	g := newRig(t)
	r := rand.New(rand.NewPCG(1, 2))
	keys := []Key{orders1, orders2, billing1}
	var views []*View
	for range 2000 {
		key := keys[r.IntN(len(keys))]
		switch r.IntN(7) {
		case 0, 1:
			g.client(Register{instance(key, Status(r.IntN(int(OutOfService)+1)), 0)})
		case 2:
			g.client(Cancel{Key: key})
		case 3:
			g.client(SetOverride{Key: key, Status: OutOfService})
		case 4:
			g.client(DeleteOverride{Key: key})
		case 5:
			g.client(Quarantine{Key: key, For: int64(r.IntN(2)) * 60_000})
		case 6:
			g.client(Renew{Key: key})
		}
		g.pass(10)
		views = append(views, g.View())
	}
	for i, v := range views {
		for app := range v.Apps() {
			var want [OutOfService + 1]uint32
			for l := range app.Leases() {
				want[l.Instance.Status]++
			}
			need.Equal(t, app.Counts(), want, "after operation %d, %s:", i+1, app.Name)
		}
	}
}

func TestChangeSaysWhyByTheLastEvent(t *testing.T) {
	g := newRig(t)
	for _, step := range []struct {
		name string
		op   Op
		kind ChangeKind
		why  EventKind
	}{
		{"registered", Register{instance(orders1, Up, 0)}, Live, EventRegistered},
		{"status", SetOverride{Key: orders1, Status: OutOfService}, Live, EventOverridden},
		{"quarantined", Quarantine{Key: orders1, For: 60_000}, Hidden, EventQuarantined},
		{"end of the quarantine", Quarantine{Key: orders1}, Live, EventQuarantineEnded},
		{"canceled", Cancel{Key: orders1}, Canceled, EventCanceled},
	} {
		before := g.View().Index()
		g.client(step.op)
		v := g.View()
		changes := need.Got(v.Changes(before, 0))(t)
		need.That(t, len(changes) == 1, "%s: %d changes", step.name, len(changes))
		why, ok := v.Why(changes[0])
		expect.That(t, ok && why == step.why && changes[0].Kind == step.kind, "%s: %v %v %v, want %v of kind %v", step.name, why, ok, changes[0].Kind, step.why, step.kind)
	}
}
