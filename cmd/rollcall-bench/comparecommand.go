package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed-20419f34/rollcall/cmd/bench/compare"
	reports "github.com/seed-20419f34/rollcall/cmd/bench/report"
	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	verdicts "github.com/seed-20419f34/rollcall/cmd/bench/verdict"
	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/internal/localcluster"
)

// Length of a trial's load, unless --length or the scenario says otherwise, and after how long a client
// turns to another node.
const (
	fullLength     = 15 * time.Second
	quickLength    = 10 * time.Second
	compareTimeout = 2 * time.Second
)

// compareOptions are the flags of bench compare.
type compareOptions struct {
	dir       string
	quick     bool
	dcs       int
	repeat    int
	length    time.Duration // 0: as long as quick says
	seed      uint64
	modes     []string
	scenarios []string
	list      bool
	data      string
	from      string // report.json of a run that is over; empty: a new one
	form      cli.Output
	server    server
}

func newBenchCompareCommand() *cobra.Command {
	var o compareOptions
	cmd := &cobra.Command{
		Use:   "compare",
		Short: "Compare the modes CP and AP under the same load and the same faults",
		Long: "Starts clusters of three processes in each mode, puts the same load on them, kills, pauses and cuts off\n" +
			"nodes as its scenarios say, and writes what each mode made of it: a page for people (report.html), a\n" +
			"summary (report.md), and the raw observations (report.json, report.csv). What a mode promises, and the\n" +
			"limits that a scenario states, are checked; a broken one is an error. docs/scenarios.md says how to write\n" +
			"a scenario.",
		Example: "  rollcall-bench compare\n" +
			"  rollcall-bench compare --quick --out /tmp/comparison\n" +
			"  rollcall-bench compare --list\n" +
			"  rollcall-bench compare --dcs 2 --scenario dc-link-cut\n" +
			"  rollcall-bench compare --modes cp --scenario leader-killed --scenario mine.yaml --length 30s\n" +
			"  rollcall-bench compare --from rollcall-comparison/report.json --out /tmp/anew",
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			plan, err := o.plan()
			if err != nil {
				return cli.Usage(err)
			}
			if o.list {
				return o.form.Print(cmd.OutOrStdout(), scenarioList(plan.scenarios))
			}
			if o.from != "" {
				return o.anew(cmd.OutOrStdout())
			}
			return o.run(cmd.Context(), plan, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	o.addFlags(cmd.Flags())
	o.form.AddFlag(cmd)
	return cmd
}

func (o *compareOptions) addFlags(f *pflag.FlagSet) {
	o.server.addFlag(f)
	f.StringVar(&o.dir, "out", "rollcall-comparison", "directory for the report; it is made where it is missing")
	f.BoolVar(&o.quick, "quick", false, "only the scenarios that matter most, once each, in less than two minutes")
	f.IntVar(&o.dcs, "dcs", 1, "datacenters: 2 adds the scenarios that need two")
	f.IntVar(&o.repeat, "repeat", 1, "times that everything is run")
	f.DurationVar(&o.length, "length", 0, "how long each load lasts (default 15s, with --quick 10s)")
	f.Uint64Var(&o.seed, "seed", 1, "of everything that is drawn: the same seed gives the same load")
	f.StringSliceVar(&o.modes, "modes", []string{localcluster.CP, localcluster.AP}, "modes to run: cp, ap")
	f.StringArrayVar(&o.scenarios, "scenario", nil, "a scenario's name or file (repeatable; default: all that come with the program)")
	f.BoolVar(&o.list, "list", false, "only list the scenarios that would run")
	f.StringVar(&o.from, "from", "", "report.json of an earlier run: make its report anew, and run nothing")
	f.StringVar(&o.data, "data", filepath.Join("data", "bench"), "directory for the nodes' data, on the disk to be measured; what is made in it is removed")
}

// comparePlan is what the flags ask for.
type comparePlan struct {
	trial.Plan
	scenarios []scenario.Scenario
}

// plan reads the flags and the scenarios that they name, and finds every mistake in them.
func (o *compareOptions) plan() (*comparePlan, error) {
	p := &comparePlan{Plan: trial.Plan{
		Seed: o.seed, Quick: o.quick, Repeat: o.repeat, Datacenters: o.dcs,
		Length: trial.Of(o.trialLength()), Timeout: trial.Of(compareTimeout),
	}}
	errs := []error{
		o.form.Validate(),
		inBounds("--dcs", o.dcs, 1, 2),
		inBounds("--repeat", o.repeat, 1, 100),
		inBounds("--length", o.trialLength(), 2*time.Second, time.Hour),
	}
	if o.dir == "" {
		errs = append(errs, errors.New("--out: is empty; name a directory"))
	}
	var err error
	p.Modes, err = o.comparedModes()
	errs = append(errs, err)
	p.scenarios, p.LeftOut, err = o.comparedScenarios()
	return p, errors.Join(append(errs, err)...)
}

func (o *compareOptions) trialLength() time.Duration {
	switch {
	case o.length != 0:
		return o.length
	case o.quick:
		return quickLength
	}
	return fullLength
}

// comparedModes are the modes, each once.
func (o *compareOptions) comparedModes() ([]scenario.Mode, error) {
	var modes []scenario.Mode
	var errs []error
	for _, m := range o.modes {
		errs = append(errs, cli.OneOf("--modes", m, []string{localcluster.CP, localcluster.AP}))
		if !slices.Contains(modes, scenario.Mode(m)) {
			modes = append(modes, scenario.Mode(m))
		}
	}
	if len(modes) == 0 {
		errs = append(errs, errors.New("--modes: is empty; write cp, ap or both"))
	}
	return modes, errors.Join(errs...)
}

// run compares the modes, writes the report, and names the limits that were broken.
func (o *compareOptions) run(ctx context.Context, p *comparePlan, out, progress io.Writer) error {
	if err := errors.Join(clearSettings(), o.server.find()); err != nil {
		return err
	}
	dir, remove, err := temporaryData(o.data)
	if err != nil {
		return err
	}
	defer remove()
	m, err := describeMachine(dir)
	if err != nil {
		return err
	}
	comparison, err := compare.Run(ctx, compare.Config{
		Plan: p.Plan, Version: version, Machine: m, Scenarios: p.scenarios,
		Launch: launchComparison(o.server.path, dir), Progress: progress,
	})
	if err != nil {
		return err
	}
	return o.publish(reports.New(comparison), out)
}

// anew makes the report of a run that is over: figures, sentences and plots are computed from what was observed then.
func (o *compareOptions) anew(out io.Writer) error {
	file, err := os.Open(o.from)
	if err != nil {
		return fmt.Errorf("--from: %w", err)
	}
	defer file.Close()
	r, err := reports.Read(file)
	if err != nil {
		return fmt.Errorf("--from: %s: %w", o.from, err)
	}
	return o.publish(r, out)
}

// publish writes and prints the report; a broken limit is an error.
func (o *compareOptions) publish(r *reports.Report, out io.Writer) error {
	if err := r.Write(o.dir); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	if err := o.print(r, out); err != nil {
		return err
	}
	if broken := r.Broken(); len(broken) > 0 {
		return fmt.Errorf("limits were broken:\n  %s", strings.Join(broken, "\n  "))
	}
	return nil
}

// print shows the summary, or as JSON what the trials mean.
func (o *compareOptions) print(r *reports.Report, out io.Writer) error {
	if o.form == cli.JSON {
		return cli.PrintJSON(out, newComparisonSummary(o.dir, r))
	}
	return r.Summary(out)
}

// comparedScenarios are those that run, and sentences about those that do not.
func (o *compareOptions) comparedScenarios() (chosen []scenario.Scenario, leftOut []string, err error) {
	all, err := scenario.Builtin()
	if err != nil {
		return nil, nil, err
	}
	if len(o.scenarios) > 0 {
		chosen, err = o.named(all)
	} else {
		chosen, leftOut = o.usual(all)
	}
	errs := []error{err}
	for i := range chosen {
		if o.quick {
			chosen[i].Rounds = 1
		}
		errs = append(errs, o.fits(chosen[i]))
	}
	return chosen, leftOut, errors.Join(errs...)
}

// usual are the scenarios that run where none is named.
func (o *compareOptions) usual(all []scenario.Scenario) (chosen []scenario.Scenario, leftOut []string) {
	for _, s := range all {
		switch {
		case o.quick && !s.Quick:
		case s.Datacenters > o.dcs:
			leftOut = append(leftOut, fmt.Sprintf("%s was left out: it needs %d datacenters (--dcs %d).", s.Title, s.Datacenters, s.Datacenters))
		default:
			chosen = append(chosen, s)
		}
	}
	return chosen, leftOut
}

// named are the scenarios that the flags name, each once.
func (o *compareOptions) named(all []scenario.Scenario) (chosen []scenario.Scenario, err error) {
	var errs []error
	for _, name := range o.scenarios {
		s, err := findScenario(all, name)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("--scenario: %w", err))
		case s.Datacenters > o.dcs:
			errs = append(errs, fmt.Errorf("--scenario: %s needs %d datacenters; give --dcs %d", name, s.Datacenters, s.Datacenters))
		case slices.ContainsFunc(chosen, func(other scenario.Scenario) bool { return other.Name == s.Name }):
			errs = append(errs, fmt.Errorf("--scenario: %s names %q, which is named already", name, s.Name))
		default:
			chosen = append(chosen, s)
		}
	}
	return chosen, errors.Join(errs...)
}

