package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/cmd/bench/load"
	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
)

// peersOptions holds the flags of bench peers.
type peersOptions struct {
	rounds int
	window time.Duration
	peers  []string
	found  peerPrograms
	data   string
	out    []string
	form   cli.Output
	server server
}

func newBenchPeersCommand() *cobra.Command {
	var o peersOptions
	cmd := &cobra.Command{
		Use:   "peers",
		Short: "Measure Rollcall beside etcd, Consul and stock Eureka on this machine",
		Long: "Starts clusters of three nodes, one after the other: Rollcall in both modes, etcd, Consul and stock Eureka,\n" +
			"as they come. Puts the same loads on each, and on a bare net/http handler; and prints a table of operations and\n" +
			"systems, with what each has promised when it answers. docs/benchmarks.md explains the rows. It is an error if a peer was not measured or gave a wrong answer,\n" +
			"or if other programs took more than a tenth of the processors.",
		Example: "  rollcall-bench peers\n" +
			"  rollcall-bench peers --peers etcd,consul --rounds 3\n" +
			"  rollcall-bench peers --out docs/benchmarks.md --out peers.json",
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return cli.Usage(err)
			}
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.rounds, "rounds", 2, "times that everything is measured, each on new clusters")
	f.DurationVar(&o.window, "window", 4*time.Second, "how long each load counts")
	f.StringSliceVar(&o.peers, "peers", allPeers, "what is measured beside Rollcall; empty: nothing")
	f.StringVar(&o.found.dir, "programs", filepath.Join("integration", "clients", "wild", "bin"), "directory of etcd, its load and Consul, which make peers builds")
	f.StringVar(&o.found.jar, "eureka-jar", eurekaJar, "jar of a published Eureka server, which make eureka-server builds")
	f.StringVar(&o.data, "data", filepath.Join("data", "bench"), "directory for the nodes' data, on the disk to be measured; what is made in it is removed")
	f.StringArrayVar(&o.out, "out", nil, "file for the result, .json or .md; in an existing .md only the part between the marks is replaced (repeatable)")
	o.server.addFlag(f)
	o.form.AddFlag(cmd)
	return cmd
}

func (o peersOptions) validate() error {
	errs := []error{o.form.Validate()}
	if o.rounds < 1 {
		errs = append(errs, fmt.Errorf("--rounds: %d is less than 1", o.rounds))
	}
	if o.window < 10*time.Millisecond {
		errs = append(errs, fmt.Errorf("--window: %v is less than 10ms", o.window))
	}
	for _, path := range o.out {
		if ext := filepath.Ext(path); ext != ".json" && ext != ".md" {
			errs = append(errs, fmt.Errorf("--out: %s ends neither in .json nor in .md", path))
		}
	}
	for _, name := range o.peers {
		errs = append(errs, cli.OneOf("--peers", name, allPeers))
	}
	return errors.Join(errs...)
}

// run measures everything and reports it.
func (o peersOptions) run(ctx context.Context, out, progress io.Writer) error {
	if err := errors.Join(clearSettings(), o.server.find()); err != nil {
		return err
	}
	gcPercent, err := o.server.gcPercent(ctx)
	if err != nil {
		return err
	}
	dir, remove, err := temporaryData(o.data)
	if err != nil {
		return err
	}
	defer remove()
	machine, err := describeMachine(dir)
	if err != nil {
		return err
	}
	r := &peersRun{
		rounds: o.rounds, warm: min(o.window/4, time.Second), window: o.window, instances: 1000,
		server: o.server, gcPercent: gcPercent, found: o.found, dir: dir, progress: progress, began: time.Now(),
	}
	report := &peersReport{version, time.Now().UTC().Format(time.DateOnly), machine, r}
	if err := r.all(ctx, o.peers); err != nil {
		return err
	}
	return o.publish(report, out)
}

// publish prints and writes the report. What it leaves open is an error.
func (o peersOptions) publish(r *peersReport, out io.Writer) error {
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
	if r.disturbed() {
		errs = append(errs, errors.New(notQuiet))
	}
	for _, name := range slices.Sorted(maps.Keys(r.lacks)) {
		errs = append(errs, fmt.Errorf("%s was not measured: %s", name, r.lacks[name]))
	}
	for _, row := range r.rows {
		if fault := row.fault(r.rounds); fault != "" && r.lacks[row.System] == "" {
			errs = append(errs, fmt.Errorf("%s, %s, %s: %s", row.Operation, row.System, row.Call, fault))
		}
	}
	return errors.Join(errs...)
}

// all measures the systems in turn, in every round.
func (r *peersRun) all(ctx context.Context, peers []string) error {
	bare, err := startBare(ctx, r.dir, r.gcPercent)
	if err != nil {
		return err
	}
	defer bare.stop()
	r.lacks, r.versions = map[string]string{}, map[string]string{}
	systems := r.systems(peers)
	for _, s := range systems {
		r.rows = append(r.rows, s.rows...)
		if s.missing != "" {
			r.lacks[s.name] = s.missing
		}
	}
	for range r.rounds {
		for _, s := range systems {
			if r.lacks[s.name] != "" {
				continue
			}
			if err := r.measureSystem(ctx, s); ctx.Err() != nil {
				return context.Cause(ctx)
			} else if err != nil {
				r.lacks[s.name] = err.Error()
				r.reportProgress("%s: not measured: %v", s.name, err)
			}
		}
		if err := r.measureBare(ctx, bare.addr); err != nil {
			return err
		}
	}
	return nil
}

