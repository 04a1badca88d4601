package verdict

import (
	"math"

	"github.com/anishathalye/porcupine"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// operationsOf are the calls on one key for the checker, which searches for long if many calls overlap, and those of
// unknown outcome overlap all that follow. But each version is written once, and on a key that is never
// removed versions only grow. So a write of such a key took effect after each look that saw an older version, or
// nothing, was called; and one of unknown outcome that nobody saw can be left out, because without it all others
// remain explained. (A removal would tell that it found something.)
//
// It is impossible to explain them if a write must have taken effect after it returned.
func operationsOf(calls []trial.Call) (operations []porcupine.Operation, possible bool) {
	s := sightsOf(calls)
	for _, c := range calls {
		from, to := c.Called, max(c.Returned, c.Called)
		if c.Action == trial.Write && !s.removed && s.written[c.Version] == 1 {
			if c.Outcome == trial.Unknown && !s.seen[c.Version] {
				continue
			}
			if from = max(from, s.older(c.Version)); from > to {
				return nil, false
			}
		}
		operations = append(operations, porcupine.Operation{ClientId: c.Client, Input: c, Call: int64(from), Return: int64(to)})
	}
	return operations, true
}

// sights is what the looks of a key tell of its versions.
type sights struct {
	looks   []trial.Call
	seen    map[int64]bool // the versions that a look saw
	written map[int64]int  // how often a version was
	removed bool           // the key was, or may have been
}

func sightsOf(calls []trial.Call) sights {
	s := sights{seen: make(map[int64]bool), written: make(map[int64]int)}
	for _, c := range calls {
		switch c.Action {
		case trial.Look:
			s.looks = append(s.looks, c)
			s.seen[sees(c)] = true
		case trial.Remove:
			s.removed = true
		case trial.Write:
			s.written[c.Version]++
		}
	}
	return s
}

// older is when the last look was called that saw an older version, or nothing.
func (s sights) older(version int64) trial.Micros {
	last := trial.Micros(math.MinInt64)
	for _, c := range s.looks {
		if sees(c) < version {
			last = max(last, c.Called)
		}
	}
	return last
}
