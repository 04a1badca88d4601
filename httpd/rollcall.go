package httpd

import (
	"cmp"
	"context"
	"iter"
	"net/http"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/setting"
)

// alone is the Cluster of a node that was given none.
type alone struct{}

// Status implements Cluster.
func (alone) Status(context.Context) api.Status { return api.Status{} }

// clusterNow is what this node knows of its cluster, with its own part filled in.
func (h *Handler) clusterNow(ctx context.Context) api.Status {
	s := h.config.Cluster.Status(ctx)
	health := h.config.Service.Health()
	s.Node, s.Datacenter, s.Version = h.config.Node, h.config.Datacenter, h.config.Version
	s.Ready, s.Quorum = health.Ready, health.Quorum
	if s.Nodes == nil {
		s.Nodes = []api.NodeStatus{}
	}
	return s
}

// show is an instance as v knows it, at a moment.
func show(v *registry.View, at leaseClock, l *registry.Lease) api.Instance {
	s := api.InstanceOf(l)
	s.LastRenewal, s.Owner, s.Override = v.LastRenewal(l).Wall, ownerOf(v, at.now, l.Owner), overrideOf(l, at)
	if l.Quarantine != nil {
		s.QuarantinedUntil = at.wall(l.Quarantine.Until)
	}
	return s
}

// listInstances is GET /v1/rollcall/apps, with app=NAME for one application, and quarantined=true for
// those too that no other list shows.
func (c *call) listInstances() (any, error) {
	name, hidden := strings.ToUpper(c.text("app")), c.flag("quarantined")
	v := c.view()
	if c.err != nil {
		return nil, c.err
	}
	leases := slices.Collect(leasesOf(v.View, name))
	if hidden {
		leases = withQuarantined(leases, v.View, registry.Selector{App: name})
	}
	if err := c.reserve(weightOf(slices.Values(leases))); err != nil {
		return nil, err
	}
	at := c.clockOf(v.View)
	shown := []api.Instance{} // shown as an empty list, not as null
	for _, l := range leases {
		shown = append(shown, show(v.View, at, l))
	}
	return shown, nil
}

// leasesOf are the leases of one application; "": all.
func leasesOf(v *registry.View, app string) iter.Seq[*registry.Lease] {
	if app == "" {
		return v.Leases()
	}
	a, ok := v.App(app)
	if !ok {
		return func(func(*registry.Lease) bool) {}
	}
	return a.Leases()
}

// withQuarantined adds the quarantined leases that are selected, in the order of the list.
func withQuarantined(leases []*registry.Lease, v *registry.View, which registry.Selector) []*registry.Lease {
	for l := range v.Quarantined {
		if which.Selects(l.Key()) {
			leases = append(leases, l)
		}
	}
	slices.SortFunc(leases, func(a, b *registry.Lease) int {
		return cmp.Or(strings.Compare(a.Instance.App, b.Instance.App), strings.Compare(a.Instance.ID(), b.Instance.ID()))
	})
	return leases
}

func eventsOf(v *registry.View) api.Events {
	return api.Events{Registered: recents(v.RecentlyRegistered()), Canceled: recents(v.RecentlyCanceled())}
}

func recents(queue iter.Seq[registry.Recent]) []api.Event {
	events := []api.Event{}
	for r := range queue {
		events = append(events, api.Event{At: r.Wall, App: r.Key.App, ID: r.Key.ID})
	}
	return events
}

// events is GET /v1/rollcall/events.
func (c *call) events(v freshView) (any, error) {
	return eventsOf(v.View), nil
}

// healthz is GET /healthz: the process answers.
func (c *call) healthz() (any, error) { return c.plain("ok\n") }

// readyz is GET /readyz: the node may be asked.
func (c *call) readyz() (any, error) {
	if !c.config.Service.Health().Ready {
		return nil, &refusal{status: http.StatusServiceUnavailable, text: "not ready: the node is still loading its state or has not heard of a leader yet"}
	}
	return c.plain("ready\n")
}

// clusterStatus is GET /v1/rollcall/status.
func (c *call) clusterStatus() (any, error) { return c.clusterNow(c.r.Context()), nil }

func (c *call) plain(text string) (any, error) {
	respond(c.w, c.r, http.StatusOK, "text/plain; charset=utf-8", []byte(text))
	return answered, nil
}

// settings is GET /v1/rollcall/settings: those of the present leadership by their configuration keys, which may
// differ from this node's file.
func (c *call) settings(v freshView) (any, error) {
	all := make(map[string]any)
	s := v.Settings()
	for _, row := range setting.Of(&s) {
		all[row.Key] = row.JSON()
	}
	return all, nil
}

// shareOf is a share as configurations and people write it.
func shareOf(s registry.Share) float64 { return float64(s) / float64(registry.Whole) }
