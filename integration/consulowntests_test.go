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
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// ownTestsPage says which of the tests of Consul's Go client pass, and why the others do not.
const ownTestsPage = "../docs/reference/protocol/consul-tests.md"

// The sections of the page.
const (
	everywhere   = "Passed"
	laterConsul  = "Passed, and not with Consul 1.15.6" // the one of make wild, which is older than the client
	atHostsAgent = "Passed at the agent of a host"
	onOneNode    = "Passed on one node"
	notPassed    = "Not passed"
	nowhere      = "Not passed with Consul either"
)

// ownTestsPlaces are what stands in the place of the agent that a test starts.
var ownTestsPlaces = []struct {
	name     string
	behind   string // the value of asConsul; "": Consul itself
	sections []string
	passed   []string // of these
}{
	{"one node", "1", []string{everywhere, laterConsul, atHostsAgent, onOneNode, notPassed, nowhere}, []string{everywhere, laterConsul, atHostsAgent, onOneNode}},
	{"three nodes", "3", []string{everywhere, laterConsul, atHostsAgent, onOneNode, notPassed, nowhere}, []string{everywhere, laterConsul, atHostsAgent}},
	{"Consul", "", []string{everywhere, laterConsul, atHostsAgent, onOneNode, nowhere}, []string{everywhere, atHostsAgent, onOneNode}},
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
			if place.behind == "" {
				path = consul
			}
			var g errgroup.Group
			g.SetLimit(3)
			var run []string
			for _, name := range names {
				if slices.Contains(place.sections, sections[name]) {
					run = append(run, name)
				}
			}
			got := make([]error, len(run))
			passes := func(name string) bool { return slices.Contains(place.passed, sections[name]) }
			for i, name := range run {
				behind := place.behind
				if sections[name] == atHostsAgent {
					behind += " host"
				}
				g.Go(func() error {
					for try := 1; try == 1 || try <= ownTries && got[i] != nil && passes(name); try++ {
						got[i] = runOwnTest(t, program, path, behind, name)
					}
					return nil
				})
			}
			need.OK(t, g.Wait())
			passed := 0
			for i, name := range run {
				if got[i] == nil {
					passed++
				} else {
					t.Logf("%s: %v", name, got[i])
				}
				expect.That(t, (got[i] == nil) == passes(name), "%s passes: %v, and the page has it under %q", name, got[i] == nil, sections[name])
			}
			t.Logf("%d of %d tests passed", passed, len(run))
		})
	}
}

// runOwnTest returns nil if a test passes, and otherwise what it says.
func runOwnTest(t *testing.T, program, path, behind, name string) error {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, err := runOwnTests(ctx, t, program, path, behind, name, 1)
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
