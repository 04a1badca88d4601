package integration

import (
	"bufio"
	"bytes"
	"context"
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

// TestReadmeIsTrue runs the blocks of README.md in their order, as they stand, in a clone, and in what ROLLCALL_ARCHIVE names, the
// archive of a release, in a network of their own. A block of text after one of commands is what they print, "…" standing for
// anything. The Go code of README.md is that of the package's examples.
func TestReadmeIsTrue(t *testing.T) {
	installed(t, "node/node_modules/.stamp", "run make clients")
	installed(t, "python/.venv/.stamp", "apt-get install -y python3-venv, then make clients")
	installed(t, "java/target/.stamp", "apt-get install -y default-jdk-headless maven, then make clients")
	t.Parallel()
	if out, err := exec.Command("unshare", "-Urnpf", "--mount-proc", "ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		lacks(t, "unshare -Urnpf does not work here (%v: %s): allow unprivileged user namespaces, or run as root, with iproute2", err, out)
	}
	blocks := readmeBlocks(t)
	t.Run("clone", func(t *testing.T) {
		t.Parallel()
		r := newReadme(t, cloned(t))
		r.runAll(t, blocks, "release")
	})
	t.Run("release", func(t *testing.T) {
		archive := os.Getenv("ROLLCALL_ARCHIVE")
		if archive == "" {
			t.Log("ROLLCALL_ARCHIVE names no archive: make release-check does")
			return
		}
		dir := t.TempDir()
		need.OK(t, os.Symlink(archive, filepath.Join(dir, filepath.Base(archive))))
		newReadme(t, dir).runAll(t, blocks, "clone")
	})
}

// readmeBlock is a fenced block: of commands, of a program, or of text.
type readmeBlock struct {
	line           int
	language, text string
	only           string // "clone" or "release": what it is for; empty: both
}

// fence begins a block; what stands behind the language is what it is for.
var fence = regexp.MustCompile("(?ms)^```(\\w+)(?: (\\w+))?\n(.*?)^```$")

func readmeBlocks(t *testing.T) (blocks []readmeBlock) {
	t.Helper()
	page := need.Got(os.ReadFile("../README.md"))(t)
	for _, at := range fence.FindAllSubmatchIndex(page, -1) {
		b := readmeBlock{line: bytes.Count(page[:at[0]], []byte("\n")) + 1, language: string(page[at[2]:at[3]]), text: string(page[at[6]:at[7]])}
		if at[4] >= 0 {
			b.only = string(page[at[4]:at[5]])
		}
		blocks = append(blocks, b)
	}
	need.That(t, len(blocks) != 0, "README.md has no blocks")
	return blocks
}

// cloned is a copy of the project: what git knows of, and what is not committed yet.
func cloned(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.Command("sh", "-c", `cd .. && git ls-files -coz --exclude-standard | xargs -0 sh -c 'for f; do [ ! -e "$f" ] || printf "%s\0" "$f"; done' sh | xargs -0 cp --parents -t "$1"`, "sh", dir).CombinedOutput()
	need.That(t, err == nil, "copy the project: %v\n%s", err, out)
	return dir
}

// readme is a reader of README.md with a shell, which has a network and processes of its own. They end with it.
type readme struct {
	files   string // directory of what the reader writes down
	shell   *exec.Cmd
	in      io.Writer
	out     *bufio.Reader
	waiting bool // for the end of a cluster that a block started
}

const (
	// blockLimit bounds a block, among them one that builds the programs.
	blockLimit = 10 * time.Minute
	// blockEnd is what the shell prints after a block, before its exit status.
	blockEnd = "-- end of block "
)

func newReadme(t *testing.T, dir string) *readme {
	t.Helper()
	r := &readme{files: t.TempDir()}
	ctx, cancel := context.WithCancel(context.Background())
	r.shell = exec.CommandContext(ctx, "unshare", "-Urnpf", "--mount-proc", "--kill-child", "bash")
	clients := need.Got(filepath.Abs("clients"))(t)
	r.shell.Dir = dir
	r.shell.Env = append(os.Environ(), "NODE_PATH="+filepath.Join(clients, "node/node_modules"),
		"PATH="+filepath.Join(clients, "python/.venv/bin")+":"+os.Getenv("PATH"), "GOFLAGS=-trimpath -buildvcs=false")
	r.in = need.Got(r.shell.StdinPipe())(t)
	r.out = bufio.NewReader(need.Got(r.shell.StdoutPipe())(t))
	r.shell.Stderr = r.shell.Stdout
	need.OK(t, r.shell.Start())
	t.Cleanup(func() { cancel(); _ = r.shell.Wait() })
	_, err := r.run("ip link set lo up; exec 2>&1")
	need.OK(t, err)
	return r
}

// runAll runs the blocks, but those that are for something else.
func (r *readme) runAll(t *testing.T, blocks []readmeBlock, without string) {
	t.Helper()
	said := ""
	for _, b := range blocks {
		if b.only == without {
			continue
		}
		var err error
		switch b.language {
		case "go": // TestGoClientCodeOfThePagesCompiles
		case "text":
			need.That(t, printed(said, b.text), "README.md:%d says that this is printed:\n%s\nit was:\n%s", b.line, b.text, said)
		case "sh":
			said, err = r.commands(b.text)
		case "yaml":
			said, err = r.spring(t, b.text)
		case "python":
			said, err = r.program("python3", b.text)
		case "javascript":
			said, err = r.program("node", b.text)
		default:
			err = fmt.Errorf("blocks of %q cannot be run", b.language)
		}
		need.That(t, err == nil, "README.md:%d: %v\n%s\nprinted:\n%s", b.line, err, b.text, said)
		t.Logf("README.md:%d:\n%s", b.line, said)
	}
}

// printed says whether lines were printed in their order, "…" standing for anything.
func printed(said, lines string) bool {
	pattern := "(?m)"
	for line := range strings.Lines(lines) {
		pattern += "^.*" + strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(line)), "…", ".*") + ".*$(?s:.*?)"
	}
	return regexp.MustCompile(pattern).MatchString(said)
}

