package verdict

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// longestStep bounds how long a list counts before its own time: if no list came for longer, the rest counts as
// nothing.
const longestStep = 2500 * time.Millisecond // the time that a node without an answer is waited for, and a little more

// answeredLists returns the lists that came.
func answeredLists(lists []trial.List) []trial.List {
	return slices.DeleteFunc(slices.Clone(lists), func(l trial.List) bool { return l.Failed })
}

// byNode returns the lists of each node, by the time of asking.
func byNode(lists []trial.List) map[int][]trial.List {
	found := make(map[int][]trial.List)
	for _, l := range lists {
		found[l.Node] = append(found[l.Node], l)
	}
	for _, of := range found {
		slices.SortStableFunc(of, func(a, b trial.List) int { return cmp.Compare(a.Asked, b.Asked) })
	}
	return found
}

// integral returns the mean over the nodes of a count times how long it stood during a load, in instance-seconds. Each
// list stands for the time since the one before it. Lists requested after the load do not count: how long nodes are
// asked then differs between the columns.
func integral(lists []trial.List, length trial.Micros, count func(trial.List) int) float64 {
	nodes := byNode(lists)
	if len(nodes) == 0 {
		return 0
	}
	var sum trial.Micros
	for _, of := range nodes {
		sum += stood(of, length, count)
	}
	return sum.Seconds() / float64(len(nodes))
}

// stood returns a count times how long it stood, for the lists of one node.
func stood(of []trial.List, length trial.Micros, count func(trial.List) int) trial.Micros {
	var sum trial.Micros
	for i := 1; i < len(of); i++ {
		from := max(of[i-1].Asked, of[i].Asked-trial.Of(longestStep), 0)
		sum += trial.Micros(count(of[i])) * max(min(of[i].Asked, length)-from, 0)
	}
	return sum
}

// healings returns how long each fault that ended took to heal.
func healings(t *trial.Trial) []Healing {
	found := []Healing{}
	nodes := byNode(answeredLists(t.Lists))
	for number, f := range t.Faults {
		if f.To > f.From {
			found = append(found, Healing{Fault: number, Seconds: healing(nodes, expected(t), f.To, nextEnd(t.Faults, f.To))})
		}
	}
	return found
}

// nextEnd returns when the next fault ended after a moment, or 0; from then on lists are about that one.
func nextEnd(faults []trial.Fault, after trial.Micros) trial.Micros {
	var next trial.Micros
	for _, f := range faults {
		if f.To > f.From && f.To > after && (next == 0 || f.To < next) {
			next = f.To
		}
	}
	return next
}

// healing returns when the slowest of the nodes first gave a complete list after the fault's end, and before until, in
// seconds after the end, or -1 if a node never did, or gave no list.
func healing(nodes map[int][]trial.List, expected []int, end, until trial.Micros) float64 {
	slowest := trial.Micros(-1)
	for _, node := range expected {
		whole := slices.IndexFunc(nodes[node], func(l trial.List) bool {
			return l.Asked >= end && (until == 0 || l.Asked < until) && l.Unhealed == 0
		})
		if whole < 0 {
			return -1
		}
		slowest = max(slowest, nodes[node][whole].Asked-end)
	}
	if slowest < 0 {
		return -1
	}
	return slowest.Seconds()
}

// revived returns the instances that some node listed again, or at the end, after their acknowledged cancel.
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

// names returns a set's elements, sorted.
func names(set map[string]bool) []string {
	return slices.AppendSeq(make([]string, 0, len(set)), slices.Values(slices.Sorted(maps.Keys(set))))
}

