package node

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// blockedWriter blocks until it is opened.
type blockedWriter struct {
	opened chan struct{}

	mu    sync.Mutex
	lines []string
}

func (w *blockedWriter) Write(line []byte) (int, error) {
	<-w.opened
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, string(line))
	return len(line), nil
}

func TestQueueDoesNotWaitForABlockedWriterAndCountsTheDroppedLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &blockedWriter{opened: make(chan struct{})}
		q := NewLogQueue(w)
		log := slog.New(slog.NewTextHandler(q, nil))
		start := time.Now()
		const lines = 300
		for i := range lines {
			log.Info("a line", "number", i, "pad", strings.Repeat("x", queueBytes/lines))
		}
		q.Flush(FlushLimit)
		took := time.Since(start)
		expect.That(t, took <= FlushLimit, "%d lines and a flush took %v, want %v at most", lines, took, FlushLimit)
		dropped := int(testutil.ToFloat64(q.Dropped))
		expect.That(t, dropped != 0 && dropped <= lines/2, "%d of %d lines were dropped, want those that are above the bound", dropped, lines)

		close(w.opened)
		q.Flush(time.Hour)
		for i, line := range w.lines {
			need.That(t, strings.Contains(line, fmt.Sprintf("number=%d ", i)), "line %d is %.60s, want the lines in their order", i, line)
		}
		got := len(w.lines)
		expect.That(t, got == lines-dropped, "%d lines were written after the end of the block, want %d", got, lines-dropped)
		log.Info("the last one")
		q.Flush(time.Hour)
		last := w.lines[len(w.lines)-1]
		expect.That(t, strings.Contains(last, "the last one"), "the last line is %q after a flush", last)
	})
}

func TestTailIsTheNewestLines(t *testing.T) {
	q := NewLogQueue(io.Discard)
	for i := range 100_000 {
		fmt.Fprintf(q, "line %d\n", i)
	}
	tail := string(q.Tail())
	expect.That(t, strings.HasPrefix(tail, "line ") && strings.HasSuffix(tail, "\nline 99999\n") && len(tail) <= tailBytes && len(tail) > tailBytes-20, "%d bytes, which begin with %.20q", len(tail), tail)
	q.Flush(FlushLimit)
}

func TestLevelHoldsForAWhileAndThenTheConfiguredOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		level := NewLogLevel("info")
		log := NewLog(&said, level, "text")
		shows := func(want string) {
			t.Helper()
			said.Reset()
			log.Debug("d")
			log.Info("i")
			log.Warn("w")
			lines := bytes.Count(said.Bytes(), []byte("\n"))
			now, _, _ := level.Show()
			expect.That(t, now == want && lines == map[string]int{"debug": 3, "info": 2, "warn": 1}[want], "level %s, %d lines, want those of %s", now, lines, want)
		}
		shows("info")
		level.Override("debug", time.Minute)
		time.Sleep(50 * time.Second)
		level.Override("debug", time.Minute)
		time.Sleep(50 * time.Second)
		level.Configure("warn")
		shows("debug")
		time.Sleep(11 * time.Second)
		shows("warn")
		level.Configure("info")
		shows("info")
	})
}
