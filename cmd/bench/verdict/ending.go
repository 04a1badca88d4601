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

// endings returns the ids that any node that could be asked ended with.
func endings(t *trial.Trial, what func(trial.Ending) []string) []string {
	found := make(map[string]bool)
	for _, e := range t.Ending {
		if e.Failed != "" {
			continue
		}
		for _, id := range what(e) {
			found[id] = true
		}
	}
	return names(found)
}

// lostNodes returns the nodes that were lost with their disks.
func lostNodes(t *trial.Trial) []int {
	var lost []int
	for _, f := range t.Faults {
		if f.Kind == scenario.Lose {
			lost = append(lost, f.Nodes...)
		}
	}
	return lost
}

// expected returns the nodes that must answer until the end: all but lost ones.
func expected(t *trial.Trial) []int {
	lost := lostNodes(t)
	return slices.DeleteFunc(numbers(len(t.Nodes)), func(n int) bool { return slices.Contains(lost, n) })
}

// silentNodes returns the names of the nodes that were not asked at the end, or gave no answer; lost ones are not
// expected to. A node with several answers counts as silent, too, because nobody knows which one counts.
func silentNodes(t *trial.Trial) []string {
	answers, failed := make(map[int]int), make(map[int]bool)
	for _, e := range t.Ending {
		answers[e.Node]++
		failed[e.Node] = failed[e.Node] || e.Failed != ""
	}
	var silent []string
	for _, node := range expected(t) {
		if answers[node] != 1 || failed[node] {
			silent = append(silent, t.NodeName(node))
		}
	}
	return silent
}

// nodesOfDatacenter is how many nodes each datacenter of every comparison has.
const nodesOfDatacenter = 3

// uncounted says which nodes of the scenario the trial does not know, or returns "" if it knows all.
func uncounted(t *trial.Trial, s scenario.Scenario) string {
	of := make(map[string]int)
	for _, n := range t.Nodes {
		of[n.Datacenter]++
	}
	datacenters := max(s.Datacenters, 1)
	if len(of) != datacenters || slices.ContainsFunc(slices.Collect(maps.Values(of)), func(nodes int) bool { return nodes != nodesOfDatacenter }) {
		return fmt.Sprintf("undecided: it has %d nodes in %d datacenters, and should have %d in each of %d", len(t.Nodes), len(of), nodesOfDatacenter, datacenters)
	}
	return ""
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
func convergence(t *trial.Trial, watched keys) Convergence {
	c := Convergence{Result: OK, Differ: []string{}, Lost: []string{}}
	asked := slices.DeleteFunc(slices.Clone(t.Ending), func(e trial.Ending) bool { return e.Failed != "" })
	for _, key := range held(asked, watched) {
		holders := holders(t, asked, key)
		if len(holders) > 1 {
			c.Differ = append(c.Differ, key)
			var parts []string
			for _, v := range slices.Backward(slices.Sorted(maps.Keys(holders))) {
				parts = append(parts, fmt.Sprintf("version %d at %s", v, strings.Join(holders[v], ", ")))
			}
			c.setText("%s differs: %s", key, strings.Join(parts, "; "))
			continue
		}
		for version := range holders {
			if older(watched[key], version) {
				c.Lost = append(c.Lost, key)
				c.setText("every node holds version %d of %s, though %s had been acknowledged", version, key, newestOf(watched[key]))
			}
		}
	}
	for _, id := range append(oneSided(asked), sealedApart(t, asked)...) {
		c.Differ = append(c.Differ, id)
		c.setText("some nodes list the instance %s, others do not, or in another version", id)
	}
	switch {
	case len(c.Differ)+len(c.Lost) > 0:
		c.Result = Violated
	case len(asked) == 0 || len(silentNodes(t)) > 0:
		c.Result = Undecided
		c.setText("%d of %d nodes gave an answer at the end", len(expected(t))-len(silentNodes(t)), len(t.Nodes))
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
func held(asked []trial.Ending, watched keys) []string {
	found := make(map[string]bool)
	for name := range watched {
		found[name] = true
	}
	for _, e := range asked {
		for key := range e.Keys {
			found[key] = true
		}
	}
	return names(found)
}

// holders returns the names of the nodes by the version of a key that they hold; 0 if it is not registered.
func holders(t *trial.Trial, asked []trial.Ending, key string) map[int64][]string {
	found := make(map[int64][]string)
	for _, e := range asked {
		found[e.Keys[key]] = append(found[e.Keys[key]], t.NodeName(e.Node))
	}
	return found
}

// sealedApart returns the sealed instances that not all nodes hold in the same version.
func sealedApart(t *trial.Trial, asked []trial.Ending) []string {
	var found []string
	for number, sealed := range t.Sealed {
		versions := make(map[int]bool)
		for _, e := range asked {
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

// older reports whether a version is older than what a key must hold when all calls are over: an acknowledged write
// was certainly sent after the version was written. Of two simultaneous writes either may be the later one, which
// counts.
func older(calls []trial.Call, version int64) bool {
	look := lastLook(version)
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

// lastLook returns a look after everything.
func lastLook(version int64) trial.Call {
	look := trial.Call{Action: trial.Look, Version: version, Outcome: trial.Done, Called: endless, Returned: endless}
	if version == 0 {
		look.Outcome = trial.NotFound
	}
	return look
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

// oneSided returns the instances that only some of the nodes lack, or list although they were canceled.
func oneSided(asked []trial.Ending) []string {
	found := make(map[string]bool)
	for _, what := range []func(trial.Ending) []string{
		func(e trial.Ending) []string { return e.Missing },
		func(e trial.Ending) []string { return e.Revived },
	} {
		count := make(map[string]int)
		for _, e := range asked {
			for _, id := range what(e) {
				count[id]++
			}
		}
		for id, of := range count {
			if of < len(asked) {
				found[id] = true
			}
		}
	}
	return names(found)
}
