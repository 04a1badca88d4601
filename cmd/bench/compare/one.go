package compare

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/load"
	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

const (
	// registerWithin bounds the registration of the first instances; each thousand of them adds perThousand.
	registerWithin = 30 * time.Second
	perThousand    = 10 * time.Second
	// spreading is from the registration of the first instances until the nodes are asked for their lists: without
	// consensus they are still on their way, and a server that makes its list too early keeps it for 30 s.
	spreading = time.Second
	// headStart is how long the observation runs before the load, so that the first calls meet observers with open
	// connections.
	headStart = 300 * time.Millisecond
	// stuck is how long after its length a load may still wait for responses, and for nodes that restart, before the
	// trial is abandoned.
	stuck = startWithin + time.Minute
	// endWithin bounds the questions about what the nodes hold at the end.
	endWithin = 2 * time.Minute
)

// waits are how long a trial waits for the servers of a system.
type waits struct {
	// listed bounds the time until every node lists the first instances: until then they would count as missing in a
	// cluster without faults. A node that does not list them by then is broken, and is observed as it is.
	listed time.Duration
	// healed bounds the time from the end of the load until the lists are right, healedQuick the same with --quick.
	healed, healedQuick time.Duration
	// An instance must be gone this many leases after its last sign of life, and evicted later.
	leases  time.Duration
	evicted time.Duration
}

var waitsFor = map[scenario.System]waits{
	// an eviction round each second, and a lease clock that is up to a second behind
	scenario.Rollcall: {listed: 10 * time.Second, healed: 15 * time.Second, healedQuick: 8 * time.Second, leases: 1, evicted: 3 * time.Second},
	// It makes its lists every 30 s, evicts every 60 s, and counts a lease twice.
	scenario.Eureka: {listed: 40 * time.Second, healed: 45 * time.Second, healedQuick: 45 * time.Second, leases: 2, evicted: 100 * time.Second},
}

// run is one trial under way.
type run struct {
	config   Config
	turn     turn
	progress *progress

	cluster  Cluster // nil if it could not be started
	nodes    []Node
	book     trial.Book
	reach    load.Reach
	history  load.History
	load     *load.Load
	observer *observer
	began    time.Time
}

// trial runs a trial on a cluster of its own. If the trial cannot be completed, the reason is returned, and recorded
// in the trial; the measurements until then are kept.
func (r *run) trial(ctx context.Context) (trial.Trial, error) {
	t := trial.Trial{
		Scenario: r.turn.scenario.Name, Column: r.turn.column.Name, Round: r.turn.round, Seed: r.turn.seed,
		Length: trial.Of(r.length()), Cores: r.config.Machine.Cores,
	}
	r.progress.line("starting a cluster%s", r.progress.left)
	begun := time.Now()
	err := r.onCluster(ctx, &t)
	t.Took = trial.Of(time.Since(begun))
	if err != nil {
		t.Failed = err.Error()
	}
	r.progress.reportTrial(&t)
	return t, err
}

func (r *run) length() time.Duration { return r.config.length(r.turn.scenario) }

func (r *run) waits() waits { return waitsFor[r.turn.column.System] }

func (r *run) onCluster(ctx context.Context, t *trial.Trial) (err error) {
	s := r.turn.scenario
	cluster, err := r.config.Launch(ctx, Spec{Column: r.turn.column, Datacenters: s.Datacenters, Settings: r.turn.column.SettingsFor(s)})
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

// usage returns what the nodes use while nothing is registered. It leaves out nodes whose usage cannot be read.
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

// register prepares the load and registers its instances.
func (r *run) register(ctx context.Context) error {
	l, err := load.New(load.Config{
		Nodes: r.addresses(), Load: r.clients(), Seed: r.turn.seed,
		Timeout: r.config.Plan.Timeout.Duration(), Reach: &r.reach, Book: &r.book, History: &r.history,
		AwaitListed: r.awaitListed,
	})
	if err != nil {
		return fmt.Errorf("lay out the load: %w", err)
	}
	within := waitsFor[scenario.Eureka].listed + registerWithin + time.Duration(r.turn.scenario.Load.Instances)*perThousand/1000
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("not done within %s", within))
	defer cancel()
	if err := l.Register(ctx); err != nil {
		l.Stop()
		return fmt.Errorf("register the first instances: %w (%w)", err, context.Cause(ctx))
	}
	r.load = l
	return nil
}

// awaitListed waits until the nodes list what was registered.
func (r *run) awaitListed(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, spreading+r.waits().listed)
	defer cancel()
	if wait.For(waiting, spreading) {
		awaitListed(waiting, r.addresses(), &r.book)
	}
	return ctx.Err()
}

// clients returns the scenario's load, without the calls that the column's servers cannot answer.
func (r *run) clients() scenario.Load {
	l := r.turn.scenario.Load
	if !r.turn.column.Streams() {
		l.Watchers = 0
	}
	return l
}

func (r *run) addresses() []string {
	var all []string
	for _, n := range r.nodes {
		all = append(all, n.HTTP)
	}
	return all
}