// staying are commands that go on until Ctrl-C, in a terminal of their own.
var staying = regexp.MustCompile(`(?m)^(make run|(?:\S*/)?rollcall dev\b.*)$`)

// commands runs lines in the shell. A cluster is started beside it, after the one that ran, when it has said "ready".
func (r *readme) commands(lines string) (string, error) {
	return r.run(staying.ReplaceAllStringFunc(lines, func(line string) string {
		stop := ""
		if r.waiting {
			stop = "kill $cluster 2>/dev/null && wait $cluster || true; "
		}
		r.waiting = true
		return stop + "rm -f cluster.log; " + line + ` >cluster.log & cluster=$!; until grep -qsx ready cluster.log; do kill -0 $cluster || { cat cluster.log; exit 1; }; sleep 0.2; done; cat cluster.log`
	}))
}

// program runs a program until it ends.
func (r *readme) program(interpreter, text string) (string, error) {
	file := filepath.Join(r.files, "program")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return "", err
	}
	return r.run(interpreter + " " + file)
}

// springName is where the settings of an application of Spring have its name.
var springName = regexp.MustCompile(`(?m)^spring\.application\.name: (\S+)$`)

// spring starts an application of Spring Cloud with these settings, and ends it when a node lists it.
func (r *readme) spring(t *testing.T, settings string) (string, error) {
	t.Helper()
	name := springName.FindStringSubmatch(settings)
	if name == nil {
		return "", fmt.Errorf("no line matches %s", springName)
	}
	if err := os.WriteFile(filepath.Join(r.shell.Dir, "application.yaml"), []byte(settings), 0o600); err != nil {
		return "", err
	}
	start := `{"do":"start","url":"","app":"","id":"shop-1","lease":"90"}`
	jar := need.Got(filepath.Abs("clients/java/spring/target/driver.jar"))(t)
	return r.run(fmt.Sprintf(`(echo '%s'; until curl -sf -o answer http://127.0.0.1:8763/eureka/apps/%s; do sleep 0.5; done) | java -jar %s`, start, strings.ToUpper(name[1]), jar))
}

// run has the shell run lines, and returns what they print. A line that fails is the last one.
func (r *readme) run(lines string) (string, error) {
	file := filepath.Join(r.files, "block")
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		return "", err
	}
	fmt.Fprintf(r.in, "set -e; . %s </dev/null; set +e; echo; echo '%s'$?\n", file, blockEnd)
	type result struct {
		said string
		err  error
	}
	done := make(chan result, 1)
	go func() {
		var said strings.Builder
		for {
			line, err := r.out.ReadString('\n')
			if status, ends := strings.CutPrefix(line, blockEnd); ends {
				if status != "0\n" {
					err = fmt.Errorf("exit status %s", strings.TrimSpace(status))
				}
				done <- result{said.String(), err}
				return
			}
			said.WriteString(line)
			if err != nil {
				done <- result{said.String(), fmt.Errorf("the shell has ended: %w", err)}
				return
			}
		}
	}()
	select {
	case r := <-done:
		return r.said, r.err
	case <-time.After(blockLimit):
		return "", fmt.Errorf("not done within %v", blockLimit)
	}
}
