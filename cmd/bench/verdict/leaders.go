package verdict

import (
	"cmp"
	"slices"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// byDatacenter are what nodes said of their leaders, by the time; each datacenter has its own.
func byDatacenter(t *trial.Trial) map[string][]trial.Leader {
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

// elections counts the leaders that came after the first, of every datacenter. A term has one.
func elections(t *trial.Trial) int {
	count := 0
	for _, of := range byDatacenter(t) {
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

// leaderless is how many seconds no node knew a leader, from the first one that was asked on; of several
// datacenters, the one that was without for the longest.
func leaderless(t *trial.Trial) float64 {
	var longest trial.Micros
	for _, of := range byDatacenter(t) {
		longest = max(longest, without(of, t.Settled))
	}
	return longest.Seconds()
}

// without is how long none of the nodes of a datacenter knew a leader until end.
func without(said []trial.Leader, end trial.Micros) trial.Micros {
	var sum trial.Micros
	knows := make(map[int]bool) // by node: those that know a leader
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
