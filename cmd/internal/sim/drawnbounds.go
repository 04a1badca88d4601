package sim

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/store"
)

// soon is the header of a client of Consul's API that asks another server rather than wait for a leader.
const soon = "Prefer: wait=0"

// judgeTime judges how long a node took to answer a call, which may wait in a queue.
func (l *load) judgeTime(node, asked string, at time.Time, wait time.Duration, waits bool, r Reply) {
	if r.Status == 0 || !l.d.stayed(node, at) {
		return
	}
	bound := l.refusedBy() // of a call that the node sends to no leader
	invariant := "I10 prompt"
	switch o := r.Outcome(); {
	case r.noLeader() && l.d.steady(at): // the node had noticed that it has no leader
	case r.noLeader() && !l.d.isWeak():
		bound += stepsDown
	case o == Done || o == NotFound: // not a late refusal, but a late success
		invariant = "I12 bounded"
		fallthrough
	default:
		bound += store.ResultWait
	}
	if wait > 0 && !r.noLeader() {
		bound += leaveWait + wait
	}
	if waits {
		bound += leaderWithin
		early := r.Status == http.StatusInternalServerError && r.noLeader() && r.Took < leaderWithin-leaderPause
		if early && !strings.Contains(asked, "stale") { // which a node that has heard no leader refuses sooner
			l.w.Errorf("%s: %s at %s at %v: %v after %v, want %v at least", invariant, asked, node, at.Sub(began), r, r.Took, leaderWithin)
		}
	}
	if bound += 4*l.d.latency() + lateness; r.Took > bound {
		l.w.Errorf("%s: %s at %s at %v: %v after %v, want %v at most", invariant, asked, node, at.Sub(began), r, r.Took, bound)
	}
}

// refusedBy returns refusedWithin, lengthened over long links as the nodes do, see port.Nodes.Stretch.
func (l *load) refusedBy() time.Duration {
	attempt := min(maxAttempt, quickAttempt+3*2*l.d.latency())
	return time.Duration(float64(refusedWithin) * float64(attempt) / float64(quickAttempt))
}

// noLeader reports whether a node refused a call, as it does without a leader.
func (r Reply) noLeader() bool {
	return r.Status == http.StatusServiceUnavailable ||
		r.Status == http.StatusInternalServerError && strings.HasPrefix(r.Body, "No cluster leader")
}

// steady reports whether nothing has happened to a cluster for as long as its nodes take to notice what they have
// lost, and no link and no disk is slow.
func (d *drawn) steady(at time.Time) bool {
	for _, n := range d.w.nodes {
		if !n.disk.works() {
			return false
		}
	}
	if d.isWeak() || d.restored(at.Add(-electionsEnd), time.Now()) {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for name := range d.away { // it was told to end, and has not yet
		if !d.present[name] && d.w.Node(name).alive() {
			return false
		}
	}
	return at.Sub(d.acted) > noticed+stepsDown
}

// works reports whether writes are neither slow nor hang or fail.
func (d *disk) works() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.slow == 0 && d.hung == nil && d.fail == nil && d.trap == nil
}

// bursts are the writes that arrive at every node just when something breaks, from clients that wait for as long as
// the server may take.
type bursts struct {
	l *load

	mu    sync.Mutex
	next  int
	overs []over
}

// over is a key that was written again, after a write of unknown outcome could no longer take effect.
type over struct {
	key  string
	from time.Time // of the first write
	by   string    // its response
}

// bursting lists the acts after which clients write.
var bursting = []string{"cut", "cutoneway", "isolate", "lose", "hangdisk", "slowdisk", "faildisk", "eio", "kill", "killbefore", "poweroff", "stop", "transfer"}

// waves are when clients write: also while a leader has lost its majority, and does not know it yet.
var waves = []time.Duration{0, 400 * time.Millisecond, 1100 * time.Millisecond, 2500 * time.Millisecond}

const latePath = "/v1/kv/late/"

// behind starts the writes after an act.
func (b *bursts) behind(act string) {
	if b == nil || !slices.Contains(bursting, act) {
		return
	}
	for _, n := range b.l.w.Datacenter(1) {
		for _, wave := range waves {
			b.l.d.beside.Go(func() {
				time.Sleep(wave)
				b.write(n)
			})
		}
	}
}

// write writes a key of its own at a node, through one of the APIs. If the outcome is unknown, it writes the key again
// once the first write can no longer take effect.
func (b *bursts) write(node string) {
	b.mu.Lock()
	b.next++
	key := strconv.Itoa(b.next)
	b.mu.Unlock()
	from, r := time.Now(), Reply{}
	switch b.l.draw(4) {
	case 0:
		i := b.l.w.newInstance("PROBE/"+node, longLease)
		b.l.count("burst", b.l.write(node, "POST", "/eureka/apps/PROBE", i.document()).Outcome())
		return
	case 1:
		r = b.l.write(node, "PUT", latePath+key, "first")
	case 2:
		r = b.l.write(node, "PUT", latePath+key, "first", soon)
	case 3:
		r = b.l.write(node, "PUT", "/v1/txn", `[{"KV":{"Verb":"set","Key":"late/`+key+`","Value":"Zmlyc3Q="}}]`)
	}
	b.l.count("burst", r.Outcome())
	if r.Outcome() != Unknown {
		return
	}
	time.Sleep(unknownTakes)
	for range 10 {
		if b.l.write(b.l.node(), "PUT", latePath+key, "over").Outcome() == Done {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.overs = append(b.overs, over{key, from, r.String()})
			b.l.count("over", Done)
			return
		}
	}
}

// judge checks that no write of unknown outcome took effect after a later one.
func (b *bursts) judge() {
	r := b.l.w.call(b.l.w.nodes[0].Name, callPatience, "GET", latePath+"?recurse", "")
	var pairs []Pair
	if r.Status == http.StatusOK && json.Unmarshal([]byte(r.Body), &pairs) != nil || r.Status != http.StatusOK && r.Status != http.StatusNotFound {
		b.l.w.Errorf("I12 bounded: %v", r)
	}
	for _, o := range b.overs {
		at := slices.IndexFunc(pairs, func(p Pair) bool { return p.Key == "late/"+o.key })
		if (at < 0 || string(pairs[at].Value) != "over") && !b.l.d.restored(o.from, time.Now()) {
			b.l.w.Errorf("I6 honest: nobody knew what became of the write of %s at %v (%s); it happened after one that was sent later, and acknowledged",
				o.key, o.from.Sub(began), o.by)
		}
	}
}
