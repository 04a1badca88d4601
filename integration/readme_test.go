package integration

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"html"
	"image"
	"image/color"
	"image/png"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/seed-20419f34/rollcall/internal/chromium"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// It runs the blocks of README.md in order, as they are, in a clone, and in what ROLLCALL_ARCHIVE names, the archive
// of a release. What a block prints directly follows it, with "…" standing for anything. The Go code of README.md is
// that of the package's examples.
func TestReadmeIsTrue(t *testing.T) {
	installed(t, "node/node_modules/.stamp", "run make clients")
	installed(t, "python/.venv/.stamp", "apt-get install -y python3-venv, then make clients")
	installed(t, "java/target/.stamp", "apt-get install -y default-jdk-headless maven, then make clients")
	t.Parallel()
	t.Run("clone", func(t *testing.T) {
		t.Parallel()
		readReadme(t, cloned(t), "clone", readmeBlocks(t))
	})
	t.Run("release", func(t *testing.T) {
		archive := os.Getenv("ROLLCALL_ARCHIVE")
		if archive == "" {
			t.Skip("ROLLCALL_ARCHIVE names no archive: make release-check does")
		}
		dir := t.TempDir()
		need.OK(t, os.Symlink(archive, filepath.Join(dir, filepath.Base(archive))))
		readReadme(t, dir, "release", readmeBlocks(t))
	})
}

// It runs the commands of README.md in a clone, and none of its programs for stock clients.
func TestReadmeWithoutStockClientsIsTrue(t *testing.T) {
	t.Parallel()
	var commands []block
	isStock := false
	for _, b := range readmeBlocks(t) {
		isStock = slices.Contains([]string{"yaml", "python", "javascript"}, b.language) || isStock && b.isPrinted
		if !isStock {
			commands = append(commands, b)
		}
	}
	readReadme(t, cloned(t), "clone", commands)
}

func readmeBlocks(t *testing.T) []block {
	t.Helper()
	return blocksOf(t, "../README.md", "# Rollcall\n", "\n## Licence\n")
}

func readReadme(t *testing.T, dir, place string, blocks []block) {
	t.Helper()
	clients := need.Got(filepath.Abs("clients"))(t)
	r := newReader(t, dir, "NODE_PATH="+filepath.Join(clients, "node/node_modules"),
		"PATH="+filepath.Join(clients, "python/.venv/bin")+":"+os.Getenv("PATH"), "GOFLAGS=-trimpath -buildvcs=false")
	r.read(t, "README.md", blocks, place)
}

// cloned returns a copy of the project: what git tracks, and what is not committed yet.
func cloned(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.Command("sh", "-c", `cd .. && git ls-files -coz --exclude-standard | xargs -0 sh -c 'for f; do [ ! -e "$f" ] || printf "%s\0" "$f"; done' sh | xargs -0 cp --parents -t "$1"`, "sh", dir).CombinedOutput()
	need.That(t, err == nil, "copy the project: %v\n%s", err, out)
	return dir
}

// needElsewhere has the pages of docs/run whose examples need something that is not here, by what they need.
var needElsewhere = map[string]string{
	"systemd.md": "a machine with systemd", "docker.md": "a daemon of containers", "kubernetes.md": "a cluster of Kubernetes",
	"monitor.md": "Prometheus", "three-machines.md": "three machines; TestThreeMachinesWithTLSByTheCommandsOfTheDocument has them",
}

// It runs the section "An example" of each page of docs/run, and of those of docs/use and docs/understand that have
// one, each on a machine of its own.
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

// It runs the page for newcomers, from its first cluster on.
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

// machines are network namespaces, each with one address and a directory of its own, on one bridge. They share no
// other network, not even with the test.
type machines struct {
	dir        string
	namespaces map[string]string // by address
}

// desk is the machine of a person who sets nodes up; it has no network.
const desk = "anywhere"

