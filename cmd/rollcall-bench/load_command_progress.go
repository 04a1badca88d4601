package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/seed-20419f34/rollcall/cmd/bench/load"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// progressLine says every second what the load does: on a terminal in one line that is written anew,
// elsewhere in a line each.
type progressLine struct {
	out      io.Writer
	terminal bool
	snapshot func() map[trial.Operation]load.Totals
	warmUp   time.Duration
	last     moment
}

// moment is what had happened until some time.
type moment struct {
	at               time.Duration // since the begin
	answered, failed int64
	latency          *hdrhistogram.Histogram
}

func newProgressLine(r *loadRun) *progressLine {
	return &progressLine{
		out: r.errs, terminal: isTerminal(r.errs), snapshot: r.load.Snapshot, warmUp: r.warmUp,
		last: moment{latency: newLatencies()},
	}
}

// isTerminal reports whether lines can be written anew.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// run writes lines until ctx ends.
func (p *progressLine) run(ctx context.Context) {
	began := time.Now()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			p.print(sumTotals(p.snapshot(), time.Since(began)))
		case <-ctx.Done():
			if p.terminal {
				fmt.Fprintln(p.out)
			}
			return
		}
	}
}

// print writes what has happened since the last line.
func (p *progressLine) print(now moment) {
	line := p.text(now)
	p.last = now
	if p.terminal {
		fmt.Fprintf(p.out, "\r\x1b[K%s", line) // erases what the last line had more
		return
	}
	fmt.Fprintln(p.out, line)
}

func (p *progressLine) text(now moment) string {
	warm := ""
	if now.at < p.warmUp {
		warm = "  warming up"
	}
	seconds := (now.at - p.last.at).Seconds()
	return fmt.Sprintf("%4.0f s  %s calls/s  p99 %s ms  %d failed%s", now.at.Seconds(),
		shortNumber(float64(now.answered+now.failed-p.last.answered-p.last.failed)/seconds),
		shortNumber(p99Between(p.last.latency, now.latency)), now.failed-p.last.failed, warm)
}

// sumTotals adds up the operations. Those that were not answered have failed.
func sumTotals(all map[trial.Operation]load.Totals, at time.Duration) moment {
	m := moment{at: at, latency: newLatencies()}
	for _, t := range all {
		for outcome, n := range t.Outcomes {
			if outcome.Answered() {
				m.answered += n
			} else {
				m.failed += n
			}
		}
		if t.Latency != nil {
			m.latency.Merge(t.Latency)
		}
	}
	return m
}

// p99Between is the 99th percentile, in ms, of the latencies that the newer one of two histograms has more.
func p99Between(older, newer *hdrhistogram.Histogram) float64 {
	was, is := older.Export(), newer.Export()
	for i := range is.Counts {
		is.Counts[i] -= was.Counts[i]
	}
	return float64(hdrhistogram.Import(is).ValueAtQuantile(99)) / 1000
}