// measure runs the load, the faults and the observation, and records their results.
func (r *run) measure(ctx context.Context, t *trial.Trial) error {
	r.began = time.Now().Add(headStart)
	r.observer = newObserver(r.watched())
	loading, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil) // not earlier: instances send heartbeats until the end
	observing, stop := context.WithCancel(ctx)
	var observers sync.WaitGroup
	observers.Go(func() {
		if until(observing, r.began.Add(-headStart)) {
			r.observer.run(observing)
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
	t.Series, t.Clients, t.Forgotten = r.load.Series(), r.load.Clients(), r.load.Forgotten(r.began)
	t.History = r.history.Calls(r.began)
	r.observer.into(t)
	t.Ending = r.ending(ctx, t)
	t.Ended = trial.Since(r.began, time.Now())
	if t.Agreed == 0 {
		t.Agreed = t.Ended
	}
	return err
}

func (r *run) watched() observed {
	c := observed{
		Nodes: r.addresses(), Column: r.turn.column, Began: r.began, Length: r.length(), Book: &r.book,
		Sightings: r.turn.scenario.Load.Sightings, Usage: r.cluster.Usage, Renewals: r.load.Renewals, Machine: r.health, Seed: r.turn.seed,
	}
	if r.turn.scenario.HeartbeatsOnly() {
		c.Quiet = r.length()
	}
	for _, n := range r.nodes {
		c.Names = append(c.Names, n.Name)
	}
	return c
}

// health returns what the machine did since the last call.
func (r *run) health() (trial.Health, error) {
	h, err := r.config.Health()
	var worst time.Duration
	h.Due, h.Late, worst = r.load.Pace()
	h.Worst = trial.Of(worst)
	return h, err
}

// underLoad runs the load with the scenario's faults and storms, until all have ended. A load that never ends is
// abandoned, and ctx is canceled with it.
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
		drop: r.observer.drop, began: r.began, length: r.length(),
	}
	for _, n := range r.nodes {
		i.nodes = append(i.nodes, scenario.Place{Name: n.Name, Datacenter: n.Datacenter})
	}
	if r.turn.column.Leads() {
		i.leader = r.leader
	}
	return i
}

const (
	leaderWithin = 5 * time.Second // one must be elected, or there is no leader to strike
	leaderPoll   = 50 * time.Millisecond
)

// leader finds the leader of the first datacenter, and waits a while for one.
func (r *run) leader(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, leaderWithin, fmt.Errorf("find the leader: no leader within %s", leaderWithin))
	defer cancel()
	for {
		if leader := r.observer.leader(min(scenario.NodesPerDatacenter, len(r.nodes))); leader >= 0 {
			return leader, nil
		}
		if !wait.For(ctx, leaderPoll) {
			return 0, context.Cause(ctx)
		}
	}
}

// ending also fills in the trial's sealed instances: the nodes are asked for them.
func (r *run) ending(ctx context.Context, t *trial.Trial) []trial.Ending {
	ctx, cancel := context.WithTimeout(ctx, endWithin)
	defer cancel()
	held := held{Lease: r.leaseEnds()}
	held.App, held.Keys = r.load.Keys()
	held.SealedApp, t.Sealed = r.load.Sealed(r.began)
	for _, s := range t.Sealed {
		held.Sealed = append(held.Sealed, s.ID)
	}
	for _, f := range t.Faults {
		if f.Kind == scenario.Lose {
			held.Lost = append(held.Lost, f.Nodes...)
		}
	}
	endings, agreed := r.observer.end(ctx, held)
	if !agreed {
		t.Agreed = -1
	}
	for i := range endings {
		endings[i].Watched = r.observer.watched(endings[i].Node)
	}
	return endings
}

const (
	healPoll = 50 * time.Millisecond
	// sightWithin is how long registrations under way may still be looked for once the lists are right.
	sightWithin = 3 * time.Second
)

// leaseEnds returns how long after its last sign of life an instance must have left the lists.
func (r *run) leaseEnds() time.Duration {
	return r.waits().leases*r.turn.scenario.Load.Lease.Duration() + r.waits().evicted
}

// awaitHealing waits, for a bounded time, until every node lists what was acknowledged before the last fault ended,
// and until the leases of the dead have ended, then until it lists everything acknowledged. The second mark comes
// after the first wait: set earlier, it would count what came after the fault as not healed.
func (r *run) awaitHealing(ctx context.Context, faults []trial.Fault) {
	within := r.waits().healed
	if r.config.Plan.Quick {
		within = r.waits().healedQuick
	}
	ended := r.began.Add(r.deaths(faults))
	healing, cancel := context.WithTimeout(ctx, max(within, time.Until(ended)))
	defer cancel()
	await(healing, func() bool { return r.observer.healed() && time.Now().After(ended) })
	r.book.Mark()
	await(healing, r.observer.healed)
	sighting, cancel := context.WithTimeout(ctx, sightWithin)
	defer cancel()
	await(sighting, r.observer.sighted)
}

// deaths returns the time, from the load's start, at which the leases of all instances that died must have ended, or 0
// if none died. A node that comes back restarts each lease, and so does self-preservation when it goes off there.
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

// await asks at an interval until it is done or ctx ends.
func await(ctx context.Context, done func() bool) {
	for !done() && wait.For(ctx, healPoll) {
	}
}
