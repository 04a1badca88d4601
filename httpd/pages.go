package httpd

import (
	"cmp"
	_ "embed"
	"fmt"
	"strconv"
	"strings"

	g "maragu.dev/gomponents"
	"maragu.dev/gomponents/html"

	"github.com/seed-20419f34/rollcall/httpd/api"
)

//go:embed assets/style.css
var style string

// pageOf is a page of the dashboard with its style sheet in it: a page needs nothing but itself.
func pageOf(p page, content ...g.Node) g.Node {
	c := p.Cluster
	return html.Doctype(html.HTML(html.Lang("en"),
		html.Head(
			html.Meta(html.Charset("utf-8")),
			html.Meta(html.Name("viewport"), html.Content("width=device-width, initial-scale=1")),
			html.TitleEl(g.Text(p.Title)),
			html.StyleEl(g.Raw(style)),
		),
		html.Body(
			html.Header(html.Div(
				html.H1(html.A(html.Href("/"), g.Text("Rollcall"))),
				html.Span(html.Class("soft"),
					g.Text("node "), html.B(g.Text(c.Node)),
					g.If(c.Datacenter != "", g.Group{g.Text(" in "), html.B(g.Text(c.Datacenter))}),
					g.If(c.Mode != "", g.Text(", "+c.Mode+" mode"))),
				html.Nav(link("/", "Registry"), g.Text(" "), link("/lastn", "Last 1000"), g.Text(" "), link("/metrics", "Metrics")),
			)),
			html.Main(content...),
		),
	))
}

func dashboardPage(p page) g.Node {
	return pageOf(p,
		g.Map(p.Warnings, func(warning string) g.Node {
			return html.Section(html.Class("warning"), html.P(g.Text(warning)))
		}),
		html.Section(html.Class("figures"),
			figure("", p.Instances, "instances"),
			figure("", len(p.Apps), "applications"),
			g.Map(p.Statuses, func(s statusCount) g.Node { return figure(s.Status, s.Count, s.Status) })),
		nodesSection(p.Cluster),
		g.If(len(p.Peers) > 0, peersSection(p)),
		preservingSection(p.Preserving),
		g.If(len(p.Quarantine) > 0, quarantineSection(p.Quarantine)),
		appsSection(p),
		g.Iff(p.Held != nil, func() g.Node { return heldSection(p.Held) }),
		html.Div(html.Class("pair"),
			section("Registered last", "", eventsTable(p.Registered)),
			section("Canceled last", "", eventsTable(p.Canceled))),
		section("This node", "", html.Table(g.Map(p.Self, func(f fact) g.Node { return html.Tr(name(f.Name), cell("", f.Value)) }))),
	)
}

func lastNPage(p page) g.Node {
	return pageOf(p, html.Div(html.Class("pair"),
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
		return html.Tr(name(n.ID), html.Td(status(n.Role, n.Role)), html.Td(html.Code(g.Text(n.HTTP))), html.Td(html.Code(g.Text(n.Cluster))), number(applied))
	}))
}

func peersSection(p page) g.Node {
	aside := ""
	if p.Sender != "" {
		aside = p.Sender + " sends"
	}
	return section("Replication", aside,
		table("", columns("Peer", "Kind", "State", "#Changes behind", "#Time behind", "Last success", "Comes from there"), p.Peers, func(p shownPeer) g.Node {
			return html.Tr(name(p.Name), cell("", p.Kind), html.Td(status("peer-"+p.State, p.State), soft(p.Reason)),
				number(p.LagChanges), number(p.Lag), when(p.LastSuccess), html.Td(incomingCell(p)))
		}),
		html.P(html.Class("soft"), link("/v1/rollcall/peers", "With what was sent, dropped and repaired")))
}

func incomingCell(p shownPeer) g.Node {
	in := p.Incoming
	if in == nil {
		return html.Span(html.Class("soft"), g.Text("what its clients do"))
	}
	heard := "never heard"
	if in.Heard != "" {
		heard = "heard " + in.Heard + " ago"
	}
	cut := g.Group{}
	if in.Cut {
		cut = g.Group{g.Text(" "), status("link-cut", "cut"), g.If(in.Kept > 0, g.Textf(" %d kept although their time has passed", in.Kept)), soft("on cut: " + in.OnCut)}
	}
	return g.Group{g.Textf("%d instances, %s", in.Instances, heard), cut}
}

func preservingSection(p shownPreserving) g.Node {
	return html.Section(g.If(p.Withheld > 0, html.Class("warning")),
		html.H2(g.Text("Self-preservation "), status("preserving-"+p.State, p.State)),
		html.P(g.Text(p.Reason)),
		table("", columns("#Leases", "#Counted", "#Renewed in time", "#Comes on at a share of", "#Ended", "#Withheld", "Since", "Until"), []shownPreserving{p}, func(p shownPreserving) g.Node {
			f := p.Figures
			return html.Tr(number(f.Leases), number(f.Counted), number(f.Fresh), number(p.Threshold), number(f.Expired), number(p.Withheld), when(p.Since), when(p.Until))
		}),
		html.P(html.Class("soft"), link("/v1/rollcall/self-preservation?consistency=stale", "By application, with who is overdue, and earlier transitions")))
}

