package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// killLeader ends the leader as kill -9 does, waits for another one, starts the dead node again and waits until it
// has caught up. The load goes through followers throughout.
func killLeader(t *testing.T, c *Cluster, l *load) {
	t.Helper()
	dead := c.Leader()
	others := c.Others(dead)
	l.use(others)
	dead.Kill()
	leader := c.Leader(others...)
	l.use(c.Others(dead, leader))
	l.awaitProgress(t)
	dead.Start(t)
	dead.WaitReady(t)
	l.use(c.Others(leader))
	l.awaitProgress(t)
}

// It kills leaders whose logs are files: what a kill leaves of them is read again.
func TestKilledLeadersOfLogsOfBothKindsLoseNothing(t *testing.T) {
	t.Parallel()
	// With fewer trailing entries, a node that comes back on a busy machine may never get a snapshot whose next entry
	// is still there.
	often := map[string]string{"raft.snapshot-threshold": "100", "raft.snapshot-interval": "500ms", "raft.trailing-logs": "1000"}
	c := StartCluster(t, Config{Of: mixedLogs, Settings: often})
	l := startLoad(t, 10, 40, 8, c.Others(c.Leader()))
	for range 3 {
		killLeader(t, c, l)
	}
	l.stop()
	c.WaitReady()
	l.check(t, c.Nodes)
}

// mustRegister registers an instance and checks for eventual success: a refused registration was not done, and one
// without a timely response may be done twice.
func mustRegister(t testing.TB, n *Node, i Instance) {
	t.Helper()
	err := untilTaken(func() error {
		if response := n.Register(i); response.Status != 204 {
			return response.failure(n, fmt.Sprintf("register %s/%s, want 204", i.App, i.ID))
		}
		return nil
	})
	need.OK(t, err)
}

// mustRegisterSoon registers through a node that may not have noticed a new leader yet.
func mustRegisterSoon(t *testing.T, n *Node, i Instance) {
	t.Helper()
	Eventually(t, ReadyLimit, "node "+n.Name+" registers "+i.ID, func() error {
		return n.Register(i).is(http.StatusNoContent)
	})
}

// mustTake checks that a node does something that may be done twice, like mustRegister.
func mustTake(t *testing.T, n *Node, what string, act func() Response) {
	t.Helper()
	err := untilTaken(func() error {
		if response := act(); response.Outcome() != Done {
			return response.failure(n, what)
		}
		return nil
	})
	need.OK(t, err)
}

// mustCancel cancels a registered instance. A cancel without a timely response may have been done: then the instance
// is gone.
func mustCancel(t *testing.T, n *Node, app, id string) {
	t.Helper()
	unknown := false
	mustTake(t, n, fmt.Sprintf("cancel %s/%s", app, id), func() Response {
		response := n.Cancel(app, id)
		if unknown && response.Outcome() == NotFound {
			return Response{Status: http.StatusOK}
		}
		unknown = unknown || response.Outcome() == Unknown
		return response
	})
}

// mustList reads the registry of a node.
func mustList(t *testing.T, n *Node) map[string]Listed {
	t.Helper()
	var listing map[string]Listed
	err := untilTaken(func() (err error) {
		listing, err = n.Listing()
		return err
	})
	need.OK(t, err)
	return listing
}

// What it acknowledged and has not replicated yet is on its disk, and is replicated when the node is back.
func TestWithoutConsensusANodeStopsGracefullyUnderLoad(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Config{AP: true, Nodes: 2, Settings: map[string]string{"replication.max-delay": "2s", "data.sync": "none"}})
	l := startLoad(t, 10, 10, 4, c.Nodes)
	for _, n := range c.Nodes {
		l.awaitProgress(t)
		n.Stop(t)
		l.awaitProgress(t)
		n.Start(t)
		n.WaitReady(t)
	}
	l.awaitProgress(t)
	l.stop()
	mustConverge(t, c.Nodes)
	l.check(t, c.Nodes)
}

