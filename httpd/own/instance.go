package own

import (
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
)

// overrideOf describes a lease's override, if it has one.
func overrideOf(l *registry.Lease, at Clock) *api.Forced {
	if l.Instance.Overridden == registry.Unknown {
		return nil
	}
	shown := &api.Forced{Status: l.Instance.Overridden.String()}
	if o := l.Override; o != nil {
		shown.Drain = o.Drain
		shown.Bounded = api.Bounded{Author: o.By.Author, Reason: o.By.Reason, Says: o.By.Says, Since: o.At.Wall}
		if o.Until != 0 {
			shown.Until = at.wall(o.Until)
		}
	}
	return shown
}

// Quarantine describes a quarantine.
func Quarantine(q *registry.Quarantined, at Clock) *api.Bounded {
	return &api.Bounded{Author: q.By.Author, Reason: q.By.Reason, Says: q.By.Says, Since: q.At.Wall, Until: at.wall(q.Until)}
}

// ownerOf returns an owner and its link at a moment of the lease clock (ms).
func ownerOf(v *registry.View, now int64, owner string) api.Owner {
	shown := api.Owner{Datacenter: owner}
	if owner == "" {
		return shown
	}
	if link, ok := v.Link(owner); ok && link.Silent(now) {
		shown.UnheardMS = now - link.LastContact
	}
	return shown
}

// Instance returns an instance as v knows it, at a moment.
func Instance(v *registry.View, at Clock, l *registry.Lease) api.Instance {
	s := api.InstanceOf(l)
	s.LastRenewal, s.Owner, s.Override = v.LastRenewal(l).Wall, ownerOf(v, at.Now, l.Owner), overrideOf(l, at)
	if l.Quarantine != nil {
		s.QuarantinedUntil = at.wall(l.Quarantine.Until)
	}
	return s
}
