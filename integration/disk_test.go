package integration

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	own "github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// The disk of one node fills up: it must stop, with the exit code for that, and nothing that was acknowledged may be
// missing afterwards.
func TestNodeWhoseDiskIsFullStopsAndTheOthersGoOn(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ap bool) { fullDisk(t, ap, "bolt", 4) })
	t.Run("wal", func(t *testing.T) { // whose segments have 16 MiB
		t.Parallel()
		fullDisk(t, false, "wal", 20)
	})
}

// smallDisk is a separate disk for a node's data directory, in a mount namespace that stays when the node has ended.
type smallDisk struct {
	n      *Node
	within []string // a command line prefix: runs in the namespace
}

// newSmallDisk gives a stopped node a disk of mib MiB.
func newSmallDisk(t *testing.T, n *Node, mib int) smallDisk {
	t.Helper()
	need.OK(t, os.MkdirAll(n.Dir, 0o700))
	keeper := exec.Command("unshare", "-Urm", "sh", "-c", fmt.Sprintf(`mount -t tmpfs -o size=%dm none "$0" && echo mounted && exec cat`, mib), n.Dir)
	ends, out := need.Got(keeper.StdinPipe())(t), need.Got(keeper.StdoutPipe())(t)
	need.OK(t, keeper.Start())
	t.Cleanup(func() { ends.Close(); keeper.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	need.Present(t, err == nil && line == "mounted\n", "unshare -Urm does not work here (%q, %v): allow unprivileged user namespaces, or run as root", line, err)
	n.within = []string{"nsenter", "--target", fmt.Sprint(keeper.Process.Pid), "--user", "--mount", "--preserve-credentials", "--wdns=" + need.Got(os.Getwd())(t)}
	return smallDisk{n: n, within: n.within}
}

// sh runs a shell command in the data directory.
func (d smallDisk) sh(t *testing.T, command string) string {
	t.Helper()
	args := append(d.within[1:len(d.within):len(d.within)], "sh", "-c", "cd "+d.n.Dir+" && "+command)
	out, err := exec.Command(d.within[0], args...).CombinedOutput()
	need.OKf(t, err, "%s: %s", command, out)
	return string(out)
}

// fill takes all the room that is left.
func (d smallDisk) fill(t *testing.T) { d.sh(t, "cat /dev/zero >>ballast 2>/dev/null || true") }

// free gives back what fill took.
func (d smallDisk) free(t *testing.T) { d.sh(t, "rm ballast") }

// The disks of all nodes fill up until they stop. With raft.log: wal the write that finds no room is the one that
// crosses the end of a segment.
func TestClusterWhoseDisksWereFullGoesOnWhenTheyAreFreed(t *testing.T) {
	t.Parallel()
	eachLog(t, func(t *testing.T, log string) {
		c := NewCluster(t, Config{Settings: map[string]string{"data.min-free": "0", "raft.log": log, "audit.file": "-", "raft.snapshot-interval": "1h"}})
		var disks []smallDisk
		for _, n := range c.Nodes {
			disks = append(disks, newSmallDisk(t, n, 64))
		}
		c.Start()
		acknowledged := map[string]bool{}
		pad := strings.Repeat("x", 60_000)
		register := func(of *Node, i int) {
			id := fmt.Sprintf("i%d", i)
			if of.Register(Instance{App: "FULL", ID: id, Duration: 3600, Metadata: map[string]string{"pad": pad}}).Status == 204 {
				acknowledged[id] = true
			}
		}
		for i := range 20 {
			register(c.Leader(), i)
		}
		for _, d := range disks {
			d.fill(t)
		}
		for i := 20; len(c.Running()) > 1; i++ {
			need.That(t, i < 2000, "%d nodes still run after %d registrations of 60 KB", len(c.Running()), i)
			running := c.Running()
			register(running[i%len(running)], i)
		}
		for i, n := range c.Nodes {
			if !n.Running() {
				expect.Equal(t, n.ExitCode(t, StopLimit), 3, "%s ended with exit code", n.Name)
				if log == "wal" { // the room of the write is reserved first, so none of it is there
					expect.Equal(t, strings.TrimSpace(disks[i].sh(t, `head -c 16777216 raft/wal/*.wal | tail -c 1000 | tr -d '\0' | wc -c`)), "0", "bytes at the end of the segment")
				}
				expect.That(t, strings.Contains(n.Output(t), "no space left on device"), "the log of %s does not say that its disk is full:\n%s", n.Name, n.LastWords(10))
				continue
			}
			n.Kill()
		}
		t.Logf("the disks were full after %d acknowledged registrations", len(acknowledged))
		for i, n := range c.Nodes {
			disks[i].free(t)
			n.Start(t)
		}
		c.WaitReady()
		mustRegisterSoon(t, c.Nodes[0], Instance{App: "AFTER", ID: "after"})
		listing := mustConverge(t, c.Nodes)
		for id := range acknowledged {
			_, ok := listing[id]
			expect.That(t, ok, "%s is missing, which was acknowledged", id)
		}
	})
}

func fullDisk(t *testing.T, ap bool, log string, mib int) {
	c := NewCluster(t, Config{AP: ap, Settings: map[string]string{"data.min-free": "0", "raft.log": log}})
	for _, n := range c.Nodes[:2] {
		newSmallDisk(t, n, 256)
	}
	small, others := c.Nodes[2], c.Nodes[:2]
	newSmallDisk(t, small, mib)
	c.Start()
	acknowledged := fillDisk(t, small, others)
	expect.Equal(t, small.ExitCode(t, StopLimit), 3, "%s ended with exit code", small.Name)
	expect.That(t, strings.Contains(small.Output(t), "no space left on device"), "the log of %s does not say that its disk is full:\n%s", small.Name, small.LastWords(10))
	t.Logf("%s ended after %d acknowledged registrations", small.Name, len(acknowledged))

	if !ap {
		c.Leader(others...)
	}
	for _, n := range others {
		mustRegisterSoon(t, n, Instance{App: "AFTER", ID: "of-" + n.Name})
	}
	listing := mustConverge(t, others)
	for id := range acknowledged {
		_, ok := listing[id]
		expect.That(t, ok, "the others lack %s, which was acknowledged", id)
	}
}

// fillDisk registers large instances at the others until a node has ended, and returns those that were acknowledged.
func fillDisk(t *testing.T, small *Node, others []*Node) map[string]bool {
	t.Helper()
	acknowledged := map[string]bool{}
	pad := strings.Repeat("x", 60_000)
	deadline := time.Now().Add(ReadyLimit)
	for i := 0; small.Running(); i++ {
		need.That(t, !time.Now().After(deadline), "%s still runs after %d registrations of 60 KB on a disk of 4 MiB", small.Name, i)
		id := fmt.Sprintf("i%d", i)
		if others[i%2].Register(Instance{App: "FULL", ID: id, Duration: 600, Metadata: map[string]string{"pad": pad}}).Status == 204 {
			acknowledged[id] = true
		}
	}
	return acknowledged
}

// flipBit flips a bit of a file at an offset.
func flipBit(t *testing.T, file string, at int64, bit int) {
	t.Helper()
	f := need.Got(os.OpenFile(file, os.O_RDWR, 0))(t)
	defer f.Close()
	b := make([]byte, 1)
	need.Got(f.ReadAt(b, at))(t)
	b[0] ^= 1 << bit
	need.Got(f.WriteAt(b, at))(t)
}

// logFile returns the file that has the entries: the oldest one, if the log is in segments.
func logFile(t *testing.T, n *Node) string {
	t.Helper()
	if n.Settings["raft.log"] != "wal" {
		return filepath.Join(n.Dir, "raft", "log.db")
	}
	segments := need.Got(filepath.Glob(filepath.Join(n.Dir, "raft", "wal", "*.wal")))(t)
	need.That(t, len(segments) > 0, "%s has no segments", n.Name)
	return segments[0]
}

// tearSegment leaves in the newest segment of a stopped node what a full disk leaves of a write that crosses its end:
// the beginning of an entry that is larger than the file.
func tearSegment(t *testing.T, n *Node) {
	t.Helper()
	segments := need.Got(filepath.Glob(filepath.Join(n.Dir, "raft", "wal", "*.wal")))(t)
	need.That(t, len(segments) > 0, "%s has no segments", n.Name)
	f := need.Got(os.OpenFile(segments[len(segments)-1], os.O_RDWR, 0))(t)
	defer f.Close()
	content := need.Got(io.ReadAll(f))(t)
	end := (len(bytes.TrimRight(content, "\x00")) + 7) / 8 * 8
	need.Got(f.WriteAt([]byte{1, 0, 0, 0, 0, 0, 0x10, 0x01}, int64(end)))(t)
}

// It flips a bit of a value in the log of a killed follower.
func TestRaftLogWithAFlippedBitIsRefused(t *testing.T) {
	t.Parallel()
	eachLog(t, func(t *testing.T, log string) {
		c := StartCluster(t, Config{Settings: map[string]string{"raft.log": log}})
		n := c.Others(c.Leader())[0]
		need.That(t, n.putTrue(t, "/v1/kv/price", "a price of 1000"), "the key was not written")
		if got, _, err := n.keys("price"); err != nil || len(got) != 1 { // so that it has the key in its log
			t.Fatalf("it has %+v, %v, want the key", got, err)
		}
		n.Kill()
		file := logFile(t, n)
		content := need.Got(os.ReadFile(file))(t)
		value := []byte("a price of 1000")
		found := 0
		for at := 0; ; at++ {
			i := bytes.Index(content[at:], value)
			if i < 0 {
				break
			}
			at += i
			flipBit(t, file, int64(at+len("a price of ")), 3) // '1' becomes '9'
			found++
		}
		need.That(t, found != 0, "the value is not in the log")
		mustRefuseToStart(t, n, filepath.Base(file), "differs from its checksum", "empty data directory")
		expect.Equal(t, n.ExitCode(t, ReadyLimit), 1, "exit code")
	})
}

// mustRefuseToStart starts a node that must stop with an error, and print each of the words.
func mustRefuseToStart(t *testing.T, n *Node, words ...string) {
	t.Helper()
	if err := os.WriteFile(n.LogFile, nil, 0o600); err != nil { // the output of earlier processes does not count
		t.Fatal(err)
	}
	n.Start(t)
	expect.That(t, n.ExitCode(t, ReadyLimit) != 0, "exit code 0, want an error")
	said := n.Output(t)
	for _, word := range words {
		expect.That(t, strings.Contains(said, word), "it does not say %q:\n%s", word, said)
	}
	expect.That(t, !strings.Contains(said, "panic") && !strings.Contains(said, "goroutine "), "it did not refuse, it crashed:\n%s", said)
}

// Package store tests every kind of foreign or damaged directory. Here the program reports it, and
// stops.

func TestDataDirectoryThatIsAnOlderCopyIsRefused(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Config{})
	n := c.Others(c.Leader())[0]
	n.Stop(t)
	older := filepath.Join(t.TempDir(), "older")
	need.OK(t, os.CopyFS(older, os.DirFS(n.Dir)))
	n.Start(t)
	n.WaitReady(t)
	n.Stop(t)
	n.Dir, n.Settings["data.dir"] = older, older
	mustRefuseToStart(t, n, older, "older copy of its data directory", "rollcall members remove "+n.Name)
	expect.Equal(t, n.ExitCode(t, ReadyLimit), 3, "exit code")
	mustRegister(t, c.Leader(c.Running()...), Instance{App: "orders", ID: "after"})
}

// mixedLogs puts the logs of two of three nodes in segments.
func mixedLogs(node string) map[string]string {
	return map[string]string{"raft.log": map[bool]string{false: "wal", true: "bolt"}[node == "n3"]}
}

// convertLog runs rollcall recover --convert-log on a node's data directory.
func convertLog(t *testing.T, n *Node, to string) (string, error) {
	t.Helper()
	out, err := exec.Command(Binary(t), "recover", "--data-dir", n.Dir, "--convert-log", to).CombinedOutput()
	return string(out), err
}

// The cluster is written to meanwhile, and the logs are converted back, too.
func TestLogsAreConvertedNodeByNode(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Config{Settings: map[string]string{"raft.log": "bolt"}})
	l := startLoad(t, 10, 20, 4, c.Nodes)
	n := c.Nodes[0]
	said, err := convertLog(t, n, "wal")
	expect.That(t, err != nil && strings.Contains(said, "another process has it open"), "the log of a node that runs: %v, %s", err, said)
	for i, to := range []string{"wal", "wal", "wal", "bolt"} {
		n := c.Nodes[i%3]
		l.use(c.Others(n))
		n.Kill()
		n.Settings["raft.log"] = to
		mustRefuseToStart(t, n, `raft.log is "`+to+`"`, n.Dir, "rollcall recover --data-dir", "--convert-log "+to)
		if to == "bolt" {
			tearSegment(t, n)
		}
		said, err := convertLog(t, n, to)
		need.That(t, err == nil && strings.Contains(said, "the log is in "+to+" now"), "%s to %s: %v, %s", n.Name, to, err, said)
		n.Start(t)
		n.WaitReady(t)
		l.awaitProgress(t)
		l.use(c.Nodes)
	}
	l.stop()
	c.WaitReady()
	l.check(t, c.Nodes)
}