// newMachines makes a machine for each address. The namespaces end with the test.
func newMachines(t *testing.T, addresses ...string) *machines {
	t.Helper()
	m := &machines{t.TempDir(), map[string]string{}}
	out, err := m.namespace(t, "bridge")
	need.Present(t, err == nil, "ip netns add does not work here (%v: %s): run as root, with iproute2", err, out)
	bridge := m.namespaces["bridge"]
	m.ip(t, "-n", bridge, "link", "add", "br0", "type", "bridge")
	m.ip(t, "-n", bridge, "link", "set", "br0", "up")
	for i, address := range addresses {
		out, err := m.namespace(t, address)
		need.OKf(t, err, "%s", out)
		port := fmt.Sprintf("port%d", i)
		ns := m.namespaces[address]
		m.ip(t, "-n", bridge, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", ns)
		m.ip(t, "-n", bridge, "link", "set", port, "master", "br0", "up")
		m.ip(t, "-n", ns, "address", "add", address+"/24", "dev", "eth0")
		m.ip(t, "-n", ns, "link", "set", "eth0", "up")
		m.ip(t, "-n", ns, "link", "set", "lo", "up")
	}
	for _, of := range append(addresses, desk, "bin") {
		need.OK(t, os.MkdirAll(filepath.Join(m.dir, of), 0o700))
	}
	need.OK(t, os.Symlink(Binary(t), filepath.Join(m.dir, "bin", "rollcall")))
	// Instead of ssh: all machines share the file system.
	scp := "#!/bin/sh -eu\ncp -r \"$2\" \"" + m.dir + "/${3%:}/\"\n"
	need.OK(t, os.WriteFile(filepath.Join(m.dir, "bin", "scp"), []byte(scp), 0o700))
	return m
}

// namespacesMade makes the names of namespaces differ, even for tests that run side by side.
var namespacesMade atomic.Int64

func (m *machines) namespace(t *testing.T, of string) (out []byte, err error) {
	name := fmt.Sprintf("rollcall-%d-%d", os.Getpid(), namespacesMade.Add(1))
	if out, err = exec.Command("ip", "netns", "add", name).CombinedOutput(); err != nil {
		return out, err
	}
	m.namespaces[of] = name
	t.Cleanup(func() {
		out, err := exec.Command("ip", "netns", "delete", name).CombinedOutput()
		expect.OKf(t, err, "%s", out)
	})
	return nil, nil
}

func (m *machines) ip(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.Command("ip", args...).CombinedOutput()
	need.OKf(t, err, "ip %q: %s", args, out)
}

// command returns a shell line that runs on a machine.
func (m *machines) command(on, line string) []string {
	script := fmt.Sprintf("cd %s && PATH=%s:$PATH && exec %s", filepath.Join(m.dir, on), filepath.Join(m.dir, "bin"), line)
	if on == desk {
		return []string{"sh", "-c", script}
	}
	return []string{"ip", "netns", "exec", m.namespaces[on], "sh", "-c", script}
}

// run runs a line on a machine to its end.
func (m *machines) run(on, line string) (out string, err error) {
	c := m.command(on, line)
	text, err := exec.Command(c[0], c[1:]...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("on %s, %s: %w: %s", on, line, err, text)
	}
	return string(text), err
}

// start starts a server that ends with the test.
func (m *machines) start(t *testing.T, on, line string) *Process {
	t.Helper()
	return need.Got(launch(t, filepath.Join(m.dir, on, "log"), nil, m.command(on, line)))(t)
}

// shellStep is a line of a document and the machine that the comment above it names.
type shellStep struct{ on, line string }

// stepsOf returns the lines in the blocks of a section of the page on three machines.
func stepsOf(t *testing.T, section string) (steps []shellStep) {
	t.Helper()
	page := string(need.Got(os.ReadFile("../docs/run/three-machines.md"))(t))
	_, text, ok := strings.Cut(page, "\n## "+section+"\n")
	need.That(t, ok, "three-machines.md has no section %q", section)
	text, _, _ = strings.Cut(text, "\n## ")
	for _, block := range regexp.MustCompile("(?s)\n *```sh\n(.*?)\n *```\n").FindAllStringSubmatch(text, -1) {
		on := ""
		for line := range strings.Lines(block[1]) {
			line = strings.TrimSpace(line)
			if name, isComment := strings.CutPrefix(line, "# "); isComment {
				on = strings.TrimPrefix(name, "on ")
				continue
			}
			need.That(t, on != "", "%q: no comment says on which machine", line)
			steps = append(steps, shellStep{on, line})
		}
	}
	return steps
}

// It runs that section of three-machines.md as it is, each machine a network namespace, and then tries what strangers
// would.
func TestThreeMachinesWithTLSByTheCommandsOfTheDocument(t *testing.T) {
	t.Parallel()
	steps := stepsOf(t, "The commands")
	const outside = "10.0.0.9"
	addresses := []string{outside}
	for _, s := range steps {
		if s.on != desk && !slices.Contains(addresses, s.on) {
			addresses = append(addresses, s.on)
		}
	}
	m := newMachines(t, addresses...)
	last := slices.IndexFunc(steps, func(s shellStep) bool { return strings.HasPrefix(s.line, "rollcall ls ") })
	need.That(t, last > 0 && last < len(steps)-1, "the section lists no instance before it adds a node: %q", steps)
	for _, s := range steps[:last+1] {
		m.perform(t, s)
	}
	const status = "rollcall status -o json --addr https://10.0.0.1:8761 --ca n1/authority.crt"
	out := need.Got(m.run("10.0.0.1", status))(t)
	expect.Equal(t, strings.Count(out, `"voter": true`), 3, "voters in "+out)
	out = need.Got(m.run("10.0.0.2", steps[last].line))(t)
	expect.That(t, strings.Contains(out, "orders-1"), "what was registered on the first machine is listed on the second as\n%s", out)
	for line, says := range map[string]string{
		"rollcall ls --addr http://10.0.0.1:8761":                             "HTTPS",
		"rollcall ls --addr https://10.0.0.1:8761":                            "unknown authority",
		"rollcall ls --addr https://10.0.0.1:8761 --ca /dev/null":             "/dev/null",
		"rollcall members --addr https://10.0.0.3:8761 --ca n9/authority.crt": "unknown authority",
	} {
		if strings.Contains(line, "n9") {
			need.Got(m.run(desk, "rollcall config init --tls other n9="+outside))(t)
			need.Got(m.run(desk, "scp -r other/n9 "+outside+":"))(t)
		}
		_, err := m.run(outside, line)
		expect.That(t, err != nil && strings.Contains(err.Error(), says), "%v, want a refusal with %q", err, says)
	}
	stranger := m.start(t, outside, "rollcall server --config n9/rollcall.yaml --cluster-bootstrap-expect 3 --cluster-join 10.0.0.1:7761,10.0.0.2:7761,10.0.0.3:7761,"+outside+":7761")
	for _, s := range steps[last+1:] { // a node joins meanwhile, in the same way except for its authority
		m.perform(t, s)
	}
	Eventually(t, ReadyLimit, "the fourth node has a vote", func() error {
		out, err := m.run("10.0.0.1", status)
		return errors.Join(err, unless(strings.Count(out, `"voter": true`) == 4, "status: %s", out))
	})
	out = need.Got(m.run("10.0.0.1", status))(t)
	expect.That(t, !strings.Contains(out, `"n9"`), "a node with a certificate of another authority is listed: %s", out)
	out, err := m.run(outside, "rollcall ls --consistency stale --addr https://10.0.0.9:8761 --ca n9/authority.crt")
	expect.That(t, stranger.Running() && !strings.Contains(out, "orders-1"), "a node with a certificate of another authority lists %s, %v", out, err)
	expect.That(t, strings.Contains(stranger.Output(t), "1 of 3 nodes are there"), "the stranger did not look for the others in vain:\n%s", stranger.Output(t))
}

// perform does what a line of the document says: servers keep running, and commands that ask them are repeated until
// they are ready.
func (m *machines) perform(t *testing.T, s shellStep) {
	t.Helper()
	switch {
	case strings.HasPrefix(s.line, "rollcall server "):
		m.start(t, s.on, s.line)
	case s.on == desk:
		need.Got(m.run(s.on, s.line))(t)
	default:
		Eventually(t, ReadyLimit, s.line, func() error { _, err := m.run(s.on, s.line); return err })
	}
}

// block is a fenced block of a page: of commands, of a program, or of text.
type block struct {
	line           int
	language, text string
	only           string // the one place that it is for, "clone" or "release"; "long" for no test; empty for all
	isPrinted      bool   // text that directly follows another block, which prints it
}

// fence matches a block, with its language, and after that what the block is for.
var fence = regexp.MustCompile("(?ms)^ *```(\\w*)(?: (\\w+))?\n(.*?)^ *```$")

// blocksOf returns the blocks of a page after one of its lines, up to another one.
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
	files string // directory for what the reader writes
	shell *exec.Cmd
	in    io.Writer
	out   *bufio.Reader
}

