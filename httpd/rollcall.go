package httpd

import (
	"cmp"
	"context"
	"iter"
	"net/http"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// alone is the Cluster of a node that was given none.
type alone struct{}

// Status implements Cluster.
func (alone) Status(context.Context) ClusterStatus { return ClusterStatus{} }

// clusterNow is what this node knows of its cluster, with its own part filled in.
func (h *Handler) clusterNow(ctx context.Context) ClusterStatus {
	s := h.config.Cluster.Status(ctx)
	health := h.config.Service.Health()
	s.Node, s.Datacenter, s.Version = h.config.Node, h.config.Datacenter, h.config.Version
	s.Ready, s.Quorum = health.Ready, health.Quorum
	if s.Nodes == nil {
		s.Nodes = []NodeStatus{}
	}
	return s
}

// shownInstance is an instance in our own API. Times are ms since the epoch.
type shownInstance struct {
	App         string         `json:"app"`
	ID          string         `json:"id"`
	Status      string         `json:"status"`
	Overridden  string         `json:"overridden,omitempty"`
	Host        string         `json:"host"`
	IP          string         `json:"ip"`
	Port        int            `json:"port,omitempty"`
	SecurePort  int            `json:"secure_port,omitempty"`
	VIP         string         `json:"vip,omitempty"`
	Lease       int32          `json:"lease_seconds"`
	Interval    int32          `json:"interval_seconds"`
	LastRenewal int64          `json:"last_renewal"`
	Registered  int64          `json:"registered"`
	Index       registry.Index `json:"index"` // of the instance's last change
	ownerLink

	Metadata         map[string]string `json:"metadata,omitempty"`
	Override         *overrideDetails  `json:"override,omitempty"`
	QuarantinedUntil int64             `json:"quarantined_until,omitempty"` // only with quarantined=true
}

func show(v *registry.View, at leaseClock, l *registry.Lease) shownInstance {
	i := l.Instance
	s := shownInstance{
		App: i.App, ID: i.ID(), Status: i.Status.String(), Host: i.HostName, IP: i.IPAddr, VIP: i.VIP,
		Port: openPort(i.Port), SecurePort: openPort(i.SecurePort),
		Lease: l.Duration, Interval: l.Interval,
		LastRenewal: v.LastRenewal(l).Wall, Registered: l.RegisteredAt, Index: l.Changed,
		ownerLink: ownerLinkOf(v, at.now, l.Owner), Metadata: metadataOf(i),
	}
	if i.Overridden != registry.Unknown {
		s.Overridden, s.Override = i.Overridden.String(), overrideOf(l, at)
	}
	if l.Quarantine != nil {
		s.QuarantinedUntil = at.wall(l.Quarantine.Until)
	}
	return s
}

func metadataOf(i *registry.Instance) map[string]string {
	if len(i.Metadata) == 0 {
		return nil
	}
	pairs := make(map[string]string, len(i.Metadata))
	for _, p := range i.Metadata {
		pairs[p.Key] = p.Value
	}
	return pairs
}

// openPort is a port's number, 0 if the instance does not listen there.
func openPort(p registry.Port) int {
	if !p.Enabled {
		return 0
	}
	return int(p.Number)
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
	shown := []shownInstance{} // shown as an empty list, not as null
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

// recentEvents are the two recent queues, newest first.
type recentEvents struct {
	Registered []recentEvent `json:"registered"`
	Canceled   []recentEvent `json:"canceled"`
}

// recentEvent is an entry of a recent queue.
type recentEvent struct {
	At  int64  `json:"at"` // ms since the epoch
	App string `json:"app"`
	ID  string `json:"id"`
}

func eventsOf(v *registry.View) recentEvents {
	return recentEvents{Registered: recents(v.RecentlyRegistered()), Canceled: recents(v.RecentlyCanceled())}
}

func recents(queue iter.Seq[registry.Recent]) []recentEvent {
	events := []recentEvent{}
	for r := range queue {
		events = append(events, recentEvent{At: r.Wall, App: r.Key.App, ID: r.Key.ID})
	}
	return events
}

// events is GET /v1/rollcall/events.
func (c *call) events() (any, error) {
	v := c.view()
	if c.err != nil {
		return nil, c.err
	}
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
