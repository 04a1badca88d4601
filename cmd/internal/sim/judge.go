package sim

import (
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/httpd/api"
)

// lastWrites is how long the last writes take, at most, to reach every node without consensus: a batch's delay, and
// the way.
const lastWrites = 2 * time.Second

// endsWithin is how much longer than its lease and a grace one datacenter of mode cp lists a dead
// instance: 5 s without a leader, 1.2 s for each of two changes of leader, and 2.2 s (docs/adr/0034).
const endsWithin = 10 * time.Second

// goneBy returns when an instance that nobody renews is gone from every node: one lease and one grace later, or when
// self-preservation lets evictions go on. No other code has this bound. Without consensus, and from another datacenter,
// renewals and removals come later.
func (l *load) goneBy(i *Instance, calm time.Time) time.Time {
	lasts, within := time.Duration(0), time.Minute
	if l.w.Mode() == config.CP && l.w.cluster.Datacenters < 2 {
		lasts, within = i.Lease+graceOf(i.Lease), endsWithin
	}
	ends := l.lastLife(i.renewed, calm).Add(lasts)
	if l.d.herd != nil {
		ends = later(ends, l.d.herd.resumeBy(calm))
	}
	return ends.Add(within)
}

// lastLife returns since when nothing has prolonged the life of something that was renewed at a time.
func (l *load) lastLife(renewed, calm time.Time) time.Time {
	from := renewed
	if calm.After(from) {
		from = calm
	}
	for _, r := range l.d.restores { // which bring instances back, for one lease
		if r.to.After(from) {
			from = r.to
		}
	}
	return from
}

// judgeDead checks that the last of the dead are gone as soon as they must be. It waits no longer than until a time.
func (l *load) judgeDead(calm, until time.Time) {
	living, dead := l.d.herd.divide()
	l.kept, l.dead = append(l.kept, living...), append(l.dead, dead...)
	last := calm
	for _, i := range l.dead {
		last = later(last, l.goneBy(i, calm))
	}
	time.Sleep(min(time.Until(last), time.Until(until)))
	for _, n := range l.w.nodes {
		l.judgeGone(n.Name, l.list(n.Name), calm)
	}
}

// judgeGone judges which of the dead a node still lists.
func (l *load) judgeGone(node string, list map[string]bool, calm time.Time) {
	for _, i := range slices.Concat(l.dead, l.far.dead) {
		if bound := l.goneBy(i, calm); list[i.App+"/"+i.ID] && time.Now().After(bound) {
			l.w.Errorf("I4 dead: %s lists %s/%s %v after its last renewal; its lease is %v", node, i.App, i.ID, time.Since(i.renewed), i.Lease)
		}
	}
}

// lost is how long before the end of a process a change in mode ap may have been acknowledged without being on the
// disk, with data.sync: interval, while the disk is slow or hangs.
const lost = time.Second + 10*time.Second

// mayLose reports whether what a node wrote may be gone, because its process ended soon after. With data.sync: always
// that is only what the node has not acknowledged.
func (l *load) mayLose(w written) bool {
	if l.w.Mode() == config.CP || l.d.always && w.outcome != Unknown {
		return false
	}
	return slices.ContainsFunc(l.d.ended[w.node], func(at time.Time) bool {
		return at.After(w.at.Add(-lost)) && at.Before(w.at.Add(2*lost))
	})
}

// judge checks every node, once it is calm, for what the cluster has promised.
func (l *load) judge(calm time.Time, check checker) {
	time.Sleep(lastWrites)
	l.d.herd.judge()
	for _, i := range append(slices.Clone(l.kept), l.dead...) {
		if missing := i.gone(); len(missing) > 0 {
			l.w.Errorf("I3 alive: %s/%s was renewed on time, and was gone %d times, first: %s", i.App, i.ID, len(missing), missing[0])
		}
	}
	lists := map[string]map[string]bool{}
	for _, n := range l.w.nodes {
		if list := l.list(n.Name); list != nil {
			lists[n.Name] = list
			l.judgeList(n.Name, list, calm)
		}
	}
	l.sameLists(lists)
	l.judgeWatches(lists)
	l.d.permits.judge(lists)
	l.judgePeers()
	if l.w.Mode() == config.CP {
		l.d.histories.judge(check)
		l.d.bursts.judge()
		l.d.locks.judge(l, check)
		l.d.fleet.judge(l, calm)
		l.d.ends.judge(calm)
		l.judgeReplicas()
		l.judgeLevel()
	}
}

// judgeList judges what a node lists.
func (l *load) judgeList(node string, list map[string]bool, calm time.Time) {
	for _, i := range slices.Concat(l.kept, l.far.live) {
		if !list[i.App+"/"+i.ID] {
			l.w.Errorf("I7 converged: %s does not list %s/%s, which is renewed on time", node, i.App, i.ID)
		}
	}
	l.judgeGone(node, list, calm)
	for id, w := range l.written {
		switch there := list["ONCE/"+id]; {
		case w.outcome == Done && !there && !l.mayLose(w):
			l.w.Errorf("I1 durable: %s does not list ONCE/%s, whose registration %s acknowledged at %v", node, id, w.node, w.at.Sub(began))
		case w.outcome == Refused && there:
			l.w.Errorf("I6 honest: %s lists ONCE/%s, whose registration %s refused at %v", node, id, w.node, w.at.Sub(began))
		}
	}
}

// list returns the instances that a node lists, as APP/id, or nil if it does not respond.
func (l *load) list(node string) map[string]bool {
	r := l.w.call(node, 10*time.Second, "GET", "/v1/rollcall/apps", "")
	var all []api.Instance
	if !r.decode(&all) {
		l.w.Errorf("I12 bounded: %s does not list its instances a minute after the last fault: %v", node, r)
		return nil
	}
	list := map[string]bool{}
	for _, i := range all {
		list[i.App+"/"+i.ID] = true
	}
	return list
}

