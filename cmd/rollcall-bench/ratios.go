package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/seed-20419f34/rollcall/cmd/bench/load"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/wire"
	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/internal/localcluster"
)

// ratiosOptions holds the flags of bench ratios.
type ratiosOptions struct {
	rounds   int
	window   time.Duration
	cut      time.Duration
	quick    bool
	many     int
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
			"  rollcall-bench ratios --only scale --many 1000000\n" +
			"  rollcall-bench ratios --only coordination\n" +
			"  rollcall-bench ratios --only idle\n" +
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
	f.IntVar(&o.many, "many", 100_000, "instances of the large registry, in applications of 50; with a million give the nodes a bound, like GOMEMLIMIT=5GiB")
	f.BoolVar(&o.quick, "quick", false, "one short round with few instances, to see that everything works; floors do not count")
	f.StringSliceVar(&o.only, "only", nil, "measure only these parts: load, scale, leases, coordination, idle, replication (default: all)")
	f.StringVar(&o.data, "data", filepath.Join("data", "bench"), "directory for the nodes' data, on the disk to be measured; what is made in it is removed")
	f.StringArrayVar(&o.out, "out", nil, "file for the result, .json or .md; in an existing .md only the part between the marks is replaced (repeatable)")
	f.StringVar(&o.profiles, "profiles", "", "directory for CPU profiles of the leader and a follower under renewals and fetches; empty: none")
	o.server.addFlag(f)
	o.form.AddFlag(cmd)
	return cmd
}

func (o ratiosOptions) validate() error {
	errs := []error{validateRun(o.rounds, o.window, o.out), o.form.Validate()}
	if o.cut < 10*time.Millisecond {
		errs = append(errs, fmt.Errorf("--cut: %v is less than 10ms", o.cut))
	}
	if o.many < 1 || o.many > 1_000_000 {
		errs = append(errs, fmt.Errorf("--many: %d is not from 1 to 1000000", o.many))
	}
	for _, part := range o.only {
		if !slices.Contains(benchParts, benchPart(part)) {
			errs = append(errs, fmt.Errorf("--only: there is no part %q; parts are %v", part, benchParts))
		}
	}
	for _, path := range o.out {
		if filepath.Ext(path) == ".md" && len(o.only) > 0 {
			errs = append(errs, fmt.Errorf("--out: a page holds whole runs; %s needs one without --only", path))
		}
	}
	return errors.Join(errs...)
}

// validateRun refuses rounds and windows too small to measure anything, and files that are neither data nor pages.
func validateRun(rounds int, window time.Duration, out []string) error {
	var errs []error
	if rounds < 1 {
		errs = append(errs, fmt.Errorf("--rounds: %d is less than 1", rounds))
	}
	if window < 10*time.Millisecond {
		errs = append(errs, fmt.Errorf("--window: %v is less than 10ms", window))
	}
	for _, path := range out {
		if ext := filepath.Ext(path); ext != ".json" && ext != ".md" {
			errs = append(errs, fmt.Errorf("--out: %s ends neither in .json nor in .md", path))
		}
	}
	return errors.Join(errs...)
}

// run measures everything and reports it.
func (o ratiosOptions) run(ctx context.Context, out, progress io.Writer) error {
	run, setting, end, err := beginRun(ctx, o.server, o.data, o.plan(), progress)
	if err != nil {
		return err
	}
	defer end()
	run.profiles = o.profiles
	if err := run.all(ctx); err != nil {
		return err
	}
	r := &report{runSetting: setting, Plan: run.ratiosPlan, figures: run.figures}
	if r.Rows, err = r.evaluate(r.Plan.rows()); err != nil {
		return err
	}
	return o.publish(r, out)
}

// runSetting is when, where and what was measured.
type runSetting struct {
	Version string        `json:"version"`
	Date    string        `json:"date"` // of the run's start
	Machine trial.Machine `json:"machine"`
}

// beginRun makes everything for a run except its clusters. The caller calls end, which removes the run's data.
func beginRun(ctx context.Context, s server, data string, plan ratiosPlan, progress io.Writer) (run *ratiosRun, setting runSetting, end func(), err error) {
	if err := errors.Join(clearSettings(), s.find()); err != nil {
		return nil, setting, nil, err
	}
	defaults, err := s.defaults(ctx)
	if err != nil {
		return nil, setting, nil, err
	}
	dir, remove, err := temporaryData(data)
	if err != nil {
		return nil, setting, nil, err
	}
	setting = runSetting{Version: version, Date: time.Now().UTC().Format(time.DateOnly)}
	if setting.Machine, err = describeMachine(dir); err != nil {
		remove()
		return nil, setting, nil, err
	}
	return &ratiosRun{server: s, defaults: defaults, ratiosPlan: plan, dir: dir, figures: newFigures(), progress: progress, began: time.Now()}, setting, remove, nil
}

