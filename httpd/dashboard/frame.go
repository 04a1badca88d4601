package dashboard

import (
	"encoding/json"
	"net/url"

	g "maragu.dev/gomponents"
	"maragu.dev/gomponents/html"

	"github.com/seed-20419f34/rollcall/fsm/access"
)

// entries are the navigation's. Locks and keys need consensus.
var entries = []struct {
	path, words string
	may         func(c call) bool
}{
	{"/", "Overview", func(call) bool { return true }},
	{"/ui/apps", "Applications", func(call) bool { return true }},
	{"/ui/nodes", "Nodes", call.mayOperate},
	{"/ui/peers", "Peers", call.mayOperate},
	{"/ui/held", "Locks & keys", func(c call) bool { return c.Coordination != nil && c.May(heldNeeds(c.Call)...) }},
	{"/ui/events", "Events", func(call) bool { return true }},
}

// frame is a whole page: reader and place, the navigation, the status line, and the page's own content.
func (c call) frame(p page, body g.Node) g.Node {
	mode := "cp"
	if c.WithoutConsensus {
		mode = "ap"
	}
	var nav g.Group
	for _, e := range entries {
		if e.may(c) {
			nav = append(nav, el("a", attr("href", e.path), g.If(e.path == p.here, attr("aria-current", "page")), text(e.words)))
		}
	}
	return document(c.title(p), g.Group{
		el("a", class("skip"), attr("href", "#main"), text("To the content")),
		el("header",
			el("a", class("brand"), attr("href", "/"), text("Rollcall")),
			el("span", class("where"), el("b", text(c.Name)), g.If(c.Datacenter != "", g.Group{text(" in "), el("b", text(c.Datacenter))}), text(", mode "+mode)),
			el("nav", attr("aria-label", "Screens"), nav),
			el("form", attr("action", "/ui/apps"), attr("role", "search"),
				el("input", attr("type", "search"), attr("name", "q"), attr("id", "search"), attr("maxlength", "1000"), attr("value", c.query()),
					attr("placeholder", "Search ( / )"), attr("aria-label", "Search applications and instances"), attr("autocomplete", "off"))),
			el("span", attr("id", "live"), class("live"), attr("role", "status")),
			el("button", attr("type", "button"), attr("id", "theme"), class("script"), attr("aria-label", "Theme"), text("Theme")),
			c.who()),
		body,
	})
}

// body is the part that the script rebuilds as things happen, with what it needs for that: the title, the stream to
// listen to, and where else the reader can look when this node does not answer.
func (c call) body(p page, others []linked, content g.Node) g.Node {
	watch := url.Values{"app": {p.watch}}
	if p.here == "/ui/held" {
		watch.Set("held", "1")
	}
	paths := make(map[string]string, len(others))
	for _, o := range others {
		paths[o.words] = o.path
	}
	document, _ := json.Marshal(paths) // only texts, which cannot fail
	return el("div", attr("id", "page"), g.If(!p.still, attr("data-live", "/ui/live?"+watch.Encode())),
		attr("data-title", c.title(p)+product), attr("data-others", string(document)), content)
}

func (c call) title(p page) string { return p.title + " – " + c.Name }

// product ends the title of every document.
const product = " – Rollcall"

// query returns the search terms.
func (c call) query() string {
	query := *c.Call // the page itself reports mistakes in it
	return query.Text("q")
}

// who says who the reader is.
func (c call) who() g.Node {
	p := c.Principal()
	switch {
	case p != nil && p.Via == "admin.sock":
		return el("span", class("who"), text(p.Name))
	case p != nil:
		return el("form", class("who"), attr("method", "post"), attr("action", "/ui/logout"),
			el("span", text(p.Name)), el("button", text("Log out")))
	case c.AccessMode() == access.Off:
		return g.Group{}
	default:
		return el("span", class("who"), link("/ui/login", "Log in"))
	}
}

// bare is a page without the parts that only known readers may see.
func bare(title string, content ...g.Node) g.Node {
	return document(title, g.Group{
		el("header", el("a", class("brand"), attr("href", "/"), text("Rollcall"))),
		el("div", attr("id", "page"), el("main", attr("id", "main"), g.Group(content))),
	})
}

// document is an HTML document with the style and the script.
func document(title string, body g.Node) g.Node {
	return html.Doctype(el("html", attr("lang", "en"),
		el("head",
			el("meta", attr("charset", "utf-8")),
			el("meta", attr("name", "viewport"), attr("content", "width=device-width, initial-scale=1")),
			el("meta", attr("name", "color-scheme"), attr("content", "light dark")),
			el("title", text(title+product)),
			el("link", attr("rel", "icon"), attr("href", assetPath("icon.svg"))),
			el("link", attr("rel", "stylesheet"), attr("href", assetPath("style.css"))),
			// Not deferred: it sets the theme before anything is drawn.
			el("script", attr("src", assetPath("app.js"))),
			el("script", attr("src", assetPath("idiomorph.js")), attr("defer")),
		),
		el("body", body),
	))
}
