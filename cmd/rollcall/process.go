package main

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/httpd"
)

// setGC lets the heap grow further than Go would: a registry is much live data and little garbage
// per request, so that collections cost more than the memory between them.
func setGC(percent int) {
	if percent > 0 {
		debug.SetGCPercent(percent)
	}
}

// newLogger returns a logger as the settings want it. They were validated.
func newLogger(w io.Writer, level, format string) *slog.Logger {
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}
	o := &slog.HandlerOptions{Level: levels[level]}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// The runtime collects garbage when memory is allocated, and else every two minutes: after a burst of large requests
// an idle node would keep what they took. memoryInterval is the time between two looks, memorySpare how many bytes a
// node may hold more than after the last time it gave memory back.
const (
	memoryInterval = 10 * time.Second
	memorySpare    = 64 << 20
)

// idleMemory gives memory back to the system when nothing has been collected from one look to the next.
type idleMemory struct {
	cycles uint64 // of collection, at the last look
	least  uint64 // bytes that were held after the last time
}

// run looks until ctx ends.
func (m *idleMemory) run(ctx context.Context) {
	tick := time.NewTicker(memoryInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			m.look(memoryNow, debug.FreeOSMemory)
		case <-ctx.Done():
			return
		}
	}
}

// look gives memory back if the node is idle and holds much more than it did.
func (m *idleMemory) look(now func() (held, cycles uint64), free func()) {
	held, cycles := now()
	idle := cycles == m.cycles
	m.cycles = cycles
	if !idle || held <= m.least+memorySpare {
		return
	}
	free()
	m.least, m.cycles = now()
}

// memoryNow is how many bytes the process has of the system, and how often garbage was collected.
func memoryNow() (held, cycles uint64) {
	samples := []metrics.Sample{
		{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}, {Name: "/gc/cycles/total:gc-cycles"},
	}
	metrics.Read(samples)
	return samples[0].Value.Uint64() - samples[1].Value.Uint64(), samples[2].Value.Uint64()
}

// openProfiler binds the profiler's port, if one is set.
func (n *node) openProfiler(addr string) error {
	if addr == "" {
		return nil
	}
	l, err := listen("pprof.addr", addr)
	if err != nil {
		return err
	}
	server := httpd.NewServer(addr, profiles(), n.log)
	server.WriteTimeout = 0 // a profile takes as long as it is asked to
	n.listeners = append(n.listeners, listener{key: "pprof.addr", Listener: l, server: server})
	return nil
}

func profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

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
