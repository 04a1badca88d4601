package main

import (
	"io"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// logQueueBytes bounds the lines that wait to be written. More is not kept: a log that nobody reads must
// cost neither memory nor time.
const logQueueBytes = 1 << 20

// logFlushLimit bounds the wait for the last lines at the end of the process.
const logFlushLimit = time.Second

// logQueue is a writer behind which another one may block for ever, as standard error does when it is a
// pipe that nobody reads: who writes into the queue does not wait. What does not fit any more is dropped
// and counted. One goroutine writes the lines, each with one call, in their order; it starts with the first
// line and ends with the queue, or never, if it is stuck in the writer.
type logQueue struct {
	to      io.Writer
	dropped prometheus.Counter

	mu      sync.Mutex
	lines   [][]byte
	bytes   int
	writing bool
	idle    chan struct{} // closed when nothing waits any more; nil: nothing does
}

func newLogQueue(to io.Writer) *logQueue {
	return &logQueue{to: to, dropped: prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "rollcall", Subsystem: "log", Name: "dropped_total",
		Help: "Lines of the log that were dropped, because standard error takes none.",
	})}
}

// Write implements io.Writer. It takes one line, and never fails.
func (q *logQueue) Write(line []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.bytes+len(line) > logQueueBytes {
		q.dropped.Inc()
		return len(line), nil
	}
	q.lines = append(q.lines, slices.Clone(line))
	q.bytes += len(line)
	if !q.writing {
		q.writing = true
		q.idle = make(chan struct{})
		go q.drain()
	}
	return len(line), nil
}

// drain writes what waits, until nothing does.
func (q *logQueue) drain() {
	for {
		lines := q.next()
		if lines == nil {
			return
		}
		for _, line := range lines {
			_, err := q.to.Write(line)
			if err != nil {
				q.dropped.Inc()
			}
			q.mu.Lock()
			q.bytes -= len(line)
			q.mu.Unlock()
		}
	}
}

// next takes the lines that wait; nil: there are none, and who writes the next one starts anew.
func (q *logQueue) next() [][]byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	lines := q.lines
	q.lines = nil
	if lines == nil {
		q.writing = false
		close(q.idle)
	}
	return lines
}

// flush waits until every line was written, for at most limit.
func (q *logQueue) flush(limit time.Duration) {
	q.mu.Lock()
	idle := q.idle
	q.mu.Unlock()
	if idle == nil {
		return
	}
	select {
	case <-idle:
	case <-time.After(limit):
	}
}
