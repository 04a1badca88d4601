package verdict

import (
	"cmp"
	"slices"
	"testing"

	"github.com/anishathalye/porcupine"
	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestVersionGrowsIfItIsNeverRemovedNorWrittenTwice(t *testing.T) {
	for _, c := range []struct {
		name  string
		calls []trial.Call
		want  bool
	}{
		{"writes and looks", []trial.Call{write(2, 0, 1), write(1, 0, 1), look(0, 2, 3), look(7, 2, 3)}, true},
		{"a removal", []trial.Call{write(1, 0, 1), remove(2, 2, 3)}, false},
		{"a removal of unknown outcome", []trial.Call{of(remove(1, 0, 1), trial.Unknown)}, false},
		{"a version that is written twice", []trial.Call{write(1, 0, 1), write(1, 2, 3)}, false},
		{"version 0", []trial.Call{write(0, 0, 1)}, false},
	} {
		expect.Equal(t, growing(c.calls), c.want, "%s:", c.name)
	}
}

// searched is what porcupine says of calls.
func searched(calls []trial.Call) bool {
	return porcupine.CheckOperations(register, operationsOf(calls))
}

// drawnVersions draws a small history of a key with several writers, which a single copy explains or does not: looks see
// what one copy held, or what they like.
func drawnVersions(t *rapid.T) []trial.Call {
	const moments = 24 // few, so that ends and begins are often the same
	var calls []trial.Call
	writes := int64(rapid.IntRange(1, 6).Draw(t, "writes"))
	versions := rapid.Permutation(numbers(int(writes))).Draw(t, "versions")
	moment := func(from int, name string) trial.Micros {
		return trial.Micros(rapid.IntRange(from, moments).Draw(t, name))
	}
	for _, v := range versions {
		called := moment(0, "called")
		c := trial.Call{Action: trial.Write, Version: int64(v) + 1, Outcome: trial.Done, Called: called, Returned: moment(int(called), "returned")}
		if rapid.IntRange(0, 3).Draw(t, "unknown") == 0 {
			c.Outcome, c.Returned = trial.Unknown, endless
		}
		calls = append(calls, c)
	}
	honest := rapid.Bool().Draw(t, "honest")
	effects := make([]trial.Micros, writes) // of the writes, in a single copy; those of unknown outcome may have none
	for i, c := range calls {
		effects[i] = trial.Micros(rapid.IntRange(int(c.Called), int(min(c.Returned, 2*moments))).Draw(t, "effect"))
	}
	for range rapid.IntRange(1, 8).Draw(t, "looks") {
		called := moment(0, "called")
		c := look(0, 0, 0)
		c.Called, c.Returned = called, moment(int(called), "returned")
		at := trial.Micros(rapid.IntRange(int(c.Called), int(c.Returned)).Draw(t, "at"))
		for i, w := range calls[:writes] {
			if effects[i] <= at {
				c.Version = max(c.Version, w.Version)
			}
		}
		if !honest && rapid.IntRange(0, 2).Draw(t, "lies") == 0 {
			c.Version = rapid.Int64Range(0, writes+1).Draw(t, "seen")
		}
		if c.Outcome = trial.Done; c.Version == 0 {
			c.Outcome = trial.NotFound
		}
		calls = append(calls, c)
	}
	slices.SortStableFunc(calls, func(a, b trial.Call) int { return cmp.Compare(a.Called, b.Called) })
	return calls
}

func TestVersionsAreExplainedIfPorcupineExplainsThem(t *testing.T) {
	found := make(map[bool]int)
	for range 50 { // times the 100 of rapid
		rapid.Check(t, func(t *rapid.T) {
			calls := drawnVersions(t)
			want := searched(calls)
			need.Equal(t, explainsVersions(calls), want, "%+v\nis explained:", calls)
			found[want]++
		})
	}
	expect.That(t, found[true] > 1000 && found[false] > 500, "explained and not: %v, want thousands of both", found)
}

// The searching checker would not come to an end with so many calls at once.
func TestVersionsOfManyWritersAreDecidedAtOnce(t *testing.T) {
	const writers, operations = 20, 1500
	var calls []trial.Call
	for i := range trial.Micros(operations) {
		for w := range trial.Micros(writers) {
			version := int64(i*writers + w + 1)
			c := write(version, i*10, i*10+9)
			if version%7 == 0 {
				c = of(c, trial.Unknown)
			}
			calls = append(calls, c)
		}
		calls = append(calls, write(int64(writers*operations)+int64(i)+1, i*10, operations*10), look(int64(i*writers+writers), i*10+1, i*10+9))
	}
	for i := range calls { // of unknown outcome all along are those that no look saw
		if c := calls[i]; c.Version > writers*operations {
			calls[i] = of(c, trial.Unknown)
		}
	}
	expect.Equal(t, check(informative(calls), patience), porcupine.Ok, "got")
	expect.Equal(t, check(informative(append(calls, look(5, 20000, 20001))), patience), porcupine.Illegal, "with a stale read")
}
