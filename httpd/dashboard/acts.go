package dashboard

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	g "maragu.dev/gomponents"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/show"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// act is something that a page can do. It is a call of an API, with the rights, the errors and the record in the audit that the
// call has, and so its command line does the same.
type act struct {
	name, button string
	title        func(f url.Values) string
	// explained: its author and reason are kept. reasoned: it needs a reason, because it takes something away.
	explained, reasoned bool
	// lasting: it holds for a time that may be chosen; bounded: that must be.
	lasting, bounded bool
	needs            func(f url.Values) []access.Need
	// effect is what will happen, in numbers. last is the application that has no other UP instance; "": none.
	effect  func(c call, v *registry.View, f url.Values) (sentences []string, last string)
	fields  func(c call, v *registry.View, f url.Values) g.Node // beside reason, author and time
	call    func(f url.Values) request
	command func(f url.Values) []string
	back    func(f url.Values) string
}

// request is a call of an API.
type request struct {
	method, path string
	query        url.Values
	body         string
}

// targets are the fields that say what an act is about. They go from page to page.
var targets = []string{"app", "id", "node", "peer", "session", "key"}

func keyIn(f url.Values) registry.Key { return registry.NewKey(f.Get("app"), f.Get("id")) }

// ofInstance is the path of an instance in our own API.
func ofInstance(f url.Values) string {
	key := keyIn(f)
	return "/v1/rollcall/apps/" + url.PathEscape(key.App) + "/" + url.PathEscape(key.ID)
}

func overrides(f url.Values) []access.Need {
	return []access.Need{{Resource: access.App, Name: keyIn(f).App, Verb: access.Override}}
}

func operates(url.Values) []access.Need {
	return []access.Need{{Resource: access.Operator, Verb: access.Write}}
}

