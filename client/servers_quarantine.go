package client

import (
	"cmp"
	"math/rand/v2"
	"time"
)

// quarantine is the time for which a server is asked last. The zero quarantine is over.
type quarantine struct {
	until    time.Time
	failures int // in a row, each after the quarantine for the one before
}

// The first quarantine is between half and the whole of shortestQuarantine; each further one may be twice
// as long, up to longestQuarantine.
const shortestQuarantine, longestQuarantine = time.Second, 30 * time.Second

func (q *quarantine) holds(now time.Time) bool { return now.Before(q.until) }

func (q *quarantine) clear() { *q = quarantine{} }

// extend begins the next quarantine. Failures within one are those of calls that were under way together,
// or that had nobody else to ask, and say nothing new.
func (q *quarantine) extend(now time.Time) {
	if q.holds(now) {
		return
	}
	most := longestQuarantine
	if q.failures < 5 {
		most = shortestQuarantine << q.failures
	}
	q.until = now.Add(most/2 + rand.N(most/2+1))
	q.failures++
}

// set begins a quarantine of a known length.
func (q *quarantine) set(now time.Time, d time.Duration) {
	if !q.holds(now) {
		q.until = now.Add(d)
	}
}

// compare puts the one that does not hold, or ends first, first.
func (q quarantine) compare(other quarantine, now time.Time) int {
	switch mine, others := q.holds(now), other.holds(now); {
	case mine && others:
		return q.until.Compare(other.until)
	case mine:
		return 1
	case others:
		return -1
	}
	return 0
}

// retryAfter is for how long a server that cannot serve is asked last, when it says so (d; 0: it does not).
// A server that wants more is one of a proxy that knows no better.
func retryAfter(d time.Duration) time.Duration {
	const usual, longest = time.Second, 5 * time.Second
	return min(cmp.Or(d, usual), longest)
}
