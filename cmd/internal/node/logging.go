package node

import (
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// NewLog returns a logger of a format that the settings name. It was validated.
func NewLog(w io.Writer, level *LogLevel, format string) *slog.Logger {
	o := &slog.HandlerOptions{Level: &level.now}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// tailBytes bounds the last lines that are kept in memory, see Queue.Tail.
const tailBytes = 256 << 10

// queueBytes bounds the lines that wait to be written. Further lines are dropped: a log without a reader must cost
// neither memory nor time.
const queueBytes = 1 << 20

// FlushLimit bounds the wait for the last lines at the end of the process.
const FlushLimit = time.Second

// logQueue is a writer in front of one that may block for ever, as standard error does when it is a pipe without a
// reader. A write into the queue does not wait. A line that does not fit is dropped and counted. One goroutine
// writes the lines, each with one call, in their order; it starts with the first line and ends when the queue is
// empty, or never, if the writer blocks for ever.
type logQueue struct {
	Dropped prometheus.Counter // lines

	to      io.Writer
	mu      sync.Mutex
	tail    [][]byte      // the newest lines, including dropped ones
	tailed  int           // bytes of tail
	lines   [][]byte      // not fetched by the goroutine yet
	bytes   int           // of all lines that are not written yet
	writing bool          // the goroutine runs
	idle    chan struct{} // closed when every line is written; nil before the first line
}

// NewLogQueue makes an empty queue.
func NewLogQueue(to io.Writer) *logQueue {
	return &logQueue{to: to, Dropped: prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "rollcall", Subsystem: "log", Name: "dropped_total",
		Help: "Log lines dropped because standard error was blocked.",
	})}
}

// Write implements io.Writer for one line. It never fails.
func (q *logQueue) Write(line []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	kept := slices.Clone(line)
	q.tail, q.tailed = append(q.tail, kept), q.tailed+len(kept)
	for q.tailed > tailBytes {
		q.tailed -= len(q.tail[0])
		q.tail[0] = nil
		q.tail = q.tail[1:]
	}
	if q.bytes+len(line) > queueBytes {
		q.Dropped.Inc()
		return len(line), nil
	}
	q.lines = append(q.lines, kept)
	q.bytes += len(line)
	if !q.writing {
		q.writing = true
		q.idle = make(chan struct{})
		go q.writeAll()
	}
	return len(line), nil
}

// Tail returns the last lines that arrived, at most 256 KiB of them.
func (q *logQueue) Tail() []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Concat(q.tail...)
}

// writeAll writes lines until none is left: the queue is then idle, and the next write starts the goroutine again.
func (q *logQueue) writeAll() {
	for {
		q.mu.Lock()
		lines := q.lines
		q.lines = nil
		if lines == nil {
			q.writing = false
			close(q.idle)
			q.mu.Unlock()
			return
		}
		q.mu.Unlock()
		for _, line := range lines {
			_, err := q.to.Write(line)
			if err != nil {
				q.Dropped.Inc()
			}
			q.mu.Lock()
			q.bytes -= len(line)
			q.mu.Unlock()
		}
	}
}

// Flush waits until every line was written, for at most limit.
func (q *logQueue) Flush(limit time.Duration) {
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
