package load

import (
	"sync"
	"time"
)

// queue holds the times at which callers should have sent, oldest first. It has room for any number, so that
// callers whose node stalls delay nobody else. Safe for concurrent use.
type queue struct {
	mu     sync.Mutex
	filled sync.Cond
	due    []time.Time
	taken  int // of due
	closed bool
}

func newQueue() *queue {
	q := new(queue)
	q.filled.L = &q.mu
	return q
}

func (q *queue) put(due time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.due) == cap(q.due) && q.taken > len(q.due)/2 {
		q.due, q.taken = q.due[:copy(q.due, q.due[q.taken:])], 0
	}
	q.due = append(q.due, due)
	q.filled.Signal()
}

// close lets take report the end, once the queue is empty.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.filled.Broadcast()
}

// take waits for the next time. It reports false at the end.
func (q *queue) take() (due time.Time, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.taken == len(q.due) {
		if q.closed {
			return time.Time{}, false
		}
		q.due, q.taken = q.due[:0], 0
		q.filled.Wait()
	}
	q.taken++
	return q.due[q.taken-1], true
}
