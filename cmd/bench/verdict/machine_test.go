package verdict

import (
	"slices"
	"testing"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

// healthy are looks at a machine of two processors during 10 s: every second, of which all processes use 1 s, and this program
// 0.8 s.
func healthy() []trial.Health {
	var looks []trial.Health
	for second := range trial.Micros(12) {
		looks = append(looks, trial.Health{
			At: second * 1000 * ms, Busy: 5000*ms + second*1000*ms, Own: second * 800 * ms, Due: 100, Late: 1, Worst: 60 * ms, Sync: 2 * ms,
		})
	}
	return looks
}

func TestTrialIsValidIfTheMachineCarriedIt(t *testing.T) {
	use := func(busy, own trial.Micros) func(*trial.Trial) { // of every second
		return func(t *trial.Trial) {
			for i := range t.Machine {
				t.Machine[i].Busy, t.Machine[i].Own = trial.Micros(i)*busy, trial.Micros(i)*own
			}
		}
	}
	unlooked := []string{"nothing says whether the machine carried it: it was not looked at all the time"}
	for _, c := range []struct {
		name  string
		alter func(*trial.Trial)
		want  []string
	}{
		{"a good one", func(*trial.Trial) {}, nil},
		{"no looks at all", func(t *trial.Trial) { t.Machine = nil }, unlooked},
		{"no looks during the load", func(t *trial.Trial) { t.Machine = t.Machine[:1] }, unlooked},
		{"one look during a short load", func(t *trial.Trial) { t.Length, t.Machine = 2000*ms, t.Machine[1:2] }, unlooked},
		{"a long time without a look", func(t *trial.Trial) { t.Machine = slices.Delete(t.Machine, 4, 7) }, unlooked},
		{"three seconds without a look", func(t *trial.Trial) { t.Machine = slices.Delete(t.Machine, 4, 6) }, nil},
		{"no look in the end", func(t *trial.Trial) { t.Machine = t.Machine[:7] }, unlooked},
		{"no look in the beginning", func(t *trial.Trial) { t.Machine = t.Machine[4:] }, unlooked},
		{"a machine of unknown size", func(t *trial.Trial) { t.Cores = 0 }, unlooked},
		{"a late load", func(t *trial.Trial) { t.Machine[5].Late, t.Machine[6].Worst = 20, 2500*ms },
			[]string{"the load was late: 2.7 % of the calls began more than 50ms after they were due, the worst 2.5 s"}},
		{"no processor left while a server starts again", func(t *trial.Trial) {
			for i := range t.Machine {
				t.Machine[i].Busy = trial.Micros(i+max(i-3, 0)) * 1000 * ms
				t.Machine[i].Own = t.Machine[i].Busy
			}
			t.Faults = []trial.Fault{{From: 3000 * ms, To: 3500 * ms, Ready: 20000 * ms}}
		}, nil},
		{"no processor left before a server starts again, either", func(t *trial.Trial) {
			use(2000*ms, 2000*ms)(t)
			t.Faults = []trial.Fault{{From: 3000 * ms, To: 7500 * ms, Ready: 20000 * ms}}
		}, []string{"the processors were exhausted in 6 of 6 seconds"}},
		{"late though nothing was due", func(t *trial.Trial) {
			for i := range t.Machine {
				t.Machine[i].Due, t.Machine[i].Late = 0, 3
			}
		}, []string{"nothing says whether the machine carried it: of no call it is known when it began"}},
		{"calls of which none was due", func(t *trial.Trial) {
			for i := range t.Machine {
				t.Machine[i].Due, t.Machine[i].Late = 0, 0
			}
		}, []string{"nothing says whether the machine carried it: of no call it is known when it began"}},
		{"no call at all", func(t *trial.Trial) {
			t.Series = nil
			for i := range t.Machine {
				t.Machine[i].Due, t.Machine[i].Late = 0, 0
			}
		}, nil},
		{"a counter that runs backwards", func(t *trial.Trial) { t.Machine[5].Busy = 0 },
			[]string{"nothing says whether the machine carried it: a counter of what the processors did ran backwards"}},
		{"late after the load", func(t *trial.Trial) {
			t.Machine = append(t.Machine, trial.Health{At: 12_000 * ms, Due: 1000, Late: 1000, Sync: 900 * ms})
		}, nil},
		{"exhausted processors", use(1950*ms, 1800*ms), []string{"the processors were exhausted in 10 of 10 seconds"}},
		{"processors that are just not", use(1930*ms, 1800*ms), nil},
		{"exhausted for half of the time", func(t *trial.Trial) {
			for i := range t.Machine {
				used := trial.Micros(min(i, 6)) * 2000 * ms
				t.Machine[i].Busy, t.Machine[i].Own = used, used
			}
		}, nil},
		{"other programs", use(1400*ms, 1000*ms), []string{"others used 20 % of the processors"}},
		{"servers", func(t *trial.Trial) {
			use(1400*ms, 1000*ms)(t)
			for second := range trial.Micros(12) {
				t.Usage = append(t.Usage, trial.Usage{Node: 1, At: second * 1000 * ms, CPU: 9000*ms + second*400*ms})
			}
		}, nil},
		{"servers that ended and began again", func(t *trial.Trial) {
			use(1400*ms, 1000*ms)(t)
			for second := range trial.Micros(12) {
				t.Usage = append(t.Usage, trial.Usage{Node: 1, At: second * 1000 * ms, CPU: (second%6 + 1) * 400 * ms})
			}
		}, nil},
		{"a disk that stalls", func(t *trial.Trial) { t.Machine[9].Sync = 501 * ms }, []string{"the disk stalled: a durable write took 0.5 s"}},
		{"everything at once", func(t *trial.Trial) {
			use(1990*ms, 1000*ms)(t)
			t.Machine[3].Late, t.Machine[3].Sync = 50, 2000*ms
		}, []string{
			"the load was late: 5.5 % of the calls began more than 50ms after they were due, the worst 0.06 s",
			"the processors were exhausted in 10 of 10 seconds", "others used 50 % of the processors",
			"the disk stalled: a durable write took 2 s",
		}},
		{"a trial that was not completed", func(t *trial.Trial) { t.Failed, t.Machine = "node2 did not start", nil }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			altered := sound()
			c.alter(altered)
			expect.Slice(t, Judge(altered, stock, noLimits).Invalid, c.want, "reasons are")
		})
	}
}
