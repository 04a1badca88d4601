package integration

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/localcluster"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// driver is a stock client in a process of another language. It gets commands as lines of JSON on its stdin, and
// replies to each by a line of JSON on its stdout. The programs are under clients/.
type driver struct {
	stdin     io.WriteCloser
	replies   chan driverReply // closed when the program has ended
	stderr    string           // the file that its stderr goes to
	overrides bool             // the client has calls for overrides
	delta     bool             // the client is to fetch deltas, where that is a setting
}

type driverCommand struct {
	Do     string    `json:"do"`
	URL    string    `json:"url,omitempty"`
	App    string    `json:"app,omitempty"`
	ID     string    `json:"id,omitempty"`
	Lease  int       `json:"lease,omitempty"` // seconds
	Status string    `json:"status,omitempty"`
	Delta  bool      `json:"delta,omitempty"`
	Args   arguments `json:"args,omitempty"` // where Do names a method of the client
}

// arguments of a client's method, by name.
type arguments map[string]any

type driverReply struct {
	Error     string            `json:"error"`
	Instances map[string]string `json:"instances"`
	Result    json.RawMessage   `json:"result"` // of a client's method
}

// startDriver runs a program in a directory under clients/. It ends with the test.
func startDriver(t *testing.T, dir string, program string, args ...string) *driver {
	t.Helper()
	return startDriverWith(t, nil, dir, program, args...)
}

// startDriverWith adds to the program's environment, where secrets are that no command line may show.
func startDriverWith(t *testing.T, env []string, dir string, program string, args ...string) *driver {
	t.Helper()
	log := filepath.Join(t.TempDir(), "stderr")
	stderr := need.Got(os.Create(log))(t)
	defer stderr.Close()
	cmd := exec.Command(program, args...)
	cmd.Dir = filepath.Join("clients", dir)
	cmd.Stderr = stderr
	cmd.Env = append(os.Environ(), env...)
	stdin := need.Got(cmd.StdinPipe())(t)
	stdout := need.Got(cmd.StdoutPipe())(t)
	need.OKf(t, cmd.Start(), "start the %s client", dir)
	d := &driver{stdin: stdin, stderr: log, replies: make(chan driverReply)}
	go d.read(stdout)
	t.Cleanup(func() {
		stdin.Close()
		_ = cmd.Process.Kill() // it may have ended already
		for range d.replies {
			// replies that no test waited for
		}
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the client: the end of %s:\n%s", log, localcluster.LastLines(log, 40))
		}
	})
	return d
}

// startJava runs a Java program in a directory under clients/. It ends with the test.
func startJava(t *testing.T, dir string, args ...string) *driver {
	t.Helper()
	return startDriver(t, dir, "java", append([]string{javaTemporary(t)}, args...)...)
}

// javaTemporary has Java keep its temporary files where the test's are: it does not read TMPDIR, a full disk below /tmp
// fails it, and what was killed leaves its files there.
func javaTemporary(t *testing.T) string {
	t.Helper()
	return "-Djava.io.tmpdir=" + t.TempDir()
}

func (d *driver) read(stdout io.Reader) {
	defer close(d.replies)
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		var reply driverReply
		if err := json.Unmarshal(lines.Bytes(), &reply); err != nil {
			reply.Error = fmt.Sprintf("not an answer: %q", lines.Text())
		}
		d.replies <- reply
	}
}

// do sends one command and waits for its reply.
func (d *driver) do(command driverCommand) (driverReply, error) {
	if err := json.NewEncoder(d.stdin).Encode(command); err != nil {
		return driverReply{}, err
	}
	select {
	case reply, ok := <-d.replies:
		if !ok {
			return reply, errors.New("the client's program has ended")
		}
		if reply.Error != "" {
			return reply, errors.New(reply.Error)
		}
		return reply, nil
	case <-time.After(clientLimit):
		return driverReply{}, fmt.Errorf("no answer to %q within %v", command.Do, clientLimit)
	}
}

