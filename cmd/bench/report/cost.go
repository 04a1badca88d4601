package report

import (
	"slices"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/verdict"
)

// costBar compares what the modes spend: the median of all trials that can tell.
type costBar struct {
	Name string
	From string // the scenarios' titles that it comes from
	Bars []costMode
}

// costMode is one bar.
type costMode struct {
	Mode  scenario.Mode
	Text  string
	Share float64 // of the longest bar, in percent
}

// costs are the bars that any trial can fill. What depends on the load comes from the calmest scenario only.
func (r *Report) costs() []costBar {
	calm := r.calm()
	everywhere := func(scenario.Scenario) bool { return true }
	inCalm := func(s scenario.Scenario) bool { return s.Name == calm.Name }
	candidates := []struct {
		name string
		in   func(scenario.Scenario) bool
		show func(float64) string
		get  func(verdict.Cost) float64
	}{
		{"Processor time of all nodes, per 1,000 renewals", everywhere, showSeconds, func(c verdict.Cost) float64 { return c.CPUPerRenewals }},
		{"Sent between nodes, per 1,000 renewals", everywhere, showBytes, func(c verdict.Cost) float64 { return c.BytesPerRenewals }},
		{"Written to disks, per 1,000 renewals", everywhere, showBytes, func(c verdict.Cost) float64 { return c.DiskPerRenewals }},
		{"Memory of one node, per 1,000 instances", everywhere, showBytes, func(c verdict.Cost) float64 { return c.MemoryPerInstances }},
		{"Processor time of all nodes, per second", inCalm, showSeconds, func(c verdict.Cost) float64 { return c.CPU }},
		{"Sent between nodes", inCalm, showBytesPerSecond, func(c verdict.Cost) float64 { return c.Sent }},
		{"Written to disks", inCalm, showBytesPerSecond, func(c verdict.Cost) float64 { return c.Written }},
		{"Data directories of all nodes at the end", inCalm, showBytes, func(c verdict.Cost) float64 { return c.Disk }},
	}
	var bars []costBar
	for _, c := range candidates {
		if bar := r.costBar(c.name, c.in, c.show, c.get); len(bar.Bars) > 0 {
			bars = append(bars, bar)
		}
	}
	return bars
}

func (r *Report) costBar(name string, in func(scenario.Scenario) bool, show func(float64) string, get func(verdict.Cost) float64) costBar {
	bar := costBar{Name: name}
	longest := 0.0
	medians := map[scenario.Mode]float64{}
	for _, mode := range r.modes() {
		values, from := r.costValues(mode, in, get)
		if len(values) == 0 {
			continue
		}
		medians[mode] = median(values)
		longest = max(longest, medians[mode])
		bar.Bars = append(bar.Bars, costMode{Mode: mode, Text: perRound(values).show(show)})
		bar.From = from
	}
	for i, b := range bar.Bars {
		bar.Bars[i].Share = significant(100 * medians[b.Mode] / longest)
	}
	return bar
}

// costValues are the figures that are known in trials of a mode, and whose they are.
func (r *Report) costValues(mode scenario.Mode, in func(scenario.Scenario) bool, get func(verdict.Cost) float64) (values []float64, from string) {
	scenarios := 0
	for _, s := range r.ran() {
		if !in(s) {
			continue
		}
		known := len(values)
		_, verdicts := r.of(s.Name, mode)
		for _, v := range verdicts {
			if value := get(v.Cost); value > 0 {
				values = append(values, value)
			}
		}
		if len(values) > known {
			scenarios++
			from = s.Title
		}
	}
	if scenarios > 1 {
		from = "all scenarios"
	}
	return values, from
}

// calm is the scenario that other ones are compared with: the first one in which nothing happens.
func (r *Report) calm() scenario.Scenario {
	ran := r.ran()
	if i := slices.IndexFunc(ran, func(s scenario.Scenario) bool { return len(s.Faults)+len(s.Storms) == 0 && s.Load.Reads > 0 }); i >= 0 {
		return ran[i]
	}
	return scenario.Scenario{}
}

// telling is the scenario whose plot tells most: a partition, or else the first with any fault, or else the first.
func (r *Report) telling() scenario.Scenario {
	ran := r.ran()
	for _, has := range []func(scenario.Fault) bool{
		func(f scenario.Fault) bool { return f.Kind == scenario.Isolate },
		func(f scenario.Fault) bool { return true },
	} {
		if i := slices.IndexFunc(ran, func(s scenario.Scenario) bool { return slices.ContainsFunc(s.Faults, has) }); i >= 0 {
			return ran[i]
		}
	}
	if len(ran) == 0 {
		return scenario.Scenario{}
	}
	return ran[0]
}