// publish prints and writes the report; a missed floor that counts is an error, and so are wrong responses.
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
		errs = append(errs, writeReport(path, "ratios", r, r.markdown()))
	}
	if len(r.wrong) > 0 {
		errs = append(errs, fmt.Errorf("wrong answers: %v", r.wrong))
	}
	if names := r.missed(); len(names) > 0 && r.Plan.uncounted(r.Machine) == "" {
		errs = append(errs, fmt.Errorf("floors were missed: %s", strings.Join(names, "; ")))
	}
	return errors.Join(errs...)
}

// temporaryData makes a directory below data, and data if it is missing. remove removes the directories that it made,
// unless other files were put into them meanwhile.
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

// absent lists those of a directory and its parents that do not exist.
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
	instances    int // on the clusters for renewals and fetches
	few, many    int // on the clusters that show the cost of a large registry, and of what is replicated
	crashed      int // instances, one after the other
	watchers     int
	changes      int           // that the watchers see
	keys         int           // written keys
	contenders   int           // for one lock
	handovers    int           // of it
	sessions     int           // renewed sessions
	idle         time.Duration // how long a cluster is left alone
	shown        int           // lone writes, each awaited on a follower
	cut          time.Duration
	quick        bool
	parts        []benchPart
}

func (o ratiosOptions) plan() ratiosPlan {
	p := ratiosPlan{
		rounds: o.rounds, warm: min(o.window/4, time.Second), window: o.window, instances: 10_000, few: 1000, many: o.many,
		crashed: 150, watchers: 1000, changes: 100, cut: o.cut,
		keys: 100_000, contenders: 100, handovers: 2000, sessions: 10_000, idle: 30 * time.Second, shown: 500, parts: o.parts(),
	}
	if o.quick {
		p.rounds, p.warm, p.window, p.quick = 1, 100*time.Millisecond, 300*time.Millisecond, true
		p.instances, p.few, p.many = 1000, 100, min(o.many, 5000)
		p.crashed, p.watchers, p.changes, p.cut = 10, 60, 10, 5*time.Second
		p.keys, p.contenders, p.handovers, p.sessions = 2000, 10, 50, 100
		p.idle, p.shown = time.Second, 20
	}
	return p
}

// parts returns the parts to measure, each once.
func (o ratiosOptions) parts() []benchPart {
	if len(o.only) == 0 {
		return benchParts
	}
	return slices.DeleteFunc(slices.Clone(benchParts), func(part benchPart) bool { return !slices.Contains(o.only, string(part)) })
}

// rows returns the rows that the plan's parts measure.
func (p ratiosPlan) rows() []ratioRow {
	return slices.DeleteFunc(slices.Clone(ratioRows), func(r ratioRow) bool { return !slices.Contains(p.parts, r.In) })
}

// String describes the plan as part of a sentence.
func (p ratiosPlan) String() string {
	return fmt.Sprintf("%s of %v for each figure; %s instances, few: %s, many: %s; %d crashes; %s watchers, %d changes; %s keys, %d contenders, %s sessions; %v idle; a cut of %v",
		roundsText(p.rounds), p.window, shortNumber(float64(p.instances)), shortNumber(float64(p.few)), shortNumber(float64(p.many)),
		p.crashed, shortNumber(float64(p.watchers)), p.changes,
		shortNumber(float64(p.keys)), p.contenders, shortNumber(float64(p.sessions)), p.idle, p.cut)
}

func roundsText(n int) string {
	if n == 1 {
		return "one round"
	}
	return fmt.Sprintf("%d rounds", n)
}

// uncounted says why floors do not count, or returns "" if they do.
func (p ratiosPlan) uncounted(m trial.Machine) string {
	const enough = 4
	switch {
	case p.quick:
		return "this was a quick run"
	case m.Cores < enough:
		return fmt.Sprintf("they are for %d cores or more, and this machine has %d", enough, m.Cores)
	}
	return ""
}

