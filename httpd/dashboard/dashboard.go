package dashboard

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	g "maragu.dev/gomponents"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// Config is what the dashboard needs beside a web.Node. Every field is required.
type Config struct {
	// Peers returns the state of replication, or an empty one. It returns within a second.
	Peers func(context.Context) api.Peers
	// Moved says how an instance changed its address while it had a lease, or returns "".
	Moved func(registry.Key) string
	// Writes counts the writes that the node has responded to.
	Writes func() Times
	// Upkeep returns what the node's operators must renew in time, as of now.
	Upkeep func() Upkeep
	// Do performs a call of our own API, or of Consul's, as if r's sender had made it over the network.
	Do func(w http.ResponseWriter, r *http.Request)
	// Members means that the cluster has members that can be removed and made to lead.
	Members bool
	// Acts decides whether a page may make changes when callers need no name.
	Acts Acts
	// Loopback means that the node only listens for programs on its own machine.
	Loopback bool
}

// Upkeep is what a node needs from its operators in time.
type Upkeep struct {
	Certificates []Certificate
	Backup       *time.Time // when this node last wrote a scheduled snapshot, zero for never; nil without a schedule
}

// Certificate is one that the node presents to others.
type Certificate struct {
	Use  string // http, cluster or replication
	Ends time.Time
}

// Acts decides whether the pages may make changes when callers need no name.
type Acts string

// The settings of dashboard.acts.
const (
	actsAuto Acts = "auto" // yes if the node listens on loopback
	actsOn   Acts = "on"
	actsOff  Acts = "off"
)

// Dashboard has the endpoints of the pages. It is safe for concurrent use.
type Dashboard struct {
	*web.Node
	config  Config
	monitor *monitor
}

// New makes the dashboard. It starts nothing. Run gathers what the pages show; without it each page looks for itself.
func New(n *web.Node, c Config) *Dashboard {
	d := &Dashboard{Node: n, config: c}
	d.monitor = &monitor{Node: n, peersOf: c.Peers, writes: c.Writes, upkeepOf: c.Upkeep, looking: make(chan struct{}, 1)}
	n.ErrorPage = d.errorPage
	return d
}

// Run watches the cluster and keeps the figures of the last hour, until ctx ends.
func (d *Dashboard) Run(ctx context.Context) error { return d.monitor.Run(ctx) }

// call is a call of a page.
type call struct {
	*web.Call
	*Dashboard
}

type route web.Route[call]

// Routes returns the pages.
func (d *Dashboard) Routes() []web.Route[*web.Call] {
	rows := []route{
		{web.Known, web.Get, "/", web.PageForm, showing(call.overview)},
		{web.Known, web.Get, "/ui", web.PageForm, showing(call.overview)},
		{documentNeeds, web.Get, "/v1/rollcall/overview", web.JSONForm, call.document},
		{web.Known, web.Get, "/ui/apps", web.PageForm, showing(call.applications)},
		{web.ToReadNamed(access.App, "app"), web.Get, "/ui/apps/{app}", web.PageForm, showing(call.application)},
		{web.ToReadNamed(access.App, "app"), web.Get, "/ui/apps/{app}/{id}", web.PageForm, showing(call.instance)},
		{web.ToRead(access.Operator), web.Get, "/ui/nodes", web.PageForm, showing(call.nodes)},
		{web.ToRead(access.Operator), web.Get, "/ui/peers", web.PageForm, showing(call.peers)},
		{web.ToRead(access.Operator), web.GetOnly, "/ui/peers/{name}", web.PageForm, showing(call.comparePeer)},
		{heldNeeds, web.Get, "/ui/held", web.PageForm, showing(call.held)},
		{web.Known, web.Get, "/ui/keys", web.PageForm, showing(call.key)},
		{web.Known, web.Get, "/ui/events", web.PageForm, showing(call.events)},
		{web.Known, web.Get, "/lastn", web.PageForm, showing(call.events)},
		{web.Known, web.GetOnly, "/ui/live", web.PageForm, call.live},
		{web.Known, web.Get, "/ui/raw/{what}", web.PageForm, call.raw},
		{web.Known, web.Get, "/ui/acts/{act}", web.PageForm, call.form},
		{web.Known, web.Post, "/ui/acts/{act}", web.PageForm, call.act},
		{web.Open, web.Get, "/ui/login", web.PageForm, call.loginPage},
		{web.Open, web.Post, "/ui/login", web.PageForm, call.login},
		{web.Open, web.Post, "/ui/logout", web.PageForm, call.logout},
		{web.Open, web.Get, "/ui/assets/{hash}/{name}", web.PageForm, call.asset},
	}
	return web.Bind(rows, func(c *web.Call) call { return call{c, d} })
}

