package sim

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/httpd/api"
)

// far is what datacenters know of each other while they cannot reach each other, and once they can again.
type far struct {
	l     *load
	live  []*Instance             // of every datacenter, renewed there; guarded by load.mu, as are the next two
	dead  []*Instance             // of every datacenter, not renewed
	since map[*Instance]time.Time // when the registration of a live one began
	back  map[string]*linked      // of the cut cut, by node
	cut   farCut                  // the one that was looked at last
}

// linked is what a node has shown since it heard the other datacenter again after a cut.
type linked struct {
	at     time.Time       // when that was seen
	listed map[string]bool // as APP/id
}

// farCut is a cut between all datacenters.
type farCut struct {
	from, to time.Time // to is zero while it lasts
	except   int       // datacenter that has a node which still reaches the others, or 0
	judged   bool      // nothing else was wrong when it began
}

// What datacenters know of each other (docs/run/datacenters.md, docs/reference/protocol/replication.md).
const (
	travels = 30 * time.Second // what a lease of another datacenter gets on top
	silent  = 15 * time.Second // without a sign of life, after which a link counts as cut
	// longest silence of a link that is up: two nodes send something every 5 s, and one adds a second
	unheard = 11 * time.Second
	// until a sender has tried all addresses of a peer, and the one that responds has told its whole datacenter
	findsAnother = 40 * time.Second
	slack        = 3 * time.Second // renewals wait for a batch twice, and leases end at the next look
	forever      = 24 * time.Hour
)

// keepFor is how long after the last contact another datacenter's expired instances stay, by a word of a schedule.
const keepFor = time.Minute

// whenCut sets what becomes of other datacenters' expired instances while the link is cut.
func whenCut(policy string) func(*config.Config) {
	return func(c *config.Config) {
		var all []string
		for dc := range c.Replication.Datacenters {
			all = append(all, dc+"="+policy)
		}
		c.Store.Settings.OnCut = strings.Join(all, ",")
	}
}

// keptFor returns how long after the last contact they stay, by the words of a schedule.
func keptFor(words []string) time.Duration {
	switch {
	case slices.Contains(words, "expire"):
		return 0
	case slices.Contains(words, "keepfor"):
		return keepFor
	}
	return forever
}

// Instances of each datacenter that stay, and that go one by one, and the leases of both, which end at different times.
const farStay, farGo = 3, 2

var farLeases = []time.Duration{shortLease, 5 * time.Second, 8 * time.Second}

// startFar has instances live and die in each of several datacenters.
func (l *load) startFar() {
	l.far = &far{l: l, since: map[*Instance]time.Time{}}
	if l.w.cluster.Datacenters < 2 {
		return
	}
	stay, leave := farStay, farGo
	if l.w.cluster.Nodes == 1 { // which bears all of the load
		stay, leave = 1, 1
	}
	for dc := range l.w.cluster.Datacenters {
		var last atomic.Int64
		instance := func(app string) *Instance {
			number := int(last.Add(1))
			i := l.w.newInstance(fmt.Sprintf("%s/dc%d-%d", app, dc+1, number), farLeases[number%len(farLeases)])
			i.dc = dc + 1
			return i
		}
		p := &farClients{f: l.far, due: map[*Instance]time.Time{}}
		for range stay {
			p.register(instance("FAR"))
		}
		for range leave {
			p.register(instance("GOES"))
		}
		l.w.beside(400*time.Millisecond, p.renew)
		l.task(5*time.Second, func() { l.die(instance("DEAD"), &l.far.dead) })
		l.task(7*time.Second, func() {
			p.replace.Store(instance("GOES"))
		})
	}
	l.task(1200*time.Millisecond, l.far.look)
}

// farClients are the clients of the instances of one datacenter, which renew them one after the other.
type farClients struct {
	f       *far
	all     []*Instance
	due     map[*Instance]time.Time
	replace atomic.Pointer[Instance] // of an instance that stops being renewed; nil if all go on
}

