package rollcall_test

import (
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// TestListsOfTheGateNameTestsThatExist compares make test's lists of tests with the tests that exist. make passes a
// name to all packages at once, so a name on the list of other packages must be unique to one test.
func TestListsOfTheGateNameTestsThatExist(t *testing.T) {
	packages := map[string][]string{} // packages with a test of a name
	for _, d := range newProject(t).declared {
		if strings.HasPrefix(d.name, "Test") && strings.HasSuffix(d.file, "_test.go") {
			packages[d.name] = append(packages[d.name], path.Dir(d.file))
		}
	}
	row := regexp.MustCompile(`(?m)^(Test\w+) +(.+)$`)
	for _, of := range row.FindAllStringSubmatch(string(need.Got(os.ReadFile("integration/gate.txt"))(t)), -1) {
		expect.That(t, slices.Contains(packages[of[1]], "integration"), "integration has no %s, which is in its gate.txt", of[1])
	}
	for _, list := range []string{"integration/elsewhere.txt", "integration/alone.txt"} {
		for _, of := range row.FindAllStringSubmatch(string(need.Got(os.ReadFile(list))(t)), -1) {
			expect.Slice(t, packages[of[1]], []string{strings.Fields(of[2])[0]}, "packages that have %s of %s", of[1], list)
		}
	}
}
