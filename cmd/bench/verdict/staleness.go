package verdict

import (
	"maps"
	"math"
	"slices"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// keys are the calls on the watched keys, by key, each in the order of the calls.
type keys map[string][]trial.Call

func keysOf(calls []trial.Call) keys {
	k := make(keys)
	for _, c := range calls {
		k[c.Key] = append(k[c.Key], c)
	}
	return k
}

// names returns the keys, sorted.
func (k keys) names() []string { return slices.Sorted(maps.Keys(k)) }

// agedLook is an answered look, and how old its answer was.
type agedLook struct {
	trial.Call
	age    trial.Micros // 0 if it was not stale
	behind int          // versions
	every  float64      // mean seconds between two changes of its key
}

// agedLooks returns those of all keys, key by key.
func (k keys) agedLooks() []agedLook {
	var found []agedLook
	for _, name := range k.names() {
		calls := k[name]
		every := intervalOf(calls)
		for _, c := range calls {
			if c.Action == trial.Look && c.Outcome.Answered() {
				age, behind := stale(calls, c)
				found = append(found, agedLook{c, age, behind, every})
			}
		}
	}
	return found
}

// rareChanges are realistic intervals, in seconds, between changes of a registry's key.
var rareChanges = []float64{30, 300, 3600}

// stalenessOf sums up the wanted looks. Follows is the share of stale answers that follows for keys that change more
// rarely: an answer that lacks n changes of a key which changed every d seconds knows a state of n·d seconds ago; a key
// that changes every e seconds changes in such a time with a probability of n·d/e.
func stalenessOf(looks []agedLook, wanted func(trial.Call) bool) Staleness {
	var s Staleness
	ages, expected := make(spans), make([]float64, len(rareChanges))
	for _, a := range looks {
		if !wanted(a.Call) {
			continue
		}
		s.Reads++
		if a.behind > 0 {
			s.Stale++
			ages[a.age]++
			s.Behind = max(s.Behind, a.behind)
		}
		for i, rare := range rareChanges {
			expected[i] += min(1, float64(a.behind)*a.every/rare)
		}
	}
	if s.Reads == 0 {
		return s
	}
	s.Share, s.Age = float64(s.Stale)/float64(s.Reads), ages.spread()
	for i, rare := range rareChanges {
		s.Follows = append(s.Follows, Follow{Every: rare, Share: expected[i] / float64(s.Reads)})
	}
	return s
}

// intervalOf returns the mean time from one acknowledged change of a key to the next, in seconds, or 0 with fewer than
// two.
func intervalOf(calls []trial.Call) float64 {
	changes, first, last := 0, endless, trial.Micros(0)
	for _, c := range calls {
		if c.Action != trial.Look && c.Outcome == trial.Done {
			changes++
			first, last = min(first, c.Returned), max(last, c.Returned)
		}
	}
	if changes < 2 {
		return 0
	}
	return (last - first).Seconds() / float64(changes-1)
}

// Age is how old the answer of one Look call was, as Staleness counts it.
type Age struct {
	Called trial.Micros
	Age    trial.Micros // 0 if it was not stale
}

// Ages returns those of all answered Look calls of a trial, key by key: a plot of Staleness shows them.
func Ages(t *trial.Trial) []Age {
	var ages []Age
	for _, a := range keysOf(t.History).agedLooks() {
		ages = append(ages, Age{Called: a.Called, Age: a.age})
	}
	return ages
}

// stale returns how many versions that were acknowledged before a look its answer does not know, and how long before
// the look the first of them was acknowledged. calls are all on its key. An answer that the key is not registered is
// as new as the newest removal that may have taken effect.
//
// An answer that a call of unknown outcome may explain, because it may take effect at any time, is not stale. So an
// answer that a single copy might have given never is.
func stale(calls []trial.Call, look trial.Call) (age trial.Micros, behind int) {
	seen := seenBy(calls, look)
	first, written := endless, int64(0)
	for _, c := range calls {
		if c.Action == trial.Look || c.Outcome != trial.Done || c.Version <= seen || c.Returned >= look.Called {
			continue
		}
		behind++
		first = min(first, c.Returned)
		if c.Action == trial.Write {
			written = max(written, c.Version)
		}
	}
	if behind == 0 || explainedByLateCall(calls, look, written) {
		return 0, 0
	}
	return look.Called - first, behind
}

// seenBy returns the version that a look's answer is as new as.
func seenBy(calls []trial.Call, look trial.Call) int64 {
	newest := sees(look)
	if newest != 0 {
		return newest
	}
	for _, c := range calls {
		if removes(c, look) {
			newest = max(newest, c.Version)
		}
	}
	return newest
}

// sees returns the version in a look's answer, or 0 if not registered.
func sees(look trial.Call) int64 {
	if look.Outcome == trial.NotFound {
		return 0
	}
	return look.Version
}

// removes reports whether a call may have removed the key before a look returned.
func removes(c, look trial.Call) bool {
	return c.Action == trial.Remove && (c.Outcome == trial.Done || c.Outcome == trial.Unknown) && c.Called <= look.Returned
}

// explainedByLateCall reports whether a look may have seen the late effect of a call of unknown outcome, after the
// newest acknowledged version was written (0 for a removal): a removal; or a registration, if before it the key was
// removed, because otherwise the newer version stays.
func explainedByLateCall(calls []trial.Call, look trial.Call, written int64) bool {
	absent := sees(look) == 0
	unknown, removed := false, false
	for _, c := range calls {
		unknown = unknown || c.Action == trial.Write && c.Version == look.Version && c.Outcome == trial.Unknown
		removed = removed || removes(c, look) && (c.Outcome == trial.Unknown || !absent && c.Version > written)
	}
	return removed && (absent || unknown)
}

// endless is the end of a call without one: it may take effect at any time, or never.
const endless = trial.Micros(math.MaxInt64)
