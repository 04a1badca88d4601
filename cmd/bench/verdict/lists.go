package verdict

import (
	"cmp"
	"slices"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

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

// longestStep bounds how long a list counts before its own time: if no list came for longer, the rest counts as
// nothing.
const longestStep = 2500 * time.Millisecond // the time that a node without an answer is waited for, and a little more

// integral returns the mean over the nodes of a count times how long it stood during a load, in instance-seconds. Each
// list stands for the time since the one before it. Lists requested after the load do not count: how long nodes are
// asked then differs between the columns.
func integral(nodes map[int][]trial.List, length trial.Micros, count func(trial.List) int) float64 {
	var sum trial.Micros
	for _, of := range nodes {
		for i := 1; i < len(of); i++ {
			from := max(of[i-1].Asked, of[i].Asked-trial.Of(longestStep), 0)
			sum += trial.Micros(count(of[i])) * max(min(of[i].Asked, length)-from, 0)
		}
	}
	return sum.Seconds() / float64(max(len(nodes), 1))
}

// healings returns how long each fault that ended took to heal.
func (f *facts) healings() []Healing {
	found := []Healing{}
	for number, fault := range f.Faults {
		if fault.To > fault.From {
			found = append(found, Healing{Fault: number, Seconds: f.healing(fault.To)})
		}
	}
	return found
}

// healing returns when the slowest of the nodes first gave a complete list after a fault's end, in seconds after the
// end, or -1 if a node never did, or gave no list. When the next fault has ended, lists are about that one.
func (f *facts) healing(end trial.Micros) float64 {
	until := endless
	for _, next := range f.Faults {
		if next.To > next.From && next.To > end {
			until = min(until, next.To)
		}
	}
	slowest := trial.Of(-time.Second)
	for _, node := range f.expected {
		complete := slices.IndexFunc(f.lists[node], func(l trial.List) bool { return l.Asked >= end && l.Asked < until && l.Unhealed == 0 })
		if complete < 0 {
			return -1
		}
		slowest = max(slowest, f.lists[node][complete].Asked-end)
	}
	return slowest.Seconds()
}

// revived returns the instances that some node listed again, or at the end, after their acknowledged cancel.
func (f *facts) revived() []string {
	found := f.endings(func(e trial.Ending) []string { return e.Revived })
	for _, l := range f.Lists {
		found = append(found, l.Back...)
	}
	return unique(found)
}

// unique returns ids sorted, and once each.
func unique(ids []string) []string {
	sorted := append([]string{}, ids...)
	slices.Sort(sorted)
	return slices.Compact(sorted)
}

// removal describes how long after its last sign of life the last node listed each instance that died.
func removal(departures []trial.Departure) Spread {
	longest := make(map[string]trial.Micros)
	for _, d := range departures {
		switch known := longest[d.ID]; {
		case d.Canceled:
		case d.Gone < 0 || known < 0:
			longest[d.ID] = -1 // it was listed until the end
		default:
			longest[d.ID] = max(known, d.Gone-d.Last)
		}
	}
	took := make(spans)
	for _, l := range longest {
		took[l]++
	}
	return took.spread()
}

// visibility describes how long registrations took until other nodes showed them, by way, for nodes of the same
// datacenter, or of other ones.
func visibility(t *trial.Trial, abroad bool) map[trial.Way]Spread {
	delays := make(map[trial.Way]spans)
	for _, s := range t.Sightings {
		if s.From == s.To || (datacenter(t, s.From) != datacenter(t, s.To)) != abroad {
			continue
		}
		if delays[s.Way] == nil {
			delays[s.Way] = make(spans)
		}
		delays[s.Way][s.Delay]++
	}
	found := make(map[trial.Way]Spread)
	for way, of := range delays {
		found[way] = of.spread()
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
func (f *facts) told() bool {
	watched := make(map[int]trial.Micros)
	for _, e := range f.Ending {
		watched[e.Node] = e.Watched
	}
	return len(f.Nodes) > 0 && !slices.ContainsFunc(f.expected, func(node int) bool {
		return watched[node] <= 0 || 2*watched[node] < up(f.Trial, node)
	})
}

// listed reports whether every node except lost ones gave a list during the load. It need not do so all the time: one
// that is cut off may refuse to, and a busy machine slows the observer.
func (f *facts) listed() bool {
	return len(f.Nodes) > 0 && !slices.ContainsFunc(f.expected, func(node int) bool {
		return !slices.ContainsFunc(f.lists[node], func(l trial.List) bool { return l.Asked >= 0 && l.Asked <= f.Length })
	})
}

// up returns how long a node's process ran during the load.
func up(t *trial.Trial, node int) trial.Micros {
	ran := t.Length
	for _, f := range t.Faults {
		stops := f.Kind == scenario.Kill || f.Kind == scenario.Restart || f.Kind == scenario.Pause
		if stops && slices.Contains(f.Nodes, node) {
			down := stretchOf(f, t.Length)
			ran -= max(min(down.to, t.Length)-max(down.from, 0), 0)
		}
	}
	return ran
}

// falseEvictions counts the distinct instances that were evicted although their clients sent heartbeats.
func falseEvictions(evictions []trial.Eviction) int {
	var found []string
	for _, e := range evictions {
		if e.Alive {
			found = append(found, e.ID)
		}
	}
	return len(unique(found))
}

// leaders counts the leaders after the first, of every datacenter; a term has one. leaderless is how many seconds no
// node knew a leader, from the first one that was asked on; with several datacenters, for the one that went without
// for the longest.
func leaders(t *trial.Trial) (elections int, leaderless float64) {
	said := make(map[string][]trial.Leader)
	for _, l := range t.Leaders {
		dc := datacenter(t, l.Node)
		said[dc] = append(said[dc], l)
	}
	longest := trial.Micros(0)
	for _, of := range said {
		slices.SortStableFunc(of, func(a, b trial.Leader) int { return cmp.Compare(a.At, b.At) })
		terms, knows := make(map[uint64]bool), make(map[int]bool) // knows is by node
		without := trial.Micros(0)
		for i, l := range of {
			delete(knows, l.Node)
			if l.Leader >= 0 {
				terms[l.Term], knows[l.Node] = true, true
			}
			until := t.Ended
			if i+1 < len(of) {
				until = of[i+1].At
			}
			if len(knows) == 0 {
				without += max(until-l.At, 0)
			}
		}
		elections, longest = elections+max(len(terms)-1, 0), max(longest, without)
	}
	return elections, longest.Seconds()
}
