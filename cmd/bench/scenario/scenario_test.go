package scenario

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// pages are where docs/scenarios.md is, from here.
const pages = "../../../docs/"

func page(t *testing.T) string {
	t.Helper()
	text := need.Got(os.ReadFile(pages + "scenarios.md"))(t)
	return string(text)
}

func TestScenarioPageShowsTheExampleFile(t *testing.T) {
	example := need.Got(os.ReadFile(pages + "scenarios/example.yaml"))(t)
	expect.That(t, strings.Contains(page(t), "```yaml\n"+string(example)+"```\n"), "docs/scenarios.md does not show docs/scenarios/example.yaml as it is")
}

func TestScenarioOfTheExampleFileIsValid(t *testing.T) {
	s := need.Got(ReadFile(pages + "scenarios/example.yaml"))(t)
	expect.That(t, s.Length.Duration() == 8*time.Second && len(s.Faults) != 0 && len(s.Storms) != 0 && len(s.Limits) == 2,
		"the example is %+v; want 8 s with a storm, a fault and limits of both modes", s)
}

func TestFaultExamplesOfThePageAreFaults(t *testing.T) {
	shown := regexp.MustCompile("`({at: .*})` \\|").FindAllStringSubmatch(page(t), -1)
	need.That(t, len(shown) == len(kinds), "%d examples, want one of each of the %d kinds", len(shown), len(kinds))
	seen := make(map[Kind]bool)
	for _, example := range shown {
		s, err := Parse("page", []byte("name: x\ndatacenters: 2\nfaults:\n- "+example[1]))
		if err != nil {
			t.Errorf("%s: %v", example[1], err)
			continue
		}
		seen[s.Faults[0].Kind] = true
	}
	expect.That(t, len(seen) == len(kinds), "examples of %v only, want one of each kind", seen)
}

func TestScenarioPageShowsEveryKeyWithItsDefault(t *testing.T) {
	text, fresh := page(t), defaults()
	for _, tt := range []struct {
		values any
		shown  bool // with their defaults
	}{
		{fresh, false},
		{fresh.Load, true},
		{Fault{}, false},
		{Limits{}, false},
	} {
		v := reflect.ValueOf(tt.values)
		for i := range v.NumField() {
			row := fmt.Sprintf("\n| `%s` | ", v.Type().Field(i).Tag.Get("yaml"))
			if tt.shown {
				row += fmt.Sprintf("`%v` | ", v.Field(i))
			}
			expect.That(t, strings.Contains(text, row), "docs/scenarios.md has no row %q", row)
		}
	}
}

func TestScenarioPageShowsEveryBuiltinScenario(t *testing.T) {
	text := page(t)
	for _, s := range builtins(t) {
		row := fmt.Sprintf("| [`%s`](../cmd/bench/scenario/scenarios/%s.yaml) | %s |\n", s.Name, s.Name, s.About)
		expect.That(t, strings.Contains(text, row), "docs/scenarios.md lacks\n%s", row)
	}
}

func builtins(t *testing.T) []Scenario {
	t.Helper()
	all := need.Got(Builtin())(t)
	return all
}

func TestBuiltinScenariosAreTheFilesOfTheirNames(t *testing.T) {
	entries := need.Got(files.ReadDir("scenarios"))(t)
	all := builtins(t)
	for _, entry := range entries {
		name := strings.TrimSuffix(entry.Name(), ".yaml")
		expect.That(t, slices.ContainsFunc(all, func(s Scenario) bool { return s.Name == name }),
			"scenarios/%s is in no order, or has another name within", entry.Name())
	}
	expect.That(t, len(all) == len(entries), "Builtin() has %d scenarios, want %d", len(all), len(entries))
}

func TestBuiltinScenariosFitQuickAndFullTrials(t *testing.T) {
	for _, s := range builtins(t) {
		for _, length := range []time.Duration{10 * time.Second, 15 * time.Second} {
			expect.OK(t, s.Fits(length))
		}
	}
}

func TestBuiltinScenariosSayWhatTheyShowAndStateLimits(t *testing.T) {
	for _, s := range builtins(t) {
		expect.That(t, len(s.About) >= 40 && s.Title != s.Name, "%s: about %q, title %q; want sentences, and a title in words", s.Name, s.About, s.Title)
		for _, mode := range []Mode{CP, AP} {
			_, stated := s.Limits[mode]
			expect.That(t, stated, "%s states no limits for %s", s.Name, mode)
		}
	}
}

// A lost majority is noticed after 3 s; a shorter fault would not show what follows.
func TestFaultsThatTakeTheMajorityOutlastItsNotice(t *testing.T) {
	for _, s := range builtins(t) {
		for _, f := range s.Faults {
			if f.Kind != Isolate && f.Kind != Pause {
				continue
			}
			lasts := f.For.In(10 * time.Second)
			expect.That(t, lasts >= 4*time.Second, "%s: %s lasts %s in a trial of 10 s, want 4s at least", s.Name, f.Kind, lasts)
		}
	}
}

func TestQuickScenariosAreSteadyStateLeaderKilledAndPartition(t *testing.T) {
	var quick []string
	for _, s := range builtins(t) {
		if s.Quick {
			quick = append(quick, s.Name)
		}
	}
	expect.Slice(t, quick, []string{"steady", "leader-killed", "partition-minority"}, "quick scenarios are")
}
