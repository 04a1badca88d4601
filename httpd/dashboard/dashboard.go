package dashboard

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/httpd/show"
	"github.com/seed-20419f34/rollcall/httpd/web"

	g "maragu.dev/gomponents"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
)

const (
	shownEvents    = 10 // per queue, on the front page
	shownInstances = 50 // per application and status
)

// dashboard has the endpoints of the pages.
type dashboard struct {
	*web.Node
	peers func(context.Context) api.Peers
}

// call is a call of a page.
type call struct {
	*web.Call
	*dashboard
}

type route web.Route[call]

// Routes are the pages of the dashboard. peers is the state of replication, empty if there is none.
func Routes(n *web.Node, peers func(context.Context) api.Peers) []web.Route[*web.Call] {
	d := &dashboard{Node: n, peers: peers}
	return web.Bind([]route{
		{frontNeeds, web.Get, "/", web.EurekaForm, call.front},
		{pageNeeds, web.Get, "/lastn", web.EurekaForm, call.lastN},
	}, func(c *web.Call) call { return call{c, d} })
}

// pageNeeds is to read the cluster's state and all applications.
func pageNeeds(*web.Call) []access.Need {
	return []access.Need{{Resource: access.Operator, Verb: access.Read}, {Resource: access.App, Verb: access.Read}}
}

// frontNeeds is to read also who holds what.
func frontNeeds(c *web.Call) []access.Need {
	return append(pageNeeds(c), access.Need{Resource: access.Session, Verb: access.Read}, access.Need{Resource: access.Lock, Verb: access.Read})
}

// page is what the pages show.
type page struct {
	Title      string
	Cluster    api.Status
	Warnings   []string
	Index      string
	Instances  int
	Statuses   []statusCount
	Apps       []shownApp
	Preserving shownPreserving
	Sender     string // the node that sends to the peers; empty: every node
	Peers      []shownPeer
	Quarantine []shownQuarantine
	Held       *coordinationFacts // nil: this node has no consensus
	Registered []shownEvent
	Canceled   []shownEvent
	Self       []fact
}

// shownPreserving is self-preservation on the front page.
type shownPreserving struct {
	State, Reason, Since, Until string // the times are empty if there are none
	Withheld                    uint32
	Figures                     api.Figures
	Threshold                   float64
}

// shownQuarantine is an instance that no list shows.
type shownQuarantine struct{ App, ID, Status, Until, By, Explain string }

type statusCount struct {
	Status string
	Count  int
}

type shownApp struct {
	Name   string
	Count  int
	Groups []statusGroup
}

// statusGroup is an application's instances of one status.
type statusGroup struct {
	Status    string
	Count     int
	Instances []linkedInstance
	More      int // how many are not listed
}

type linkedInstance struct {
	ID      string
	Link    string // empty unless it is an http or https address
	Explain string // path of what is known of it
	Owner   string // the datacenter that it belongs to; empty: this one
}

type shownEvent struct{ At, App, ID string }

type fact struct{ Name, Value string }

// front is GET /: what this node has, without a call to another node but for the state of replication.
func (c call) front() (any, error) {
	p, v, err := c.newPage(c.R, "Rollcall: registry", shownEvents)
	if err != nil {
		return nil, err
	}
	p.Index = web.FormatIndex(v.Epoch(), v.Index())
	p.Warnings = c.warnings(c.Service.Health())
	p.Instances = v.Len()
	p.Statuses = statusesOf(v.View)
	p.Apps = appsOf(v.View)
	at := show.ClockOf(v.View, c.Service.Health(), c.WithoutConsensus)
	p.Preserving = preservingOf(v.View, at)
	p.Quarantine = quarantinedOf(v.View, at)
	replication := c.peers(c.R.Context())
	p.Sender, p.Peers = replication.Sender, shownPeers(replication)
	if p.Held, err = c.coordinationNow(c.R.Context()); err != nil {
		return nil, err
	}
	p.Self = c.selfFacts()
	return c.render(frontPage(p))
}

// lastN is GET /lastn: the two recent queues, newest first.
func (c call) lastN() (any, error) {
	p, _, err := c.newPage(c.R, "Rollcall: last 1000", -1)
	if err != nil {
		return nil, err
	}
	return c.render(lastNPage(p))
}

