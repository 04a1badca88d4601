package trial

import (
	"slices"
	"time"
)

// fate is the effect of the last acknowledged write on an instance.
type fate uint8

const (
	uncertain fate = iota // nothing is certain
	present
	absent
)

// write is a write that has begun and was not acknowledged.
type write struct {
	version   int64
	cancel    bool
	at        time.Time // of its beginning
	overtaken bool      // a write that began later was acknowledged
}

// ack is an acknowledged registration.
type ack struct {
	version int64
	at      time.Time
}

const (
	// keepAcks is how long an acknowledged registration is remembered after the next one: longer than an observer
	// waits for a list.
	keepAcks = 10 * time.Second
	// mostOpen bounds the writes that were never acknowledged. The oldest are dropped.
	mostOpen = 64
)

// record is what is known of one instance.
type record struct {
	fate   fate
	since  time.Time // fate has been certain since then
	acks   []ack     // ascending in version and time
	open   []write   // in the order in which they began
	died   time.Time // zero while it lives
	last   time.Time // acknowledged heartbeat or registration
	marked ack       // what Unhealed is held against: see mark
	healed fate      // the fate that was marked; uncertain if nothing is held against the mark

	leaving *departure // the departure that is going on, or nil
	nodes   []view     // by node
	left    []left     // in departures that are over
}

// beginWrite records a write that is about to be sent. What the client undoes is no longer held against the mark.
func (r *record) beginWrite(w write) {
	if len(r.open) == mostOpen {
		r.open = slices.Delete(r.open, 0, 1)
	}
	r.open = append(r.open, w)
	if w.cancel && r.healed == present || !w.cancel && r.healed == absent {
		r.healed = uncertain
	}
	if !w.cancel && !r.died.IsZero() {
		// It lives again. Only the servers know whether they removed it meanwhile.
		r.died, r.fate = time.Time{}, uncertain
		r.stay()
	}
}

// registered records an acknowledged registration. Acknowledgements of several writers may arrive in another order
// than their versions.
func (r *record) registered(version int64, at time.Time) {
	r.acknowledge(present, version, at)
	r.updateLast(at)
	if r.died.IsZero() {
		r.stay()
	}
	if n := len(r.acks); n > 0 && r.acks[n-1].version >= version {
		return
	}
	r.acks = append(r.acks, ack{version, at})
	for len(r.acks) > 1 && at.Sub(r.acks[1].at) > keepAcks {
		r.acks = slices.Delete(r.acks, 0, 1)
	}
}

// acknowledge makes an acknowledged write the last certain one. A fate stays certain since its earlier time if the
// write confirms it and no write that began before could have changed it.
func (r *record) acknowledge(to fate, version int64, at time.Time) {
	cancel := to == absent
	own := slices.IndexFunc(r.open, func(w write) bool { return w.cancel == cancel && w.version == version })
	before := r.open
	if own >= 0 {
		before = r.open[:own]
	}
	doubt := r.fate != to
	for i := range before {
		doubt = doubt || before[i].cancel != cancel && !before[i].overtaken
		before[i].overtaken = true
	}
	if own >= 0 {
		r.open = slices.Delete(r.open, own, own+1)
	}
	if doubt {
		r.fate, r.since = to, at
	}
}

// withdraw removes a write that has not happened. If the write was recorded twice, because an earlier try got no
// response, the earlier record stays.
func (r *record) withdraw(version int64) {
	if i := slices.IndexFunc(r.open, func(w write) bool { return w.version == version }); i >= 0 {
		r.open = slices.Delete(r.open, i, i+1)
	}
}

// updateLast records a sign of life: an acknowledged heartbeat or registration.
func (r *record) updateLast(at time.Time) {
	if at.After(r.last) {
		r.last = at
	}
	if r.leaving != nil && !r.leaving.canceled {
		r.leaving.last = r.last
	}
}

func (r *record) die(at time.Time) {
	if !r.died.IsZero() {
		return
	}
	r.died = at
	r.healed = uncertain // nodes may list the dead until their lease ends
	if !r.last.IsZero() {
		r.depart(departure{from: at, last: r.last})
	}
}

// single reports whether the client writes the instance only once, in version 0, and does nothing about its loss:
// lists are judged for such instances, but nothing waits for them to come back.
func (r *record) single() bool { return len(r.acks) > 0 && r.acks[len(r.acks)-1].version == 0 }

// underWay reports whether a registration, or a cancel, that began until a time (zero: at any time) may have happened
// since the last certain write.
func (r *record) underWay(cancel bool, until time.Time) bool {
	return slices.ContainsFunc(r.open, func(w write) bool {
		return w.cancel == cancel && !w.overtaken && (until.IsZero() || !w.at.After(until))
	})
}

// certain reports whether the instance certainly had a fate, with no write under way that began until a time (zero: at
// any time).
func (r *record) certain(of fate, until time.Time) bool {
	return r.fate == of && !r.underWay(of == present, until)
}

