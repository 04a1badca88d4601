package main

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/bench/load"
	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	verdicts "github.com/seed-20419f34/rollcall/cmd/bench/verdict"
	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/internal/setting"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

// asCSV is an output format that only bench run has.
const asCSV cli.Output = "csv"

// loadOptions holds the flags of bench run.
type loadOptions struct {
	addrs    []string
	allNodes bool

	instances        int
	heartbeat, lease time.Duration
	registers, reads float64
	writes           float64
	fetches, deltas  float64
	watchers         int
	closed           bool
	connections      int
	timeout          time.Duration
	warmUp, duration time.Duration
	seed             uint64
	prefix           string
	perApp           int
	keep             bool
	form             cli.Output
	out              []string
	progress         bool
}

func newBenchRunCommand() *cobra.Command {
	var o loadOptions
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Put load on a running cluster, and measure it",
		Long: "Registers instances at the servers, sends their heartbeats and the other calls of the rates, and prints\n" +
			"for every operation the number of calls, their outcomes, and how long they took. By default\n" +
			"calls are due by a fixed schedule that waits for no answer, and their latency counts from when they\n" +
			"were due, so that a server which stalls cannot hide it. With --closed every client sends its next call\n" +
			"when the last one was answered. At the end the instances are canceled. Ctrl-C ends the load early; the\n" +
			"measurements until then are printed.",
		Example: "  rollcall-bench run\n" +
			"  rollcall-bench run --addr 127.0.0.1:8761,127.0.0.1:8762,127.0.0.1:8763 --duration 1m\n" +
			"  rollcall-bench run --all-nodes --instances 100000 --heartbeat 30s --watchers 500\n" +
			"  rollcall-bench run --reads 0 --writes 0 --fetches 20 --deltas 500 -o json\n" +
			"  rollcall-bench run --closed --connections 64 --out load.json --out load.csv",
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return cli.Usage(err)
			}
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

func (o *loadOptions) addFlags(f *pflag.FlagSet) {
	f.StringSliceVar(&o.addrs, "addr", nil, "servers that share the load, by commas or repeated (environment: "+cli.AddrEnv+"; default "+cli.DefaultAddr+")")
	f.BoolVar(&o.allNodes, "all-nodes", false, "share the load among all nodes that the servers know, too")
	f.IntVar(&o.instances, "instances", 1000, "instances that are registered and send heartbeats")
	f.DurationVar(&o.heartbeat, "heartbeat", 30*time.Second, "each instance's interval between heartbeats")
	f.DurationVar(&o.lease, "lease", 90*time.Second, "each instance's lease")
	f.Float64Var(&o.registers, "registers", 10, "new instances per second, canceled after a while at the same rate")
	f.Float64Var(&o.reads, "reads", 100, "reads of one instance per second")
	f.Float64Var(&o.writes, "writes", 20, "changes of instances' metadata per second")
	f.Float64Var(&o.fetches, "fetches", 1, "fetches of the whole registry per second")
	f.Float64Var(&o.deltas, "deltas", 30, "fetches of the delta per second")
	f.IntVar(&o.watchers, "watchers", 0, "clients that hold a stream of changes open")
	f.BoolVar(&o.closed, "closed", false, "send as fast as answers come, the operations in the proportion of their rates")
	f.IntVar(&o.connections, "connections", 0, "clients that share the calls of each operation (0: enough for the rates)")
	f.DurationVar(&o.timeout, "timeout", 2*time.Second, "how long a client waits for an answer before it turns to the next server")
	f.DurationVar(&o.warmUp, "warm-up", 2*time.Second, "load before what counts")
	f.DurationVar(&o.duration, "duration", 30*time.Second, "load that counts")
	f.Uint64Var(&o.seed, "seed", 1, "of everything that is drawn: the same seed gives the same load")
	f.StringVar(&o.prefix, "prefix", "BENCH", "begin of the applications' names; loads on one cluster at the same time need different ones")
	f.IntVar(&o.perApp, "per-app", 0, "instances of each application (0: 10, or 100 where there are more than 1,000 in all)")
	f.BoolVar(&o.keep, "keep", false, "leave the instances registered at the end")
	f.StringVarP((*string)(&o.form), "output", "o", string(cli.Table), "form of the output: table, json, or csv (a row for each operation, node and 100 ms)")
	f.StringArrayVar(&o.out, "out", nil, "file for the result as well, .json or .csv (repeatable)")
	f.BoolVar(&o.progress, "progress", true, "a line every second on standard error: elapsed, calls per second, p99, failures")
}

