package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/httpd/api"
)

// far is what datacenters know of each other while they cannot reach each other.
type far struct {
	l    *load
	live []*Instance // one of each datacenter, renewed there
	dead []*Instance // of every datacenter, not renewed; guarded by load.mu
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

// startFar has instances live and die in each of several datacenters.
func (l *load) startFar() {
	l.far = &far{l: l}
	if l.w.cluster.Datacenters < 2 {
		return
	}
	for dc := range l.w.cluster.Datacenters {
		instance := func(name string, number int) *Instance {
			i := l.w.newInstance(fmt.Sprintf("%s/dc%d-%d", name, dc+1, number), shortLease)
			i.dc = dc + 1
			return i
		}
		live, number := instance("FAR", 0), 0
		l.w.keep(live, false)
		l.far.live = append(l.far.live, live)
		l.task(5*time.Second, func() {
			number++
			l.die(instance("DEAD", number), &l.far.dead)
		})
	}
	l.task(1200*time.Millisecond, l.far.look)
}

// look judges what a node says of other datacenters while they are cut off, and nothing else is wrong.
func (f *far) look() {
	c, node, asked := f.l.d.farCut(), f.l.anyNode(), time.Now()
	dc := f.l.w.Node(node).dc
	if !c.judged || c.except != 0 && c.except != dc { // the others hear the node if it is the one that sends
		return
	}
	var list []api.Instance
	var peers api.Peers
	read := f.l.ask("far", node, "GET", "/v1/rollcall/apps?consistency=stale", "").decode(&list) &&
		f.l.ask("far", node, "GET", "/v1/rollcall/peers", "").decode(&peers)
	if !read || f.l.d.farCut() != c {
		return
	}
	f.l.count("far", Done)
	f.l.mu.Lock()
	all := slices.Concat(f.live, f.dead)
	f.l.mu.Unlock()
	for _, i := range all {
		if i.dc == dc {
			continue
		}
		least, most := f.stays(c, dc, i)
		is := slices.ContainsFunc(list, func(a api.Instance) bool { return a.App == i.App && a.ID == i.ID })
		if !is && time.Now().Before(least.Add(-slack)) {
			f.l.w.Errorf("I3 alive: %s does not list %s/%s at %v, and could not hear its datacenter since %v", node, i.App, i.ID, asked.Sub(began), c.from.Sub(began))
		}
		if is && asked.After(most.Add(slack)) {
			f.l.w.Errorf("I4 dead: %s lists %s/%s at %v, last renewed at %v, want %v at most", node, i.App, i.ID, asked.Sub(began), i.renewed.Sub(began), most.Sub(began))
		}
	}
	for _, p := range peers.Peers {
		if p.Incoming != nil && c.to.IsZero() {
			f.judgeLink(c, dc, node, p, asked.Sub(c.from))
		}
	}
}

// stays returns until when a datacenter must list an instance of another one, and until when it may.
func (f *far) stays(c farCut, dc int, i *Instance) (least, most time.Time) {
	lives, keeps, hears, ends := slices.Contains(f.live, i), f.l.d.keeps, c.except == dc, i.Lease+travels
	never := c.from.Add(forever)
	if lives {
		least, most = c.from.Add(ends-i.Lease/3), c.from.Add(ends)
	} else {
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
