package scenario

import (
	"cmp"
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
			key := v.Type().Field(i).Tag.Get("yaml")
			if key == "-" {
				continue // no file has it
			}
			row := fmt.Sprintf("\n| `%s` | ", key)
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
		for _, length := range []time.Duration{10 * time.Second, 15 * time.Second, s.Length.Duration()} {
			if s.Length == 0 || s.Length.Duration() == length {
				expect.OK(t, s.Fits(cmp.Or(length, usual)))
			}
		}
	}
}

func TestBuiltinScenariosSayWhatTheyShowAndStateLimits(t *testing.T) {
	for _, s := range builtins(t) {
		expect.That(t, len(s.About) >= 40 && s.Title != s.Name, "%s: about %q, title %q; want sentences, and a title in words", s.Name, s.About, s.Title)
		if statesCostsOnly(s) {
			continue
		}
		for _, c := range Columns() {
			l := s.LimitsOf(c)
			expect.That(t, !c.Promises() || l.FalseEvictions != nil || l.Converged != nil || s.HeartbeatsOnly() && l.WriteSuccess != nil, "%s states no limits for the column %s", s.Name, c.Name)
		}
	}
}

// statesCostsOnly reports whether a scenario only shows what renewals cost: how many a machine carries is no promise.
func statesCostsOnly(s Scenario) bool { return s.HeartbeatsOnly() && s.Name != "heartbeats-1000" }

func TestBuiltinScenariosOfHeartbeatsSendNothingElse(t *testing.T) {
	for _, s := range builtins(t) {
		is := s.Name == "idle" || strings.HasPrefix(s.Name, "heartbeats-")
		expect.Equal(t, s.HeartbeatsOnly(), is, "%s: nothing but heartbeats:", s.Name)
	}
}

// Kills amid writes need writes that overlap, of keys whose histories the checker decides however many calls overlap.
func TestKillsAmidWritesAreManyAndOfSharedKeysOnly(t *testing.T) {
	all := builtins(t)
	s := all[slices.IndexFunc(all, func(s Scenario) bool { return s.Name == "kills-amid-writes" })]
	expect.That(t, s.Load.OwnKeys == 0 && s.Load.SharedKeys > 0 && s.Load.KeyWriters >= 20, "its load is %+v, want 20 writers of shared keys", s.Load)
	expect.That(t, s.Faults[0].Times >= 20 && s.Load.Sealed > 0, "%d kills and %v sealed instances per second, want 20 and some", s.Faults[0].Times, s.Load.Sealed)
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