// One node after the other is killed, while clients turn to the others. Registrations that only a dead node knew come
// back with the node, because its disk has what it acknowledged; those that were canceled meanwhile do not.
func TestWithoutConsensusNodesKilledUnderLoadLoseNothing(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Config{AP: true, Settings: map[string]string{"data.sync": "always", "replication.max-delay": "2s"}})
	l := startLoad(t, 10, 20, 6, c.Nodes)
	for _, victim := range c.Nodes {
		l.awaitProgress(t)
		victim.Kill()
		l.awaitProgress(t)
		victim.Start(t)
		victim.WaitReady(t)
	}
	l.awaitProgress(t)
	l.stop()
	mustConverge(t, c.Nodes)
	l.check(t, c.Nodes)
	for _, n := range c.Nodes {
		mustAgreeWithPeers(t, n)
	}
}

// A node is frozen for longer than a lease, while its clients turn to the others. As by default, a lease lasts a few
// times longer than the longest wait of the others before they try a node again.
func TestWithoutConsensusAPausedNodeEvictsNoInstanceThatRenewsElsewhere(t *testing.T) {
	t.Parallel()
	const lease = 9 // seconds
	c := StartCluster(t, Config{AP: true, Settings: map[string]string{"replication.max-delay": "2s", "replication.read-timeout": "1s"}})
	asleep, others := c.Nodes[2], c.Nodes[:2]
	h := startHerdOf(t, "HERD", 7, lease, c.Nodes) // with two more, too few for self-preservation
	dead, alive := h.ids()[:1], h.ids()[1:]
	mustRegister(t, asleep, Instance{App: "ORDERS", ID: "canceled"})
	c.mustListEverywhere(t, append(h.ids(), "canceled")...)
	before := map[*Node]string{}
	for _, n := range c.Nodes {
		before[n] = index(t, n)
	}

	h.use(others)
	h.silence(len(dead))
	asleep.Pause(t)
	mustRegister(t, others[0], Instance{App: "ORDERS", ID: "new"})
	mustCancel(t, others[1], "ORDERS", "canceled")
	left := append(slices.Clone(alive), "new")
	for _, n := range others {
		awaitListed(t, n, wantListed(left...)) // so that it lasted longer than a lease
	}
	asleep.Resume(t)
	c.mustListEverywhere(t, left...)
	Pass(t, lease*time.Second) // during which it would evict instances whose renewals it has not received
	c.mustListEverywhere(t, left...)
	for _, n := range c.Nodes {
		for _, change := range mustPoll(t, n, "wait=0s&app=herd&index="+before[n]).Changes {
			if slices.Contains(alive, change.ID) { // its heartbeats are no changes
				t.Errorf("%s says at %s of %s, which renewed elsewhere: %s %s", n.Name, change.Index, change.ID, change.Action, change.Why)
			}
		}
	}
	h.stop()
	h.check(t)
	for _, n := range c.Nodes {
		mustAgreeWithPeers(t, n)
	}
}

// poll is the response to a long poll.
type poll struct {
	Changes []api.Change
}

// mustPoll asks a node for changes.
func mustPoll(t *testing.T, n *Node, query string) poll {
	t.Helper()
	return need.Got(readUntilTaken(func() (poll, error) { return ask[poll](n, "/v1/rollcall/watch?"+query) }))(t)
}

