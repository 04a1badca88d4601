package compare

import (
	"fmt"
	"slices"
	"testing"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

func TestTurnsAlternateTheModes(t *testing.T) {
	steady, kill := scenario.Scenario{Name: "steady", Rounds: 3}, scenario.Scenario{Name: "kill", Rounds: 1}
	both := []scenario.Mode{scenario.CP, scenario.AP}
	for _, tt := range []struct {
		name string
		plan trial.Plan
		want []string
	}{
		{"rounds", trial.Plan{Modes: both}, []string{
			"steady cp 1", "steady ap 1", "kill cp 1", "kill ap 1",
			"steady ap 2", "steady cp 2",
			"steady cp 3", "steady ap 3",
		}},
		{"repeated", trial.Plan{Modes: both, Repeat: 2}, []string{
			"steady cp 1", "steady ap 1", "kill cp 1", "kill ap 1",
			"steady ap 2", "steady cp 2", "kill ap 2", "kill cp 2",
			"steady cp 3", "steady ap 3",
			"steady ap 4", "steady cp 4",
			"steady cp 5", "steady ap 5",
			"steady ap 6", "steady cp 6",
		}},
		{"one mode", trial.Plan{Modes: both[1:]}, []string{"steady ap 1", "kill ap 1", "steady ap 2", "steady ap 3"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, turn := range (Config{Plan: tt.plan, Scenarios: []scenario.Scenario{steady, kill}}).turns() {
				got = append(got, fmt.Sprintf("%s %s %d", turn.scenario.Name, turn.mode, turn.round))
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("turns are %q, want %q", got, tt.want)
			}
		})
	}
}

func TestModesShareTheSeedOfARoundAndNothingElseDoes(t *testing.T) {
	c := Config{
		Plan:      trial.Plan{Seed: 7, Modes: []scenario.Mode{scenario.CP, scenario.AP}},
		Scenarios: []scenario.Scenario{{Name: "a", Rounds: 2}, {Name: "b", Rounds: 1}},
	}
	seen := make(map[uint64]string)
	for _, turn := range c.turns() {
		of := fmt.Sprintf("%s %d", turn.scenario.Name, turn.round)
		if other, ok := seen[turn.seed]; ok && other != of {
			t.Errorf("%s has the seed of %s", of, other)
		}
		seen[turn.seed] = of
	}
	if len(seen) != 3 {
		t.Errorf("%d seeds, want one for each of the 3 scenarios and rounds", len(seen))
	}
	if seed(1, "a", 1) == seed(2, "a", 1) {
		t.Error("another seed of the comparison gives the same trial")
	}
}
