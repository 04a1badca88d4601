package load

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestAClosedLoopKeepsTheProportionOfTheRates(t *testing.T) {
	l := newLoad(t, Config{
		Nodes: []string{bareNode(t), bareNode(t)}, Load: scenario.Load{Fetches: 3, Deltas: 1}, Closed: true, Connections: 4,
	})
	run(t, l, time.Second)
	fetches, deltas := calls(l, trial.Fetch), calls(l, trial.Delta)
	if deltas < 10 || fetches < 3*deltas-12 || fetches > 3*deltas+12 {
		t.Errorf("%d fetches and %d deltas, want three times as many, up to what four clients had under way", fetches, deltas)
	}
}

func TestAClientOfAClosedLoopWaitsForItsAnswer(t *testing.T) {
	var under, most atomic.Int64
	s := standIn(t, func(http.ResponseWriter, *http.Request) {
		for n, seen := under.Add(1), most.Load(); n > seen && !most.CompareAndSwap(seen, n); seen = most.Load() {
		}
		<-time.After(time.Millisecond)
		under.Add(-1)
	})
	l := newLoad(t, Config{Nodes: []string{addrOf(s)}, Load: scenario.Load{Fetches: 1000, Deltas: 1000}, Closed: true, Connections: 3})
	run(t, l, time.Second)
	if got := most.Load(); got != 3 {
		t.Errorf("up to %d requests were under way, want 3, one of each client", got)
	}
}

func TestAClosedLoopDoesNotHammerAClusterThatTakesNothing(t *testing.T) {
	const length = 250 * time.Millisecond
	l := newLoad(t, Config{Nodes: []string{refuses(t)}, Load: scenario.Load{Fetches: 1}, Closed: true, Connections: 2})
	run(t, l, length)
	most := 2 * int64(length/refusedPause+1)
	if got := l.Snapshot()[trial.Fetch].Outcomes[trial.Unreached]; got == 0 || got > most {
		t.Errorf("%d tries, want up to %d", got, most)
	}
}

func TestHeartbeatsGoOnAfterAClosedLoop(t *testing.T) {
	l := newLoad(t, Config{
		Nodes: []string{bareNode(t)}, Closed: true,
		Load: scenario.Load{Instances: 5, Heartbeat: scenario.Span(20 * time.Millisecond), Fetches: 100},
	})
	need.OK(t, l.Register(t.Context()))
	run(t, l, time.Second)
	fetches, renewals := calls(l, trial.Fetch), l.Renewals()
	if fetches == 0 || renewals == 0 {
		t.Errorf("%d fetches and %d renewals, want both", fetches, renewals)
	}
	eventually(t, "heartbeats after the end", func() bool { return l.Renewals() > renewals+10 })
	if got := calls(l, trial.Fetch); got != fetches {
		t.Errorf("%d fetches after the end, want none", got-fetches)
	}
}

func TestTurnsGoToTheStreamThatIsMostBehindAndHasAnIdleCaller(t *testing.T) {
	often, seldom, never := &stream{name: "often", rate: 2}, &stream{name: "seldom", rate: 1}, &stream{name: "never"}
	for _, s := range []*stream{often, seldom, never} {
		s.callers = []*caller{{turn: 0}, {turn: 1}}
	}
	turns := newTurns([]*stream{often, seldom, never}, func(s *stream) float64 { return s.rate })
	for n, want := range []*stream{often, seldom, often, often, seldom, often} {
		s, c := turns.take()
		if s != want {
			t.Fatalf("turn %d went to %s, want %s", n, s.name, want.name)
		}
		turns.give(s, c)
	}
	for n, want := range []*stream{often, seldom, often, seldom, nil} { // nobody comes back
		s, _ := turns.take()
		if s != want {
			t.Fatalf("without a return, turn %d went to %+v, want %+v", n, s, want)
		}
	}
}