// Bounds of bench run.
const (
	fewestInstances = 100
	mostInstances   = 100_000
	mostWatchers    = 50_000
	highestRate     = 1_000_000
	mostConnections = 10_000
)

// validate finds every mistake in the flags.
func (o *loadOptions) validate() error {
	errs := append(o.validateLoad(),
		cli.OneOf("--output", string(o.form), []string{string(cli.Table), string(cli.JSON), string(asCSV)}),
		inBounds("--timeout", o.timeout, 10*time.Millisecond, time.Minute),
		inBounds("--warm-up", o.warmUp, 0, time.Hour),
		inBounds("--duration", o.duration, time.Second, 24*time.Hour),
		inBounds("--connections", o.connections, 0, mostConnections))
	for _, path := range o.out {
		if ext := filepath.Ext(path); ext != ".json" && ext != ".csv" {
			errs = append(errs, fmt.Errorf("--out: %s ends neither in .json nor in .csv", path))
		}
	}
	_, err := o.servers()
	return errors.Join(append(errs, err)...)
}

// validateLoad finds the mistakes in what should be sent.
func (o *loadOptions) validateLoad() []error {
	errs := []error{
		inBounds("--instances", o.instances, fewestInstances, mostInstances),
		inBounds("--per-app", o.perApp, 0, mostInstances),
		inBounds("--watchers", o.watchers, 0, mostWatchers),
		wholeSeconds("--heartbeat", o.heartbeat),
		wholeSeconds("--lease", o.lease),
	}
	if o.lease <= o.heartbeat {
		errs = append(errs, fmt.Errorf("--lease: %v is not longer than --heartbeat (%v): every lease would end between two heartbeats", o.lease, o.heartbeat))
	}
	for _, r := range o.rates() {
		if math.IsNaN(r.value) || r.value < 0 || r.value > highestRate {
			errs = append(errs, fmt.Errorf("--%s: %v is not between 0 and %d calls per second", r.name, r.value, highestRate))
		}
	}
	if o.prefix == "" || strings.Trim(o.prefix, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		errs = append(errs, fmt.Errorf("--prefix: %q is not a name of letters, digits and dashes", o.prefix))
	}
	return errs
}

type namedRate struct {
	name  string
	value float64
}

func (o *loadOptions) rates() []namedRate {
	return []namedRate{{"registers", o.registers}, {"reads", o.reads}, {"writes", o.writes}, {"fetches", o.fetches}, {"deltas", o.deltas}}
}

// inBounds returns an error if a flag is out of its bounds.
func inBounds[T int | time.Duration](flag string, value, least, most T) error {
	if value < least || value > most {
		return fmt.Errorf("%s: %v is not between %v and %v", flag, value, least, most)
	}
	return nil
}

// wholeSeconds returns an error for a duration that Eureka's documents cannot carry.
func wholeSeconds(flag string, d time.Duration) error {
	if d < time.Second || d%time.Second != 0 {
		return fmt.Errorf("%s: %v is not a whole number of seconds", flag, d)
	}
	return nil
}

// servers returns the addresses, as host:port, that the flags or the environment name.
func (o *loadOptions) servers() ([]string, error) {
	given := setting.SplitList(strings.Join(o.addrs, ","))
	if len(given) == 0 {
		given = setting.SplitList(cmp.Or(os.Getenv(cli.AddrEnv), cli.DefaultAddr))
	}
	var servers []string
	var errs []error
	for _, text := range given {
		addr, err := plainAddress(text)
		servers, errs = append(servers, addr), append(errs, err)
	}
	return servers, errors.Join(errs...)
}

// plainAddress returns the host:port of a server's URL.
func plainAddress(text string) (string, error) {
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "", fmt.Errorf("--addr: %w", err)
	case u.Scheme != "http":
		return "", fmt.Errorf("--addr: %s: the load speaks plain HTTP, not %s", text, u.Scheme)
	case u.Hostname() == "" || u.Path != "" && u.Path != "/":
		return "", fmt.Errorf("--addr: %s is not a server; write http://HOST:PORT", text)
	case u.Port() == "":
		return u.Host + ":80", nil
	}
	return u.Host, nil
}

