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
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/cmd/cli"
)

// ratiosOptions are the flags of bench ratios.
type ratiosOptions struct {
	rounds   int
	window   time.Duration
	cut      time.Duration
	quick    bool
	only     []string
	data     string
	out      []string
	profiles string
	form     cli.Output
	server   server
}

func newBenchRatiosCommand() *cobra.Command {
	var o ratiosOptions
	cmd := &cobra.Command{
		Use:   "ratios",
		Short: "Measure this machine's clusters against named baselines",
		Long: "Starts clusters of three processes with default settings, and what they are compared with: a bare\n" +
			"net/http handler, the bare Raft library, and a cluster that makes one log entry per write. Measures\n" +
			"them in turn, and prints ratios with their floors and goals; docs/benchmarks.md explains the rows.\n" +
			"On four cores or more a missed floor is an error.",
		Example: "  rollcall-bench ratios\n" +
			"  rollcall-bench ratios --quick\n" +
			"  rollcall-bench ratios --only leases\n" +
			"  rollcall-bench ratios --only coordination\n" +
			"  rollcall-bench ratios --only replication --cut 10m\n" +
			"  rollcall-bench ratios --out docs/benchmarks.md --out ratios.json",
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return cli.Usage(err)
			}
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.rounds, "rounds", 3, "times that everything is measured")
	f.DurationVar(&o.window, "window", 4*time.Second, "how long each load counts")
	f.DurationVar(&o.cut, "cut", time.Minute, "how long the link between two datacenters is cut")
	f.BoolVar(&o.quick, "quick", false, "one short round with few instances, to see that everything works; floors do not count")
	f.StringSliceVar(&o.only, "only", nil, "measure only these parts: load, scale, leases, coordination, replication (default: all)")
	f.StringVar(&o.data, "data", filepath.Join("data", "bench"), "directory for the nodes' data, on the disk to be measured; what is made in it is removed")
	f.StringArrayVar(&o.out, "out", nil, "file for the result, .json or .md; in an existing .md only the part between the marks is replaced (repeatable)")
	f.StringVar(&o.profiles, "profiles", "", "directory for CPU profiles of the leader and a follower under renewals and fetches; empty: none")
	o.server.addFlag(f)
	o.form.AddFlag(cmd)
	return cmd
}

func (o ratiosOptions) validate() error {
	var errs []error
	if o.rounds < 1 {
		errs = append(errs, fmt.Errorf("--rounds: %d is less than 1", o.rounds))
	}
	if o.window < 10*time.Millisecond {
		errs = append(errs, fmt.Errorf("--window: %v is less than 10ms", o.window))
	}
	if o.cut < 10*time.Millisecond {
		errs = append(errs, fmt.Errorf("--cut: %v is less than 10ms", o.cut))
	}
	for _, part := range o.only {
		if !slices.Contains(benchParts, benchPart(part)) {
			errs = append(errs, fmt.Errorf("--only: there is no part %q; parts are %v", part, benchParts))
		}
	}
	for _, path := range o.out {
		switch ext := filepath.Ext(path); {
		case ext != ".json" && ext != ".md":
			errs = append(errs, fmt.Errorf("--out: %s ends neither in .json nor in .md", path))
		case ext == ".md" && len(o.only) > 0:
			errs = append(errs, fmt.Errorf("--out: a page holds whole runs; %s needs one without --only", path))
		}
	}
	return errors.Join(append(errs, o.form.Validate())...)
}

// run measures everything and reports it.
func (o ratiosOptions) run(ctx context.Context, out, progress io.Writer) error {
	if err := errors.Join(clearSettings(), o.server.find()); err != nil {
		return err
	}
	defaults, err := o.server.defaults(ctx)
	if err != nil {
		return err
	}
	dir, remove, err := temporaryData(o.data)
	if err != nil {
		return err
	}
	defer remove()
	r := &report{Version: version, Date: time.Now().UTC().Format(time.DateOnly), Plan: o.plan(), figures: newFigures()}
	if r.Machine, err = describeMachine(dir); err != nil {
		return err
	}
	run := &ratiosRun{server: o.server, defaults: defaults, ratiosPlan: r.Plan, dir: dir, figures: r.figures, progress: progress, began: time.Now(), profiles: o.profiles}
	if err := run.all(ctx); err != nil {
		return err
	}
	if r.Rows, err = r.evaluate(r.Plan.rows()); err != nil {
		return err
	}
	return o.publish(r, out)
}

