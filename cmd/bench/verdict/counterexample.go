package verdict

import (
	"cmp"
	"fmt"
	"slices"
	"sort"

	"github.com/anishathalye/porcupine"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// counterexample is the shortest prefix of a key's calls that cannot be explained; the whole cannot. A prefix of
// what can be explained can be explained, too, so that it is found by halving. A prefix on which the checker runs out of
// time counts as explained.
func counterexample(t *trial.Trial, name string, calls []trial.Call) *Counterexample {
	ends := returns(calls)
	shortest := sort.Search(len(ends)-1, func(last int) bool {
		return check(prefix(calls, ends, last)) == porcupine.Illegal
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

// prefix are the calls as they were known when that of ends[last] returned. Looks that had not returned say nothing.
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
	said := fmt.Sprintf("%s of %s at %s, %s", verb(c), c.Key, node(t, c.Node), moments(c))
	if c.Action == trial.Look && sees(c) != 0 && !writtenBefore(calls, c) {
		return said + ", which nobody had written by then"
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

func node(t *trial.Trial, number int) string {
	if number < 0 || number >= len(t.Nodes) {
		return fmt.Sprintf("node number %d", number)
	}
	return t.Nodes[number].Name
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
	at := fmt.Sprintf("at %.3f s by %s", c.Returned.Seconds(), node(t, c.Node))
	switch c.Action {
	case trial.Write:
		return fmt.Sprintf("version %d had been acknowledged %s", c.Version, at)
	case trial.Remove:
		return fmt.Sprintf("its cancel (version %d) had been acknowledged %s", c.Version, at)
	default:
		return fmt.Sprintf("version %d had been read before, answered %s", c.Version, at)
	}
}
