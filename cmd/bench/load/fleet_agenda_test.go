package load

import (
	"net/http"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/truth"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestInstancesThatComeAreRenewedAndGo(t *testing.T) {
	c := newFakeCluster(t, 2)
	l := newTestLoad(t, c, scenario.Load{Registers: 10})
	l.fleet.interval, l.fleet.stay = 100*time.Millisecond, 1550*time.Millisecond
	tended(t, l.fleet)
	streams := l.fleetStreams()
	if len(streams) != 1 || streams[0].name != "registers" || streams[0].rate != 10 || streams[0].operation() != trial.Register {
		t.Fatalf("streams %+v, want one of 10 registers per second", streams)
	}
	began := time.Now()
	l.recorder.began.Store(&began)
	callers := l.newCallers(2)
	for n := range 6 {
		streams[0].send(t.Context(), callers[n%2], time.Now())
	}
	for _, c := range callers {
		c.close()
	}
	if got := l.Book.Expected(); got != 6 {
		t.Errorf("the book expects %d instances, want 6", got)
	}
	eventually(t, "all have canceled", func() bool { return len(c.requests(http.MethodDelete, "")) == 6 && c.registered() == 0 })
	eventually(t, "the book expects nothing", func() bool { return l.Book.Expected() == 0 })
	for _, r := range c.requests(http.MethodPost, "") {
		if len(c.requests(http.MethodPut, r.id)) == 0 {
			t.Errorf("%s was never renewed", r.id)
		}
	}
	for o, method := range map[trial.Operation]string{trial.Register: http.MethodPost, trial.Heartbeat: http.MethodPut, trial.Cancel: http.MethodDelete} {
		want := len(c.requests(method, ""))
		// A call is recorded after its answer, which the server has given before.
		eventually(t, "every "+string(o)+" is recorded", func() bool { return l.Snapshot()[o].Outcomes[trial.Done] == int64(want) })
	}
}

func TestRegisteredInstancesAreRenewedWhileTheOthersAreRegistered(t *testing.T) {
	c := newFakeCluster(t, 1)
	l := newTestLoad(t, c, scenario.Load{Instances: 2})
	l.fleet.interval = 20 * time.Millisecond
	first, last := l.fleet.lasting[0].id, l.fleet.lasting[1].id
	c.decide(func(s seen) int {
		if s.id == last && len(c.seen) < 10 { // what is seen is locked
			return http.StatusServiceUnavailable
		}
		return 0
	})
	need.OK(t, l.Register(t.Context()))
	if got := len(c.requests(http.MethodPut, first)); got < 3 {
		t.Errorf("%d heartbeats of the first, want some", got)
	}
}

// What the nodes should hold must not change any more while they are asked for it.
func TestNobodyLeavesAfterTheEndOfTheLoad(t *testing.T) {
	c := newFakeCluster(t, 2)
	l := newTestLoad(t, c, scenario.Load{Registers: 100})
	l.fleet.interval, l.fleet.stay = 50*time.Millisecond, 150*time.Millisecond
	need.OK(t, l.Run(t.Context(), time.Now(), 300*time.Millisecond))
	t.Cleanup(l.Stop)
	rounds := func(n int) {
		t.Helper()
		renewals := len(c.requests(http.MethodPut, ""))
		eventually(t, "heartbeats", func() bool { return len(c.requests(http.MethodPut, "")) >= renewals+n*c.registered() })
	}
	rounds(2) // a cancel that had begun has ended then
	stayed := c.registered()
	if stayed == 0 {
		t.Fatal("nobody is left to stay")
	}
	rounds(4)
	if got := c.registered(); got != stayed {
		t.Errorf("%d of %d instances are registered after the time of their stay, want all", got, stayed)
	}
}

func TestAnInstanceWhoseCancelIsNotFoundIsGoneAllTheSame(t *testing.T) {
	c := newFakeCluster(t, 1)
	l := newTestLoad(t, c, scenario.Load{Registers: 1})
	l.fleet.stay = 0
	callers := l.newCallers(1)
	l.fleetStreams()[0].send(t.Context(), callers[0], time.Now())
	callers[0].close()
	id := c.requests(http.MethodPost, "")[0].id
	c.forget(id)
	tended(t, l.fleet)
	ghosts := func() int { return l.Book.Judge(0, truth.Listing{id: 1}, time.Now(), time.Now()).Ghosts }
	eventually(t, "a server that lists it lists a ghost", func() bool { return ghosts() == 1 })
	if got := len(c.requests(http.MethodDelete, "")); got != 1 {
		t.Errorf("%d cancels, want 1", got)
	}
}

func TestWhatWasPlannedLastHolds(t *testing.T) {
	l := need.Got(New(Config{Nodes: []string{"a:1"}, Load: scenario.Load{Instances: 2}}))(t)
	f, now := l.fleet, time.Now()
	soon, late := now.Add(time.Second), now.Add(2*time.Second)
	first, second := f.lasting[0], f.lasting[1]
	f.mu.Lock()
	f.plan(first, now)
	f.plan(first, late)
	f.plan(second, soon)
	f.mu.Unlock()
	if _, due, do := f.due(f.agendas[0], now); do != nil || !due.Equal(soon) {
		t.Errorf("there is something to do at %v, want nothing before %v", due, soon)
	}
	for _, want := range []*instance{second, first} {
		if i, _, do := f.due(f.agendas[0], late); i != want || do == nil {
			t.Errorf("%+v is due, want %s", i, want.id)
		}
	}
	if _, _, do := f.due(f.agendas[0], late.Add(time.Hour)); do != nil {
		t.Error("there is something to do, though all are busy")
	}
}
