package registry

import (
	"slices"

	"github.com/seed-20419f34/rollcall/fsm/order"
)

// Preservation returns self-preservation as it is now.
func (v *View) Preservation() Preservation { return newest(v.transitions) }

// Transitions returns the last transitions of self-preservation, newest first.
func (v *View) Transitions() []Preservation {
	transitions := slices.Clone(v.transitions)
	slices.Reverse(transitions)
	return transitions
}

func (r *Registry) preservation() Preservation { return newest(r.transitions) }

// perform makes a transition of self-preservation, if it fits the present state. No reader of the registry's content
// sees it, so it takes no Index.
func (op SelfPreservation) perform(r *Registry, term uint64, _ Origin) Result {
	if !r.mayPreserve(term, op) {
		return Result{Outcome: Refused}
	}
	p := Preservation{State: op.To, Since: r.clock, By: op.By, Figures: op.Figures}
	switch op.To {
	case PreservationOn:
		p.Until = boundFrom(r.settings, r.clock.Lease)
	case PreservationHeld:
		p.Until = r.clock.Lease + op.For
	}
	if len(r.transitions) == transitionsKept {
		r.transitions = r.transitions[1:]
	}
	r.transitions = append(r.transitions, p)
	r.resumed = evictionsResumed(r.transitions)
	return Result{}
}

// mayPreserve reports whether a transition is allowed. Operators may make some, whatever state they believed they
// saw; the leader may make the one it saw to be due, if it still is.
func (r *Registry) mayPreserve(term uint64, op SelfPreservation) bool {
	switch p := r.preservation(); {
	case op.By == (Act{}):
		return r.epoch.Leads(term, op.Epoch) && op.From == p.State && leadsTo(p, op.To, r.clock.Lease)
	case op.To == PreservationReleased:
		return p.State.Withholds()
	case op.To == PreservationHeld:
		return 0 < op.For && op.For <= maxHold
	}
	return false
}

// leadsTo reports whether a state can change to another without an operator, at a moment, whether or not the
// condition holds: Apply does not count, but it knows the time. A hold that an operator prolonged meanwhile does not
// end when the old one would have.
func leadsTo(p Preservation, to PreservationState, now int64) bool {
	return to != p.State && (to == nextState(p, now, true) || to == nextState(p, now, false))
}

// Configure sets how leases end, from now on. The node that establishes an epoch does so first. An invalid value
// counts as the nearest valid one: an entry of the log is never refused.
func (r *Registry) Configure(s Settings) {
	s.Threshold = min(s.Threshold, Whole)
	s.Bound, s.ExpectationUpdate = max(s.Bound, 0), max(s.ExpectationUpdate, 0)
	ends := s.DoubledLease != r.settings.DoubledLease || s.Expectation != r.settings.Expectation
	r.settings = s
	if ends {
		r.expiry.Reorder(r.slotEndsAt) // ends may have become earlier
	}
	if p := r.preservation(); p.State == PreservationOn { // a new bound is meant for the present incident too
		p.Until = boundFrom(s, p.Since.Lease)
		r.transitions = slices.Clone(r.transitions) // views have the old one
		r.transitions[len(r.transitions)-1] = p
	}
	r.expectation.NextUpdate = min(r.expectation.NextUpdate, order.Later(r.clock.Lease, s.ExpectationUpdate))
}

// withheld returns what let evictions go on, if self-preservation withheld (or would have) the eviction of a lease
// that ended at a moment; otherwise the zero Act.
func (r *Registry) withheld(end int64) Act {
	for i, p := range slices.Backward(r.transitions) {
		switch {
		case p.State == PreservationReleased && p.By == Act{}:
			return Act{Reason: "self-preservation was released when its time had passed"}
		case p.State == PreservationReleased:
			return Act{Author: p.By.Author, Reason: "self-preservation was released: " + p.By.Reason}
		case p.State.Withholds() && i < len(r.transitions)-1:
			return Act{Reason: "self-preservation withheld it until it went off"}
		case p.Since.Lease <= end:
			return Act{}
		}
	}
	return Act{}
}
