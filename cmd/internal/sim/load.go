package sim

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/store"
)

var errNoSpace = syscall.ENOSPC

// load is what clients do beside the faults of a schedule. What they learn is judged at once, or in the end.
type load struct {
	w     *World
	d     *drawn
	kept  []*Instance // renewed on time
	tasks []func()    // each ends a task

	library  *library
	far      *far
	watchers []*watcher

	mu      sync.Mutex
	r       *rand.Rand
	counts  map[string]map[Outcome]int // of calls, by kind
	dead    []*Instance                // not renewed; the time of their registration does not change
	written map[string]written         // registrations by id; each is tried once
	holds   []*hold                    // of the lock, in the order they began
	reads   reads
}

// written is the registration of an instance that stays.
type written struct {
	node    string
	at      time.Time // of the response
	outcome Outcome
}

// longLease outlasts the run; shortLease is for instances that come and go.
const (
	longLease  = time.Hour
	shortLease = 12 * time.Second
)

// newLoad prepares clients that draw by a seed.
func newLoad(w *World, d *drawn, seed uint64) *load {
	return &load{
		w: w, d: d, r: rand.New(rand.NewPCG(seed, 58)),
		counts: map[string]map[Outcome]int{}, written: map[string]written{},
		reads: reads{newest: map[string]uint64{}, stale: map[string]uint64{}},
	}
}

// start starts the clients.
func (l *load) start() {
	cp := l.w.Mode() == config.CP
	for k := range 2 {
		i := l.w.newInstance(fmt.Sprintf("LIVE/i%d", k), 3*shortLease)
		l.w.keep(i, cp)
		l.kept = append(l.kept, i)
	}
	l.startLibrary()
	number, deaths := 0, 8*time.Second
	if l.d.herd != nil { // so that the dead, which are kept, stay fewer than those that live
		deaths = 20 * time.Second
	}
	l.task(deaths, func() {
		number++
		l.die(l.w.newInstance(fmt.Sprintf("DEAD/i%d", number), shortLease), &l.dead)
	})
	l.startFar()
	l.startWatches()
	last, every := 0, 700*time.Millisecond
	if !cp { // no other clients work there, and losses are limited to what came shortly before a kill
		every = 150 * time.Millisecond
	}
	l.task(every, func() {
		last++
		l.register(l.w.newInstance(fmt.Sprintf("ONCE/i%d", last), longLease))
	})
	if l.d.permits.l != nil {
		l.task(900*time.Millisecond, l.d.permits.trespass)
		l.startVisitors()
	}
	if !cp {
		return
	}
	l.task(700*time.Millisecond, l.look)
	l.startHistories()
	l.d.bursts = &bursts{l: l}
	l.startLocks()
	l.startCatalog()
	l.startQueues()
	l.startReads()
	l.startStatuses()
	l.startEnds()
	l.library.work()
	if l.d.learners > 0 {
		l.task(4*time.Second, l.lookAtVoters)
	}
	if l.d.herd != nil {
		l.d.herd.start(l)
	}
}

// task repeats do until it is nearly calm.
func (l *load) task(every time.Duration, do func()) { l.tasks = append(l.tasks, l.w.beside(every, do)) }

// endTasks ends all tasks.
func (l *load) endTasks() {
	for _, end := range l.tasks {
		end()
	}
}

// node draws a node of the first datacenter.
func (l *load) node() string { return l.w.nodes[l.draw(l.w.cluster.Nodes)].Name }

// anyNode draws a node of any datacenter.
func (l *load) anyNode() string { return l.w.nodes[l.draw(len(l.w.nodes))].Name }

func (l *load) draw(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.r.IntN(n)
}

func (l *load) count(kind string, o Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.counts[kind] == nil {
		l.counts[kind] = map[Outcome]int{}
	}
	l.counts[kind][o]++
}

// ask makes a call whose response must come within its bounds.
func (l *load) ask(kind, node, method, path, body string, headers ...string) Reply {
	return l.askFor(callPatience, 0, node, method, path, body, headers...)
}

