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
	"github.com/seed-20419f34/rollcall/internal/wait"
)

// clients is what faults and storms do to a load. *load.Load implements it.
type clients interface {
	SetRates(rates map[string]float64)
	Die(which string) (int, error)
	Silence(which string) (count int, restart func(), err error)
	Flap(which string) (count int, stop func(), err error)
	AwaitWrite(ctx context.Context, node int) (writing int)
}

// links is which nodes the clients can reach. *load.Reach implements it.
type links interface {
	Split(nodes []int)
	Join()
}

// injector injects the faults of a scenario, and its storms, at their times.
type injector struct {
	scenario scenario.Scenario
	cluster  Cluster
	nodes    []scenario.Place
	leader   func(ctx context.Context) (int, error) // nil without leaders; the first node stands in for one
	clients  clients
	links    links
	mark     func() // marks what must be listed once a fault has healed
	drop     func(node int)
	began    time.Time
	length   time.Duration

	faults []trial.Fault // in the scenario's order; each has one writer until run has returned

	mu      sync.Mutex
	current []string // by number of fault: its text while it is current, or ""
}

// run returns when all faults and storms have ended. When ctx ends it returns at once, without undoing the rest: the
// cluster will be closed. The error joins what could not be injected or undone; everything else was.
func (i *injector) run(ctx context.Context) error {
	i.faults = make([]trial.Fault, len(i.scenario.Faults))
	i.mu.Lock()
	i.current = make([]string, len(i.faults))
	i.mu.Unlock()
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
	target, err := i.target(ctx, f.Nodes, 0)
	if err != nil {
		return fmt.Errorf("%s at %s: %w", f.Kind, f.At, err)
	}
	from := time.Now()
	s, err := i.strike(ctx, f, target)
	if err != nil {
		err = fmt.Errorf("%s: %w", s.text, err)
	}
	*record = trial.Fault{Kind: f.Kind, Text: s.text, Nodes: s.nodes, Count: s.count, Kills: s.kills, From: i.at(from), To: i.at(from)}
	i.setCurrent(number, s.text)
	if s.undo == nil {
		return err
	}
	if !until(ctx, from.Add(f.For.In(i.length))) {
		return err
	}
	return errors.Join(err, i.heal(ctx, number, s))
}

// heal undoes a fault. The mark comes first: otherwise lists requested now would be judged by an older one.
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

// setCurrent records the text of a current fault, or, if empty, its end.
func (i *injector) setCurrent(number int, text string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.current[number] = text
}

// underWay names the current faults, or returns "".
func (i *injector) underWay() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return strings.Join(slices.DeleteFunc(slices.Clone(i.current), func(text string) bool { return text == "" }), ", ")
}

// until waits for a time, and reports whether it came before ctx ended.
func until(ctx context.Context, t time.Time) bool { return wait.For(ctx, time.Until(t)) }

// target is the nodes that a fault strikes.
type target struct {
	nodes []int
	text  string // as in "leader node2"
}

// target returns the nodes that a selector currently means. Without a selector it returns none. standIn is the number
// of the node that stands in for the leader where no node leads.
func (i *injector) target(ctx context.Context, selector string, standIn int) (target, error) {
	if selector == "" {
		return target{}, nil
	}
	leader := standIn % len(i.nodes)
	byRole := strings.Contains(selector, "leader") || strings.Contains(selector, "follower")
	if i.leader != nil && byRole {
		var err error
		if leader, err = i.leader(ctx); err != nil {
			return target{}, err
		}
	}
	nodes, err := scenario.Select(selector, i.nodes, leader)
	return target{nodes: nodes, text: i.describe(selector, nodes)}, err
}

// describe names nodes, preceded by their role if the selector is a role and the mode has roles.
func (i *injector) describe(selector string, nodes []int) string {
	if len(nodes) == len(i.nodes) {
		return "all nodes"
	}
	text := ""
	for n, node := range nodes {
		switch {
		case n > 0 && n == len(nodes)-1:
			text += " and "
		case n > 0:
			text += ", "
		}
		text += i.nodes[node].Name
	}
	if i.leader != nil && slices.Contains([]string{"leader", "follower", "followers"}, selector) {
		text = selector + " " + text
	}
	return text
}
