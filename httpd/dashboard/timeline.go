package dashboard

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"

	g "maragu.dev/gomponents"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/own"
)

// The remembered events of instances are part of the state that all nodes have, so the timeline is the same on each,
// and survives a restart. Only the leaders over time are what this node saw.

// The kinds of entries, as the page of events offers them.
const (
	kindRegistered   = "registered"
	kindStatus       = "status"
	kindCanceled     = "canceled"
	kindEvicted      = "evicted"
	kindAct          = "act"
	kindPreservation = "self-preservation"
	kindLeader       = "leader"
	kindLate         = "renewed late"
)

var timelineKinds = []string{kindRegistered, kindStatus, kindCanceled, kindEvicted, kindAct, kindPreservation, kindLeader, kindLate}

// kindOf returns the kind of an event.
func kindOf(k registry.EventKind) string {
	switch k {
	case registry.EventRenewedLate:
		return kindLate
	case registry.EventStatus, registry.EventMetadata:
		return kindStatus
	case registry.EventCanceled:
		return kindCanceled
	case registry.EventEvicted:
		return kindEvicted
	case registry.EventOverridden, registry.EventOverrideEnded, registry.EventQuarantined, registry.EventQuarantineEnded:
		return kindAct
	}
	return kindRegistered
}

// happening is something that happened.
type happening struct {
	kind string
	key  registry.Key // zero if it concerns no instance
	api.HistoryEvent
}

// timelineFilter selects entries of the timeline, and how many.
type timelineFilter struct {
	app    string       // empty for all
	key    registry.Key // zero for all
	kind   string       // empty for all but late renewals
	author string       // substring in lower case; empty for all
	most   int
}

// mostScanned bounds how many of the newest changes a timeline looks at.
const mostScanned = 20_000

// timeline returns the latest events, newest first.
func (c call) timeline(v *registry.View, f timelineFilter) []happening {
	var found []happening
	if f.key != (registry.Key{}) {
		found = f.entries(f.key, v.History(f.key))
	} else {
		found = c.scanned(v, f)
	}
	if f.app == "" && f.key == (registry.Key{}) {
		found = append(found, f.clusterEntries(v, c.permitted(c.monitor.now(c.R.Context())), c.mayRead(""))...)
	}
	sort.SliceStable(found, func(i, j int) bool { return found[i].At > found[j].At })
	return found[:min(len(found), f.most)]
}

// scanned returns the entries of the most recently changed instances: as many instances as entries are wanted suffice,
// because an instance's last change is not before anything that happened to it.
func (c call) scanned(v *registry.View, f timelineFilter) (found []happening) {
	seen := make(map[registry.Key]bool)
	all := c.mayRead("")
	left, scans := f.most, mostScanned
	var part []string // the selected applications may have changed long ago
	switch {
	case f.app != "":
		part = []string{f.app}
	case !all:
		for app := range v.Apps() {
			part = append(part, app.Name)
		}
		part = slices.DeleteFunc(part, func(app string) bool { return !c.mayRead(app) })
	}
	for _, app := range part {
		for _, l := range leasesOf(v, app) {
			seen[l.Key()] = true
			found = append(found, f.entries(l.Key(), v.History(l.Key()))...)
		}
	}
	for change, past := range v.NewestFirst() {
		key := change.Lease.Key()
		if scans--; left == 0 || scans < 0 {
			break
		}
		if seen[key] || f.app != "" && key.App != f.app || !all && !c.mayRead(key.App) {
			continue
		}
		seen[key] = true
		if entries := f.entries(key, past.Events()); len(entries) > 0 {
			found = append(found, entries...)
			left--
		}
	}
	return found
}

// entries returns the selected events of an instance.
func (f *timelineFilter) entries(key registry.Key, events []registry.Event) (found []happening) {
	for i, shown := range own.History(events) {
		e := happening{kindOf(events[i].Kind), key, shown}
		late := e.kind == kindLate && f.kind == "" && f.key == (registry.Key{})
		if !late && f.wants(&e) {
			found = append(found, e)
		}
	}
	return found
}

func (f *timelineFilter) wants(e *happening) bool {
	return (f.kind == "" || f.kind == e.kind) && (f.author == "" || contains(e.Author, f.author) || contains(e.Says, f.author))
}

