package main

import (
	"testing"
	"time"
)

func TestACrossingLastsFromTheAcknowledgementToEachWatcher(t *testing.T) {
	c := newCrossing(benchFleet{name: "crossing", size: 3}, 2)
	c.begun = time.Now().Add(-time.Minute)
	for i, acked := range []time.Duration{0, 59 * time.Second, time.Hour} { // the last one before its answer
		c.acked[i].Store(int64(acked))
		for watcher := range 2 {
			c.arrived(watcher, c.fleet.id(i))
			c.arrived(watcher, c.fleet.id(i)) // a later change of the same instance
		}
	}
	c.arrived(0, "another")
	if got := c.arrivals.Load(); got != 6 {
		t.Errorf("%d arrivals, want 3 at each of 2 watchers", got)
	}
	latencies, err := c.latencies(1) // without the first
	if err != nil {
		t.Fatal(err)
	}
	if n, longest, shortest := latencies.TotalCount(), latencies.Max(), latencies.Min(); n != 4 || shortest != 0 || longest < 1e6 || longest > 20e6 {
		t.Errorf("%d latencies from %d to %d µs, want 4: none for what came before its answer, about a second for the other", n, shortest, longest)
	}
}
