package dashboard

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"

	g "maragu.dev/gomponents"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

func actNamed(name string) (*act, bool) {
	i := slices.IndexFunc(acts, func(a act) bool { return a.name == name })
	if i < 0 {
		return nil, false
	}
	return &acts[i], true
}

// actPath returns the page of an act on the objects that fields name.
func actPath(name string, f url.Values) string {
	var about []string
	for _, target := range targets {
		about = append(about, target, f.Get(target))
	}
	return withQuery("/ui/acts/"+name, about...)
}

// forbidden says why the caller may not do an act, or returns "" if it may.
func (c call) forbidden(a *act, f url.Values) string {
	needs := a.needs(f)
	switch {
	case !c.May(needs...):
		return "needs permission '" + needs[0].String() + "'"
	case c.AccessMode() == access.On:
		return ""
	case c.config.Acts == actsOn || c.config.Acts == actsAuto && c.config.Loopback:
		return ""
	case c.config.Acts == actsOff:
		return "this node asks nobody who they are (auth.mode), and dashboard.acts is off"
	}
	return "this node asks nobody who they are (auth.mode), and other machines reach it: dashboard.acts says whether pages may act all the same"
}

// buttons returns links to acts on what pairs name. A forbidden one is shown, and says what is missing.
func (c call) buttons(names []string, pairs ...string) g.Node {
	f := url.Values{}
	setGiven(f, pairs...)
	return el("div", class("acts"), g.Map(names, func(name string) g.Node {
		if name == "compare" {
			return el("a", class("button"), attr("href", "/ui/peers/"+url.PathEscape(f.Get("peer"))), text("Compare"))
		}
		a, _ := actNamed(name)
		if why := c.forbidden(a, f); why != "" {
			return el("span", class("button"), attr("role", "link"), attr("aria-disabled", "true"), attr("title", why), text(strings.TrimSuffix(a.button, "…")), el("span", class("hidden"), text(": "+why)))
		}
		return el("a", class("button"), attr("href", actPath(name, f)), text(a.button))
	}))
}

// form is GET /ui/acts/{act}.
func (c call) form() (any, error) {
	a, known := actNamed(c.Segment("act"))
	if !known {
		return nil, &web.Refusal{Status: http.StatusNotFound, Text: "there is no such act"}
	}
	f := c.R.URL.Query()
	if err := c.Allow(readNeeds(a, f)...); err != nil {
		return nil, err
	}
	if a.open != nil {
		if err := a.open(c, f); err != nil {
			return nil, err
		}
	}
	return c.showForm(a, f, http.StatusOK, "")
}

// readNeeds returns the needs to read what an act changes: its form shows the current state.
func readNeeds(a *act, f url.Values) []access.Need {
	needs := slices.Clone(a.needs(f))
	for i := range needs {
		if needs[i].Verb = access.Read; needs[i].Resource == access.Session {
			needs[i].Name = "" // whoever may read one session may read all
		}
	}
	return needs
}