// publish prints and writes the report; a missed floor that counts is an error, and so are wrong answers.
func (o ratiosOptions) publish(r *report, out io.Writer) error {
	if err := o.form.Print(out, r); err != nil {
		return err
	}
	if o.form == cli.Table {
		for _, remark := range r.remarks() {
			fmt.Fprintln(out, remark)
		}
	}
	var errs []error
	for _, path := range o.out {
		errs = append(errs, r.write(path))
	}
	if len(r.wrong) > 0 {
		errs = append(errs, fmt.Errorf("wrong answers: %v", r.wrong))
	}
	if names := r.missed(); len(names) > 0 && r.Plan.uncounted(r.Machine) == "" {
		errs = append(errs, fmt.Errorf("floors were missed: %s", strings.Join(names, "; ")))
	}
	return errors.Join(errs...)
}

// temporaryData makes a directory below data, and data where it is missing. What was made is removed, unless
// somebody put something into it meanwhile.
func temporaryData(data string) (dir string, remove func(), err error) {
	made := absent(data)
	if err := os.MkdirAll(data, 0o700); err != nil {
		return "", nil, fmt.Errorf("--data: %w", err)
	}
	if dir, err = os.MkdirTemp(data, "run-"); err != nil {
		return "", nil, fmt.Errorf("--data: %w", err)
	}
	return dir, func() {
		os.RemoveAll(dir)
		for _, d := range made {
			os.Remove(d)
		}
	}, nil
}

// absent lists a directory and those above it, as far as they do not exist.
func absent(dir string) []string {
	var all []string
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			return all
		}
		all = append(all, dir)
	}
}

// ratiosPlan is how much is measured.
type ratiosPlan struct {
	rounds       int
	warm, window time.Duration
	instances    int // of the clusters for renewals and fetches
	few, many    int // of the clusters that show the cost of a large registry, and of what is replicated
	crashed      int // instances, one after the other
	watchers     int
	changes      int // that the watchers see
	keys         int // that are written
	contenders   int // for one lock
	handovers    int // of it
	sessions     int // that are renewed
	cut          time.Duration
	quick        bool
	parts        []benchPart
}

func (o ratiosOptions) plan() ratiosPlan {
	p := ratiosPlan{
		rounds: o.rounds, warm: min(o.window/4, time.Second), window: o.window, instances: 10_000, few: 1000, many: 100_000,
		crashed: 150, watchers: 1000, changes: 100, cut: o.cut,
		keys: 100_000, contenders: 100, handovers: 2000, sessions: 10_000, parts: o.parts(),
	}
	if o.quick {
		p.rounds, p.warm, p.window, p.quick = 1, 100*time.Millisecond, 300*time.Millisecond, true
		p.instances, p.few, p.many = 1000, 100, 5000
		p.crashed, p.watchers, p.changes, p.cut = 10, 60, 10, 5*time.Second
		p.keys, p.contenders, p.handovers, p.sessions = 2000, 10, 50, 100
	}
	return p
}

// parts are those to be measured, each once.
func (o ratiosOptions) parts() []benchPart {
	if len(o.only) == 0 {
		return benchParts
	}
	return slices.DeleteFunc(slices.Clone(benchParts), func(part benchPart) bool { return !slices.Contains(o.only, string(part)) })
}

// rows are those that the plan's parts measure.
func (p ratiosPlan) rows() []ratioRow {
	return slices.DeleteFunc(slices.Clone(ratioRows), func(r ratioRow) bool { return !slices.Contains(p.parts, r.in) })
}

// String says the plan in a sentence's part.
func (p ratiosPlan) String() string {
	rounds := "one round"
	if p.rounds > 1 {
		rounds = fmt.Sprintf("%d rounds", p.rounds)
	}
	return fmt.Sprintf("%s of %v for each figure; %s instances, few: %s, many: %s; %d crashes; %s watchers, %d changes; %s keys, %d contenders, %s sessions; a cut of %v",
		rounds, p.window, shortNumber(float64(p.instances)), shortNumber(float64(p.few)), shortNumber(float64(p.many)),
		p.crashed, shortNumber(float64(p.watchers)), p.changes,
		shortNumber(float64(p.keys)), p.contenders, shortNumber(float64(p.sessions)), p.cut)
}

// uncounted says why floors do not count, empty if they do.
func (p ratiosPlan) uncounted(m machine) string {
	const enough = 4
	switch {
	case p.quick:
		return "this was a quick run"
	case m.Cores < enough:
		return fmt.Sprintf("they are for %d cores or more, and this machine has %d", enough, m.Cores)
	}
	return ""
}
