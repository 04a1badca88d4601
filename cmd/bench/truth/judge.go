package truth

import (
	"slices"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// look is one list's statement about one instance.
type look struct {
	node            int
	listed          bool
	version         int64 // 0 if the document has none
	asked, answered time.Time
}

// ghost reports whether the instance is listed but should not be.
func (r *record) ghost(l look) bool {
	return l.listed && (r.deadFor(0, l.asked) || r.certainlyAbsent(l))
}

// certainlyAbsent reports whether the instance had certainly been canceled when the list was requested, and was not
// registered again until the list was answered.
func (r *record) certainlyAbsent(l look) bool {
	return r.fate == absent && !r.since.After(l.asked) && !r.underWay(false, l.answered)
}

// deadFor reports whether the instance had been dead for at least d at a time.
func (r *record) deadFor(d time.Duration, at time.Time) bool {
	return !r.died.IsZero() && at.Sub(r.died) >= d
}

// missing reports whether the instance should be listed but is not.
func (r *record) missing(l look) bool {
	return !l.listed && r.fate == present && !r.since.After(l.asked) &&
		!r.deadFor(0, l.answered) && !r.underWay(true, l.answered)
}

// behind reports whether the instance is listed in a version that is too old. Ghosts are not counted twice.
func (r *record) behind(l look) bool {
	return l.listed && l.version != 0 && l.version < r.acknowledged(l.asked) && !r.ghost(l)
}

// acknowledged returns the newest version that was acknowledged until a time, or 0 if none is known.
func (r *record) acknowledged(until time.Time) int64 {
	for _, a := range slices.Backward(r.acks) {
		if !a.at.After(until) {
			return a.version
		}
	}
	return 0
}

// revived reports whether the instance is listed after its cancel, and no registration explains it.
func (r *record) revived(l look) bool {
	return l.listed && r.certainlyAbsent(l) && !r.explains(l.version)
}

// explains reports whether the version may come from a late registration of unknown outcome: its client has abandoned
// it, but it still waits in front of a stalled server.
func (r *record) explains(version int64) bool {
	return slices.ContainsFunc(r.open, func(w write) bool {
		return !w.cancel && (version == 0 || w.version == version)
	})
}

// mayBeCanceled reports whether the instance may be absent because of a late cancel of unknown outcome.
func (r *record) mayBeCanceled() bool {
	return slices.ContainsFunc(r.open, func(w write) bool { return w.cancel })
}

// unhealed reports whether the list is wrong about what was acknowledged at the mark. What the client has undone since
// is not judged.
func (r *record) unhealed(l look) bool {
	switch r.marked.fate {
	case present:
		behind := r.behind(l) && l.version < r.marked.version
		return r.begun.cancels == r.marked.begun.cancels && (behind || r.missing(l))
	case absent:
		return r.begun.registrations == r.marked.begun.registrations && r.revived(l)
	}
	return false
}

// follow records a look for the departures, and reports whether the node lists the instance again after it had
// stopped: once for each return, however long it lasts.
func (r *record) follow(l look) (back bool) {
	r.seen = grown(r.seen, l.node)
	r.seen[l.node] = r.seen[l.node] || l.listed
	// A version that the node never listed before is late, not a return.
	r.newest = grown(r.newest, l.node)
	known := l.version <= r.newest[l.node]
	r.newest[l.node] = max(r.newest[l.node], l.version)
	d := r.departing()
	if d == nil {
		return false
	}
	d.nodes = grown(d.nodes, l.node)
	node := &d.nodes[l.node]
	node.listed = node.listed || l.listed
	if l.asked.Before(d.from) {
		return false
	}
	back = l.listed && node.unlisted && known && r.revived(l)
	node.unlisted = node.listed && !l.listed
	if node.unlisted && node.firstWithout.IsZero() {
		node.firstWithout = l.asked
	}
	return back
}

// grown returns the list, extended by zero values to have an element i.
func grown[T any](list []T, i int) []T {
	for len(list) <= i {
		var zero T
		list = append(list, zero)
	}
	return list
}

// appendDepartures appends each node's part in each departure of an instance.
func (r *record) appendDepartures(all []trial.Departure, id string, began time.Time) []trial.Departure {
	for _, d := range r.departures {
		excused := d.over || r.underWay(false, time.Time{})
		for node, f := range d.nodes {
			stays := f.firstWithout.IsZero()
			if !f.listed || stays && excused {
				continue
			}
			departure := trial.Departure{ID: id, Canceled: d.canceled, Last: trial.Since(began, d.last), Node: node, Gone: -1}
			if !stays {
				departure.Gone = trial.Since(began, f.firstWithout)
			}
			all = append(all, departure)
		}
	}
	return all
}