func quarantineSection(instances []shownQuarantine) g.Node {
	return section("In quarantine", "in no list; their heartbeats are accepted",
		table("", columns("Application", "Instance", "Status", "Until", "By"), instances, func(q shownQuarantine) g.Node {
			return html.Tr(name(q.App), html.Td(html.A(html.Class("mono"), html.Href(q.Explain), g.Text(q.ID))), html.Td(status(q.Status, q.Status)), when(q.Until), cell("", q.By))
		}))
}

func appsSection(p page) g.Node {
	return section("Applications", "as this node has them, index "+p.Index,
		table("No instance is registered.", columns("Application", "#Instances", "Status"), p.Apps, func(app shownApp) g.Node {
			return html.Tr(name(app.Name), number(app.Count), html.Td(g.Map(app.Groups, groupOf)))
		}))
}

func groupOf(group statusGroup) g.Node {
	return html.Div(html.Class("group"),
		status(group.Status, fmt.Sprintf("%s (%d)", group.Status, group.Count)),
		g.Map(group.Instances, func(i linkedInstance) g.Node {
			shown := html.Code(g.Text(i.ID))
			if i.Link != "" {
				shown = html.A(html.Class("mono"), html.Href(i.Link), html.Rel("noreferrer"), g.Text(i.ID))
			}
			return g.Group{
				shown,
				g.If(i.Owner != "", html.Span(html.Class("owner"), html.Title("belongs to datacenter "+i.Owner), g.Text(i.Owner))),
				html.A(html.Class("why"), html.Href(i.Explain), g.Text("why?")), g.Text(" "),
			}
		}),
		g.If(group.More > 0, html.Span(html.Class("soft"), g.Textf("and %d more", group.More))))
}

func heldSection(held *coordinationFacts) g.Node {
	return section("Sessions and locks", fmt.Sprintf("%d sessions, %d keys, as this node has them", held.Sessions, held.Keys),
		table("No session holds anything.", columns("Session", "Name", "Age", "Ends in", "Holds"), held.Holding, func(s holdingSession) g.Node {
			return html.Tr(cell("mono", s.ID), name(s.Name), cell("", s.Age), cell("", cmp.Or(s.EndsIn, "never by itself")), cell("", s.Holds))
		}),
		more(held.MoreHolding),
		table("", columns("Lock or semaphore", "Name", "#Limit", "Held by", "#Waiting", "#Lock-delays"), held.Permits, func(p heldPermits) g.Node {
			return html.Tr(cell("", p.Kind), name(p.Name), number(p.Limit), cell("mono", cmp.Or(p.Holders, "–")), number(p.Waiting), number(p.Delays))
		}),
		more(held.MorePermits),
		html.P(html.Class("soft"), link("/v1/rollcall/sessions?consistency=stale", "All sessions"), g.Text(", "),
			link("/v1/rollcall/locks?consistency=stale", "locks"), g.Text(", "), link("/v1/rollcall/semaphores?consistency=stale", "semaphores")))
}

func eventsTable(events []shownEvent) g.Node {
	return table("None yet.", columns("When (UTC)", "Application", "Instance"), events, func(e shownEvent) g.Node {
		return html.Tr(when(e.At), name(e.App), html.Td(html.Code(g.Text(e.ID))))
	})
}

// section has a heading and, in small letters beside it, what it is about.
func section(title, aside string, content ...g.Node) g.Node {
	return html.Section(html.H2(g.Text(title+" "), g.If(aside != "", html.Small(g.Text(aside)))), g.Group(content))
}

// table shows rows, or the word for none; without a word nothing.
func table[T any](none string, head g.Node, rows []T, row func(T) g.Node) g.Node {
	switch {
	case len(rows) > 0:
		return html.Table(head, g.Map(rows, row))
	case none != "":
		return html.P(html.Class("empty"), g.Text(none))
	default:
		return g.Group{}
	}
}

// columns is a table's first row. The title of a column of numbers begins with #.
func columns(titles ...string) g.Node {
	return html.Tr(g.Map(titles, func(title string) g.Node {
		title, numbers := strings.CutPrefix(title, "#")
		return html.Th(g.If(numbers, html.Class("number")), g.Text(title))
	}))
}

func cell(class, text string) g.Node {
	return html.Td(g.If(class != "", html.Class(class)), g.Text(text))
}

func name(text string) g.Node { return cell("name", text) }

func number(n any) g.Node { return cell("number", fmt.Sprint(n)) }

// when shows a time; empty: there is none.
func when(at string) g.Node { return cell("mono when", cmp.Or(at, "–")) }

func status(class, text string) g.Node {
	return html.Span(html.Class("status "+class), g.Text(text))
}

func soft(text string) g.Node {
	return g.If(text != "", html.Div(html.Class("soft"), g.Text(text)))
}

func more(n int) g.Node {
	return g.If(n > 0, html.P(html.Class("soft"), g.Textf("and %d more", n)))
}

func link(path, text string) g.Node { return html.A(html.Href(path), g.Text(text)) }

func figure(class string, n int, of string) g.Node {
	return html.Div(html.B(g.If(class != "", html.Class(class)), g.Text(strconv.Itoa(n))), html.Span(g.Text(of)))
}
