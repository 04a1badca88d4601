package scenario

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/need"
)

func builtins(t *testing.T) []Scenario {
	t.Helper()
	all := need.Got(Builtin())(t)
	return all
}

func TestEveryFileIsABuiltinScenarioOfItsName(t *testing.T) {
	entries := need.Got(files.ReadDir("scenarios"))(t)
	all := builtins(t)
	for _, entry := range entries {
		name := strings.TrimSuffix(entry.Name(), ".yaml")
		if !slices.ContainsFunc(all, func(s Scenario) bool { return s.Name == name }) {
			t.Errorf("scenarios/%s is in no order, or has another name within", entry.Name())
		}
	}
	if len(all) != len(entries) {
		t.Errorf("Builtin() has %d scenarios, want %d", len(all), len(entries))
	}
}

func TestBuiltinScenariosFitQuickAndFullTrials(t *testing.T) {
	for _, s := range builtins(t) {
		for _, length := range []time.Duration{10 * time.Second, 15 * time.Second} {
			if err := s.Fits(length); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestBuiltinScenariosSayWhatTheyShowAndStateLimits(t *testing.T) {
	for _, s := range builtins(t) {
		if len(s.About) < 40 || s.Title == s.Name {
			t.Errorf("%s: about %q, title %q; want sentences, and a title in words", s.Name, s.About, s.Title)
		}
		for _, mode := range []Mode{CP, AP} {
			if _, stated := s.Limits[mode]; !stated {
				t.Errorf("%s states no limits for %s", s.Name, mode)
			}
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
			if lasts := f.For.In(10 * time.Second); lasts < 4*time.Second {
				t.Errorf("%s: %s lasts %s in a trial of 10 s, want 4s at least", s.Name, f.Kind, lasts)
			}
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
	if want := []string{"steady", "leader-killed", "partition-minority"}; !slices.Equal(quick, want) {
		t.Errorf("quick scenarios are %q, want %q", quick, want)
	}
}
