package sim

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
)

const (
	// herdSize is how many instances a herd has, herdSilent how many of them fall silent together, and herdOthers how
	// many other leases may be fresh: those of the kept instances, and of the newest of the dead.
	herdSize, herdSilent, herdOthers = 16, 14, 5
	// herdBuried instances die for good at a time, at most maxBurials times, so that never more have died than live.
	herdBuried, maxBurials = 3, 3
	herdLease              = 3 * shortLease // as that of the other kept instances
	herdBeat               = herdLease / 3

	preservationPath = "/v1/rollcall/self-preservation"
	minCounted       = 10               // self-preservation.min-instances
	boundedFor       = 20 * time.Second // self-preservation.max-duration, with the setting bounded
)

// preserves switches self-preservation on. It comes on while at most half of the leases are fresh.
func preserves(c *config.Config) {
	c.Store.Settings.SelfPreservation, c.Store.Settings.Threshold = true, registry.Whole/2
}

// graceOf returns how long a client has to come back to a new leader, or after self-preservation went off
// (docs/understand/leases.md).
func graceOf(lease time.Duration) time.Duration { return min(lease, lease/3+5*time.Second) }

// herd is many instances, and most of them fall silent at times. It follows the states of self-preservation, and judges
// each eviction by them.
type herd struct {
	l       *load
	bounded bool

	mu      sync.Mutex
	living  []*sheep // also those that are silent for a while
	all     []*sheep // also the dead
	states  []preservation
	asked   time.Time     // when a node was last asked that knew no newer states
	lastOn  time.Time     // when a node was last asked that called it on
	longest time.Duration // of the holds
}

// preservation is a state of self-preservation. It does not end by itself before a time, or for on: it is not released.
type preservation struct {
	state string
	least time.Time
}

// sheep is an instance of the herd.
type sheep struct {
	*Instance
	silent        time.Time // until when it does not renew
	sent, touched time.Time // when its last acknowledged renewal was sent, and after which none took effect
	missed        time.Time // when a renewal found that it had been evicted; zero before that
	lost          bool      // it was evicted, which has been judged
	listed        time.Time // when it was last known to be there
	known         int       // how many states were known then
}

// start registers the herd. Its instances renew one after the other.
func (h *herd) start(l *load) {
	h.l, h.states, h.asked = l, []preservation{{state: "off"}}, time.Now()
	for k := range herdSize {
		h.living = append(h.living, nil)
		h.replace(k)
		h.beat(k)
		l.w.beside(herdBeat, func() { h.beat(k) })
		time.Sleep(herdBeat / herdSize)
	}
	l.w.beside(2*time.Second, h.watch)
}

// replace has a new instance, which is still to be registered, take the place of another.
func (h *herd) replace(k int) {
	i := &Instance{App: "HERD", ID: fmt.Sprintf("h%d", len(h.all)), Lease: herdLease, at: k}
	h.living[k] = &sheep{Instance: i, lost: true}
	h.all = append(h.all, h.living[k])
}

// beat renews an instance at one node after the other, or registers it.
func (h *herd) beat(k int) {
	h.mu.Lock()
	s := h.living[k]
	h.mu.Unlock()
	for until := time.Now().Add(patient); time.Now().Before(until); time.Sleep(retryAfter) {
		h.mu.Lock()
		known, method, path, body := len(h.states), "PUT", s.path(), ""
		if s.lost {
			method, path, body = "POST", "/eureka/apps/HERD", s.document()
		}
		quiet := time.Now().Before(s.silent) || !s.missed.IsZero() && !s.lost
		h.mu.Unlock()
		if quiet {
			return
		}
		asked := time.Now()
		s.at = (s.at + 1) % h.l.w.cluster.Nodes
		o := h.l.w.call(h.l.w.nodes[s.at].Name, 2*time.Second, method, path, body).Outcome()
		h.l.count("herd", o)
		h.mu.Lock()
		switch s.touched = time.Now(); {
		case o == Done && s.lost:
			s.sent, s.missed, s.lost, s.listed, s.known = asked, time.Time{}, false, s.touched, known
		case o == Done:
			s.sent = asked
		case o == NotFound:
			s.missed = s.touched
		case o == Unknown:
			s.touched = s.touched.Add(certainWithin + unknownTakes)
		}
		h.mu.Unlock()
		if o == Done || o == NotFound {
			return
		}
	}
}

