package store

import (
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestChangesAreCountedByActionAndReasonOnceReady(t *testing.T) {
	metrics := prometheus.NewRegistry()
	c := NewChangeCounter(metrics, NewPanics(slog.New(slog.DiscardHandler), prometheus.NewRegistry()))
	r := registry.New()
	clock := int64(1000)
	apply := func(ops ...registry.Op) {
		for _, op := range ops {
			clock += 10
			r.Apply(registry.Stamp{Lease: clock, Wall: clock}, 1, registry.FromClient, op)
		}
	}
	instance := func(id string) registry.Register {
		return registry.Register{Instance: &registry.Instance{InstanceID: id, App: "ORDERS", HostName: "h", Status: registry.Up, DataCenter: registry.DataCenter{Name: registry.MyOwn}}}
	}
	apply(instance("before"))
	c.Skip(r.View())
	apply(instance("i1"), instance("i2"), registry.Renew{Key: registry.NewKey("ORDERS", "i1")})
	c.Count(r.View())
	c.Count(r.View())
	apply(registry.SetOverride{Key: registry.NewKey("ORDERS", "i1"), Status: registry.OutOfService}, registry.Cancel{Key: registry.NewKey("ORDERS", "i2")}, registry.Quarantine{Key: registry.NewKey("ORDERS", "before"), For: 60_000})
	c.Count(r.View())
	got := map[string]float64{}
	for _, f := range need.Got(metrics.Gather())(t) {
		for _, m := range f.GetMetric() {
			got[m.GetLabel()[0].GetValue()+", "+m.GetLabel()[1].GetValue()] = m.GetCounter().GetValue()
		}
	}
	expect.Deep(t, got, map[string]float64{"added, registered": 2, "modified, overridden": 1, "deleted, canceled": 1, "deleted, quarantined": 1}, "counted")
}

// What cannot be counted is left out: the counter goes on with what comes next, and the caller with its work.
func TestChangeThatCannotBeCountedIsLeftOut(t *testing.T) {
	metrics := prometheus.NewRegistry()
	c := NewChangeCounter(metrics, NewPanics(slog.New(slog.DiscardHandler), metrics))
	r := registry.New()
	register := func(id string) {
		r.Apply(registry.Stamp{Lease: 1000, Wall: 1000}, 1, registry.FromClient, registry.Register{Instance: &registry.Instance{
			InstanceID: id, App: "ORDERS", HostName: "h", Status: registry.Up, DataCenter: registry.DataCenter{Name: registry.MyOwn},
		}})
	}
	register("i1")
	whole := *c.changes
	*c.changes = prometheus.CounterVec{}
	c.Count(r.View())
	*c.changes = whole
	register("i2")
	c.Count(r.View())
	got := map[string]float64{}
	for _, f := range need.Got(metrics.Gather())(t) {
		for _, m := range f.GetMetric() {
			got[m.GetLabel()[0].GetValue()] += m.GetCounter().GetValue()
		}
	}
	expect.Equal(t, got["added"], 1, "additions counted")
	expect.Equal(t, got["changes"], 1, "panics counted")
}
