package compare

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

const (
	stopWithin  = 10 * time.Second // after SIGTERM
	startWithin = 3 * time.Minute  // until a restarted node can serve: a Java server takes most of a minute
)

// stroke is an injected fault.
type stroke struct {
	text     string                          // as in "leader node2 killed (-9)"
	nodes    []int                           // struck nodes; for a partition the smaller side
	count    int                             // struck instances
	undo     func(ctx context.Context) error // nil if it is permanent
	restarts bool                            // nodes restart, and serve when undo has returned
	kills    []trial.Kill
}

// strike injects a fault. A stroke returned with an error may have struck in part.
func (i *injector) strike(ctx context.Context, f scenario.Fault, t target) (stroke, error) {
	switch f.Kind {
	case scenario.Kill:
		if f.Times > 0 {
			return i.killAmidWrites(ctx, f, t)
		}
		return i.endProcesses(t, "killed (-9)", i.cluster.Kill)
	case scenario.Lose:
		return i.lose(t)
	case scenario.Restart:
		return i.endProcesses(t, "stopped (SIGTERM)", func(node int) error { return i.stop(ctx, node) })
	case scenario.Pause:
		return stroke{
			text: t.text + " paused (SIGSTOP)", nodes: t.nodes,
			undo: func(context.Context) error { return each(t.nodes, i.cluster.Resume) },
		}, each(t.nodes, i.cluster.Pause)
	case scenario.SlowDisk:
		return i.slowDisk(t, f.Delay.Duration())
	case scenario.Isolate:
		return i.isolate(t), nil
	case scenario.CutLink:
		return i.cutDatacenters(), nil
	case scenario.Die:
		count, err := i.clients.Die(f.Instances)
		return ofInstances(count, "dead", nil), err
	case scenario.Silence:
		count, restart, err := i.clients.Silence(f.Instances)
		return ofInstances(count, "silent until their clients have restarted", restart), err
	case scenario.Flap:
		count, stop, err := i.clients.Flap(f.Instances)
		return ofInstances(count, "flapping", stop), err
	}
	return stroke{}, fmt.Errorf("a fault of kind %q is unknown", f.Kind)
}

// ofInstances returns the stroke of a fault of instances. end ends it; nil means that it is permanent.
func ofInstances(count int, what string, end func()) stroke {
	s := stroke{text: fmt.Sprintf("%d instances %s", count, what), nodes: []int{}, count: count}
	if count == 1 {
		s.text = "1 instance " + what
	}
	if end != nil {
		s.undo = func(context.Context) error {
			end()
			return nil
		}
	}
	return s
}

// endProcesses ends processes, which are restarted later.
func (i *injector) endProcesses(t target, how string, end func(node int) error) (stroke, error) {
	return stroke{
		text: t.text + " " + how, nodes: t.nodes, restarts: true, kills: i.killsOf(t.nodes),
		undo: func(ctx context.Context) error {
			return each(t.nodes, func(node int) error { return i.start(ctx, node) })
		},
	}, each(t.nodes, end)
}

// killsOf returns the ends of processes now.
func (i *injector) killsOf(nodes []int) []trial.Kill {
	var all []trial.Kill
	for _, node := range nodes {
		all = append(all, trial.Kill{At: i.at(time.Now()), Node: node})
	}
	return all
}

// lose ends nodes for good, with their disks.
func (i *injector) lose(t target) (stroke, error) {
	for _, node := range t.nodes {
		i.drop(node)
	}
	return stroke{text: t.text + " lost with its disk", nodes: t.nodes, kills: i.killsOf(t.nodes)}, each(t.nodes, i.cluster.Lose)
}

// killAmidWrites kills nodes again and again, each time at the moment a write is on its way there, and restarts each
// half a part later. undo starts the last ones, and waits until all serve.
func (i *injector) killAmidWrites(ctx context.Context, f scenario.Fault, t target) (stroke, error) {
	part, begun := f.For.In(i.length)/time.Duration(f.Times), time.Now()
	k := &killer{injector: i, restarts: make(map[int]*restart), part: part}
	var errs []error
	for n := range f.Times {
		turn := begun.Add(time.Duration(n) * part)
		if n > 0 {
			if !until(ctx, turn) {
				break
			}
			var err error
			if t, err = i.target(ctx, f.Nodes, n); err != nil {
				errs = append(errs, err)
				break
			}
		}
		for _, node := range t.nodes {
			errs = append(errs, k.kill(ctx, node, turn.Add(part/2)))
		}
	}
	if ctx.Err() != nil {
		errs = append(errs, k.awaitAll(ctx)) // nobody will undo it
	}
	text := fmt.Sprintf("%d kills (-9) amid writes", len(k.kills))
	return stroke{text: text, nodes: k.nodes(), restarts: true, kills: k.kills, undo: k.awaitAll}, errors.Join(errs...)
}