// showForm asks for what an act needs, says what will happen, and how the command line does it. wrong says why it was
// not done.
func (c call) showForm(a *act, f url.Values, status int, wrong string) (any, error) {
	v, err := c.view()
	if err != nil {
		return nil, err
	}
	why := c.forbidden(a, f)
	effect, last := a.effect(c, v, f)
	about := g.Group{}
	for _, name := range targets {
		if f.Get(name) != "" {
			about = append(about, hidden(name, f.Get(name)))
		}
	}
	title := a.heading(f)
	content := el("section", class("narrow"),
		el("h1", text(title)),
		g.If(wrong != "", el("p", class("wrong"), attr("role", "alert"), text(sentence(upperFirst(wrong))))),
		g.If(why != "", el("p", class("wrong"), text("You may not: "+why+"."))),
		el("ul", class("effect"), g.Map(effect, func(s string) g.Node { return el("li", text(s)) })),
		el("form", attr("method", "post"), attr("action", "/ui/acts/"+a.name), about,
			g.Iff(a.fields != nil, func() g.Node { return a.fields(c, v, f) }),
			g.If(a.lasting, durationField(f, a.bounded)),
			g.If(a.explained, el("label", text("Reason"), el("input", attr("name", "reason"), attr("value", f.Get("reason")), attr("maxlength", "512"), attr("autocomplete", "off"), g.If(a.reasoned, attr("required"))))),
			g.If(a.explained && c.Principal() == nil, el("label", text("Your name"), el("input", attr("name", "author"), attr("value", f.Get("author")), attr("maxlength", "128"), attr("autocomplete", "name")))),
			g.If(last != "", el("label", text(fmt.Sprintf("No other instance of %s is UP. Type the application's name:", last)),
				el("input", attr("name", "confirm"), attr("required"), attr("autocomplete", "off")))),
			el("div", class("acts"), el("button", class("primary"), g.If(why != "", attr("disabled")), text(strings.TrimSuffix(a.button, "…"))),
				el("a", class("button"), attr("href", a.after(f)), text("Leave it")))),
		el("h2", text("The same by the command line")),
		copied("command", commandLine(c.scheme()+"://"+c.R.Host, a.commandOf(f))))
	return c.show(v, page{title: title, status: status, content: []g.Node{content}})
}

// after returns the page that an act leads to.
func (a *act) after(f url.Values) string {
	if a.back != "" {
		return withQuery(a.back, "key", f.Get("key"))
	}
	return instancePath(keyIn(f))
}

// presets are durations for an act.
var presets = []string{"10m", "30m", "1h", "4h", "24h"}

func durationField(f url.Values, must bool) g.Node {
	options := g.Group{}
	if !must {
		options = append(options, el("option", attr("value", ""), text("until somebody ends it")))
	}
	for _, preset := range presets {
		options = append(options, el("option", attr("value", preset), g.If(preset == f.Get("for") || must && f.Get("for") == "" && preset == "30m", attr("selected")), text(preset)))
	}
	return el("label", text("For how long"), el("select", attr("name", "for"), options))
}

// act is POST /ui/acts/{act}.
func (c call) act() (any, error) {
	a, known := actNamed(c.Segment("act"))
	if !known {
		return nil, &web.Refusal{Status: http.StatusNotFound, Text: "there is no such act"}
	}
	f := c.fields(maxForm)
	if c.Err != nil {
		return nil, c.Err
	}
	if err := c.Allow(readNeeds(a, f)...); err != nil {
		return nil, err
	}
	if a.check != nil {
		if err := a.check(c, f); err != nil {
			return nil, err
		}
	}
	if f.Has(carriedForm) {
		f.Del(carriedForm)
		return c.showForm(a, f, http.StatusOK, "")
	}
	if wrong := c.unfit(a, f); wrong != "" {
		return c.showForm(a, f, http.StatusUnprocessableEntity, wrong)
	}
	response := c.perform(a.request(f))
	switch {
	case response.header.Get("X-Rollcall-Outcome") == "unknown":
		return c.unknown(a, f, response.status)
	case a.name == "set-key" && succeeded(response.status) && strings.TrimSpace(response.body.String()) == "false":
		return c.overtaken(a, f)
	case response.status == http.StatusUnauthorized: // the login has just ended
		return c.render(response.status, c.loginForm(c.R.URL.Path, response.words(), f))
	case response.status == http.StatusForbidden || response.status == http.StatusNotImplemented:
		return nil, &web.Refusal{Status: response.status, Text: response.words()}
	case !succeeded(response.status):
		return c.showForm(a, f, response.status, response.words())
	}
	return c.done(a, f, response.header.Get("X-Rollcall-Index"))
}

