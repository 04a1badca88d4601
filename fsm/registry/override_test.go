package registry

import "testing"

func TestOverrideLifeCycle(t *testing.T) {
	g := newRig(t)
	g.register(instance(orders1, Up, 100))
	steps := []struct {
		op         Op
		status     Status
		overridden Status
	}{
		{SetOverride{Key: orders1, Status: OutOfService}, OutOfService, OutOfService},
		{Register{instance(orders1, Up, 200)}, OutOfService, OutOfService},
		{DeleteOverride{Key: orders1, Fallback: Down}, Down, Unknown},
		{Register{instance(orders1, Up, 300)}, Up, Unknown},
	}
	for _, step := range steps {
		res := g.client(step.op)
		i := g.lease(orders1).Instance
		if res.Outcome != Done || res.Index == 0 || i.Status != step.status || i.Overridden != step.overridden {
			t.Errorf("%T: %+v, status %s, override %s; want %s, %s", step.op, res, i.Status, i.Overridden, step.status, step.overridden)
		}
	}
}

func TestSetOverride(t *testing.T) {
	tests := []struct {
		name      string
		status    Status // registered with dirty 100
		op        SetOverride
		wantDirty int64
	}{
		{"another status", Up, SetOverride{Status: OutOfService}, 100},
		{"the present status is stored too", Up, SetOverride{Status: Up}, 100},
		{"newer timestamp is taken over", Up, SetOverride{Status: Down, LastDirty: 150}, 150},
		{"older timestamp is not", Up, SetOverride{Status: Down, LastDirty: 50}, 100},
		{"over DOWN", Down, SetOverride{Status: Up}, 100},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			g.register(instance(orders1, tt.status, 100))
			g.pass(5000)
			tt.op.Key = orders1
			if res := g.client(tt.op); res != (Result{Index: 2}) {
				t.Errorf("got %+v, want Done with index 2", res)
			}
			l := g.lease(orders1)
			if l.Instance.Status != tt.op.Status || l.Instance.Overridden != tt.op.Status || l.Instance.LastDirty != tt.wantDirty {
				t.Errorf("got %s, override %s, dirty %d; want %s twice, %d",
					l.Instance.Status, l.Instance.Overridden, l.Instance.LastDirty, tt.op.Status, tt.wantDirty)
			}
			if l.Action != ActionModified || l.UpdatedAt != g.now.Wall || l.RenewedAt != g.now || l.Registered != 1 {
				t.Errorf("got %+v, want MODIFIED, updated and renewed now, registered at 1", l)
			}
			if res := g.client(tt.op); res != (Result{}) {
				t.Errorf("the same again: %+v, want Done without an index", res)
			}
		})
	}
}

func TestOverrideThatEqualsTheStatusHoldsAtTheNextChange(t *testing.T) {
	g := newRig(t)
	g.register(instance(orders1, Up, 100))
	g.client(SetOverride{Key: orders1, Status: Up})
	g.peer(Register{instance(orders1, OutOfService, 200)})
	if got := g.status(orders1); got != Up {
		t.Errorf("got %s, want the operator's UP", got)
	}
}

func TestSetOverrideToUpMarksTheServiceUp(t *testing.T) {
	g := newRig(t)
	g.register(instance(orders1, Starting, 100))
	g.pass(1000)
	g.client(SetOverride{Key: orders1, Status: Up})
	if got := g.lease(orders1).ServiceUpAt; got != g.now.Wall {
		t.Errorf("service up at %d, want %d", got, g.now.Wall)
	}
}

func TestDeleteOverride(t *testing.T) {
	tests := []struct {
		name       string
		override   bool
		op         DeleteOverride
		wantStatus Status
		wantDirty  int64
	}{
		{"falls back to UNKNOWN", true, DeleteOverride{}, Unknown, 100},
		{"falls back to a status", true, DeleteOverride{Fallback: Down}, Down, 100},
		{"newer timestamp is taken over", true, DeleteOverride{Fallback: Up, LastDirty: 150}, Up, 150},
		{"older timestamp is not", true, DeleteOverride{Fallback: Up, LastDirty: 50}, Up, 100},
		{"nothing to delete", false, DeleteOverride{Fallback: Down, LastDirty: 150}, Up, 100},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			g.register(instance(orders1, Up, 100))
			if tt.override {
				g.client(SetOverride{Key: orders1, Status: OutOfService})
			}
			g.pass(5000)
			tt.op.Key = orders1
			if res := g.client(tt.op); res.Outcome != Done || (res.Index != 0) != tt.override {
				t.Errorf("got %+v, want Done, changed: %t", res, tt.override)
			}
			l := g.lease(orders1)
			if l.Instance.Status != tt.wantStatus || l.Instance.Overridden != Unknown || l.Instance.LastDirty != tt.wantDirty {
				t.Errorf("got %s, override %s, dirty %d; want %s, none, %d",
					l.Instance.Status, l.Instance.Overridden, l.Instance.LastDirty, tt.wantStatus, tt.wantDirty)
			}
			if got := g.View().LastRenewal(l); got != g.now {
				t.Errorf("last renewal %v, want %v", got, g.now)
			}
		})
	}
}

func TestOverrideOfUnknownInstanceIsNotFound(t *testing.T) {
	g := newRig(t)
	for _, op := range []Op{
		SetOverride{Key: orders1, Status: Down}, DeleteOverride{Key: orders1}, UpdateMetadata{Key: orders1},
	} {
		if got := g.client(op); got != (Result{Outcome: NotFound}) {
			t.Errorf("%T: %+v, want NotFound", op, got)
		}
	}
}

// Netflix/eureka issue 955: after an override was set and deleted by a console whose clock is ahead,
// the client's heartbeat is refused, it registers again with the timestamp it has, and must be UP.
func TestIssue955ClientComesBackAfterItsOverrideWasDeleted(t *testing.T) {
	for name, console := range map[string]int64{"console without a timestamp": 0, "console's clock ahead": 900_000} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			g.register(instance(orders1, Up, 1000))
			g.client(SetOverride{Key: orders1, Status: OutOfService, LastDirty: console})
			if res := g.client(Renew{Key: orders1, LastDirty: 1000}); res.Outcome != Done || g.status(orders1) != OutOfService {
				t.Errorf("heartbeat under the override: %+v, %s", res, g.status(orders1))
			}
			g.client(DeleteOverride{Key: orders1, LastDirty: console})
			if res := g.client(Renew{Key: orders1, LastDirty: 1000}); res.Outcome != NotFound {
				t.Fatalf("heartbeat after it: %+v, want NotFound", res)
			}
			g.register(instance(orders1, Up, 1000))
			if i := g.lease(orders1).Instance; i.Status != Up || i.LastDirty != 1000 {
				t.Errorf("registered again: %s at %d, want UP at 1000", i.Status, i.LastDirty)
			}
			if res := g.client(Renew{Key: orders1, LastDirty: 1000}); res != (Result{}) {
				t.Errorf("heartbeat at last: %+v, want Done", res)
			}
			g.register(instance(orders1, Down, 2000))
			if got := g.status(orders1); got != Down {
				t.Errorf("the client's next change: %s, want DOWN", got)
			}
		})
	}
}
