package integration

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// machines are network namespaces, each with one address and a directory of its own, on one bridge. They share no other
// network, not even with the test.
type machines struct {
	dir        string
	namespaces map[string]string // by address
}

// desk is the machine of a person who sets nodes up; it has no network.
const desk = "anywhere"

// newMachines makes a machine for each address. The namespaces go with the test.
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
	// In the place of ssh: the file systems are one.
	scp := "#!/bin/sh -eu\ncp -r \"$2\" \"" + m.dir + "/${3%:}/\"\n"
	need.OK(t, os.WriteFile(filepath.Join(m.dir, "bin", "scp"), []byte(scp), 0o700))
	return m
}

// namespacesMade makes the names of namespaces differ, also of tests that run side by side.
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

// command is a line of a shell on a machine.
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

// stepsOf are the lines in the blocks of a section of the page on three machines.
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

// TestThreeMachinesWithTLSByTheCommandsOfTheDocument runs that section of three-machines.md as it stands, each machine a network
// namespace, and then as strangers would come.
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
	for _, s := range steps[last+1:] { // a node comes in meanwhile, in the same way but for its authority
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

// perform does what a line of the document says: servers run on, and what asks them is asked until they are ready.
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
