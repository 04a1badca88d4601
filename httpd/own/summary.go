package own

import (
	"fmt"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
)

// summaryInput is what a summary needs beside the instance itself.
type summaryInput struct {
	health   registry.Health
	settings registry.Settings
	alone    bool // each node decides on its own, without a leader
	owner    ownerLink
	// uncounted is how much (ms) the lease clock has fallen behind the wall clock since the last renewal: it stood
	// still, or the wall clock was set.
	uncounted int64
}

// summaryOf answers what an operator asks at night about a live instance: is it shown, with which status and by whose
// act, is it alive, and if not, why is it still there.
func summaryOf(e *api.Explanation, c summaryInput) string {
	name := e.App + "/" + e.ID
	sentences := []string{fmt.Sprintf("%s is listed as %s.", name, e.Status)}
	if q := e.Quarantine; q != nil {
		sentences[0] = fmt.Sprintf("%s is in quarantine until %s, by %s: it is in no list, and its heartbeats are accepted.", name, shownTime(q.Until), By(*q))
	}
	if e.Override != nil {
		sentences = append(sentences, overrideSentence(e))
	}
	sentences = append(sentences, leaseSentence(e, c))
	if c.owner.datacenter != "" {
		sentences = append(sentences, c.owner.sentence())
	}
	if e.Expired && !c.owner.keeps() {
		sentences = append(sentences, whyStill(e, c))
	}
	if e.Clock == "applied" {
		sentences = append(sentences, "These times are of the newest entry that this node applied, up to 2s old while a leader serves.")
	}
	return strings.Join(sentences, " ")
}

func overrideSentence(e *api.Explanation) string {
	o := e.Override
	text := fmt.Sprintf("%s is forced by an override of which no more is known", o.Status)
	if o.Since != 0 {
		text = fmt.Sprintf("%s is forced since %s, by %s", o.Status, shownTime(o.Since), By(o.Bounded))
	}
	switch {
	case o.Drain && o.Until != 0:
		text += ", until its client starts again, but at least until " + shownTime(o.Until)
	case o.Drain:
		text += ", until its client starts again"
	case o.Until != 0:
		text += ", until " + shownTime(o.Until)
	}
	if e.Reported != "" {
		text += "; the instance itself reports " + e.Reported
	}
	return text + "."
}

// By names the author of an act, and the reason if one was given.
func By(by api.Bounded) string {
	author := by.Author
	if author == "" {
		author = "a client of Eureka's API"
	}
	if by.Says != "" {
		author += " as " + by.Says
	}
	if by.Reason == "" {
		return author
	}
	return author + " (" + by.Reason + ")"
}

func leaseSentence(e *api.Explanation, c summaryInput) string {
	if e.Permanent {
		return "It has no lease: it was registered through Consul's API, and stays until it is deregistered."
	}
	renewed := fmt.Sprintf("It was last renewed %s ago, at %s", Span(e.SilentMS), shownTime(e.LastRenewal))
	if c.uncounted >= seenByPeople {
		renewed += fmt.Sprintf(" (%s more by the wall clock: %s counts for no lease)", Span(c.uncounted), uncounted(c))
	}
	lease := fmt.Sprintf("its lease of %ds", e.LeaseSeconds)
	if more := e.SilentMS + e.ExpiresInMS - int64(e.LeaseSeconds)*1000; more > 0 {
		lease += fmt.Sprintf(", prolonged by %s %s,", Span(more), whyProlonged(c))
	}
	if e.Expired {
		return fmt.Sprintf("%s, and %s ended %s ago, at %s.", renewed, lease, Span(-e.ExpiresInMS), shownTime(e.ExpiresAt))
	}
	return fmt.Sprintf("%s; unless it is renewed %s ends in %s, at %s.", renewed, lease, Span(e.ExpiresInMS), shownTime(e.ExpiresAt))
}

// seenByPeople is the smallest difference (ms) between two clocks that is shown.
const seenByPeople = 2000

func uncounted(c summaryInput) string {
	if c.alone {
		return "time in which this node did not run"
	}
	return "time without a leader"
}

func whyProlonged(c summaryInput) string {
	switch {
	case c.owner.datacenter != "":
		return "because it belongs to another datacenter"
	case c.alone:
		return "after the start of this node or by eureka-compat.doubled-lease"
	}
	return "after a change of leader or by eureka-compat.doubled-lease"
}

