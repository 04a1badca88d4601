package verdict

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"github.com/anishathalye/porcupine"
	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// The calls of planted histories: on one key, from and to in ms.
func write(version int64, from, to trial.Micros) trial.Call {
	return trial.Call{Key: "own-1", Client: 1, Action: trial.Write, Version: version, Outcome: trial.Done, Called: from * ms, Returned: to * ms}
}

func remove(version int64, from, to trial.Micros) trial.Call {
	c := write(version, from, to)
	c.Action = trial.Remove
	return c
}

func look(version int64, from, to trial.Micros) trial.Call {
	c := trial.Call{Key: "own-1", Client: 2, Node: 1, Action: trial.Look, Version: version, Outcome: trial.Done, Called: from * ms, Returned: to * ms}
	if version == 0 {
		c.Outcome = trial.NotFound
	}
	return c
}

func of(c trial.Call, o trial.Outcome) trial.Call {
	c.Outcome = o
	if o == trial.Unknown {
		c.Returned = endless
	}
	return c
}

// historyOf returns the verdict on a history of the column cp.
func historyOf(nodes []trial.Node, calls ...trial.Call) History {
	return factsOf(&trial.Trial{Nodes: nodes, History: calls}).history(cp, patience)
}

// stalenessIn returns how stale the looks among calls are.
func stalenessIn(calls []trial.Call) Staleness {
	return stalenessOf(keysOf(calls).agedLooks(), func(trial.Call) bool { return true })
}

func TestHistoriesThatNoSingleCopyExplainsAreViolated(t *testing.T) {
	for _, c := range []struct {
		name  string
		calls []trial.Call
	}{
		{"a stale read", []trial.Call{write(1, 0, 1), write(2, 2, 3), look(2, 4, 5), look(1, 6, 7), look(1, 8, 9), write(3, 10, 11)}},
		{"a read back in time, while the write is under way", []trial.Call{write(1, 0, 1), write(2, 2, 20), look(2, 4, 5), look(1, 6, 7)}},
		{"a canceled instance", []trial.Call{write(1, 0, 1), remove(2, 2, 3), look(1, 4, 5)}},
		{"an absent one", []trial.Call{write(1, 0, 1), look(0, 4, 5)}},
		{"a version that was not written", []trial.Call{write(1, 0, 1), of(write(2, 2, 3), trial.Refused), look(2, 4, 5)}},
		{"a removal that found nothing", []trial.Call{write(1, 0, 1), of(remove(2, 2, 3), trial.NotFound), look(1, 4, 5)}},
		{"a removal that found what was removed", []trial.Call{write(1, 0, 1), remove(2, 2, 3), remove(3, 4, 5), look(0, 6, 7)}},
		{"an old read beside one that has not returned", []trial.Call{write(1, 0, 1), look(1, 2, 30), write(2, 3, 4), look(1, 6, 7)}},
	} {
		h := historyOf(three, c.calls...)
		expect.That(t, h.Result == Violated && slices.Equal(h.Violated, []string{"own-1"}), "%s: %s (%v), want violated", c.name, h.Result, h.Violated)
	}
}

func TestHistoryThatCannotBeExplainedIsDrawn(t *testing.T) {
	var page strings.Builder
	need.OK(t, Draw(&trial.Trial{Nodes: three, History: []trial.Call{write(1, 0, 1), of(write(2, 2, 3), trial.Unknown), look(0, 4, 5)}}, "own-1", &page))
	for _, want := range []string{"version 1 at node 1: done", "version 2 at node 1: unknown", "read at node 2: not registered"} {
		expect.That(t, strings.Contains(page.String(), want), "the page does not show %q", want)
	}
}

func TestHistoryNeedNotBeLinearizableUnlessTheColumnPromisesIt(t *testing.T) {
	calls := []trial.Call{write(1, 0, 1), look(0, 4, 5)}
	for _, c := range []scenario.Column{ap, stock, column("stale=cp,reads.eureka=stale")} {
		v := Judge(&trial.Trial{Nodes: three, History: calls}, c, scenario.Scenario{})
		expect.That(t, v.History.Result == Unpromised && len(v.History.Violated) == 0, "%s: %+v, want not promised", c.Name, v.History)
	}
}

