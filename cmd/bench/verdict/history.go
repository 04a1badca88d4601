package verdict

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// patience is how long the checker tries one history. Histories of a trial take milliseconds.
const patience = 5 * time.Second

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

// history checks the calls on each watched key, where the column promises that they are linearizable. No promise is made
// between datacenters: each is checked for itself.
func history(t *trial.Trial, c scenario.Column, watched keys, patience time.Duration) History {
	h := History{Result: OK, Violated: []string{}}
	for _, name := range watched.names() {
		h.Overlapping += overlapping(watched[name])
		h.Unknown += unknown(watched[name])
	}
	if !c.Linearizable() {
		h.Result = Unpromised
		return h
	}
	for _, name := range watched.names() {
		h.Keys++
		if unlooked(watched[name]) {
			h.Unread = append(h.Unread, name)
			h.Result = Undecided
		}
	}
	for _, name := range watched.names() {
		for _, dc := range datacenters(t, watched[name]) {
			calls := informative(local(t, watched[name], dc))
			h.Calls += len(calls)
			h.check(t, name, calls, patience)
		}
	}
	return h
}

// check adds what the checker says of one key's calls.
func (h *History) check(t *trial.Trial, name string, calls []trial.Call, patience time.Duration) {
	switch check(calls, patience) {
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
			h.Example = counterexample(t, name, calls, patience)
		}
	}
}

// overlapping counts the writes that began while another write of the key was under way. When a write of unknown outcome
// ended is not known, so that none counts for overlapping it. The calls are in the order of their times.
func overlapping(calls []trial.Call) int {
	count := 0
	until := trial.Micros(math.MinInt64) // the last of the writes until now returned
	for _, c := range calls {
		if c.Action == trial.Look || c.Outcome == trial.Refused || c.Outcome == trial.Unreached {
			continue
		}
		count += toNumber(c.Called < until)
		if c.Outcome != trial.Unknown {
			until = max(until, c.Returned)
		}
	}
	return count
}

// unknown counts the writes of which nobody knows whether they took effect.
func unknown(calls []trial.Call) int {
	count := 0
	for _, c := range calls {
		count += toNumber(c.Action != trial.Look && c.Outcome == trial.Unknown)
	}
	return count
}

// unlooked reports whether a key was written, or may have been, and no look at it was answered: anything explains that.
func unlooked(calls []trial.Call) bool {
	told := informative(calls)
	return len(told) > 0 && !slices.ContainsFunc(told, func(c trial.Call) bool { return c.Action == trial.Look })
}

// datacenters are those in which a key's history is checked: where it was written, or read in a version that nobody wrote.
func datacenters(t *trial.Trial, calls []trial.Call) []string {
	found := make(map[string]bool)
	written := map[int64]bool{0: true}
	for _, c := range calls {
		if c.Action == trial.Write {
			written[c.Version] = true
		}
	}
	for _, c := range calls {
		if c.Action != trial.Look || c.Outcome.Answered() && !written[sees(c)] {
			found[datacenter(t, c.Node)] = true
		}
	}
	return names(found)
}

// local are the calls on a key as a datacenter must explain them: writes of other datacenters arrive at any time or
// never, and their reads do not count.
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