// whyStill says why an instance whose lease has ended was not evicted.
func whyStill(e *api.Explanation, c summaryInput) string {
	switch {
	case e.SelfPreservation.Withholds:
		return "It is not evicted because evictions are withheld. " + e.SelfPreservation.Reason
	case c.alone && !c.health.Ready:
		return "It is not evicted because this node is still loading its state."
	case !c.health.Quorum:
		return "It is not evicted because there is no leader that this node knows, and without one nothing changes."
	case c.settings.Threshold >= registry.Whole:
		return "It is not evicted because self-preservation.renewal-percent-threshold is 1, which leaves nothing for an eviction round to take."
	case c.alone && c.health.Suspended:
		return "It is not evicted yet because this node became ready too short a time ago to know which instances are alive."
	case c.health.Leads && c.health.Suspended:
		return "It is not evicted yet because the leader is too young to know which instances are alive."
	}
	return "It goes with one of the next eviction rounds, each of which takes a part of the registry."
}

// removalSummary says when and why a removed instance went.
func removalSummary(e *api.Explanation, history []registry.Event) string {
	text := fmt.Sprintf("%s/%s is gone: it was canceled at %s", e.App, e.ID, shownTime(e.Removed.At))
	if e.Removed.Kind == "evicted" {
		text = fmt.Sprintf("%s/%s is gone: its lease ended, and it was evicted at %s", e.App, e.ID, shownTime(e.Removed.At))
	}
	for _, last := range history[max(len(history)-1, 0):] { // what the event of the removal knows about it
		switch {
		case last.Kind == registry.EventEvicted:
			if last.For > 0 {
				text += fmt.Sprintf(", %s after its last renewal", Span(last.For))
			}
			if last.By.Reason != "" {
				text += " (" + last.By.Reason + ")"
			}
		case last.Kind == registry.EventCanceled && last.By.Reason != "":
			text += ", because " + last.By.Reason
		case last.Kind == registry.EventCanceled:
			text += " " + bySender(last.Origin)
		}
	}
	if o := e.Override; o != nil {
		until := e.Removed.At + registry.MaxRemovalAge
		if o.Until != 0 {
			until = min(until, o.Until)
		}
		text += fmt.Sprintf(". If it registers before %s it is %s, by %s", shownTime(until), o.Status, By(o.Bounded))
	}
	if q := e.Quarantine; q != nil {
		text += fmt.Sprintf(". If it registers before %s it is in quarantine, by %s", shownTime(q.Until), By(*q))
	}
	return text + "."
}

// bySender names the sender of an operation.
func bySender(o registry.Origin) string {
	switch o.Kind {
	case registry.LocalPeer:
		return "by another node" + inBrackets(o.Principal)
	case registry.RemoteDC:
		return "by a server of datacenter " + o.DC + inBrackets(o.Principal)
	}
	if o.Principal != "" {
		return "by " + o.Principal
	}
	return "by a client"
}

func inBrackets(principal string) string {
	if principal == "" {
		return ""
	}
	return " (" + principal + ")"
}

// ownerLink is what people are told about the link from an instance's owner.
type ownerLink struct {
	datacenter string // empty for this one, which needs no link
	everHeard  bool   // has ever been heard from
	age        int64  // ms of lease clock since it was last heard
	cut        bool
	policy     string // replication.on-cut of the peer, as Peers words it; empty if unknown
}

// keeps reports whether the owner's leases are kept although their time has passed.
func (c ownerLink) keeps() bool {
	limit, bounded := strings.CutPrefix(c.policy, "keep for ")
	if !c.cut || !bounded {
		return c.cut && c.policy == "keep"
	}
	d, err := time.ParseDuration(limit)
	return err == nil && c.age <= d.Milliseconds()
}

// sentence names the datacenter that owns an instance, and says what happens to the lease while the link is cut.
func (c ownerLink) sentence() string {
	belongs := "It belongs to datacenter " + c.datacenter
	switch {
	case !c.everHeard:
		return belongs + ", of which nothing was heard yet."
	case !c.cut:
		return fmt.Sprintf("%s, last heard %s ago.", belongs, Span(c.age))
	case c.keeps():
		return fmt.Sprintf("%s, last heard %s ago: while the link is cut its lease is kept (replication.on-cut: %s).", belongs, Span(c.age), c.policy)
	case c.policy == "":
		return fmt.Sprintf("%s, last heard %s ago: the link is cut.", belongs, Span(c.age))
	}
	return fmt.Sprintf("%s, last heard %s ago: the link is cut, and its lease ends all the same (replication.on-cut: %s).", belongs, Span(c.age), c.policy)
}
