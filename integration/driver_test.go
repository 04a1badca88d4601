package integration

import (
	"bufio"
	"cmp"
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
// replies to each with a line of JSON on its stdout. The programs are under clients/.
type driver struct {
	stdin     io.WriteCloser
	replies   chan driverReply // closed when the program has ended
	stderr    string           // the file that its stderr goes to
	overrides bool             // the client has calls for overrides
	delta     bool             // makes the client fetch deltas, where that is a setting
}

type driverCommand struct {
	Do     string    `json:"do"`
	URL    string    `json:"url,omitempty"`
	App    string    `json:"app,omitempty"`
	ID     string    `json:"id,omitempty"`
	Lease  int       `json:"lease,omitempty"` // seconds
	Status string    `json:"status,omitempty"`
	Delta  bool      `json:"delta,omitempty"`
	Args   arguments `json:"args,omitempty"` // if Do names a method of the client
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

// startDriverWith adds to the program's environment, for secrets that no command line may show.
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

// javaTemporary makes Java keep its temporary files where the test's are: it does not read TMPDIR, a full disk below
// /tmp makes it fail, and killed processes leave their files there.
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

// Hash returns what the client computes from its copy of the registry.
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

// smallConfig is three nodes with consensus, and without it as few as a test needs: one for what a node does, two for
// what nodes replicate.
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

// mustOnEvery checks every node: with consensus its first response must be right, without it the response after the
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

// mustListEverywhere checks that every node lists these instances and no others.
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

// actLimit is how long the end of a timed act may take to show: more than ten times the act's time.
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

// stockClient is one instance of a client that knows nothing of Rollcall: it registers itself, renews its own lease
// every second, registers again when told 404, and keeps a copy of the registry.
type stockClient interface {
	// Start registers the instance, with a lease in seconds, at a service URL and begins to renew and to fetch.
	Start(url, app, id string, lease int) error
	// Discover returns the client's copy of an application: status by instance id.
	Discover(app string) (map[string]string, error)
	// Override forces the instance's status, and Restore ends the override. Clients without such a call return
	// errNoCall, and an operator does it.
	Override(status string) error
	Restore() error
	// Stop cancels the instance.
	Stop() error
}

var errNoCall = errors.New("the client has no call for that")

// clientLimit is how long a client may take to start, or until an effect shows: at least ten times the time on an
// idle machine. Three Java virtual machines that start beside other tests on two cores take a minute.
const clientLimit = 5 * time.Minute

// testLifeCycle runs a client through its life, once against the leader and once against a follower, and checks every
// node after each step; and once more without consensus.
func testLifeCycle(t *testing.T, newClient func(*testing.T) stockClient) {
	c := StartCluster(t, withSteadyLeader(Config{})) // the client makes some calls only once
	leader := c.Leader()
	for role, through := range map[string]*Node{"leader": leader, "follower": c.Others(leader)[0]} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			life := newLifeCycle(c, through, role, newClient(t))
			life.starts(t)
			life.discovers(t)
			life.heartbeats(t)
			life.registersAgain(t)
			life.isOverridden(t)
			life.isRestored(t)
			life.stops(t)
		})
	}
	t.Run("without consensus", func(t *testing.T) {
		t.Parallel()
		testLifeWithoutConsensus(t, newClient(t))
	})
}

// testLifeWithoutConsensus also checks a client at the other node of its datacenter, and at another datacenter, in
// the other mode, where an operator overrides it.
func testLifeWithoutConsensus(t *testing.T, client stockClient) {
	d := StartUnlikeDatacenters(t, Config{AP: true, Nodes: 2}, Config{Nodes: 1})
	c := &Cluster{Nodes: d.Nodes(), t: t}
	life := newLifeCycle(c, c.Nodes[0], "ap", client)
	life.lease, life.operator = 10, d.Clusters[1].Nodes[0]
	life.starts(t)
	life.discovers(t)
	life.outlivesItsLease(t)
	life.registersAgain(t)
	life.isOverridden(t)
	life.isRestored(t)
	life.stops(t)
}

type lifeCycle struct {
	*Cluster
	through  *Node
	client   stockClient
	url      string // that the client is configured with
	app, id  string
	lease    int   // seconds
	operator *Node // where an operator overrides the instance; nil if the client does it, when it can
}

func newLifeCycle(c *Cluster, through *Node, name string, client stockClient) lifeCycle {
	return lifeCycle{Cluster: c, through: through, client: client, url: through.Eureka(), app: "LIFE-" + name, id: "127.0.0.1:life-" + name + ":8080", lease: 30}
}

func (l *lifeCycle) starts(t *testing.T) {
	need.OKf(t, l.client.Start(l.url, l.app, l.id, l.lease), "start")
	l.everywhere(t, "UP")
}

// discovers checks that the client sees itself and a neighbour that registered elsewhere.
func (l *lifeCycle) discovers(t *testing.T) {
	neighbour, others := l.id+"-neighbour", l.Others(l.through)
	mustRegister(t, others[0], Instance{App: l.app, ID: neighbour})
	l.seen(t, l.id, "UP")
	l.seen(t, neighbour, "UP")
	last := others[len(others)-1]
	awaitStatus(t, last, l.app, neighbour, "UP")
	mustCancel(t, last, l.app, neighbour)
	l.seen(t, neighbour, "")
}

// heartbeats checks that the lease is renewed repeatedly, and that every node sees it.
func (l *lifeCycle) heartbeats(t *testing.T) {
	for _, n := range l.Nodes {
		awaitRenewal(t, n, l.app, l.id)
	}
}

