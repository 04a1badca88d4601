package report

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
)

// sentences say in words what happened in a scenario, from its verdicts: the faults, what each mode did with
// them, how long it took, what was lost. One sentence each, the most important first. What was not measured is not
// spoken of.
func (r *Report) sentences(name string) []string {
	s := r.scenario(name)
	cp, ap := r.runs(name, scenario.CP), r.runs(name, scenario.AP)
	modes := []runs{cp, ap}
	var all []string
	for number := range s.Faults {
		all = append(all, faultSentence(s, number, modes))
	}
	for number := range s.Storms {
		all = append(all, stormSentence(s, number, modes))
	}
	if len(s.Faults)+len(s.Storms) == 0 {
		all = append(all, calmSentences(modes)...)
	}
	all = append(all, costSentences(modes)...)
	all = append(all, judgements(modes)...)
	all = append(all, r.failures(name)...)
	return given(all)
}

// failures name the trials that could not be completed.
func (r *Report) failures(name string) []string {
	var all []string
	for _, t := range r.Trials {
		if t.Scenario == name && t.Failed != "" {
			all = append(all, fmt.Sprintf("Round %d in mode %s could not be completed: %s.", t.Round, modeName(t.Mode), strings.TrimSuffix(t.Failed, ".")))
		}
	}
	return all
}

// modeName is a mode as people write it.
func modeName(m scenario.Mode) string { return strings.ToUpper(string(m)) }

// given leaves out what is empty.
func given(texts []string) []string {
	var found []string
	for _, text := range texts {
		if text != "" {
			found = append(found, text)
		}
	}
	return found
}

// sentence is "Opening, CP did this, and that; AP did something else." The clauses of a mode follow its name. Without any
// there is no sentence.
func sentence(opening string, modes []runs, clauses func(runs) []string) string {
	var parts []string
	for _, m := range modes {
		if len(m.of) == 0 {
			continue
		}
		if said := given(clauses(m)); len(said) > 0 {
			parts = append(parts, modeName(m.mode)+" "+list(said))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return capital(opening+strings.Join(parts, "; ")) + "."
}

// stormSentence says how the calls of all clients went during a storm.
func stormSentence(s scenario.Scenario, number int, modes []runs) string {
	var length float64
	for _, m := range modes {
		for _, one := range m.of {
			length = s.Storms[number].For.In(one.Length.Duration()).Seconds()
		}
	}
	opening := fmt.Sprintf("in the %s of the storm (%s), ", showSeconds(length), stormOf(s.Storms[number]))
	return sentence(opening, modes, func(m runs) []string {
		during := m.storm(number)
		return append(during.service(), during.staleReads())
	})
}

// rateNouns are what rates count whose names are no nouns.
var rateNouns = map[string]string{"registers": "new instances", "writes": "writes on watched keys"}

// stormOf names the rates of a storm, sorted.
func stormOf(s scenario.Storm) string {
	var parts []string
	for _, name := range sortedNames(s.Load) {
		parts = append(parts, fmt.Sprintf("%s %s per second", showCount(s.Load[name]), cmp.Or(rateNouns[name], name)))
	}
	return list(parts)
}

// calmSentences are for scenarios in which nothing happens: throughput, latency, how soon others see what was
// registered, how old reads are.
func calmSentences(modes []runs) []string {
	return []string{
		sentence("while nothing failed, ", modes, func(m runs) []string { return m.whole().service() }),
		sentence("", modes, func(m runs) []string { return []string{m.shown("at other nodes", home)} }),
		sentence("", modes, func(m runs) []string { return []string{m.whole().staleReads()} }),
	}
}

// costSentences say what heartbeats and instances cost, where the trial can tell.
func costSentences(modes []runs) []string {
	return []string{
		sentence("for 1,000 renewals ", modes, func(m runs) []string {
			if m.each(func(o run) float64 { return o.verdict.Cost.CPUPerRenewals }).zero() {
				return nil
			}
			return []string{
				"needed " + m.each(func(o run) float64 { return o.verdict.Cost.CPUPerRenewals }).show(showSeconds) + " of CPU on all nodes",
				"sent " + m.each(func(o run) float64 { return o.verdict.Cost.BytesPerRenewals }).show(showBytes) + " between them",
				"wrote " + m.each(func(o run) float64 { return o.verdict.Cost.DiskPerRenewals }).show(showBytes) + " to their disks",
			}
		}),
		sentence("for 1,000 instances ", modes, func(m runs) []string {
			memory := m.each(func(o run) float64 { return o.verdict.Cost.MemoryPerInstances })
			if memory.zero() {
				return nil
			}
			return []string{"needed " + memory.show(showBytes) + " of memory on each node"}
		}),
	}
}