// panicsOver makes a node run a program where operations on one instance, or key, panic.
func panicsOver(t *testing.T, n *Node, id string) {
	t.Helper()
	n.within = []string{"sh", "-c", fmt.Sprintf("ROLLCALL_PLANTED=panic:%s exec %s \"$@\"", id, plantedProgram(t))}
}

// One of three nodes without consensus panics over an instance. It goes on, has everything else, and reports what it
// refuses.
func TestNodeWithoutConsensusRefusesWhatPanicsAndGoesOn(t *testing.T) {
	t.Parallel()
	c := NewCluster(t, Config{AP: true})
	sender, other, victim := c.Nodes[0], c.Nodes[1], c.Nodes[2]
	panicsOver(t, victim, "poison")
	c.Start()
	ids := []string{"good-1", "good-2", "poison", "good-3", "good-4"}
	for _, id := range ids {
		need.Equal(t, sender.Register(Instance{App: "ORDERS", ID: id, Duration: 3600}).Status, 204, "register "+id)
	}
	Eventually(t, replicated, "the sender gives the item up, and the cursor passes it", func() error {
		s, err := sender.Peers()
		if err != nil {
			return err
		}
		for _, p := range s.Peers {
			if p.Name != victim.HTTP {
				continue
			}
			if len(p.Refused) != 1 || p.Refused[0].ID != "poison" || p.Refused[0].App != "ORDERS" || p.State != "ok" || p.LagChanges != 0 {
				return fmt.Errorf("peer %s: %+v", p.Name, p)
			}
			return nil
		}
		return fmt.Errorf("there is no peer %s: %+v", victim.Name, s.Peers)
	})
	for _, n := range []*Node{other, victim} {
		Eventually(t, replicated, n.Name+" has the rest of the batch", func() error {
			listing, err := n.Listing()
			if err != nil {
				return err
			}
			for _, id := range ids {
				_, there := listing[id]
				if want := n == other || id != "poison"; there != want {
					return fmt.Errorf("%s is there: %t", id, there)
				}
			}
			return nil
		})
	}
	said := need.Got(victim.Peers())(t)
	need.That(t, len(said.Refused) == 1 && said.Refused[0].ID == "poison" && said.Refused[0].From == sender.Name && strings.Contains(said.Refused[0].Text, "planted"),
		"refused by the receiver: %+v", said.Refused)
	expect.That(t, metric(t, victim, "rollcall_store_operation_panics_total") >= 3, "fewer than three tries were counted")
	expect.Equal(t, strings.Count(victim.Output(t), "an operation panicked, which is a defect"), 1, "lines of the log about it")
	response := victim.Register(Instance{App: "ORDERS", ID: "poison", Duration: 3600})
	expect.That(t, response.Status == 500 && strings.Contains(string(response.Body), "nothing was changed"), "a client's registration that panics: %v", response)
	need.That(t, victim.Running(), "the node has ended")
	need.OK(t, victim.Ready())
	shown, err := exec.Command(Binary(t), "peers", "--addr", victim.URL()).CombinedOutput()
	expect.That(t, err == nil && strings.Contains(string(shown), "ORDERS/poison"), "rollcall peers: %v, %s", err, shown)

	victim.Signal(t, syscall.SIGKILL)
	victim.ExitCode(t, ReadyLimit)
	victim.within = nil // a version without the defect
	victim.Start(t)
	victim.WaitReady(t)
	all := mustConverge(t, c.Nodes)
	expect.Equal(t, len(all), len(ids), "instances in the end")
}

