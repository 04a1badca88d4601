package dashboard

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	g "maragu.dev/gomponents"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/order"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/consul"
	"github.com/seed-20419f34/rollcall/httpd/own"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// application is GET /ui/apps/{app}.
func (c call) application(v *registry.View) (page, error) {
	number, _ := c.Number("page")
	name := registry.NewKey(c.Segment("app"), "").App
	if c.Err != nil {
		return page{}, c.Err
	}
	leases := leasesOf(v, name)
	counted := appCount{Name: name}
	for _, l := range leases {
		if l.Quarantine == nil {
			counted.Counts[l.Instance.Status]++
			counted.Total++
		}
	}
	at := c.monitor.clock(v)
	p := pageOf(number, len(leases))
	content := []g.Node{
		el("h1", text(name)),
		counts(&counted),
		c.doneNotice(),
		table("No instance is registered under this name.", []string{"Instance", "Status", "Address", "Zone", "Lease", "Belongs to"}, leases[p.first:p.end],
			func(l *registry.Lease) row { return c.leaseRow(v, at, l) }),
		c.pager(p),
		el("p", class("soft"), text(p.String()), text(". "), link(withQuery("/ui/raw/app", "app", name), "As JSON")),
		section("What happened", "newest first", c.timelineTable(c.timeline(v, timelineFilter{app: name, most: rowsPerPage}))),
		c.watchersSection(name),
	}
	return page{title: name, here: "/ui/apps", watch: name, content: content}, nil
}

func (c call) leaseRow(v *registry.View, at own.Clock, l *registry.Lease) row {
	i, zone := l.Instance, ""
	// Eureka's and Spring Cloud's clients use this key.
	if at := slices.IndexFunc(i.Metadata, func(p registry.Pair) bool { return p.Key == "zone" }); at >= 0 {
		zone = i.Metadata[at].Value
	}
	return tr(
		named(el("a", class("mono"), attr("href", instancePath(l.Key())), name(i.ID()))),
		td(shownStatus(l), g.If(i.Overridden != registry.Unknown, soft(" forced"))),
		td(code(order.CutText(address(i), 100))),
		cell("", dash(zone)),
		td(leaseBar(v, at, l)),
		td(g.If(l.Owner != "", attr("title", "belongs to datacenter "+l.Owner)), text(dash(cmp.Or(l.Owner, c.Datacenter)))))
}

// address returns where an instance is called.
func address(i *registry.Instance) string {
	host := cmp.Or(i.HostName, i.IPAddr)
	if port := cmp.Or(i.Port.Open(), i.SecurePort.Open()); port != 0 {
		return fmt.Sprintf("%s:%d", host, port)
	}
	return host
}

// leaseBar shows the rest of a lease. A script lets it shrink.
func leaseBar(v *registry.View, at own.Clock, l *registry.Lease) g.Node {
	if l.Permanent {
		return soft("none: it stays")
	}
	ends, length := v.Ends(l)-at.Now, int64(l.Duration)*1000
	left := 100 * math.Max(0, math.Min(1, float64(ends)/float64(max(length, 1))))
	style, words := "fill UP", own.Span(ends/1000*1000)+" left"
	switch {
	case ends < 0:
		style, words = "fill DOWN", "ended "+own.Span(-ends/1000*1000)+" ago"
	case left < 34:
		style = "fill STARTING"
	}
	return el("span", class("lease"), attr("data-ends", fmt.Sprint(ends)), attr("data-length", fmt.Sprint(length)),
		el("svg", class("bar"), attr("viewBox", "0 0 100 6"), attr("preserveAspectRatio", "none"), attr("aria-hidden", "true"),
			el("rect", class(style), attr("width", decimal(left)), attr("height", "6"))),
		el("span", text(words)))
}

// watchersSection shows the programs that watch an application on this node. No node knows the watchers of another:
// the other nodes' own pages show them.
func (c call) watchersSection(app string) g.Node {
	all := c.Watches.Of(app)
	shown := all[:min(len(all), rowsPerPage)]
	links := g.Group{}
	for _, n := range c.permitted(c.monitor.now(c.R.Context())).status.Nodes {
		if n.ID != c.Name && n.HTTP != "" {
			links = append(links, link(c.scheme()+"://"+n.HTTP+appPath(app), n.ID), text(" "))
		}
	}
	return section("Watched by", plural(len(all), "program")+" on "+c.Name+"; each node knows its own only",
		table("No program watches it by its name on this node. Those that poll, or watch everything, are not shown here.", []string{"Program", "From", "Since (UTC)"}, shown, func(w web.Watcher) row {
			return tr(named(text(dash(w.Agent))), td(code(w.From)), td(class("when"), moment(c.World.Wall(w.Since).UnixMilli())))
		}), more(len(all)-len(shown)), g.If(len(links) > 0, el("p", class("soft"), text("Those of other nodes: "), links)))
}