func TestHistoryIsLinearizableInEachDatacenter(t *testing.T) {
	abroad := func(c trial.Call) trial.Call {
		c.Node = 4
		return c
	}
	check := func(calls ...trial.Call) Result { return historyOf(six, calls...).Result }
	expect.Equal(t, check(write(1, 0, 1), write(2, 2, 3), abroad(look(1, 4, 5)), look(2, 6, 7)), OK, "an old answer from abroad:")
	expect.Equal(t, check(abroad(write(1, 0, 1)), write(2, 2, 3), abroad(write(3, 4, 5)), look(2, 6, 7), look(3, 8, 9)), OK,
		"a write from abroad that arrives late:")
	expect.Equal(t, check(write(1, 0, 1), abroad(write(2, 2, 3)), write(3, 4, 5), look(1, 6, 7)), Violated, "a stale answer at home:")
	expect.Equal(t, check(abroad(write(1, 0, 1)), write(2, 2, 3), look(1, 6, 7)), OK, "a write from abroad that comes last:")
	expect.Equal(t, check(abroad(write(1, 0, 1)), abroad(write(2, 2, 3)), write(3, 4, 5), abroad(look(1, 6, 7))), Violated,
		"a stale answer in the other datacenter:")
}

func TestKeyThatIsWrittenAndNeverReadIsUndecided(t *testing.T) {
	abroad := look(5, 2, 3)
	abroad.Node = 4
	for _, c := range []struct {
		name  string
		calls []trial.Call
		want  Result
	}{
		{"written", []trial.Call{write(1, 0, 1)}, Undecided},
		{"perhaps written", []trial.Call{of(write(1, 0, 1), trial.Unknown)}, Undecided},
		{"written, and read without an answer", []trial.Call{write(1, 0, 1), of(look(1, 2, 3), trial.Unknown)}, Undecided},
		{"not written", []trial.Call{of(write(1, 0, 1), trial.Refused)}, OK},
		{"never written, and read so", []trial.Call{look(0, 0, 1)}, OK},
		{"never written, and read", []trial.Call{look(5, 0, 1)}, Violated},
		{"written here, read abroad in a version that nobody wrote", []trial.Call{write(1, 0, 1), abroad}, Violated},
	} {
		got := historyOf(six, c.calls...)
		expect.That(t, got.Result == c.want, "%s: %+v, want %s", c.name, got, c.want)
	}
}

func TestHistoryWithManySeenWritesOfUnknownOutcomeIsChecked(t *testing.T) {
	calls := []trial.Call{write(1, 0, 1), remove(2, 2, 3)}
	for i := range trial.Micros(60) {
		calls = append(calls, of(write(int64(i)+3, 10+i*10, 11+i*10), trial.Unknown), look(int64(i)+3, 12+i*10, 13+i*10))
	}
	expect.Equal(t, check(informative(append(calls, look(5, 9000, 9001))), patience), porcupine.Illegal, "got")
}

// span is a call of a random history: when it was sent, took effect, and returned.
type span struct {
	call   trial.Call
	effect int
	never  bool // of unknown outcome, and without effect
}

// atomic draws what clients see of a single copy. Own keys are written by one client, one call after the other; other
// keys have several writers and are never removed. Of two writes the later one counts, or else the one with the
// greater version, as with stock Eureka.
func atomic(t *rapid.T, later bool) []trial.Call {
	own := rapid.Bool().Draw(t, "own")
	writers := 1
	if !own {
		writers = 3
	}
	var spans []span
	version := int64(0)
	free := make([]int, writers+2) // when each client is free again
	for range rapid.IntRange(1, 25).Draw(t, "calls") {
		client := rapid.IntRange(0, len(free)-1).Draw(t, "client")
		s := drawn(t, free[client])
		free[client] = int(s.call.Returned) + 1
		s.call.Client, s.call.Action = client, trial.Look
		if client < writers {
			s.call.Action = trial.Write
			if own && rapid.IntRange(0, 2).Draw(t, "remove") == 0 {
				s.call.Action = trial.Remove
			}
			if rapid.IntRange(0, 3).Draw(t, "unknown") == 0 {
				s.call.Outcome, s.call.Returned = trial.Unknown, endless
				s.effect += rapid.IntRange(0, 200).Draw(t, "late")
				s.never = rapid.Bool().Draw(t, "never")
			}
		}
		spans = append(spans, s)
	}
	slices.SortStableFunc(spans, func(a, b span) int { return cmp.Compare(a.call.Called, b.call.Called) })
	for i := range spans {
		version++
		spans[i].call.Version = version
	}
	return carriedOut(spans, later)
}

