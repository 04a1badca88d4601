package verdict

import (
	"cmp"
	"math"
	"slices"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// writtenOnce reports whether a key is never removed, and each of its versions written once.
func writtenOnce(calls []trial.Call) bool {
	written := make(map[int64]bool)
	for _, c := range calls {
		switch c.Action {
		case trial.Remove:
			return false
		case trial.Write:
			if written[c.Version] || c.Version <= 0 {
				return false
			}
			written[c.Version] = true
		}
	}
	return true
}

// zone is when a version was certainly stored, if it begins before it ends; otherwise it was stored at some moment
// between the end and the beginning.
type zone struct{ begin, end trial.Micros }

// explainsVersions reports whether the calls on a key that is never removed, and whose versions are written once each,
// can be explained by a single copy where the version written last counts. It is exact, and needs no search, however
// many calls overlap (Gibbons and Korach, Testing Shared Memories, 1997): a version is stored at least from the first
// end of a call that wrote or saw it until the last beginning of one. No two versions are certainly stored at one
// time, none is stored only while another one certainly is, and none is seen before it is written.
func explainsVersions(calls []trial.Call) bool {
	never := trial.Micros(math.MinInt64)
	zones := map[int64]*zone{0: {never, never}} // the state before any registration
	written := map[int64]trial.Micros{0: never}
	seen := map[int64]bool{0: true}
	for _, c := range calls {
		if c.Action == trial.Write {
			written[c.Version] = c.Called
		} else {
			seen[sees(c)] = true
		}
	}
	for _, c := range calls {
		version, end := versionOf(c), max(c.Returned, c.Called)
		if begun, known := written[version]; !known || end < begun {
			return false // it saw something not written yet
		}
		if c.Action == trial.Write && c.Outcome == trial.Unknown && !seen[version] {
			continue // it took effect at the end of time
		}
		z := zones[version]
		if z == nil {
			z = &zone{end, c.Called}
			zones[version] = z
		}
		z.begin, z.end = min(z.begin, end), max(z.end, c.Called)
	}
	var certain []zone
	for _, z := range zones {
		if z.begin < z.end {
			certain = append(certain, *z)
		}
	}
	slices.SortFunc(certain, func(a, b zone) int { return cmp.Compare(a.begin, b.begin) })
	for i := 1; i < len(certain); i++ {
		if certain[i].begin < certain[i-1].end {
			return false
		}
	}
	for _, z := range zones {
		within := func(other zone) bool { return other.begin < z.end && z.begin < other.end }
		if z.begin >= z.end && slices.ContainsFunc(certain, within) {
			return false
		}
	}
	return true
}

// versionOf returns what a call wrote or saw.
func versionOf(c trial.Call) int64 {
	if c.Action == trial.Look {
		return sees(c)
	}
	return c.Version
}