// acts are all that pages can do.
var acts = []act{
	{
		name: "drain", button: "Drain…", explained: true, title: titleOf("Drain", keyText), reasoned: true, needs: overrides, effect: leaves("it is called no more"),
		call: func(f url.Values) request {
			return request{method: http.MethodPut, path: ofInstance(f) + "/override", query: parameters(f, "value", "OUT_OF_SERVICE")}
		},
		command: func(f url.Values) []string { return append([]string{"drain", keyText(f)}, said(f)...) },
	},
	{
		name: "override", button: "Force a status…", explained: true, title: titleOf("Force the status of", keyText), reasoned: true, lasting: true, needs: overrides,
		effect: leaves("clients see the status that is chosen, until the override ends; what follows is of any status but UP"), fields: statusField,
		call: func(f url.Values) request {
			return request{method: http.MethodPut, path: ofInstance(f) + "/override", query: parameters(f, "value", f.Get("status"), "for", f.Get("for"))}
		},
		command: func(f url.Values) []string {
			return append([]string{"override", keyText(f), cmp.Or(f.Get("status"), "OUT_OF_SERVICE")}, append(forTime(f), said(f)...)...)
		},
	},
	{
		name: "end-override", button: "End the override…", explained: true, title: titleOf("End the override of", keyText), needs: overrides, effect: endsOverride,
		call: func(f url.Values) request {
			return request{method: http.MethodDelete, path: ofInstance(f) + "/override", query: parameters(f)}
		},
		command: func(f url.Values) []string { return append([]string{"override", keyText(f), "--delete"}, said(f)...) },
	},
	{
		name: "quarantine", button: "Quarantine…", explained: true, title: titleOf("Quarantine", keyText), reasoned: true, lasting: true, bounded: true, needs: overrides,
		effect: leaves("it is in no list, and its heartbeats are accepted"),
		call: func(f url.Values) request {
			return request{method: http.MethodPut, path: ofInstance(f) + "/quarantine", query: parameters(f, "for", f.Get("for"))}
		},
		command: func(f url.Values) []string {
			return append([]string{"quarantine", keyText(f)}, append(forTime(f), said(f)...)...)
		},
	},
	{
		name: "end-quarantine", button: "End the quarantine…", explained: true, title: titleOf("End the quarantine of", keyText), needs: overrides,
		effect: sentences("It is in the lists again at once, with the status that it reports."),
		call: func(f url.Values) request {
			return request{method: http.MethodDelete, path: ofInstance(f) + "/quarantine", query: parameters(f)}
		},
		command: func(f url.Values) []string { return append([]string{"quarantine", keyText(f), "--end"}, said(f)...) },
	},
	{
		name: "cancel", button: "Remove…", title: titleOf("Remove", keyText),
		needs: func(f url.Values) []access.Need {
			return []access.Need{{Resource: access.App, Name: keyIn(f).App, Verb: access.Register}}
		},
		effect: leaves("it is registered no more; if it still runs, its next heartbeat tells it to register again"),
		call: func(f url.Values) request {
			key := keyIn(f)
			return request{method: http.MethodDelete, path: "/eureka/v2/apps/" + url.PathEscape(key.App) + "/" + url.PathEscape(key.ID)}
		},
		command: func(f url.Values) []string { return []string{"cancel", keyText(f)} },
		back:    func(f url.Values) string { return instancePath(keyIn(f)) },
	},
	{
		name: "release", button: "Release…", explained: true, title: titleOf("Let evictions go on", nil), reasoned: true, needs: operates, effect: releases,
		call: func(f url.Values) request {
			return request{method: http.MethodPost, path: "/v1/rollcall/self-preservation/release", query: parameters(f)}
		},
		command: func(f url.Values) []string { return append([]string{"self-preservation", "release"}, said(f)...) },
		back:    func(url.Values) string { return "/" },
	},
	{
		name: "hold", button: "Hold…", explained: true, title: titleOf("Hold evictions", nil), reasoned: true, lasting: true, bounded: true, needs: operates,
		effect: sentences("No lease ends until the time has passed, or somebody releases it."),
		call: func(f url.Values) request {
			return request{method: http.MethodPost, path: "/v1/rollcall/self-preservation/hold", query: parameters(f, "for", f.Get("for"))}
		},
		command: func(f url.Values) []string {
			return append([]string{"self-preservation", "hold"}, append(forTime(f), said(f)...)...)
		},
		back: func(url.Values) string { return "/" },
	},
	peerAct("pause", "Pause…", "Pause the sending to", http.MethodPost, "Nothing is sent there until somebody resumes it. Changes wait here, and what comes from there is received."),
	peerAct("resume", "Resume…", "Resume the sending to", http.MethodPost, "What has waited is sent at once, and compared where too much has."),
	peerAct("repair", "Repair…", "Repair", http.MethodPost, "What the peer lacks or has older is sent, and what it should not have is removed there."),
	{
		name: "transfer", button: "Make it lead…", title: titleOf("Hand leadership to", field("node")), needs: operates,
		effect: sentences("Writes wait while leadership moves, for about a second. Nothing is lost."),
		call: func(f url.Values) request {
			return request{method: http.MethodPost, path: "/v1/rollcall/transfer", query: parameters(f, "to", f.Get("node"))}
		},
		command: func(f url.Values) []string { return []string{"members", "transfer", f.Get("node")} },
		back:    func(url.Values) string { return "/ui/nodes" },
	},
	{
		name: "remove-node", button: "Remove…", explained: true, title: titleOf("Remove from the cluster", field("node")), reasoned: true, needs: operates, effect: removesNode,
		call: func(f url.Values) request {
			return request{method: http.MethodDelete, path: "/v1/rollcall/members/" + url.PathEscape(f.Get("node")), query: parameters(f)}
		},
		command: func(f url.Values) []string { return append([]string{"members", "remove", f.Get("node")}, said(f)...) },
		back:    func(url.Values) string { return "/ui/nodes" },
	},
	{
		name: "end-session", button: "End…", title: titleOf("End session", field("session")), needs: func(f url.Values) []access.Need {
			return []access.Need{{Resource: access.Session, Name: f.Get("session"), Verb: access.Write}}
		},
		effect: endsSession,
		call: func(f url.Values) request {
			return request{method: http.MethodDelete, path: "/v1/rollcall/sessions/" + url.PathEscape(f.Get("session"))}
		},
		command: func(f url.Values) []string { return []string{"session", "destroy", f.Get("session")} },
		back:    func(url.Values) string { return "/ui/held" },
	},
	{
		name: "set-key", button: "Change…", title: titleOf("Change key", field("key")), needs: func(f url.Values) []access.Need {
			return []access.Need{{Resource: access.KV, Name: f.Get("key"), Verb: access.Write}}
		},
		effect: sentences("Programs that watch the key see the new value at once."), fields: valueField,
		call: func(f url.Values) request {
			return request{method: http.MethodPut, path: "/v1/kv/" + keyPath(f.Get("key")), query: url.Values{"cas": {f.Get("cas")}}, body: f.Get("value")}
		},
		command: func(f url.Values) []string {
			return []string{"kv", "put", f.Get("key"), f.Get("value"), "--cas", cmp.Or(f.Get("cas"), "0")}
		},
		back: func(f url.Values) string { return withQuery("/ui/keys", "key", f.Get("key")) },
	},
}

