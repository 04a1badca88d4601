package verdict

import (
	"cmp"
	"math"
	"slices"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// growing reports whether the version of a key can only grow: it is never removed, and each version is written once.
func growing(calls []trial.Call) bool {
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

// explainsVersions reports whether a single copy explains the calls on a key whose version can only grow. It is exact, and
// needs no search, however many calls overlap: a look that saw version x took effect after the write of x and before every
// write of a greater one, so looks took effect in the order of what they saw. Each write and each look is given the
// earliest moment that this order and its own begin allow; the calls can be explained if and only if none is given one
// after its end.
func explainsVersions(calls []trial.Call) bool {
	calls = slices.Clone(calls)
	slices.SortStableFunc(calls, func(a, b trial.Call) int {
		return cmp.Or(cmp.Compare(versionOf(a), versionOf(b)), cmp.Compare(toNumber(a.Action == trial.Look), toNumber(b.Action == trial.Look)))
	})
	never := trial.Micros(math.MinInt64)
	// The latest moments of the looks at older versions, and of those at the version of now; when that was written.
	older, newest, written := never, never, never
	version := int64(0)
	for _, c := range calls {
		end := max(c.Returned, c.Called)
		if c.Action == trial.Write {
			older = max(older, newest)
			version, written = c.Version, max(c.Called, older)
			if written > end {
				return false
			}
			continue
		}
		if sees(c) != version {
			return false // it saw what was never written
		}
		at := max(c.Called, written)
		if at > end {
			return false
		}
		newest = max(newest, at)
	}
	return true
}

// versionOf is what a call wrote or saw.
func versionOf(c trial.Call) int64 {
	if c.Action == trial.Look {
		return sees(c)
	}
	return c.Version
}
