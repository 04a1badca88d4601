package scenario

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/need"
)

// pages are where docs/scenarios.md is, from here.
const pages = "../../../docs/"

func page(t *testing.T) string {
	t.Helper()
	text := need.Got(os.ReadFile(pages + "scenarios.md"))(t)
	return string(text)
}

func TestThePageShowsTheExampleFile(t *testing.T) {
	example := need.Got(os.ReadFile(pages + "scenarios/example.yaml"))(t)
	if !strings.Contains(page(t), "```yaml\n"+string(example)+"```\n") {
		t.Error("docs/scenarios.md does not show docs/scenarios/example.yaml as it is")
	}
}

func TestTheExampleFileIsAScenario(t *testing.T) {
	s := need.Got(ReadFile(pages + "scenarios/example.yaml"))(t)
	if s.Length.Duration() != 8*time.Second || len(s.Faults) == 0 || len(s.Storms) == 0 || len(s.Limits) != 2 {
		t.Errorf("the example is %+v; want 8 s with a storm, a fault and limits of both modes", s)
	}
}

func TestTheExamplesOfFaultsAreFaults(t *testing.T) {
	shown := regexp.MustCompile("`({at: .*})` \\|").FindAllStringSubmatch(page(t), -1)
	if len(shown) != len(kinds) {
		t.Fatalf("%d examples, want one of each of the %d kinds", len(shown), len(kinds))
	}
	seen := make(map[Kind]bool)
	for _, example := range shown {
		s, err := Parse("page", []byte("name: x\ndatacenters: 2\nfaults:\n- "+example[1]))
		if err != nil {
			t.Errorf("%s: %v", example[1], err)
			continue
		}
		seen[s.Faults[0].Kind] = true
	}
	if len(seen) != len(kinds) {
		t.Errorf("examples of %v only, want one of each kind", seen)
	}
}

func TestThePageShowsEveryKeyWithItsDefault(t *testing.T) {
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
			if !strings.Contains(text, row) {
				t.Errorf("docs/scenarios.md has no row %q", row)
			}
		}
	}
}

func TestThePageShowsEveryBuiltinScenario(t *testing.T) {
	text := page(t)
	for _, s := range builtins(t) {
		row := fmt.Sprintf("| [`%s`](../cmd/bench/scenario/scenarios/%s.yaml) | %s |\n", s.Name, s.Name, s.About)
		if !strings.Contains(text, row) {
			t.Errorf("docs/scenarios.md lacks\n%s", row)
		}
	}
}