// peerAct is an act on a peer.
func peerAct(name, button, verb, method, effect string) act {
	return act{
		name: name, button: button, explained: name != "repair", title: titleOf(verb, field("peer")), reasoned: name == "pause", needs: operates, effect: sentences(effect),
		call: func(f url.Values) request {
			return request{method: method, path: "/v1/rollcall/peers/" + url.PathEscape(f.Get("peer")) + "/" + name, query: parameters(f)}
		},
		command: func(f url.Values) []string {
			words := []string{"peers", name, f.Get("peer")}
			if name == "repair" {
				return words
			}
			return append(words, said(f)...)
		},
		back: func(url.Values) string { return "/ui/peers" },
	}
}

func titleOf(verb string, of func(f url.Values) string) func(f url.Values) string {
	return func(f url.Values) string {
		if of == nil {
			return verb
		}
		return verb + " " + of(f)
	}
}

func field(name string) func(f url.Values) string {
	return func(f url.Values) string { return f.Get(name) }
}

func keyText(f url.Values) string { return keyIn(f).String() }

// keyPath is the path of a key in Consul's API, whose slashes stay.
func keyPath(key string) string { return strings.ReplaceAll(url.PathEscape(key), "%2F", "/") }

// parameters are the parameters of a call: who acts and why, and pairs of others.
func parameters(f url.Values, pairs ...string) url.Values {
	query := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			query.Set(pairs[i], pairs[i+1])
		}
	}
	for _, name := range []string{"author", "reason"} {
		if f.Get(name) != "" {
			query.Set(name, f.Get(name))
		}
	}
	return query
}

// said are the flags of who acts and why.
func said(f url.Values) (flags []string) {
	if reason := f.Get("reason"); reason != "" {
		flags = append(flags, "--reason", reason)
	}
	if author := f.Get("author"); author != "" {
		flags = append(flags, "--author", author)
	}
	return flags
}

func forTime(f url.Values) []string {
	if f.Get("for") == "" {
		return nil
	}
	return []string{"--for", f.Get("for")}
}

func actNamed(name string) (*act, bool) {
	i := slices.IndexFunc(acts, func(a act) bool { return a.name == name })
	if i < 0 {
		return nil, false
	}
	return &acts[i], true
}

// actPath is the page of an act on what fields name.
func actPath(name string, f url.Values) string {
	about := url.Values{}
	for _, target := range targets {
		if f.Get(target) != "" {
			about.Set(target, f.Get(target))
		}
	}
	if len(about) == 0 {
		return "/ui/acts/" + name
	}
	return "/ui/acts/" + name + "?" + about.Encode()
}

// forbidden says why the caller may not do an act; "": it may.
func (c call) forbidden(a *act, f url.Values) string {
	needs := a.needs(f)
	switch {
	case !c.May(needs...):
		return "needs permission '" + needs[0].String() + "'"
	case c.AccessMode() == access.On || c.Principal() != nil:
		return ""
	case c.config.Acts == ActsOn || c.config.Acts == ActsAuto && c.config.Loopback:
		return ""
	}
	return "this node asks nobody who they are (auth.mode), and other machines reach it: dashboard.acts says whether pages may act all the same"
}

// buttons lead to acts on what pairs name. One that the caller may not do is shown, and says what is missing.
func (c call) buttons(names []string, pairs ...string) g.Node {
	f := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		f.Set(pairs[i], pairs[i+1])
	}
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
	return c.showForm(a, f, http.StatusOK, "")
}

// readNeeds is to read what an act changes: its form says how things are.
func readNeeds(a *act, f url.Values) []access.Need {
	needs := slices.Clone(a.needs(f))
	for i := range needs {
		if needs[i].Verb = access.Read; needs[i].Resource == access.Session {
			needs[i].Name = "" // who may read one session may read all
		}
	}
	return needs
}

