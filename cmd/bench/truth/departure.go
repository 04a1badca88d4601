package truth

import (
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// departure is how one instance went, once.
type departure struct {
	canceled bool
	from     time.Time // of its death, or of the cancel's acknowledgement
	last     time.Time // trial.Departure.Last
	over     bool      // the instance was registered again
	nodes    []farewell
}

// farewell is how one node stopped listing the instance.
type farewell struct {
	listed bool      // at some time
	gone   time.Time // asking of the first list without it; zero: there was none
	away   bool      // the last list was without it
}

// departing is the departure that goes on; nil: there is none.
func (r *record) departing() *departure {
	if n := len(r.departures); n > 0 && !r.departures[n-1].over {
		return r.departures[n-1]
	}
	return nil
}

// depart begins a departure, unless one goes on: a canceled instance that dies went with its cancel.
func (r *record) depart(d *departure) {
	if r.departing() != nil {
		return
	}
	for _, listed := range r.seen {
		d.nodes = append(d.nodes, farewell{listed: listed})
	}
	r.departures = append(r.departures, d)
}

// stay ends the departure that goes on: the instance is registered again.
func (r *record) stay() {
	if d := r.departing(); d != nil {
		d.over = true
		clear(r.seen)
	}
}

// follow notes a look for the departures, and reports whether the node lists the instance again after it had
// stopped: once, however long it goes on.
func (r *record) follow(l look) (back bool) {
	r.seen = grown(r.seen, l.node)
	r.seen[l.node] = r.seen[l.node] || l.listed
	// A version that the node never listed before is late, and no return.
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
	back = l.listed && node.away && known && r.revived(l)
	node.away = node.listed && !l.listed
	if node.away && node.gone.IsZero() {
		node.gone = l.asked
	}
	return back
}

// grown is a list that has an element i.
func grown[T any](list []T, i int) []T {
	for len(list) <= i {
		var zero T
		list = append(list, zero)
	}
	return list
}

// tell appends what each node did of each departure of an instance.
func (r *record) tell(all []trial.Departure, id string, began time.Time) []trial.Departure {
	for _, d := range r.departures {
		excused := d.over || r.underWay(false, time.Time{})
		for node, f := range d.nodes {
			stays := f.gone.IsZero()
			if !f.listed || stays && excused {
				continue
			}
			told := trial.Departure{ID: id, Canceled: d.canceled, Last: trial.Since(began, d.last), Node: node, Gone: -1}
			if !stays {
				told.Gone = trial.Since(began, f.gone)
			}
			all = append(all, told)
		}
	}
	return all
}