// findScenario finds a scenario by its name, or reads its file.
func findScenario(all []scenario.Scenario, name string) (scenario.Scenario, error) {
	for _, s := range all {
		if s.Name == name {
			return s, nil
		}
	}
	if ext := filepath.Ext(name); ext == ".yaml" || ext == ".yml" || strings.ContainsRune(name, filepath.Separator) {
		return scenario.ReadFile(name)
	}
	var names []string
	for _, s := range all {
		names = append(names, s.Name)
	}
	return scenario.Scenario{}, fmt.Errorf("there is no scenario %q; name one of %s, or a .yaml file", name, strings.Join(names, ", "))
}

// fits is an error if a scenario's faults do not end within its load.
func (o *compareOptions) fits(s scenario.Scenario) error {
	length := o.trialLength()
	if own := s.Length.Duration(); own > 0 {
		length = own
	}
	if err := s.Fits(length); err != nil {
		return fmt.Errorf("%s in %v: %w", s.Name, length.Round(time.Millisecond), err)
	}
	return nil
}

// scenarioList is scenarios as a table.
type scenarioList []scenario.Scenario

func (l scenarioList) Table() [][]string {
	rows := [][]string{{"NAME", "QUICK", "DATACENTERS", "ROUNDS", "TITLE"}}
	for _, s := range l {
		rows = append(rows, []string{s.Name, cli.YesNo(s.Quick), strconv.Itoa(s.Datacenters), strconv.Itoa(s.Rounds), s.Title})
	}
	return rows
}

// comparisonSummary is what bench compare prints as JSON. Scripts rely on its members' names.
type comparisonSummary struct {
	Report  string         `json:"report"` // directory
	LeftOut []string       `json:"left_out"`
	Trials  []trialSummary `json:"trials"`
	Broken  []string       `json:"broken"` // limits
}

// trialSummary is what one trial means.
type trialSummary struct {
	Scenario string           `json:"scenario"`
	Mode     scenario.Mode    `json:"mode"`
	Round    int              `json:"round"`
	Failed   string           `json:"failed,omitempty"` // why it could not be completed
	Verdict  verdicts.Verdict `json:"verdict"`
}

func newComparisonSummary(dir string, r *reports.Report) comparisonSummary {
	s := comparisonSummary{Report: dir, LeftOut: r.Plan.LeftOut, Broken: r.Broken()}
	for i, t := range r.Trials {
		s.Trials = append(s.Trials, trialSummary{t.Scenario, t.Mode, t.Round, t.Failed, r.Verdicts[i]})
	}
	return s
}