// Node after node of a cluster is restarted behind haproxy, which checks each second whether a node is ready and
// repeats no call. ROLLCALL_RESTARTS is the number of restarts.
func TestRollingRestartsBehindABalancerFailNoCall(t *testing.T) {
	haproxy := debianProgram(t, "haproxy")
	t.Parallel()
	restarts := 3
	if text := os.Getenv("ROLLCALL_RESTARTS"); text != "" {
		restarts = need.Got(strconv.Atoi(text))(t)
	}
	eachMode(t, func(t *testing.T, ap bool) {
		cfg := withSteadyLeader(Config{AP: ap}) // whose leader no busy machine changes meanwhile
		cfg.Settings["shutdown-delay"] = "10s"  // ten times what haproxy needs to notice
		c := StartCluster(t, cfg)
		balancer := startHAProxy(t, haproxy, c.Nodes)
		var calls Gaps
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan bool)
		const callers = 4
		for i := range callers {
			go func() {
				defer func() { ended <- true }()
				for pause(ctx, 20*time.Millisecond) {
					callBalancer(balancer, fmt.Sprintf("i%d", i), ap, &calls)
				}
			}()
		}
		for i := range restarts {
			n := c.Nodes[i%len(c.Nodes)]
			if !ap && i%2 == 0 {
				n = c.Leader() // the most expensive restart
			}
			n.Stop(t)
			n.Start(t)
			n.WaitReady(t)
			Pass(t, 2*time.Second) // until the balancer has noticed
		}
		cancel()
		for range callers {
			<-ended
		}
		t.Logf("%d restarts: %v", restarts, &calls)
		good, bad := calls.counts()
		expect.That(t, bad == 0 && good > 50*restarts, "calls: %v, want many, and none bad", &calls)
	})
}

// callBalancer registers an instance, lists all and, with consensus, renews it: without, another node may not know it
// yet.
func callBalancer(balancer *Node, id string, ap bool, calls *Gaps) {
	record := func(what string, r Response) {
		calls.add(unless(r.Status/100 == 2, "%s: %v", what, r))
	}
	record("register", balancer.Register(Instance{App: "BALANCED", ID: id, Duration: 600}))
	record("list", balancer.Get("/eureka/apps"))
	if !ap {
		record("renew", balancer.Renew("BALANCED", id))
	}
}

// debianProgram returns the path of a program from the Debian package of the same name; the test skips without it.
func debianProgram(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		path = "/usr/sbin/" + name // which is in few users' PATH
		_, err := os.Stat(path)
		need.Present(t, err == nil, "%s is missing: apt-get install -y %s", name, name)
	}
	return path
}

// startHAProxy starts a balancer in front of nodes, and waits until it passes calls on.
func startHAProxy(t *testing.T, program string, nodes []*Node) *Node {
	t.Helper()
	balancer := serverAt(FreeAddr(t))
	var servers strings.Builder
	for _, n := range nodes {
		fmt.Fprintf(&servers, "  server %s %s\n", n.Name, n.HTTP)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "haproxy.cfg")
	need.OK(t, os.WriteFile(file, fmt.Appendf(nil, `defaults
  mode http
  retries 0
  timeout check 30s
  timeout connect 30s
  timeout client 30s
  timeout server 30s
listen rollcall
  bind %s
  option httpchk GET /readyz
  default-server check inter 1s fall 1 rise 1
%s`, balancer.HTTP, &servers), 0o600))
	need.Got(launch(t, filepath.Join(dir, "haproxy.log"), nil, []string{program, "-db", "-f", file}))(t)
	Eventually(t, ReadyLimit, "haproxy passes calls on", balancer.Ready)
	return balancer
}

// All machines are paused at once, as by a snapshot of a host or a frozen storage, for longer than a disk may hang.
// Each node, with a slow disk, must go on as if nothing had happened, and no lease may end.
func TestPauseOfTheWholeClusterIsNotMistakenForAHungDisk(t *testing.T) {
	t.Parallel()
	const pause = 7 * time.Second
	c := StartCluster(t, Config{Settings: map[string]string{"test.sync-delay": "20ms"}})
	l := startLoad(t, 10, 20, 8, c.Nodes)
	for range 2 {
		for _, n := range c.Nodes {
			n.Pause(t)
		}
		Pass(t, pause)
		for _, n := range c.Nodes {
			n.Resume(t)
		}
		l.awaitProgress(t)
		for _, n := range c.Nodes {
			if !n.Running() {
				t.Errorf("%s ended after a pause, with code %d:\n%s", n.Name, n.ExitCode(t, StopLimit), n.LastWords(5))
			}
		}
		if t.Failed() {
			return
		}
	}
	l.stop()
	c.WaitReady()
	l.check(t, c.Nodes)
}