// ratiosRun is one run of bench ratios.
type ratiosRun struct {
	ratiosPlan
	*figures
	server   server
	defaults serverDefaults
	dir      string
	progress io.Writer
	began    time.Time
	profiles string   // directory; empty for none
	settings []string // of every node, other than the defaults

	bare string // address of the bare handler
}

// benchPart names what is measured together, on its own clusters.
type benchPart string

// The parts, in the order of measurement: few processes run at a time, and the last registration is long
// past when the delta is fetched.
const (
	loadPart         benchPart = "load"
	scalePart        benchPart = "scale"
	leasesPart       benchPart = "leases"
	coordinationPart benchPart = "coordination"
	idlePart         benchPart = "idle"
	replicationPart  benchPart = "replication"
)

var benchParts = []benchPart{loadPart, scalePart, leasesPart, coordinationPart, idlePart, replicationPart}

// all measures the parts of the plan.
func (r *ratiosRun) all(ctx context.Context) error {
	measures := map[benchPart]func(context.Context) error{
		loadPart: r.load, scalePart: r.scale, leasesPart: r.leases, coordinationPart: r.coordination, idlePart: r.idleCosts, replicationPart: r.replication,
	}
	for _, part := range r.parts {
		if err := measures[part](ctx); err != nil {
			return err
		}
	}
	return nil
}

// load measures everything that is compared with a bare handler.
func (r *ratiosRun) load(ctx context.Context) error {
	bare, err := r.startBare(ctx)
	if err != nil {
		return err
	}
	defer bare.Stop()
	return r.writesAndFetches(ctx)
}

// startBare starts the bare handler. The caller stops it.
func (r *ratiosRun) startBare(ctx context.Context) (*localcluster.Process, error) {
	ports, err := localcluster.ClaimPorts(1)
	if err != nil {
		return nil, err
	}
	r.bare = localcluster.Address(ports[0])
	bare, err := startBaseline(filepath.Join(r.dir, "bare", "log"), "bare", "--http-addr", r.bare, "--gc-percent", strconv.Itoa(r.defaults.GC.Percent))
	if err != nil {
		return nil, err
	}
	if err := awaitOK(ctx, "http://"+r.bare+barePath(0)); err != nil {
		bare.Stop()
		return nil, err
	}
	return bare, nil
}

// startBaseline starts this program as one of the baselines, in a process of its own like the nodes.
func startBaseline(log string, args ...string) (*localcluster.Process, error) {
	own, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	return localcluster.Start(log, nil, own, args...)
}

// clusterSpec is a cluster to be started.
type clusterSpec struct {
	name     string
	mode     string       // empty means with consensus
	fleets   []benchFleet // to register
	settings []string     // other than those of the run
}

