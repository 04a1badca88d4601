package httpd

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// explain is GET /v1/rollcall/apps/{app}/{id}/explain.
func (c call) explain(v web.FreshView) (any, error) {
	key := c.Key()
	e, ok := c.explanationOf(c.R.Context(), v.View, key)
	if !ok {
		return nil, &web.Refusal{Status: http.StatusNotFound, Text: fmt.Sprintf("nothing is remembered of %s: it was never registered, or it is gone for more than 24 hours", key)}
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

func historyOf(events []registry.Event) []api.HistoryEvent {
	shown := []api.HistoryEvent{}
	for _, e := range events {
		shown = append(shown, api.HistoryEvent{
			At: e.At.Wall, What: e.Kind.String(), Text: eventText(e), Times: max(e.Times, 1),
			Author: e.By.Author, Reason: e.By.Reason,
		})
	}
	return shown
}

// eventText says what happened. Who did it, why, and how often has fields of its own.
func eventText(e registry.Event) string {
	switch e.Kind {
	case registry.EventRegistered, registry.EventReregistered:
		return fmt.Sprintf("%s as %s %s", e.Kind, e.Status, bySender(e.Origin))
	case registry.EventKept:
		return "an older registration " + bySender(e.Origin) + " was not taken over; the lease began anew"
	case registry.EventRenewedLate:
		return fmt.Sprintf("renewed %s after the renewal before", shownSpan(e.For))
	case registry.EventStatus:
		return fmt.Sprintf("status became %s %s", e.Status, bySender(e.Origin))
	case registry.EventOverridden:
		return fmt.Sprintf("%s forced %s", e.Status, howLong(e.For))
	case registry.EventOverrideEnded:
		return fmt.Sprintf("override ended; status became %s", e.Status)
	case registry.EventQuarantined:
		return "taken out of every list " + howLong(e.For)
	case registry.EventQuarantineEnded:
		return fmt.Sprintf("listed again as %s", e.Status)
	case registry.EventMetadata:
		return "metadata changed " + bySender(e.Origin)
	case registry.EventCanceled:
		if e.By.Reason != "" { // the leader did
			return "deregistered"
		}
		return "canceled " + bySender(e.Origin)
	case registry.EventEvicted:
		return fmt.Sprintf("evicted %s after the last renewal", shownSpan(e.For))
	}
	return e.Kind.String()
}

// howLong is the length (ms) of an override or quarantine.
func howLong(ms int64) string {
	if ms == 0 {
		return "without end"
	}
	return "for " + shownSpan(ms)
}

// contact is what is known of the link from an instance's owner, for people.
type contact struct {
	datacenter string // "": the own one, without a link
	heard      bool   // ever
	age        int64  // ms of lease clock since
	cut        bool
	policy     string // replication.on-cut of the peer, as Peers words it; "": it is not known
}

// contactWith is the link from an owner at a moment of the lease clock (ms).
func (h *Handler) contactWith(ctx context.Context, v *registry.View, now int64, owner string) contact {
	c := contact{datacenter: owner}
	if owner == "" {
		return c
	}
	var link registry.Link
	if link, c.heard = v.Link(owner); c.heard {
		c.age, c.cut = max(now-link.Heard, 0), link.Silent(now)
	}
	if c.cut {
		c.policy = onCut(h.peerStatus(ctx), owner)
	}
	return c
}

// keeps says that the leases of the owner are kept although their time has passed.
func (c contact) keeps() bool {
	limit, bounded := strings.CutPrefix(c.policy, "keep for ")
	if !c.cut || !bounded {
		return c.cut && c.policy == "keep"
	}
	d, err := time.ParseDuration(limit)
	return err == nil && c.age <= d.Milliseconds()
}

// sentence says whose an instance is, and what becomes of its lease if its owner is not heard.
func (c contact) sentence() string {
	belongs := "It belongs to datacenter " + c.datacenter
	switch {
	case !c.heard:
		return belongs + ", of which nothing was heard yet."
	case !c.cut:
		return fmt.Sprintf("%s, last heard %s ago.", belongs, shownSpan(c.age))
	case c.keeps():
		return fmt.Sprintf("%s, last heard %s ago: while the link is cut its lease is kept (replication.on-cut: %s).", belongs, shownSpan(c.age), c.policy)
	case c.policy == "":
		return fmt.Sprintf("%s, last heard %s ago: the link is cut.", belongs, shownSpan(c.age))
	}
	return fmt.Sprintf("%s, last heard %s ago: the link is cut, and its lease ends all the same (replication.on-cut: %s).", belongs, shownSpan(c.age), c.policy)
}
