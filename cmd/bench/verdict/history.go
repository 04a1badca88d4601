package verdict

import (
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// patience is how long the checker tries one history. Histories of a trial take milliseconds.
const patience = 5 * time.Second

// register models a watched key as a single copy: the stored version, 0 while it is not registered. Of two
// registrations by clients the later one counts, whatever their timestamps (ADR 36).
var register = porcupine.Model{
	Init: func() any { return int64(0) },
	Step: func(state, input, _ any) (bool, any) {
		stored, c := state.(int64), input.(trial.Call)
		switch c.Action {
		case trial.Write:
			return true, c.Version
		case trial.Remove:
			return c.Outcome == trial.Unknown || (c.Outcome == trial.Done) == (stored != 0), int64(0)
		default:
			return sees(c) == stored, stored
		}
	},
	DescribeOperation: func(input, _ any) string { return callText(input.(trial.Call)) },
}

// history checks the calls on each watched key, where the column promises that they are linearizable. No promise is
// made between datacenters: each is checked on its own.
func (f *facts) history(c scenario.Column, patience time.Duration) History {
	h := History{Result: OK, Violated: []string{}}
	for _, name := range f.watched.names() {
		overlapping, unknown := doubts(f.watched[name])
		h.Overlapping, h.Unknown = h.Overlapping+overlapping, h.Unknown+unknown
	}
	if !c.Linearizable() {
		h.Result = Unpromised
		return h
	}
	for _, name := range f.watched.names() {
		h.Keys++
		if unlooked(f.watched[name]) {
			h.Unread = append(h.Unread, name)
			h.Result = Undecided
		}
	}
	for _, name := range f.watched.names() {
		for _, dc := range datacenters(f.Trial, f.watched[name]) {
			calls := informative(local(f.Trial, f.watched[name], dc))
			h.Calls += len(calls)
			h.add(name, check(calls, patience))
		}
	}
	h.Violated = slices.Compact(h.Violated) // of several datacenters
	return h
}

// add adds the checker's result for one key.
func (h *History) add(name string, result porcupine.CheckResult) {
	switch {
	case result == porcupine.Illegal:
		h.Result = Violated
		h.Violated = append(h.Violated, name)
	case result == porcupine.Unknown && h.Result == OK:
		h.Result = Undecided
	}
}

// doubts counts the writes that began while another write of the key was under way, and those that may or may not have
// taken effect. It is unknown when such a one ended, so overlapping it does not count. The calls are in the order of
// their times.
func doubts(calls []trial.Call) (overlapping, unknown int) {
	until := trial.Micros(math.MinInt64) // when the last of the writes so far returned
	for _, c := range calls {
		if c.Action == trial.Look || c.Outcome == trial.Refused || c.Outcome == trial.Unreached {
			continue
		}
		overlapping += toNumber(c.Called < until)
		if c.Outcome == trial.Unknown {
			unknown++
			continue
		}
		until = max(until, c.Returned)
	}
	return overlapping, unknown
}

// unlooked reports whether a key was written, or may have been, but no look at it was answered: anything explains
// that.
func unlooked(calls []trial.Call) bool {
	told := informative(calls)
	return len(told) > 0 && !slices.ContainsFunc(told, func(c trial.Call) bool { return c.Action == trial.Look })
}

// datacenters returns the places where a key's history is checked: those where it was written, or read in a version
// that nobody wrote.
func datacenters(t *trial.Trial, calls []trial.Call) []string {
	var found []string
	written := map[int64]bool{0: true}
	for _, c := range calls {
		written[c.Version] = written[c.Version] || c.Action == trial.Write
	}
	for _, c := range calls {
		if c.Action != trial.Look || c.Outcome.Answered() && !written[sees(c)] {
			found = append(found, datacenter(t, c.Node))
		}
	}
	return unique(found)
}

// local returns the calls on a key as a datacenter must explain them: writes of other datacenters arrive at any time
// or never, and their reads do not count.
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

// pending returns a call that has not returned.
func pending(c trial.Call) trial.Call {
	if c.Outcome.Answered() || c.Outcome == trial.Unknown {
		c.Outcome, c.Returned = trial.Unknown, endless
	}
	return c
}

// informative returns the calls that matter: those that took effect, may have, or were answered.
func informative(calls []trial.Call) []trial.Call {
	var found []trial.Call
	for _, c := range calls {
		switch {
		case c.Outcome == trial.Done, c.Outcome == trial.NotFound && c.Action != trial.Write:
			found = append(found, c)
		case c.Action != trial.Look && c.Outcome == trial.Unknown:
			found = append(found, pending(c))
		}
	}
	return found
}

// check asks whether calls on one key, as informative returns them, can be explained by a single copy.
func check(calls []trial.Call, patience time.Duration) porcupine.CheckResult {
	switch {
	case !writtenOnce(calls):
		return porcupine.CheckOperationsTimeout(register, operationsOf(calls), patience)
	case explainsVersions(calls):
		return porcupine.Ok
	}
	return porcupine.Illegal
}

// operationsOf returns the calls on one key for the checker, which searches for long if many calls overlap, and calls
// of unknown outcome overlap all that follow.
func operationsOf(calls []trial.Call) (operations []porcupine.Operation) {
	for _, c := range calls {
		operations = append(operations, porcupine.Operation{ClientId: c.Client, Input: c, Call: int64(c.Called), Return: int64(max(c.Returned, c.Called))})
	}
	return operations
}

// Draw draws the calls on a key that no single copy explains, as a page of HTML.
func Draw(t *trial.Trial, key string, w io.Writer) error {
	calls := keysOf(t.History)[key]
	for _, dc := range datacenters(t, calls) {
		if found := informative(local(t, calls, dc)); check(found, patience) == porcupine.Illegal {
			_, info := porcupine.CheckOperationsVerbose(register, operationsOf(found), patience)
			return porcupine.Visualize(register, info, w)
		}
	}
	return nil
}

// callText returns what was asked, and what was answered.
func callText(c trial.Call) string {
	node := fmt.Sprintf("node %d", c.Node+1)
	switch {
	case c.Action == trial.Look && sees(c) == 0:
		return "read at " + node + ": not registered"
	case c.Action == trial.Look:
		return fmt.Sprintf("read at %s: version %d", node, c.Version)
	case c.Action == trial.Remove:
		return fmt.Sprintf("cancel at %s: %s", node, c.Outcome)
	}
	return fmt.Sprintf("version %d at %s: %s", c.Version, node, c.Outcome)
}