// skipEntry runs rollcall recover --skip-entry, and returns its output and exit code.
func skipEntry(t *testing.T, n *Node, entry int) (said string, code int) {
	t.Helper()
	out, err := exec.Command(Binary(t), "recover", "--data-dir", n.Dir, "--skip-entry", strconv.Itoa(entry)).CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		need.OK(t, err)
	}
	return string(out), code
}

var panickedEntry = regexp.MustCompile(`apply: log entry (\d+) panicked \(planted\) over key of poison \(operation 1 of 1 of batch \d+ of node n[123]\.`)

// The nodes of a cluster panic over one entry, until no majority is left. They name it, and go on without it once
// each was told to.
func TestClusterGoesOnWithoutAnEntryThatPanics(t *testing.T) {
	t.Parallel()
	c := NewCluster(t, Config{})
	for _, n := range c.Nodes {
		panicsOver(t, n, "poison")
	}
	c.Start()
	consul := patientConsul(t, c.Leader())
	put := func(key string) error {
		_, err := consul.KV().Put(&api.KVPair{Key: key, Value: []byte("x")}, nil)
		return err
	}
	need.OK(t, put("before"))
	need.Equal(t, untilNotRefused(func() Response {
		return c.Nodes[0].Register(Instance{App: "ORDERS", ID: "o1", Duration: 3600})
	}).Status, 204, "register")
	need.That(t, put("poison") != nil, "what panics was acknowledged")
	entry := 0
	Eventually(t, ReadyLimit, "a majority has ended", func() error {
		return unless(len(c.Running()) < 2, "%d nodes run", len(c.Running()))
	})
	for _, n := range c.Nodes {
		if n.Running() { // on its own it learns of no entry to apply
			n.Signal(t, syscall.SIGKILL)
			n.ExitCode(t, ReadyLimit)
			continue
		}
		expect.Equal(t, n.ExitCode(t, ReadyLimit), 3, n.Name+" ends with exit code")
		found := panickedEntry.FindStringSubmatch(n.Output(t))
		need.That(t, found != nil, "%s does not name the entry and the operation:\n%s", n.Name, n.LastWords(20))
		at := need.Got(strconv.Atoi(found[1]))(t)
		need.That(t, entry == 0 || entry == at, "%s ended at entry %d, another one at %d", n.Name, at, entry)
		entry = at
	}
	first, second := c.Nodes[0], c.Nodes[1]
	for _, tt := range []struct {
		entry, code int
		want        string
	}{{0, 2, "0 is not a log entry"}, {entry + 1000, 1, "beyond the end of the log"}, {1, 1, "Raft's own"}} {
		said, code := skipEntry(t, first, tt.entry)
		expect.That(t, code == tt.code && strings.Contains(said, tt.want), "--skip-entry %d: exit code %d, %s", tt.entry, code, said)
	}
	said, code := skipEntry(t, first, entry)
	need.That(t, code == 0 && strings.Contains(said, "without an effect: key of poison"), "--skip-entry %d: exit code %d, %s", entry, code, said)
	said, code = skipEntry(t, first, entry)
	expect.That(t, code == 1 && strings.Contains(said, "already"), "twice: exit code %d, %s", code, said)

	first.Start(t)
	second.Start(t)
	Eventually(t, ReadyLimit, "the node that skips the entry says why it refuses the other", func() error {
		return unless(strings.Contains(first.Output(t), fmt.Sprintf("node %s skips the log entries [], this node [%d]", second.Name, entry)), "not yet")
	})
	for _, n := range []*Node{first, second} {
		expect.That(t, n.Ready() != nil, "%s is ready, though no other node skips what it skips", n.Name)
		n.Signal(t, syscall.SIGKILL)
		n.ExitCode(t, ReadyLimit)
	}
	for _, n := range c.Nodes[1:] {
		said, code := skipEntry(t, n, entry)
		need.That(t, code == 0, "%s: exit code %d, %s", n.Name, code, said)
	}
	for _, n := range c.Nodes {
		n.Start(t)
	}
	c.WaitReady()
	consul = patientConsul(t, c.Leader())
	need.OK(t, put("after"))
	for key, want := range map[string]bool{"before": true, "poison": false, "after": true} {
		pair, _, err := consul.KV().Get(key, nil)
		expect.That(t, err == nil && (pair != nil) == want, "%s: %v, %v", key, pair, err)
	}
	found, err := second.Lookup("ORDERS", "o1")
	expect.That(t, err == nil && found != nil, "the instance: %+v, %v", found, err)
	v, code := verify(t, c.Nodes[0], 10*comparedWithin)
	expect.That(t, code == 0 && v.Verdict == "equal" && len(v.Nodes) == 3, "exit code %d, %+v, want three nodes that are equal", code, v)
}

// comparedWithin is when replicas that differ must have been named: nodes compare them once a minute.
const comparedWithin = 2 * time.Minute

// verify runs rollcall verify, and returns the verdict and the exit code.
func verify(t *testing.T, n *Node, wait time.Duration) (v own.Verification, code int) {
	t.Helper()
	out, err := exec.Command(Binary(t), "verify", "--addr", n.URL(), "--wait", wait.String(), "-o", "json").Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		code = exit.ExitCode()
	}
	need.OKf(t, json.Unmarshal(out, &v), "verify printed %q (%v)", out, err)
	return v, code
}
