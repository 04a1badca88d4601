package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// ownTestsPage says which of the tests of Consul's Go client pass, and why the others do not.
const ownTestsPage = "../docs/protocol/consul-tests.md"

// TestWildConsulsOwnTestsAreAsThePageSays runs all tests of Consul's Go client with Rollcall in the place of Consul, those
// too that are about what Rollcall does not serve, and compares the outcome with the page. A test that the page lists as
// passed is run up to ownTries times; one of the others that passes is a mistake of the page as well.
func TestWildConsulsOwnTestsAreAsThePageSays(t *testing.T) {
	inTheWild(t)
	program, path := compileOwnTests(t), standIn(t)
	list := need.Got(exec.Command(program, "-test.list", ".*").Output())(t)
	names := strings.Fields(string(list))
	for _, nodes := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d nodes", nodes), func(t *testing.T) {
			want := pageOfOwnTests(t, nodes)
			expect.Slice(t, slices.Sorted(maps.Keys(want)), slices.Sorted(slices.Values(names)), "tests that the page names:")
			var g errgroup.Group
			g.SetLimit(3)
			got := make([]error, len(names))
			for i, name := range names {
				g.Go(func() error {
					for try := 1; try == 1 || try <= ownTries && want[name] && got[i] != nil; try++ {
						got[i] = runOwnTest(t, program, path, nodes, name)
					}
					return nil
				})
			}
			need.OK(t, g.Wait())
			passed := 0
			for i, name := range names {
				if got[i] == nil {
					passed++
				}
				expect.That(t, (got[i] == nil) == want[name], "%s passes: %v, as the page says: %v; %v", name, got[i] == nil, want[name], got[i])
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

// pageOfOwnTests reads which tests the page names, and whether they pass with so many nodes.
func pageOfOwnTests(t *testing.T, nodes int) map[string]bool {
	t.Helper()
	page := need.Got(os.ReadFile(ownTestsPage))(t)
	passes := make(map[string]bool)
	for section := range strings.SplitSeq(string(page), "\n## ") {
		heading, body, _ := strings.Cut(section, "\n")
		pass := heading == "Passed" || heading == "Passed on one node" && nodes == 1
		for _, name := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(body, -1) {
			_, twice := passes[name[1]]
			expect.That(t, !twice, "the page names %s twice", name[1])
			passes[name[1]] = pass
		}
	}
	return passes
}
