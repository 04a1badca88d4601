package dashboard

import (
	"cmp"
	_ "embed" // the style sheet
	"fmt"
	"strconv"
	"strings"

	g "maragu.dev/gomponents"
	"maragu.dev/gomponents/html"

	"github.com/seed-20419f34/rollcall/httpd/api"
)

// el, attr and text are called through variables: inlined, each call would bring closures of its own, 130 kB of program.
var (
	el   = g.El
	attr = g.Attr
	text = g.Text
)

func class(name string) g.Node { return attr("class", name) }

//go:embed assets/style.css
var style string

// pageOf is a page of the dashboard with its style sheet in it: a page needs nothing but itself.
func pageOf(p page, content ...g.Node) g.Node {
	c := p.Cluster
	return html.Doctype(el("html", attr("lang", "en"),
		el("head",
			el("meta", attr("charset", "utf-8")),
			el("meta", attr("name", "viewport"), attr("content", "width=device-width, initial-scale=1")),
			el("title", text(p.Title)),
			el("style", g.Raw(style)),
		),
		el("body",
			el("header", el("div",
				el("h1", el("a", attr("href", "/"), text("Rollcall"))),
				el("span", class("soft"),
					text("node "), el("b", text(c.Node)),
					g.If(c.Datacenter != "", g.Group{text(" in "), el("b", text(c.Datacenter))}),
					g.If(c.Mode != "", text(", "+c.Mode+" mode"))),
				el("nav", link("/", "Registry"), text(" "), link("/lastn", "Last 1000"), text(" "), link("/metrics", "Metrics")),
			)),
			el("main", content...),
		),
	))
}

func frontPage(p page) g.Node {
	return pageOf(p,
		g.Map(p.Warnings, func(warning string) g.Node {
			return el("section", class("warning"), el("p", text(warning)))
		}),
		el("section", class("figures"),
			figure("", p.Instances, "instances"),
			figure("", len(p.Apps), "applications"),
			g.Map(p.Statuses, func(s statusCount) g.Node { return figure(s.Status, s.Count, s.Status) })),
		nodesSection(p.Cluster),
		g.If(len(p.Peers) > 0, peersSection(p)),
		preservingSection(p.Preserving),
		g.If(len(p.Quarantine) > 0, quarantineSection(p.Quarantine)),
		appsSection(p),
		g.Iff(p.Held != nil, func() g.Node { return heldSection(p.Held) }),
		el("div", class("pair"),
			section("Registered last", "", eventsTable(p.Registered)),
			section("Canceled last", "", eventsTable(p.Canceled))),
		section("This node", "", el("table", g.Map(p.Self, func(f fact) g.Node { return el("tr", name(f.Name), cell("", f.Value)) }))),
	)
}

func lastNPage(p page) g.Node {
	return pageOf(p, el("div", class("pair"),
		section("Registered last", "newest first, re-registrations included", eventsTable(p.Registered)),
		section("Canceled last", "newest first, evictions included", eventsTable(p.Canceled))))
}

func nodesSection(c api.Status) g.Node {
	aside := ""
	if c.ClusterID != "" {
		aside = "cluster " + c.ClusterID
		if c.Term != 0 {
			aside += fmt.Sprint(", term ", c.Term)
		}
	}
	return section("Nodes", aside, table("This node runs alone.", columns("Node", "Role", "HTTP", "Node-to-node", "#Applied"), c.Nodes, func(n api.NodeStatus) g.Node {
		applied := "–"
		if n.Applied != 0 {
			applied = strconv.FormatUint(n.Applied, 10)
		}
		return el("tr", name(n.ID), el("td", status(n.Role, n.Role)), el("td", el("code", text(n.HTTP))), el("td", el("code", text(n.Cluster))), number(applied))
	}))
}

func peersSection(p page) g.Node {
	aside := ""
	if p.Sender != "" {
		aside = p.Sender + " sends"
	}
	return section("Replication", aside,
		table("", columns("Peer", "Kind", "State", "#Changes behind", "#Time behind", "Last success", "Comes from there"), p.Peers, func(p shownPeer) g.Node {
			return el("tr", name(p.Name), cell("", p.Kind), el("td", status("peer-"+p.State, p.State), soft(p.Reason)),
				number(p.LagChanges), number(p.Lag), when(p.LastSuccess), el("td", incomingCell(p)))
		}),
		el("p", class("soft"), link("/v1/rollcall/peers", "With what was sent, dropped and repaired")))
}

func incomingCell(p shownPeer) g.Node {
	in := p.Incoming
	if in == nil {
		return el("span", class("soft"), text("what its clients do"))
	}
	contact := "never heard"
	if in.Heard != "" {
		contact = "heard " + in.Heard + " ago"
	}
	cut := g.Group{}
	if in.Cut {
		cut = g.Group{text(" "), status("link-cut", "cut"), g.If(in.Kept > 0, g.Textf(" %d kept although their time has passed", in.Kept)), soft("on cut: " + in.OnCut)}
	}
	return g.Group{g.Textf("%d instances, %s", in.Instances, contact), cut}
}

