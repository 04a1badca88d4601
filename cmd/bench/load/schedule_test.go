package load

import (
	"context"
	"slices"
	"testing"
	"time"
)

func TestAScheduleKeepsItsDistances(t *testing.T) {
	from := time.Now()
	s := schedule{from: from, wait: 0.5}
	s.change(10, from)
	for n := range 1000 {
		due, ever := s.next()
		if want := from.Add(50*time.Millisecond + time.Duration(n)*100*time.Millisecond); !ever || due.Sub(want).Abs() > time.Microsecond {
			t.Fatalf("time %d is %v, want %v", n, due.Sub(from), want.Sub(from))
		}
		s.n++
	}
}

func TestAChangeOfTheRateCountsWhatHasPassed(t *testing.T) {
	from := time.Now()
	after := func(ms int) time.Time { return from.Add(time.Duration(ms) * time.Millisecond) }
	for _, tc := range []struct {
		name    string
		changes []float64 // 25 ms apart; the first at the begin
		want    int       // ms; -1: never
	}{
		{name: "none", changes: []float64{10}, want: 100},
		{name: "faster", changes: []float64{10, 30}, want: 50},         // a quarter has passed, ¾ of 33 ms are left
		{name: "slower", changes: []float64{10, 5}, want: 175},         // ¾ of 200 ms are left
		{name: "the same", changes: []float64{10, 10}, want: 100},      //
		{name: "off", changes: []float64{10, 0}, want: -1},             //
		{name: "off and on", changes: []float64{10, 0, 10}, want: 125}, // what was off does not count
		{name: "never on", changes: []float64{0}, want: -1},
		{name: "on later", changes: []float64{0, 10}, want: 125},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := schedule{from: from, wait: 1}
			for i, rate := range tc.changes {
				s.change(rate, after(25*i))
			}
			due, ever := s.next()
			if !ever {
				due = after(-1)
			}
			if due.Sub(after(tc.want)).Abs() > time.Microsecond {
				t.Errorf("due after %v, want %d ms", due.Sub(from), tc.want)
			}
		})
	}
}

func TestThePacerHandsOutEachTimeOnceAndNotBeforeItHasCome(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ending, lasting := &stream{rate: 1000}, &stream{rate: 500, lasting: true}
	due := make(map[*stream][]time.Time)
	begin := time.Now()
	p := &pacer{
		streams: []*stream{ending, lasting}, rate: func(s *stream) float64 { return s.rate },
		begin: begin, end: begin.Add(50 * time.Millisecond),
	}
	p.hand = func(s *stream, at time.Time) {
		if time.Now().Before(at) {
			t.Errorf("%v was handed out before it had come", at.Sub(begin))
		}
		due[s] = append(due[s], at)
		if len(due[lasting]) == 100 {
			cancel()
		}
	}
	ends := 0
	p.ended = func() {
		if ends++; len(due[ending]) != 50 || len(due[lasting]) < 25 {
			t.Errorf("at the end %d and %d times were handed out, want 50 and 25 or more", len(due[ending]), len(due[lasting]))
		}
	}
	p.run(ctx)
	if ends != 1 || len(due[ending]) != 50 || len(due[lasting]) < 100 {
		t.Errorf("ended %d times, with %d and %d times handed out, want once, 50, and 100 or more", ends, len(due[ending]), len(due[lasting]))
	}
	for _, times := range due {
		if !slices.IsSortedFunc(times, time.Time.Compare) {
			t.Error("the times are not in their order")
		}
	}
}

func TestAStreamWithACycleGivesEachTurnToTheSameCaller(t *testing.T) {
	s := &stream{cycle: 5, queues: []*queue{newQueue(), newQueue(), newQueue()}}
	begin := time.Now()
	want := make([][]time.Time, 3)
	for n, caller := range []int{0, 1, 2, 0, 1, 0, 1, 2, 0, 1, 0} {
		at := begin.Add(time.Duration(n))
		s.hand(at)
		want[caller] = append(want[caller], at)
	}
	s.close()
	for i, q := range s.queues {
		var got []time.Time
		for at, ok := q.take(); ok; at, ok = q.take() {
			got = append(got, at)
		}
		if !slices.Equal(got, want[i]) {
			t.Errorf("caller %d got %d times, want %d", i, len(got), len(want[i]))
		}
	}
}

func TestAQueueKeepsTheOrderAndNoMoreRoomThanItNeeds(t *testing.T) {
	q, begin := newQueue(), time.Now()
	put, taken := 0, 0
	for range 10_000 { // three waiting all the time
		for put < taken+3 {
			q.put(begin.Add(time.Duration(put)))
			put++
		}
		if at, ok := q.take(); !ok || !at.Equal(begin.Add(time.Duration(taken))) {
			t.Fatalf("got %v, %t, want time %d", at.Sub(begin), ok, taken)
		}
		taken++
	}
	if cap(q.due) > 100 {
		t.Errorf("the queue has room for %d, though 3 are waiting", cap(q.due))
	}
}
