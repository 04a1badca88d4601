package compare

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

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
	// stuck is for how long after its length a load may still wait for answers before the trial is given up.
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

// trial runs a trial on a cluster of its own. What kept it from being completed is its error, and noted in it; what
// was measured until then stays.
func (r *run) trial(ctx context.Context) (trial.Trial, error) {
	t := trial.Trial{
		Scenario: r.turn.scenario.Name, Mode: r.turn.mode, Round: r.turn.round, Seed: r.turn.seed,
		Length: trial.Of(r.length()),
	}
	r.progress.starting()
	err := r.onCluster(ctx, &t)
	if err != nil {
		t.Failed = err.Error()
	}
	r.progress.ended(&t)
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

// usage is what the nodes use while nothing is registered. A node that cannot tell is left out.
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
	r.settle(ctx, faults)
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
	t.Settled = trial.Since(r.began, time.Now())
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

// underLoad runs the load with the scenario's faults and storms, until it and they have ended. What never ends is
// given up, and with it ctx.
func (r *run) underLoad(ctx context.Context, giveUp context.CancelCauseFunc) ([]trial.Fault, error) {
	within := r.length() + stuck
	guard := time.AfterFunc(within, func() { giveUp(fmt.Errorf("the load has not ended after %s", within)) })
	defer guard.Stop()
	i := r.injector()
	telling, stop := context.WithCancel(ctx)
	var beside sync.WaitGroup
	beside.Go(func() { r.progress.tell(telling, r.began, r.length(), r.load.Snapshot, i.underWay) })
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
