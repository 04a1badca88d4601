package sim

import (
	"encoding/binary"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/codec"
)

// drawn is what the acts of a schedule need beside its world, and what they leave for those that judge.
type drawn struct {
	schedule  Schedule
	began     time.Time // when the first client began
	w         *World
	load      *load
	permits   permits
	histories *histories // nil in mode ap
	locks     *locks
	reloads   atomic.Int64   // how often settings were changed
	beside    sync.WaitGroup // acts that are under way

	mu       sync.Mutex
	snapshot string               // saved last
	saved    time.Time            // when it had been saved
	restores []restoring          // in the order of their beginnings
	away     map[string]time.Time // nodes that were last told to do something after which they may not answer
	present  map[string]bool      // nodes of away that were started again since
	slow     bool                 // a link was slow once, and the nodes may have measured that
	limbo    map[string]bool      // nodes that may be members or not: they start again once they are none
}

// restoring is one restore.
type restoring struct {
	saved, from, to time.Time // when its snapshot had been saved, when it was asked for and was over; to is zero while it is under way
	outcome         Outcome
}

// configure applies the settings of a schedule, as they are after the reloads so far.
func (d *drawn) configure(s Schedule) func(*config.Config) {
	return func(c *config.Config) {
		c.Store.Settings.SelfPreservation, c.Store.Settings.Threshold = false, 0 // it would keep the dead
		c.HTTPD.Limits.PerAddress = 0                                            // all clients have one address
		for _, word := range s.Settings {
			settings[word](c)
		}
		if d.reloads.Load()%2 == 1 {
			c.Store.Test.SyncDelay, c.ShutdownDelay, c.LogLevel = 2*time.Millisecond, 50*time.Millisecond, "debug"
			c.HTTPD.RateLimit.Enabled, c.HTTPD.RateLimit.BurstSize, c.HTTPD.RateLimit.FetchRate = true, 1e6, 1e6
		}
	}
}

// note notes that a node may not answer from now on, or not until an act has started it again.
func (d *drawn) note(e Step) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch e.Do {
	case "kill", "killbefore", "killafter", "poweroff", "stop", "remove", "hangdisk", "faildisk", "eio":
		d.away[e.Args[0]], d.present[e.Args[0]] = time.Now(), false
	case "delay", "jitter", "lose":
		d.slow = true
	case "start":
		d.away[e.Args[0]], d.present[e.Args[0]] = time.Now(), true
	}
}

// latency is how long the nodes may take their links to be.
func (d *drawn) latency() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.slow {
		return slowest
	}
	return d.w.cluster.latency()
}

// slowest is the longest latency that is drawn; beyond it nothing is promised (docs/run/three-machines.md).
const slowest = 400 * time.Millisecond

// stayed reports whether a node was expected to answer all the time since then.
func (d *drawn) stayed(node string, since time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	last, ever := d.away[node]
	return !ever || d.present[node] && last.Before(since)
}

// remove kills a node and takes it out of its cluster. Its next process begins with an empty disk, and joins.
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

// forgetMember asks the other nodes to remove one that does not run.
func (d *drawn) forgetMember(n *Node) {
	certain := true
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
			certain = r.Status == http.StatusConflict && certain
		}
	}
	d.setLimbo(n, !certain)
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

// start starts a node. One of which nobody knows whether it is a member still is removed first.
func (d *drawn) start(n *Node) {
	if d.inLimbo(n) {
		d.forgetMember(n)
	}
	if !d.inLimbo(n) {
		n.comeBack()
	}
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

// restore restores the snapshot that was saved last, while other things happen.
func (d *drawn) restore() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.snapshot == "" {
		return
	}
	snapshot, at := d.snapshot, len(d.restores)
	d.restores = append(d.restores, restoring{saved: d.saved, from: time.Now(), outcome: Unknown})
	d.beside.Go(func() {
		r := d.w.call(d.load.node(), restorePatience, "PUT", "/v1/rollcall/snapshot?reason=drawn", snapshot, "Content-Type: application/octet-stream")
		outcome := r.Outcome()
		if r.Status/100 == 4 { // such as while another restore runs
			outcome = Refused
		}
		d.load.count("restore", outcome)
		d.mu.Lock()
		defer d.mu.Unlock()
		d.restores[at].to, d.restores[at].outcome = time.Now(), outcome
	})
}

// restorePatience is more than a node takes for a restore, at most.
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

// reload changes settings, and has one node read them again.
func (d *drawn) reload(n *Node) {
	d.reloads.Add(1)
	if !n.alive() {
		return
	}
	select {
	case n.process.hangups <- syscall.SIGHUP:
	case <-n.process.done:
	case <-time.After(time.Second): // it starts, or ends
	}
}

// foundedAtOldest has a cluster founded at the oldest level of the formats: it changes the first entry of a leadership, on
// every node. Such an entry has a version, its kind, two texts and the level.
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

// cutAllDatacenters cuts the links between nodes of different datacenters.
func (w *World) cutAllDatacenters() {
	for dc := range max(w.cluster.Datacenters, 1) {
		for other := range dc {
			w.CutDatacenters(other+1, dc+1)
		}
	}
}