// askFor is ask for a client with the given patience, and for a call that may wait in a queue.
func (l *load) askFor(patience, wait time.Duration, node, method, path, body string, headers ...string) Reply {
	asked := time.Now()
	r := l.w.call(node, patience, method, path, body, headers...)
	if r.Status == 0 && r.Took >= callPatience+wait && l.d.stayed(node, asked) {
		l.w.Errorf("I12 bounded: %s has not answered %s %s of %v within %v", node, method, path, asked.Sub(began), r.Took)
	}
	consul := strings.Contains(path, "/v1/") && !strings.HasPrefix(path, "/v1/rollcall/") // also with an agent's name
	waits := consul && !strings.HasSuffix(path, "&stale") && !slices.Contains(headers, soon)
	l.judgeTime(node, method+" "+path, asked, wait, waits, r)
	if r.Status == http.StatusUnauthorized || r.Status == http.StatusForbidden {
		l.w.Errorf("I13 allowed: %s refuses the operator's %s %s at %v: %v", node, method, path, asked.Sub(began), r)
	}
	return r
}

// write makes a call that writes. Without a response it waits for as long as the node may take.
func (l *load) write(node, method, path, body string, headers ...string) Reply {
	r := l.ask("write", node, method, path, body, headers...)
	if r.Status == 0 {
		time.Sleep(certainWithin)
	}
	return r
}

// Bounds of responses, by docs/reference/outcomes.md, docs/understand/consistency.md and
// docs/reference/protocol/coordination.md.
const (
	quickAttempt, maxAttempt = 300 * time.Millisecond, 2 * time.Second // for a call between nodes (package port)

	// a client knows that nothing was done: a last try may begin when the time is up
	refusedWithin = store.NoLeaderWait + quickAttempt
	// a client knows that nobody knows: the call was sent in the last try
	certainWithin = refusedWithin + store.ResultWait
	// Consul's API waits this long for a leader, and then makes its last try
	leaderWithin = 7 * time.Second
	leaderPause  = 50 * time.Millisecond // between two of these tries
	// a leader that has lost its majority reports within it what it has not proposed
	stepsDown = 2 * time.Second
	// a node notices within it that it has lost its leader (docs/run/node-died.md)
	noticed = 3 * time.Second
	// a write of unknown outcome takes no effect later than this after the response
	unknownTakes = time.Second
	// a node tries this long to take a session out of a queue (package own)
	leaveWait = 10 * time.Second
	// how much later a node may respond than its bound says, on top of the way
	lateness     = 250 * time.Millisecond
	callPatience = 2 * (leaderWithin + certainWithin)
)

// reads is what readers have seen.
type reads struct {
	mu     sync.Mutex
	newest map[string]uint64 // index of linearizable reads, by path
	stale  map[string]uint64 // index of stale reads, by node
	// when the writes of the fresh key were acknowledged: 1, 2 and so on; zero if they were not
	acked []time.Time
}

func (r *reads) newestOf(path string) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.newest[path]
}

// consulIndex returns the index of a response.
func consulIndex(r Reply) uint64 {
	index, _ := strconv.ParseUint(r.Header.Get("X-Consul-Index"), 10, 64)
	return index
}

