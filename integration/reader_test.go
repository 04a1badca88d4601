package integration

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/need"
)

// block is a fenced block of a page: of commands, of a program, or of text.
type block struct {
	line           int
	language, text string
	only           string // the one place that it is for: "clone" or "release"; "long": for no test; empty: for all
	isPrinted      bool   // it is text right behind another block, which prints it
}

// fence has a block's language, and behind that what the block is for.
var fence = regexp.MustCompile("(?ms)^ *```(\\w*)(?: (\\w+))?\n(.*?)^ *```$")

// blocksOf are the blocks of a page behind one of its lines, up to another one.
func blocksOf(t *testing.T, file, begin, end string) (blocks []block) {
	t.Helper()
	before, part, ok := strings.Cut(string(need.Got(os.ReadFile(file))(t)), begin)
	need.That(t, ok, "%s has no line %q", file, begin)
	part, _, _ = strings.Cut(part, end)
	last := len(part)
	for _, at := range fence.FindAllStringSubmatchIndex(part, -1) {
		b := block{line: strings.Count(before+begin+part[:at[0]], "\n") + 1, language: part[at[2]:at[3]], text: part[at[6]:at[7]]}
		if at[4] >= 0 {
			b.only = part[at[4]:at[5]]
		}
		b.isPrinted = b.language == "text" && last < at[0] && strings.TrimSpace(part[last:at[0]]) == ""
		last = at[1]
		blocks = append(blocks, b)
	}
	need.That(t, len(blocks) != 0, "%s has no blocks behind %q", file, begin)
	return blocks
}

// reader is a shell that runs the blocks of a page, with a network and processes of its own. They end with it.
type reader struct {
	files string // directory of what the reader writes down
	shell *exec.Cmd
	in    io.Writer
	out   *bufio.Reader
}

const (
	// blockLimit bounds a block, among them one that builds the programs.
	blockLimit = 10 * time.Minute
	// blockEnd is the line that the shell prints after a block.
	blockEnd = "-- end of block\n"
)

// prelude has the shell end at the first line that fails, and gives it a network with one address that others could reach. A command
// that stays has a log; begun waits until the command says there that it does what it is for, and end_all ends all of them, the last
// one first, as Ctrl-C does. Other commands in the background end by themselves; finish sees them end well.
const prelude = `set -eu
ip link set lo up
ip address add 10.0.0.1/24 dev lo
staying= beside= logs=0
new_log() { log=$FILES/log$((logs += 1)); }
begun() {
	staying="$! $staying"
	until grep -qsE '^ready$|msg=ready\>|^watching |^registered ' $log; do kill -0 $! || { cat $log; exit 1; }; sleep 0.2; done
	cat $log
}
end_all() {
	for p in $staying; do kill -INT $p; wait $p || { echo "exit status $?"; tail -n 20 $FILES/log*; exit 1; }; done
	staying=
}
finish() { for p in $beside; do wait $p; done; beside=; }
`

// newReader starts the shell in a directory. It has more variables in its environment, and one, FILES, for prelude.
func newReader(t *testing.T, dir string, env ...string) *reader {
	t.Helper()
	r := &reader{files: t.TempDir(), shell: exec.Command("unshare", "-Urnpf", "--mount-proc", "--kill-child", "bash")}
	r.shell.Dir, r.shell.Env = dir, append(append(os.Environ(), "FILES="+r.files), env...)
	r.in = need.Got(r.shell.StdinPipe())(t)
	r.out = bufio.NewReader(need.Got(r.shell.StdoutPipe())(t))
	r.shell.Stderr = r.shell.Stdout
	need.OK(t, r.shell.Start())
	t.Cleanup(func() { _ = r.shell.Process.Kill(); _ = r.shell.Wait() })
	said, err := r.run(prelude)
	need.Present(t, err == nil, "unshare -Urnpf does not work here: allow unprivileged user namespaces, or run as root, with iproute2: %v: %s", err, said)
	return r
}

