package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
)

// notValid reports whether the run proves nothing: Invalid says why.
func (r *Report) notValid() bool { return len(r.Invalid()) > 0 }

// validText says whether the run is valid.
func (r *Report) validText() string {
	invalid, notCarried := 0, 0
	for i := range r.Trials {
		switch {
		case r.notCarried(i):
			notCarried++
		case len(r.Verdicts[i].Invalid) > 0:
			invalid++
		}
	}
	unmeasured := r.unmeasured()
	switch {
	case invalid == 0 && len(unmeasured) > 0:
		return "The run is not valid: " + strings.Join(unmeasured, "; ") + "."
	case invalid == 0 && notCarried == 0:
		return fmt.Sprintf("The run is valid: the machine carried all of its %s.", counted(len(r.Trials), "trial"))
	case invalid == 0:
		return fmt.Sprintf("The run is valid: the machine carried all of its %s but %d of heartbeats alone, which are in no figure.", counted(len(r.Trials), "trial"), notCarried)
	}
	text := fmt.Sprintf("%d of %s measured the machine and not the servers. They are in no figure; what is left may not be typical either.", invalid, counted(len(r.Trials), "trial"))
	for _, sentence := range unmeasured {
		text += " " + capital(sentence) + "."
	}
	return text
}

// evidence says in one paragraph how far the figures reach: the machine, rounds, leases, what they cannot tell, and whether the
// run is valid.
func (r *Report) evidence() string {
	m := r.Machine
	sentences := []string{
		fmt.Sprintf("Evidence: one machine (%s, %s, %s) ran clients, nodes and disks, and its links have no latency: ratios between columns tell more than figures.", m.CPU, counted(m.Cores, "core"), m.Disk),
		fmt.Sprintf("%s of %s, %s of %s each.", r.trialsText(), counted(len(r.ran()), "scenario"), r.roundsText(), r.lengthText()),
	}
	if text := r.leaseText(); text != "" {
		sentences = append(sentences, text)
	}
	if names := r.compiling(); len(names) > 0 {
		sentences = append(sentences, "Processor times and latencies of "+list(names)+" are compared with nothing: only the first of Java's two compilers ran.")
	}
	if slices.ContainsFunc(r.ran(), func(s scenario.Scenario) bool { return s.Load.Sealed > 0 }) {
		sentences = append(sentences, "Losses are counted on instances that never send a heartbeat: stock clients would restore most of theirs with the next one.")
	}
	repeats := 0
	for _, t := range r.Trials {
		repeats += len(t.Repeats)
	}
	if repeats > 0 {
		sentences = append(sentences, counted(repeats, "trial")+" "+wasWere(float64(repeats))+" repeated because the machine was too busy.")
	}
	sentences = append(sentences, r.validText(), r.limitsText(), "Rollcall's docs/comparison.md says what the words mean.")
	return strings.Join(sentences, " ")
}

// trialsText counts the trials, and those that count if not all do.
func (r *Report) trialsText() string {
	if count := r.counting(); count < len(r.Trials) {
		return fmt.Sprintf("%s (%d count)", counted(len(r.Trials), "trial"), count)
	}
	return counted(len(r.Trials), "trial")
}

// roundsText gives the least and the most rounds that count of a scenario in a column.
func (r *Report) roundsText() string {
	rounds := make(map[int]bool)
	for _, s := range r.ran() {
		for _, of := range r.each(s, r.columns()) {
			if n := len(of.of); n > 0 {
				rounds[n] = true
			}
		}
	}
	return spanOf(rounds, func(n int) string { return counted(n, "round") })
}

// lengthText gives the length of a load, and names the scenarios that have a length of their own.
func (r *Report) lengthText() string {
	text := showSeconds(r.Plan.Length.Seconds())
	for _, s := range r.ran() {
		if own := s.Length.Duration().Seconds(); own > 0 && own != r.Plan.Length.Seconds() {
			text += fmt.Sprintf(" (%s: %s)", s.Title, showSeconds(own))
		}
	}
	return text
}

// leaseText gives the leases of all scenarios but those of heartbeats alone, beside those of stock clients.
func (r *Report) leaseText() string {
	leases := make(map[int]bool)
	for _, s := range r.ran() {
		if !s.HeartbeatsOnly() && s.Load.Lease > 0 {
			leases[int(s.Load.Lease.Duration().Seconds())] = true
		}
	}
	if len(leases) == 0 {
		return ""
	}
	return "Leases of " + spanOf(leases, func(n int) string { return fmt.Sprintf("%d s", n) }) + ", where stock clients ask for 90 s."
}

// spanOf shows the only number of a set, or its least and its greatest, with their unit.
func spanOf(set map[int]bool, show func(int) string) string {
	numbers := slices.Sorted(maps.Keys(set))
	if len(numbers) == 0 {
		return show(0)
	}
	least, most := numbers[0], numbers[len(numbers)-1]
	if least == most {
		return show(most)
	}
	return fmt.Sprintf("%d to %s", least, show(most))
}

// lacking names what the columns could not run, a sentence each. Nothing scores it.
func (r *Report) lacking() []string {
	var sentences []string
	for _, c := range r.columns() {
		seen := make(map[string][]string)
		var order []string
		for _, s := range r.Scenarios {
			if why := c.Cannot(s); why != "" {
				if seen[why] == nil {
					order = append(order, why)
				}
				seen[why] = append(seen[why], s.Title)
			}
		}
		for _, why := range order {
			sentences = append(sentences, fmt.Sprintf("%s, so it did not run %s.", capital(why), list(seen[why])))
		}
	}
	return sentences
}

// title returns the title of the report, the same in each of its files.
func (r *Report) title() string {
	var names []string
	for _, c := range r.spoken() {
		names = append(names, c.Heading())
	}
	if len(names) == 0 {
		return "Nothing compared"
	}
	return list(names) + ": what each does with the same faults"
}

func (r *Report) machineText() string {
	return fmt.Sprintf("rollcall %s, %s. %s.", r.Version, r.Date, r.Machine)
}

// planText says how the comparison was run.
func (r *Report) planText() string {
	p := r.Plan
	kind := "full"
	if p.Quick {
		kind = "quick"
	}
	text := fmt.Sprintf("%s, %s of %s each, with the same load and faults in %s (%s, seed %d), on clusters of real processes; it took %s.",
		counted(len(r.ran()), "scenario"), counted(len(r.Trials), "trial"), r.lengthText(), counted(len(r.columns()), "column"), kind, p.Seed, p.Took.Duration().Round(1e9))
	for _, sentence := range p.LeftOut {
		text += " " + sentence
	}
	return text
}

// limitsText says whether all limits were kept, and which columns have none.
func (r *Report) limitsText() string {
	var without []string
	for _, c := range r.columns() {
		if !c.Promises() {
			without = append(without, c.Heading())
		}
	}
	switch broken := len(r.Broken()); {
	case broken == 0 && r.counting() == 0:
		return "No limit was checked."
	case broken == 1:
		return "One limit was broken."
	case broken > 1:
		return fmt.Sprintf("%d limits were broken.", broken)
	case len(without) == 1:
		return fmt.Sprintf("All limits were kept (%s has none).", without[0])
	case len(without) > 1:
		return fmt.Sprintf("All limits were kept (%s have none).", list(without))
	}
	return "All limits were kept."
}