// clusters starts clusters at the same time. The caller stops them; after an error none is left.
func (r *ratiosRun) clusters(ctx context.Context, specs ...clusterSpec) (clusters []*benchCluster, err error) {
	clusters = make([]*benchCluster, len(specs))
	var g errgroup.Group
	for i, spec := range specs {
		r.reportProgress("starting the cluster %q", spec.name)
		g.Go(func() (err error) {
			clusters[i], err = r.cluster(ctx, spec)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		stopClusters(clusters)
		return nil, err
	}
	return clusters, nil
}

func stopClusters(clusters []*benchCluster) {
	for _, c := range clusters {
		if c != nil {
			c.stop()
		}
	}
}

func (r *ratiosRun) cluster(ctx context.Context, spec clusterSpec) (*benchCluster, error) {
	c, err := startBenchCluster(ctx, r.server.path, filepath.Join(r.dir, spec.name), cmp.Or(spec.mode, localcluster.CP), slices.Concat(r.settings, spec.settings)...)
	if err != nil {
		return nil, fmt.Errorf("cluster %q: %w", spec.name, err)
	}
	for _, f := range spec.fleets {
		if err := c.register(ctx, f); err != nil {
			c.stop()
			return nil, fmt.Errorf("cluster %q: %w", spec.name, err)
		}
	}
	return c, nil
}

// reportProgress writes a line of progress.
func (r *ratiosRun) reportProgress(format string, args ...any) {
	fmt.Fprintf(r.progress, "%4.0f s  %s\n", time.Since(r.began).Seconds(), fmt.Sprintf(format, args...))
}

// record adds a figure to this round.
func (r *ratiosRun) record(name figureName, unit string, value float64) {
	r.add(name, unit, value)
	r.reportProgress("%s: %s %s", name, shortNumber(value), unit)
}

// renewals returns a load of renewals of the plan's size.
func (r *ratiosRun) renewals(conns int, requests load.Workload) load.Bulk {
	return load.Bulk{Conns: conns, Requests: requests, Want: http.StatusOK, Warm: r.warm, Window: r.window}
}

// loadStep is a load to measure: at the leader of a cluster while that leads, or at the load's own targets there.
type loadStep struct {
	name figureName
	at   *benchCluster // nil if it does not matter which node leads
	load.Bulk
	rate   float64                // per second, of an open loop; 0 means as fast as answers come
	record func(*load.BulkResult) // if nil, the rate becomes the figure
}

// send sends the load of a step to an address, unless it has targets. The function that it returns records the result.
func (r *ratiosRun) send(ctx context.Context, s loadStep, target string) (record func(), err error) {
	if s.Targets == nil {
		s.Targets = []string{target}
	}
	var result *load.BulkResult
	if s.rate > 0 {
		result, err = s.Open(ctx, s.rate)
	} else {
		result, err = s.Closed(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	r.countWrong(s.name, result.Wrong)
	if s.record != nil {
		return func() { s.record(result) }, nil
	}
	return func() { r.record(s.name, "/s", result.Rate) }, nil
}

// measure measures steps right after each other.
func (r *ratiosRun) measure(steps ...loadStep) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, s := range steps {
			send := func(leader string) (func(), error) { return r.send(ctx, s, leader) }
			if s.at != nil {
				if err := r.underOneLeader(ctx, s.name, s.at, send); err != nil {
					return err
				}
				continue
			}
			record, err := send("")
			if err != nil {
				return err
			}
			record()
		}
		return nil
	}
}

// measureBeside measures while a load goes on, which is stopped when the measurement is done.
func (r *ratiosRun) measureBeside(ctx context.Context, name figureName, l load.Bulk, rate float64, measure func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	l.Window = r.cut + load.BulkLongest
	var g errgroup.Group
	g.Go(func() error {
		result, err := l.Open(ctx, rate)
		if result == nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		r.countWrong(name, result.Wrong)
		return nil // the end of ctx is not an error here
	})
	err := measure(ctx)
	stop()
	return cmp.Or(err, g.Wait())
}

// await calls reached again and again until it returns true. An error counts as false: errors are normal during an
// election.
func await(ctx context.Context, what string, limit time.Duration, reached func(context.Context) (bool, error)) error {
	const look = 5 * time.Millisecond
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("waited %v in vain", limit))
	defer cancel()
	for pause := look; ; pause = min(2*pause, 10*look) {
		yes, err := reached(ctx)
		if yes && err == nil {
			return nil
		}
		if !wire.Pause(ctx, pause) {
			return fmt.Errorf("wait until %s: %w", what, errors.Join(context.Cause(ctx), err))
		}
	}
}

// led is a cluster that has a leader, or a node that stands for all.
type led interface {
	// leaderAddr is the address at which it serves clients.
	leaderAddr(context.Context) (string, error)
}

// awaitLeader waits for the leader, and returns its address.
func awaitLeader(ctx context.Context, c led) (addr string, err error) {
	return addr, await(ctx, "a node leads", localcluster.ReadyWithin, func(ctx context.Context) (bool, error) {
		addr, err = c.leaderAddr(ctx)
		return true, err
	})
}

// underOneLeader repeats a measurement until the same node led from its beginning to its end: otherwise it would have
// measured the election. measure is given the leader's address; the function that it returns records the result.
func (r *ratiosRun) underOneLeader(ctx context.Context, name figureName, c led, measure func(leader string) (record func(), err error)) error {
	const tries = 3
	for range tries {
		before, err := awaitLeader(ctx, c)
		if err != nil {
			return err
		}
		syncDisk()
		record, err := measure(before)
		if err != nil {
			return err
		}
		after, err := awaitLeader(ctx, c)
		if err != nil {
			return err
		}
		if after == before {
			record()
			return nil
		}
		r.addNote("Leadership moved during %q, which was measured again.", name)
		r.reportProgress("leadership moved during %q: once more", name)
	}
	return fmt.Errorf("%s: leadership moved in each of %d tries", name, tries)
}

// report is the result of a run.
type report struct {
	runSetting
	Plan ratiosPlan
	Rows []rowResult
	*figures
}

// Table shows rows and figures, for output.print.
func (r *report) Table() [][]string {
	return append(append(r.rowCells(), nil), r.figureCells()...)
}

func (r *report) rowCells() [][]string {
	cells := [][]string{{"RATIO", "FLOOR", "GOAL", "MEDIAN (MIN–MAX)", "VERDICT"}}
	for _, row := range r.Rows {
		cells = append(cells, []string{row.Name, row.limit(row.Floor), row.limit(row.Goal), row.Spread.text(row.Unit), string(row.Verdict)})
	}
	return cells
}

// limit formats a floor or goal as a condition on the value.
func (r rowResult) limit(v float64) string {
	if v == 0 {
		return ""
	}
	sign := "≥ "
	if r.Lower {
		sign = "≤ "
	}
	return sign + strings.TrimRight(strings.TrimRight(fmt.Sprintf("%.2f", v), "0"), ".")
}

func (r *report) figureCells() [][]string {
	cells := [][]string{{"FIGURE", "MEDIAN (MIN–MAX)"}}
	for _, f := range r.list {
		cells = append(cells, []string{string(f.Name), spreadOf(f.Values).text(f.Unit)})
	}
	return cells
}

// missed names the rows below their floor.
func (r *report) missed() []string {
	var names []string
	for _, row := range r.Rows {
		if row.Verdict == missed {
			names = append(names, row.Name)
		}
	}
	return names
}

// remarks returns the sentences below the tables.
func (r *report) remarks() []string {
	remarks := r.notes
	if len(r.wrong) > 0 {
		remarks = append(remarks, "Wrong answers: "+r.wrong.String()+".")
	}
	if reason := r.Plan.uncounted(r.Machine); reason != "" {
		remarks = append(remarks, "Floors do not count here: "+reason+".")
	}
	return remarks
}

// markdown returns the report as a part of a page.
func (r *report) markdown() []byte {
	return r.page(r.Plan.String(), r.remarks(), r.rowCells(), r.figureCells())
}

// MarshalJSON implements json.Marshaler.
func (r *report) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]any{
		"version": r.Version, "date": r.Date, "machine": r.Machine, "plan": r.Plan.String(),
		"rows": r.Rows, "figures": r.list, "wrong": r.wrong, "remarks": r.remarks(),
	})
}