// heldNeeds returns the need to read who holds what.
func heldNeeds(*web.Call) []access.Need {
	return []access.Need{{Resource: access.Session, Verb: access.Read}, {Resource: access.Lock, Verb: access.Read}}
}

// mayRead reports whether the caller may read an application, or all of them if app is empty.
func (c call) mayRead(app string) bool {
	return c.May(access.Need{Resource: access.App, Name: app, Verb: access.Read})
}

// mayOperate reports whether the caller may read what is for operators.
func (c call) mayOperate() bool {
	return c.May(access.Need{Resource: access.Operator, Verb: access.Read})
}

// view returns the state that a page shows: what this node has, or, after an act, at least what the act did.
func (c call) view() (*registry.View, error) {
	if c.Given("index") {
		v, err := c.ViewAfterWrite(c.R.Context())
		return v.View, err
	}
	v, err := c.ViewAt(web.EvenUnheard(c.R.Context()), registry.Stale)
	return v.View, err
}

// showing makes an endpoint of a page, which gets the state that it shows.
func showing(of func(call, *registry.View) (page, error)) func(call) (any, error) {
	return func(c call) (any, error) {
		v, err := c.view()
		if err != nil {
			return nil, err
		}
		p, err := of(c, v)
		if err != nil {
			return nil, err
		}
		return c.show(v, p)
	}
}

// page holds what surrounds every page's own content.
type page struct {
	title string
	here  string // path of the navigation entry that the page belongs to
	// watch is the application whose changes are shown as they happen; empty means all.
	watch   string
	still   bool // not rebuilt, because that would ask other nodes
	status  int  // HTTP status; 0 means 200
	content []g.Node
}

// show responds with a page.
func (c call) show(v *registry.View, p page) (any, error) {
	known := c.facts(v, c.permitted(c.monitor.now(c.R.Context())))
	line := truthOf(known)
	whole := c.body(p, known.otherNodes(), g.Group{line.node(), el("main", attr("id", "main"), attr("tabindex", "-1"), g.Group(p.content))})
	if c.R.Header.Get(fragmentHeader) == "" {
		whole = c.frame(p, whole)
	}
	return c.render(cmp.Or(p.status, http.StatusOK), whole)
}

// facts returns the source of the status line.
func (c call) facts(v *registry.View, s seen) *facts {
	return &facts{
		now: c.World.Now(), node: c.Name, scheme: c.scheme(), alone: c.WithoutConsensus, health: c.Service.Health(),
		seen: s, preservation: c.monitor.preservation(v), instances: v.Total(), withoutNodes: !c.mayOperate(), withoutCounts: !c.mayRead(""),
	}
}

// fragmentHeader asks for just a page's own content.
const fragmentHeader = "X-Rollcall-Fragment"

// permitted returns the part of s that the caller may read: a service's token sees no nodes.
func (c call) permitted(s seen) seen {
	if !c.mayOperate() {
		return seen{at: s.at, leaderless: s.leaderless, leading: s.leading}
	}
	return s
}

// scheme returns the scheme of the nodes' addresses.
func (c call) scheme() string {
	if c.R.TLS != nil {
		return "https"
	}
	return "http"
}