const (
	// blockLimit bounds a block; some build the programs.
	blockLimit = 10 * time.Minute
	// blockEnd is the line that the shell prints after a block.
	blockEnd = "-- end of block\n"
)

// prelude makes the shell end at the first line that fails, and gives it a network with one address that others could
// reach. A command that keeps running has a log; begun waits until the command says there that it is up, and end_all
// ends all of them, the last one first, as Ctrl-C does. Other commands in the background end on their own; finish
// checks that they end well.
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

// newReader starts the shell in a directory. Its environment has additional variables, among them FILES, for prelude.
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

// printed reports whether lines were printed in order, with "…" standing for anything.
func printed(said, lines string) bool {
	pattern := "(?m)"
	for line := range strings.Lines(lines) {
		pattern += "^.*" + strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(line)), "…", ".*") + ".*$(?s:.*?)"
	}
	return regexp.MustCompile(pattern).MatchString(said)
}

var (
	// staying matches a command that goes on until Ctrl-C; in the pages it has a terminal of its own, or is in the
	// background.
	staying  = regexp.MustCompile(`(?m)^ *(rollcall (?:dev\b.*?|server\b.*?|watch|.*? --heartbeat))(?: &)?$`)
	beside   = regexp.MustCompile(`(?m)[^&] &$`)
	toRefuse = regexp.MustCompile(`(?m)^ *# refused: (.*)\n(.*)$`)
	played   = strings.NewReplacer(
		"new_log; rollcall dev", "end_all; new_log; rollcall dev", // a second cluster has the ports of the first
		"kill -9 4712", "kill -9 $(sed -n 's/^node=2 .*pid=//p' $FILES/log1)",
		"kill $(jobs -p)", "kill $(jobs -p); staying=")
)