// lastGone returns how long the last node listed each instance that died, or that was canceled; -1 means until the
// end.
func lastGone(departures []trial.Departure, canceled bool) map[string]trial.Micros {
	longest := make(map[string]trial.Micros)
	for _, d := range departures {
		if d.Canceled != canceled {
			continue
		}
		switch known := longest[d.ID]; {
		case d.Gone < 0 || known < 0:
			longest[d.ID] = -1
		default:
			longest[d.ID] = max(known, d.Gone-d.Last)
		}
	}
	return longest
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

// visibility describes how long registrations took until other nodes showed them, by way, for nodes of the same
// datacenter, or of other ones.
func visibility(t *trial.Trial, abroad bool) map[trial.Way]Spread {
	delays := make(map[trial.Way][]trial.Micros)
	for _, s := range t.Sightings {
		if s.From != s.To && (datacenter(t, s.From) != datacenter(t, s.To)) == abroad {
			delays[s.Way] = append(delays[s.Way], s.Delay)
		}
	}
	found := make(map[trial.Way]Spread)
	for way, of := range delays {
		found[way] = spreadOfMicros(of)
	}
	return found
}

// datacenter returns a node's datacenter.
func datacenter(t *trial.Trial, node int) string {
	if node < 0 || node >= len(t.Nodes) {
		return ""
	}
	return t.Nodes[node].Datacenter
}

// told reports whether the stream of changes of every node except lost ones was read for at least half of the time for
// which the node ran.
func told(t *trial.Trial) bool {
	watched := make(map[int]trial.Micros)
	for _, e := range t.Ending {
		watched[e.Node] = e.Watched
	}
	return len(t.Nodes) > 0 && !slices.ContainsFunc(expected(t), func(node int) bool {
		return watched[node] <= 0 || 2*watched[node] < up(t, node)
	})
}

// listed reports whether every node except lost ones gave a list during the load. It need not do so all the time: one
// that is cut off may refuse to, and a busy machine slows the observer.
func listed(t *trial.Trial) bool {
	gave := byNode(answeredLists(t.Lists))
	return len(t.Nodes) > 0 && !slices.ContainsFunc(expected(t), func(node int) bool {
		return !slices.ContainsFunc(gave[node], func(l trial.List) bool { return l.Asked >= 0 && l.Asked <= t.Length })
	})
}

// up returns how long a node's process ran during the load.
func up(t *trial.Trial, node int) trial.Micros {
	ran := t.Length
	for _, f := range t.Faults {
		switch f.Kind {
		case scenario.Kill, scenario.Restart, scenario.Pause:
			if slices.Contains(f.Nodes, node) {
				down := stretchOf(f, t.Length)
				ran -= max(min(down.to, t.Length)-max(down.from, 0), 0)
			}
		}
	}
	return ran
}

// falseEvictions counts the distinct instances that were evicted although their clients sent heartbeats.
func falseEvictions(evictions []trial.Eviction) int {
	found := make(map[string]bool)
	for _, e := range evictions {
		if e.Alive {
			found[e.ID] = true
		}
	}
	return len(found)
}

// leadersByDatacenter returns what nodes said about their leaders, by time; each datacenter has its own.
func leadersByDatacenter(t *trial.Trial) map[string][]trial.Leader {
	found := make(map[string][]trial.Leader)
	for _, l := range t.Leaders {
		dc := datacenter(t, l.Node)
		found[dc] = append(found[dc], l)
	}
	for _, of := range found {
		slices.SortStableFunc(of, func(a, b trial.Leader) int { return cmp.Compare(a.At, b.At) })
	}
	return found
}

// elections counts the leaders after the first, of every datacenter. A term has one.
func elections(t *trial.Trial) int {
	count := 0
	for _, of := range leadersByDatacenter(t) {
		terms := make(map[uint64]bool)
		for _, l := range of {
			if l.Leader >= 0 {
				terms[l.Term] = true
			}
		}
		count += max(len(terms)-1, 0)
	}
	return count
}

// leaderless returns how many seconds no node knew a leader, from the first one that was asked on; with several
// datacenters, for the one that went without for the longest.
func leaderless(t *trial.Trial) float64 {
	var longest trial.Micros
	for _, of := range leadersByDatacenter(t) {
		longest = max(longest, without(of, t.Ended))
	}
	return longest.Seconds()
}

// without returns how long none of the nodes of a datacenter knew a leader until end.
func without(said []trial.Leader, end trial.Micros) trial.Micros {
	var sum trial.Micros
	knows := make(map[int]bool) // by node: whether it knows a leader
	for i, l := range said {
		delete(knows, l.Node)
		if l.Leader >= 0 {
			knows[l.Node] = true
		}
		until := end
		if i+1 < len(said) {
			until = said[i+1].At
		}
		if len(knows) == 0 {
			sum += max(until-l.At, 0)
		}
	}
	return sum
}