// A node's next write to its disk takes longer than servers wait for one.
func TestNodeWhoseDiskHangsEndsWithCodeThree(t *testing.T) {
	t.Parallel()
	c := NewCluster(t, Config{Nodes: 1})
	n := c.Nodes[0]
	n.Settings["config"] = filepath.Join(t.TempDir(), "rollcall.yaml")
	writeSettings(t, n, "0s")
	c.Start()
	writeSettings(t, n, "10s")
	n.Signal(t, syscall.SIGHUP)
	Eventually(t, ReadyLimit, "the disk hangs", func() error {
		if response := n.Register(Instance{App: "HUNG", ID: "hung"}); response.Outcome() == Done {
			return errors.New("it was answered")
		}
		return nil
	})
	expect.Equal(t, n.ExitCode(t, ReadyLimit), 3, "the node whose disk hangs ended with code")
	expect.That(t, strings.Contains(n.Output(t), "the disk hangs"), "the log of %s does not say that its disk hangs:\n%s", n.Name, n.LastWords(10))
}

// writeSettings writes the settings file of a node that has one.
func writeSettings(t *testing.T, n *Node, syncDelay string) {
	t.Helper()
	need.OK(t, os.WriteFile(n.Settings["config"], []byte("test: {sync-delay: "+syncDelay+"}\n"), 0o600))
}

// This many clients read the woken node for at most wakeWindow, or until it has answered enough reads.
const (
	readers    = 16
	wakeWindow = 2 * time.Second
	enough     = 300
)

func TestPausedLeaderServesNoStaleReadWhenItWakes(t *testing.T) {
	t.Parallel()
	const stops, wanted = 20, 1000
	c := StartCluster(t, Config{})
	mustRegister(t, c.Nodes[0], Instance{App: "WITNESS", ID: "w"})
	answered := 0
	// A busy machine answers fewer of them, and so gets more stops.
	for stop := 1; stop <= stops || answered < wanted && stop <= 3*stops; stop++ {
		woken := c.Leader()
		woken.Pause(t)
		writeMetadata(t, c.Others(woken), stop)

		var reads readLog
		reads.startAt(woken, stop) // calls are waiting in its sockets when it wakes
		woken.Resume(t)
		reads.finish(time.Now().Add(wakeWindow))
		answered += reads.answered
		if len(reads.stale) > 0 {
			t.Errorf("stop %d: %s, paused while the others acknowledged %d, answered stale %d times, such as %s",
				stop, woken.Name, stop, len(reads.stale), reads.stale[0])
		}
	}
	t.Logf("%d reads answered within %v of waking, over %d stops or more", answered, wakeWindow, stops)
	expect.That(t, answered >= wanted, "%d reads were answered within %v of waking, want at least %d", answered, wakeWindow, wanted)
}

// writeMetadata writes n=value until one of the nodes acknowledges it.
func writeMetadata(t *testing.T, nodes []*Node, value int) {
	t.Helper()
	Eventually(t, ReadyLimit, "the others write", func() error {
		return nodes[value%len(nodes)].Do(Request{Method: http.MethodPut, Path: path("WITNESS", "w") + "/metadata?n=" + strconv.Itoa(value)}).is(200)
	})
}

// readLog reads one node from many clients and counts its responses.
type readLog struct {
	readers sync.WaitGroup
	done    chan struct{}

	mu       sync.Mutex
	ended    bool
	answered int
	stale    []string
}

// startAt starts the readers; every response must show the value want.
func (r *readLog) startAt(n *Node, want int) {
	r.done = make(chan struct{})
	for i := range readers {
		r.readers.Go(func() {
			for r.reading() {
				r.count(readMetadata(n, i%2 == 0, want))
			}
		})
	}
}

// finish waits for enough responses or the deadline, and ends the readers. Later responses do not count.
func (r *readLog) finish(deadline time.Time) {
	select {
	case <-r.done:
	case <-time.After(time.Until(deadline)):
	}
	r.mu.Lock()
	r.ended = true
	r.mu.Unlock()
	r.readers.Wait()
}

func (r *readLog) reading() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.ended
}