func (d *driver) Start(url, app, id string, lease int) error {
	_, err := d.do(driverCommand{Do: "start", URL: url, App: app, ID: id, Lease: lease, Delta: d.delta})
	return err
}

func (d *driver) Discover(app string) (map[string]string, error) {
	reply, err := d.do(driverCommand{Do: "discover", App: app})
	return reply.Instances, err
}

// Hash is what the client computes of its copy of the registry.
func (d *driver) Hash() (hash string, err error) {
	reply, err := d.do(driverCommand{Do: "hash"})
	if err == nil {
		err = json.Unmarshal(reply.Result, &hash)
	}
	return hash, err
}

func (d *driver) Override(status string) error {
	if !d.overrides {
		return errNoCall
	}
	_, err := d.do(driverCommand{Do: "override", Status: status})
	return err
}

func (d *driver) Restore() error {
	if !d.overrides {
		return errNoCall
	}
	_, err := d.do(driverCommand{Do: "restore"})
	return err
}

func (d *driver) Stop() error {
	_, err := d.do(driverCommand{Do: "stop"})
	return err
}

// eachMode runs a test with and without consensus.
func eachMode(t *testing.T, test func(t *testing.T, ap bool)) {
	t.Helper()
	for _, ap := range []bool{false, true} {
		t.Run(map[bool]string{false: "cp", true: "ap"}[ap], func(t *testing.T) {
			t.Parallel()
			test(t, ap)
		})
	}
}

// eachLog runs a test with each kind of log, side by side.
func eachLog(t *testing.T, test func(t *testing.T, log string)) {
	t.Helper()
	for _, log := range []string{"bolt", "wal"} {
		t.Run(log, func(t *testing.T) {
			t.Parallel()
			test(t, log)
		})
	}
}

// smallConfig is three nodes with consensus, and without it as few as a test needs: one for what a node does, two for what
// nodes replicate.
func smallConfig(ap bool, nodes int) Config {
	if !ap {
		nodes = 3
	}
	return Config{AP: ap, Nodes: nodes}
}

// withSteadyLeader lets a cluster keep its leader however busy the machine is: a change prolongs all leases.
func withSteadyLeader(c Config) Config {
	c.Settings = map[string]string{"raft.heartbeat-timeout": "4s", "raft.election-timeout": "4s", "raft.lease-timeout": "4s"}
	return c
}

// mustOnEvery expects something of every node, whose first response must be so with consensus, and without it, once the
// others have replicated to it.
func (c *Cluster) mustOnEvery(t *testing.T, what string, probe func(n *Node) error) {
	t.Helper()
	for _, n := range c.Nodes {
		if n.Mode == localcluster.AP {
			Eventually(t, replicated, what+" on node "+n.Name, func() error { return probe(n) })
			continue
		}
		expect.OKf(t, untilTaken(func() error { return probe(n) }), "%s on node %s", what, n.Name)
	}
}

// mustListEverywhere expects every node to list these instances and no other.
func (c *Cluster) mustListEverywhere(t *testing.T, ids ...string) {
	t.Helper()
	c.mustOnEvery(t, "the listing", func(n *Node) error {
		listing, err := n.Listing()
		if err != nil {
			return err
		}
		return wantListed(ids...)(listing)
	})
}

// actLimit is how long the end of an act with a time may take to show: more than ten times the time of the act.
const actLimit = 3 * time.Minute

// awaitStatus waits until a node lists an instance with a status.
func awaitStatus(t *testing.T, n *Node, app, id, want string) {
	t.Helper()
	Eventually(t, actLimit, fmt.Sprintf("node %s shows %s as %q", n.Name, id, want), func() error {
		instance, err := n.Lookup(app, id)
		if err == nil && statusOf(instance) != want {
			err = fmt.Errorf("it shows %q", statusOf(instance))
		}
		return err
	})
}