// outlivesItsLease checks that every node receives renewals for longer than one lease.
func (l *lifeCycle) outlivesItsLease(t *testing.T) {
	for _, n := range l.Nodes {
		Eventually(t, 10*time.Duration(l.lease)*time.Second, fmt.Sprintf("node %s sees %s renewed for longer than a lease", n.Name, l.id), func() error {
			instance, err := n.Lookup(l.app, l.id)
			switch {
			case err != nil:
				return err
			case instance == nil:
				return errors.New("it is not there")
			case instance.LeaseInfo.Duration != int64(l.lease):
				return fmt.Errorf("its lease is of %d s, want %d", instance.LeaseInfo.Duration, l.lease)
			case instance.LeaseInfo.Renewed <= instance.LeaseInfo.Registered+int64(l.lease)*1000:
				return fmt.Errorf("registered at %d, renewed at %d", instance.LeaseInfo.Registered, instance.LeaseInfo.Renewed)
			}
			return nil
		})
	}
}

// registersAgain checks that an instance that was canceled comes back, because its heartbeat gets 404 in a form that
// the client understands.
func (l *lifeCycle) registersAgain(t *testing.T) {
	before := map[*Node]int64{}
	for _, n := range l.Nodes {
		instance, err := readUntilTaken(func() (*Listed, error) { return n.Lookup(l.app, l.id) })
		need.That(t, err == nil && instance != nil, "node %s shows %v, %v, want the instance", n.Name, instance, err)
		before[n] = instance.LeaseInfo.Registered
	}
	mustCancel(t, l.through, l.app, l.id)
	for _, n := range l.Nodes {
		Eventually(t, clientLimit, fmt.Sprintf("node %s shows %s, registered again", n.Name, l.id), func() error {
			instance, err := n.Lookup(l.app, l.id)
			if err == nil && (instance == nil || instance.LeaseInfo.Registered <= before[n]) {
				err = fmt.Errorf("it shows %+v", instance)
			}
			return err
		})
	}
	l.everywhere(t, "UP")
}

// isOverridden checks that the status is in force on every node, in the client's copy, and across heartbeats.
func (l *lifeCycle) isOverridden(t *testing.T) {
	need.OKf(t, l.override("OUT_OF_SERVICE"), "override")
	l.everywhere(t, "OUT_OF_SERVICE")
	l.seen(t, l.id, "OUT_OF_SERVICE")
	l.heartbeats(t)
	l.everywhere(t, "OUT_OF_SERVICE")
}

func (l *lifeCycle) isRestored(t *testing.T) {
	need.OKf(t, l.restore(), "end of the override")
	l.everywhere(t, "UP")
	l.seen(t, l.id, "UP")
}

// override makes the client force its status, or an operator if there is one or the client has no call for it.
func (l *lifeCycle) override(status string) error {
	err := errNoCall
	if l.operator == nil {
		err = l.client.Override(status)
	}
	if errors.Is(err, errNoCall) {
		n := cmp.Or(l.operator, l.through)
		err = untilNotRefused(func() Response { return n.Override(l.app, l.id, status) }).is(200)
	}
	return err
}

// restore ends what override began.
func (l *lifeCycle) restore() error {
	err := errNoCall
	if l.operator == nil {
		err = l.client.Restore()
	}
	if errors.Is(err, errNoCall) {
		n := cmp.Or(l.operator, l.through)
		err = untilNotRefused(func() Response { return n.EndOverride(l.app, l.id) }).is(200)
	}
	return err
}

func (l *lifeCycle) stops(t *testing.T) {
	expect.OKf(t, l.client.Stop(), "stop")
	l.everywhere(t, "")
}

// everywhere waits until all nodes show the instance with a status; "" means not at all.
func (l *lifeCycle) everywhere(t *testing.T, status string) {
	t.Helper()
	for _, n := range l.Nodes {
		Eventually(t, clientLimit, fmt.Sprintf("node %s shows %s as %q", n.Name, l.id, status), func() error {
			instance, err := n.Lookup(l.app, l.id)
			if err != nil {
				return err
			}
			got := statusOf(instance)
			return unless(got == status, "it shows %q", got)
		})
	}
}

func statusOf(instance *Listed) string {
	if instance == nil {
		return ""
	}
	return instance.Status
}

// seen waits until the client's own copy shows an instance with a status; "" means not at all.
func (l *lifeCycle) seen(t *testing.T, id, status string) {
	t.Helper()
	Eventually(t, clientLimit, fmt.Sprintf("the client sees %s as %q", id, status), func() error {
		picture, err := l.client.Discover(l.app)
		if err != nil {
			return err
		}
		return unless(picture[id] == status, "it sees %v", picture)
	})
}

// awaitRenewal waits until the node shows a later last renewal.
func awaitRenewal(t *testing.T, n *Node, app, id string) {
	t.Helper()
	var first int64
	Eventually(t, clientLimit, fmt.Sprintf("node %s sees %s renewed", n.Name, id), func() error {
		instance, err := n.Lookup(app, id)
		switch {
		case err != nil:
			return err
		case instance == nil:
			return errors.New("it is not there")
		case first == 0:
			first = instance.LeaseInfo.Renewed
		case instance.LeaseInfo.Renewed > first:
			return nil
		}
		return fmt.Errorf("last renewed at %d", instance.LeaseInfo.Renewed)
	})
}
