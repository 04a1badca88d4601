package report

import (
	"cmp"
	"maps"
	"slices"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// leaderStrip says who led a datacenter, and when.
type leaderStrip struct {
	Datacenter string       `json:"dc"`
	Reigns     []leaderTime `json:"reigns"`
}

// leaderTime is one leader's time; none: an empty name.
type leaderTime struct {
	From float64 `json:"from"` // seconds
	To   float64 `json:"to"`
	Name string  `json:"name"`
	Term uint64  `json:"term"`
}

// leaderStrips are those of the datacenters whose nodes told of leaders. While nodes disagree, the greatest term is
// right.
func leaderStrips(t *trial.Trial) []leaderStrip {
	said := map[string][]trial.Leader{}
	for _, l := range t.Leaders {
		if l.Node >= 0 && l.Node < len(t.Nodes) {
			dc := t.Nodes[l.Node].Datacenter
			said[dc] = append(said[dc], l)
		}
	}
	strips := []leaderStrip{}
	for _, dc := range slices.Sorted(maps.Keys(said)) {
		strips = append(strips, leaderStrip{Datacenter: dc, Reigns: reigns(t, said[dc])})
	}
	return strips
}

func reigns(t *trial.Trial, said []trial.Leader) []leaderTime {
	slices.SortStableFunc(said, func(a, b trial.Leader) int { return cmp.Compare(a.At, b.At) })
	latest := map[int]trial.Leader{}
	var list []leaderTime
	for _, l := range said {
		latest[l.Node] = l
		now := leaderOf(t, latest)
		now.From, now.To = max(0, l.At).Seconds(), end(t).Seconds()
		if last := len(list) - 1; last >= 0 {
			if list[last].Name == now.Name && list[last].Term == now.Term {
				continue
			}
			list[last].To = now.From
		}
		list = append(list, now)
	}
	return slices.DeleteFunc(list, func(l leaderTime) bool { return l.To <= l.From })
}

func leaderOf(t *trial.Trial, latest map[int]trial.Leader) leaderTime {
	best := leaderTime{}
	for node := range t.Nodes {
		if l, told := latest[node]; told && l.Leader >= 0 && l.Leader < len(t.Nodes) && l.Term >= best.Term {
			best = leaderTime{Name: t.Nodes[l.Leader].Name, Term: l.Term}
		}
	}
	return best
}