// read runs the blocks that are for all places and those for this one, and then ends what they started.
func (r *reader) read(t *testing.T, page string, blocks []block, place string) {
	t.Helper()
	said := ""
	for _, b := range blocks {
		if b.only != "" && b.only != place {
			continue
		}
		var err error
		switch b.language {
		case "go": // TestGoClientCodeOfThePagesCompiles
		case "text":
			need.That(t, !b.isPrinted || printed(said, b.text), "%s:%d says that this is printed:\n%s\nit was:\n%s", page, b.line, b.text, said)
		case "sh":
			said, err = r.run(playable(b.text))
		case "yaml":
			said, err = r.spring(t, b.text)
		case "python":
			said, err = r.program("python3", b.text)
		case "javascript":
			said, err = r.program("node", b.text)
		default:
			err = fmt.Errorf("a block of %q cannot be run; one that is not to be run is of text", b.language)
		}
		need.That(t, err == nil, "%s:%d: %v\n%s\nprinted:\n%s", page, b.line, err, b.text, said)
		t.Logf("%s:%d:\n%s", page, b.line, said)
	}
	said, err := r.run(`[ "$staying" ] || { echo nothing was started; exit 1; }; end_all`)
	need.That(t, err == nil, "%s: what was started did not end well: %v\n%s", page, err, said)
}

// printed says whether lines were printed in their order, "…" standing for anything.
func printed(said, lines string) bool {
	pattern := "(?m)"
	for line := range strings.Lines(lines) {
		pattern += "^.*" + strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(line)), "…", ".*") + ".*$(?s:.*?)"
	}
	return regexp.MustCompile(pattern).MatchString(said)
}

var (
	// staying is a command that goes on until Ctrl-C; in the pages it has a terminal of its own, or is in the background.
	staying  = regexp.MustCompile(`(?m)^ *(rollcall (?:dev\b.*?|server\b.*?|watch|.*? --heartbeat))(?: &)?$`)
	beside   = regexp.MustCompile(`(?m)[^&] &$`)
	toRefuse = regexp.MustCompile(`(?m)^ *# refused: (.*)\n(.*)$`)
	played   = strings.NewReplacer(
		"new_log; rollcall dev", "end_all; new_log; rollcall dev", // a second cluster has the ports of the first
		"kill -9 4712", "kill -9 $(sed -n 's/^node=2 .*pid=//p' $FILES/log1)",
		"kill $(jobs -p)", "kill $(jobs -p); staying=")
)

// playable are lines for the shell: a command below "# refused: WORDS" must fail with the words, and the pid of the second node of
// rollcall dev, which no page can know, is that of its log.
func playable(lines string) string {
	lines = staying.ReplaceAllString(lines, `new_log; $1 >$$log 2>&1 & begun`)
	lines = beside.ReplaceAllString(lines, `$0 beside+=" $$!"`)
	lines = toRefuse.ReplaceAllString(lines, `if said=$$($2 2>&1); then echo "it was not refused"; exit 1; fi; echo "$$said" | grep -e '$1'`)
	return played.Replace(lines) + "finish\n"
}

// program runs a program until it ends.
func (r *reader) program(interpreter, text string) (string, error) {
	file := filepath.Join(r.files, "program")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return "", err
	}
	return r.run(interpreter + " " + file)
}

// springName is where the settings of an application of Spring have its name.
var springName = regexp.MustCompile(`(?m)^spring\.application\.name: (\S+)$`)

// spring starts an application of Spring Cloud with these settings, and ends it when a node lists it.
func (r *reader) spring(t *testing.T, settings string) (string, error) {
	t.Helper()
	name := springName.FindStringSubmatch(settings)
	if name == nil {
		return "", fmt.Errorf("no line matches %s", springName)
	}
	file := filepath.Join(r.files, "application.yaml")
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		return "", err
	}
	start := `{"do":"start","url":"","app":"","id":"shop-1","lease":"90"}`
	jar := need.Got(filepath.Abs("clients/java/spring/target/driver.jar"))(t)
	return r.run(fmt.Sprintf(`cp %s .; (echo '%s'; until curl -sf -o answer http://127.0.0.1:8763/eureka/apps/%s; do sleep 0.5; done) | java -jar %s`, file, start, strings.ToUpper(name[1]), jar))
}

// run has the shell run lines, and returns what they print. At the first that fails the shell ends, with its exit status.
func (r *reader) run(lines string) (string, error) {
	file := filepath.Join(r.files, "block")
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		return "", err
	}
	fmt.Fprintf(r.in, ". %s </dev/null; echo; printf -- '%s'\n", file, strings.ReplaceAll(blockEnd, "\n", `\n`))
	limit := time.AfterFunc(blockLimit, func() { _ = r.shell.Process.Kill() })
	defer limit.Stop()
	var said strings.Builder
	for {
		line, err := r.out.ReadString('\n')
		if line == blockEnd {
			return said.String(), nil
		}
		said.WriteString(line)
		if err != nil {
			return said.String(), errors.Join(errors.New("the shell has ended"), r.shell.Wait())
		}
	}
}
