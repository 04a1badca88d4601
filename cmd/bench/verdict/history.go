package verdict

import (
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// patience is how long the checker tries one history. Histories of a trial take milliseconds.
const patience = 5 * time.Second

// endless is the end of a call without one: it may take effect at any time, or never.
const endless = trial.Micros(math.MaxInt64)

// register is a watched key as a single copy: the version that is stored, 0 while it is not registered. A
// registration with an older lastDirtyTimestamp than the stored one's does not replace it
// (fsm/registry, registerAgain).
var register = porcupine.Model{
	Init: func() any { return int64(0) },
	Step: func(state, input, _ any) (bool, any) {
		stored, c := state.(int64), input.(trial.Call)
		switch c.Action {
		case trial.Write:
			return true, max(stored, c.Version)
		case trial.Remove:
			return c.Outcome == trial.Unknown || (c.Outcome == trial.Done) == (stored != 0), int64(0)
		default:
			return sees(c) == stored, stored
		}
	},
}

// history checks the calls on each watched key, in mode cp. What one datacenter does is no promise to another: each
// is checked for itself.
func history(t *trial.Trial, watched keys) History {
	h := History{Result: OK, Violated: []string{}}
	if t.Mode != scenario.CP {
		h.Result = Unpromised
		return h
	}
	for _, name := range watched.names() {
		h.Keys++
		for _, dc := range datacenters(t, watched[name]) {
			calls := told(local(t, watched[name], dc))
			h.Calls += len(calls)
			h.check(t, name, calls)
		}
	}
	return h
}

// check adds what the checker says of one key's calls.
func (h *History) check(t *trial.Trial, name string, calls []trial.Call) {
	switch check(calls) {
	case porcupine.Unknown:
		if h.Result == OK {
			h.Result = Undecided
		}
	case porcupine.Illegal:
		h.Result = Violated
		if !slices.Contains(h.Violated, name) {
			h.Violated = append(h.Violated, name)
		}
		if h.Example == nil {
			h.Example = counterexample(t, name, calls)
		}
	}
}

// datacenters are those in which a key's history is checked: where it was written.
func datacenters(t *trial.Trial, calls []trial.Call) []string {
	found := make(map[string]bool)
	for _, c := range calls {
		if c.Action != trial.Look {
			found[datacenter(t, c.Node)] = true
		}
	}
	return names(found)
}

// local are the calls on a key as a datacenter must explain them: what was written elsewhere arrives at any time, or
// never, and what was read elsewhere tells nothing.
func local(t *trial.Trial, calls []trial.Call, dc string) []trial.Call {
	var found []trial.Call
	for _, c := range calls {
		if datacenter(t, c.Node) != dc {
			if c.Action == trial.Look {
				continue
			}
			c = pending(c)
		}
		found = append(found, c)
	}
	return found
}

// pending is a call that has not returned.
func pending(c trial.Call) trial.Call {
	if c.Outcome == trial.Done || c.Outcome == trial.NotFound || c.Outcome == trial.Unknown {
		c.Outcome, c.Returned = trial.Unknown, endless
	}
	return c
}

// told are the calls that say something: those that took effect, may have, or were answered.
func told(calls []trial.Call) []trial.Call {
	var found []trial.Call
	for _, c := range calls {
		switch {
		case c.Action == trial.Look && c.Outcome.Answered(),
			c.Action == trial.Write && c.Outcome == trial.Done,
			c.Action == trial.Remove && c.Outcome.Answered():
			found = append(found, c)
		case c.Action != trial.Look && c.Outcome == trial.Unknown:
			found = append(found, pending(c))
		}
	}
	return found
}

// check asks whether calls on one key, as told returns them, can be explained by a single copy.
func check(calls []trial.Call) porcupine.CheckResult {
	operations, possible := operationsOf(calls)
	if !possible {
		return porcupine.Illegal
	}
	return porcupine.CheckOperationsTimeout(register, operations, patience)
}