// clusterEntries returns the entries about no instance: self-preservation and leaders. counts includes the numbers of
// all leases.
func (f *timelineFilter) clusterEntries(v *registry.View, seen seen, counts bool) (found []happening) {
	for _, p := range v.Transitions() {
		if p.Since.Wall == 0 {
			continue
		}
		words := "self-preservation is " + p.State.String()
		if counts {
			words += fmt.Sprintf(": %d of %d leases in time, %d ended", p.Figures.Fresh, p.Figures.Counted, p.Figures.Expired)
		}
		found = append(found, happening{kind: kindPreservation, HistoryEvent: api.HistoryEvent{
			At: p.Since.Wall, What: p.State.String(), Times: 1, Author: p.By.Author, Reason: p.By.Reason, Says: p.By.Says,
			Text: words,
		}})
	}
	for _, m := range seen.moves {
		words := m.to + " leads"
		if m.to == "" {
			words = "no leader is known; " + m.from + " led"
		}
		found = append(found, happening{kind: kindLeader, HistoryEvent: api.HistoryEvent{At: m.at, What: kindLeader, Text: words, Times: 1}})
	}
	return slices.DeleteFunc(found, func(e happening) bool { return !f.wants(&e) })
}

// timelineTable shows entries.
func (c call) timelineTable(entries []happening) g.Node {
	return table("Nothing is remembered.", []string{"When (UTC)", "What", "Of", "By"}, entries, func(e happening) row {
		of := g.Group{text("the cluster")}
		if e.key != (registry.Key{}) {
			of = g.Group{el("a", attr("href", appPath(e.key.App)), name(e.key.App)), text(" / "), el("a", class("mono"), attr("href", instancePath(e.key)), name(e.key.ID))}
		}
		by := own.By(api.Bounded{Author: cmp.Or(e.Author, "–"), Reason: e.Reason, Says: e.Says})
		return tr(
			td(class("when"), moment(e.At)),
			td(status("kind-"+strings.ReplaceAll(e.kind, " ", "-"), e.kind), text(" "+e.Text), g.If(e.Times > 1, soft(fmt.Sprintf(" %d times", e.Times)))),
			td(of),
			cell("", by))
	})
}

const eventsPerPage = 100

// events is GET /ui/events.
func (c call) events(v *registry.View) (page, error) {
	f := timelineFilter{app: strings.ToUpper(c.Text("app")), kind: c.Text("kind"), author: lower(c.Text("author")), most: eventsPerPage}
	if f.kind != "" && !slices.Contains(timelineKinds, f.kind) {
		c.Refuse("kind must be one of %s", strings.Join(timelineKinds, ", "))
	}
	if c.Err == nil && len(f.app)+len(f.author) > maxQuery {
		c.Refuse("app and author have %d bytes; at most %d are looked for", len(f.app)+len(f.author), maxQuery)
	}
	if c.Err != nil {
		return page{}, c.Err
	}
	if f.app != "" {
		if err := c.Allow(access.Need{Resource: access.App, Name: f.app, Verb: access.Read}); err != nil {
			return page{}, err
		}
	}
	kinds := g.Group{el("option", attr("value", ""), text("everything but late renewals"))}
	for _, kind := range timelineKinds {
		kinds = append(kinds, el("option", attr("value", kind), g.If(kind == f.kind, attr("selected")), text(kind)))
	}
	return page{title: "Events", here: "/ui/events", watch: f.app, content: []g.Node{
		el("h1", text("Events")),
		el("form", class("filters"), attr("action", "/ui/events"), attr("aria-label", "Filters"),
			el("label", text("Application"), el("input", attr("name", "app"), attr("value", f.app), attr("maxlength", "255"))),
			el("label", text("Kind"), el("select", attr("name", "kind"), kinds)),
			el("label", text("Author"), el("input", attr("name", "author"), attr("value", c.R.URL.Query().Get("author")), attr("maxlength", "255"))),
			el("button", text("Show"))),
		c.timelineTable(c.timeline(v, f)),
		el("p", class("soft"), g.Textf("At most %d; of each instance the last %d events are remembered. Who led is as this node saw it.", eventsPerPage, registry.EventsKept)),
	}}, nil
}
