package compare

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// clients are what faults and storms do to a load. *load.Load implements it.
type clients interface {
	SetRates(rates map[string]float64)
	Die(which string) (int, error)
	Silence(which string) (count int, restart func(), err error)
	Flap(which string) (count int, stop func(), err error)
}

// links are whom the clients can reach. *load.Reach implements it.
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
	mark     func() // notes what must be there once a fault has healed
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
	i.note(number, s.text)
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
	i.note(number, "")
	return err
}

func (i *injector) at(t time.Time) trial.Micros { return trial.Since(i.began, t) }

// note tells of a fault that holds, or with an empty text of its end.
func (i *injector) note(number int, text string) {
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
func until(ctx context.Context, t time.Time) bool {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
