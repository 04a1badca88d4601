package compare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/bench/load"
	"github.com/seed-20419f34/rollcall/cmd/bench/observe"
	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/truth"
)

const (
	// registerWithin bounds the registration of the first instances, and each thousand of them adds perThousand.
	registerWithin = 30 * time.Second
	perThousand    = 10 * time.Second
	// spreading is from the registration of the first instances to the load's begin: without consensus they are still
	// on their way to the other nodes, and would count as missing there. They send heartbeats meanwhile.
	spreading = time.Second
	// headStart is from the begin of the observation to the load's, so that the first calls meet observers whose
	// connections stand.
	headStart = 300 * time.Millisecond
	// stuck is for how long after its length a load may still wait for responses before the trial is given up.
	stuck = time.Minute
	// endWithin bounds the asking of the nodes for what they hold at the end.
	endWithin = 10 * time.Second
)

// run is one trial under way.
type run struct {
	config   Config
	turn     turn
	progress *progress

	cluster  Cluster // nil: it could not be started
	nodes    []Node
	book     truth.Book
	reach    load.Reach
	history  load.History
	load     *load.Load
	observer *observe.Observer
	began    time.Time
}

// trial runs a trial on a cluster of its own. If the trial cannot be completed, the reason is the error, and is
// recorded in the trial; the measurements until then stay.
func (r *run) trial(ctx context.Context) (trial.Trial, error) {
	t := trial.Trial{
		Scenario: r.turn.scenario.Name, Mode: r.turn.mode, Round: r.turn.round, Seed: r.turn.seed,
		Length: trial.Of(r.length()),
	}
	r.progress.reportStart()
	err := r.onCluster(ctx, &t)
	if err != nil {
		t.Failed = err.Error()
	}
	r.progress.reportTrial(&t)
	return t, err
}

func (r *run) length() time.Duration { return r.config.length(r.turn.scenario) }

func (r *run) onCluster(ctx context.Context, t *trial.Trial) (err error) {
	s := r.turn.scenario
	cluster, err := r.config.Launch(ctx, Spec{Mode: r.turn.mode, Datacenters: s.Datacenters, Settings: s.Settings})
	if err != nil {
		return fmt.Errorf("start a cluster: %w", err)
	}
	defer func() {
		if closing := cluster.Close(); closing != nil {
			err = errors.Join(err, fmt.Errorf("end the cluster: %w", closing))
		}
	}()
	r.cluster, r.nodes = cluster, cluster.Nodes()
	for _, n := range r.nodes {
		t.Nodes = append(t.Nodes, trial.Node{Name: n.Name, Datacenter: n.Datacenter})
	}
	empty, taken := r.usage(), time.Now()
	if err := r.register(ctx); err != nil {
		return err
	}
	defer r.load.Stop()
	err = r.measure(ctx, t)
	for i := range empty {
		empty[i].At = trial.Since(r.began, taken)
	}
	t.Usage = append(empty, t.Usage...)
	return err
}

// usage is what the nodes use while nothing is registered. A node whose usage cannot be read is left out.
func (r *run) usage() []trial.Usage {
	var all []trial.Usage
	for i := range r.nodes {
		if u, err := r.cluster.Usage(i); err == nil {
			u.Node = i
			all = append(all, u)
		}
	}
	return all
}

// register lays the load out and registers its instances.
func (r *run) register(ctx context.Context) error {
	l, err := load.New(load.Config{
		Nodes: r.addresses(), Load: r.turn.scenario.Load, Seed: r.turn.seed,
		Timeout: r.config.Plan.Timeout.Duration(), Reach: &r.reach, Book: &r.book, History: &r.history,
	})
	if err != nil {
		return fmt.Errorf("lay out the load: %w", err)
	}
	within := registerWithin + time.Duration(r.turn.scenario.Load.Instances)*perThousand/1000
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("not done within %s", within))
	defer cancel()
	if err := l.Register(ctx); err != nil {
		l.Stop()
		return fmt.Errorf("register the first instances: %w (%w)", err, context.Cause(ctx))
	}
	r.load = l
	return nil
}

func (r *run) addresses() []string {
	var all []string
	for _, n := range r.nodes {
		all = append(all, n.HTTP)
	}
	return all
}

// measure runs the load, the faults and the observation, and writes down what they found.
func (r *run) measure(ctx context.Context, t *trial.Trial) error {
	r.began = time.Now().Add(spreading)
	watched := r.watched()
	r.observer = observe.New(watched)
	loading, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil) // not before: instances send heartbeats until the end
	observing, stop := context.WithCancel(ctx)
	var observers sync.WaitGroup
	observers.Go(func() {
		if until(observing, r.began.Add(-headStart)) {
			r.observer.Run(observing)
		}
	})
	faults, err := r.underLoad(loading, giveUp)
	r.awaitHealing(ctx, faults)
	stop()
	observers.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	t.Faults = faults
	t.Series = r.load.Series()
	t.History = r.history.Calls(r.began)
	r.observer.Into(t)
	t.Ending = r.ending(ctx, watched)
	t.Ended = trial.Since(r.began, time.Now())
	return err
}

