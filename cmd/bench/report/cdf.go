package report

import (
	"slices"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// cdf is a cumulative distribution: at most so much percent of what was counted took so long.
type cdf struct {
	Name  string        `json:"name"` // of the scenario
	Mode  scenario.Mode `json:"mode"`
	Count int           `json:"count"` // the endless ones, too
	Never int           `json:"never"` // of Count
	Delay samples       `json:"delay"` // ms, ascending
	Share samples       `json:"share"` // percent
}

// cdfPoints is how many points a plot needs at most: its width in pixels, roughly.
const cdfPoints = 250

// cdfOf is the distribution of delays. Negative ones never ended: they are counted, but reach no share.
func cdfOf(name string, mode scenario.Mode, delays []trial.Micros) cdf {
	slices.Sort(delays)
	never, _ := slices.BinarySearch(delays, 0)
	c := cdf{Name: name, Mode: mode, Count: len(delays), Never: never, Delay: samples{}, Share: samples{}}
	ended := delays[never:]
	for point := range min(cdfPoints, len(ended)) {
		i := (point + 1) * len(ended) / min(cdfPoints, len(ended)) // how many took at most that long
		c.Delay = append(c.Delay, float64(ended[i-1])/1e3)
		c.Share = append(c.Share, 100*float64(i)/float64(len(delays)))
	}
	return c
}

// wayPlot is one way of looking for an instance, with a line for each scenario and mode.
type wayPlot struct {
	Way    trial.Way `json:"way"`
	Abroad bool      `json:"abroad"` // at nodes of other datacenters; otherwise at other nodes of the same one
	Lines  []cdf     `json:"lines"`
}

// visibility takes the delays at other nodes, of the same datacenter or of other ones, from all rounds of some scenarios.
func (r *Report) visibility(scenarios []scenario.Scenario, abroad bool) []wayPlot {
	plots := []wayPlot{}
	for _, way := range trial.Ways {
		plot := wayPlot{Way: way, Abroad: abroad}
		for _, s := range scenarios {
			for _, mode := range r.modes() {
				if delays := r.sightings(s.Name, mode, way, abroad); len(delays) > 0 {
					plot.Lines = append(plot.Lines, cdfOf(s.Title, mode, delays))
				}
			}
		}
		if len(plot.Lines) > 0 {
			plots = append(plots, plot)
		}
	}
	return plots
}

func (r *Report) sightings(name string, mode scenario.Mode, way trial.Way, abroad bool) []trial.Micros {
	var delays []trial.Micros
	trials, _ := r.of(name, mode)
	for _, t := range trials {
		for _, s := range t.Sightings {
			if s.Way == way && s.From != s.To && (t.Nodes[s.From].Datacenter != t.Nodes[s.To].Datacenter) == abroad {
				delays = append(delays, s.Delay)
			}
		}
	}
	return delays
}

// removalPlot is how long instances that went were still listed by some node.
type removalPlot struct {
	Died     []cdf   `json:"died"`     // from the last heartbeat on; a line for each mode and each scenario in which instances die
	Canceled []cdf   `json:"canceled"` // from the cancel's answer on; a line for each mode, over all scenarios in which nothing fails
	Lease    float64 `json:"lease"`    // seconds, the longest of the instances that died
}

func (r *Report) removal() removalPlot {
	plot := removalPlot{Died: []cdf{}, Canceled: []cdf{}}
	for _, s := range r.ran() {
		if !kills(s) {
			continue
		}
		for _, mode := range r.modes() {
			if died := r.departures(mode, false, s); len(died) > 0 {
				plot.Died = append(plot.Died, cdfOf(s.Title, mode, died))
				plot.Lease = max(plot.Lease, s.Load.Lease.Duration().Seconds())
			}
		}
	}
	for _, mode := range r.modes() {
		if canceled := r.departures(mode, true, r.undisturbed()...); len(canceled) > 0 {
			plot.Canceled = append(plot.Canceled, cdfOf("canceled", mode, canceled))
		}
	}
	return plot
}

// kills reports whether instances die in a scenario. Others may fall silent there, and come back.
func kills(s scenario.Scenario) bool {
	return slices.ContainsFunc(s.Faults, func(f scenario.Fault) bool { return f.Kind == scenario.Die })
}

// undisturbed are the scenarios without faults, or if there are none, all.
func (r *Report) undisturbed() []scenario.Scenario {
	calm := slices.DeleteFunc(slices.Clone(r.ran()), func(s scenario.Scenario) bool { return len(s.Faults) > 0 })
	if len(calm) == 0 {
		return r.ran()
	}
	return calm
}

// departures is, of each instance that went, how long the last node listed it; negative: until the end.
func (r *Report) departures(mode scenario.Mode, canceled bool, scenarios ...scenario.Scenario) []trial.Micros {
	var delays []trial.Micros
	for _, s := range scenarios {
		trials, _ := r.of(s.Name, mode)
		for _, t := range trials {
			delays = append(delays, lastGone(t, canceled)...)
		}
	}
	return delays
}

func lastGone(t *trial.Trial, canceled bool) []trial.Micros {
	longest := map[string]trial.Micros{}
	var ids []string
	for _, d := range t.Departures {
		if d.Canceled != canceled {
			continue
		}
		known, ok := longest[d.ID]
		if !ok {
			ids = append(ids, d.ID)
		}
		switch {
		case d.Gone < 0 || known < 0:
			longest[d.ID] = -1
		default:
			longest[d.ID] = max(known, d.Gone-d.Last)
		}
	}
	delays := make([]trial.Micros, 0, len(ids))
	for _, id := range ids {
		delays = append(delays, longest[id])
	}
	return delays
}
