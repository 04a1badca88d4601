package own

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/web"
	"github.com/seed-20419f34/rollcall/internal/setting"
)

// listInstances is GET /v1/rollcall/apps, with app=NAME for one application, and quarantined=true to include the
// instances that all other lists hide.
func (c call) listInstances() (any, error) {
	name, hidden := strings.ToUpper(c.Text("app")), c.Flag("quarantined")
	v := c.View()
	if c.Err != nil {
		return nil, c.Err
	}
	leases := slices.Collect(web.LeasesOf(v.View, name))
	if hidden {
		for l := range v.Quarantined {
			if which := (registry.Selector{App: name}); which.Selects(l.Key()) {
				leases = append(leases, l)
			}
		}
		slices.SortFunc(leases, func(a, b *registry.Lease) int {
			return cmp.Or(strings.Compare(a.Instance.App, b.Instance.App), strings.Compare(a.Instance.ID(), b.Instance.ID()))
		})
	}
	if err := c.Reserve(web.WeightOf(slices.Values(leases))); err != nil {
		return nil, err
	}
	at := c.leaseClock(v.View)
	return listed(slices.Values(leases), func(l *registry.Lease) api.Instance { return Instance(v.View, at, l) }), nil
}

// listed shows each of all. Without any it is an empty list, not null.
func listed[T, S any](all iter.Seq[T], show func(T) S) []S {
	shown := []S{}
	for one := range all {
		shown = append(shown, show(one))
	}
	return shown
}

// events is GET /v1/rollcall/events.
func (c call) events(v web.FreshView) (any, error) {
	show := func(r registry.Recent) api.Event { return api.Event{At: r.Wall, App: r.Key.App, ID: r.Key.ID} }
	return api.Events{Registered: listed(v.RecentlyRegistered(), show), Canceled: listed(v.RecentlyCanceled(), show)}, nil
}

// clusterStatus is GET /v1/rollcall/status.
func (c call) clusterStatus() (any, error) { return c.ClusterNow(c.R.Context()), nil }

// settings is GET /v1/rollcall/settings: the settings in force under the current leader by their configuration keys,
// which may differ from this node's file.
func (c call) settings(v web.FreshView) (any, error) {
	all := make(map[string]any)
	s := v.Settings()
	for _, row := range setting.Of(&s) {
		all[row.Key] = row.JSON()
	}
	return all, nil
}

// leaseClock returns the lease clock for a view of this node.
func (o *Own) leaseClock(v *registry.View) Clock {
	return ClockOf(v, o.Service.Health(), o.WithoutConsensus)
}