// showForm asks for what an act needs, says what will happen, and how the command line does it. wrong is why it was not done.
func (c call) showForm(a *act, f url.Values, status int, wrong string) (any, error) {
	v, err := c.view()
	if err != nil {
		return nil, err
	}
	why := c.forbidden(a, f)
	effect, last := a.effect(c, v, f)
	hidden := g.Group{}
	for _, name := range targets {
		if f.Get(name) != "" {
			hidden = append(hidden, el("input", attr("type", "hidden"), attr("name", name), attr("value", f.Get(name))))
		}
	}
	title := a.title(f)
	content := el("section", class("narrow"),
		el("h1", text(title)),
		g.If(wrong != "", el("p", class("wrong"), attr("role", "alert"), text(sentence(upperFirst(wrong))))),
		g.If(why != "", el("p", class("wrong"), text("You may not: "+why+"."))),
		el("ul", class("effect"), g.Map(effect, func(s string) g.Node { return el("li", text(s)) })),
		el("form", attr("method", "post"), attr("action", "/ui/acts/"+a.name), hidden,
			g.Iff(a.fields != nil, func() g.Node { return a.fields(c, v, f) }),
			g.If(a.lasting, durationField(f, a.bounded)),
			g.If(a.explained, reasonField(f, a.reasoned)),
			g.If(a.explained && c.Principal() == nil, el("label", text("Your name"), el("input", attr("name", "author"), attr("value", f.Get("author")), attr("maxlength", "128"), attr("autocomplete", "name")))),
			g.If(last != "", el("label", g.Textf("No other instance of %s is UP. Type the application's name:", last),
				el("input", attr("name", "confirm"), attr("required"), attr("autocomplete", "off")))),
			el("div", class("acts"), el("button", class("primary"), g.If(why != "", attr("disabled")), text(strings.TrimSuffix(a.button, "…"))),
				el("a", class("button"), attr("href", a.after(f)), text("Leave it")))),
		el("h2", text("The same by the command line")),
		copied("command", commandLine(c.scheme()+"://"+c.R.Host, a.command(withPlaceholder(a, f)))))
	return c.show(v, page{title: title, status: status, content: []g.Node{content}})
}

// withPlaceholder puts words where the reader has not said yet what the command needs.
func withPlaceholder(a *act, f url.Values) url.Values {
	said := url.Values{}
	for name, values := range f {
		said[name] = values
	}
	if a.reasoned && said.Get("reason") == "" {
		said.Set("reason", "WHY")
	}
	if a.bounded && said.Get("for") == "" {
		said.Set("for", "30m")
	}
	return said
}

// after is the page to which an act leads.
func (a *act) after(f url.Values) string {
	if a.back != nil {
		return a.back(f)
	}
	return instancePath(keyIn(f))
}

// presets are times for which an act holds.
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

func reasonField(f url.Values, must bool) g.Node {
	return el("label", text("Reason"), el("input", attr("name", "reason"), attr("value", f.Get("reason")), attr("maxlength", "512"), attr("autocomplete", "off"), g.If(must, attr("required"))))
}

func statusField(_ call, _ *registry.View, f url.Values) g.Node {
	return el("label", text("Status"), el("select", attr("name", "status"), g.Map(statusOrder, func(s registry.Status) g.Node {
		return el("option", attr("value", s.String()), g.If(s.String() == cmp.Or(f.Get("status"), "OUT_OF_SERVICE"), attr("selected")), text(s.String()))
	})))
}

// act is POST /ui/acts/{act}.
func (c call) act() (any, error) {
	a, known := actNamed(c.Segment("act"))
	if !known {
		return nil, &web.Refusal{Status: http.StatusNotFound, Text: "there is no such act"}
	}
	f := c.fields()
	if c.Err != nil {
		return nil, c.Err
	}
	if err := c.Allow(readNeeds(a, f)...); err != nil {
		return nil, err
	}
	if wrong := c.unfit(a, f); wrong != "" {
		return c.showForm(a, f, http.StatusUnprocessableEntity, wrong)
	}
	response := c.perform(a.call(f))
	switch {
	case response.header.Get("X-Rollcall-Outcome") == "unknown":
		return c.unknown(a, f)
	case a.name == "set-key" && succeeded(response.status) && strings.TrimSpace(response.body.String()) == "false":
		f, wrong := c.overtaken(f)
		return c.showForm(a, f, http.StatusConflict, wrong)
	case response.status == http.StatusUnauthorized || response.status == http.StatusForbidden || response.status == http.StatusNotImplemented:
		return nil, &web.Refusal{Status: response.status, Text: response.words()}
	case !succeeded(response.status):
		return c.showForm(a, f, response.status, response.words())
	}
	query := []string{"done", a.name, "index", response.header.Get("X-Rollcall-Index")}
	to := a.after(f)
	if path, own, has := strings.Cut(to, "?"); has {
		values, _ := url.ParseQuery(own) // of our own making
		return c.redirect(withQuery(path, append(query, "key", values.Get("key"))...))
	}
	return c.redirect(withQuery(to, query...))
}