func (r *run) watched() observe.Config {
	c := observe.Config{
		Nodes: r.addresses(), Mode: r.turn.mode, Began: r.began, Book: &r.book,
		Sightings: r.turn.scenario.Load.Sightings, Usage: r.cluster.Usage, Renewals: r.load.Renewals, Seed: r.turn.seed,
	}
	for _, n := range r.nodes {
		c.Names = append(c.Names, n.Name)
	}
	return c
}

// underLoad runs the load with the scenario's faults and storms, until it and they have ended. A load that never ends
// is given up, and ctx is canceled with it.
func (r *run) underLoad(ctx context.Context, giveUp context.CancelCauseFunc) ([]trial.Fault, error) {
	within := r.length() + stuck
	limit := time.AfterFunc(within, func() { giveUp(fmt.Errorf("the load has not ended after %s", within)) })
	defer limit.Stop()
	i := r.injector()
	reporting, stop := context.WithCancel(ctx)
	var beside sync.WaitGroup
	beside.Go(func() { r.progress.reportLoad(reporting, r.began, r.length(), r.load.Snapshot, i.underWay) })
	injected := make(chan error, 1)
	go func() { injected <- i.run(ctx) }()
	err := r.load.Run(ctx, r.began, r.length())
	err = errors.Join(err, <-injected)
	stop()
	beside.Wait()
	if ctx.Err() != nil {
		err = errors.Join(err, context.Cause(ctx))
	}
	return i.faults, err
}

func (r *run) injector() *injector {
	i := &injector{
		scenario: r.turn.scenario, cluster: r.cluster, clients: r.load, links: &r.reach, mark: r.book.Mark,
		began: r.began, length: r.length(),
	}
	for _, n := range r.nodes {
		i.nodes = append(i.nodes, scenario.Place{Name: n.Name, Datacenter: n.Datacenter})
	}
	if r.turn.mode == scenario.CP {
		i.leader = leaderOf(r.nodes)
	}
	return i
}

func (r *run) ending(ctx context.Context, watched observe.Config) []trial.Ending {
	ctx, cancel := context.WithTimeout(ctx, endWithin)
	defer cancel()
	app, keys := r.load.Keys()
	return observe.End(ctx, watched, app, keys, r.leaseEnds())
}

const (
	healWithin      = 15 * time.Second
	healWithinQuick = 8 * time.Second
	healPoll        = 50 * time.Millisecond
	// evictionLag is from the end of a lease until the instance must be gone: an eviction round each second, and the
	// lease clock, which is up to a second behind.
	evictionLag = 3 * time.Second
)

// leaseEnds is how long after its last sign of life an instance must not be listed any more.
func (r *run) leaseEnds() time.Duration {
	return r.turn.scenario.Load.Lease.Duration() + evictionLag
}