// page returns a report as a part of a page: tables, whose first rows are heads, and sentences below them.
func (s runSetting) page(plan string, remarks []string, tables ...[][]string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "rollcall %s, %s; %s.\n\n%s.\n", s.Version, s.Date, plan, s.Machine)
	for _, cells := range tables {
		b.WriteByte('\n')
		for i, row := range cells {
			fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
			if i == 0 {
				fmt.Fprintf(&b, "|%s\n", strings.Repeat(" --- |", len(row)))
			}
		}
	}
	for _, remark := range remarks {
		fmt.Fprintf(&b, "\n%s\n", remark)
	}
	return b.Bytes()
}

// writeReport puts what a command has measured into a file, as JSON or Markdown by the file's extension.
func writeReport(path, command string, report json.Marshaler, markdown []byte) error {
	text, err := json.MarshalIndent(report, "", "  ")
	if text = append(text, '\n'); filepath.Ext(path) == ".md" {
		text, err = inPage(path, command, markdown)
	}
	if err == nil {
		err = os.WriteFile(path, text, 0o644)
	}
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	return nil
}

// reportMarks returns the lines that enclose a command's newest report in a page; the prose around them stays.
func reportMarks(command string) (begin, end []byte) {
	return fmt.Appendf(nil, "<!-- rollcall-bench %s: begin -->\n", command), fmt.Appendf(nil, "<!-- rollcall-bench %s: end -->\n", command)
}

// inPage replaces the report in a page, or begins one.
func inPage(path, command string, report []byte) ([]byte, error) {
	begin, end := reportMarks(command)
	page, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		page, err = slices.Concat(begin, end), nil
	}
	if err != nil {
		return nil, err
	}
	before, rest, begins := bytes.Cut(page, begin)
	_, after, ends := bytes.Cut(rest, end)
	if !begins || !ends {
		return nil, fmt.Errorf("%s has no lines %q and %q to put the report between", path, bytes.TrimSpace(begin), bytes.TrimSpace(end))
	}
	return slices.Concat(before, begin, report, end, after), nil
}
