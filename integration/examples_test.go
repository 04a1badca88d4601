package integration

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// needElsewhere are the pages of docs/run whose examples need what is not here, by what they need.
var needElsewhere = map[string]string{
	"systemd.md": "a machine with systemd", "docker.md": "a daemon of containers", "kubernetes.md": "a cluster of Kubernetes",
	"monitor.md": "Prometheus", "three-machines.md": "three machines; TestThreeMachinesWithTLSByTheCommandsOfTheDocument has them",
}

// TestExamplesOfThePagesRunAsTheyStand runs the section "An example" of each page of docs/run, and of those of docs/use and
// docs/understand that have one, each on a machine of its own.
func TestExamplesOfThePagesRunAsTheyStand(t *testing.T) {
	for folder, least := range map[string]int{"run": 15, "use": 5, "understand": 7} {
		pages := need.Got(filepath.Glob("../docs/" + folder + "/*.md"))(t)
		examples := 0
		for _, page := range pages {
			name := filepath.Base(page)
			text := string(need.Got(os.ReadFile(page))(t))
			_, isElsewhere := needElsewhere[name]
			ok := strings.Contains(text, anExample)
			expect.That(t, ok || folder == "use" || name == "three-machines.md", "%s has no example", name)
			if !ok || isElsewhere {
				continue
			}
			examples++
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				blocks := blocksOf(t, page, anExample, "\n## ")
				if _, example, _ := strings.Cut(text, anExample); strings.HasPrefix(example, "\nWith a local cluster (`rollcall dev`)") {
					blocks = slices.Insert(blocks, 0, block{language: "sh", text: "rollcall dev\n"})
				}
				readPage(t, page, blocks)
			})
		}
		expect.That(t, examples >= least, "docs/%s has %d examples that can be run, want %d", folder, examples, least)
	}
}

const anExample = "\n## An example\n"

// TestFirstHourRunsAsItStands runs the page that newcomers begin with, from its first cluster on.
func TestFirstHourRunsAsItStands(t *testing.T) {
	t.Parallel()
	const page = "../docs/start.md"
	readPage(t, page, blocksOf(t, page, "\n## Start a cluster\n", "\n## What next\n"))
}

// readPage runs the blocks of a page in an empty folder, with the program on the path.
func readPage(t *testing.T, page string, blocks []block) {
	t.Helper()
	bin := t.TempDir()
	need.OK(t, os.Symlink(Binary(t), filepath.Join(bin, "rollcall")))
	newReader(t, t.TempDir(), "PATH="+bin+":"+os.Getenv("PATH")).read(t, page, blocks, "")
}