func (d *dashboard) newPage(r *http.Request, title string, events int) (page, web.FreshView, error) {
	v, err := d.ViewAt(r.Context(), registry.Stale)
	if err != nil {
		return page{}, v, err
	}
	return page{
		Title:      title,
		Cluster:    d.ClusterNow(r.Context()),
		Registered: shownEventsOf(v.RecentlyRegistered(), events),
		Canceled:   shownEventsOf(v.RecentlyCanceled(), events),
	}, v, nil
}

// render sends a page that may load nothing and run nothing, whatever is in it.
func (c call) render(page g.Node) (any, error) {
	var html bytes.Buffer
	if err := page.Render(&html); err != nil {
		return nil, fmt.Errorf("render the page: %w", err)
	}
	header := c.W.Header()
	header.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cache-Control", "no-store")
	web.Respond(c.W, c.R, http.StatusOK, "text/html; charset=utf-8", html.Bytes())
	return web.Sent, nil
}

func (d *dashboard) warnings(health registry.Health) []string {
	var warnings []string
	if !health.Ready {
		warnings = append(warnings, "This node is still loading its state and answers no fetch of the registry.")
	}
	if !health.Quorum && !d.WithoutConsensus {
		warnings = append(warnings, "No leader is known to this node: nothing can be registered, and what is shown may be old by "+health.Age.Round(time.Millisecond).String()+".")
	}
	if health.Quorum && health.Leads && health.Suspended {
		warnings = append(warnings, "No lease is ended at present: this leader is too young to know which instances are alive.")
	}
	if d.WithoutConsensus && health.Ready && health.Suspended {
		warnings = append(warnings, "No lease is ended at present: this node became ready too short a time ago to know which instances are alive.")
	}
	for _, lack := range d.Lacks() {
		warnings = append(warnings, "Insecure: "+lack+".")
	}
	return warnings
}

// statusOrder is how the dashboard lists statuses.
var statusOrder = []registry.Status{registry.Up, registry.Starting, registry.Down, registry.OutOfService, registry.Unknown}

func statusesOf(v *registry.View) []statusCount {
	counts := show.StatusCounts(v.HashCode())
	var shown []statusCount
	for _, s := range statusOrder {
		if counts[s] > 0 {
			shown = append(shown, statusCount{s.String(), counts[s]})
		}
	}
	return shown
}

func appsOf(v *registry.View) []shownApp {
	var shown []shownApp
	for app := range v.Apps() {
		shown = append(shown, shownApp{Name: app.Name, Count: app.Len(), Groups: groupsOf(app)})
	}
	return shown
}

func groupsOf(app *registry.App) []statusGroup {
	byStatus := map[registry.Status]*statusGroup{}
	for l := range app.Leases() {
		group := byStatus[l.Instance.Status]
		if group == nil {
			group = &statusGroup{Status: l.Instance.Status.String()}
			byStatus[l.Instance.Status] = group
		}
		group.add(l)
	}
	var groups []statusGroup
	for _, s := range statusOrder {
		if group := byStatus[s]; group != nil {
			groups = append(groups, *group)
		}
	}
	return groups
}

func (g *statusGroup) add(l *registry.Lease) {
	i := l.Instance
	g.Count++
	if len(g.Instances) == shownInstances {
		g.More++
		return
	}
	g.Instances = append(g.Instances, linkedInstance{ID: i.ID(), Link: safeLink(i.StatusPageURL), Explain: explainPath(i.Key()), Owner: l.Owner})
}

// explainPath is where an instance is explained.
func explainPath(key registry.Key) string {
	return "/v1/rollcall/apps/" + url.PathEscape(key.App) + "/" + url.PathEscape(key.ID) + "/explain?consistency=stale"
}

func preservingOf(v *registry.View, at show.Clock) shownPreserving {
	p := show.PreservationNow(v, at)
	shown := shownPreserving{State: p.State, Reason: p.Reason, Withheld: p.Withheld, Figures: p.Figures, Threshold: p.Threshold}
	if p.Since != 0 {
		shown.Since = show.Time(p.Since)
	}
	if p.Until != 0 {
		shown.Until = show.Time(p.Until)
	}
	return shown
}

func quarantinedOf(v *registry.View, at show.Clock) []shownQuarantine {
	var shown []shownQuarantine
	for l := range v.Quarantined {
		q := show.Quarantine(l.Quarantine, at)
		shown = append(shown, shownQuarantine{
			App: l.Instance.App, ID: l.Instance.ID(), Status: l.Instance.Status.String(),
			Until: show.Time(q.Until), By: show.By(*q), Explain: explainPath(l.Key()),
		})
	}
	return shown
}