// render sends a page.
func (c call) render(status int, page g.Node) (any, error) {
	renderWith(c.W, c.R, status, page)
	return web.Sent, nil
}

// policy lets a page load only from this node, and run no inline script.
const policy = "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self'; img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

func renderWith(w http.ResponseWriter, r *http.Request, status int, page g.Node) {
	var html bytes.Buffer
	_ = page.Render(&html) // cannot fail: it writes to memory
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("Referrer-Policy", "same-origin")
	header.Set("Cache-Control", "no-store")
	if r.TLS != nil {
		header.Set("Strict-Transport-Security", "max-age=2592000") // 30 days, and for this host name alone
	}
	web.Respond(w, r, status, "text/html; charset=utf-8", html.Bytes())
}

// errorPage shows a person what went wrong. Callers without a name are asked to log in.
func (d *Dashboard) errorPage(w http.ResponseWriter, r *http.Request, status int, words string) {
	if r == nil {
		http.Error(w, words, status)
		return
	}
	if status == http.StatusUnauthorized {
		// A login returns to the page that was asked for, with the form that was sent to it.
		path, fields := r.URL.RequestURI(), url.Values(nil)
		if r.Method == http.MethodPost {
			path = r.URL.Path
			body, err := io.ReadAll(io.LimitReader(r.Body, maxForm))
			if sent, wrong := url.ParseQuery(string(body)); err == nil && wrong == nil {
				fields = sent
			}
		}
		renderWith(w, r, status, d.loginForm(local(path), words, fields))
		return
	}
	title := http.StatusText(status)
	renderWith(w, r, status, bare(title, el("section", class("narrow"),
		el("h1", text(title)), el("p", text(sentence(upperFirst(words)))),
		el("p", link("/", "Overview"), text(" "), link("/ui/apps", "Applications")))))
}

func upperFirst(words string) string {
	_, size := utf8.DecodeRuneInString(words)
	return strings.ToUpper(words[:size]) + words[size:]
}

// local returns a path of this node that a page may link to; for anything else, the overview's.
func local(path string) string {
	u, err := url.Parse(path)
	if err != nil || u.IsAbs() || u.Host != "" || !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || strings.ContainsAny(path, "\\\r\n") {
		return "/"
	}
	return path
}

// redirect sends the browser to a path of this node.
func (c call) redirect(path string) (any, error) {
	c.W.Header().Set("Location", path)
	c.W.WriteHeader(http.StatusSeeOther)
	return web.Sent, nil
}

// instancePath returns the path of an instance's page, appPath that of an application's.
func instancePath(key registry.Key) string {
	return appPath(key.App) + "/" + url.PathEscape(key.ID)
}

func appPath(app string) string { return "/ui/apps/" + url.PathEscape(app) }

// statusOrder is the dashboard's order of statuses: STARTING follows UP, the others come in the usual order.
var statusOrder = slices.Insert(slices.DeleteFunc(registry.Statuses(), func(s registry.Status) bool { return s == registry.Starting }),
	1, registry.Starting)

// maxForm bounds the body of a form, in bytes.
const maxForm = 64 << 10

// fields reads the body of a form, at most most bytes.
func (c call) fields(most int64) url.Values {
	body := c.Body(most)
	if c.Err != nil {
		return url.Values{}
	}
	values, err := url.ParseQuery(string(body))
	if err != nil {
		c.Refuse("the form is not correctly escaped")
	}
	return values
}

// leasesOf returns an application's leases by id, including the quarantined.
func leasesOf(v *registry.View, name string) []*registry.Lease {
	if name == "" {
		return nil
	}
	leases := slices.Collect(web.LeasesOf(v, name))
	for l := range v.Quarantined {
		if l.Instance.App == name {
			leases = append(leases, l)
		}
	}
	slices.SortFunc(leases, func(a, b *registry.Lease) int { return strings.Compare(a.Instance.ID(), b.Instance.ID()) })
	return leases
}
