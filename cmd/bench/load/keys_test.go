package load

import (
	"math"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// sendKeys makes calls of a stream of keys, by a caller for each node in turn.
func sendKeys(t *testing.T, l *Load, name string, calls int) {
	t.Helper()
	streams := l.keyStreams()
	n := slices.IndexFunc(streams, func(s *stream) bool { return s.name == name })
	callers := l.newCallers(len(l.Nodes))
	for i := range calls {
		streams[n].send(t.Context(), callers[i%len(callers)], time.Now())
	}
	for _, c := range callers {
		c.close()
	}
}

// callsOn are the calls of the history on a key ("": all) that did something.
func callsOn(l *Load, key string, actions ...trial.Action) []trial.Call {
	return slices.DeleteFunc(l.History.Calls(time.Now()), func(c trial.Call) bool {
		return key != "" && c.Key != key || !slices.Contains(actions, c.Action)
	})
}

func TestOwnKeyHasOneWriterThatRegistersAndCancelsAtItsHome(t *testing.T) {
	c := newFakeCluster(t, 2)
	l := registered(t, c, scenario.Load{OwnKeys: 2})
	sendKeys(t, l, "writes", 100)
	for n, id := range []string{"own-0", "own-1"} {
		calls := callsOn(l, id, trial.Write, trial.Remove)
		need.That(t, len(calls) == 51, "%s: %d writes, want the registration and 50", id, len(calls))
		cancels := 0
		for i, call := range calls {
			expect.That(t, call.Version == int64(i+1) && call.Node == n && call.Client == calls[0].Client && call.Outcome == trial.Done,
				"%s: write %d is %+v, want version %d done at node %d by client %d", id, i, call, i+1, n, calls[0].Client)
			if call.Action == trial.Remove {
				cancels++
				expect.That(t, calls[i-1].Action != trial.Remove, "%s: write %d is a second cancel", id, i)
			}
		}
		expect.That(t, cancels >= 3 && cancels <= 20, "%s: %d of 50 writes are cancels, want about 10", id, cancels)
		last := calls[len(calls)-1]
		if want := last.Action == trial.Write; l.Book.Alive(id) != want || c.version(id) > 0 != want {
			t.Errorf("%s: alive %t by the book, in version %d at the servers, after %+v", id, l.Book.Alive(id), c.version(id), last)
		}
	}
}

func TestKeyReadsSeeVersionsAndAbsence(t *testing.T) {
	c := newFakeCluster(t, 2)
	l := registered(t, c, scenario.Load{OwnKeys: 2})
	sendKeys(t, l, "writes", 30)
	c.remove("own-1")
	sendKeys(t, l, "reads", 40)
	looks := callsOn(l, "", trial.Look)
	need.That(t, len(looks) == 40, "%d looks, want 40", len(looks))
	perKey := map[string]int{}
	for i, call := range looks {
		perKey[call.Key]++
		want := c.version(call.Key)
		outcome := trial.Done
		if want == 0 {
			outcome = trial.NotFound
		}
		expect.That(t, call.Version == want && call.Outcome == outcome && call.Node == i%2, "%+v, want version %d (%s) at node %d", call, want, outcome, i%2)
	}
	expect.That(t, len(perKey) == 2, "keys that were read: %v, want both", perKey)
}

func TestKeyWriteThatIsRefusedIsInTheHistoryAndChangesNothing(t *testing.T) {
	c := newFakeCluster(t, 2)
	l := registered(t, c, scenario.Load{OwnKeys: 2, SharedKeys: 1})
	c.decide(func(seen) int { return http.StatusServiceUnavailable })
	before := len(c.requests(http.MethodPost, "")) + len(c.requests(http.MethodDelete, ""))
	sendKeys(t, l, "writes", 20)
	sendKeys(t, l, "reads", 20)
	after := len(c.requests(http.MethodPost, "")) + len(c.requests(http.MethodDelete, ""))
	expect.That(t, after == before+20, "%d writes were sent, want 20: no other node is asked", after-before)
	refused := 0
	for _, call := range callsOn(l, "", trial.Write, trial.Remove, trial.Look) {
		if call.Outcome == trial.Refused && call.Returned != math.MaxInt64 {
			refused++
		}
	}
	expect.That(t, refused == 40, "%d calls of the history were refused, want 40", refused)
	got := l.Book.Expected()
	expect.That(t, got == 3, "the book expects %d instances, want all 3", got)
}

func TestKeyWriterGoesOnAfterAnUnknownOutcome(t *testing.T) {
	c := newFakeCluster(t, 1)
	l := registered(t, c, scenario.Load{OwnKeys: 1})
	c.decide(func(s seen) int { return http.StatusGatewayTimeout })
	sendKeys(t, l, "writes", 1)
	c.decide(nil)
	sendKeys(t, l, "writes", 1)
	calls := callsOn(l, "own-0", trial.Write, trial.Remove)
	need.That(t, len(calls) == 3, "%d writes, want 3: %+v", len(calls), calls)
	u := calls[1]
	expect.That(t, u.Outcome == trial.Unknown && u.Returned == math.MaxInt64 && u.Version == 2,
		"the second write is %+v, want version 2 with an unknown outcome that never returned", u)
	d := calls[2]
	expect.That(t, d.Outcome == trial.Done && d.Version == 3, "the third write is %+v, want version 3 done", d)
}

func TestKeyWriterCallsAnotherNodeOnlyForAnOwnKey(t *testing.T) {
	c := newFakeCluster(t, 2)
	l := registered(t, c, scenario.Load{OwnKeys: 1, SharedKeys: 1})
	c.nodes[0].Close()
	for _, w := range []*writer{l.keys.keys[0].writers[0], l.keys.keys[1].writers[0]} {
		w.callers[0].hangUp(0) // what is sent on a connection that was just closed has an unknown outcome
		w.register(t.Context(), time.Now())
	}
	type try struct {
		node    int
		version int64
		outcome trial.Outcome
	}
	for key, want := range map[string][]try{
		"own-0":    {{0, 1, trial.Done}, {0, 2, trial.Unreached}, {1, 2, trial.Done}},
		"shared-0": {{1, 1, trial.Done}, {0, 2, trial.Unreached}},
	} {
		var got []try
		for _, call := range callsOn(l, key, trial.Write) {
			got = append(got, try{call.Node, call.Version, call.Outcome})
		}
		expect.Slice(t, got, want, "%s: tries", key)
	}
	expect.Equal(t, c.version("own-0"), 2, "own-0 is registered in version")
}
