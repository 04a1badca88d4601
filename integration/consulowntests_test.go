package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// ownTestsPage says which of the tests of Consul's Go client pass, and why the others do not.
const ownTestsPage = "../docs/protocol/consul-tests.md"

// ownTestsPlaces are what stands in the place of the agent that a test starts: so many nodes of Rollcall, or Consul itself.
var ownTestsPlaces = []struct {
	name  string
	nodes int
	fails func(section string) bool // of the page
}{
	{"Consul", 0, func(section string) bool { return section == "Not passed with Consul either" }},
	{"one node", 1, func(section string) bool { return section != "Passed" && section != "Passed on one node only" }},
	{"three nodes", 3, func(section string) bool { return section != "Passed" }},
}

// TestWildConsulsOwnTestsAreAsThePageSays runs all tests of Consul's Go client, those too that are about what Rollcall does
// not serve, and compares the outcome with the page. A test that is to pass is run up to ownTries times; one that is not to
// pass and does is a mistake of the page, too.
func TestWildConsulsOwnTestsAreAsThePageSays(t *testing.T) {
	consul := filepath.Dir(inTheWild(t, "consul")[0])
	program, shim := compileOwnTests(t), standIn(t)
	names := strings.Fields(string(need.Got(exec.Command(program, "-test.list", ".*").Output())(t)))
	sections := pageOfOwnTests(t)
	for _, name := range names {
		expect.That(t, sections[name] != "", "the page does not name %s", name)
	}
	need.Equal(t, len(sections), len(names), "tests that the page names:")
	for _, place := range ownTestsPlaces {
		t.Run(place.name, func(t *testing.T) {
			path := shim
			if place.nodes == 0 {
				path = consul
			}
			var g errgroup.Group
			g.SetLimit(3)
			got := make([]error, len(names))
			for i, name := range names {
				g.Go(func() error {
					for try := 1; try == 1 || try <= ownTries && got[i] != nil && !place.fails(sections[name]); try++ {
						got[i] = runOwnTest(t, program, path, place.nodes, name)
					}
					return nil
				})
			}
			need.OK(t, g.Wait())
			passed := 0
			for i, name := range names {
				if got[i] == nil {
					passed++
				} else {
					t.Logf("%s: %v", name, got[i])
				}
				expect.That(t, (got[i] != nil) == place.fails(sections[name]), "%s passes: %v, and the page has it under %q", name, got[i] == nil, sections[name])
			}
			t.Logf("%d of %d tests passed", passed, len(names))
		})
	}
}

// runOwnTest returns nil if a test passes, and otherwise what it says.
func runOwnTest(t *testing.T, program, path string, nodes int, name string) error {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, err := runOwnTests(ctx, t, program, path, nodes, name, 1)
	switch {
	case bytes.Contains(out, []byte("--- SKIP: "+name+" ")):
		return errors.New("it skips itself")
	case err != nil:
		return fmt.Errorf("%w\n%s", err, failures(out))
	}
	return nil
}

// pageOfOwnTests reads in which section the page names each test.
func pageOfOwnTests(t *testing.T) map[string]string {
	t.Helper()
	page := need.Got(os.ReadFile(ownTestsPage))(t)
	sections := make(map[string]string)
	for _, section := range strings.Split(string(page), "\n## ")[1:] {
		heading, body, _ := strings.Cut(section, "\n")
		for _, name := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(body, -1) {
			earlier, twice := sections[name[1]]
			expect.That(t, !twice, "the page names %s under %q and under %q", name[1], earlier, heading)
			sections[name[1]] = heading
		}
	}
	return sections
}