// safeLink lets only web addresses be links; what an instance says of itself is not trusted.
func safeLink(address string) string {
	lower := strings.ToLower(address)
	if strings.HasPrefix(lower, "http://") || strings.HasPrefix(lower, "https://") {
		return address
	}
	return ""
}

// shownEventsOf shows at most limit events; all if limit is negative.
func shownEventsOf(queue iter.Seq[registry.Recent], limit int) []shownEvent {
	var events []shownEvent
	for r := range queue {
		if len(events) == limit {
			break
		}
		events = append(events, shownEvent{At: time.UnixMilli(r.Wall).UTC().Format(time.DateTime), App: r.Key.App, ID: r.Key.ID})
	}
	return events
}

// selfFacts are what upstream's dashboard calls general info.
func (d *dashboard) selfFacts() []fact {
	memory := show.ReadMemory()
	return []fact{
		{"Version", d.Version},
		{"Current time", time.Now().Format("2006-01-02T15:04:05 -0700")},
		{"Uptime", show.Uptime(time.Since(d.Started))},
		{"Reads of Eureka clients", string(d.Reads)},
		{"Memory in use", memory.Usage()},
		{"Processors", strconv.Itoa(runtime.NumCPU())},
		{"Goroutines", strconv.Itoa(runtime.NumGoroutine())},
	}
}

// maxShownHeld bounds the sessions and the locks on the front page, each.
const maxShownHeld = 50

// coordinationFacts are sessions, locks and semaphores on the front page.
type coordinationFacts struct {
	Sessions, Keys int
	Holding        []holdingSession // those that hold something
	MoreHolding    int
	Permits        []heldPermits
	MorePermits    int
}

// holdingSession is a session that holds something.
type holdingSession struct {
	ID, Name, Age string
	EndsIn        string // empty: it does not end by itself
	Holds         string
}

// heldPermits is a lock or semaphore in use.
type heldPermits struct {
	Kind, Name, Holders string
	Limit               uint32
	Waiting, Delays     int
}

// coordinationNow is what this node has of sessions and locks; nil without consensus.
func (d *dashboard) coordinationNow(ctx context.Context) (*coordinationFacts, error) {
	if d.Coordination == nil {
		return nil, nil
	}
	v, err := d.Coordination.View(ctx, registry.Stale)
	if err != nil {
		return nil, err
	}
	facts := &coordinationFacts{Keys: v.Len()}
	now := d.CoordinationClock(v)
	for s := range v.Sessions() {
		facts.Sessions++
		facts.addSession(v, now, s)
	}
	for _, kind := range []kv.Kind{kv.Lock, kv.Semaphore} {
		facts.addPermits(v.AllPermits(kind))
	}
	return facts, nil
}

func (f *coordinationFacts) addSession(v *kv.View, now int64, s *kv.Session) {
	shown := show.Session(v, now, s)
	if len(shown.Holds) == 0 {
		return
	}
	if len(f.Holding) == maxShownHeld {
		f.MoreHolding++
		return
	}
	row := holdingSession{ID: s.ID, Name: s.Name, Age: show.Span(shown.AgeMS), Holds: shownHolds(shown.Holds)}
	if shown.EndsInMS != 0 {
		row.EndsIn = show.Span(shown.EndsInMS)
	}
	f.Holding = append(f.Holding, row)
}

// shownHolds names a few of what a session holds.
func shownHolds(holds []api.Acquisition) string {
	const few = 5
	var names []string
	for _, hold := range holds[:min(len(holds), few)] {
		names = append(names, hold.Kind+" "+hold.Name)
	}
	text := strings.Join(names, ", ")
	if more := len(holds) - few; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func (f *coordinationFacts) addPermits(all iter.Seq[*kv.Permits]) {
	for p := range all {
		if len(f.Permits) == maxShownHeld {
			f.MorePermits++
			continue
		}
		row := heldPermits{Kind: show.KindWords[p.Kind], Name: p.Name, Limit: p.Limit, Waiting: len(p.Queue), Delays: len(p.Delays)}
		for i, holder := range p.Holders {
			if i > 0 {
				row.Holders += ", "
			}
			row.Holders += holder.Session
		}
		f.Permits = append(f.Permits, row)
	}
}