// load returns the load that the flags ask for.
func (o *loadOptions) load() scenario.Load {
	l := scenario.Load{
		Instances: o.instances, Heartbeat: scenario.Span(o.heartbeat), Lease: scenario.Span(o.lease),
		Registers: o.registers, Reads: o.reads, Writes: o.writes, Fetches: o.fetches, Deltas: o.deltas, Watchers: o.watchers,
	}
	if o.reads > 0 || o.writes > 0 {
		l.SharedKeys = loadKeys
	}
	return l
}

// loadKeys is how many instances are read and changed, through all nodes. They are never canceled, so that every read
// finds one.
const loadKeys = 30

// config returns the load on some nodes.
func (o *loadOptions) config(nodes []string) load.Config {
	return load.Config{
		Nodes: nodes, Load: o.load(), Seed: o.seed, Prefix: strings.ToUpper(o.prefix), PerApp: o.perApp,
		Connections: o.connections, Closed: o.closed, Timeout: o.timeout,
	}
}

// offered returns how many calls per second the schedule sends. It excludes cancels: they come when an instance has
// stayed for a while.
func (o *loadOptions) offered() float64 {
	all := float64(o.instances) / o.heartbeat.Seconds()
	for _, r := range o.rates() {
		all += r.value
	}
	return all
}

// run loads the cluster and reports the result.
func (o *loadOptions) run(ctx context.Context, out, errs io.Writer) error {
	run, err := o.open(ctx, errs)
	if err != nil {
		return err
	}
	result, err := run.measure(ctx)
	if err != nil {
		return err
	}
	return o.publish(result, out)
}

// loadRun is one run of bench run.
type loadRun struct {
	*loadOptions
	nodes []string // nodes that share the load, host:port
	mode  string   // of the cluster
	load  *load.Load
	errs  io.Writer

	began  time.Time     // of the load, warm-up included
	length time.Duration // of the measured part, as it was in the end
	late   lateness
	ended  string // why the load ended early; empty if it did not
}

// open finds the cluster and prepares the load.
func (o *loadOptions) open(ctx context.Context, errs io.Writer) (*loadRun, error) {
	servers, err := o.servers()
	if err != nil {
		return nil, err
	}
	r := &loadRun{loadOptions: o, nodes: servers, errs: errs}
	status, err := askStatus(ctx, servers)
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	r.mode = status.Mode
	if o.allNodes {
		if r.nodes, err = nodesOf(status); err != nil {
			return nil, err
		}
	}
	r.load, err = load.New(o.config(r.nodes))
	return r, err
}

func askStatus(ctx context.Context, servers []string) (client.Status, error) {
	cl, err := benchClient(servers...)
	if err != nil {
		return client.Status{}, err
	}
	defer cl.Close(ctx)
	return cl.Status(ctx)
}

// nodesOf returns the addresses of a cluster's nodes that can be reached by each other.
func nodesOf(status client.Status) ([]string, error) {
	var nodes []string
	for _, n := range status.Nodes {
		addr := n.HTTP
		if u, err := url.Parse(n.HTTP); err == nil && u.Host != "" { // without consensus nodes know each other by URL
			addr = u.Host
		}
		if addr != "" && n.Answers() {
			nodes = append(nodes, addr)
		}
	}
	if len(nodes) == 0 {
		return nil, fmt.Errorf("--all-nodes: %s tells no node's address", status.Node)
	}
	return nodes, nil
}

// measure registers the instances, runs the load, cancels them, and computes the summary.
func (r *loadRun) measure(ctx context.Context) (*loadSummary, error) {
	fmt.Fprintf(r.errs, "registering %d instances at %s\n", r.instances, strings.Join(r.nodes, ", "))
	if err := r.load.Register(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("register %d instances: %w", r.instances, err), r.cancelAll(ctx))
	}
	r.began = time.Now()
	err := r.send(ctx)
	r.length = min(r.duration, max(0, time.Since(r.began)-r.warmUp))
	if ctx.Err() != nil {
		r.ended, err = "It was interrupted", nil
	}
	watched := r.load.Watched()
	r.load.Stop()
	err = errors.Join(err, r.cancelAll(ctx))
	return r.summary(watched), err
}

// send runs the load, and what watches it.
func (r *loadRun) send(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var beside sync.WaitGroup
	defer beside.Wait()
	defer cancel()
	beside.Go(func() { r.late.watch(ctx) })
	if r.progress {
		beside.Go(func() { newProgressLine(r).run(ctx) })
	}
	return r.load.Run(ctx, r.began, r.warmUp+r.duration)
}

