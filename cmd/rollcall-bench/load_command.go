package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed-20419f34/rollcall/cmd/bench/load"
	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/cli"
)

// asCSV is a form of output that only bench run has.
const asCSV cli.Output = "csv"

// loadOptions are the flags of bench run.
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
		Long: "Registers instances at the servers, sends their heartbeats and whatever else the rates say, and prints\n" +
			"for every operation how many calls there were, what came of them, and how long they took. By default\n" +
			"calls are due by a fixed schedule that waits for no answer, and their latency counts from when they\n" +
			"were due, so that a server which stalls cannot hide it. With --closed every client sends its next call\n" +
			"when the last one was answered. At the end the instances are canceled. Ctrl-C ends the load early; what\n" +
			"was measured until then is printed.",
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

// validateLoad finds the mistakes in what is to be sent.
func (o *loadOptions) validateLoad() []error {
	errs := []error{
		inBounds("--instances", o.instances, fewestInstances, mostInstances),
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

// inBounds is an error about a flag that is out of its bounds.
func inBounds[T int | time.Duration](flag string, value, least, most T) error {
	if value < least || value > most {
		return fmt.Errorf("%s: %v is not between %v and %v", flag, value, least, most)
	}
	return nil
}

// wholeSeconds is an error about what Eureka's documents cannot carry.
func wholeSeconds(flag string, d time.Duration) error {
	if d < time.Second || d%time.Second != 0 {
		return fmt.Errorf("%s: %v is not a whole number of seconds", flag, d)
	}
	return nil
}

// servers are the addresses, as host:port, that the flags or the environment name.
func (o *loadOptions) servers() ([]string, error) {
	given := cli.SplitList(strings.Join(o.addrs, ","))
	if len(given) == 0 {
		given = cli.SplitList(cmp.Or(os.Getenv(cli.AddrEnv), cli.DefaultAddr))
	}
	var servers []string
	var errs []error
	for _, text := range given {
		addr, err := plainAddress(text)
		servers, errs = append(servers, addr), append(errs, err)
	}
	return servers, errors.Join(errs...)
}

// plainAddress is the host:port of a server's URL.
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

// load is what the flags ask for.
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

// loadKeys is how many instances are read and changed, through all nodes. They are never canceled, so that
// every read finds one.
const loadKeys = 30

// config is the load on some nodes.
func (o *loadOptions) config(nodes []string) load.Config {
	return load.Config{
		Nodes: nodes, Load: o.load(), Seed: o.seed, Prefix: strings.ToUpper(o.prefix),
		Connections: o.connections, Closed: o.closed, Timeout: o.timeout,
	}
}

// offered is how many calls per second the schedule sends. The cancels are not in it: they come when an
// instance has stayed for a while.
func (o *loadOptions) offered() float64 {
	all := float64(o.instances) / o.heartbeat.Seconds()
	for _, r := range o.rates() {
		all += r.value
	}
	return all
}

// run loads the cluster and reports what came of it.
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