func (p *farClients) register(i *Instance) {
	began := time.Now()
	if p.f.l.w.send(i, "POST", "/eureka/apps/"+i.App, i.document()).Status != http.StatusNoContent {
		return
	}
	p.all = append(p.all, i)
	p.due[i] = began.Add(time.Duration(p.f.l.draw(int(i.Lease / 3))))
	p.f.l.mu.Lock()
	defer p.f.l.mu.Unlock()
	i.renewed, p.f.since[i] = time.Now(), began
	p.f.live = append(p.f.live, i)
}

// renew renews those that are due, and replaces the oldest one that does not stay.
func (p *farClients) renew() {
	if next := p.replace.Swap(nil); next != nil {
		if at := slices.IndexFunc(p.all, func(i *Instance) bool { return i.App == "GOES" }); at >= 0 {
			p.remove(at)
		}
		p.register(next)
	}
	for _, i := range p.all {
		began := time.Now()
		if began.Before(p.due[i]) {
			continue
		}
		r := p.f.l.w.send(i, "PUT", i.path(), "")
		if r.Status == http.StatusNotFound {
			p.f.l.w.send(i, "POST", "/eureka/apps/"+i.App, i.document())
		}
		p.due[i] = began.Add(i.Lease / 3)
		p.f.l.mu.Lock()
		i.renewed = time.Now()
		if r.Status == http.StatusNotFound {
			p.f.since[i] = began
		}
		p.f.l.mu.Unlock()
	}
}

// remove ends the client of an instance.
func (p *farClients) remove(at int) {
	i := p.all[at]
	p.all = slices.Delete(p.all, at, at+1)
	p.f.l.mu.Lock()
	defer p.f.l.mu.Unlock()
	p.f.live = slices.DeleteFunc(p.f.live, func(other *Instance) bool { return other == i })
	p.f.dead = append(p.f.dead, i)
}

// look judges what a node says of other datacenters while they are cut off, and nothing else is wrong. Once the cut is
// over it looks at every node, because what flaps is soon there again.
func (f *far) look() {
	c := f.l.d.farCut()
	if c.from != f.cut.from {
		f.back = map[string]*linked{}
	}
	f.cut = c
	switch {
	case !c.judged:
	case c.to.IsZero():
		f.lookAt(f.l.anyNode(), c)
	default:
		for _, n := range f.l.w.nodes {
			f.lookAt(n.Name, c)
		}
	}
}

func (f *far) lookAt(node string, c farCut) {
	dc, asked := f.l.w.Node(node).dc, time.Now()
	if c.except != 0 && c.except != dc { // the others hear the node if it is the one that sends
		return
	}
	var list []api.Instance
	var peers api.Peers
	read := f.l.ask("far", node, "GET", "/v1/rollcall/apps?consistency=stale", "").decode(&list) &&
		f.l.ask("far", node, "GET", "/v1/rollcall/peers", "").decode(&peers)
	if !read || f.l.d.farCut() != c {
		return
	}
	back, kind := f.back[node], "far"
	if back != nil {
		kind = "far back"
	}
	f.l.count(kind, Done)
	f.l.mu.Lock()
	defer f.l.mu.Unlock()
	for n, i := range slices.Concat(f.live, f.dead) {
		if i.dc == dc {
			continue
		}
		name, lives := i.App+"/"+i.ID, n < len(f.live)
		least, most := f.stays(c, dc, i, lives)
		is := slices.ContainsFunc(list, func(a api.Instance) bool { return a.App == i.App && a.ID == i.ID })
		if !is && time.Now().Before(least.Add(-slack)) {
			f.l.w.Errorf("I3 alive: %s does not list %s at %v, and could not hear its datacenter since %v", node, name, asked.Sub(began), c.from.Sub(began))
		}
		if is && asked.After(most.Add(slack)) {
			f.l.w.Errorf("I4 dead: %s lists %s at %v, last renewed at %v, want %v at most", node, name, asked.Sub(began), i.renewed.Sub(began), most.Sub(began))
		}
		if back == nil {
			continue
		}
		if lives && !is && back.listed[name] {
			f.l.w.Errorf("I7 converged: %s does not list %s at %v, but has listed it since the link was back at %v", node, name, asked.Sub(began), back.at.Sub(began))
		}
		back.listed[name] = is
	}
	f.judgeLinks(c, dc, node, peers, asked)
}

