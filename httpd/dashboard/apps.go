package dashboard

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	g "maragu.dev/gomponents"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// applications is GET /ui/apps: all applications, worst first, or the result of a search.
func (c call) applications(v *registry.View) (page, error) {
	s := c.readSearch()
	filter := c.Text("filter")
	if filter != "" && filter != filterOverdue && filter != filterChanged {
		c.Refuse("filter must be %s or %s", filterOverdue, filterChanged)
	}
	number, _ := c.Number("page")
	if c.Err != nil {
		return page{}, c.Err
	}
	apps := c.readable(c.monitor.tally.of(v, time.Now()))
	all := len(apps)
	rows := s.find(c.R.Context(), apps, v.All(), c.mayRead, c.Datacenter)
	rows = narrowed(rows, filter, c.monitor.overdue(), timeOf(v.Stamp().Wall))
	slices.SortStableFunc(rows, func(a, b found) int { return a.trouble() - b.trouble() })
	p := pageOf(number, len(rows))
	title, total := "Applications", p.String()+", those in trouble first"
	if s.instances() || filter != "" {
		total = fmt.Sprintf("%s (of %s)", p, plural(all, "application"))
	}
	if c.query() != "" {
		title = "Search: " + c.query()
	}
	content := []g.Node{
		el("h1", text(title)),
		c.filterForm(filter),
		el("p", class("total"), attr("role", "status"), text(total)),
		table("", []string{"Application", "Instances", "Last change"}, rows[p.first:p.end], appRow),
		c.pager(p),
	}
	if len(rows) == 0 {
		content = append(content, c.nothingFound(v, &s, filter))
	}
	return page{title: title, here: "/ui/apps", content: content}, nil
}

func appRow(f found) row {
	matches := g.Group{}
	for _, l := range f.first {
		matches = append(matches, el("li", el("a", class("mono"), attr("href", instancePath(l.Key())), name(l.Instance.ID())), text(" "), shownStatus(l)))
	}
	return tr(
		named(el("a", attr("href", appPath(f.Name)), name(f.Name)), g.If(len(matches) > 0, el("ul", class("matches"), matches)), more(f.matches-len(f.first))),
		td(counts(&f.appCount)),
		td(class("when"), moment(f.Changed)))
}

// filterForm narrows the list. The search terms stay.
func (c call) filterForm(filter string) g.Node {
	now := *c.Call
	option := func(value, words, chosen string) g.Node {
		return el("option", attr("value", value), g.If(value == chosen, attr("selected")), text(words))
	}
	statuses := g.Group{option("", "any status", now.Text("status"))}
	for _, s := range statusOrder {
		statuses = append(statuses, option(s.String(), s.String(), now.Text("status")))
	}
	field := func(name, words string) g.Node {
		return el("label", text(words), el("input", attr("name", name), attr("value", now.Text(name)), attr("size", "12"), attr("maxlength", "255")))
	}
	return el("form", class("filters"), attr("action", "/ui/apps"), attr("aria-label", "Filters"),
		el("label", text("Search"), el("input", attr("type", "search"), attr("name", "q"), attr("value", c.query()), attr("maxlength", strconv.Itoa(maxQuery)),
			attr("placeholder", "name, id, host, address, VIP, zone=b"))),
		el("label", text("Status"), el("select", attr("name", "status"), statuses)),
		field("zone", "Zone"), field("dc", "Datacenter"),
		el("label", text("Only"), el("select", attr("name", "filter"),
			option("", "all", filter), option(filterChanged, "changed within an hour", filter), option(filterOverdue, "with overdue leases", filter))),
		el("button", text("Show")))
}

// nothingFound says what a search without a result means: a removed instance may still be known.
func (c call) nothingFound(v *registry.View, s *search, filter string) g.Node {
	if !s.instances() {
		if filter != "" {
			return el("p", class("empty"), text("None."))
		}
		return c.firstSteps()
	}
	leases := s.gone(v, c.mayRead)
	words := "Nothing that is registered is called so, and nothing that was removed within a day."
	if len(leases) > 0 {
		words = "Nothing that is registered is called so. These were removed:"
	}
	return g.Group{el("p", class("empty"), text(words)),
		el("ul", g.Map(leases, func(l *registry.Lease) g.Node {
			return el("li", link(instancePath(l.Key()), l.Key().String()), text(" at "), moment(l.EvictedAt))
		})),
		g.If(strings.Contains(c.query(), "="), el("p", class("soft"), text("A pair such as zone=b is compared with the metadata, and the value must be equal.")))}
}
