package verdict

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// longestStep is how long at most a list stands for the time before it: where none came for longer, nothing is
// known of the rest.
const longestStep = time.Second

// byNode are the lists that came, of each node, by the time of asking.
func byNode(lists []trial.List) map[int][]trial.List {
	found := make(map[int][]trial.List)
	for _, l := range lists {
		if !l.Failed {
			found[l.Node] = append(found[l.Node], l)
		}
	}
	for _, of := range found {
		slices.SortStableFunc(of, func(a, b trial.List) int { return cmp.Compare(a.Asked, b.Asked) })
	}
	return found
}

// integral is the mean over the nodes of a count times how long it stood, in instance-seconds. Each list stands for the
// time since the one before it.
func integral(lists []trial.List, count func(trial.List) int) float64 {
	nodes := byNode(lists)
	if len(nodes) == 0 {
		return 0
	}
	var sum trial.Micros
	for _, of := range nodes {
		for i := 1; i < len(of); i++ {
			step := min(of[i].Asked-of[i-1].Asked, trial.Of(longestStep))
			sum += trial.Micros(count(of[i])) * step
		}
	}
	return sum.Seconds() / float64(len(nodes))
}

// healings are how long each fault that ended took to heal.
func healings(t *trial.Trial) []Healing {
	found := []Healing{}
	nodes := byNode(t.Lists)
	for number, f := range t.Faults {
		if f.To > f.From {
			found = append(found, Healing{Fault: number, Seconds: healing(nodes, f.To, nextEnd(t.Faults, f.To))})
		}
	}
	return found
}

// nextEnd is when the next fault ended after a moment; from then on lists tell of that one. 0: none did.
func nextEnd(faults []trial.Fault, after trial.Micros) trial.Micros {
	var next trial.Micros
	for _, f := range faults {
		if f.To > f.From && f.To > after && (next == 0 || f.To < next) {
			next = f.To
		}
	}
	return next
}

// healing is when the slowest of the nodes that gave a list after the fault's end, and before until, first lacked
// nothing, in seconds after the end. -1: one of them, or all, did not.
func healing(nodes map[int][]trial.List, end, until trial.Micros) float64 {
	slowest := trial.Micros(-1)
	for _, of := range nodes {
		after := slices.DeleteFunc(slices.Clone(of), func(l trial.List) bool {
			return l.Asked < end || until > 0 && l.Asked >= until
		})
		if len(after) == 0 {
			continue
		}
		whole := slices.IndexFunc(after, func(l trial.List) bool { return l.Unhealed == 0 })
		if whole < 0 {
			return -1
		}
		slowest = max(slowest, after[whole].Asked-end)
	}
	if slowest < 0 {
		return -1
	}
	return slowest.Seconds()
}

// revived are the instances that some node listed again, or at the end, after their acknowledged cancel.
func revived(t *trial.Trial) []string {
	found := make(map[string]bool)
	for _, l := range t.Lists {
		for _, id := range l.Back {
			found[id] = true
		}
	}
	for _, id := range endings(t, func(e trial.Ending) []string { return e.Revived }) {
		found[id] = true
	}
	return names(found)
}

// endings are what any node that could be asked ended with.
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

// names are a set's elements, sorted.
func names(set map[string]bool) []string {
	return slices.AppendSeq(make([]string, 0, len(set)), slices.Values(slices.Sorted(maps.Keys(set))))
}

// removal describes how long dead instances were listed, each until the last node stopped. Never: some node
// listed it until the end.
func removal(departures []trial.Departure) Spread {
	longest := make(map[string]trial.Micros) // -1: until the end
	for _, d := range departures {
		if d.Canceled {
			continue
		}
		known, ok := longest[d.ID]
		switch {
		case d.Gone < 0 || ok && known < 0:
			longest[d.ID] = -1
		default:
			longest[d.ID] = max(known, d.Gone-d.Last)
		}
	}
	var values []trial.Micros
	for _, of := range longest {
		values = append(values, of)
	}
	return spreadOfMicros(values)
}

// spreadOfMicros describes spans in seconds. Negative ones never ended.
func spreadOfMicros(values []trial.Micros) Spread {
	var ended []float64
	for _, v := range values {
		if v >= 0 {
			ended = append(ended, v.Seconds())
		}
	}
	s := spreadOf(ended)
	s.Never = len(values) - len(ended)
	return s
}

// visibility describes how long registrations took until other nodes showed them, by way: nodes of the same
// datacenter, or of other ones.
func visibility(t *trial.Trial, abroad bool) map[trial.Way]Spread {
	found := make(map[trial.Way]Spread)
	for _, way := range trial.Ways {
		var delays []trial.Micros
		for _, s := range t.Sightings {
			if s.Way == way && s.From != s.To && (datacenter(t, s.From) != datacenter(t, s.To)) == abroad {
				delays = append(delays, s.Delay)
			}
		}
		if len(delays) > 0 {
			found[way] = spreadOfMicros(delays)
		}
	}
	return found
}

// datacenter is that of a node.
func datacenter(t *trial.Trial, node int) string {
	if node < 0 || node >= len(t.Nodes) {
		return ""
	}
	return t.Nodes[node].Datacenter
}

// falseEvictions counts the distinct instances that were evicted though their clients sent heartbeats.
func falseEvictions(evictions []trial.Eviction) int {
	found := make(map[string]bool)
	for _, e := range evictions {
		if e.Alive {
			found[e.ID] = true
		}
	}
	return len(found)
}
