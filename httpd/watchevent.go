package httpd

import (
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
)

// appendChange appends a change as our own API shows it: what happened, to whom, and the instance as
// Eureka shows it. Where only the record of a removal is left there is nothing more than the name.
func appendChange(dst []byte, epoch string, c registry.Change) []byte {
	l := shownLease(c)
	dst = eureka.AppendText(append(dst, `{"index":`...), formatIndex(epoch, c.Index))
	dst = eureka.AppendText(append(dst, `,"action":`...), l.Action.String())
	dst = eureka.AppendText(append(dst, `,"why":`...), whyChanged(c))
	dst = eureka.AppendText(append(dst, `,"app":`...), l.Instance.App)
	dst = eureka.AppendText(append(dst, `,"id":`...), l.Instance.ID())
	if !reduced(l) {
		dst = eureka.AppendText(append(dst, `,"status":`...), l.Instance.Status.String())
		dst = eureka.AppendInstance(append(dst, `,"instance":`...), eureka.Format{}, l, l.RenewedAt)
	}
	return append(dst, '}')
}

// shownLease is a changed lease as readers see it: one in quarantine is gone for them.
func shownLease(c registry.Change) *registry.Lease {
	if c.Kind != registry.Hidden {
		return c.Lease
	}
	hidden := *c.Lease
	hidden.Action = registry.ActionDeleted
	return &hidden
}

// reduced says that only the record of a removal is left of a lease. Every other one knows when it
// was registered.
func reduced(l *registry.Lease) bool { return l.RegisteredAt == 0 }

// whyChanged is the cause of a change in one word. The end of a quarantine shows an instance anew
// that was registered before: it is added, but not registered.
func whyChanged(c registry.Change) string {
	switch {
	case c.Kind == registry.Canceled:
		return "canceled"
	case c.Kind == registry.Evicted:
		return "evicted"
	case c.Kind == registry.Hidden:
		return "quarantined"
	case c.Lease.Registered == c.Index:
		return "registered"
	}
	return "changed"
}

// appendEvent appends a server-sent event. data holds no line break, as JSON never needs one.
func appendEvent(dst []byte, name, id string, data func([]byte) []byte) []byte {
	dst = append(append(dst, "event: "...), name...)
	dst = append(append(dst, "\nid: "...), id...)
	dst = data(append(dst, "\ndata: "...))
	return append(dst, "\n\n"...)
}
