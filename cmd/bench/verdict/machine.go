package verdict

import (
	"fmt"
	"slices"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// When a trial measures the machine rather than the servers.
const (
	mostLate     = 0.01                   // share of the calls handed to their clients late
	busy         = 0.97                   // share of the processors' time from which on they are exhausted
	mostBusy     = 0.5                    // share of the load's seconds in which they may be
	mostForeign  = 0.15                   // share of the processors' time that others may use
	stalledDisk  = 500 * time.Millisecond // duration of one durable write on a disk that stalls
	mostUnlooked = 3 * time.Second        // between two looks at the machine
)

// Invalid returns the reasons why a trial is not valid.
func Invalid(t *trial.Trial) []string {
	found := []string{}
	if t.Failed != "" {
		return found // the failure says so itself
	}
	seen := healthDuringLoad(t)
	if len(seen) < 2 || gapOf(seen, t.Length) > trial.Of(mostUnlooked) || t.Cores < 1 {
		return append(found, "nothing says whether the machine carried it: it was not looked at all the time")
	}
	if text := uncounting(t, seen); text != "" {
		return append(found, text)
	}
	if text := tardy(seen); text != "" {
		found = append(found, text)
	}
	if text := exhausted(t, seen); text != "" {
		found = append(found, text)
	}
	if text := foreign(t, seen); text != "" {
		found = append(found, text)
	}
	if text := stalled(seen); text != "" {
		found = append(found, text)
	}
	return found
}

// healthDuringLoad returns the looks at the machine from the start of the load to its end.
func healthDuringLoad(t *trial.Trial) []trial.Health {
	var found []trial.Health
	for _, h := range t.Machine {
		if h.At > 0 && h.At <= t.Length+trial.Of(time.Second) {
			found = append(found, h)
		}
	}
	return found
}

// gapOf returns the longest time without a look at the machine.
func gapOf(seen []trial.Health, length trial.Micros) trial.Micros {
	longest, last := trial.Micros(0), trial.Micros(0)
	for _, h := range seen {
		longest, last = max(longest, h.At-last), h.At
	}
	return max(longest, length-last)
}

// uncounting says which of the counters behind the other checks do not work.
func uncounting(t *trial.Trial, seen []trial.Health) string {
	due, late := 0, 0
	for i, h := range seen {
		due, late = due+h.Due, late+h.Late
		if i > 0 && (h.Busy < seen[i-1].Busy || h.Own < seen[i-1].Own) {
			return "nothing says whether the machine carried it: a counter of what the processors did ran backwards"
		}
	}
	if due == 0 && (late > 0 || duringTheLoad(t, always[trial.Series]).Count > 0) {
		return "nothing says whether the machine carried it: of no call it is known when it began"
	}
	return ""
}

func tardy(seen []trial.Health) string {
	due, late, worst := 0, 0, trial.Micros(0)
	for _, h := range seen {
		due, late, worst = due+h.Due, late+h.Late, max(worst, h.Worst)
	}
	if float64(late) <= mostLate*float64(due) {
		return ""
	}
	return fmt.Sprintf("the load was late: %.1f %% of the calls began more than %v after they were due, the worst %.2g s", 100*float64(late)/float64(due), trial.LateAfter, worst.Seconds())
}

// exhausted ignores seconds when a server restarts after a fault: it takes everything available for that, and how
// long that lasts is one of the things to measure.
func exhausted(t *trial.Trial, seen []trial.Health) string {
	full, all := 0, 0
	for i := 1; i < len(seen); i++ {
		if starts(t.Faults, seen[i-1].At, seen[i].At) {
			continue
		}
		used, had := seen[i].Busy-seen[i-1].Busy, float64(seen[i].At-seen[i-1].At)*float64(t.Cores)
		full, all = full+toNumber(float64(used) >= busy*had), all+1
	}
	if float64(full) <= mostBusy*float64(all) {
		return ""
	}
	return fmt.Sprintf("the processors were exhausted in %d of %d seconds", full, all)
}

// starts reports whether a server restarted between two moments.
func starts(faults []trial.Fault, from, to trial.Micros) bool {
	return slices.ContainsFunc(faults, func(f trial.Fault) bool { return f.To < to && from < f.Ready })
}

// foreign says how much of the processors was used by others than the servers and the measuring program: by programs,
// or by the host of a virtual machine.
func foreign(t *trial.Trial, seen []trial.Health) string {
	first, last := seen[0], seen[len(seen)-1]
	others := last.Busy - first.Busy - (last.Own - first.Own)
	for _, of := range usageByNode(t.Usage) {
		others -= spentBetween(of, first.At, last.At)
	}
	share := float64(others) / (float64(last.At-first.At) * float64(t.Cores))
	if share <= mostForeign {
		return ""
	}
	return fmt.Sprintf("others used %.0f %% of the processors", 100*share)
}

// spentBetween returns what a node's process used between two moments, as precisely as the samples tell.
func spentBetween(samples []trial.Usage, from, to trial.Micros) trial.Micros {
	var within []trial.Usage
	for _, u := range samples {
		if u.At >= from-trial.Of(time.Second) && u.At <= to {
			within = append(within, u)
		}
	}
	return grown(within, func(u trial.Usage) trial.Micros { return u.CPU })
}

func stalled(seen []trial.Health) string {
	worst := trial.Micros(0)
	for _, h := range seen {
		worst = max(worst, h.Sync)
	}
	if worst <= trial.Of(stalledDisk) {
		return ""
	}
	return fmt.Sprintf("the disk stalled: a durable write took %.2g s", worst.Seconds())
}
