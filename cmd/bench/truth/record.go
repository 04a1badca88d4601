package truth

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
	seen   []bool    // by node: it has been listed since it last departed
	newest []int64   // by node: the newest version that it listed
	begun  writes
	marked mark
	// departures covers all its lives; only the last may still be going on.
	departures []*departure
}

// writes counts writes that began.
type writes struct{ registrations, cancels int }

// beginWrite records a write that is about to be sent.
func (r *record) beginWrite(w write) {
	if len(r.open) == mostOpen {
		r.open = slices.Delete(r.open, 0, 1)
	}
	r.open = append(r.open, w)
	if w.cancel {
		r.begun.cancels++
		return
	}
	r.begun.registrations++
	r.revive()
}

// revive makes a dead instance live again. Only the servers know whether they removed it meanwhile.
func (r *record) revive() {
	if r.died.IsZero() {
		return
	}
	r.died = time.Time{}
	r.fate = uncertain
	r.stay()
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

func (r *record) canceled(version int64, at time.Time) {
	r.acknowledge(absent, version, at)
	r.depart(&departure{canceled: true, from: at, last: at})
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
	if d := r.departing(); d != nil && !d.canceled {
		d.last = r.last
	}
}

func (r *record) die(at time.Time) {
	if !r.died.IsZero() {
		return
	}
	r.died = at
	r.marked = mark{} // the dead have no mark: nodes may list them until their lease ends
	if !r.last.IsZero() {
		r.depart(&departure{from: at, last: r.last})
	}
}

// single reports whether the client writes the instance only once, in version 0, and does nothing about its loss:
// lists are judged for such instances, but nothing waits for them to come back.
func (r *record) single() bool { return len(r.acks) > 0 && r.acks[len(r.acks)-1].version == 0 }

// alive reports whether the instance should be listed.
func (r *record) alive() bool {
	return r.fate == present && r.died.IsZero() && !r.underWay(true, time.Time{})
}

// underWay reports whether a registration, or a cancel, that began until a time (zero: at any time) may have happened
// since the last certain write.
func (r *record) underWay(cancel bool, until time.Time) bool {
	return slices.ContainsFunc(r.open, func(w write) bool {
		return w.cancel == cancel && !w.overtaken && (until.IsZero() || !w.at.After(until))
	})
}

// mark is what was acknowledged at a time. The zero mark means nothing.
type mark struct {
	fate    fate
	version int64
	begun   writes // until then
}

func (r *record) mark() {
	r.marked = mark{begun: r.begun}
	switch {
	case !r.died.IsZero(), r.single():
	case r.fate == present && !r.underWay(true, time.Time{}):
		r.marked.fate = present
		if n := len(r.acks); n > 0 {
			r.marked.version = r.acks[n-1].version
		}
	case r.fate == absent && !r.underWay(false, time.Time{}):
		r.marked.fate = absent
	}
}

// departure is one death or cancel of an instance, and when each node stopped listing it.
type departure struct {
	canceled bool
	from     time.Time // of its death, or of the cancel's acknowledgement
	last     time.Time // trial.Departure.Last
	over     bool      // the instance was registered again
	nodes    []delisting
}

// delisting is how one node stopped listing the instance.
type delisting struct {
	listed       bool      // at some time
	firstWithout time.Time // when the first list without it was requested; zero if there was none
	unlisted     bool      // missing from the last list
}

// departing returns the departure that is going on, or nil.
func (r *record) departing() *departure {
	if n := len(r.departures); n > 0 && !r.departures[n-1].over {
		return r.departures[n-1]
	}
	return nil
}

// depart begins a departure, unless one is going on: a canceled instance that dies went with its cancel.
func (r *record) depart(d *departure) {
	if r.departing() != nil {
		return
	}
	for _, listed := range r.seen {
		d.nodes = append(d.nodes, delisting{listed: listed})
	}
	r.departures = append(r.departures, d)
}

// stay ends the current departure: the instance is registered again.
func (r *record) stay() {
	if d := r.departing(); d != nil {
		d.over = true
		clear(r.seen)
	}
}
