package consensus

import "time"

const (
	// watchInterval is the time between two looks of a watchdog.
	watchInterval = 250 * time.Millisecond
	// longPause is a time between two looks after which the process, the machine or its storage must
	// have been paused: what was under way then starts anew.
	longPause = time.Second
)

// hungDisk is how long one call to the disk may be seen under way before the node gives itself up: a
// leader whose disk hangs would otherwise keep its leadership for ever, because heartbeats go on beside
// it. A disk that takes 4 s, longer than which no write is waited for, is slow and does not hang.
const hungDisk = 4500 * time.Millisecond

// hungLoop is the same for the main loop of Raft on a leader, which cannot step down while its loop
// stands. It is longer than hungDisk, so that a hung disk is named as what it is.
const hungLoop = 2 * hungDisk

// watchdog finds what stands still. It counts the looks at which the same thing was seen, and not the time
// that has passed: after a pause of the process everything is as old as the pause was long, and nothing
// of it hangs. So a look that comes late does not count, and after a long pause the count begins anew.
type watchdog[K comparable] struct {
	limit time.Duration // of watchInterval for each look
	last  time.Time
	seen  map[K]int // at how many looks in a row, after the first
}

// look is told what is under way, and returns what has been for longer than the limit.
func (w *watchdog[K]) look(now time.Time, underWay []K) (hangs K, found bool) {
	since := now.Sub(w.last)
	w.last = now
	before := w.seen
	if since > longPause {
		before = nil
	}
	w.seen = make(map[K]int, len(underWay))
	for _, k := range underWay {
		looks, known := before[k]
		if known && since <= 2*watchInterval {
			looks++
		}
		w.seen[k] = looks
		if time.Duration(looks)*watchInterval >= w.limit {
			hangs, found = k, true
		}
	}
	return hangs, found
}
