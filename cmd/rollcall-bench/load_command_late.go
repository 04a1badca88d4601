package main

import (
	"context"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	lateEvery = 5 * time.Millisecond
	// lateLimit is how late (p99) the load generator's own goroutines may run before its figures say more
	// of it than of the servers. Timers are late by a millisecond or so on any machine.
	lateLimit = 10 * time.Millisecond
)

// lateness is how late this process wakes up when it wants to. What is due then is sent as late, and every
// answer read as late: part of each latency that is not the servers'.
type lateness struct{ waits *hdrhistogram.Histogram }

// watch measures until ctx ends.
func (l *lateness) watch(ctx context.Context) {
	l.waits = newLatencies()
	for {
		due := time.Now().Add(lateEvery)
		if !pauseBench(ctx, lateEvery) {
			return
		}
		l.note(time.Since(due))
	}
}

func (l *lateness) note(late time.Duration) {
	l.waits.RecordValue(min(max(late.Microseconds(), 0), longestLatency)) // in range: no error
}

// sentence says that the load generator was too slow; empty if it was not.
func (l *lateness) sentence() string {
	if l.waits == nil {
		return ""
	}
	p99 := time.Duration(l.waits.ValueAtQuantile(99)) * time.Microsecond
	if p99 <= lateLimit {
		return ""
	}
	most := time.Duration(l.waits.Max()) * time.Microsecond
	return fmt.Sprintf("The load generator itself was late: for 1 %% of the time by %v or more (at most %v), which is in the latencies. "+
		"Send less, or from a machine of its own.", p99.Round(100*time.Microsecond), most.Round(100*time.Microsecond))
}
