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
	default:
		return i.strikeInstances(f)
	}
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
func (i *injector) killAmidWrites(ctx context.Context, f scenario.Fault, first target) (stroke, error) {
	part := f.For.In(i.length) / time.Duration(f.Times)
	begun := time.Now()
	k := &killer{injector: i, restarts: make(map[int]*restart), part: part}
	var errs []error
	for n, t := 0, first; ; {
		errs = append(errs, k.kill(ctx, t, begun.Add(time.Duration(n)*part+part/2)))
		n++
		if n == f.Times || !until(ctx, begun.Add(time.Duration(n)*part)) {
			break
		}
		var err error
		if t, err = i.target(ctx, f.Nodes, n); err != nil {
			errs = append(errs, err)
			break
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

// kill kills nodes when a write goes there, or soon if none does, and orders their start at a time.
func (k *killer) kill(ctx context.Context, t target, again time.Time) error {
	var errs []error
	for _, node := range t.nodes {
		if before := k.restarts[node]; before != nil {
			before.cancel()
			<-before.done
		}
		aiming, cancel := context.WithTimeout(ctx, k.part/4)
		writing := k.clients.AwaitWrite(aiming, node)
		cancel()
		errs = append(errs, k.cluster.Kill(node))
		k.kills = append(k.kills, trial.Kill{At: k.at(time.Now()), Node: node, Writing: writing})
		k.order(ctx, node, again)
	}
	return errors.Join(errs...)
}

// order starts a node at a time.
func (k *killer) order(ctx context.Context, node int, at time.Time) {
	r := &restart{done: make(chan struct{})}
	ctx, r.cancel = context.WithCancel(ctx)
	k.restarts[node] = r
	go func() {
		defer close(r.done)
		if until(ctx, at) {
			r.err = k.start(ctx, node)
		}
	}()
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

// isolate cuts nodes off from all others, together with their clients.
func (i *injector) isolate(t target) stroke {
	i.cut(func(node int) bool { return slices.Contains(t.nodes, node) })
	i.links.Split(t.nodes)
	smaller := t.nodes
	if others := i.others(t.nodes); len(others) < len(t.nodes) {
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
	for datacenter, nodes := range sides {
		i.cut(func(node int) bool { return i.nodes[node].Datacenter == datacenter })
		i.links.Split(nodes)
	}
	return stroke{text: "links between the datacenters cut", nodes: []int{}, undo: i.join}
}

// cut cuts every link between a node on the side and one that is not.
func (i *injector) cut(onSide func(node int) bool) {
	for a := range i.nodes {
		for b := range a {
			if onSide(a) != onSide(b) {
				i.cluster.Cut(a, b)
			}
		}
	}
}

func (i *injector) join(context.Context) error {
	i.cluster.Heal()
	i.links.Join()
	return nil
}

func (i *injector) others(nodes []int) []int {
	var all []int
	for node := range i.nodes {
		if !slices.Contains(nodes, node) {
			all = append(all, node)
		}
	}
	return all
}

func (i *injector) strikeInstances(f scenario.Fault) (stroke, error) {
	s := stroke{nodes: []int{}}
	var end func()
	var err error
	switch f.Kind {
	case scenario.Die:
		s.count, err = i.clients.Die(f.Instances)
		s.text = instances(s.count) + " dead"
	case scenario.Silence:
		s.count, end, err = i.clients.Silence(f.Instances)
		s.text = instances(s.count) + " silent until their clients have restarted"
	case scenario.Flap:
		s.count, end, err = i.clients.Flap(f.Instances)
		s.text = instances(s.count) + " flapping"
	default:
		return s, fmt.Errorf("a fault of kind %q is unknown", f.Kind)
	}
	if end != nil {
		s.undo = func(context.Context) error {
			end()
			return nil
		}
	}
	return s, err
}

func instances(n int) string {
	if n == 1 {
		return "1 instance"
	}
	return fmt.Sprintf("%d instances", n)
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