// informative are the calls from which something follows: those that took effect, may have, or were answered.
func informative(calls []trial.Call) []trial.Call {
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

// check asks whether calls on one key, as informative returns them, can be explained by a single copy.
func check(calls []trial.Call, patience time.Duration) porcupine.CheckResult {
	if growing(calls) {
		if explainsVersions(calls) {
			return porcupine.Ok
		}
		return porcupine.Illegal
	}
	return porcupine.CheckOperationsTimeout(register, operationsOf(calls), patience)
}

// operationsOf are the calls on one key for the checker, which searches for long if many calls overlap, and those of
// unknown outcome overlap all that follow.
func operationsOf(calls []trial.Call) (operations []porcupine.Operation) {
	for _, c := range calls {
		operations = append(operations, porcupine.Operation{ClientId: c.Client, Input: c, Call: int64(c.Called), Return: int64(max(c.Returned, c.Called))})
	}
	return operations
}

// counterexample is the shortest prefix of a key's calls that cannot be explained; the whole cannot. A prefix of
// what can be explained can be explained, too, so that it is found by halving. A prefix on which the checker runs out of
// time counts as explained.
func counterexample(t *trial.Trial, name string, calls []trial.Call, patience time.Duration) *Counterexample {
	ends := returns(calls)
	shortest := sort.Search(len(ends)-1, func(last int) bool {
		return check(prefix(calls, ends, last), patience) == porcupine.Illegal
	})
	found := prefix(calls, ends, shortest)
	culprit := slices.Index(found, calls[ends[shortest]])
	return &Counterexample{Key: name, Calls: found, Last: culprit, Text: explain(t, found, culprit)}
}

// returns are the places of the calls that returned, by the time at which they did.
func returns(calls []trial.Call) []int {
	var found []int
	for i, c := range calls {
		if c.Outcome != trial.Unknown {
			found = append(found, i)
		}
	}
	slices.SortStableFunc(found, func(a, b int) int { return cmp.Compare(calls[a].Returned, calls[b].Returned) })
	return found
}

// prefix are the calls as they were known when that of ends[last] returned. Looks that had not returned do not count.
func prefix(calls []trial.Call, ends []int, last int) []trial.Call {
	returned := make(map[int]bool)
	for _, place := range ends[:last+1] {
		returned[place] = true
	}
	now := calls[ends[last]].Returned
	var found []trial.Call
	for i, c := range calls {
		switch {
		case returned[i]:
			found = append(found, c)
		case c.Called <= now && c.Action != trial.Look:
			found = append(found, pending(c))
		}
	}
	return found
}

// explain says what is wrong with the last call to return.
func explain(t *trial.Trial, calls []trial.Call, culprit int) string {
	c := calls[culprit]
	said := fmt.Sprintf("%s of %s at %s, %s", verb(c), c.Key, t.NodeName(c.Node), moments(c))
	if c.Action == trial.Look && sees(c) != 0 && !writtenBefore(calls, c) {
		return said + ", which no client had written by then"
	}
	before, ok := contradiction(calls, c)
	if !ok {
		return said + "; no order of the calls before it explains that"
	}
	return fmt.Sprintf("%s, though %s", said, evidence(t, before))
}

// verb is what a call did and what it was answered.
func verb(c trial.Call) string {
	switch {
	case c.Action == trial.Remove && c.Outcome == trial.NotFound:
		return "a cancel found no registration"
	case c.Action == trial.Remove:
		return fmt.Sprintf("a cancel (version %d) found a registration", c.Version)
	case c.Action == trial.Write:
		return fmt.Sprintf("a registration (version %d)", c.Version)
	case sees(c) == 0:
		return "a read found no registration"
	}
	return fmt.Sprintf("a read returned version %d", c.Version)
}

func moments(c trial.Call) string {
	return fmt.Sprintf("asked at %.3f s and answered at %.3f s", c.Called.Seconds(), c.Returned.Seconds())
}

// writtenBefore reports whether the version that a look saw was sent before it returned.
func writtenBefore(calls []trial.Call, look trial.Call) bool {
	return slices.ContainsFunc(calls, func(c trial.Call) bool {
		return c.Action == trial.Write && c.Version == look.Version && c.Called <= look.Returned
	})
}

// contradiction is what was known before c was asked, and says the opposite: the newest version that was
// acknowledged, or else that was read. There may be none, if the contradiction is one of several calls together.
func contradiction(calls []trial.Call, c trial.Call) (trial.Call, bool) {
	var newest trial.Call
	found := false
	for _, before := range calls {
		if before.Outcome == trial.Unknown || before.Returned >= c.Called {
			continue
		}
		if before.Action == trial.Remove && before.Outcome == trial.NotFound || before.Action == trial.Look && sees(before) == 0 {
			continue
		}
		newer := before.Version > newest.Version || before.Version == newest.Version && before.Action != trial.Look
		if !found || newer {
			newest, found = before, true
		}
	}
	registered := newest.Action != trial.Remove
	var contradicts bool
	switch {
	case c.Action == trial.Look && sees(c) != 0:
		contradicts = newest.Version > c.Version
	case c.Action == trial.Look || c.Outcome == trial.NotFound:
		contradicts = registered
	default:
		contradicts = !registered
	}
	return newest, found && contradicts
}

// evidence is a call that contradicts, in words.
func evidence(t *trial.Trial, c trial.Call) string {
	at := fmt.Sprintf("at %.3f s by %s", c.Returned.Seconds(), t.NodeName(c.Node))
	switch c.Action {
	case trial.Write:
		return fmt.Sprintf("version %d had been acknowledged %s", c.Version, at)
	case trial.Remove:
		return fmt.Sprintf("its cancel (version %d) had been acknowledged %s", c.Version, at)
	default:
		return fmt.Sprintf("version %d had been read before, answered %s", c.Version, at)
	}
}
