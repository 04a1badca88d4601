package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
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

// Length of a trial's load, unless --length or the scenario says otherwise, and how long a client waits before it
// turns to another node.
const (
	fullLength     = 15 * time.Second
	quickLength    = 10 * time.Second
	compareTimeout = 2 * time.Second
)

// How often every scenario runs, unless --rounds says otherwise, and how often a trial that overloaded the machine is
// run again.
const (
	fullRounds  = 5
	quickRounds = 1
	fullRepeats = 2
)

// exitInvalid is the exit code of a comparison that measured the machine rather than the servers.
const exitInvalid = 4

// compareOptions holds the flags of bench compare.
type compareOptions struct {
	dir       string
	quick     bool
	dcs       int
	rounds    int           // 0 for quick's default
	length    time.Duration // 0 for quick's default
	seed      uint64
	columns   []string // names; empty for quick's default
	described []string // described by the caller
	scenarios []string
	only      []string
	resume    bool
	list      bool
	data      string
	eureka    string // the jar of a stock Eureka server
	from      string // report.json of a finished run; empty for a new run
	form      cli.Output
	server    server
}

func newBenchCompareCommand() *cobra.Command {
	var o compareOptions
	cmd := &cobra.Command{
		Use:   "compare",
		Short: "Compare registries under the same load and the same faults",
		Long: "Starts clusters of three processes of each column (mode cp, mode ap, a stock Eureka cluster, either mode with\n" +
			"other settings), puts the same load on them, kills, pauses and cuts off nodes as its scenarios say, and writes\n" +
			"what each made of it: a page for people (report.html), a summary (report.md), the raw observations (report.json),\n" +
			"and the figures in Go's benchmark format (report.txt), for benchstat. What a column promises, and the limits that a scenario states, are checked; one that\n" +
			"was broken, or could not be decided, is an error (exit code 1). A run that the machine did not carry is not\n" +
			"valid (exit code 4). docs/scenarios.md says how to write a scenario.",
		Example: "  rollcall-bench compare\n" +
			"  rollcall-bench compare --quick --out /tmp/comparison\n" +
			"  rollcall-bench compare --list\n" +
			"  rollcall-bench compare --dcs 2 --scenario dc-link-cut\n" +
			"  rollcall-bench compare --columns cp,eureka --scenario leader-killed --scenario mine.yaml --length 30s\n" +
			"  rollcall-bench compare --columns cp --column slow=cp,test.sync-delay=20ms --rounds 3\n" +
			"  rollcall-bench compare --resume --only servers-restart/ap\n" +
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
	f.StringVar(&o.dir, "out", "rollcall-comparison", "directory for the report; it is made where it is missing, and must not hold another run")
	f.BoolVar(&o.quick, "quick", false, "only cp and ap, and the scenarios that matter most, once each, in less than two minutes")
	f.IntVar(&o.dcs, "dcs", 1, "datacenters: 2 adds the scenarios that need two")
	f.IntVar(&o.rounds, "rounds", 0, "how often each scenario runs in each column (default 5, with --quick 1)")
	f.DurationVar(&o.length, "length", 0, "how long each load lasts (default 15s, with --quick 10s)")
	f.Uint64Var(&o.seed, "seed", 1, "of everything that is drawn: the same seed gives the same load")
	f.StringSliceVar(&o.columns, "columns", nil, "columns to run, of cp, ap, eureka, cp-stale and ap-always (default: all of them, with --quick cp and ap)")
	f.StringArrayVar(&o.described, "column", nil, "a column of your own: NAME=MODE and settings, as in slow=cp,test.sync-delay=20ms (repeatable)")
	f.StringArrayVar(&o.scenarios, "scenario", nil, "a scenario's name or file (repeatable; default: all that come with the program)")
	f.StringSliceVar(&o.only, "only", nil, "run only these trials: SCENARIO, COLUMN or SCENARIO/COLUMN (the report has what there is)")
	f.BoolVar(&o.resume, "resume", false, "go on with the run that was interrupted in --out")
	f.BoolVar(&o.list, "list", false, "only list the scenarios that would run")
	f.StringVar(&o.eureka, "eureka-jar", eurekaJar, "jar of a published Eureka server, which make eureka-server builds")
	f.StringVar(&o.from, "from", "", "report.json of an earlier run: make its report anew, and run nothing")
	f.StringVar(&o.data, "data", filepath.Join("data", "bench"), "directory for the nodes' data, on the disk to be measured; what is made in it is removed")
}

// comparePlan is what the flags ask for.
type comparePlan struct {
	trial.Plan
	scenarios []scenario.Scenario
	machine   trial.Machine
}

// plan reads the flags and the scenarios that they name, and finds every mistake in them.
func (o *compareOptions) plan() (*comparePlan, error) {
	p := &comparePlan{Plan: trial.Plan{
		Seed: o.seed, Quick: o.quick, Rounds: o.rounds, Datacenters: o.dcs,
		Length: trial.Of(o.trialLength()), Timeout: trial.Of(compareTimeout), Only: o.only,
	}}
	if p.Rounds == 0 {
		p.Rounds = fullRounds
		if o.quick {
			p.Rounds = quickRounds
		}
	}
	errs := []error{
		o.form.Validate(),
		inBounds("--dcs", o.dcs, 1, 2),
		inBounds("--rounds", p.Rounds, 1, 100),
		inBounds("--length", o.trialLength(), 2*time.Second, time.Hour),
	}
	if o.dir == "" {
		errs = append(errs, errors.New("--out: is empty; name a directory"))
	}
	var err error
	p.Columns, err = o.comparedColumns()
	errs = append(errs, err)
	p.scenarios, p.LeftOut, err = o.comparedScenarios()
	return p, errors.Join(append(errs, err, o.checkOnly(p))...)
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

// comparedColumns returns the columns, each once.
func (o *compareOptions) comparedColumns() ([]scenario.Column, error) {
	var columns []scenario.Column
	var errs []error
	add := func(flag, text string) {
		c, err := scenario.FindColumn(text)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", flag, err))
		case slices.ContainsFunc(columns, func(other scenario.Column) bool { return other.Name == c.Name }):
			errs = append(errs, fmt.Errorf("%s: %s is named twice", flag, c.Name))
		default:
			columns = append(columns, c)
		}
	}
	for _, name := range o.columns {
		add("--columns", name)
	}
	if len(o.columns) == 0 && len(o.described) == 0 {
		for _, c := range scenario.Columns() {
			if !o.quick || c.Name == localcluster.CP || c.Name == localcluster.AP {
				columns = append(columns, c)
			}
		}
	}
	for _, text := range o.described {
		add("--column", text)
	}
	return columns, errors.Join(errs...)
}

// checkOnly finds names that match no trial.
func (o *compareOptions) checkOnly(p *comparePlan) error {
	var errs []error
	for _, text := range o.only {
		one, names := trial.Plan{Only: []string{text}}, false
		for _, s := range p.scenarios {
			for _, c := range p.Columns {
				names = names || one.Wants(s.Name, c.Name)
			}
		}
		if !names {
			errs = append(errs, fmt.Errorf("--only: %q names none of the trials; want a scenario, a column, or both as in steady/cp", text))
		}
	}
	return errors.Join(errs...)
}

// run compares the columns, writes the report, and names the limits that were broken.
func (o *compareOptions) run(ctx context.Context, p *comparePlan, out, progress io.Writer) (err error) {
	jar := o.findColumns(p)
	if err := errors.Join(clearSettings(), o.server.find()); err != nil {
		return err
	}
	dir, remove, err := temporaryData(o.data)
	if err != nil {
		return err
	}
	defer remove()
	p.machine, err = describeMachine(dir)
	if err != nil {
		return err
	}
	log, err := openTrials(o.dir, p, o.resume)
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	whole := false
	defer func() { err = errors.Join(err, log.close(whole)) }()
	config := compare.Config{
		Plan: p.Plan, Version: version, Machine: p.machine, Scenarios: p.scenarios,
		Launch: launchColumns(o.server.path, jar, dir), Progress: progress,
		Health: machineHealth(dir), Invalid: verdicts.Invalid, Done: log.done, Keep: func(t *trial.Trial) error { return log.keep(ctx, t, progress) },
	}
	if !o.quick {
		config.Repeats = fullRepeats
	}
	comparison, err := compare.Run(ctx, config)
	if err != nil {
		return err
	}
	comparison.Date = log.date // a resumed run keeps its original date
	r := reports.New(comparison)
	if err := r.Write(o.dir); err != nil {
		return fmt.Errorf("--out: %w; what was measured is in %s: make room, and give --resume", err, trialsFile)
	}
	whole = len(p.Only) == 0 && len(r.Invalid()) == 0
	if len(p.Only) == 0 && !whole {
		fmt.Fprintln(progress, "what is not valid is tried again by the same command with --resume")
	}
	return o.conclude(r, out)
}

// findColumns leaves out the columns whose programs are missing, and says so. It returns the jar of the Eureka server.
func (o *compareOptions) findColumns(p *comparePlan) (jar string) {
	isEureka := func(c scenario.Column) bool { return c.System == scenario.Eureka }
	if !slices.ContainsFunc(p.Columns, isEureka) {
		return ""
	}
	jar, missing := findEureka(o.eureka)
	if missing != "" {
		p.Columns = slices.DeleteFunc(p.Columns, isEureka)
		p.LeftOut = append(p.LeftOut, missing)
	}
	return jar
}

// launchColumns starts clusters of any column below dir, each in its own directory, which is removed with it. Settings
// are for Rollcall's servers, and so are several datacenters.
func launchColumns(server, jar, dir string) compare.Launch {
	return func(ctx context.Context, s compare.Spec) (compare.Cluster, error) {
		if s.Column.System == scenario.Eureka {
			return startEureka(ctx, jar, dir, true)
		}
		return startCompared(ctx, server, dir, s)
	}
}

// anew makes the report of a finished run again: figures and plots are computed from what was observed then.
func (o *compareOptions) anew(out io.Writer) error {
	r, err := readReport(o.from)
	if err != nil {
		return fmt.Errorf("--from: %w", err)
	}
	own, err := o.ownDirectory(r)
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	write := r.Write
	if own {
		write = r.WriteAgain
	}
	if err := write(o.dir); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	return o.conclude(r, out)
}

// readReport reads the raw file of a finished run.
func readReport(path string) (*reports.Report, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	r, err := reports.Read(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %s", path, printableLines(err.Error())) // may quote the file's content
	}
	return r, nil
}

// ownDirectory reports whether --from is the raw file of --out itself. It refuses a directory that holds another run.
func (o *compareOptions) ownDirectory(r *reports.Report) (own bool, err error) {
	other := func(name string) error {
		return fmt.Errorf("%s holds another run (%s): name another directory, or remove it", o.dir, name)
	}
	there, err := os.Open(filepath.Join(o.dir, reports.JSONFile))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(filepath.Join(o.dir, trialsFile)); !errors.Is(err, fs.ErrNotExist) {
			return false, other(trialsFile)
		}
		return false, nil
	} else if err != nil {
		return false, err
	}
	defer there.Close()
	from, err := os.Stat(o.from)
	if err != nil {
		return false, err
	}
	if found, err := there.Stat(); err != nil || os.SameFile(from, found) {
		return err == nil, err
	}
	if same, err := r.Holds(there); err != nil || !same {
		return false, other(reports.JSONFile)
	}
	return false, nil
}