// cancelWithin bounds the cancels at the end.
const cancelWithin = time.Minute

// cancelAll cancels what was registered, even after Ctrl-C.
func (r *loadRun) cancelAll(ctx context.Context) error {
	if r.keep {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelWithin)
	defer cancel()
	if err := r.load.CancelAll(ctx); err != nil {
		return fmt.Errorf("cancel the instances, which go when their leases end: %w", err)
	}
	return nil
}

// counted returns the series without the warm-up.
func (r *loadRun) counted(all []trial.Series) []trial.Series {
	from, to := binOf(r.warmUp), binOf(r.warmUp+r.length)
	counted := make([]trial.Series, 0, len(all))
	for _, s := range all {
		var bins []trial.Bin
		for _, b := range s.Bins {
			if b.Number >= from && b.Number < to {
				b.Number -= from
				bins = append(bins, b)
			}
		}
		s.Bins = bins
		counted = append(counted, s)
	}
	return counted
}

// binOf returns the number of the bin that begins at d, or after it.
func binOf(d time.Duration) int { return int((d + trial.BinLength - 1) / trial.BinLength) }

// progressLine writes every second what the load does: on a terminal it rewrites one line, elsewhere it adds a line
// each time.
type progressLine struct {
	out      io.Writer
	terminal bool
	snapshot func() map[trial.Operation]load.Totals
	warmUp   time.Duration
	last     moment
}

// moment holds the totals up to a time.
type moment struct {
	at               time.Duration // since the start
	answered, failed int64
	latency          *hdrhistogram.Histogram
}

func newProgressLine(r *loadRun) *progressLine {
	return &progressLine{
		out: r.errs, terminal: cli.IsTerminal(r.errs), snapshot: r.load.Snapshot, warmUp: r.warmUp,
		last: moment{latency: load.NewLatency()},
	}
}

// run writes lines until ctx ends.
func (p *progressLine) run(ctx context.Context) {
	began := time.Now()
	wait.Every(ctx, time.Second, func(time.Time) { p.print(sumTotals(p.snapshot(), time.Since(began))) })
	if p.terminal {
		fmt.Fprintln(p.out)
	}
}

