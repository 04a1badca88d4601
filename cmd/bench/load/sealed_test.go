package load

import (
	"context"
	"math"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// sealEach registers sealed instances through each of two nodes in turn, so that numbers 0 and 1 are left alone, 2 and 3
// registered again, 4 and 5 canceled, and so on; and lets the load write them again until the test ends.
func sealEach(t *testing.T, l *Load, count int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var tending sync.WaitGroup
	tending.Go(func() { l.sealed.tend(ctx) })
	t.Cleanup(func() { cancel(); tending.Wait() })
	callers := l.newCallers(2)
	for n := range count {
		l.sealed.send(t.Context(), callers[n%2], time.Now())
	}
	for _, c := range callers {
		c.close()
	}
}

func TestSealedInstancesAreWrittenOnceOrTwiceAndNeverAgain(t *testing.T) {
	c := newFakeCluster(t, 2)
	l := newTestLoad(t, c, scenario.Load{Sealed: 1})
	began := time.Now()
	sealEach(t, l, 8)
	l.sealed.drain(t.Context())
	took := time.Since(began)
	expect.That(t, took >= sealPause, "drained after %s, want after the second writes, %s later than the first", took, sealPause)
	app, all := l.Sealed(began)
	need.That(t, app == "TEST-SEALED" && len(all) == 8, "%d sealed instances of %s, want 8 of TEST-SEALED", len(all), app)
	for n, want := range []struct {
		version int64 // 0: it is not registered
		second  string
	}{{1, ""}, {1, ""}, {2, http.MethodPost}, {2, http.MethodPost}, {0, http.MethodDelete}, {0, http.MethodDelete}, {1, ""}, {1, ""}} {
		s := all[n]
		expect.Equal(t, c.version(s.ID), want.version, "%s is registered in version", s.ID)
		posts, cancels := c.requests(http.MethodPost, s.ID), c.requests(http.MethodDelete, s.ID)
		expect.That(t, len(c.requests(http.MethodPut, s.ID)) == 0, "%s was renewed", s.ID)
		expect.That(t, len(posts)+len(cancels) == len(s.Writes), "%s: %d registrations and %d cancels came, %d were recorded", s.ID, len(posts), len(cancels), len(s.Writes))
		expect.That(t, (len(s.Writes) == 2) == (want.second != "") && (len(cancels) == 1) == (want.second == http.MethodDelete),
			"%s was written %d times, canceled %d times, want %q after its registration", s.ID, len(s.Writes), len(cancels), want.second)
		for i, w := range s.Writes {
			expect.That(t, w.Outcome == trial.Done && !w.Doubtful && w.Node == n%2 && w.Called <= w.Returned && w.Cancel == (i == 1 && len(cancels) == 1),
				"%s: write %d is %+v, want one done at node %d", s.ID, i, w, n%2)
		}
		if len(s.Writes) == 2 {
			pause := s.Writes[1].Called - s.Writes[0].Returned
			expect.That(t, pause >= trial.Of(sealPause), "%s was written again after %s, want %s", s.ID, pause.Duration(), sealPause)
		}
	}
}

func TestSealedInstanceThatWasNotCertainlyRegisteredIsLeftAlone(t *testing.T) {
	c := newFakeCluster(t, 2)
	l := newTestLoad(t, c, scenario.Load{Sealed: 1})
	statuses := map[string]int{"sealed-2": http.StatusBadRequest, "sealed-3": http.StatusGatewayTimeout, "sealed-4": http.StatusServiceUnavailable}
	c.decide(func(s seen) int { return statuses[s.id] })
	sealEach(t, l, 6)
	l.sealed.drain(t.Context()) // of sealed-5 only
	_, all := l.Sealed(time.Now().Add(-time.Minute))
	for n, want := range map[int]trial.SealWrite{
		2: {Outcome: trial.Refused, Node: 1},
		3: {Outcome: trial.Unknown, Doubtful: true, Node: 0}, // its home, node 1, was asked first
		4: {Outcome: trial.Refused, Node: 1},
	} {
		got := all[n].Writes
		need.That(t, len(got) == 1, "sealed-%d was written %d times, want once", n, len(got))
		expect.Equal(t, got[0].Returned == math.MaxInt64, want.Outcome == trial.Unknown, "sealed-%d never got an answer:", n)
		got[0].Called, got[0].Returned = 0, 0
		expect.Equal(t, got[0], want, "sealed-%d:", n)
	}
	expect.That(t, len(all[5].Writes) == 2 && all[5].Writes[1].Cancel, "sealed-5 is %+v, want one that was canceled", all[5])
}

func TestSealedInstanceHasTheOutcomeOfItsSecondWrite(t *testing.T) {
	c := newFakeCluster(t, 2)
	l := newTestLoad(t, c, scenario.Load{Sealed: 1})
	c.decide(func(s seen) int {
		switch {
		case s.id == "sealed-2" && s.version == 2, s.id == "sealed-4" && s.method == http.MethodDelete:
			return http.StatusGatewayTimeout
		case s.id == "sealed-5" && s.method == http.MethodDelete && s.node == 1: // its home; the other node takes it
			return http.StatusGatewayTimeout
		case s.id == "sealed-3" && s.version == 2:
			return http.StatusForbidden
		}
		return 0
	})
	sealEach(t, l, 6)
	l.sealed.drain(t.Context())
	_, all := l.Sealed(time.Now())
	for n, want := range map[int]struct {
		outcome  trial.Outcome
		doubtful bool
	}{2: {trial.Unknown, true}, 3: {trial.Refused, false}, 4: {trial.Unknown, true}, 5: {trial.Done, true}} {
		got := all[n].Writes[1]
		expect.That(t, all[n].Writes[0].Outcome == trial.Done && got.Outcome == want.outcome && got.Doubtful == want.doubtful,
			"sealed-%d: %+v, want its second write %s, doubtful %t", n, all[n].Writes, want.outcome, want.doubtful)
		expect.Equal(t, got.Returned == math.MaxInt64, want.outcome == trial.Unknown, "sealed-%d never got an answer:", n)
	}
}

func TestRunEndsWhenTheSealedInstancesHaveBeenWritten(t *testing.T) {
	c := newFakeCluster(t, 2)
	l := newTestLoad(t, c, scenario.Load{Sealed: 60})
	t.Cleanup(l.Stop)
	began := time.Now()
	need.OK(t, l.Run(t.Context(), began, 200*time.Millisecond))
	_, all := l.Sealed(began)
	twice := 0
	for _, s := range all {
		if len(s.Writes) == 2 {
			twice++
		}
	}
	expect.That(t, len(all) == 12 && twice == 8, "%d sealed instances, %d of them written twice, want 12 and 8", len(all), twice)
	expect.That(t, calls(l, trial.Register) == 16 && calls(l, trial.Cancel) == 4, "%d registrations and %d cancels are counted, want 16 and 4", calls(l, trial.Register), calls(l, trial.Cancel))
}
