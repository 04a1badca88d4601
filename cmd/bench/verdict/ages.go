package verdict

import "github.com/seed-20419f34/rollcall/cmd/bench/trial"

// Age is how old the answer of one Look call was, as Staleness counts it.
type Age struct {
	Called trial.Micros
	Age    trial.Micros // 0: it was not stale
}

// Ages are those of all answered Look calls of a trial, key by key: what a plot shows of Staleness.
func Ages(t *trial.Trial) []Age {
	var ages []Age
	k := keysOf(t.History)
	for _, name := range k.names() {
		for _, c := range k[name] {
			if c.Action == trial.Look && c.Outcome.Answered() {
				age, _ := stale(k[name], c)
				ages = append(ages, Age{Called: c.Called, Age: age})
			}
		}
	}
	return ages
}