// awaitHealing waits until every node lists what was acknowledged before the last fault ended, and until the leases of
// the dead have ended, then until it lists what was acknowledged at all; in bounded time. The second mark comes after
// the first wait: set earlier, it would count what came after the fault as not healed.
func (r *run) awaitHealing(ctx context.Context, faults []trial.Fault) {
	within := healWithin
	if r.config.Plan.Quick {
		within = healWithinQuick
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	ended := r.began.Add(r.deaths(faults))
	await(ctx, healPoll, func() bool { return r.observer.Healed() && time.Now().After(ended) })
	r.book.Mark()
	await(ctx, healPoll, r.observer.Healed)
}

// deaths is the time, from the load's begin, at which the leases of all instances that died must have ended; 0: none
// died. A node that comes back gives each lease its time anew, and so does self-preservation once more when it goes off
// there.
func (r *run) deaths(faults []trial.Fault) time.Duration {
	died, last := false, time.Duration(0)
	for _, f := range faults {
		ended := max(f.To, f.Ready).Duration() + r.leaseEnds()
		if f.Kind == scenario.Die {
			died = true
		} else {
			ended += r.turn.scenario.Load.Lease.Duration()
		}
		last = max(last, ended)
	}
	if !died {
		return 0
	}
	return last
}

// await asks every so often until it is done or ctx ends.
func await(ctx context.Context, every time.Duration, done func() bool) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// progressEvery is from one line about a load to the next.
const progressEvery = 5 * time.Second

// progress writes how a trial goes, a line at a time. One goroutine at a time uses it.
type progress struct {
	to     io.Writer
	prefix string
	begun  time.Time
}

func newProgress(to io.Writer, number, of int, t turn) *progress {
	if to == nil {
		to = io.Discard
	}
	return &progress{to: to, begun: time.Now(), prefix: fmt.Sprintf("[%d/%d] %s, %s, round %d: ", number, of, t.scenario.Name, t.mode, t.round)}
}

// line writes one line. A write error does not stop the measurement.
func (p *progress) line(format string, args ...any) {
	fmt.Fprintf(p.to, p.prefix+format+"\n", args...)
}

func (p *progress) reportStart() { p.line("starting a cluster") }

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

// turn is a trial to be run.
type turn struct {
	scenario scenario.Scenario
	mode     scenario.Mode
	round    int // from 1
	seed     uint64
}

// turns are all trials in their order. They alternate the modes, so that slow changes of the machine do not count for
// one mode only.
func (c Config) turns() []turn {
	var all []turn
	modes := slices.Clone(c.Plan.Modes)
	for round := 1; ; round++ {
		before := len(all)
		for _, s := range c.Scenarios {
			if round > s.Rounds*max(c.Plan.Repeat, 1) {
				continue
			}
			for _, mode := range modes {
				all = append(all, turn{s, mode, round, seed(c.Plan.Seed, s.Name, round)})
			}
		}
		if len(all) == before {
			return all
		}
		slices.Reverse(modes)
	}
}

// seed is that of both modes in a round. It has 53 bits, which any reader of the raw file can hold.
func seed(base uint64, name string, round int) uint64 {
	h := fnv.New64a()
	h.Write([]byte(strconv.FormatUint(base, 10) + " " + name + " " + strconv.Itoa(round)))
	return h.Sum64() >> 11
}

const (
	leaderWithin = 5 * time.Second // one must have been elected, or there is no leader to strike
	leaderPoll   = 50 * time.Millisecond
	statusWithin = time.Second
)

// leaderOf finds the leader of the first datacenter by asking its nodes, and waits a while if there is none.
func leaderOf(nodes []Node) func(ctx context.Context) (int, error) {
	return func(ctx context.Context) (int, error) {
		transport := new(http.Transport)
		defer transport.CloseIdleConnections()
		h := &http.Client{Transport: transport}
		ctx, cancel := context.WithTimeoutCause(ctx, leaderWithin, fmt.Errorf("no leader within %s", leaderWithin))
		defer cancel()
		leader := -1
		await(ctx, leaderPoll, func() bool {
			leader = askForLeader(ctx, h, nodes)
			return leader >= 0
		})
		if leader < 0 {
			return 0, fmt.Errorf("find the leader: %w", context.Cause(ctx))
		}
		return leader, nil
	}
}

// askForLeader is the leader of the newest term that any node of the first datacenter knows of; -1: none. A former
// leader that is cut off may still believe that it leads.
func askForLeader(ctx context.Context, h *http.Client, nodes []Node) int {
	answers := make([]client.Status, len(nodes))
	var all sync.WaitGroup
	for i, n := range nodes {
		if n.Datacenter == nodes[0].Datacenter {
			all.Go(func() { answers[i], _ = askStatus(ctx, h, n.HTTP) }) // a node without a response knows no leader
		}
	}
	all.Wait()
	var newest client.Status
	for _, s := range answers {
		if s.Quorum && s.Leader != "" && s.Term >= newest.Term {
			newest = s
		}
	}
	return slices.IndexFunc(nodes, func(n Node) bool { return n.Name == newest.Leader })
}

// askStatus asks one node.
func askStatus(ctx context.Context, h *http.Client, addr string) (client.Status, error) {
	cl, err := client.New(client.Config{Servers: []string{"http://" + addr}, HTTPClient: h, Timeout: statusWithin})
	if err != nil {
		return client.Status{}, err
	}
	return cl.Status(ctx)
}

// Run runs every scenario in each mode, alternating: in each round all scenarios, of each first one mode, then the
// other; the next round begins with the other mode. Both have the same seed in a round. A trial that cannot be
// completed is recorded (trial.Trial.Failed), and the others run. The error is that of ctx, that of a scenario that does
// not fit into its length, or that of the first cluster if it could not be started: then no other would.
func Run(ctx context.Context, c Config) (*trial.Comparison, error) {
	if err := c.fits(); err != nil {
		return nil, err
	}
	started := time.Now()
	result := &trial.Comparison{
		Version: c.Version, Date: started.Format(time.DateOnly), Machine: c.Machine, Plan: c.Plan, Scenarios: c.Scenarios,
	}
	turns := c.turns()
	for i, turn := range turns {
		r := run{config: c, turn: turn, progress: newProgress(c.Progress, i+1, len(turns), turn)}
		t, err := r.trial(ctx)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("compare: %w", context.Cause(ctx))
		}
		if err != nil && i == 0 && r.cluster == nil {
			return nil, err
		}
		result.Trials = append(result.Trials, t)
	}
	result.Plan.Took = trial.Of(time.Since(started))
	return result, nil
}

// length is that of a scenario's load.
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
