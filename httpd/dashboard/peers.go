package dashboard

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	g "maragu.dev/gomponents"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/own"
)

// peers is GET /ui/peers: both directions of replication.
func (c call) peers(v *registry.View) (page, error) {
	s := c.monitor.now(c.R.Context()).peers
	none := "Nothing is replicated: no peer is configured (replication.nodes, replication.datacenters, replication.eureka)."
	aside := "every node sends"
	if s.Sender != "" {
		aside = s.Sender + " sends"
	}
	content := []g.Node{
		el("h1", text("Peers"), g.If(len(s.Peers) > 0, el("small", text(aside)))),
		c.doneNotice(),
		table(none, []string{"Peer", "State", "#Changes behind", "#Time behind", "Last success", "Last repair", "Comes from there", "Acts"}, s.Peers, c.peerRow),
	}
	if len(s.Senders) > 0 {
		content = append(content, section("Who sends here", "as "+s.Receiver+" knows them",
			table("", []string{"Sender", "Datacenter", "Heard", "#Late messages", "#Refused"}, s.Senders, func(p api.PeerSender) row {
				return tr(named(text(p.Sender)), cell("", dash(p.Datacenter)), cell("", own.Span(p.HeardMS)+" ago"), number(p.Late), number(p.Refused))
			})))
	}
	return page{title: "Peers", here: "/ui/peers", content: content}, nil
}

func (c call) peerRow(p api.Peer) row {
	repair := g.Node(text("–"))
	if r := p.LastRepair; r != nil {
		repair = g.Group{moment(r.At), soft(fmt.Sprintf(" %s: %d sent, %d removed", r.Reason, r.Sent, r.Removed))}
	}
	pause := "pause"
	if p.State == "paused" {
		pause = "resume"
	}
	return tr(
		named(el("b", text(p.Name)), soft(" "+p.Kind)),
		td(status("peer-"+p.State, p.State), g.If(p.Reason != "", g.Group{text(" "), soft(p.Reason)})),
		cell("number", strconv.FormatUint(p.LagChanges, 10)), cell("number", own.Span(p.LagMS)),
		td(moment(p.LastSuccess)),
		td(repair),
		td(incomingCell(p)),
		td(c.buttons([]string{pause, "compare"}, "peer", p.Name)))
}

// compareWithin bounds a comparison with a peer, and the page that waits for it.
const compareWithin = 2*time.Minute + 30*time.Second

// comparePeer is GET /ui/peers/{name}: where the peer's state differs from what it should be. It asks the peer, and
// may take long.
func (c call) comparePeer(v *registry.View) (page, error) {
	name := c.Segment("name")
	_ = http.NewResponseController(c.W).SetWriteDeadline(time.Now().Add(compareWithin)) // a failure shows at the write
	response := c.perform(request{method: http.MethodGet, path: "/v1/rollcall/peers/" + url.PathEscape(name) + "/diff"})
	content := []g.Node{el("p", class("crumbs"), link("/ui/peers", "Peers")), el("h1", text("Compared with "+name))}
	var diff api.PeerDiff
	switch {
	case !succeeded(response.status):
		content = append(content, el("p", class("wrong"), text(sentence(upperFirst(response.words())))))
	case json.Unmarshal(response.body.Bytes(), &diff) != nil:
		content = append(content, el("p", class("wrong"), text("What came back cannot be read.")))
	default:
		shown, all := diff.Items[:min(len(diff.Items), maxShown)], diff.Missing+diff.Extra
		words := "Nothing differs."
		if all > 0 {
			words = fmt.Sprintf("%s differ in %s: the peer lacks %d or has them older, and has %d that it should not have.",
				plural(all, "instance"), plural(diff.Apps, "application"), diff.Missing, diff.Extra)
		}
		content = append(content,
			el("p", text(words)),
			table("", []string{"Instance", "The peer's copy is"}, shown, func(i api.DiffedItem) row {
				key := registry.NewKey(i.App, i.ID)
				return tr(named(link(instancePath(key), key.String())), cell("", i.What))
			}),
			more(all-len(shown)),
			c.buttons([]string{"repair"}, "peer", name))
	}
	return page{title: "Compared with " + name, here: "/ui/peers", still: true, content: content}, nil
}

// incomingCell shows what comes from a peer. A node of this datacenter reports what its clients do.
func incomingCell(p api.Peer) g.Node {
	in := p.Incoming
	if in == nil {
		return soft("what its clients do")
	}
	contact := "never heard"
	if in.HeardMS != nil {
		contact = "heard " + own.Span(*in.HeardMS) + " ago"
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