// done leads to the page about the act's object. index is the change's; if it is empty, the act named none, and the
// page reads afresh.
func (c call) done(a *act, f url.Values, index string) (any, error) {
	return c.redirect(withQuery(a.after(f), "done", a.name, "index", cmp.Or(index, "now")))
}

// unfit returns what is wrong with the reader's input, or "".
func (c call) unfit(a *act, f url.Values) string {
	if why := c.forbidden(a, f); why != "" && c.May(a.needs(f)...) { // the call itself reports missing permissions
		return why
	}
	seen := func(r rune) bool { return unicode.IsGraphic(r) && !unicode.IsSpace(r) }
	if a.reasoned && !strings.ContainsFunc(f.Get("reason"), seen) {
		return "a reason is missing: whoever reads the history wants to know it"
	}
	v := web.StaleView(c.Service)
	if v == nil {
		return ""
	}
	if _, last := a.effect(c, v, f); last != "" && !strings.EqualFold(strings.TrimSpace(f.Get("confirm")), last) {
		return fmt.Sprintf("no other instance of %s is UP: to do it all the same, type %s", last, last)
	}
	return ""
}

// polledUntil says until when clients, which poll every 30 s, may still call an instance that an act has drained.
func (c call) polledUntil(v *registry.View, l *registry.Lease) g.Node {
	if c.Text("done") != "drain" || l.Override == nil || l.Instance.Overridden == registry.Up {
		return g.Group{}
	}
	until := l.Override.At.Wall + pollEvery.Milliseconds()
	return g.If(c.monitor.clock(v).Now < l.Override.At.Lease+pollEvery.Milliseconds(), el("p", class("soft"), text("Clients that poll every 30 s may call it until "), moment(until), text(" (UTC).")))
}

// unknown says that the outcome of an act is unknown, and offers to look and to repeat it.
func (c call) unknown(a *act, f url.Values, status int) (any, error) {
	v, err := c.view()
	if err != nil {
		return nil, err
	}
	return c.show(v, page{title: a.heading(f), status: status, content: []g.Node{el("section", class("narrow"),
		el("h1", text(a.heading(f))),
		el("p", class("wrong"), attr("role", "alert"), text("Nobody knows whether it took effect: the cluster lost its leader while it was under way.")),
		el("form", attr("method", "post"), attr("action", "/ui/acts/"+a.name), hiddenFields("", f),
			el("div", class("acts"), el("a", class("button"), attr("href", withQuery(a.after(f), "index", "now")), text("Look again")), el("button", text("Repeat")))))}})
}

// hiddenFields carry the fields of a form through another one, sorted by name.
func hiddenFields(prefix string, f url.Values) (fields g.Group) {
	for _, name := range slices.Sorted(maps.Keys(f)) {
		for _, value := range f[name] {
			fields = append(fields, hidden(prefix+name, value))
		}
	}
	return fields
}

// doneNotice says what the act that led to this page has done, and how far along the other nodes are.
func (c call) doneNotice() g.Node {
	a, known := actNamed(c.Text("done"))
	if !known {
		return g.Group{}
	}
	words := "Done: " + strings.ToLower(strings.TrimSuffix(a.button, "…")) + "."
	index := c.Text("index")
	applied, nodes, silent := 0, 0, []string{}
	for _, n := range c.monitor.now(c.R.Context()).status.Nodes {
		nodes++
		switch {
		case n.ID == c.Name || notBefore(n.Index, index):
			applied++
		case n.Index == "":
			silent = append(silent, n.ID)
		}
	}
	// Nodes of mode ap count indexes on their own: no index applies to all.
	if index != "" && index != "now" && !c.WithoutConsensus && nodes > 1 && c.mayOperate() {
		words += fmt.Sprintf(" %d of %d nodes have applied it.", applied, nodes)
		if len(silent) > 0 {
			words += " " + strings.Join(silent, ", ") + " does not answer."
		}
	}
	return el("p", class("done"), attr("role", "status"), text(words))
}
