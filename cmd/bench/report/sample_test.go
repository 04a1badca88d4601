package report

import (
	"encoding/json"
	"os"
	"slices"
	"sync"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// second is a second of a trial.
const second = trial.Micros(1_000_000)

// judgedSample is the report of testdata/sample.json.gz, read once: a made-up run of three columns, three rounds and
// seven scenarios, in which everything happens that a row can tell of. No test changes it.
var judgedSample = sync.OnceValue(func() *Report {
	file, err := os.Open("testdata/sample.json.gz")
	if err != nil {
		panic(err)
	}
	defer file.Close()
	r, err := Read(file)
	if err != nil {
		panic(err)
	}
	return r
})

// small returns a part of it for tests that change it: one round of three scenarios.
func small() *trial.Comparison {
	c := *judgedSample().Comparison
	names := []string{"steady", "leader-killed", "partition-minority"}
	c.Plan.Rounds = 1
	c.Scenarios = slices.DeleteFunc(slices.Clone(c.Scenarios), func(s scenario.Scenario) bool { return !slices.Contains(names, s.Name) })
	c.Trials = slices.DeleteFunc(slices.Clone(c.Trials), func(t trial.Trial) bool { return t.Round > 1 || !slices.Contains(names, t.Scenario) })
	text, err := json.Marshal(c)
	copied := new(trial.Comparison)
	if err != nil || json.Unmarshal(text, copied) != nil {
		panic("the sample is not JSON")
	}
	return copied
}