// print writes what has happened since the last line.
func (p *progressLine) print(now moment) {
	line := p.text(now)
	p.last = now
	if p.terminal {
		fmt.Fprintf(p.out, "\r\x1b[K%s", line) // erases the rest of a longer line
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

// sumTotals adds up the operations. Those without an answer count as failed.
func sumTotals(all map[trial.Operation]load.Totals, at time.Duration) moment {
	m := moment{at: at, latency: load.NewLatency()}
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

// p99Between returns the 99th percentile, in ms, of the latencies that the newer of two histograms has in addition.
func p99Between(older, newer *hdrhistogram.Histogram) float64 {
	was, is := older.Export(), newer.Export()
	for i := range is.Counts {
		is.Counts[i] -= was.Counts[i]
	}
	return float64(hdrhistogram.Import(is).ValueAtQuantile(99)) / 1000
}

const (
	lateEvery = 5 * time.Millisecond
	// lateLimit is how late (p99) the load generator's own goroutines may run before its figures describe the
	// generator more than the servers. Timers are late by about a millisecond on any machine.
	lateLimit = 10 * time.Millisecond
)

// lateness measures how late this process wakes up. Calls due then are sent as late, and responses read as late: part
// of each latency is not the servers'.
type lateness struct{ waits *hdrhistogram.Histogram }

// watch measures until ctx ends.
func (l *lateness) watch(ctx context.Context) {
	l.waits = load.NewLatency()
	for {
		due := time.Now().Add(lateEvery)
		if !wait.For(ctx, lateEvery) {
			return
		}
		l.add(time.Since(due))
	}
}

func (l *lateness) add(late time.Duration) {
	l.waits.RecordValue(min(max(late.Microseconds(), 0), load.LongestLatency)) // cannot fail: in range
}

// sentence says that the load generator was too slow, or returns "" if it was not.
func (l *lateness) sentence() string {
	if l.waits == nil {
		return ""
	}
	p99 := time.Duration(l.waits.ValueAtQuantile(99)) * time.Microsecond
	if p99 <= lateLimit {
		return ""
	}
	most := time.Duration(l.waits.Max()) * time.Microsecond
	return fmt.Sprintf("The load generator itself was late: for 1 %% of the time by %v or more (at most %v), which is in the latencies. "+
		"Send less, or from a machine of its own.", p99.Round(100*time.Microsecond), most.Round(100*time.Microsecond))
}

// loadSummary is the result of bench run. Scripts rely on its members' names.
type loadSummary struct {
	Version string        `json:"version"`
	Nodes   []string      `json:"nodes"`
	Mode    string        `json:"mode"` // of the cluster
	Loop    string        `json:"loop"` // open or closed
	Seed    uint64        `json:"seed"`
	Load    scenario.Load `json:"load"`
	WarmUp  float64       `json:"warm_up"` // seconds
	Seconds float64       `json:"seconds"` // of the measured part
	// calls per second, by the schedule of an open loop, without cancels
	Offered    float64                            `json:"offered,omitempty"`
	Sent       float64                            `json:"sent"`     // calls per second
	Answered   float64                            `json:"answered"` // calls per second
	Operations map[trial.Operation]verdicts.Calls `json:"operations"`
	Watchers   *watcherSummary                    `json:"watchers,omitempty"`
	Notes      []string                           `json:"notes"` // sentences

	series []trial.Series
}

// watcherSummary is what the watchers saw, warm-up included.
type watcherSummary struct {
	Watchers int   `json:"watchers"`
	Events   int64 `json:"events"` // changes received, on all streams
	Resets   int64 `json:"resets"` // times that a node could not tell what had changed
	Breaks   int64 `json:"breaks"` // streams that ended or could not start
	Bytes    int64 `json:"bytes"`
}

// summary computes the results of the run.
func (r *loadRun) summary(w load.Watched) *loadSummary {
	s := &loadSummary{
		Version: version, Nodes: r.nodes, Mode: r.mode, Loop: "open", Seed: r.seed, Load: r.loadOptions.load(),
		WarmUp: r.warmUp.Seconds(), Seconds: r.length.Seconds(), Offered: r.offered(),
		series: r.counted(r.load.Series()),
	}
	if r.closed {
		s.Loop, s.Offered = "closed", 0
	}
	if r.watchers > 0 {
		s.Watchers = &watcherSummary{r.watchers, w.Events, w.Resets, w.Breaks, w.Bytes}
	}
	s.count(r.length)
	s.Notes = slices.DeleteFunc([]string{r.early(), r.late.sentence(), s.behind()}, func(note string) bool { return note == "" })
	return s
}

// count sums the series up.
func (s *loadSummary) count(length time.Duration) {
	v := verdicts.Judge(&trial.Trial{Length: trial.Of(length), Series: s.series}, scenario.Column{}, scenario.Scenario{})
	s.Operations = v.Operations
	for _, calls := range s.Operations {
		s.Answered += calls.PerSecond
		if length > 0 {
			s.Sent += float64(calls.Count) / length.Seconds()
		}
	}
}

// early says that the run was shorter than it should have been.
func (r *loadRun) early() string {
	if r.ended == "" {
		return ""
	}
	return fmt.Sprintf("%s after %.1f s of %v.", r.ended, r.length.Seconds(), r.duration)
}

// behind says that the clients could not keep to the schedule.
func (s *loadSummary) behind() string {
	if s.Offered == 0 || s.Seconds == 0 {
		return ""
	}
	sent := s.Sent - float64(s.Operations[trial.Cancel].Count)/s.Seconds
	if sent >= 0.95*s.Offered {
		return ""
	}
	return fmt.Sprintf("Of the %s calls per second that were due, %s were sent. More --connections may help.", shortNumber(s.Offered), shortNumber(sent))
}

// unanswered returns an error if no call at all was answered.
func (s *loadSummary) unanswered() error {
	if s.Answered > 0 || s.Sent == 0 {
		return nil
	}
	return fmt.Errorf("none of the calls was answered by %s", strings.Join(s.Nodes, ", "))
}

// publish prints and writes the result.
func (o *loadOptions) publish(s *loadSummary, out io.Writer) error {
	errs := []error{s.print(out, o.form)}
	for _, path := range o.out {
		errs = append(errs, s.write(path))
	}
	return errors.Join(append(errs, s.unanswered())...)
}

func (s *loadSummary) print(out io.Writer, form cli.Output) error {
	if form == asCSV {
		return s.rows(out)
	}
	if err := form.Print(out, s); err != nil || form != cli.Table {
		return err
	}
	for _, note := range s.Notes {
		fmt.Fprintln(out, note)
	}
	return nil
}

func (s *loadSummary) write(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	return errors.Join(s.print(f, cli.Output(strings.TrimPrefix(filepath.Ext(path), "."))), f.Close())
}

// Table shows the operations, and then the totals of the run.
func (s *loadSummary) Table() [][]string {
	cells := [][]string{{"OPERATION", "CALLS", "ANSWERED/S", "SUCCESS", "P50", "P90", "P99", "P99.9", "MAX", "NOT DONE"}}
	for _, o := range trial.Operations {
		calls, ok := s.Operations[o]
		if !ok {
			continue
		}
		l := calls.Latency
		cells = append(cells, []string{
			string(o), strconv.Itoa(calls.Count), shortNumber(calls.PerSecond), shareText(calls.Success),
			millis(l.P50), millis(l.P90), millis(l.P99), millis(l.P999), millis(l.Max), otherwise(calls.Outcomes),
		})
	}
	cells = append(cells, nil, []string{"LOOP", "MODE", "NODES", "SECONDS", "OFFERED/S", "SENT/S", "ANSWERED/S"},
		[]string{s.Loop, s.Mode, strconv.Itoa(len(s.Nodes)), shortNumber(s.Seconds), s.offeredText(), shortNumber(s.Sent), shortNumber(s.Answered)})
	if w := s.Watchers; w != nil {
		cells = append(cells, nil, []string{"WATCHERS", "CHANGES", "RESETS", "BREAKS", "BYTES"},
			[]string{strconv.Itoa(w.Watchers), fmt.Sprint(w.Events), fmt.Sprint(w.Resets), fmt.Sprint(w.Breaks), fmt.Sprint(w.Bytes)})
	}
	return append(cells, nil)
}

func (s *loadSummary) offeredText() string {
	if s.Loop == "closed" {
		return ""
	}
	return shortNumber(s.Offered)
}

// millis formats seconds as milliseconds.
func millis(seconds float64) string { return shortNumber(seconds*1000) + " ms" }

// shareText formats a share so that only all of it is 100 %.
func shareText(share float64) string {
	if share == 1 {
		return "100 %"
	}
	return fmt.Sprintf("%.2f %%", min(share*100, 99.99))
}

// otherwise lists the outcomes other than done, the most important ones first.
func otherwise(outcomes map[trial.Outcome]int) string {
	var parts []string
	for _, o := range []trial.Outcome{trial.Unknown, trial.Refused, trial.Unreached, trial.NotFound} {
		if n := outcomes[o]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, o))
		}
	}
	return strings.Join(parts, ", ")
}