// playable returns lines for the shell: a command below "# refused: WORDS" must fail with the words, and the pid of
// the second node of rollcall dev, which no page can know, is taken from its log.
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

// springName matches the name in the settings of a Spring application.
var springName = regexp.MustCompile(`(?m)^spring\.application\.name: (\S+)$`)

// spring starts a Spring Cloud application with these settings, and ends it when a node lists it.
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

// run has the shell run lines, and returns what they print. At the first that fails the shell ends, with its exit
// status.
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

// sampleServices has the applications of a small shop, with the number of their instances, which are spread over
// three zones.
var sampleServices = map[string]int{"CATALOG": 6, "CHECKOUT": 3, "MAIL": 1, "ORDERS": 6, "PAYMENTS": 3, "SEARCH": 9}

const (
	sampleLease = 30              // seconds
	sampleEvery = 2 * time.Second // between the renewals of an instance
)

// zones holds the zones of the three nodes, and of the instances.
var zones = []string{"a", "b", "c"}

// fleet is the sample's instances.
type fleet struct {
	instances []Instance
}

// newFleet lays out the instances of the sample: the k-th one of an application is in the k-th zone. MAIL's only one
// is DOWN.
func newFleet() (f fleet) {
	for _, app := range slices.Sorted(maps.Keys(sampleServices)) {
		for k := range sampleServices[app] {
			name := fmt.Sprintf("%s-%d", strings.ToLower(app), k+1)
			i := Instance{App: app, ID: name, Host: name + ".shop.example", Port: 8080, Duration: sampleLease,
				Metadata: map[string]string{"zone": zones[k%len(zones)], "version": "1.4.2"}}
			if app == "MAIL" {
				i.Status = "DOWN"
			}
			f.instances = append(f.instances, i)
		}
	}
	return f
}

// in returns the instances of some zones.
func (f fleet) in(zones ...string) fleet {
	return fleet{slices.DeleteFunc(slices.Clone(f.instances), func(i Instance) bool { return !slices.Contains(zones, i.Metadata["zone"]) })}
}

// renewUntil renews all instances through a node until ready returns nil.
func (f fleet) renewUntil(t *testing.T, n *Node, what string, ready func() error) {
	t.Helper()
	var err error
	for began := time.Now(); time.Since(began) < 2*ReadyLimit; Pass(t, sampleEvery) {
		for _, i := range f.instances {
			n.Renew(i.App, i.ID) // one that is refused is sent again in two seconds
		}
		if err = ready(); err == nil {
			return
		}
	}
	need.OKf(t, err, "%s", what)
}