// linearizable compares the index of a linearizable read with that of an earlier one, at any node.
func (r *reads) linearizable(l *load, node, path string, floor uint64, reply Reply) {
	index := consulIndex(reply)
	if index < floor {
		l.w.Errorf("I9 monotone: %s at %s has index %d at %v, an earlier read had %d", path, node, index, time.Since(began), floor)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.newest[path] = max(r.newest[path], index)
}

// register registers an instance that stays, once.
func (l *load) register(i *Instance) {
	node := l.node()
	var o Outcome
	if l.draw(3) == 0 {
		var tries []try
		o, tries = l.library.register(i, 0)
		node = l.library.answered(tries)
	} else {
		o = l.ask("register", node, "POST", "/eureka/apps/"+i.App, i.document()).Outcome()
		l.count("register", o)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.written[i.ID] = written{node, time.Now(), o}
}

// die registers an instance that nobody renews, and adds it to others.
func (l *load) die(i *Instance, others *[]*Instance) {
	if l.w.send(i, "POST", "/eureka/apps/"+i.App, i.document()).Status != http.StatusNoContent {
		return
	}
	i.renewed = time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	*others = append(*others, i)
}

// look reads one of the instances that must exist: the kept ones, and those that have just been registered.
func (l *load) look() {
	all := l.kept
	l.mu.Lock()
	if n := len(l.dead); n > 0 && time.Since(l.dead[n-1].renewed) < shortLease-tryPatience {
		all = append(all[:len(all):len(all)], l.dead[n-1])
	}
	l.mu.Unlock()
	i, node := all[l.draw(len(all))], l.node()
	if i.App == "LIVE" && l.draw(4) == 0 {
		l.library.renew(i)
		return
	}
	r := l.ask("look", node, "GET", i.path(), "")
	l.count("look", r.Outcome())
	if r.Status == http.StatusNotFound && (i.App == "LIVE" || time.Since(i.renewed) < i.Lease-tryPatience) {
		i.recordMissing("%s says at %v: %v", node, time.Since(began), r)
	}
}

// drawn is what the acts of a schedule need beside its world, and what they leave for the judges.
type drawn struct {
	always    bool          // data.sync is always
	mayBeOld  bool          // it was founded at the oldest level of the formats
	learners  int           // nodes of each datacenter without a vote: the last ones
	keeps     time.Duration // how long instances stay after the last contact with their datacenter
	began     time.Time     // when the first client began
	w         *World
	load      *load
	permits   permits
	histories *histories // nil in mode ap
	bursts    *bursts    // nil in mode ap
	locks     *locks
	fleet     *fleet
	ends      *ends          // nil in mode ap
	statuses  *statuses      // nil in mode ap
	herd      *herd          // nil without self-preservation
	reloads   atomic.Int64   // how often settings were changed
	beside    sync.WaitGroup // acts in progress

	mu       sync.Mutex
	snapshot string                 // the last one saved
	saved    time.Time              // when it had been saved
	restores []restoring            // in the order they began
	away     map[string]time.Time   // when nodes were last told to do something after which they may not respond
	present  map[string]bool        // nodes of away that were started again since
	ended    map[string][]time.Time // when processes of a node were ended, or its disk was broken
	acted    time.Time              // when an act was last begun
	slowed   time.Duration          // by which a link was slow once, as the nodes may have measured
	apart    bool                   // a link is cut
	cutOff   []string               // nodes whose links were cut last
	parted   time.Time              // when the first link since the last heal was cut
	healed   time.Time              // when the last cut link was healed
	weak     bool                   // a link or a disk is slow, or a link cut in one direction
	limbo    map[string]bool        // nodes that may or may not be members: they start again when they have left

	far       farCut    // the last one
	disturbed time.Time // when something last happened that may not stay between datacenters
}

// restoring is one restore.
type restoring struct {
	saved, from, to time.Time // when its snapshot had been saved, when it began, and when it was over; zero if not yet
	outcome         Outcome
}

// configure applies the settings of a schedule, as the reloads so far have changed them.
func (d *drawn) configure(s Schedule) func(*config.Config) {
	return func(c *config.Config) {
		c.Store.Settings.SelfPreservation, c.Store.Settings.Threshold = false, 0 // the setting preserve changes that
		c.HTTPD.Limits.PerAddress = 0                                            // all clients have one address
		for _, word := range s.Settings {
			settings[word](c)
		}
		if f := d.permits.file; f != nil {
			f.configure(c)
		}
		if d.reloads.Load()%2 == 1 {
			c.Store.Test.SyncDelay, c.ShutdownDelay, c.LogLevel = 2*time.Millisecond, 50*time.Millisecond, "debug"
			c.HTTPD.RateLimit.Enabled, c.HTTPD.RateLimit.BurstSize, c.HTTPD.RateLimit.FetchRate = true, 1e6, 1e6
		}
	}
}

// mark records that a node may not respond from now on, or not until an act has started it again.
func (d *drawn) mark(e Step) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.acted = time.Now()
	if between := e.Do == "cutdc" || e.Do == "cutbut" || e.Do == "save" || e.Do == "heal" && !d.weak && !d.apart; !between {
		d.disturbed = time.Now()
	}
	switch e.Do {
	case "kill", "killbefore", "killafter", "poweroff", "stop", "remove", "hangdisk", "faildisk", "eio":
		d.away[e.Args[0]], d.present[e.Args[0]] = time.Now(), false
		d.ended[e.Args[0]] = append(d.ended[e.Args[0]], time.Now())
		d.weak = d.weak || e.Do == "hangdisk" // a leader leads on until it gives its disk up
	case "delay", "jitter", "lose":
		d.slowed, d.weak = max(d.slowed, e.slows()), true
	case "cut", "isolate":
		d.cutOff = e.Args
		d.part()
	case "cutoneway": // a follower that hears its leader, but does not reach it, does not report that
		d.weak, d.cutOff = true, e.Args
		d.part()
	case "slowdisk": // a leader with a slow disk accepts some of the writes
		d.weak = true
	case "heal":
		d.weak, d.apart, d.healed, d.cutOff = false, false, time.Now(), nil
		if d.far.to.IsZero() {
			d.far.to = d.healed
		}
	case "start":
		d.away[e.Args[0]], d.present[e.Args[0]] = time.Now(), true
	}
}

// slows returns by how much an act slows a link.
func (e Step) slows() time.Duration {
	if e.Do == "lose" {
		return resend
	}
	span, _ := time.ParseDuration(e.Args[2]) // it was read before, or generated
	return span
}

// perform makes an event happen, and clients write at once.
func (d *drawn) perform(e Step) {
	d.mark(e)
	d.w.perform(e)
	d.mu.Lock()
	d.acted = time.Now()
	d.mu.Unlock()
	d.bursts.behind(e.Do)
	d.histories.behind(e.Do, e.Args)
}

// part records that nodes do not reach each other until the next heal. d.mu must be held.
func (d *drawn) part() {
	if !d.apart {
		d.apart, d.parted = true, time.Now()
	}
}

// isCutOff reports whether links of a node are cut.
func (d *drawn) isCutOff(node string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Contains(d.cutOff, node)
}

// latency returns the latency that the nodes may assume for their links.
func (d *drawn) latency() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.w.cluster.latency() + d.slowed
}