// judgeLinks judges what a node says of its links with other datacenters, and notes when it hears one again. f.l.mu
// must be held.
func (f *far) judgeLinks(c farCut, dc int, node string, peers api.Peers, asked time.Time) {
	for _, p := range peers.Peers {
		switch {
		case p.Incoming == nil:
		case c.to.IsZero():
			f.judgeLink(c, dc, node, p, asked.Sub(c.from))
		case f.back[node] == nil && p.Incoming.HeardMS != nil && asked.Add(-time.Duration(*p.Incoming.HeardMS)*time.Millisecond).After(c.to):
			f.back[node] = &linked{at: time.Now(), listed: map[string]bool{}}
		}
	}
}

// stays returns until when a datacenter must list an instance of another one, and until when it may. f.l.mu must be
// held.
func (f *far) stays(c farCut, dc int, i *Instance, lives bool) (least, most time.Time) {
	keeps, hears, ends := f.l.d.keeps, c.except == dc, i.Lease+travels
	never := c.from.Add(forever)
	switch {
	case lives && !f.since[i].Before(c.from.Add(-slack)): // the other side may not know it
		return time.Time{}, never
	case lives:
		least, most = c.from.Add(ends-i.Lease/3), c.from.Add(ends)
	default:
		most = i.renewed.Add(ends)
		// the other side has heard of it, and not of its end
		if i.renewed.Before(c.from.Add(-slack)) && i.renewed.Add(i.Lease).After(c.from.Add(slack)) {
			least = most
		}
	}
	switch {
	case lives && (hears || !c.to.IsZero() && keeps == forever):
		return never, never
	case !c.to.IsZero(): // each side tells the other what has ended, and what has not
		return time.Time{}, never
	case hears:
		return time.Time{}, later(most, c.from.Add(findsAnother))
	case !least.IsZero():
		least = later(least, c.from.Add(keeps-unheard))
	}
	return least, later(most, c.from.Add(keeps))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// judgeLink judges what a node says of its link with another datacenter, which is cut for some time.
func (f *far) judgeLink(c farCut, dc int, node string, p api.Peer, cut time.Duration) {
	heard := forever
	if p.Incoming.HeardMS != nil {
		heard = time.Duration(*p.Incoming.HeardMS) * time.Millisecond
	}
	least, most := cut-slack, cut+unheard+slack
	if c.except == dc {
		least, most = 0, unheard+slack
		if cut < findsAnother {
			most = forever
		}
	}
	tried := c.except == 0 && cut > silent+slack // to send, and it took too long
	if heard < least || heard > most || p.Incoming.Cut != (heard > silent) || tried && p.State != "failing" {
		f.l.w.Errorf("I11 true: %s says of %s, %v after a cut that leaves dc%d connected (dc0: none), that it was heard %v ago, its link is cut: %v, and sending is %s",
			node, p.Name, cut, c.except, heard, p.Incoming.Cut, p.State)
	}
}

// cutFar cuts the links between datacenters, except those of one node, which may be nil.
func (d *drawn) cutFar(except *Node) {
	c := farCut{from: time.Now(), judged: d.undisturbed()}
	if except != nil {
		c.except = except.dc
	}
	for _, a := range d.w.nodes {
		for _, b := range d.w.nodes {
			if a.dc < b.dc && a != except && b != except {
				d.w.Cut(a.Name, b.Name)
			}
		}
		c.judged = c.judged && a.alive()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	c.judged = c.judged && (d.far.from.IsZero() || !d.far.to.IsZero())
	d.far = c
}

// farCut returns the last cut between datacenters. It is not judged once anything else has happened.
func (d *drawn) farCut() farCut {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.far
	c.judged = c.judged && d.disturbed.Before(c.from)
	return c
}

// undisturbed reports whether everything but the links between datacenters works, and has worked for a while.
func (d *drawn) undisturbed() bool {
	now := time.Now()
	for _, n := range d.w.nodes {
		if !d.hears(n.Name, now) {
			return false
		}
	}
	if d.restored(now.Add(-time.Minute), now) { // until the next comparison each side lacks what the other knows
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return now.Sub(d.disturbed) > electionsEnd
}
