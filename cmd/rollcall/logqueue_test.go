package main

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// blockedWriter takes nothing until it is opened.
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

func TestALogThatBlocksKeepsNobodyWaitingAndWhatDoesNotFitIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &blockedWriter{opened: make(chan struct{})}
		q := newLogQueue(w)
		log := slog.New(slog.NewTextHandler(q, nil))
		began := time.Now()
		const lines = 300
		for i := range lines {
			log.Info("a line", "number", i, "pad", strings.Repeat("x", logQueueBytes/lines))
		}
		q.flush(logFlushLimit)
		if took := time.Since(began); took > logFlushLimit {
			t.Errorf("%d lines and a flush took %v, want %v at most", lines, took, logFlushLimit)
		}
		dropped := int(testutil.ToFloat64(q.dropped))
		if dropped == 0 || dropped > lines/2 {
			t.Errorf("%d of %d lines were dropped, want those that are above the bound", dropped, lines)
		}

		close(w.opened)
		q.flush(time.Hour)
		for i, line := range w.lines {
			if !strings.Contains(line, fmt.Sprintf("number=%d ", i)) {
				t.Fatalf("line %d is %.60s, want the lines in their order", i, line)
			}
		}
		if got := len(w.lines); got != lines-dropped {
			t.Errorf("%d lines were written after the end of the block, want %d", got, lines-dropped)
		}
		log.Info("the last one")
		q.flush(time.Hour)
		if last := w.lines[len(w.lines)-1]; !strings.Contains(last, "the last one") {
			t.Errorf("the last line is %q after a flush", last)
		}
	})
}