// count counts one response; a stale one is kept whenever it comes.
func (r *readLog) count(answered bool, stale string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if stale != "" {
		r.stale = append(r.stale, stale)
	}
	if !answered || r.ended {
		return
	}
	if r.answered++; r.answered == enough {
		close(r.done)
	}
}

// readMetadata reads the witness, alone or within the list, linearizably. A refusal does not count as a response.
func readMetadata(n *Node, alone bool, want int) (answered bool, stale string) {
	resource := "/eureka/apps?consistency=linearizable"
	if alone {
		resource = path("WITNESS", "w") + "?consistency=linearizable"
	}
	response := n.Get(resource)
	if response.Status == 0 || response.Status == http.StatusServiceUnavailable {
		return false, ""
	}
	found, err := witness(response, alone)
	if err != nil || found != strconv.Itoa(want) {
		return true, fmt.Sprintf("%q (%v) to %s", found, err, resource)
	}
	return true, ""
}

func witness(response Response, alone bool) (string, error) {
	if err := response.is(200); err != nil {
		return "", err
	}
	if alone {
		instance, err := ParseInstance(response.Body)
		return instance.Metadata["n"], err
	}
	listing, err := ParseListing(response.Body)
	return listing["w"].Metadata["n"], err
}

// The leader is paused for longer than a lease, while all instances but one renew through followers.
func TestPausedLeaderIsReplacedByOneThatEvictsOnlyTheDead(t *testing.T) {
	t.Parallel()
	const lease, mortal = 9, 6 // in seconds, for the instances that renew, and for the dead one
	c := StartCluster(t, Config{})
	leader := c.Leader()
	others := c.Others(leader)
	l := startLoad(t, lease, 6, 0, others)
	mustRegister(t, others[0], Instance{App: "MORTAL", ID: "dead", Duration: mortal})
	leader = c.Leader() // a busy machine may have changed it
	others = c.Others(leader)
	l.use(others)
	paused := time.Now()
	leader.Pause(t)
	c.Leader(others...)
	for _, n := range others {
		awaitGone(t, n, "dead", mortal)
	}
	// the newest renewal that it knows is longer ago than a lease lasts
	Pass(t, time.Until(paused.Add((lease+1)*time.Second)))
	leader.Resume(t)
	leader.WaitReady(t)
	l.use(c.Nodes)
	Pass(t, lease*time.Second) // during which an earlier leader would evict
	l.stop()
	l.check(t, c.Nodes)
}

// awaitGone waits until a node does not list an instance whose lease has the given number of seconds.
func awaitGone(t *testing.T, n *Node, id string, lease int) {
	t.Helper()
	Eventually(t, max(ReadyLimit, 10*time.Duration(lease)*time.Second), id+" is gone from node "+n.Name, func() error {
		if _, listed := mustList(t, n)[id]; listed {
			return errors.New("still listed")
		}
		return nil
	})
}

// The promise: a write that got 504 takes effect before every acknowledged write that was sent a second after that
// response, or never.

// Requests are left in the sockets of a paused node.
func TestWriteThatWasGivenUpDuringAPauseIsNotPerformed(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Config{})
	paused := c.Others(c.Leader())[0]
	other := c.Others(paused)[0]
	const keys = 10
	paused.Pause(t)
	var clients sync.WaitGroup
	for i := range keys {
		clients.Go(func() { paused.PutWithin(fmt.Sprintf("/v1/kv/k%d", i), "OLD", 300*time.Millisecond) })
	}
	clients.Wait()
	for i := range keys {
		said, err := other.putOK(fmt.Sprintf("/v1/kv/k%d", i), "NEW")
		need.That(t, err == nil && said == "true", "write at %s: %q, %v", other.Name, said, err)
	}
	Pass(t, time.Second) // long enough for the node to notice the pause
	paused.Resume(t)
	paused.WaitReady(t)
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
		for i := range keys {
			if response := other.Get(fmt.Sprintf("/v1/kv/k%d?raw&consistent", i)); response.Status == http.StatusOK && string(response.Body) != "NEW" {
				t.Fatalf("k%d is %q: the client had given that up", i, response.Body)
			}
		}
	}
}
