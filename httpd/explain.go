package httpd

import (
	"context"
	"fmt"
	"net/http"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
)

// explain is GET /v1/rollcall/apps/{app}/{id}/explain.
func (c *call) explain(v freshView) (any, error) {
	key := c.key()
	e, ok := c.explanationOf(c.r.Context(), v.View, key)
	if !ok {
		return nil, &refusal{status: http.StatusNotFound, text: fmt.Sprintf("nothing is remembered of %s: it was never registered, or it is gone for more than 24 hours", key)}
	}
	return e, nil
}

// explanationOf is what v knows of an instance; ok is false if it knows nothing.
func (h *Handler) explanationOf(ctx context.Context, v *registry.View, key registry.Key) (e api.Explanation, ok bool) {
	at := h.clockOf(v)
	figures := v.Freshness(at.now)
	p := v.Preservation()
	_, why := v.Condition(figures)
	history := v.History(key)
	e = api.Explanation{
		App: key.App, ID: key.ID, Clock: at.kind(), History: historyOf(history),
		SelfPreservation: api.PreservationEffect{State: p.State.String(), Withholds: p.State.Withholds(), Reason: preservationReason(v, at, figures, why)},
	}
	if l, live := v.Find(key); live {
		explainLive(&e, v, at, l)
		e.Summary = summaryOf(&e, circumstances{
			health: h.config.Service.Health(), settings: v.Settings(), alone: h.config.WithoutConsensus,
			owner: h.contactWith(ctx, v, at.now, l.Owner),
		})
		return e, true
	}
	rec, known := v.Removal(key)
	if !known {
		return api.Explanation{}, false
	}
	explainGone(&e, rec, at)
	e.Summary = epitaphOf(&e, history)
	return e, true
}

// explainLive fills in what is known of a live lease.
func explainLive(e *api.Explanation, v *registry.View, at leaseClock, l *registry.Lease) {
	e.State = "listed"
	e.Owner = ownerOf(v, at.now, l.Owner)
	renewed, ends := v.LastRenewal(l), v.Ends(l)
	e.Life = api.Life{
		Status: l.Instance.Status.String(), Reported: reportedStatus(l), Registered: l.RegisteredAt,
		LeaseSeconds: l.Duration, IntervalSeconds: l.Interval, LastRenewal: renewed.Wall, SilentMS: max(at.now-renewed.Lease, 0),
		Permanent: l.Permanent,
	}
	if !l.Permanent {
		e.ExpiresInMS, e.ExpiresAt, e.Expired = ends-at.now, at.wall(ends), at.now > ends
	}
	e.Override = overrideOf(l, at)
	if l.Quarantine != nil {
		e.State = "quarantined"
		e.Quarantine = quarantineOf(l.Quarantine, at)
	}
}

// explainGone fills in what is known of a removed lease.
func explainGone(e *api.Explanation, rec registry.Removal, at leaseClock) {
	e.State = api.Gone
	e.Removed = &api.Removed{At: rec.Lease.EvictedAt, Kind: "canceled"}
	if rec.Kind == registry.Evicted {
		e.Removed.Kind = "evicted"
	}
	if q := rec.Lease.Quarantine; q != nil && q.Until > at.now {
		e.Quarantine = quarantineOf(q, at)
	}
}

// reportedStatus is the status that the client reported last; "" if an override hides it.
func reportedStatus(l *registry.Lease) string {
	switch {
	case l.Instance.Overridden == registry.Unknown:
		return l.Instance.Status.String()
	case l.Override != nil && l.Override.Reported != registry.Unknown:
		return l.Override.Reported.String()
	}
	return ""
}

// overrideOf describes a lease's override; nil if there is none.
func overrideOf(l *registry.Lease, at leaseClock) *api.Forced {
	if l.Instance.Overridden == registry.Unknown {
		return nil
	}
	shown := &api.Forced{Status: l.Instance.Overridden.String()}
	if o := l.Override; o != nil {
		shown.Bounded = api.Bounded{Author: o.By.Author, Reason: o.By.Reason, Since: o.At.Wall}
		if o.Until != 0 {
			shown.Until = at.wall(o.Until)
		}
	}
	return shown
}

func quarantineOf(q *registry.Quarantined, at leaseClock) *api.Bounded {
	return &api.Bounded{Author: q.By.Author, Reason: q.By.Reason, Since: q.At.Wall, Until: at.wall(q.Until)}
}