// printableLines keeps text from files and servers from driving the terminal, and keeps its line breaks.
func printableLines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = reports.Printable(lines[i])
	}
	return strings.Join(lines, "\n")
}

// listed returns an error that lists sentences on lines of their own, below a head.
func listed(head string, sentences []string) error {
	text := head
	for _, sentence := range sentences {
		text += "\n  " + reports.Printable(sentence)
	}
	return errors.New(text)
}

// conclude prints the report; a broken limit is an error, and so is a run that is not valid.
func (o *compareOptions) conclude(r *reports.Report, out io.Writer) error {
	if err := o.print(r, out); err != nil {
		return err
	}
	var err error
	if broken := r.Broken(); len(broken) > 0 {
		err = listed("limits were broken:", broken)
	}
	if invalid := r.Invalid(); len(invalid) > 0 {
		err = cli.ExitStatus{Code: exitInvalid, Err: errors.Join(listed("the run is not valid:", invalid), err)}
	}
	return err
}

// print shows the summary, or as JSON what the trials mean.
func (o *compareOptions) print(r *reports.Report, out io.Writer) error {
	if o.form == cli.JSON {
		return cli.PrintJSON(out, newComparisonSummary(o.dir, r))
	}
	return r.Summary(out)
}

// comparedScenarios returns the scenarios to run, and sentences about the others.
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
	scenario.Pair(chosen)
	errs := []error{err}
	for i := range chosen {
		errs = append(errs, o.fits(chosen[i]))
	}
	return chosen, leftOut, errors.Join(errs...)
}

