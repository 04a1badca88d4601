package verdict

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestVersionsThatOnlyGrowAreExplainedByASingleCopy(t *testing.T) {
	unknown := func(c trial.Call) trial.Call { return of(c, trial.Unknown) }
	for _, c := range []struct {
		name  string
		calls []trial.Call
		want  bool
	}{
		{"nothing", nil, true},
		{"one after the other", []trial.Call{look(0, 0, 1), write(1, 2, 3), look(1, 4, 5), write(2, 6, 7), look(2, 8, 9)}, true},
		{"absent though written", []trial.Call{write(1, 0, 1), look(0, 2, 3)}, false},
		{"absent while written", []trial.Call{write(1, 0, 9), look(0, 2, 3)}, true},
		{"absent after it was seen while written", []trial.Call{write(1, 0, 9), look(1, 1, 2), look(0, 3, 4)}, false},
		{"seen before it was written", []trial.Call{look(1, 0, 1), write(1, 2, 3)}, false},
		{"seen, and never written", []trial.Call{write(1, 0, 1), look(2, 2, 3)}, false},
		{"seen, and written in a gap", []trial.Call{write(1, 0, 1), write(3, 2, 3), look(2, 4, 5)}, false},
		{"an older one after a newer one", []trial.Call{write(1, 0, 1), write(2, 2, 3), look(1, 4, 5)}, false},
		{"either of two that overlap", []trial.Call{write(1, 0, 9), write(2, 0, 9), look(1, 1, 2), look(2, 3, 4)}, true},
		{"both ways of two that overlap", []trial.Call{write(1, 0, 9), write(2, 0, 9), look(2, 1, 2), look(1, 3, 4)}, false},
		{"an older write after a newer one changes nothing", []trial.Call{write(2, 0, 1), write(1, 2, 3), look(2, 4, 5)}, true},
		{"an older write after a newer one is never seen", []trial.Call{write(2, 0, 1), write(1, 2, 3), look(1, 4, 5)}, false},
		{"two looks at once see both", []trial.Call{write(1, 0, 1), write(2, 2, 8), look(2, 3, 7), look(1, 4, 6)}, true},
		{"a look cannot wait for an older one's", []trial.Call{write(1, 0, 1), write(2, 2, 20), look(1, 10, 11), look(2, 3, 9)}, false},
		{"written late", []trial.Call{write(1, 0, 1), unknown(write(2, 2, 3)), look(1, 100, 101), look(2, 102, 103)}, true},
		{"written never", []trial.Call{write(1, 0, 1), unknown(write(2, 2, 3)), look(1, 100, 101)}, true},
		{"written late, and gone again", []trial.Call{write(1, 0, 1), unknown(write(2, 2, 3)), look(2, 100, 101), look(1, 102, 103)}, false},
		{"written late, under a newer one", []trial.Call{unknown(write(1, 0, 1)), write(2, 2, 3), look(1, 4, 5)}, false},
		{"a write between two looks at what was before it", []trial.Call{write(1, 0, 1), look(1, 2, 3), write(2, 4, 5), look(1, 6, 7)}, false},
		{"a write that had to wait for a look", []trial.Call{write(1, 0, 1), look(1, 5, 6), write(2, 2, 4)}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			calls := slices.Clone(c.calls)
			need.That(t, growing(calls), "not a history of a version that only grows")
			expect.Equal(t, explainsVersions(calls), c.want, "explained:")
			expect.That(t, slices.Equal(calls, c.calls), "the calls were changed")
			slices.Reverse(calls)
			expect.Equal(t, explainsVersions(calls), c.want, "in another order, explained:")
			expect.Equal(t, searched(c.calls), c.want, "porcupine explains it:")
		})
	}
}

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
	begun := time.Now()
	got := check(informative(calls), patience)
	took := time.Since(begun)
	expect.Equal(t, got, porcupine.Ok, "got")
	got = check(informative(append(calls, look(5, 20000, 20001))), patience)
	expect.Equal(t, got, porcupine.Illegal, "with a stale read")
	expect.That(t, took < 500*time.Millisecond, "took %s, want some milliseconds", took)
}
