package verdict

import (
	"cmp"
	"slices"
	"testing"

	"github.com/anishathalye/porcupine"
	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// span is a call of a random history: when it was asked, took effect, and returned.
type span struct {
	call   trial.Call
	effect int
	never  bool // of unknown outcome, and without effect
}

// atomic draws what clients see of a single copy. Of own keys one client writes, one call after the other; keys that
// are not have several writers and are never removed.
func atomic(t *rapid.T) []trial.Call {
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
	return carriedOut(spans)
}

// drawn is a call of a client that is free from a moment on. Moments of calls and effects are even and odd, so that
// no two of different kinds are the same.
func drawn(t *rapid.T, free int) span {
	called := free + rapid.IntRange(0, 20).Draw(t, "pause")
	effect := called + rapid.IntRange(0, 20).Draw(t, "way")
	returned := effect + rapid.IntRange(0, 20).Draw(t, "way back")
	return span{call: trial.Call{Outcome: trial.Done, Called: trial.Micros(called), Returned: trial.Micros(returned)}, effect: effect}
}

// carriedOut lets the calls take effect in the order of their moments, and returns them as the clients saw them.
func carriedOut(spans []span) []trial.Call {
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
		case c.Action == trial.Write:
			stored = max(stored, c.Version)
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
		calls := atomic(t)
		if h := judged(calls...); h.Result != OK {
			t.Fatalf("%s: %+v\nof %+v", h.Result, h.Example, calls)
		}
		if s := keysOf(calls).staleness(always); s.Stale != 0 {
			t.Fatalf("%d answers of a single copy are called stale: %+v", s.Stale, calls)
		}
	})
}

func TestCounterexamplesOfSpoiltHistoriesAreMinimal(t *testing.T) {
	found := 0
	rapid.Check(t, func(t *rapid.T) {
		calls := atomic(t)
		spoilt := rapid.IntRange(0, len(calls)-1).Draw(t, "spoilt")
		if calls[spoilt].Action != trial.Look {
			return
		}
		calls[spoilt].Version = rapid.Int64Range(0, int64(len(calls))).Draw(t, "version")
		calls[spoilt].Outcome = trial.Done
		h := judged(calls...)
		if stale := keysOf(calls).staleness(always).Stale; stale > 0 && h.Result == OK {
			t.Fatalf("%d stale answers, but the history is explained: %+v", stale, calls)
		}
		if h.Result == OK {
			return
		}
		found++
		minimal(t, h.Example)
	})
	if found == 0 {
		t.Error("no spoilt history was found out")
	}
}

// minimal checks that an example cannot be explained, and that it can be before its last return.
func minimal(t *rapid.T, e *Counterexample) {
	if got := check(e.Calls); got != porcupine.Illegal {
		t.Fatalf("the example is %s: %+v", got, e)
	}
	before := slices.Clone(e.Calls)
	if last := before[e.Last]; last.Action == trial.Look {
		before = slices.Delete(before, e.Last, e.Last+1)
	} else {
		before[e.Last] = pending(last)
	}
	if got := check(before); got != porcupine.Ok {
		t.Fatalf("before its last return the example is %s, want ok: %+v", got, e)
	}
	for _, c := range e.Calls {
		if c.Outcome != trial.Unknown && c.Returned > e.Calls[e.Last].Returned {
			t.Fatalf("%+v returned after the last call of the example: %+v", c, e)
		}
	}
}

func TestNarrowedCallsAreJudgedLikeTheWhole(t *testing.T) {
	verdicts := make(map[porcupine.CheckResult]int)
	rapid.Check(t, func(t *rapid.T) {
		calls := atomic(t)
		for i := range calls {
			if calls[i].Action == trial.Look && rapid.IntRange(0, 9).Draw(t, "spoil") == 0 {
				calls[i].Version, calls[i].Outcome = rapid.Int64Range(0, int64(len(calls))).Draw(t, "version"), trial.Done
			}
		}
		calls = told(calls)
		var whole []porcupine.Operation
		for _, c := range calls {
			whole = append(whole, porcupine.Operation{Input: c, Call: int64(c.Called), Return: int64(c.Returned)})
		}
		want := porcupine.CheckOperationsTimeout(register, whole, patience)
		if got := check(calls); got != want {
			t.Fatalf("%s, want %s: %+v", got, want, calls)
		}
		verdicts[want]++
	})
	if verdicts[porcupine.Ok] == 0 || verdicts[porcupine.Illegal] == 0 {
		t.Errorf("verdicts were %v, want both", verdicts)
	}
}