// It makes the pictures in README and docs/run/dashboard.md, if ROLLCALL_PICTURES names their directory (make
// pictures): a shop's services are registered at three nodes; then a zone fails, with its node and its instances.
func TestPicturesOfDocuments(t *testing.T) {
	dir := os.Getenv("ROLLCALL_PICTURES")
	if dir == "" {
		t.Skip("pictures are made by: make pictures")
	}
	page := chromium.Open(t)
	c := StartCluster(t, Config{Of: func(name string) map[string]string {
		return map[string]string{"node.zone": zones[int(name[1]-'1')]}
	}})
	leader := c.Leader()
	lost := c.Others(leader)[1] // not the first node, in whose zone MAIL is
	zone := zones[slices.Index(c.Nodes, lost)]
	all := newFleet()
	for _, i := range all.instances {
		mustRegister(t, leader, i)
	}
	began := time.Now()
	all.renewUntil(t, leader, "a minute of ordinary life", func() error {
		return unless(time.Since(began) > time.Minute, "it lasts %v", time.Since(began))
	})
	kept := all.in(slices.DeleteFunc(slices.Clone(zones), func(z string) bool { return z == zone })...)
	need.That(t, leader.OverrideFor("SEARCH", kept.named("SEARCH"), "OUT_OF_SERVICE", time.Hour, "ann", "kernel update").Status == 200, "the override is refused")
	lost.Kill()
	kept.renewUntil(t, leader, "the overview shows the trouble", func() error {
		state, err := leader.Preservation()
		// the figures are at most ten seconds old
		overdue := strings.Contains(string(leader.Get("/").Body), "leases are overdue")
		return unless(err == nil && overdue && int(state.Withheld) >= len(all.instances)-len(kept.instances), "it says %s; %v", leader.line(), err)
	})
	wide := chromium.Look{Theme: "light", Width: 1280, Height: 880}
	keepPicture(t, page, filepath.Join(dir, "overview.png"), leader.URL()+"/", wide)
	wide.Theme, wide.Height = "dark", 924 // to the end of the metadata
	keepPicture(t, page, filepath.Join(dir, "instance.png"), leader.URL()+"/ui/apps/ORDERS/"+all.in(zone).named("ORDERS"), wide)
}

// named returns the id of the fleet's first instance of an application.
func (f fleet) named(app string) string {
	return f.instances[slices.IndexFunc(f.instances, func(i Instance) bool { return i.App == app })].ID
}

// keepPicture writes what a window shows of a page.
func keepPicture(t *testing.T, page context.Context, file, url string, l chromium.Look) {
	t.Helper()
	need.OK(t, chromedp.Do(page, chromium.As(l), chromedp.Navigate(url), chromedp.WaitReady(chromedp.CSS("main"))))
	picture := need.Got(png.Decode(bytes.NewReader(need.Got(chromedp.Run(page, chromedp.CaptureScreenshot()))(t))))(t)
	var small bytes.Buffer
	need.OK(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, paletted(picture)))
	need.That(t, small.Len() < largestPicture, "%s has %d bytes", file, small.Len())
	need.OK(t, os.MkdirAll(filepath.Dir(file), 0o755))
	need.OK(t, os.WriteFile(file, small.Bytes(), 0o644))
}

// largestPicture is how many bytes a picture may have: it stays in the history of the repository for good.
const largestPicture = 150_000

// paletted returns a picture in its 256 most frequent colours. Pages have few, apart from the edges of letters.
func paletted(p image.Image) *image.Paletted {
	counts := map[color.Color]int{}
	b := p.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			counts[p.At(x, y)]++
		}
	}
	// In one order, so that the same picture gives the same file.
	palette := slices.SortedFunc(maps.Keys(counts), func(a, b color.Color) int {
		return cmp.Or(counts[b]-counts[a], strings.Compare(fmt.Sprint(a), fmt.Sprint(b)))
	})
	small := image.NewPaletted(b, palette[:min(len(palette), 256)])
	nearest := map[color.Color]uint8{}
	for c := range counts {
		nearest[c] = uint8(small.Palette.Index(c))
	}
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			small.SetColorIndex(x, y, nearest[p.At(x, y)])
		}
	}
	return small
}

// line returns the line of state that a node's dashboard shows.
func (n *Node) line() string {
	page := string(n.Get("/ui/nodes").Body)
	found := regexp.MustCompile(`(?s)<div id="truth"[^>]*>(.*?)</div>`).FindStringSubmatch(page)
	if found == nil {
		return ""
	}
	return html.UnescapeString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(found[1], " "))
}