// silence makes most of the herd silent for a time.
func (h *herd) silence(span time.Duration) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.living[:herdSilent] {
		s.silent = time.Now().Add(span)
	}
}

// bury ends some clients, which do not cancel, and starts others.
func (h *herd) bury() {
	if h == nil || len(h.all) > herdSize+herdBuried*(maxBurials-1) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for k := range herdBuried {
		k = (len(h.all) + k) % herdSilent
		h.living[k].silent = time.Now().Add(longLease)
		h.replace(k)
	}
}

// awaken ends all silence when it is calm: all come back; in a bounded run the silent stay silent.
func (h *herd) awaken() {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.living {
		if now := time.Now(); now.Before(s.silent) {
			if s.silent = now; h.bounded {
				s.silent = now.Add(longLease)
			}
		}
	}
}

// operate changes self-preservation as an operator: act is hold, for a time, or release.
func (h *herd) operate(act, state string, span time.Duration) {
	if h == nil {
		return
	}
	h.mu.Lock()
	floor := len(h.states)
	h.longest = max(h.longest, span)
	h.mu.Unlock()
	asked, node := time.Now(), h.l.node()
	r := h.l.ask(act, node, "POST", fmt.Sprintf("%s/%s?author=o&reason=drawn&for=%v", preservationPath, act, span), "")
	h.l.count(act, r.Outcome())
	if _, ok := h.learn(node, asked, floor, r); !ok {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.ContainsFunc(h.states[floor:], func(p preservation) bool { return p.state == state }) {
		h.l.w.Errorf("I1 durable: %s acknowledged to %s self-preservation at %v, and shows %v", node, act, asked.Sub(began), r)
	}
	if last := &h.states[len(h.states)-1]; last.state == "held" {
		last.least = asked.Add(span)
	}
}

// learn records the states of self-preservation that a node knows; floor states were known when it was asked. They are
// the same at all nodes, and last until their time.
func (h *herd) learn(node string, asked time.Time, floor int, r Reply) (state string, ok bool) {
	var p api.SelfPreservation
	if !r.decode(&p) {
		return "", false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	slices.Reverse(p.Transitions)
	for i, step := range p.Transitions {
		if i+1 == len(h.states) {
			h.l.count("preservation "+step.State, Done)
			before := h.states[i]
			if step.Author == "" && time.Now().Before(before.least) && (before.state == "held" || step.State == "released") {
				h.l.w.Errorf("I3 alive: self-preservation was %s until %v at least, and is %s at %v",
					before.state, before.least.Sub(began), step.State, time.Since(began))
			}
			bound := map[bool]time.Duration{false: time.Hour, true: boundedFor}[h.bounded]
			h.states = append(h.states, preservation{step.State, h.asked.Add(bound)})
		} else if known := h.states[i+1].state; known != step.State {
			h.l.w.Errorf("I8 equal: state %d of self-preservation was %s, and %s says at %v: %v",
				i+1, known, node, asked.Sub(began), r)
		}
	}
	switch known := len(p.Transitions) + 1; {
	case known < floor:
		h.l.w.Errorf("I9 monotone: self-preservation had had %d states before %v, and %s knows %v",
			floor, asked.Sub(began), node, r)
	case known == len(h.states) && asked.After(h.asked):
		if h.asked = asked; p.State == "on" {
			h.lastOn = asked
		}
	}
	return p.State, true
}

// watch looks for instances that were evicted.
func (h *herd) watch() {
	h.mu.Lock()
	known := len(h.states)
	h.mu.Unlock()
	asked, node := time.Now(), h.l.node()
	r := h.l.ask("herd list", node, "GET", "/v1/rollcall/apps?app=HERD", "")
	answered := time.Now()
	h.l.count("herd list", r.Outcome())
	var all []api.Instance
	if !r.decode(&all) {
		return
	}
	there := map[string]bool{}
	for _, i := range all {
		there[i.ID] = true
	}
	if _, ok := h.learn(node, answered, known, h.l.ask("preservation", node, "GET", preservationPath, "")); ok {
		h.judgeLost(asked, answered, known, there)
	}
}

// judgeLost judges why instances are missing from a list.
func (h *herd) judgeLost(asked, answered time.Time, known int, there map[string]bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var lost []*sheep
	for _, s := range h.all {
		switch {
		case s.lost, s.missed.IsZero() && s.listed.After(asked):
		case s.missed.IsZero() && there[s.ID]:
			s.listed, s.known = asked, known
		default:
			lost = append(lost, s)
		}
	}
	slices.SortFunc(lost, func(a, b *sheep) int { return a.sent.Compare(b.sent) })
	for i, s := range lost {
		at := answered
		if !s.missed.IsZero() && s.missed.Before(at) {
			at = s.missed
		}
		if why := h.wrong(s, at, i == 0); why != "" {
			h.l.w.Errorf("I3 alive: HERD/%s was there at %v, last renewed at %v, and is gone at %v, %s; states from then on: %v",
				s.ID, s.listed.Sub(began), s.sent.Sub(began), at.Sub(began), why, h.states[s.known-1:])
		}
	}
	for _, s := range lost {
		s.lost = true
	}
}

// wrong says why an instance must not have been evicted; first says that no other's lease ended earlier of those that
// are missing. h.mu must be held.
func (h *herd) wrong(s *sheep, at time.Time, first bool) string {
	states := h.states[s.known-1:] // may have been in force
	last := len(states) - 1
	lets := func(p preservation) bool { return p.state == "off" || p.state == "released" }
	resumed := last > 0 && states[last].state == "off" && states[last-1].state == "on" &&
		!slices.ContainsFunc(states[:last], lets)
	switch {
	case at.Before(s.sent.Add(herdLease)):
		return "before the end of its lease"
	case !s.silent.After(s.sent):
		return "though it renewed on time"
	case !slices.ContainsFunc(states, lets):
		return "while evictions were withheld"
	case resumed && at.Before(h.lastOn.Add(graceOf(herdLease))):
		return "though it may still come back: self-preservation was on at " + h.lastOn.Sub(began).String()
	case slices.ContainsFunc(states, func(p preservation) bool { return p.state == "released" }):
	case first && h.outnumbered(s):
		return "though too few were fresh"
	}
	return ""
}

// outnumbered reports whether at most half of the leases were fresh when s was evicted, so that self-preservation had
// to be on. One that was not renewed any more a beat after s was not fresh then, whatever the lease clock did. h.mu must
// be held.
func (h *herd) outnumbered(s *sheep) bool {
	silent, others := 0, herdOthers
	for _, o := range h.all {
		switch {
		case o.lost && o.silent.After(time.Now()): // it is gone
		case !o.lost && !o.listed.Before(s.listed) && o.touched.Before(s.sent.Add(herdBeat-time.Second)):
			silent++
		default:
			others++
		}
	}
	return silent >= max(others, minCounted) && !h.l.d.restored(s.sent, time.Now())
}

// resumeBy returns when self-preservation lets evictions go on, at the latest, if it was calm from a time on: when a
// hold and the longest time are over, or with a grace after all that live have renewed once more.
func (h *herd) resumeBy(calm time.Time) time.Time {
	off := herdBeat + 2*time.Second + graceOf(herdLease)
	if h.bounded { // then those that live may be too few
		return calm.Add(max(h.longest+boundedFor, off))
	}
	return calm.Add(max(h.longest, off))
}

// judge checks that self-preservation is off in the end, and had the same states at all nodes.
func (h *herd) judge() {
	if h == nil {
		return
	}
	for _, node := range h.l.w.Datacenter(1) {
		r := h.l.w.call(node, callPatience, "GET", preservationPath+"?consistency=stale", "")
		if state, ok := h.learn(node, time.Now(), 0, r); ok && state != "off" {
			h.l.w.Errorf("I4 dead: self-preservation is %s in the end: %s says %v", state, node, r)
		}
	}
}

// divide returns the instances that live and those that died.
func (h *herd) divide() (living, dead []*Instance) {
	if h == nil {
		return nil, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.all {
		if s.renewed = s.touched; s.silent.After(time.Now()) {
			dead = append(dead, s.Instance)
		} else {
			living = append(living, s.Instance)
		}
	}
	return living, dead
}
