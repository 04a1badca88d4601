package own

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// Circumstances are what an explanation needs beside the view.
type Circumstances struct {
	Health registry.Health
	Alone  bool // the node decides on its own, without a leader
	// Peers returns the state of replication, or an empty one without replication or if its state is unknown.
	Peers func() api.Peers
	// Moved says how an instance changed its address while it had a lease, or returns "".
	Moved func(registry.Key) string
}

// Explain returns what v knows of an instance; ok is false if it knows nothing.
func Explain(v *registry.View, key registry.Key, c Circumstances) (e api.Explanation, ok bool) {
	at := ClockOf(v, c.Health, c.Alone)
	figures := v.Freshness(at.Now)
	p := v.Preservation()
	_, why := v.Condition(figures)
	history := v.History(key)
	e = api.Explanation{
		App: key.App, ID: key.ID, Clock: at.kind(), History: History(history),
		SelfPreservation: api.PreservationEffect{State: p.State.String(), Withholds: p.State.Withholds(), Reason: preservationReason(v, at, figures, why)},
	}
	if l, live := v.Find(key); live {
		explainLive(&e, v, at, l)
		e.Summary = summaryOf(&e, summaryInput{
			health: c.Health, settings: v.Settings(), alone: c.Alone, owner: ownerLinkOf(v, at.Now, l.Owner, c.Peers),
			uncounted: at.wall(at.Now) - e.LastRenewal - e.SilentMS,
		})
		if moved := c.Moved(key); moved != "" {
			e.Summary += " " + moved
		}
	} else if rec, known := v.Removal(key); known {
		explainGone(&e, v, rec, at)
		e.Summary = removalSummary(&e, history)
	}
	refused := refusedSentences(c.Peers(), key)
	if e.State == "" && len(refused) > 0 {
		e.State, e.Summary = api.Refused, key.String()+" is not registered here."
	}
	e.Summary = strings.Join(append([]string{e.Summary}, refused...), " ")
	return e, e.State != ""
}

// refusedSentences says which servers sent an instance that this node refuses, and which peers refuse it.
func refusedSentences(p api.Peers, key registry.Key) (sentences []string) {
	add := func(who string, r api.RefusedItem) {
		if r.App == key.App && r.ID == key.ID {
			sentences = append(sentences, fmt.Sprintf("%s since %s, %d times, the last time (%s) at %s: %s.", who, shownTime(r.Since), r.Times, r.What, shownTime(r.Last), r.Text))
		}
	}
	for _, r := range p.Refused {
		add(fmt.Sprintf("This node refuses what %s sends of it", cmp.Or(r.From, "a client")), r)
	}
	for _, peer := range p.Peers {
		for _, r := range peer.Refused {
			add("The peer "+peer.Name+" refuses it", r)
			if r.Until > 0 && r.App == key.App && r.ID == key.ID {
				sentences = append(sentences, fmt.Sprintf("This datacenter serves what its own client says, and offers it again at %s.", shownTime(r.Until)))
			}
		}
	}
	return sentences
}

// explainLive fills in what is known of a live lease.
func explainLive(e *api.Explanation, v *registry.View, at Clock, l *registry.Lease) {
	e.State = "listed"
	e.Owner = ownerOf(v, at.Now, l.Owner)
	renewed, ends := v.LastRenewal(l), v.Ends(l)
	e.Life = api.Life{
		Status: l.Instance.Status.String(), Registered: l.RegisteredAt,
		LeaseSeconds: l.Duration, IntervalSeconds: l.Interval, LastRenewal: renewed.Wall, SilentMS: max(at.Now-renewed.Lease, 0),
		Permanent: l.Permanent,
	}
	switch {
	case l.Instance.Overridden == registry.Unknown:
		e.Reported = e.Status
	case l.Override != nil && l.Override.Reported != registry.Unknown:
		e.Reported = l.Override.Reported.String()
	}
	if !l.Permanent {
		e.ExpiresInMS, e.ExpiresAt, e.Expired = ends-at.Now, at.wall(ends), at.Now > ends
	}
	e.Override = overrideOf(l, at)
	if l.Quarantine != nil {
		e.State = "quarantined"
		e.Quarantine = Quarantine(l.Quarantine, at)
	}
}

// explainGone fills in what is known of a removed lease.
func explainGone(e *api.Explanation, v *registry.View, rec registry.Removal, at Clock) {
	e.State = api.Gone
	e.Removed = &api.Removed{At: rec.Lease.EvictedAt, Kind: "canceled"}
	if rec.Kind == registry.Evicted {
		e.Removed.Kind = "evicted"
	}
	if v.WaitingOverride(rec, at.Now) != nil {
		e.Override = overrideOf(rec.Lease, at)
	}
	if q := rec.Lease.Quarantine; q != nil && q.Until > at.Now {
		e.Quarantine = Quarantine(q, at)
	}
}

// History shows events of an instance, in their order.
func History(events []registry.Event) []api.HistoryEvent {
	return listed(slices.Values(events), func(e registry.Event) api.HistoryEvent {
		return api.HistoryEvent{
			At: e.At.Wall, What: e.Kind.String(), Text: eventText(e), Times: max(e.Times, 1),
			Author: cmp.Or(e.By.Author, e.Origin.Principal), Reason: e.By.Reason, Says: e.By.Says,
		}
	})
}

// eventText says what happened. The author, the reason and the number of times have fields of their own.
func eventText(e registry.Event) string {
	switch e.Kind {
	case registry.EventRegistered, registry.EventReregistered:
		return fmt.Sprintf("%s as %s %s", e.Kind, e.Status, bySender(e.Origin))
	case registry.EventKept:
		return "an older registration " + bySender(e.Origin) + " was not taken over; the lease began anew"
	case registry.EventRenewedLate:
		return fmt.Sprintf("renewed %s after the renewal before", Span(e.For))
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
		if e.By.Reason != "" { // the leader acted
			return "deregistered"
		}
		return "canceled " + bySender(e.Origin)
	case registry.EventEvicted:
		return fmt.Sprintf("evicted %s after the last renewal", Span(e.For))
	}
	return e.Kind.String()
}

// howLong says for how long (ms) an override or quarantine holds.
func howLong(ms int64) string {
	if ms == 0 {
		return "until it is ended"
	}
	return "for " + Span(ms)
}

// ownerLinkOf returns the link from an owner at a moment of the lease clock (ms).
func ownerLinkOf(v *registry.View, now int64, owner string, peers func() api.Peers) ownerLink {
	c := ownerLink{datacenter: owner}
	if owner == "" {
		return c
	}
	var link registry.Link
	if link, c.everHeard = v.Link(owner); c.everHeard {
		c.age, c.cut = max(now-link.LastContact, 0), link.Silent(now)
	}
	if !c.cut {
		return c
	}
	for _, p := range peers().Peers {
		if p.Name == owner && p.Incoming != nil {
			c.policy = p.Incoming.OnCut
		}
	}
	return c
}

// explain is GET /v1/rollcall/apps/{app}/{id}/explain.
func (c call) explain(v web.FreshView) (any, error) {
	key := c.Key()
	e, ok := Explain(v.View, key, Circumstances{
		Health: c.Service.Health(), Alone: c.WithoutConsensus,
		Moved: c.config.Moved,
		Peers: sync.OnceValue(func() api.Peers { return c.PeerStatus(c.R.Context()) }),
	})
	if !ok {
		return nil, &web.Refusal{Status: http.StatusNotFound, Text: fmt.Sprintf("nothing is remembered of %s: it was never registered, or it has been gone for more than 24 hours", key)}
	}
	return e, nil
}
