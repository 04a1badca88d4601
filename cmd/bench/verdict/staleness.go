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

// staleness sums up the wanted answered Look calls.
func (k keys) staleness(wanted func(trial.Call) bool) Staleness {
	var s Staleness
	var ages []float64
	for _, name := range k.names() {
		for _, c := range k[name] {
			if c.Action != trial.Look || !c.Outcome.Answered() || !wanted(c) {
				continue
			}
			s.Reads++
			if age, behind := stale(k[name], c); behind > 0 {
				ages = append(ages, age.Seconds())
				s.Behind = max(s.Behind, behind)
			}
		}
	}
	s.Stale, s.Age, s.Follows = len(ages), spreadOf(ages), k.follows(wanted)
	if s.Reads > 0 {
		s.Share = float64(s.Stale) / float64(s.Reads)
	}
	return s
}

// stale returns how many versions that were acknowledged before a look its answer does not know, and how long before
// the look the first of them was acknowledged. calls are all on its key. An answer that the key is not registered is
// as new as the newest removal that may have taken effect.
//
// An answer that a call of unknown outcome may explain, because it may take effect at any time, is not stale. So an
// answer that a single copy might have given never is.
func stale(calls []trial.Call, look trial.Call) (age trial.Micros, behind int) {
	seen := seenBy(calls, look)
	first, written := trial.Micros(math.MaxInt64), int64(0)
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
	if sees(look) != 0 {
		return look.Version
	}
	newest := int64(0)
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
		if c.Action == trial.Write && c.Version == look.Version && c.Outcome == trial.Unknown {
			unknown = true
		}
		if removes(c, look) && (c.Outcome == trial.Unknown || !absent && c.Version > written) {
			removed = true
		}
	}
	return removed && (absent || unknown)
}

// Age is how old the answer of one Look call was, as Staleness counts it.
type Age struct {
	Called trial.Micros
	Age    trial.Micros // 0 if it was not stale
}

// Ages returns those of all answered Look calls of a trial, key by key: a plot of Staleness shows them.
func Ages(t *trial.Trial) []Age {
	var ages []Age
	k := keysOf(t.History)
	for _, name := range k.names() {
		for _, c := range k[name] {
			if c.Action == trial.Look && c.Outcome.Answered() {
				age, _ := stale(k[name], c)
				ages = append(ages, Age{Called: c.Called, Age: age})
			}
		}
	}
	return ages
}

// rareChanges are realistic intervals, in seconds, between changes of a registry's key.
var rareChanges = []float64{30, 300, 3600}

// follows returns the share of stale answers that follows for keys that change more rarely. An answer that lacks n
// changes of a key which changed every d seconds knows a state of n·d seconds ago; a key that changes every e seconds
// changes in such a time with a probability of n·d/e.
func (k keys) follows(wanted func(trial.Call) bool) []Follow {
	looks := 0
	expected := make([]float64, len(rareChanges))
	for _, name := range k.names() {
		every := intervalOf(k[name])
		for _, c := range k[name] {
			if c.Action != trial.Look || !c.Outcome.Answered() || !wanted(c) {
				continue
			}
			looks++
			_, behind := stale(k[name], c)
			for i, rare := range rareChanges {
				expected[i] += min(1, float64(behind)*every/rare)
			}
		}
	}
	if looks == 0 {
		return nil
	}
	found := make([]Follow, len(rareChanges))
	for i, rare := range rareChanges {
		found[i] = Follow{Every: rare, Share: expected[i] / float64(looks)}
	}
	return found
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

// endless is the end of a call without one: it may take effect at any time, or never.
const endless = trial.Micros(math.MaxInt64)
