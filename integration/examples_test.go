package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
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
			_, section, ok := strings.Cut(text, "\n## An example\n")
			_, isElsewhere := needElsewhere[name]
			expect.That(t, ok || folder == "use" || name == "three-machines.md", "%s has no example", name)
			if !ok || isElsewhere {
				continue
			}
			examples++
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				section, _, _ = strings.Cut(section, "\n## ")
				runExample(t, section)
			})
		}
		expect.That(t, examples >= least, "docs/%s has %d examples that can be run, want %d", folder, examples, least)
	}
}

// TestFirstHourRunsAsItStands runs the page that newcomers begin with, from its first cluster on.
func TestFirstHourRunsAsItStands(t *testing.T) {
	t.Parallel()
	_, text, ok := strings.Cut(string(need.Got(os.ReadFile("../docs/start.md"))(t)), "\n## Start a cluster\n")
	need.That(t, ok, "start.md starts no cluster")
	text, _, ok = strings.Cut(text, "\n## Other clusters to look at\n")
	need.That(t, ok, "start.md shows no other clusters")
	runExample(t, text)
}

var (
	codeBlock = regexp.MustCompile("(?ms)^ *```(\\w*)\n(.*?)^ *```$")
	// endless is a command that ends by Ctrl-C only; in the pages it has a terminal of its own.
	endless = regexp.MustCompile(`(?m)^ *rollcall (?:(?:server|dev|watch)\b.*|.* --heartbeat)$`)
	// hasStarted is what such a command prints when it does what it is for.
	hasStarted = regexp.MustCompile(`(?m)^ready$|msg=ready\b|^watching |^registered `)
	exports    = regexp.MustCompile(`(?m)^ *export .*\n`)
	refusedOne = regexp.MustCompile(`(?m)^ *# refused: (.*)\n(.*)$`)
	secondNode = regexp.MustCompile(`node=2 .*pid=(\d+)`)
)

// example is a text whose blocks are run in order, on one machine.
type example struct {
	*machines
	exported string // by the blocks so far, for all terminals
	running  []*Process
}

const exampleMachine = "10.0.0.1"

// runExample runs the blocks of a text. What stands before an endless command in its block is run first.
func runExample(t *testing.T, text string) {
	t.Helper()
	e := &example{machines: newMachines(t, exampleMachine)}
	if strings.Contains(text, "a local cluster (`rollcall dev`)") {
		e.start(t, "rollcall dev")
	}
	for _, found := range codeBlock.FindAllStringSubmatch(text, -1) {
		if found[1] != "" && found[1] != "sh" {
			continue // a file, or what a command prints
		}
		block := found[2]
		line := endless.FindString(block)
		if rest := strings.Replace(block, line, "", 1); strings.TrimSpace(rest) != "" {
			out, err := e.run(exampleMachine, e.script(t, e.playable(t, rest)+"wait\n"))
			need.OKf(t, err, "%s", rest)
			t.Logf("%s\n%s", rest, out)
			e.exported += strings.Join(exports.FindAllString(rest, -1), "")
		}
		if line != "" {
			e.start(t, strings.TrimSpace(line))
		}
	}
	need.That(t, len(e.running) != 0, "the example starts nothing")
}

// playable is a block whose line below "# refused: WORDS" must fail with the words, and that kills the second node of rollcall
// dev, whose pid it cannot know.
func (e *example) playable(t *testing.T, block string) string {
	t.Helper()
	block = refusedOne.ReplaceAllString(block, `if said=$$($2 2>&1); then echo "it was not refused"; exit 1; fi; echo "$$said" | grep -e '$1'`)
	if strings.Contains(block, "kill -9 4712") {
		pid := secondNode.FindStringSubmatch(e.running[0].Output(t))
		need.That(t, pid != nil, "rollcall dev names no pid of its second node:\n%s", e.running[0].Output(t))
		block = strings.ReplaceAll(block, "kill -9 4712", "kill -9 "+pid[1])
	}
	return block
}

// script is a command that runs lines with what was exported before them.
func (e *example) script(t *testing.T, lines string) string {
	t.Helper()
	f := need.Got(os.CreateTemp(filepath.Join(e.dir, "bin"), "block"))(t)
	defer f.Close()
	need.Got(f.WriteString("set -eu\n" + e.exported + lines))(t)
	return "sh " + f.Name()
}

// start starts an endless command, and waits until it has begun.
func (e *example) start(t *testing.T, line string) {
	t.Helper()
	log := filepath.Join(e.dir, fmt.Sprintf("log%d", len(e.running)))
	p := need.Got(launch(t, log, nil, e.command(exampleMachine, e.script(t, "exec "+line+"\n"))))(t)
	e.running = append(e.running, p)
	t.Cleanup(func() { // as Ctrl-C ends it, the last one first
		if p.Running() {
			p.Signal(t, syscall.SIGINT)
			p.ExitCode(t, StopLimit)
		}
	})
	Eventually(t, ReadyLimit, line, func() error {
		return unless(hasStarted.MatchString(p.Output(t)), "it has not started:\n%s", p.Output(t))
	})
}
