package compare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/load"
	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// turn is a trial to run.
type turn struct {
	scenario scenario.Scenario
	column   scenario.Column
	round    int // from 1
	seed     uint64
}

// turns returns all trials in their order. They alternate the columns, so that slow changes of the machine do not
// affect just one column.
func (c Config) turns() []turn {
	var all []turn
	columns := slices.Clone(c.Plan.Columns)
	for round := range c.Plan.Rounds {
		for _, s := range c.Scenarios {
			for _, column := range columns {
				if round < column.RoundsOf(s, c.Plan.Rounds) && c.Plan.Wants(s.Name, column.Name) {
					all = append(all, turn{s, column, round + 1, seed(c.Plan.Seed, s.Name, round+1)})
				}
			}
		}
		slices.Reverse(columns)
	}
	return all
}

// seed returns the seed of all columns in a round. It has 53 bits, which any reader of the raw file can hold.
func seed(base uint64, name string, round int) uint64 {
	h := fnv.New64a()
	h.Write([]byte(strconv.FormatUint(base, 10) + " " + name + " " + strconv.Itoa(round)))
	return h.Sum64() >> 11
}

// Run runs every scenario in each column, alternating: each round runs all scenarios, each in one column after the
// other; the next round begins with the column that was last. All have the same seed in a round. A trial that cannot
// be completed is recorded (trial.Trial.Failed), and the others run; a column whose clusters cannot be started is left
// out after two tries. The error comes from ctx, from a scenario that does not fit into its length, from Keep, or from
// the first cluster if none could be started at all.
func Run(ctx context.Context, c Config) (*trial.Comparison, error) {
	if err := c.fits(); err != nil {
		return nil, err
	}
	result := &trial.Comparison{
		Version: c.Version, Date: time.Now().Format(time.DateOnly), Machine: c.Machine, Plan: c.Plan, Scenarios: c.Scenarios,
	}
	result.Plan.LeftOut = slices.Clone(c.Plan.LeftOut)
	turns := c.turns()
	launches := launches{failed: make(map[string]int)}
	earlier := false
	for number, turn := range turns {
		done := slices.IndexFunc(c.Done, func(t trial.Trial) bool {
			return t.Scenario == turn.scenario.Name && t.Column == turn.column.Name && t.Round == turn.round
		})
		if done >= 0 {
			result.Trials = append(result.Trials, c.Done[done])
			result.Plan.Took += c.Done[done].Took
			earlier = true
			continue
		}
		if launches.hopeless(turn.column) {
			continue
		}
		p := newProgress(c.Progress, number+1, len(turns), turn)
		if ended := len(result.Trials); ended > 0 { // columns alternate, so the mean so far predicts the rest
			mean := result.Plan.Took.Duration() / time.Duration(ended)
			p.left = fmt.Sprintf(", about %s are left", (mean * time.Duration(len(turns)-number)).Round(time.Minute))
		}
		t, err := c.run(ctx, turn, p, &launches)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("compare: %w", context.Cause(ctx))
		}
		if err != nil {
			return nil, err
		}
		result.Plan.Took += t.Took
		result.Trials = append(result.Trials, t)
	}
	result.Plan.LeftOut = append(result.Plan.LeftOut, launches.leftOut...)
	if launches.first != nil && !launches.started && !earlier {
		return nil, launches.first
	}
	return result, nil
}

// run runs a trial, again while it is not valid, and has it kept.
func (c Config) run(ctx context.Context, turn turn, p *progress, l *launches) (t trial.Trial, err error) {
	var repeats []string
	for {
		r := run{config: c, turn: turn, progress: p}
		t, err = r.trial(ctx)
		if ctx.Err() != nil {
			return t, nil
		}
		l.add(turn.column, r.cluster != nil, err)
		t.Repeats = repeats
		if why := c.invalid(&t); len(why) > 0 && len(repeats) < c.repeats(turn.scenario) {
			repeats = append(repeats, why[0])
			p.line("not valid, and run again: %s", why[0])
			continue
		}
		break
	}
	if c.Keep == nil {
		return t, nil
	}
	return t, c.Keep(&t)
}

// repeats returns how often a trial is run again. The machine may not be able to carry every load that measures costs.
func (c Config) repeats(s scenario.Scenario) int {
	if s.HeartbeatsOnly() {
		return min(c.Repeats, 1)
	}
	return c.Repeats
}

func (c Config) invalid(t *trial.Trial) []string {
	if c.Invalid == nil || t.Failed != "" {
		return nil
	}
	return c.Invalid(t)
}

// mostLaunches is how often a column's cluster may fail to start before the column is left out.
const mostLaunches = 2

// launches counts the clusters that could not be started.
type launches struct {
	failed  map[string]int // by column, until one started; -1 after that
	started bool           // one of any column
	first   error
	leftOut []string // sentences
}

func (l *launches) add(c scenario.Column, started bool, err error) {
	switch {
	case started:
		l.failed[c.Name], l.started = -1, true
	case l.failed[c.Name] >= 0:
		l.failed[c.Name]++
		l.first = cmp.Or(l.first, err)
		if l.hopeless(c) {
			l.leftOut = append(l.leftOut, fmt.Sprintf("Column %s was left out: %v.", c.Heading(), err))
		}
	}
}

// hopeless reports whether a column's clusters are no longer started.
func (l *launches) hopeless(c scenario.Column) bool { return l.failed[c.Name] >= mostLaunches }

// length returns the length of a scenario's load.
func (c Config) length(s scenario.Scenario) time.Duration {
	return cmp.Or(s.Length.Duration(), c.Plan.Length.Duration())
}

func (c Config) fits() error {
	var errs []error
	for _, s := range c.Scenarios {
		errs = append(errs, s.Fits(c.length(s)))
	}
	return errors.Join(errs...)
}

// progressEvery is the time between two lines about a load.
const progressEvery = 5 * time.Second

// progress writes how a trial goes, a line at a time. One goroutine at a time uses it.
type progress struct {
	to     io.Writer
	prefix string
	left   string // how long the rest will take; empty if unknown
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

// reportLoad writes a line about the load every few seconds, until ctx ends.
func (p *progress) reportLoad(ctx context.Context, began time.Time, length time.Duration, snapshot func() map[trial.Operation]load.Totals, faults func() string) {
	var before int64
	for last := began; until(ctx, last.Add(progressEvery)); {
		now := time.Now()
		total := int64(0)
		for _, of := range snapshot() {
			for _, n := range of.Outcomes {
				total += n
			}
		}
		rate := float64(total-before) / now.Sub(last).Seconds()
		p.line("%s", strings.TrimSuffix(fmt.Sprintf("%.0fs of %s, %.0f calls/s, %s", now.Sub(began).Seconds(), length, rate, faults()), ", "))
		last, before = now, total
	}
}

// reportTrial writes the result of the trial.
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
