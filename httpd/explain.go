package httpd

import (
	"context"
	"fmt"
	"net/http"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// explanation is the answer of GET /v1/rollcall/apps/{app}/{id}/explain: all that is known of an
// instance, live or gone. Times are ms since the epoch.
type explanation struct {
	App     string `json:"app"`
	ID      string `json:"id"`
	State   string `json:"state"`   // listed, quarantined or gone
	Summary string `json:"summary"` // sentences
	ownerLink
	*lifeExplained
	Clock            string            `json:"clock"`
	Override         *overrideDetails  `json:"override,omitempty"`
	Quarantine       *actDetails       `json:"quarantine,omitempty"`
	Removed          *removal          `json:"removed,omitempty"`
	SelfPreservation preservationShare `json:"self_preservation"`
	History          []shownHistory    `json:"history"` // oldest first
}

// lifeExplained is the lease of a live instance.
type lifeExplained struct {
	Status      string `json:"status"`
	Reported    string `json:"reported,omitempty"` // by the client, last; empty if an override hides it
	Registered  int64  `json:"registered"`
	Lease       int32  `json:"lease_seconds"`
	Interval    int32  `json:"interval_seconds"`
	LastRenewal int64  `json:"last_renewal"`
	Silent      int64  `json:"silent_ms"`
	ExpiresIn   int64  `json:"expires_in_ms"` // negative: it ended so long ago
	ExpiresAt   int64  `json:"expires_at"`
	Expired     bool   `json:"expired"`
	// Permanent: it has no lease, and nothing of what is said about one holds.
	Permanent bool `json:"permanent,omitempty"`
}

// actDetails say who did something to an instance, why, and until when.
type actDetails struct {
	Author string `json:"author"`
	Reason string `json:"reason"`
	Since  int64  `json:"since"`
	Until  int64  `json:"until,omitempty"` // 0: without end
}

// overrideDetails is an override; nothing more than its status is known of one that came with the instance.
type overrideDetails struct {
	Status string `json:"status"`
	actDetails
}

// removal says how an instance went.
type removal struct {
	At   int64  `json:"at"`
	Kind string `json:"kind"` // canceled or evicted
}

// preservationShare is self-preservation's part in an explanation.
type preservationShare struct {
	State     string `json:"state"`
	Withholds bool   `json:"withholds"`
	Reason    string `json:"reason"`
}

// explain is GET /v1/rollcall/apps/{app}/{id}/explain.
func (c *call) explain() (any, error) {
	v := c.view()
	if c.err != nil {
		return nil, c.err
	}
	key := c.key()
	e, ok := c.explanationOf(c.r.Context(), v.View, key)
	if !ok {
		return nil, &refusal{status: http.StatusNotFound, text: fmt.Sprintf("nothing is remembered of %s: it was never registered, or it is gone for more than 24 hours", key)}
	}
	return e, nil
}

// explanationOf is what v knows of an instance; ok is false if it knows nothing.
func (h *Handler) explanationOf(ctx context.Context, v *registry.View, key registry.Key) (e explanation, ok bool) {
	at := h.clockOf(v)
	figures := v.Freshness(at.now)
	p := v.Preservation()
	_, why := v.Condition(figures)
	history := v.History(key)
	e = explanation{
		App: key.App, ID: key.ID, Clock: at.kind(), History: shownHistoryOf(history),
		SelfPreservation: preservationShare{p.State.String(), p.State.Withholds(), preservationReason(v, at, figures, why)},
	}
	if l, live := v.Find(key); live {
		e.live(v, at, l)
		e.Summary = summaryOf(&e, circumstances{
			health: h.config.Service.Health(), settings: v.Settings(), alone: h.config.WithoutConsensus,
			owner: h.contactWith(ctx, v, at.now, l.Owner),
		})
		return e, true
	}
	rec, known := v.Removal(key)
	if !known {
		return explanation{}, false
	}
	e.gone(rec, at)
	e.Summary = epitaphOf(&e, history)
	return e, true
}

// live fills in what is known of a live lease.
func (e *explanation) live(v *registry.View, at leaseClock, l *registry.Lease) {
	e.State = "listed"
	e.ownerLink = ownerLinkOf(v, at.now, l.Owner)
	renewed, ends := v.LastRenewal(l), v.Ends(l)
	e.lifeExplained = &lifeExplained{
		Status: l.Instance.Status.String(), Reported: reportedStatus(l), Registered: l.RegisteredAt,
		Lease: l.Duration, Interval: l.Interval, LastRenewal: renewed.Wall, Silent: max(at.now-renewed.Lease, 0),
		Permanent: l.Permanent,
	}
	if !l.Permanent {
		e.ExpiresIn, e.ExpiresAt, e.Expired = ends-at.now, at.wall(ends), at.now > ends
	}
	e.Override = overrideOf(l, at)
	if l.Quarantine != nil {
		e.State = "quarantined"
		e.Quarantine = quarantineOf(l.Quarantine, at)
	}
}

// gone fills in what is known of a removed lease.
func (e *explanation) gone(rec registry.Removal, at leaseClock) {
	e.State = "gone"
	e.Removed = &removal{At: rec.Lease.EvictedAt, Kind: "canceled"}
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
func overrideOf(l *registry.Lease, at leaseClock) *overrideDetails {
	if l.Instance.Overridden == registry.Unknown {
		return nil
	}
	shown := &overrideDetails{Status: l.Instance.Overridden.String()}
	if o := l.Override; o != nil {
		shown.actDetails = actDetails{Author: o.By.Author, Reason: o.By.Reason, Since: o.At.Wall}
		if o.Until != 0 {
			shown.Until = at.wall(o.Until)
		}
	}
	return shown
}

func quarantineOf(q *registry.Quarantined, at leaseClock) *actDetails {
	return &actDetails{Author: q.By.Author, Reason: q.By.Reason, Since: q.At.Wall, Until: at.wall(q.Until)}
}