// drawn returns a call of a client that is free from a moment on. Moments of calls and effects are even and odd, so
// that no two of different kinds coincide.
func drawn(t *rapid.T, free int) span {
	called := free + rapid.IntRange(0, 20).Draw(t, "pause")
	effect := called + rapid.IntRange(0, 20).Draw(t, "way")
	returned := effect + rapid.IntRange(0, 20).Draw(t, "way back")
	return span{call: trial.Call{Outcome: trial.Done, Called: trial.Micros(called), Returned: trial.Micros(returned)}, effect: effect}
}

// carriedOut makes the calls take effect in the order of their moments, and returns them as the clients saw them.
func carriedOut(spans []span, later bool) []trial.Call {
	order := make([]int, len(spans))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(spans[a].effect, spans[b].effect) })
	stored := int64(0)
	for _, i := range order {
		c := &spans[i].call
		switch {
		case spans[i].never:
		case c.Action == trial.Write && (later || c.Version > stored):
			stored = c.Version
		case c.Action == trial.Write:
		case c.Action == trial.Remove:
			if c.Outcome == trial.Done && stored == 0 {
				c.Outcome = trial.NotFound
			}
			stored = 0
		default:
			c.Version = stored
			if stored == 0 {
				c.Outcome = trial.NotFound
			}
		}
	}
	var calls []trial.Call
	for _, s := range spans {
		s.call.Key = "random"
		calls = append(calls, s.call)
	}
	return calls
}

func TestHistoriesOfASingleCopyAreExplainedAndNeverStale(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		later := rapid.Bool().Draw(t, "later")
		calls := atomic(t, later)
		h := historyOf(three, calls...)
		need.That(t, h.Result == OK || h.Result == Undecided && len(h.Unread) == 1, "%s: %+v", h.Result, calls)
		s := stalenessIn(calls)
		need.That(t, later || s.Stale == 0, "%d answers of a single copy are called stale: %+v", s.Stale, calls)
	})
}

func TestHistoriesWithStaleAnswersAreNotExplained(t *testing.T) {
	found, ordered := 0, false
	for range 20 { // times the 100 of rapid
		rapid.Check(t, func(t *rapid.T) {
			calls := atomic(t, false)
			spoilt := rapid.IntRange(0, len(calls)-1).Draw(t, "spoilt")
			if calls[spoilt].Action != trial.Look {
				return
			}
			calls[spoilt].Version = rapid.Int64Range(0, int64(len(calls))).Draw(t, "version")
			calls[spoilt].Outcome = trial.Done
			h := historyOf(three, calls...)
			stale := stalenessIn(calls).Stale
			// Of two simultaneous writes, or with one of unknown outcome, nobody knows which came later.
			overlapping, unknown := doubts(calls)
			certain := overlapping == 0 && unknown == 0
			need.That(t, stale <= 0 || h.Result != OK || !certain, "%d stale answers, but the history is explained: %+v", stale, calls)
			ordered = ordered || stale > 0 && certain
			if h.Result == Violated {
				found++
			}
		})
	}
	expect.That(t, found != 0 && ordered, "%d spoilt histories were found out, some of stale answers: %t", found, ordered)
}

// A write of unknown outcome may have ended at any time; that it has no end makes no later write overlap it.
func TestWritesOverlapThoseThatAreKnownToBeUnderWay(t *testing.T) {
	calls := []trial.Call{write(1, 0, 3), of(write(2, 1, 0), trial.Unknown), write(3, 2, 4), look(3, 3, 9), write(4, 5, 6)}
	overlapping, unknown := doubts(calls)
	expect.That(t, overlapping == 2 && unknown == 1, "%d overlapping writes, %d of unknown outcome, want 2 and 1", overlapping, unknown)
}

func TestVersionsAreWrittenOnceIfNoneIsRemovedNorWrittenTwice(t *testing.T) {
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
		expect.Equal(t, writtenOnce(c.calls), c.want, "%s:", c.name)
	}
}

// searched returns porcupine's result for calls.
func searched(calls []trial.Call) bool {
	return porcupine.CheckOperations(register, operationsOf(calls))
}

// drawnVersions draws a small history of a key with several writers, which a single copy may or may not explain: looks
// see what one copy held, or anything else.
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
	// of the writes, in a single copy; writes of unknown outcome may have none
	effects := make([]trial.Micros, writes)
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

// The searching checker would not finish with so many calls at once.
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
	for i := range calls { // writes that no look saw are of unknown outcome throughout
		if c := calls[i]; c.Version > writers*operations {
			calls[i] = of(c, trial.Unknown)
		}
	}
	expect.Equal(t, check(informative(calls), patience), porcupine.Ok, "got")
	expect.Equal(t, check(informative(append(calls, look(5, 20000, 20001))), patience), porcupine.Illegal, "with a stale read")
}
