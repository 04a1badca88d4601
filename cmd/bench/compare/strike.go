package compare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/wire"
)

const (
	stopWithin  = 10 * time.Second // after SIGTERM
	startWithin = 30 * time.Second // until a node that was started again may serve
)

// stroke is a fault that was injected.
type stroke struct {
	text     string                          // as in "leader node2 killed (-9)"
	nodes    []int                           // struck nodes; of a partition: the smaller side
	count    int                             // struck instances
	undo     func(ctx context.Context) error // nil: it stays
	restarts bool                            // nodes, which serve when undo has returned
}

// strike injects a fault. A stroke that comes with an error may have struck in part.
func (i *injector) strike(ctx context.Context, f scenario.Fault, t target) (stroke, error) {
	switch f.Kind {
	case scenario.Kill:
		return i.endProcesses(t, "killed (-9)", i.cluster.Kill)
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

// endProcesses ends processes, which are started again.
func (i *injector) endProcesses(t target, how string, end func(node int) error) (stroke, error) {
	return stroke{
		text: t.text + " " + how, nodes: t.nodes, restarts: true,
		undo: func(ctx context.Context) error {
			return each(t.nodes, func(node int) error { return i.start(ctx, node) })
		},
	}, each(t.nodes, end)
}

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

// cut cuts every link between two nodes of which one is on a side.
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

// each does something to all nodes at once, and joins what went wrong.
func each(nodes []int, do func(node int) error) error {
	errs := make([]error, len(nodes))
	var all sync.WaitGroup
	for i, node := range nodes {
		all.Go(func() { errs[i] = do(node) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// clients are what faults and storms do to a load. *load.Load implements it.
type clients interface {
	SetRates(rates map[string]float64)
	Die(which string) (int, error)
	Silence(which string) (count int, restart func(), err error)
	Flap(which string) (count int, stop func(), err error)
}

// links are which nodes the clients can reach. *load.Reach implements it.
type links interface {
	Split(nodes []int)
	Join()
}

// injector injects the faults of a scenario, and its storms, at their times.
type injector struct {
	scenario scenario.Scenario
	cluster  Cluster
	nodes    []scenario.Place
	leader   func(ctx context.Context) (int, error) // nil: there is none, and the first node stands for it
	clients  clients
	links    links
	mark     func() // marks what must be listed once a fault has healed
	began    time.Time
	length   time.Duration

	faults []trial.Fault // in the order of the scenario's; each has one writer until run has returned

	mu      sync.Mutex
	current map[int]string // texts of the faults that hold now, by number
}

// run returns when all faults and storms have ended. When ctx ends it returns at once, and leaves undone what was not
// undone yet: the cluster will be closed. The error joins what could not be injected or undone; everything else was.
func (i *injector) run(ctx context.Context) error {
	i.faults = make([]trial.Fault, len(i.scenario.Faults))
	errs := make([]error, len(i.scenario.Faults))
	var all sync.WaitGroup
	for number, f := range i.scenario.Faults {
		all.Go(func() { errs[number] = i.inject(ctx, number, f) })
	}
	for _, s := range i.scenario.Storms {
		all.Go(func() { i.storm(ctx, s) })
	}
	all.Wait()
	return errors.Join(errs...)
}

func (i *injector) storm(ctx context.Context, s scenario.Storm) {
	begin := i.began.Add(s.At.In(i.length))
	if !until(ctx, begin) {
		return
	}
	i.clients.SetRates(s.Load)
	until(ctx, begin.Add(s.For.In(i.length)))
	i.clients.SetRates(nil)
}

func (i *injector) inject(ctx context.Context, number int, f scenario.Fault) error {
	record := &i.faults[number]
	record.Kind = f.Kind
	if !until(ctx, i.began.Add(f.At.In(i.length))) {
		return nil
	}
	target, err := i.target(ctx, f.Nodes)
	if err != nil {
		return fmt.Errorf("%s at %s: %w", f.Kind, f.At, err)
	}
	from := time.Now()
	s, err := i.strike(ctx, f, target)
	if err != nil {
		err = fmt.Errorf("%s: %w", s.text, err)
	}
	*record = trial.Fault{Kind: f.Kind, Text: s.text, Nodes: s.nodes, Count: s.count, From: i.at(from), To: i.at(from)}
	i.setCurrent(number, s.text)
	if s.undo == nil {
		return err
	}
	if !until(ctx, from.Add(f.For.In(i.length))) {
		return err
	}
	return errors.Join(err, i.heal(ctx, number, s))
}

// heal undoes a fault. The mark comes first, or lists that are asked for now would be judged by an older one.
func (i *injector) heal(ctx context.Context, number int, s stroke) error {
	i.mark()
	i.faults[number].To = i.at(time.Now())
	err := s.undo(ctx)
	if err != nil {
		err = fmt.Errorf("undo %q: %w", s.text, err)
	}
	if s.restarts && err == nil {
		i.faults[number].Ready = i.at(time.Now())
	}
	i.setCurrent(number, "")
	return err
}

func (i *injector) at(t time.Time) trial.Micros { return trial.Since(i.began, t) }

// setCurrent records the text of a fault that holds now; empty: it has ended.
func (i *injector) setCurrent(number int, text string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.current == nil {
		i.current = make(map[int]string)
	}
	i.current[number] = text
}

// underWay says which faults hold now; empty: none.
func (i *injector) underWay() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	var texts []string
	for number := range i.scenario.Faults {
		if text := i.current[number]; text != "" {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, ", ")
}

// until waits for a time, and reports whether it came before ctx ended.
func until(ctx context.Context, t time.Time) bool { return wire.Pause(ctx, time.Until(t)) }

// target is the nodes that a fault strikes.
type target struct {
	nodes []int
	text  string // as in "leader node2"
}

// target finds the nodes that a selector means now. Without a selector there are none.
func (i *injector) target(ctx context.Context, selector string) (target, error) {
	if selector == "" {
		return target{}, nil
	}
	leader := 0
	if i.leader != nil && byRole(selector) {
		var err error
		if leader, err = i.leader(ctx); err != nil {
			return target{}, err
		}
	}
	nodes, err := scenario.Select(selector, i.nodes, leader)
	return target{nodes: nodes, text: i.describe(selector, nodes)}, err
}

var roles = []string{"leader", "follower", "followers"}

// byRole reports whether a selector depends on which node leads.
func byRole(selector string) bool {
	return slices.ContainsFunc(roles, func(role string) bool { return strings.Contains(selector, role) })
}

// describe names nodes, and before them their role if the selector is a role and the mode has roles.
func (i *injector) describe(selector string, nodes []int) string {
	if len(nodes) == len(i.nodes) {
		return "all nodes"
	}
	var names []string
	for _, n := range nodes {
		names = append(names, i.nodes[n].Name)
	}
	text := enumerate(names)
	if i.leader != nil && slices.Contains(roles, selector) {
		text = selector + " " + text
	}
	return text
}

// enumerate is "a", "a and b", or "a, b and c".
func enumerate(names []string) string {
	last := len(names) - 1
	if last < 1 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:last], ", ") + " and " + names[last]
}