// usual returns the scenarios that run when none is named.
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

// named returns the scenarios that the flags name, each once.
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

// fits returns an error if a scenario's faults do not end within its load.
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

// scenarioList shows scenarios as a table.
type scenarioList []scenario.Scenario

func (l scenarioList) Table() [][]string {
	return cli.Rows(l, []string{"NAME", "QUICK", "ALL COLUMNS", "DATACENTERS", "TITLE"}, func(s scenario.Scenario) []string {
		return []string{s.Name, cli.YesNo(s.Quick), cli.YesNo(s.Chosen), strconv.Itoa(s.Datacenters), s.Title}
	})
}

// comparisonSummary is what bench compare prints as JSON. Scripts rely on its members' names.
type comparisonSummary struct {
	Report  string         `json:"report"` // directory
	LeftOut []string       `json:"left_out"`
	Trials  []trialSummary `json:"trials"`
	Broken  []string       `json:"broken"`  // limits
	Invalid []string       `json:"invalid"` // why the run is not valid
}

// trialSummary is the result of one trial.
type trialSummary struct {
	Scenario string           `json:"scenario"`
	Column   string           `json:"column"`
	Round    int              `json:"round"`
	Failed   string           `json:"failed,omitempty"` // why it could not be completed
	Verdict  verdicts.Verdict `json:"verdict"`
}

func newComparisonSummary(dir string, r *reports.Report) comparisonSummary {
	s := comparisonSummary{Report: dir, LeftOut: r.Plan.LeftOut, Broken: r.Broken(), Invalid: r.Invalid()}
	for i, t := range r.Trials {
		s.Trials = append(s.Trials, trialSummary{t.Scenario, t.Column, t.Round, t.Failed, r.Verdicts[i]})
	}
	return s
}