// mayEnd reports whether an instance may end at any time in the end, as far as its name tells.
func mayEnd(name string) bool {
	app, _, _ := strings.Cut(name, "/")
	return slices.Contains([]string{"DEAD", "GOES", "HERD", "REAPED"}, app)
}

func (l *load) sameLists(lists map[string]map[string]bool) {
	first := l.w.nodes[0].Name
	differ := func(a, b string) {
		for name := range lists[a] {
			id, once := strings.CutPrefix(name, "ONCE/")
			if once && l.mayLose(l.written[id]) { // another datacenter lists it until its lease ends
				continue
			}
			if lists[b] != nil && !lists[b][name] && !mayEnd(name) {
				l.w.Errorf("I7 converged: %s lists %s, and %s does not", a, name, b)
			}
		}
	}
	for node := range lists {
		differ(node, first)
		differ(first, node)
	}
}

// judgeSteady checks that the list of every node stays the same for some seconds.
func (l *load) judgeSteady() {
	before := map[string]map[string]bool{}
	for _, n := range l.w.nodes {
		before[n.Name] = l.list(n.Name)
	}
	time.Sleep(steadyFor)
	for _, n := range l.w.nodes {
		after := l.list(n.Name)
		for name := range before[n.Name] {
			if after != nil && !after[name] && !mayEnd(name) {
				l.w.Errorf("I7 converged: %s listed %s a minute after the last fault, and no longer %v later", n.Name, name, steadyFor)
			}
		}
	}
}

// steadyFor is how long the lists are watched.
const steadyFor = 10 * time.Second

// queued is how many changes may be queued for a peer while only renewals arrive.
const queued = 20

// judgePeers checks that the queues are empty again.
func (l *load) judgePeers() {
	for _, n := range l.w.nodes {
		var all api.Peers
		if r := l.w.call(n.Name, 10*time.Second, "GET", "/v1/rollcall/peers", ""); r.Status == http.StatusOK && r.decode(&all) {
			for _, p := range all.Peers {
				if p.Incoming != nil && (p.Incoming.Cut || p.State == "failing") {
					l.w.Errorf("I11 true: %s says a minute after the last fault of its link with %s that it is cut: %v, and that sending is %s", n.Name, p.Name, p.Incoming.Cut, p.State)
				}
				if p.Pending+p.InFlight > queued {
					l.w.Errorf("I12 bounded: %s has %d changes queued and %d under way for %s", n.Name, p.Pending, p.InFlight, p.Name)
				}
			}
		}
	}
}

// judgeReplicas checks that digests are equal in each datacenter.
func (l *load) judgeReplicas() {
	for dc := range max(l.w.cluster.Datacenters, 1) {
		var v api.Verification
		if r := l.w.call(l.w.Datacenter(dc + 1)[0], 10*time.Second, "GET", "/v1/rollcall/verify", ""); !r.decode(&v) || v.Verdict != "equal" {
			l.w.Errorf("I8 equal: %v", r)
		}
	}
}

// judgeLevel checks that the level rose if an operator had the next one written.
func (l *load) judgeLevel() {
	if l.counts["raise"][Done] == 0 {
		return
	}
	var u api.Upgrade
	if r := l.w.call(l.w.nodes[0].Name, 10*time.Second, "GET", "/v1/rollcall/upgrade", ""); !r.decode(&u) || u.Level == codec.Oldest {
		l.w.Errorf("I1 durable: the level was raised, and is %v", r)
	}
}

// judgeGoroutines checks for about as many goroutines as there were before the first fault.
func (l *load) judgeGoroutines(before int) {
	l.w.clients.CloseIdleConnections()
	time.Sleep(time.Second)
	if now := runtime.NumGoroutine(); now > before*3/2+50 {
		l.w.Errorf("I12 bounded: %d goroutines, before the first fault there were %d", now, before)
	}
}

// heapInUse returns how many bytes of the heap are in use, without the log of all nodes and without Raft's connection
// buffers, which grow with the amount that was sent.
func (w *World) heapInUse() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // which also empties pools
	runtime.ReadMemStats(&m)
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	w.network.mu.Lock()
	defer w.network.mu.Unlock()
	buffers := 0
	for s := range w.network.streams {
		if w.Mode() == config.CP && s.from.ip != s.to.ip && w.datacenterOf(s.from.ip) == w.datacenterOf(s.to.ip) {
			buffers += raftBuffer
		}
	}
	return int(m.HeapAlloc) - w.log.text.Cap() - buffers
}

// datacenterOf returns the datacenter of the node at an address, or 0 for a client's.
func (w *World) datacenterOf(ip string) int {
	for _, n := range w.nodes {
		if n.ip == ip {
			return n.dc
		}
	}
	return 0
}

// raftBuffer is the size of Raft's buffer for one direction of a connection. The heap may grow by processGrowth, of
// pools and what the judgements remember, and for each node by nodeGrowth, of what clients stored and what the log
// keeps of it.
const raftBuffer, processGrowth, nodeGrowth = 256 << 10, 4 << 20, 5 << 20

// judgeMemory checks that the heap is about as large as before the first fault.
func (l *load) judgeMemory(before int) {
	now := l.w.heapInUse()
	if bound := processGrowth + len(l.w.nodes)*nodeGrowth; now-before > bound {
		l.w.Errorf("I12 bounded: %d nodes have %d KiB more on the heap than before the first fault, want %d at most", len(l.w.nodes), (now-before)>>10, bound>>10)
	}
}
