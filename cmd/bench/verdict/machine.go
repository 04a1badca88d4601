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
	// the looks at the machine from the start of the load to its end
	seen := slices.DeleteFunc(slices.Clone(t.Machine), func(h trial.Health) bool {
		return h.At <= 0 || h.At > t.Length+trial.Of(time.Second)
	})
	if text := unknown(t, seen); text != "" {
		return append(found, "nothing says whether the machine carried it: "+text)
	}
	for _, text := range []string{tardy(seen), exhausted(t, seen), foreign(t, seen), stalled(seen)} {
		if text != "" {
			found = append(found, text)
		}
	}
	return found
}

// unknown says why the looks tell nothing about the machine, or returns "".
func unknown(t *trial.Trial, seen []trial.Health) string {
	last, due, late := trial.Micros(0), 0, 0
	for _, h := range append(slices.Clone(seen), trial.Health{At: t.Length}) {
		if len(seen) < 2 || t.Cores < 1 || h.At-last > trial.Of(mostUnlooked) {
			return "it was not looked at all the time"
		}
		last = h.At
	}
	for i, h := range seen {
		if due, late = due+h.Due, late+h.Late; i > 0 && (h.Busy < seen[i-1].Busy || h.Own < seen[i-1].Own) {
			return "a counter of what the processors did ran backwards"
		}
	}
	called := func(trial.Operation) bool { return true }
	if due == 0 && (late > 0 || duringTheLoad(t, called).Count > 0) {
		return "of no call it is known when it began"
	}
	return ""
}

func tardy(seen []trial.Health) string {
	due, late, worst := 0, 0, trial.Micros(0)
	for _, h := range seen {
		due, late, worst = due+h.Due, late+h.Late, max(worst, h.Worst)
	}
	text := fmt.Sprintf("the load was late: %.1f %% of the calls began more than %v after they were due, the worst %.2g s", 100*float64(late)/float64(due), trial.LateAfter, worst.Seconds())
	return when(float64(late) > mostLate*float64(due), text)
}

// exhausted ignores seconds when a server restarts after a fault: it takes everything available for that, and how
// long that lasts is one of the things to measure.
func exhausted(t *trial.Trial, seen []trial.Health) string {
	full, all := 0, 0
	for i := 1; i < len(seen); i++ {
		before, now := seen[i-1], seen[i]
		if slices.ContainsFunc(t.Faults, func(f trial.Fault) bool { return f.To < now.At && before.At < f.Ready }) {
			continue
		}
		full += toNumber(float64(now.Busy-before.Busy) >= busy*(float64(now.At-before.At)*float64(t.Cores)))
		all++
	}
	return when(float64(full) > mostBusy*float64(all), fmt.Sprintf("the processors were exhausted in %d of %d seconds", full, all))
}

// foreign says how much of the processors was used by others than the servers and the measuring program: by programs,
// or by the host of a virtual machine. What a server used is as precise as its samples tell.
func foreign(t *trial.Trial, seen []trial.Health) string {
	first, last := seen[0], seen[len(seen)-1]
	others := last.Busy - first.Busy - (last.Own - first.Own)
	for _, of := range usageByNode(t.Usage) {
		within := slices.DeleteFunc(of, func(u trial.Usage) bool { return u.At < first.At-trial.Of(time.Second) || u.At > last.At })
		others -= trial.Micros(grown(within, func(u trial.Usage) int64 { return int64(u.CPU) }))
	}
	share := float64(others) / (float64(last.At-first.At) * float64(t.Cores))
	return when(share > mostForeign, fmt.Sprintf("others used %.0f %% of the processors", 100*share))
}

func stalled(seen []trial.Health) string {
	worst := slices.MaxFunc(seen, func(a, b trial.Health) int { return int(a.Sync - b.Sync) }).Sync
	return when(worst > trial.Of(stalledDisk), fmt.Sprintf("the disk stalled: a durable write took %.2g s", worst.Seconds()))
}
