package compare

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/load"
	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// progressEvery is from one line about a load to the next.
const progressEvery = 5 * time.Second

// progress writes how a trial goes, a line at a time. One goroutine at a time uses it.
type progress struct {
	to     io.Writer
	prefix string
	left   string // how long all that is left will take
	begun  time.Time
}

func newProgress(to io.Writer, number, of int, t turn, e *estimate) *progress {
	if to == nil {
		to = io.Discard
	}
	return &progress{
		to: to, begun: time.Now(), left: e.left(),
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

// estimate is how long the trials that are left will take, by those that have ended.
type estimate struct {
	length func(scenario.Scenario) time.Duration
	ahead  map[string][]time.Duration // by column: the lengths of the loads that are left
	beside map[string][]time.Duration // by column: what trials took beside their loads
}

func newEstimate(turns []turn, length func(scenario.Scenario) time.Duration) *estimate {
	e := &estimate{length: length, ahead: make(map[string][]time.Duration), beside: make(map[string][]time.Duration)}
	for _, t := range turns {
		e.ahead[t.column.Name] = append(e.ahead[t.column.Name], length(t.scenario))
	}
	return e
}

// add counts a trial that has ended. The turns end in their order.
func (e *estimate) add(t turn, took trial.Micros) {
	name := t.column.Name
	e.ahead[name] = e.ahead[name][1:]
	e.beside[name] = append(e.beside[name], took.Duration()-e.length(t.scenario))
}

// skip counts a trial that does not run.
func (e *estimate) skip(t turn) { e.ahead[t.column.Name] = e.ahead[t.column.Name][1:] }

// left is ", about 1h20m are left", or nothing while no trial has ended.
func (e *estimate) left() string {
	if len(e.beside) == 0 {
		return ""
	}
	var all []time.Duration
	for _, of := range e.beside {
		all = append(all, of...)
	}
	var sum time.Duration
	for name, ahead := range e.ahead {
		of := e.beside[name]
		if len(of) == 0 {
			of = all
		}
		for _, length := range ahead {
			sum += length + mean(of)
		}
	}
	return fmt.Sprintf(", about %s are left", sum.Round(time.Minute))
}

func mean(of []time.Duration) time.Duration {
	var sum time.Duration
	for _, d := range of {
		sum += d
	}
	return sum / time.Duration(len(of))
}