// unfit is what is wrong with what the reader said; "": nothing.
func (c call) unfit(a *act, f url.Values) string {
	if why := c.forbidden(a, f); why != "" && c.May(a.needs(f)...) { // what permissions say, the call says
		return why
	}
	if a.reasoned && strings.TrimSpace(f.Get("reason")) == "" {
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

// response is what came of a call of an API.
type response struct {
	status int
	header http.Header
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (a *response) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *response) WriteHeader(status int) { a.status = cmp.Or(a.status, status) }

// Write implements http.ResponseWriter.
func (a *response) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

// words are the error that a response tells.
func (a *response) words() string {
	var refused api.Error
	if json.Unmarshal(a.body.Bytes(), &refused) == nil && refused.Error != "" {
		return refused.Error
	}
	if text := strings.TrimSpace(a.body.String()); text != "" {
		return text
	}
	if a.status == http.StatusNotFound {
		return "it is not there any more"
	}
	return http.StatusText(a.status)
}

// perform performs a call of an API as the reader's.
func (c call) perform(q request) *response {
	target := &url.URL{Path: q.path, RawQuery: q.query.Encode()}
	if path, err := url.PathUnescape(q.path); err == nil {
		target.Path, target.RawPath = path, q.path
	}
	r := &http.Request{
		Method: q.method, URL: target, RequestURI: target.RequestURI(), Proto: c.R.Proto, ProtoMajor: c.R.ProtoMajor, ProtoMinor: c.R.ProtoMinor,
		Header: http.Header{}, Body: http.NoBody, Host: c.R.Host, RemoteAddr: c.R.RemoteAddr, TLS: c.R.TLS,
	}
	if q.body != "" {
		r.Body, r.ContentLength = bodyOf(q.body), int64(len(q.body))
	}
	if token := c.CredentialOf(); token != "" {
		r.Header.Set("X-Consul-Token", token)
	}
	if id := c.W.Header().Get(web.RequestIDHeader); id != "" {
		r.Header.Set(web.RequestIDHeader, id)
	}
	a := &response{header: http.Header{}}
	c.config.Do(a, r.WithContext(c.R.Context()))
	return a
}

// unknown says that it is not known what became of an act, and offers to look and to repeat.
func (c call) unknown(a *act, f url.Values) (any, error) {
	v, err := c.view()
	if err != nil {
		return nil, err
	}
	fields := g.Group{}
	for name, values := range f {
		for _, value := range values {
			fields = append(fields, el("input", attr("type", "hidden"), attr("name", name), attr("value", value)))
		}
	}
	return c.show(v, page{title: a.title(f), content: []g.Node{el("section", class("narrow"),
		el("h1", text(a.title(f))),
		el("p", class("wrong"), attr("role", "alert"), text("Nobody knows whether it took effect: the cluster lost its leader while it was under way.")),
		el("form", attr("method", "post"), attr("action", "/ui/acts/"+a.name), fields,
			el("div", class("acts"), el("a", class("button"), attr("href", withQuery(a.after(f), "index", "now")), text("Look again")), el("button", text("Repeat")))))}})
}

// doneNotice says what an act has done that led to this page, and how far the other nodes are with it.
func (c call) doneNotice(v *registry.View) g.Node {
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
	if index != "" && nodes > 1 && c.mayOperate() {
		words += fmt.Sprintf(" %d of %d nodes have applied it.", applied, nodes)
		if len(silent) > 0 {
			words += " " + strings.Join(silent, ", ") + " does not answer."
		}
	}
	if a.name == "drain" && applied == nodes {
		words += " Clients that poll every 30 s may call it until " + clock(time.UnixMilli(v.Stamp().Wall).Add(30*time.Second)) + " UTC."
	}
	return el("p", class("done"), attr("role", "status"), text(words))
}

// notBefore says whether an index, as epoch-index, is of the same history as another one and not before it.
func notBefore(index, other string) bool {
	a, aIndex := cutIndex(index)
	b, bIndex := cutIndex(other)
	return a == b && aIndex >= bIndex && index != ""
}

// sentences are an effect that is always the same.
func sentences(words ...string) func(call, *registry.View, url.Values) ([]string, string) {
	return func(call, *registry.View, url.Values) ([]string, string) { return words, "" }
}

// leaves is the effect of an act after which clients call an instance no more.
func leaves(then string) func(call, *registry.View, url.Values) ([]string, string) {
	return func(_ call, v *registry.View, f url.Values) ([]string, string) {
		key := keyIn(f)
		l, there := v.Find(key)
		if !there {
			return []string{fmt.Sprintf("%s is not registered any more.", key)}, ""
		}
		up, all := 0, 0
		for other := range web.LeasesOf(v, key.App) {
			all++
			if other.Instance.Status == registry.Up {
				up++
			}
		}
		wasUp := l.Quarantine == nil && l.Instance.Status == registry.Up
		effect := []string{upperFirst(then) + "."}
		if f.Get("status") == registry.Up.String() {
			return effect, ""
		}
		switch {
		case !wasUp:
			effect = append(effect, fmt.Sprintf("It is %s now; %d of %d instances of %s are UP.", shownWord(l), up, all, key.App))
			return effect, ""
		case up > 1:
			effect = append(effect, fmt.Sprintf("%s keeps %d of its %d UP instances.", key.App, up-1, up))
		default:
			effect = append(effect, fmt.Sprintf("It is the last UP instance of %s: nothing is left to call.", key.App))
		}
		until := clock(time.UnixMilli(v.Stamp().Wall).Add(30 * time.Second))
		effect = append(effect, fmt.Sprintf("Clients that watch know it at once; those that poll every 30 s may call it until %s UTC.", until))
		if up <= 1 {
			return effect, key.App
		}
		return effect, ""
	}
}

func shownWord(l *registry.Lease) string {
	if l.Quarantine != nil {
		return "in quarantine"
	}
	return l.Instance.Status.String()
}

func endsOverride(_ call, v *registry.View, f url.Values) ([]string, string) {
	if l, there := v.Find(keyIn(f)); there && l.Override != nil && l.Override.Reported != registry.Unknown {
		return []string{fmt.Sprintf("It reports %s, and is shown so from its next heartbeat on; until then it is UNKNOWN.", l.Override.Reported)}, ""
	}
	return []string{"It is UNKNOWN until its next heartbeat, and then what it reports."}, ""
}

func releases(c call, v *registry.View, _ url.Values) ([]string, string) {
	p := c.monitor.preservation(v)
	apps := 0
	for _, a := range v.FreshnessByApp(c.monitor.clock(v).Now) {
		if a.Expired > 0 {
			apps++
		}
	}
	return []string{fmt.Sprintf("%s of %s %s removed within seconds, and those of others when their leases end.",
		plural(int(p.Figures.Expired), "instance"), plural(apps, "application"), isAre(int(p.Figures.Expired))),
		"Clients that still run register again with their next heartbeat."}, ""
}

func removesNode(c call, _ *registry.View, f url.Values) ([]string, string) {
	votes := 0
	for _, n := range c.monitor.now(c.R.Context()).status.Nodes {
		if n.Voter && n.ID != f.Get("node") {
			votes++
		}
	}
	tolerance := max(votes-(votes/2+1), 0)
	return []string{fmt.Sprintf("The cluster has %s then, and %s.", plural(votes, "vote"), strings.Replace(mayFail(tolerance), "further ", "", 1)),
		"The node must not be started again with its data; with an empty data directory it may join anew."}, ""
}

func endsSession(c call, _ *registry.View, f url.Values) ([]string, string) {
	if c.Coordination == nil {
		return nil, ""
	}
	v, err := c.Coordination.View(c.R.Context(), registry.Stale)
	if err != nil {
		return nil, ""
	}
	s, _ := v.Session(f.Get("session"))
	if s == nil {
		return []string{"The session has ended already."}, ""
	}
	shown := show.Session(v, c.CoordinationClock(v), s)
	return []string{fmt.Sprintf("It holds %s. Each is free for others after its lock-delay of %s.", cmp.Or(shownHolds(shown.Holds), "nothing"), shown.LockDelay)}, ""
}
