package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
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
	errs := []error{validateRun(o.rounds, o.window, o.out), o.form.Validate()}
	for _, name := range o.peers {
		errs = append(errs, cli.OneOf("--peers", name, allPeers))
	}
	return errors.Join(errs...)
}

func (o peersOptions) run(ctx context.Context, out, progress io.Writer) error {
	const instances = 1000
	plan := ratiosPlan{rounds: o.rounds, warm: min(o.window/4, time.Second), window: o.window, instances: instances}
	ratios, setting, end, err := beginRun(ctx, o.server, o.data, plan, progress)
	if err != nil {
		return err
	}
	defer end()
	r := &peersRun{ratiosRun: ratios, found: o.found}
	if err := r.all(ctx, o.peers); err != nil {
		return err
	}
	return o.publish(&peersReport{setting, r}, out)
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
		errs = append(errs, writeReport(path, "peers", r, r.markdown()))
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
	bare, err := r.startBare(ctx)
	if err != nil {
		return err
	}
	defer bare.Stop()
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
		if err := r.measureBare(ctx); err != nil {
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
		err := r.underOneLeader(ctx, figureName(row.System+", "+row.Operation+", "+row.Call), c, func(leader string) (func(), error) {
			return r.measureRow(ctx, c, row, leader, max(s.warms, 1))
		})
		if err != nil {
			row.countWrong(load.WrongResponses{err.Error(): 1})
		}
	}
	return ctx.Err()
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
			P50: milliseconds(result.p50), P99: milliseconds(result.p99),
			CPU: float64((after.servers - before.servers).Microseconds()) / float64(max(result.right, 1)),
		}
		row.Samples = append(row.Samples, s)
		r.others = append(r.others, before.others(after, result.loadCPU))
		r.reportProgress("%s, %s, %s: %s /s %v", row.System, row.Operation, row.Call, shortNumber(s.Rate), row.Wrong)
	}, nil
}

// measureBare puts the loads of all rows on the bare handler, while no system runs: rows of one operation share a
// load, and reads fetch as many bytes.
func (r *peersRun) measureBare(ctx context.Context) error {
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
			result, err := l.send(ctx, r.bare, r.warm, r.window, func() {})
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

// fault says why a row does not count, or returns "" if it does.
func (row *peerRow) fault(rounds int) string {
	switch {
	case len(row.Wrong) > 0:
		return "invalid: " + row.Wrong.String()
	case len(row.Samples) < rounds:
		return fmt.Sprintf("not measured: %d of %d rounds", len(row.Samples), rounds)
	case slices.ContainsFunc(row.Samples, func(s peerSample) bool { return s.Rate == 0 || s.Bare == 0 }):
		return "invalid: nothing was answered in time"
	}
	return ""
}

// of returns the spread of something over the rounds.
func (row *peerRow) of(value func(peerSample) float64) string {
	var values []float64
	for _, s := range row.Samples {
		values = append(values, value(s))
	}
	return spreadOf(values).text("")
}

// peersReport is the result of a run.
type peersReport struct {
	runSetting
	*peersRun
}

// Table implements cli.Tabler.
func (r *peersReport) Table() [][]string {
	cells := [][]string{{"OPERATION", "SYSTEM", "CALL", "/S", "BARE /S", "OF BARE", "P50 MS", "P99 MS", "SERVERS' CPU µS", "MB/S", "WHEN IT ANSWERS"}}
	for _, operation := range peerOperations {
		for _, row := range r.rows {
			if row.Operation != operation {
				continue
			}
			measured := []string{row.fault(r.rounds), "", "", "", "", "", ""}
			if measured[0] == "" {
				measured = row.cells()
			}
			cells = append(cells, slices.Concat([]string{operation, row.System, row.Call}, measured, []string{row.Promise}))
		}
	}
	return cells
}

// cells returns the figures of a row that counts.
func (row *peerRow) cells() []string {
	bytes := ""
	if row.Operation == listing {
		bytes = row.of(func(s peerSample) float64 { return s.Rate * float64(s.Bytes) / 1e6 })
	}
	return []string{
		row.of(func(s peerSample) float64 { return s.Rate }), row.of(func(s peerSample) float64 { return s.Bare }),
		row.of(func(s peerSample) float64 { return s.Rate / s.Bare }),
		row.of(func(s peerSample) float64 { return s.P50 }), row.of(func(s peerSample) float64 { return s.P99 }),
		row.of(func(s peerSample) float64 { return s.CPU }), bytes,
	}
}

// quiet is the share of the processors that others may take.
const quiet = 0.1

// remarks returns the sentences below the table.
func (r *peersReport) remarks() []string {
	remarks := slices.Clone(r.notes)
	if len(r.versions) > 0 {
		remarks = append(remarks, "Versions: "+strings.Join(slices.Sorted(maps.Values(r.versions)), ", ")+".")
	}
	for _, name := range slices.Sorted(maps.Keys(r.lacks)) {
		remarks = append(remarks, fmt.Sprintf("%s was not measured: %s", name, r.lacks[name]))
	}
	if len(r.others) > 0 {
		s := spreadOf(r.others)
		remarks = append(remarks, fmt.Sprintf("Other programs and the kernel took %.0f %% of the processors (median; at most %.0f %%).", 100*s.Median, 100*s.Max))
	}
	if r.disturbed() {
		remarks = append(remarks, "These figures decide nothing: "+notQuiet+".")
	}
	return remarks
}

const notQuiet = "the machine was not quiet: repeat the run when it is"

// disturbed reports whether other programs took so much of the processors that the figures decide nothing.
func (r *peersReport) disturbed() bool { return len(r.others) > 0 && spreadOf(r.others).Median > quiet }

func (r *peersReport) plan() string {
	return fmt.Sprintf("%s of %v for each figure; %s instances", roundsText(r.rounds), r.window, shortNumber(float64(r.instances)))
}

func (r *peersReport) markdown() []byte { return r.page(r.plan(), r.remarks(), r.Table()) }

// MarshalJSON implements json.Marshaler.
func (r *peersReport) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]any{
		"version": r.Version, "date": r.Date, "machine": r.Machine, "plan": r.plan(), "rows": r.rows,
		"remarks": r.remarks(),
	})
}
