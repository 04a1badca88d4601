package verdict

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// endings returns the ids that any node ended with.
func (f *facts) endings(what func(trial.Ending) []string) []string {
	var found []string
	for _, e := range f.answered {
		found = append(found, what(e)...)
	}
	return unique(found)
}

// uncounted says which nodes of the scenario the trial does not know, or returns "" if it knows all.
func uncounted(t *trial.Trial, s scenario.Scenario) string {
	of := make(map[string]int)
	for _, n := range t.Nodes {
		of[n.Datacenter]++
	}
	datacenters, each := max(s.Datacenters, 1), scenario.NodesPerDatacenter
	if len(of) == datacenters && len(t.Nodes) == datacenters*each && slices.Max(slices.Collect(maps.Values(of))) == each {
		return ""
	}
	return fmt.Sprintf("undecided: it has %d nodes in %d datacenters, and should have %d in each of %d", len(t.Nodes), len(of), each, datacenters)
}

// withoutOldLists returns a trial whose ending counts nothing as revived if the list may be older than the cancel.
func withoutOldLists(t *trial.Trial, age time.Duration) *trial.Trial {
	if age == 0 {
		return t
	}
	late := make(map[string]bool)
	for _, d := range t.Departures {
		if d.Canceled && d.Last > t.Agreed-trial.Of(age) {
			late[d.ID] = true
		}
	}
	fresh := *t
	fresh.Ending = slices.Clone(t.Ending)
	for i, e := range fresh.Ending {
		fresh.Ending[i].Revived = slices.DeleteFunc(slices.Clone(e.Revived), func(id string) bool { return late[id] })
	}
	return &fresh
}

// convergence compares what the nodes held at the end with each other, and with what the rule says. Nodes that gave no
// answer leave it undecided, unless the others differ already.
func (f *facts) convergence() Convergence {
	c := Convergence{Result: OK, Differ: []string{}, Lost: []string{}}
	for _, key := range f.held() {
		holders := make(map[int64][]string) // names of nodes by version; 0 if it is not registered
		for _, e := range f.answered {
			holders[e.Keys[key]] = append(holders[e.Keys[key]], f.NodeName(e.Node))
		}
		if len(holders) > 1 {
			var parts []string
			for _, v := range slices.Backward(slices.Sorted(maps.Keys(holders))) {
				parts = append(parts, fmt.Sprintf("version %d at %s", v, strings.Join(holders[v], ", ")))
			}
			c.Differ = append(c.Differ, key)
			c.setText("%s differs: %s", key, strings.Join(parts, "; "))
			continue
		}
		for version := range holders {
			if older(f.watched[key], version) {
				c.Lost = append(c.Lost, key)
				c.setText("every node holds version %d of %s, though %s had been acknowledged", version, key, newestOf(f.watched[key]))
			}
		}
	}
	for _, id := range append(f.oneSided(), f.sealedApart()...) {
		c.Differ = append(c.Differ, id)
		c.setText("some nodes list the instance %s, others do not, or in another version", id)
	}
	switch {
	case len(c.Differ)+len(c.Lost) > 0:
		c.Result = Violated
	case len(f.answered) == 0 || len(f.silent) > 0:
		c.Result = Undecided
		c.setText("%d of %d nodes gave an answer at the end", len(f.expected)-len(f.silent), len(f.Nodes))
	}
	return c
}

// setText keeps the first sentence.
func (c *Convergence) setText(format string, args ...any) {
	if c.Text == "" {
		c.Text = fmt.Sprintf(format, args...)
	}
}

// held returns the watched keys that were called, or that a node holds.
func (f *facts) held() []string {
	found := f.watched.names()
	for _, e := range f.answered {
		found = slices.AppendSeq(found, maps.Keys(e.Keys))
	}
	return unique(found)
}

// sealedApart returns the sealed instances that not all nodes hold in the same version.
func (f *facts) sealedApart() (found []string) {
	for number, sealed := range f.Sealed {
		versions := make(map[int]bool)
		for _, e := range f.answered {
			if number < len(e.Sealed) {
				versions[e.Sealed[number]] = true
			}
		}
		if len(versions) > 1 {
			found = append(found, sealed.ID)
		}
	}
	return found
}

// oneSided returns the instances that only some of the nodes lack, or list although they were canceled.
func (f *facts) oneSided() []string {
	var found []string
	for _, what := range []func(trial.Ending) []string{
		func(e trial.Ending) []string { return e.Missing },
		func(e trial.Ending) []string { return e.Revived },
	} {
		nodes := make(map[string]int) // that say so
		for _, e := range f.answered {
			for _, id := range what(e) {
				nodes[id]++
			}
		}
		maps.DeleteFunc(nodes, func(_ string, of int) bool { return of >= len(f.answered) })
		found = slices.AppendSeq(found, maps.Keys(nodes))
	}
	return unique(found)
}

// older reports whether a version is older than what a key must hold when all calls are over: an acknowledged write
// was certainly sent after the version was written. Of two simultaneous writes either may be the later one, which
// counts.
func older(calls []trial.Call, version int64) bool {
	look := trial.Call{Action: trial.Look, Version: version, Outcome: trial.Done, Called: endless, Returned: endless} // after everything
	if version == 0 {
		look.Outcome = trial.NotFound
	}
	seen, end := seenBy(calls, look), trial.Micros(math.MinInt64)
	for _, c := range calls {
		if c.Action != trial.Look && c.Version == seen {
			end = max(end, c.Returned)
		}
	}
	_, behind := stale(calls, look)
	return behind > 0 && slices.ContainsFunc(calls, func(c trial.Call) bool {
		return c.Action != trial.Look && c.Outcome == trial.Done && c.Version > seen && c.Called > end
	})
}

// newestOf names the newest acknowledged write.
func newestOf(calls []trial.Call) string {
	var newest trial.Call
	for _, c := range calls {
		if c.Action != trial.Look && c.Outcome == trial.Done && c.Version > newest.Version {
			newest = c
		}
	}
	if newest.Action == trial.Remove {
		return "its cancel"
	}
	return fmt.Sprintf("version %d", newest.Version)
}
