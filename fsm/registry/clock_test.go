package registry

import "testing"

func TestClockTakesTheLaterOfEachHalf(t *testing.T) {
	tests := []struct {
		name  string
		stamp Stamp
		want  Stamp
	}{
		{"both later", Stamp{6000, 8000}, Stamp{6000, 8000}},
		{"lease clock back", Stamp{4000, 8000}, Stamp{5000, 8000}},
		{"wall clock back", Stamp{6000, 6000}, Stamp{6000, 7000}},
		{"an hour ahead", Stamp{5000 + maxLead, 8000}, Stamp{5000 + maxLead, 8000}},
		{"more than an hour ahead is not believed", Stamp{5001 + maxLead, 8000}, Stamp{5000, 7000}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := New()
			r.Advance(Stamp{5000, 7000})
			r.Advance(tt.stamp)
			if got := r.Clock(); got != tt.want || r.View().Stamp() != tt.want {
				t.Errorf("got %v, view %v, want %v", got, r.View().Stamp(), tt.want)
			}
		})
	}
}

func TestWhatComesWithAnUnbelievableStampHappensAtTheOldTime(t *testing.T) {
	g := newRig(t)
	g.register(instance(orders1, Up, 100))
	old := g.now
	g.pass(maxLead + 1)
	g.register(instance(orders2, Up, 100))
	if l := g.lease(orders2); l.RenewedAt != old || l.RegisteredAt != old.Wall {
		t.Errorf("got %+v, want the time %v", l, old)
	}
}

func TestEstablishKeepsTheFirstClusterAndTheNewestEpoch(t *testing.T) {
	g := newRig(t)
	if g.View().Epoch() != "" || g.Epoch() != (Epoch{}) {
		t.Errorf("before: cluster %q, epoch %v", g.View().Epoch(), g.Epoch())
	}
	g.Establish(Epoch{1, 2}, "first")
	g.Establish(Epoch{3, 4}, "second")
	if g.View().Epoch() != "first" || g.Epoch() != (Epoch{3, 4}) || g.View().Index() != 0 {
		t.Errorf("got cluster %q, epoch %v, index %d", g.View().Epoch(), g.Epoch(), g.View().Index())
	}
}