// alive reports whether the instance should be listed.
func (r *record) alive() bool { return r.died.IsZero() && r.certain(present, time.Time{}) }

// mark notes what is acknowledged, if anything is certain.
func (r *record) mark() {
	r.healed, r.marked = uncertain, ack{}
	switch {
	case !r.died.IsZero(), r.single():
	case r.certain(r.fate, time.Time{}):
		r.healed = r.fate
		if n := len(r.acks); n > 0 {
			r.marked = r.acks[n-1]
		}
	}
}

// look is one list's statement about one instance.
type look struct {
	node            int
	listed          bool
	version         int64 // 0 if the document has none
	asked, answered time.Time
}

// throughout reports whether the instance certainly had a fate from when the list was requested until it was answered.
func (r *record) throughout(of fate, l look) bool {
	return !r.since.After(l.asked) && r.certain(of, l.answered)
}

// ghost reports whether the instance is listed but should not be.
func (r *record) ghost(l look) bool {
	return l.listed && (r.deadFor(0, l.asked) || r.throughout(absent, l))
}

// deadFor reports whether the instance had been dead for at least d at a time.
func (r *record) deadFor(d time.Duration, at time.Time) bool {
	return !r.died.IsZero() && at.Sub(r.died) >= d
}

// missing reports whether the instance should be listed but is not.
func (r *record) missing(l look) bool {
	return !l.listed && !r.deadFor(0, l.answered) && r.throughout(present, l)
}

// behind reports whether the instance is listed in a version that is too old: older than the newest acknowledged until
// the request. Ghosts are not counted twice.
func (r *record) behind(l look) bool {
	return l.listed && l.version != 0 && !r.ghost(l) && slices.ContainsFunc(r.acks, func(a ack) bool {
		return a.version > l.version && !a.at.After(l.asked)
	})
}

// revived reports whether the instance is listed after its cancel. A late registration of unknown outcome may explain
// that: its client has abandoned it, but it still waits in front of a stalled server.
func (r *record) revived(l look) bool {
	return l.listed && r.throughout(absent, l) && !slices.ContainsFunc(r.open, func(w write) bool {
		return !w.cancel && (l.version == 0 || w.version == l.version)
	})
}

// unhealed reports whether the list is wrong about what was acknowledged at the mark. What the client has undone since
// is not judged.
func (r *record) unhealed(l look) bool {
	switch r.healed {
	case present:
		return r.missing(l) || r.behind(l) && l.version < r.marked.version
	case absent:
		return r.revived(l)
	}
	return false
}

// departure is a death or a cancel of an instance.
type departure struct {
	canceled bool
	from     time.Time // of its death, or of the cancel's acknowledgement
	last     time.Time // Departure.Last
}

// view is what a node's lists have shown of an instance.
type view struct {
	newest       int64     // version
	listed       bool      // since the last departure was over
	unlisted     bool      // during the departure: it is missing from the last list
	firstWithout time.Time // when the first list without it was requested; zero if there was none
}

// left is a departure as one node's lists showed it.
type left struct {
	departure
	node         int
	firstWithout time.Time // zero if it stayed
}

// depart begins a departure, unless one is going on: a canceled instance that dies went with its cancel.
func (r *record) depart(d departure) {
	if r.leaving == nil {
		r.leaving = &d
	}
}

// stay ends the current departure: the instance is registered again.
func (r *record) stay() {
	if r.leaving == nil {
		return
	}
	r.left = r.departures(false)
	r.leaving = nil
	for node := range r.nodes {
		r.nodes[node] = view{newest: r.nodes[node].newest}
	}
}

// departures returns all departures so far. A node that still lists the instance is left out of the current one unless
// it should not.
func (r *record) departures(staying bool) []left {
	all := slices.Clip(r.left)
	for node, v := range r.nodes {
		if r.leaving != nil && v.listed && (staying || !v.firstWithout.IsZero()) {
			all = append(all, left{*r.leaving, node, v.firstWithout})
		}
	}
	return all
}

// follow records a look for the departures, and reports whether the node lists the instance again after it had
// stopped: once for each return, however long it lasts.
func (r *record) follow(l look) (back bool) {
	for len(r.nodes) <= l.node {
		r.nodes = append(r.nodes, view{})
	}
	v := &r.nodes[l.node]
	// A version that the node never listed before is late, not a return.
	known := l.version <= v.newest
	v.newest, v.listed = max(v.newest, l.version), v.listed || l.listed
	if r.leaving == nil || l.asked.Before(r.leaving.from) {
		return false
	}
	back = l.listed && v.unlisted && known && r.revived(l)
	v.unlisted = v.listed && !l.listed
	if v.unlisted && v.firstWithout.IsZero() {
		v.firstWithout = l.asked
	}
	return back
}