// isWeak reports whether a link or a disk is slow, or a link cut in one direction.
func (d *drawn) isWeak() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.weak
}

// hears reports whether a node has heard its leader for longer than it takes to put a change of permissions in force.
func (d *drawn) hears(node string, asked time.Time) bool {
	if d.isWeak() || !d.expectedReady(node, asked) {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.apart && asked.Sub(d.healed) > electionsEnd
}

// quiet reports whether a node has heard its leader for long, and nothing has happened to the cluster.
func (d *drawn) quiet(node string, asked time.Time) bool {
	hears := d.hears(node, asked)
	d.mu.Lock()
	defer d.mu.Unlock()
	return hears && asked.Sub(d.acted) > electionsEnd
}

// electionsEnd is how long nodes that hear each other again may take to have a leader.
const electionsEnd = 10 * time.Second

// slowest is the longest latency that is drawn; beyond it nothing is promised (docs/run/three-machines.md).
const slowest = 400 * time.Millisecond

// stayed reports whether a node has been expected to respond ever since a time.
func (d *drawn) stayed(node string, since time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	last, ever := d.away[node]
	return !ever || d.present[node] && last.Before(since)
}

// expectedReady reports whether a node has had time to become ready: since its start or, if it started while links were
// cut, since they were healed.
func (d *drawn) expectedReady(node string, at time.Time) bool {
	since := at.Add(-ReadyWithin)
	if !d.stayed(node, since) {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	last := d.away[node]
	return last.Before(d.parted) || last.After(d.healed) || d.healed.Before(since)
}

// drawSteady draws a node with draw, and prefers one that has been expected to respond for long: only such a node can
// be judged.
func (d *drawn) drawSteady(draw func() string) string {
	for range 2 * d.w.cluster.Nodes {
		if node := draw(); d.expectedReady(node, time.Now()) {
			return node
		}
	}
	return draw()
}

// remove kills a node and removes it from its cluster. Its next process begins with an empty disk, and joins.
func (d *drawn) remove(n *Node) {
	if d.w.Mode() == config.AP {
		return
	}
	switch {
	case n.alive():
		d.w.kill(n.Name, false)
	case n.running():
		n.leave()
	}
	d.forgetMember(n)
}

// forgetMember asks the other nodes to remove a stopped one. Once the outcome of that is unknown, a later refusal
// does not tell either.
func (d *drawn) forgetMember(n *Node) {
	for _, other := range d.w.Datacenter(n.dc) {
		if other == n.Name || !d.w.Node(other).alive() {
			continue
		}
		switch r := d.w.call(other, 5*time.Second, "DELETE", "/v1/rollcall/members/"+n.Name, ""); r.Outcome() {
		case Done, NotFound:
			n.lives++ // whose directory does not exist
			d.setLimbo(n, false)
			return
		case Unknown:
			d.setLimbo(n, true)
		}
	}
}

func (d *drawn) setLimbo(n *Node, is bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.limbo[n.Name] = is
}

func (d *drawn) inLimbo(n *Node) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.limbo[n.Name]
}

// start starts a node. If it may still be a member, it is removed first.
func (d *drawn) start(n *Node) {
	if d.inLimbo(n) {
		d.forgetMember(n)
	}
	if d.inLimbo(n) {
		return
	}
	if !n.alive() {
		d.mark(Step{Do: "start", Args: []string{n.Name}})
	}
	n.comeBack()
}

// save keeps a snapshot.
func (d *drawn) save() {
	r := d.load.ask("save", d.load.node(), "GET", "/v1/rollcall/snapshot", "")
	if r.Status != http.StatusOK {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.snapshot, d.saved = r.Body, time.Now()
}

// restore restores the last saved snapshot, while other things happen.
func (d *drawn) restore() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.snapshot == "" {
		return
	}
	snapshot, at := d.snapshot, len(d.restores)
	d.restores = append(d.restores, restoring{saved: d.saved, from: time.Now(), outcome: Unknown})
	d.beside.Go(func() {
		r := d.w.call(d.load.node(), restorePatience, "PUT", "/v1/rollcall/snapshot?reason=drawn", snapshot,
			"Content-Type: application/octet-stream")
		d.load.count("restore", r.Outcome())
		d.mu.Lock()
		defer d.mu.Unlock()
		d.restores[at].to, d.restores[at].outcome = time.Now(), r.Outcome()
	})
}

// restorePatience is longer than a restore may take.
const restorePatience = 25 * time.Second

// restored reports whether a restore may have taken effect within a time.
func (d *drawn) restored(from, to time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.restores, func(r restoring) bool {
		return r.outcome != Refused && r.from.Before(to) && (r.to.IsZero() || r.outcome == Unknown || !r.to.Before(from))
	})
}

// raise has the next level of the formats written.
func (d *drawn) raise() {
	d.load.count("raise", d.load.ask("raise", d.load.node(), "POST", "/v1/rollcall/upgrade/finalize", "").Outcome())
}

// reload changes settings, and makes one node read them again.
func (d *drawn) reload(n *Node) {
	d.reloads.Add(1)
	if !n.alive() {
		return
	}
	select {
	case n.process.hangups <- syscall.SIGHUP:
	case <-n.process.done:
	case <-time.After(time.Second): // it starts, or stops
	}
}

// foundedAtOldest makes a cluster be founded at the oldest level of the formats: it changes the first entry of a
// leadership, on every node. Such an entry has a version, its kind, two texts and the level.
func foundedAtOldest(entry []byte) []byte {
	if len(entry) < 2 || entry[1] != fsm.AppendEstablish(nil, codec.Oldest, fsm.Establish{})[1] {
		return entry
	}
	at := 2
	for range 2 {
		length, n := binary.Uvarint(entry[at:])
		at += n + int(length)
	}
	entry = slices.Clone(entry)
	entry[at] = codec.Oldest
	return entry
}