func preservingSection(p shownPreserving) g.Node {
	return el("section", g.If(p.Withheld > 0, class("warning")),
		el("h2", text("Self-preservation "), status("preserving-"+p.State, p.State)),
		el("p", text(p.Reason)),
		table("", columns("#Leases", "#Counted", "#Renewed in time", "#Comes on at a share of", "#Ended", "#Withheld", "Since", "Until"), []shownPreserving{p}, func(p shownPreserving) g.Node {
			f := p.Figures
			return el("tr", number(f.Leases), number(f.Counted), number(f.Fresh), number(p.Threshold), number(f.Expired), number(p.Withheld), when(p.Since), when(p.Until))
		}),
		el("p", class("soft"), link("/v1/rollcall/self-preservation?consistency=stale", "By application, with overdue instances, and earlier transitions")))
}

func quarantineSection(instances []shownQuarantine) g.Node {
	return section("In quarantine", "in no list; their heartbeats are accepted",
		table("", columns("Application", "Instance", "Status", "Until", "By"), instances, func(q shownQuarantine) g.Node {
			return el("tr", name(q.App), el("td", el("a", class("mono"), attr("href", q.Explain), text(q.ID))), el("td", status(q.Status, q.Status)), when(q.Until), cell("", q.By))
		}))
}

func appsSection(p page) g.Node {
	return section("Applications", "as this node has them, index "+p.Index,
		table("No instance is registered.", columns("Application", "#Instances", "Status"), p.Apps, func(app shownApp) g.Node {
			return el("tr", name(app.Name), number(app.Count), el("td", g.Map(app.Groups, groupOf)))
		}))
}

func groupOf(group statusGroup) g.Node {
	return el("div", class("group"),
		status(group.Status, fmt.Sprintf("%s (%d)", group.Status, group.Count)),
		g.Map(group.Instances, func(i linkedInstance) g.Node {
			shown := el("code", text(i.ID))
			if i.Link != "" {
				shown = el("a", class("mono"), attr("href", i.Link), attr("rel", "noreferrer"), text(i.ID))
			}
			return g.Group{
				shown,
				g.If(i.Owner != "", el("span", class("owner"), attr("title", "belongs to datacenter "+i.Owner), text(i.Owner))),
				el("a", class("why"), attr("href", i.Explain), text("why?")), text(" "),
			}
		}),
		g.If(group.More > 0, el("span", class("soft"), g.Textf("and %d more", group.More))))
}

func heldSection(held *coordinationFacts) g.Node {
	return section("Sessions and locks", fmt.Sprintf("%d sessions, %d keys, as this node has them", held.Sessions, held.Keys),
		table("No session holds anything.", columns("Session", "Name", "Age", "Ends in", "Holds"), held.Holding, func(s holdingSession) g.Node {
			return el("tr", cell("mono", s.ID), name(s.Name), cell("", s.Age), cell("", cmp.Or(s.EndsIn, "never by itself")), cell("", s.Holds))
		}),
		more(held.MoreHolding),
		table("", columns("Lock or semaphore", "Name", "#Limit", "Held by", "#Waiting", "#Lock-delays"), held.Permits, func(p heldPermits) g.Node {
			return el("tr", cell("", p.Kind), name(p.Name), number(p.Limit), cell("mono", cmp.Or(p.Holders, "–")), number(p.Waiting), number(p.Delays))
		}),
		more(held.MorePermits),
		el("p", class("soft"), link("/v1/rollcall/sessions?consistency=stale", "All sessions"), text(", "),
			link("/v1/rollcall/locks?consistency=stale", "locks"), text(", "), link("/v1/rollcall/semaphores?consistency=stale", "semaphores")))
}

func eventsTable(events []shownEvent) g.Node {
	return table("None yet.", columns("When (UTC)", "Application", "Instance"), events, func(e shownEvent) g.Node {
		return el("tr", when(e.At), name(e.App), el("td", el("code", text(e.ID))))
	})
}

// section has a heading and, in small letters beside it, what it is about.
func section(title, aside string, content ...g.Node) g.Node {
	return el("section", el("h2", text(title+" "), g.If(aside != "", el("small", text(aside)))), g.Group(content))
}

// table shows rows, or the word for none; without a word nothing.
func table[T any](none string, head g.Node, rows []T, row func(T) g.Node) g.Node {
	switch {
	case len(rows) > 0:
		return el("table", head, g.Map(rows, row))
	case none != "":
		return el("p", class("empty"), text(none))
	default:
		return g.Group{}
	}
}

// columns is a table's first row. The title of a column of numbers begins with #.
func columns(titles ...string) g.Node {
	return el("tr", g.Map(titles, func(title string) g.Node {
		title, numbers := strings.CutPrefix(title, "#")
		return el("th", g.If(numbers, class("number")), text(title))
	}))
}

func cell(style, words string) g.Node {
	return el("td", g.If(style != "", class(style)), text(words))
}

func name(words string) g.Node { return cell("name", words) }

func number(n any) g.Node { return cell("number", fmt.Sprint(n)) }

// when shows a time; empty: there is none.
func when(at string) g.Node { return cell("mono when", cmp.Or(at, "–")) }

func status(style, words string) g.Node {
	return el("span", class("status "+style), text(words))
}

func soft(words string) g.Node {
	return g.If(words != "", el("div", class("soft"), text(words)))
}

func more(n int) g.Node {
	return g.If(n > 0, el("p", class("soft"), g.Textf("and %d more", n)))
}

func link(path, words string) g.Node { return el("a", attr("href", path), text(words)) }

func figure(style string, n int, of string) g.Node {
	return el("div", el("b", g.If(style != "", class(style)), text(strconv.Itoa(n))), el("span", text(of)))
}