// rows writes a row for each operation, node and 100 ms: the calls by outcome, and the median, the 99th percentile and
// the maximum of the latencies, in ms; empty where none was answered.
func (s *loadSummary) rows(out io.Writer) error {
	w := csv.NewWriter(out)
	rows := [][]string{{"seconds", "operation", "node", "done", "not_found", "refused", "unreached", "unknown", "p50_ms", "p99_ms", "max_ms"}}
	for _, series := range s.series {
		for _, b := range series.Bins {
			begin := (time.Duration(b.Number) * trial.BinLength).Seconds()
			row := []string{strconv.FormatFloat(begin, 'f', 1, 64), string(series.Operation), s.Nodes[series.Node]}
			rows = append(rows, append(row, binColumns(&b)...))
		}
	}
	return w.WriteAll(rows)
}

// binColumns returns the calls of a bin by outcome, and the median, the 99th percentile and the maximum of the
// latencies in ms; empty where no call was answered.
func binColumns(b *trial.Bin) []string {
	var columns []string
	for _, o := range trial.Outcomes {
		columns = append(columns, strconv.Itoa(*b.Count(o)))
	}
	for _, q := range []float64{0.5, 0.99, 1} {
		text, left := "", max(1, int(math.Ceil(q*float64(b.Answered()))))
		for latency, n := range b.Pairs() {
			if left -= n; left <= 0 {
				text = strconv.FormatFloat(float64(latency)/1e3, 'f', 3, 64)
				break
			}
		}
		columns = append(columns, text)
	}
	return columns
}
