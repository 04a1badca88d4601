package load

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/truth"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestTheDeadSendNothingAnyMore(t *testing.T) {
	for _, tc := range []struct {
		which string
		want  int
	}{
		{which: "1", want: 1},
		{which: "10%", want: 2},
		{which: "100%", want: 20},
	} {
		t.Run(tc.which, func(t *testing.T) {
			c := newFakeCluster(t, 2)
			l := registered(t, c, scenario.Load{Instances: 20})
			if n, err := l.Die(tc.which); n != tc.want || err != nil {
				t.Errorf("%d die, %v, want %d", n, err, tc.want)
			}
			beat(t, l)
			if got := len(c.requests(http.MethodPut, "")); got != 20-tc.want {
				t.Errorf("%d heartbeats, want %d", got, 20-tc.want)
			}
			if got := l.Book.Expected(); got != 20-tc.want {
				t.Errorf("the book expects %d instances, want %d", got, 20-tc.want)
			}
		})
	}
}

func TestADeadInstanceWasLastHeardOfByItsHeartbeat(t *testing.T) {
	c := newFakeCluster(t, 1)
	l := registered(t, c, scenario.Load{Instances: 1})
	id, began := l.fleet.lasting[0].id, time.Now()
	beat(t, l)
	l.Book.Judge(0, truth.Listing{id: 1}, time.Now(), time.Now())
	if _, err := l.Die("1"); err != nil {
		t.Fatal(err)
	}
	if d := l.Book.Departures(began); len(d) != 1 || d[0].Last < 0 {
		t.Errorf("departures %+v, want one, last heard of after its registration", d)
	}
}

func TestWhoIsStruckWhileAtWorkIsDeadWhenThatHasEnded(t *testing.T) {
	c := newFakeCluster(t, 1)
	l := registered(t, c, scenario.Load{Instances: 1})
	i := l.fleet.lasting[0]
	if !l.fleet.take(i) || l.fleet.take(i) {
		t.Fatal("an instance that lives must be taken once")
	}
	if _, err := l.Die("1"); err != nil {
		t.Fatal(err)
	}
	if !l.Book.Alive(i.id) {
		t.Error("it is dead by the book, though a heartbeat is under way that may be acknowledged")
	}
	l.fleet.release(i, true)
	if l.Book.Alive(i.id) {
		t.Error("it lives by the book, though its client has stopped")
	}
}

func TestWhomAFaultStrikesIsDrawnByTheSeed(t *testing.T) {
	dead := func(seed uint64) (numbers []int) {
		l := need.Got(New(Config{Nodes: []string{"a:1"}, Load: scenario.Load{Instances: 100}, Seed: seed}))(t)
		if _, err := l.Die("10%"); err != nil {
			t.Fatal(err)
		}
		for n, i := range l.fleet.lasting {
			if i.mode == dead {
				numbers = append(numbers, n)
			}
		}
		return numbers
	}
	if a, b := dead(1), dead(1); !slices.Equal(a, b) {
		t.Errorf("seed 1 draws %v, and %v another time", a, b)
	}
	if a, b := dead(1), dead(2); slices.Equal(a, b) {
		t.Errorf("seeds 1 and 2 draw %v", a)
	}
}

func TestOnlyTheLivingAreStruckAndWhatIsNoPartOfThemIsAnError(t *testing.T) {
	c := newFakeCluster(t, 1)
	l := registered(t, c, scenario.Load{Instances: 4})
	if n, err := l.Die("3"); n != 3 || err != nil {
		t.Fatalf("%d die, %v, want 3", n, err)
	}
	if n, _, err := l.Silence("100%"); n != 1 || err != nil {
		t.Errorf("%d are silenced, %v, want the one that lives", n, err)
	}
	for _, which := range []string{"", "x", "0", "-1", "0%", "101%"} {
		if _, _, err := l.Flap(which); err == nil {
			t.Errorf("%q is no error", which)
		}
	}
}

func TestTheSilentRegisterWhenTheyBeginAnew(t *testing.T) {
	c := newFakeCluster(t, 2)
	l := registered(t, c, scenario.Load{Instances: 10})
	tended(t, l.fleet)
	n, restart, err := l.Silence("50%")
	if n != 5 || err != nil {
		t.Fatalf("%d are silenced, %v, want 5", n, err)
	}
	beat(t, l)
	if got := len(c.requests(http.MethodPut, "")); got != 5 {
		t.Errorf("%d heartbeats while 5 of 10 are silent", got)
	}
	if got := l.Book.Expected(); got != 5 {
		t.Errorf("the book expects %d instances while 5 of 10 are silent", got)
	}
	restart()
	eventually(t, "the book expects all again", func() bool { return l.Book.Expected() == 10 })
	if got := len(c.requests(http.MethodPost, "")); got != 15 {
		t.Errorf("%d registrations, want the first 10 and 5", got)
	}
	beat(t, l)
	if got := len(c.requests(http.MethodPut, "")); got != 15 {
		t.Errorf("%d heartbeats, want 10 more than 5", got)
	}
}

func TestFlappingInstancesCancelAndRegisterInTurnAndEndRegistered(t *testing.T) {
	c := newFakeCluster(t, 2)
	l := registered(t, c, scenario.Load{Instances: 4})
	tended(t, l.fleet)
	n, stop, err := l.Flap("2")
	if n != 2 || err != nil {
		t.Fatalf("%d flap, %v, want 2", n, err)
	}
	eventually(t, "three cancels", func() bool { return len(c.requests(http.MethodDelete, "")) >= 3 })
	stop()
	eventually(t, "all are registered", func() bool { return l.Book.Expected() == 4 && c.registered() == 4 })
	flapped := 0
	for _, i := range l.fleet.lasting {
		cancels, registrations := c.requests(http.MethodDelete, i.id), c.requests(http.MethodPost, i.id)
		if len(registrations) != len(cancels)+1 {
			t.Errorf("%s: %d registrations and %d cancels", i.id, len(registrations), len(cancels))
		}
		if len(cancels) > 0 {
			flapped++
		}
		if last := registrations[len(registrations)-1].version; last != int64(len(registrations)+len(cancels)) {
			t.Errorf("%s: version %d after %d registrations and %d cancels", i.id, last, len(registrations), len(cancels))
		}
	}
	if flapped != 2 {
		t.Errorf("%d instances flapped, want 2", flapped)
	}
	eventually(t, "all are renewed", func() bool { beat(t, l); return len(c.requests(http.MethodPut, "")) >= 4 })
}

func TestACancelIsRepeatedUntilItIsCertain(t *testing.T) {
	c := newFakeCluster(t, 1)
	tries := 0
	c.decide(func(s seen) int {
		if s.method != http.MethodDelete {
			return 0
		}
		if tries++; tries < 3 {
			return http.StatusGatewayTimeout
		}
		return 0
	})
	l := registered(t, c, scenario.Load{Instances: 1})
	tended(t, l.fleet)
	_, stop, err := l.Flap("1")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first cancel", func() bool { return len(c.requests(http.MethodDelete, "")) >= 1 })
	stop()
	eventually(t, "it is registered again", func() bool { return len(c.requests(http.MethodPost, "")) == 2 })
	if got := len(c.requests(http.MethodDelete, "")); got != 3 {
		t.Errorf("%d cancels, want 3", got)
	}
}
