package sim

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// startReads makes clients read what may be stale, and ask nodes whether they accept writes.
func (l *load) startReads() {
	l.task(1500*time.Millisecond, l.readStale)
	l.task(1100*time.Millisecond, l.writeFresh)
	l.task(700*time.Millisecond, l.readFresh)
	l.task(3*time.Second, l.probe)
}

// readStale reads the state of one node: its index never goes back, not even over a restart.
func (l *load) readStale() {
	node := l.node()
	floor := l.reads.staleOf(node)
	r := l.ask("stale", node, "GET", "/v1/kv/h/?keys&stale", "")
	l.count("stale", r.Outcome())
	if r.Outcome() != Done && r.Outcome() != NotFound {
		return
	}
	index := consulIndex(r)
	if index < floor {
		l.w.Errorf("I9 monotone: a stale read at %s has index %d at %v, an earlier one had %d", node, index, time.Since(began), floor)
	}
	l.reads.mu.Lock()
	defer l.reads.mu.Unlock()
	l.reads.stale[node] = max(l.reads.stale[node], index)
}

func (r *reads) staleOf(node string) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stale[node]
}

const freshPath = "/v1/kv/fresh"

// writeFresh writes the next number to a key. After an unknown outcome it waits until that write can no longer take
// effect, so that values only rise.
func (l *load) writeFresh() {
	l.reads.mu.Lock()
	l.reads.acked = append(l.reads.acked, time.Time{})
	n := len(l.reads.acked)
	l.reads.mu.Unlock()
	o := l.write(l.node(), "PUT", freshPath, strconv.Itoa(n)).Outcome()
	l.count("fresh", o)
	if o == Unknown {
		time.Sleep(unknownTakes)
	}
	if o != Done {
		return
	}
	l.reads.mu.Lock()
	defer l.reads.mu.Unlock()
	l.reads.acked[n-1] = time.Now()
}

// maxStale is how old the fresh key's value may be for its readers.
const maxStale = 2 * time.Second

// readFresh reads a key whose value must not be older than maxStale, or than the node says that it may be, unless a
// restore has since brought an older one back.
func (l *load) readFresh() {
	node, asked, mayBe := l.node(), time.Now(), maxStale
	kind, query := "max_stale", fmt.Sprint("?raw&max_stale=", maxStale)
	if l.draw(2) == 0 {
		kind, query = "aged", "?raw&stale"
	}
	r := l.ask(kind, node, "GET", freshPath+query, "")
	l.count(kind, r.Outcome())
	age, err := strconv.ParseInt(r.Header.Get("X-Consul-LastContact"), 10, 64)
	if said := time.Duration(age+1) * time.Millisecond; err == nil && (kind == "aged" || said < mayBe) {
		mayBe = said // it says whole milliseconds
	}
	value := 0
	switch r.Status {
	case http.StatusOK:
		value, err = strconv.Atoi(r.Body)
	case http.StatusNotFound:
	default:
		return
	}
	least, at, late := 0, time.Time{}, false
	l.reads.mu.Lock()
	for i, acked := range l.reads.acked {
		if !acked.IsZero() && acked.Before(asked.Add(-mayBe)) {
			least, at = i+1, acked
		}
	}
	if value > 0 && value < least {
		late = l.reads.acked[value-1].IsZero()
	}
	l.reads.mu.Unlock()
	if err == nil && value >= least || l.d.restored(at.Add(-callPatience), time.Now()) {
		return
	}
	if late {
		l.w.Errorf("I6 honest: %s answers %q at %v: nobody knew what became of that write, and %d was acknowledged at %v",
			node, r, asked.Sub(began), least, at.Sub(began))
		return
	}
	l.w.Errorf("I9 monotone: %s answers %q to a read at %v whose result is %v old at most; %d was acknowledged at %v",
		node, r, asked.Sub(began), mayBe, least, at.Sub(began))
}

// probe asks a node whether it accepts writes, before and after one, and again as long as the node is wrong. A node
// whose link or whose leader's disk is slow refuses some writes and accepts others, so its responses prove nothing.
func (l *load) probe() {
	node, first := l.d.drawSteady(l.node), time.Now()
	for asked := first; l.wrong(node) && !l.d.isWeak(); asked = time.Now() {
		if wrong := asked.Sub(first); wrong > noticed {
			l.w.Errorf("I11 true: /readyz?writes at %s has disagreed with every write since %v, for %v", node, first.Sub(began), wrong)
			return
		}
	}
}

// atOnce is how long a successful write may take if two probes, before and after it, cannot both be wrong. A quick
// refusal proves less: a write is refused together with those that have waited for a leader for longer.
const atOnce = 100 * time.Millisecond

// wrong reports whether a node predicted the outcome of a write neither before nor after it. A node that has just
// started accepts writes before it is ready, and one that stops accepts them for a while.
func (l *load) wrong(node string) bool {
	i := l.w.newInstance("PROBE/p", longLease)
	ready := func() Reply { return l.w.call(node, certainWithin, "GET", "/readyz?writes", "") }
	asked, before := time.Now(), ready()
	r := l.ask("probe", node, "POST", "/eureka/apps/PROBE", i.document())
	after, o := ready(), r.Outcome()
	l.count("probe", o)
	if o == Unknown || before.Status == 0 || after.Status == 0 || r.Status == 0 || !l.d.expectedReady(node, asked) {
		return false
	}
	says := o == Done
	is := says != (before.Status == http.StatusOK) && says != (after.Status == http.StatusOK)
	if is && says && r.Took <= atOnce && !l.d.isWeak() {
		l.w.Errorf("I11 true: %s answers a write at %v by %v after %v, and /readyz?writes by %v before and %v after it",
			node, asked.Sub(began), r, r.Took, before, after)
	}
	return is
}
