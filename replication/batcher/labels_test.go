package batcher

import (
	"bytes"
	"runtime/pprof"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestGoroutinesAreLabelledAsUpstreamsThreads(t *testing.T) {
	for _, row := range []struct {
		name     string
		workload int
		want     []string
	}{
		{"batches", 0, []string{"TaskAcceptor-dc2", "TaskBatchingWorker-dc2"}},
		{"single items", 1, []string{"TaskAcceptor-dc2", "TaskNonBatchingWorker-dc2"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				r := running(t, Config[string, string]{WorkloadSize: row.workload})
				r.submit("")
				var profile bytes.Buffer
				need.OK(t, pprof.Lookup("goroutine").WriteTo(&profile, 1))
				for _, label := range row.want {
					expect.That(t, strings.Contains(profile.String(), `"`+label+`"`), "no goroutine is labelled %q", label)
				}
			})
		})
	}
}
