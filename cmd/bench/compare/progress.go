package compare

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/load"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// progressEvery is from one line about a load to the next.
const progressEvery = 5 * time.Second

// progress writes how a trial goes, a line at a time. One goroutine at a time uses it.
type progress struct {
	to     io.Writer
	prefix string
	left   string // how long all that is left will take; empty: nobody knows
	begun  time.Time
}

func newProgress(to io.Writer, number, of int, t turn) *progress {
	if to == nil {
		to = io.Discard
	}
	return &progress{
		to: to, begun: time.Now(),
		prefix: fmt.Sprintf("[%d/%d] %s, %s, round %d: ", number, of, t.scenario.Name, t.column.Name, t.round),
	}
}

// line writes one line. A write error does not stop the measurement.
func (p *progress) line(format string, args ...any) {
	fmt.Fprintf(p.to, p.prefix+format+"\n", args...)
}

func (p *progress) reportStart() { p.line("starting a cluster%s", p.left) }

// reportLoad writes a line about the load every few seconds, until ctx ends.
func (p *progress) reportLoad(ctx context.Context, began time.Time, length time.Duration, snapshot func() map[trial.Operation]load.Totals, faults func() string) {
	var before int64
	for last := began; until(ctx, last.Add(progressEvery)); {
		now := time.Now()
		total := calls(snapshot())
		rate := float64(total-before) / now.Sub(last).Seconds()
		p.line("%s", strings.TrimSuffix(fmt.Sprintf("%.0fs of %s, %.0f calls/s, %s", now.Sub(began).Seconds(), length, rate, faults()), ", "))
		last, before = now, total
	}
}

func calls(totals map[trial.Operation]load.Totals) int64 {
	var sum int64
	for _, t := range totals {
		for _, n := range t.Outcomes {
			sum += n
		}
	}
	return sum
}

// reportTrial writes what came of the trial.
func (p *progress) reportTrial(t *trial.Trial) {
	took := time.Since(p.begun).Round(time.Second)
	if t.Failed != "" {
		p.line("failed after %s: %s", took, t.Failed)
		return
	}
	all, answered := 0, 0
	for _, s := range t.Series {
		for _, b := range s.Bins {
			all += b.Due()
			answered += b.Answered()
		}
	}
	p.line("%d calls, %.2f %% answered, observed until %.1fs after the load; took %s",
		all, 100*float64(answered)/float64(max(all, 1)), (t.Ended - t.Length).Seconds(), took)
}