// instance is GET /ui/apps/{app}/{id}.
func (c call) instance(v *registry.View) (page, error) {
	key := c.Key()
	e, known := own.Explain(v, key, own.Circumstances{
		Health: c.Service.Health(), Alone: c.WithoutConsensus, Moved: c.config.Moved, Peers: func() api.Peers { return c.monitor.now(c.R.Context()).peers },
	})
	if !known {
		return page{title: key.String(), here: "/ui/apps", content: []g.Node{
			el("h1", text(key.String())),
			el("p", class("empty"), text("Nothing is remembered of it: it was never registered, or it has been gone for more than 24 hours.")),
			el("p", link(appPath(key.App), key.App)),
		}}, nil
	}
	content := []g.Node{
		el("p", class("crumbs"), link(appPath(key.App), key.App), text(" / "), code(key.ID)),
		el("h1", class("sentence"), text(e.Summary)),
		c.doneNotice(),
	}
	if l, live := v.Find(key); live {
		var metadata []fact
		for _, p := range l.Instance.Metadata {
			metadata = append(metadata, fact{p.Key, code(p.Value)})
		}
		content = append(content, c.polledUntil(v, l), c.instanceActs(l), c.leaseSection(v, l, e.Reported), c.checksSection(v, l),
			g.If(metadata != nil, section("Metadata", "", factsTable(metadata))))
	}
	content = append(content,
		section("What happened", "newest first", c.timelineTable(c.timeline(v, timelineFilter{key: key, most: registry.EventsKept}))),
		el("p", link(withQuery("/ui/raw/instance", "app", key.App, "id", key.ID), "As JSON")))
	return page{title: key.String(), here: "/ui/apps", watch: key.App, content: content}, nil
}

// leaseSection shows the lease, and the instance's reported status if another one is shown.
func (c call) leaseSection(v *registry.View, l *registry.Lease, reports string) g.Node {
	at := c.monitor.clock(v)
	i := l.Instance
	shown := own.Instance(v, at, l)
	rows := []fact{
		{"Status", shownStatus(l)},
		{"Lease", g.Group{leaseBar(v, at, l), g.Textf(" of %d s, to be renewed every %d s", l.Duration, l.Interval)}},
		{"Last renewal", moment(shown.LastRenewal)},
		{"Registered", moment(l.RegisteredAt)},
		{"Address", g.Group{code(address(i)), g.If(i.IPAddr != "" && i.IPAddr != i.HostName, g.Group{text(" "), code(i.IPAddr)})}},
		{"VIP", code(dash(i.VIP))},
		{"Belongs to", text(dash(cmp.Or(l.Owner, c.Datacenter)))},
	}
	if reports != "" && reports != shown.Status {
		rows = append(rows, fact{"It reports", status(reports, reports)})
	}
	if o := shown.Override; o != nil {
		rows = append(rows, fact{"Forced", g.Group{status(o.Status, o.Status), g.If(o.Since != 0, g.Group{text(" by " + own.By(o.Bounded) + " since "), moment(o.Since)}),
			g.If(o.Until != 0, g.Group{text(" until "), moment(o.Until)}), g.If(o.Drain && o.Until != 0, text(" and")), g.If(o.Drain, text(" until its client starts again"))}})
	}
	if q := l.Quarantine; q != nil {
		by := own.Quarantine(q, at)
		rows = append(rows, fact{"Quarantine", g.Group{text("by " + own.By(*by) + " until "), moment(by.Until)}})
	}
	for _, page := range []struct{ words, url string }{{"Home page", i.HomePageURL}, {"Status page", i.StatusPageURL}, {"Health check", i.HealthCheckURL}} {
		// Only web addresses become links: an instance's own statements are not trusted.
		if to := strings.ToLower(page.url); strings.HasPrefix(to, "http://") || strings.HasPrefix(to, "https://") {
			rows = append(rows, fact{page.words, el("a", attr("href", page.url), attr("rel", "noreferrer"), text(page.url))})
		}
	}
	return section("Lease and address", "", factsTable(rows))
}

// checksSection shows the checks registered through Consul's API, including those of the instance's node.
func (c call) checksSection(v *registry.View, l *registry.Lease) g.Node {
	if l.Service == nil {
		return g.Group{}
	}
	checks := slices.Clone(l.Service.Checks)
	if node, there := v.Node(l.Service.Node); there {
		checks = append(checks, node.Checks...)
	}
	return section("Checks", "", table("None was registered.", []string{"Check", "Status", "Kind", "Says"}, checks, func(k *catalog.Check) row {
		app := ""
		switch {
		case k.Alias != nil:
			app = web.Everything
		case k.Service != "":
			app = l.Key().App
		}
		return tr(named(code(k.ID), g.If(k.Name != "" && k.Name != k.ID, g.Group{text(" "), soft(k.Name)})),
			td(status("check-"+consul.StatusWord(k.Status), consul.StatusWord(k.Status))), cell("", dash(k.Type)), td(code(dash(order.CutText(consul.OutputOf(k, c.ShowsAnswers(v, app)), 500)))))
	}))
}

// instanceActs returns the buttons of an instance's page.
func (c call) instanceActs(l *registry.Lease) g.Node {
	names := []string{"drain", "override", "quarantine", "cancel"}
	if l.Instance.Overridden != registry.Unknown {
		names = append(names, "end-override")
	}
	if l.Quarantine != nil {
		names = append(names, "end-quarantine")
	}
	key := l.Key()
	return c.buttons(names, "app", key.App, "id", key.ID)
}