// measureSystem measures all rows of a system on a new cluster.
func (r *peersRun) measureSystem(ctx context.Context, s peerSystem) error {
	r.reportProgress("starting %s", s.name)
	dir, err := os.MkdirTemp(r.dir, "peer-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	c, err := s.start(ctx, dir)
	if err != nil {
		return err
	}
	defer c.stop()
	if err := r.prepare(ctx, s, c); err != nil {
		return err
	}
	for _, row := range s.rows {
		err := r.underOneLeader(ctx, row.System+", "+row.Operation+", "+row.Call, c, func(leader string) (func(), error) {
			return r.measureRow(ctx, c, row, leader, max(s.warms, 1))
		})
		if err != nil {
			row.countWrong(load.WrongResponses{err.Error(): 1})
		}
	}
	return ctx.Err()
}

// underOneLeader repeats a measurement until the same node led from its beginning to its end: otherwise it would have
// measured the election. measure is given the leader's address; the function that it returns records the result.
func (r *peersRun) underOneLeader(ctx context.Context, what string, c peerCluster, measure func(leader string) (record func(), err error)) error {
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
		r.notes = append(r.notes, fmt.Sprintf("Leadership moved during %q, which was measured again.", what))
		r.reportProgress("leadership moved during %q: once more", what)
	}
	return fmt.Errorf("%s: leadership moved in each of %d tries", what, tries)
}

// prepare makes what a system's loads need. What a busy machine has kept from being done is done again.
func (r *peersRun) prepare(ctx context.Context, s peerSystem, c peerCluster) (err error) {
	const tries = 3
	for range tries {
		var leader string
		if leader, err = awaitLeader(ctx, c); err == nil {
			err = s.prepare(ctx, leader)
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		r.reportProgress("%s: %v: once more", s.name, err)
	}
	return err
}

// measureRow puts a row's load on a system.
func (r *peersRun) measureRow(ctx context.Context, c peerCluster, row *peerRow, leader string, warms int) (record func(), err error) {
	var before peerUse
	result, err := row.load.send(ctx, leader, time.Duration(warms)*r.warm, r.window, func() { before = useOf(c) })
	after := useOf(c)
	for _, p := range c.processes() {
		if p.Ended() {
			err = errors.Join(err, errors.New("a server "+p.Obituary()))
		}
	}
	if err != nil {
		return nil, err
	}
	return func() {
		row.countWrong(result.wrong)
		s := peerSample{
			Rate: float64(result.right) / r.window.Seconds(), Bytes: result.bytes,
			P50: result.p50.Seconds() * 1000, P99: result.p99.Seconds() * 1000,
			CPU: float64((after.servers - before.servers).Microseconds()) / float64(max(result.right, 1)),
		}
		row.Samples = append(row.Samples, s)
		r.others = append(r.others, before.others(after, result.loadCPU))
		r.reportProgress("%s, %s, %s: %s /s %v", row.System, row.Operation, row.Call, shortNumber(s.Rate), row.Wrong)
	}, nil
}

// measureBare puts the loads of all rows on the bare handler, while no system runs: rows of one operation share a
// load, and reads fetch as many bytes.
func (r *peersRun) measureBare(ctx context.Context, addr string) error {
	rates := map[string]float64{}
	for _, row := range r.rows {
		if len(row.Samples) == 0 || row.Samples[len(row.Samples)-1].Bare > 0 { // not measured in this round
			continue
		}
		s := &row.Samples[len(row.Samples)-1]
		first := r.rows[slices.IndexFunc(r.rows, func(other *peerRow) bool { return other.Operation == row.Operation })]
		l, what := first.load.(httpLoad), row.Operation
		if what == listing || what == readingKey {
			l.requests, what = fetchesOf(barePath(s.Bytes)), fmt.Sprintf("%s, %d bytes", what, s.Bytes)
		}
		if _, known := rates[what]; !known {
			l.want = http.StatusOK
			syncDisk()
			result, err := l.send(ctx, addr, r.warm, r.window, func() {})
			if err != nil {
				return err
			}
			if len(result.wrong) > 0 {
				return fmt.Errorf("the bare handler: %s: %v", what, result.wrong)
			}
			rates[what] = float64(result.right) / r.window.Seconds()
			r.reportProgress("bare net/http, %s: %s /s", what, shortNumber(rates[what]))
		}
		s.Bare = rates[what]
	}
	return nil
}

// reportProgress writes a line of progress.
func (r *peersRun) reportProgress(format string, args ...any) {
	fmt.Fprintf(r.progress, "%4.0f s  %s\n", time.Since(r.began).Seconds(), fmt.Sprintf(format, args...))
}

// peerUse is the processor time used so far.
type peerUse struct {
	at                 time.Time
	servers, busy, own time.Duration // of the cluster, of all programs, of this one
}

func useOf(c peerCluster) peerUse {
	u := peerUse{at: time.Now()}
	u.busy, u.own, _ = machineUsage() // zero where it is unavailable, as for the servers
	for _, p := range c.processes() {
		u.servers += runningUsage(p.Pid()).cpu
	}
	return u
}

// others returns the share of the processors that programs outside the measurement took until a later time.
func (u peerUse) others(later peerUse, loadCPU time.Duration) float64 {
	took := (later.busy - u.busy) - (later.own - u.own) - (later.servers - u.servers) - loadCPU
	return max(0, took.Seconds()/later.at.Sub(u.at).Seconds()/float64(runtime.NumCPU()))
}