// killer kills nodes and starts them again. One goroutine uses it.
type killer struct {
	*injector
	part     time.Duration
	kills    []trial.Kill
	restarts map[int]*restart // by node: the newest
}

// restart is a start that was ordered, and may be under way.
type restart struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error // valid once done is closed
}

// kill kills a node when a write goes there, or soon if none does, and orders its start at a time.
func (k *killer) kill(ctx context.Context, node int, again time.Time) error {
	if before := k.restarts[node]; before != nil {
		before.cancel()
		<-before.done
	}
	aiming, cancel := context.WithTimeout(ctx, k.part/4)
	writing := k.clients.AwaitWrite(aiming, node)
	cancel()
	err := k.cluster.Kill(node)
	k.kills = append(k.kills, trial.Kill{At: k.at(time.Now()), Node: node, Writing: writing})
	r := &restart{done: make(chan struct{})}
	ctx, r.cancel = context.WithCancel(ctx)
	k.restarts[node] = r
	go func() {
		defer close(r.done)
		if until(ctx, again) {
			r.err = k.start(ctx, node)
		}
	}()
	return err
}

// awaitAll waits for the newest start of each node.
func (k *killer) awaitAll(context.Context) error {
	var errs []error
	for _, node := range k.nodes() {
		<-k.restarts[node].done // ends within startWithin, or with the trial
		k.restarts[node].cancel()
		errs = append(errs, k.restarts[node].err)
	}
	return errors.Join(errs...)
}

func (k *killer) nodes() []int { return slices.Sorted(maps.Keys(k.restarts)) }

func (i *injector) stop(ctx context.Context, node int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, stopWithin, fmt.Errorf("not stopped after %s", stopWithin))
	defer cancel()
	return i.cluster.Stop(ctx, node)
}

func (i *injector) start(ctx context.Context, node int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startWithin, fmt.Errorf("not ready after %s", startWithin))
	defer cancel()
	return i.cluster.Start(ctx, node)
}

func (i *injector) slowDisk(t target, delay time.Duration) (stroke, error) {
	set := func(delay time.Duration) error {
		return each(t.nodes, func(node int) error { return i.cluster.SlowDisk(node, delay) })
	}
	return stroke{
		text: fmt.Sprintf("disks of %s slower by %s", t.text, delay), nodes: t.nodes,
		undo: func(context.Context) error { return set(0) },
	}, set(delay)
}

// isolate cuts nodes off from all others, together with their clients. The smaller side counts as struck.
func (i *injector) isolate(t target) stroke {
	i.cut(t.nodes)
	var others []int
	for node := range i.nodes {
		if !slices.Contains(t.nodes, node) {
			others = append(others, node)
		}
	}
	smaller := t.nodes
	if len(others) < len(smaller) {
		smaller = others
	}
	return stroke{text: t.text + " isolated, clients included", nodes: smaller, undo: i.join}
}

// cutDatacenters cuts the datacenters off from each other, and the clients of each from the others. No side is the
// smaller one, so it counts as striking no node.
func (i *injector) cutDatacenters() stroke {
	sides := make(map[string][]int)
	for node, place := range i.nodes {
		sides[place.Datacenter] = append(sides[place.Datacenter], node)
	}
	for _, nodes := range sides {
		i.cut(nodes)
	}
	return stroke{text: "links between the datacenters cut", nodes: []int{}, undo: i.join}
}

// cut cuts every link between nodes on a side and those that are not, also for clients.
func (i *injector) cut(side []int) {
	for a := range i.nodes {
		for b := range a {
			if slices.Contains(side, a) != slices.Contains(side, b) {
				i.cluster.Cut(a, b)
			}
		}
	}
	i.links.Split(side)
}

func (i *injector) join(context.Context) error {
	i.cluster.Heal()
	i.links.Join()
	return nil
}

// each does something to all nodes at once, and joins the errors.
func each(nodes []int, do func(node int) error) error {
	errs := make([]error, len(nodes))
	var all sync.WaitGroup
	for i, node := range nodes {
		all.Go(func() { errs[i] = do(node) })
	}
	all.Wait()
	return errors.Join(errs...)
}
