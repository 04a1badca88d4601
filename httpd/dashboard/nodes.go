package dashboard

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	g "maragu.dev/gomponents"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/own"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// nodes is GET /ui/nodes.
func (c call) nodes(v *registry.View) (page, error) {
	seen := c.monitor.now(c.R.Context())
	s := seen.status
	titles := []string{"Node", "Role", "Zone", "Version", "Last contact", "#Entries behind", "#Disk free", "Addresses", "Acts"}
	memory := web.ReadMemory()
	self := []fact{ // what upstream's dashboard calls general info
		{"Version", text(c.Version)},
		{"Uptime", text(web.Uptime(time.Since(c.Started)))},
		{"Reads of Eureka clients", text(string(c.Reads))},
		{"Memory in use", text(memory.Usage())},
		{"Metrics", link("/ui/raw/metrics", "/metrics")},
		{"Settings in force", link("/ui/raw/settings", "as JSON")},
	}
	content := []g.Node{
		el("h1", text("Nodes")),
		c.doneNotice(),
		drawing(s, c.Name),
		table("", titles, s.Nodes, c.nodeRow),
		g.If(s.ClusterID != "", el("p", class("soft"), text("Cluster "+s.ClusterID), g.If(s.Term != 0, text(", term "+strconv.FormatUint(s.Term, 10))))),
		section("This node", c.Name, factsTable(self)),
	}
	return page{title: "Nodes", here: "/ui/nodes", content: content}, nil
}

func (c call) nodeRow(n api.NodeStatus) row {
	contact := "–"
	switch {
	case n.Role == "leader" || n.ID == c.Name:
	case n.Contact > 0:
		contact = own.Span(n.Contact) + " ago"
	}
	disk := "–"
	if n.DiskFree > 0 {
		disk = shownBytes(n.DiskFree)
	}
	title := g.Node(el("b", text(n.ID)))
	if n.HTTP != "" && n.ID != c.Name {
		title = link(c.scheme()+"://"+n.HTTP+"/", n.ID)
	}
	acts := g.Node(g.Group{})
	if c.config.Members && !c.WithoutConsensus {
		names := []string{"remove-node"}
		if n.Voter && n.Role == "follower" {
			names = []string{"transfer", "remove-node"}
		}
		acts = c.buttons(names, "node", n.ID)
	}
	return tr(
		named(title, g.If(n.ID == c.Name, soft(" this one"))),
		td(status("role-"+n.Role, n.Role)),
		cell("", dash(n.Zone)), cell("", dash(n.Version)), cell("", contact), number(n.Lag), cell("number", disk),
		td(code(dash(n.HTTP)), g.If(n.Cluster != "", g.Group{text(" "), code(n.Cluster)})),
		td(acts))
}

// Size of the drawing of the nodes, in its own units.
const (
	drawnWidth  = 480.0
	drawnHeight = 200.0
)

// drawing draws the nodes in a ring, with each link from the leader, or between all, broken where a node does not
// answer.
func drawing(s api.Status, here string) g.Node {
	n := len(s.Nodes)
	if n < 2 {
		return g.Group{}
	}
	at := func(i int) (x, y float64) {
		angle := 2*math.Pi*float64(i)/float64(n) - math.Pi/2
		return drawnWidth/2 + 0.38*drawnWidth*math.Cos(angle), drawnHeight/2 + 10 + 0.33*drawnHeight*math.Sin(angle)
	}
	hub := slices.IndexFunc(s.Nodes, func(n api.NodeStatus) bool { return n.Role == "leader" })
	var lines, circles g.Group
	for i := range n {
		for j := range i {
			if hub >= 0 && i != hub && j != hub {
				continue
			}
			x1, y1 := at(i)
			x2, y2 := at(j)
			style := "wire"
			if !s.Nodes[i].Answers() || !s.Nodes[j].Answers() || hub < 0 && s.Condition == "leaderless" {
				style = "wire broken"
			}
			lines = append(lines, el("line", class(style), attr("x1", decimal(x1)), attr("y1", decimal(y1)), attr("x2", decimal(x2)), attr("y2", decimal(y2))))
		}
		x, y := at(i)
		m, name := s.Nodes[i], y+32
		if y < drawnHeight/2 { // away from the middle, where the links are
			name = y - 24
		}
		circles = append(circles, el("circle", class("dot role-"+m.Role), attr("cx", decimal(x)), attr("cy", decimal(y)), attr("r", "16")),
			el("text", attr("x", decimal(x)), attr("y", decimal(name)), attr("text-anchor", "middle"), text(shortened(m.ID)), g.If(m.ID == here, text(" (this one)"))))
	}
	words := fmt.Sprintf("%s; %s", plural(n, "node"), s.Summary)
	return el("svg", class("drawing"), attr("viewBox", "0 0 480 220"), attr("role", "img"), attr("aria-label", words), lines, circles)
}
