package dashboard

import (
	"fmt"
	"strconv"

	g "maragu.dev/gomponents"

	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/show"
)

// peers is GET /ui/peers: both directions of replication.
func (c call) peers() (any, error) {
	if c.Err != nil {
		return nil, c.Err
	}
	v, err := c.view()
	if err != nil {
		return nil, err
	}
	s := c.monitor.now(c.R.Context()).peers
	none := "Nothing is replicated: no peer is configured (replication.nodes, replication.datacenters, replication.eureka)."
	aside := "every node sends"
	if s.Sender != "" {
		aside = s.Sender + " sends"
	}
	content := []g.Node{
		el("h1", text("Peers"), g.If(len(s.Peers) > 0, el("small", text(aside)))),
		c.doneNotice(v),
		table(none, []string{"Peer", "State", "#Changes behind", "#Time behind", "Last success", "Last repair", "Comes from there", "Acts"}, s.Peers, c.peerRow),
	}
	if len(s.Senders) > 0 {
		content = append(content, section("Who sends here", "as "+s.Receiver+" knows them",
			table("", []string{"Sender", "Datacenter", "Heard", "#Late messages", "#Refused"}, s.Senders, func(p api.PeerSender) g.Node {
				return el("tr", named(text(p.Sender)), cell("", dash(p.Datacenter)), cell("", show.Span(p.HeardMS)+" ago"), number(p.Late), number(p.Refused))
			})))
	}
	return c.show(v, page{title: "Peers", here: "/ui/peers", content: content})
}

func (c call) peerRow(p api.Peer) g.Node {
	repair := g.Node(text("–"))
	if r := p.LastRepair; r != nil {
		repair = g.Group{moment(r.At), soft(fmt.Sprintf(" %s: %d sent, %d removed", r.Reason, r.Sent, r.Removed))}
	}
	pause := "pause"
	if p.State == "paused" {
		pause = "resume"
	}
	return el("tr",
		named(el("b", text(p.Name)), soft(" "+p.Kind)),
		el("td", status("peer-"+p.State, p.State), g.If(p.Reason != "", g.Group{text(" "), soft(p.Reason)})),
		cell("number", strconv.FormatUint(p.LagChanges, 10)), cell("number", show.Span(p.LagMS)),
		el("td", moment(p.LastSuccess)),
		el("td", repair),
		el("td", incomingCell(p)),
		el("td", c.buttons([]string{pause, "compare"}, "peer", p.Name)))
}

// incomingCell is what comes from a peer. A node of this datacenter tells what its clients do.
func incomingCell(p api.Peer) g.Node {
	in := p.Incoming
	if in == nil {
		return soft("what its clients do")
	}
	contact := "never heard"
	if in.HeardMS != nil {
		contact = "heard " + show.Span(*in.HeardMS) + " ago"
	}
	words := g.Group{text(plural(in.Instances, "instance") + ", " + contact)}
	if in.Cut {
		words = append(words, text(" "), status("link-cut", "cut"))
		if in.Kept > 0 {
			words = append(words, g.Textf(" %d kept although their time has passed", in.Kept))
		}
		words = append(words, soft(" on cut: "+in.OnCut))
	}
	return words
}
