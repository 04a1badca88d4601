// Package sim runs whole nodes, as the server runs them, in virtual time: their stores, Raft, bbolt, replication and
// HTTP, joined by a network that the scenario breaks. A scenario of an hour takes seconds, and its bounds are exact,
// however busy the machine is.
//
//	func TestLeaseOutlivesItsLeader(t *testing.T) {
//		sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
//			dead := w.Register("ORDERS/a", 12*time.Second) // never renews
//			live := w.Keep("ORDERS/b", 12*time.Second)     // renews on time
//			w.Kill(w.Leader())
//			w.GoneBy(dead, 30*time.Second)
//			w.NeverGone(live)
//		})
//	}
//
// A scenario runs in a bubble of testing/synctest: time passes when all its goroutines wait. So none of them may wait
// for something outside, such as a socket, or for a mutex whose holder waits for time: the run would stand still, and
// the watchdog that Main starts would end it. Goroutines are scheduled as ever, so two runs of one scenario differ.
//
//	sim.go      a run, and what a scenario does with it
//	node.go     one node: start, stop, kill
//	network.go  connections in memory, and links that break
//	disk.go     disks that are slow, hang or fail
//	client.go   clients, and what they hold the cluster to
//	population.go, coordination.go, streams.go  many instances, sessions with keys and locks, watches
//	replication.go, upkeep.go                   lists and peers of all nodes, directories, logs and metrics
//	schedule.go what happens to a cluster, as text, and drawn at random
//	load.go     what clients and operators do in a drawn run, and what every response must be
//	drawnhistory.go, drawnlocks.go, drawnreads.go, drawnaccess.go  clients of keys, locks, stale state and permissions
//	drawnqueues.go  clients that wait for locks and semaphores
//	drawnends.go    sessions, and what they hold and wait for, that end in every way
//	drawnlibrary.go, drawnlearners.go  the Go client, and nodes without a vote
//	drawncatalog.go  services, checks and sessions of Consul's API, and transactions
//	drawnlinks.go, drawnwatches.go  datacenters that cannot reach each other, and clients that watch
//	drawnpreserve.go, drawnstatus.go  herds that fall silent under self-preservation, and statuses that operators set
//	drawncheck.go  histories in the form the checker needs
//	judge.go    the invariants that hold in the end
//	seeds.go    drawn runs, in child processes, and how a failing one is shortened
package sim

import (
	"bytes"
	"cmp"
	"fmt"
	"hash/fnv"
	"log/slog"
	mathrand "math/rand"
	"net/http"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// Cluster says which nodes there are. Each is named for its position: n1 to n7, and in further datacenters dc2-n1 and
// so on.
type Cluster struct {
	Nodes       int           // in each datacenter, 1 to 7
	Mode        string        // config.CP or config.AP; config.CP if empty
	Datacenters int           // that replicate to each other, 1 to 3; 0 means 1
	Latency     time.Duration // of each link, in each direction; 0 means 1 ms
	// from the wall clock of the first node to that of the last; those of the others are spread between
	Skew time.Duration
	// Configure changes the settings of each node before it starts. If nil, they are the defaults.
	Configure func(*config.Config)
}

// Validate reports what is wrong with a cluster.
func (c Cluster) Validate() error {
	switch {
	case c.Nodes < 1 || c.Nodes > 7:
		return fmt.Errorf("a cluster of %d nodes: it must have 1 to 7", c.Nodes)
	case c.Datacenters < 0 || c.Datacenters > 3:
		return fmt.Errorf("%d datacenters: there must be 1 to 3", c.Datacenters)
	case c.Mode != "" && c.Mode != config.CP && c.Mode != config.AP:
		return fmt.Errorf("mode %q: it must be %s or %s", c.Mode, config.CP, config.AP)
	}
	return nil
}

// World is a running cluster, and its surroundings.
type World struct {
	testing.TB
	cluster Cluster
	network *network
	root    string // holds the data directories
	log     *logFile
	nodes   []*Node // by position
	clients *http.Client
	skewed  *sync.Once // by the setting of a schedule
	ends    []func()   // end what runs beside the scenario
	drawn   *drawn     // of the run of a schedule; nil in a scenario
}

// began is when a run begins: a bubble's clock begins in 2000, which is earlier than the formats allow (ADR 26).
var began = time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)

// ReadyWithin is how long a cluster may take to be ready.
const ReadyWithin = 20 * time.Second

// Run starts a cluster, waits until all its nodes are ready, calls the scenario, and stops the cluster. A failed
// scenario shows the log of all nodes.
func Run(t *testing.T, c Cluster, scenario func(w *World)) {
	t.Helper()
	need.OK(t, c.Validate())
	root := need.Got(os.MkdirTemp(memory(), "sim"))(t)
	defer os.RemoveAll(root)
	log := new(logFile)
	defer func() {
		if t.Failed() {
			t.Logf("the log of all nodes:\n%s", log.text.Bytes())
		}
	}()
	draw(t)
	running.Add(1)
	defer running.Add(-1)
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(began))
		w := &World{TB: t, skewed: new(sync.Once), cluster: c, root: root, log: log, network: newNetwork(Link{Latency: cmp.Or(c.Latency, time.Millisecond)})}
		transport := &http.Transport{DialContext: w.network.host("127.0.9.1").DialContext}
		w.clients = &http.Client{Transport: transport}
		ended := make(chan struct{})
		go beat(ended)
		t.Cleanup(func() {
			for _, end := range slices.Backward(w.ends) {
				end()
			}
			w.network.heal()
			for _, n := range w.nodes {
				n.stop()
			}
			transport.CloseIdleConnections()
			w.network.close()
			close(ended)
		})
		for dc := range max(c.Datacenters, 1) {
			for i := range c.Nodes {
				w.nodes = append(w.nodes, w.newNode(dc+1, i+1))
			}
		}
		w.spreadClocks(c.Skew)
		for _, n := range w.nodes {
			n.start()
		}
		for _, n := range w.nodes {
			w.ReadyBy(n.Name, ReadyWithin)
		}
		scenario(w)
	})
}

// draws counts the runs of each test.
var draws sync.Map

// draw makes a run draw the same random values as the run with the same number of this test in any other process:
// secrets, by crypto/rand, and Raft's timeouts, by math/rand. What the server draws by math/rand/v2 cannot be set.
func draw(t *testing.T) {
	number, _ := draws.LoadOrStore(t.Name(), new(atomic.Uint64))
	seed := fnv.New64()
	fmt.Fprint(seed, t.Name(), number.(*atomic.Uint64).Add(1))
	cryptotest.SetGlobalRandom(t, seed.Sum64())
	mathrand.Seed(int64(seed.Sum64())) //lint:ignore SA1019 Raft draws from there, and takes no other source
}

// memory returns a directory in memory, where a sync takes no time, or "" for the directory of temporary files.
func memory() string {
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		return "/dev/shm"
	}
	return ""
}

// logFile has the log of all nodes, with virtual times.
type logFile struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *logFile) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (w *World) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			a.Value = slog.StringValue(a.Value.Time().Sub(began).String())
		}
		return a
	}}))
}

// Wait lets time pass.
func (w *World) Wait(d time.Duration) { time.Sleep(d) }

// Node returns a node by its name. An unknown name ends the test.
func (w *World) Node(name string) *Node {
	w.Helper()
	var names []string
	for _, n := range w.nodes {
		if n.Name == name {
			return n
		}
		names = append(names, n.Name)
	}
	w.Fatalf("there is no node %q: the nodes are %s", name, strings.Join(names, ", "))
	return nil
}

// Mode returns the mode of the nodes.
func (w *World) Mode() string { return cmp.Or(w.cluster.Mode, config.CP) }

// Names returns the names of all nodes.
func (w *World) Names() (names []string) {
	for _, n := range w.nodes {
		names = append(names, n.Name)
	}
	return names
}

// Await lets time pass until a condition holds, and ends the test if it does not within a limit.
func (w *World) Await(within time.Duration, what string, holds func() bool) {
	w.Helper()
	for until := time.Now().Add(within); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			w.Fatalf("%s: not within %v", what, within)
		}
	}
}

// ReadyBy ends the test if a node is not ready within a limit.
func (w *World) ReadyBy(node string, within time.Duration) {
	w.Helper()
	w.Await(within, node+" is ready", func() bool { return w.Call(node, "GET", "/readyz", "").Status == http.StatusOK })
}

// Leader returns the name of the node that leads the first datacenter, and waits for one.
func (w *World) Leader() string {
	w.Helper()
	leader := ""
	w.Await(ReadyWithin, "a node leads", func() bool {
		for _, n := range w.nodes {
			var s api.Status
			if n.alive() && w.Call(n.Name, "GET", "/v1/rollcall/status", "").decode(&s) && s.Leader == n.Name {
				leader = n.Name
				return true
			}
		}
		return false
	})
	return leader
}

// transfer makes another node lead, if one leads.
func (w *World) transfer() {
	for _, n := range w.nodes {
		if r := w.call(n.Name, time.Second, "POST", "/v1/rollcall/transfer", ""); r.Status == http.StatusOK {
			return
		}
	}
}

// TransferLeadership makes another node lead.
func (w *World) TransferLeadership() {
	w.Helper()
	r := w.Call(w.Leader(), "POST", "/v1/rollcall/transfer", "")
	need.That(w, r.Status == http.StatusOK, "transfer of leadership: %v", r)
}

// Isolate cuts the links between a node and all others, but not those of clients.
func (w *World) Isolate(name string) {
	for _, other := range w.nodes {
		if other.Name != name {
			w.Cut(name, other.Name)
		}
	}
}

// Cut cuts the links between two nodes, in both directions: what is sent waits.
func (w *World) Cut(a, b string) {
	w.Helper()
	if a == b {
		return
	}
	w.SetLink(a, b, func(l *Link) { l.Cut = true })
	w.SetLink(b, a, func(l *Link) { l.Cut = true })
}

// CutDatacenters cuts the links between the nodes of two datacenters.
func (w *World) CutDatacenters(a, b int) {
	w.Helper()
	for _, x := range w.Datacenter(a) {
		for _, y := range w.Datacenter(b) {
			w.Cut(x, y)
		}
	}
}

// Datacenter returns the names of the nodes of a datacenter; the first is 1.
func (w *World) Datacenter(dc int) (names []string) {
	for _, n := range w.nodes {
		if n.dc == dc {
			names = append(names, n.Name)
		}
	}
	return names
}

// SetLink changes the link from one node to another, in this direction.
func (w *World) SetLink(from, to string, change func(*Link)) {
	w.Helper()
	w.network.set(w.Node(from).ip, w.Node(to).ip, change)
}

// Heal heals all links.
func (w *World) Heal() { w.network.heal() }

// beats counts seconds of virtual time of all runs, and running counts the runs: the watchdog reads them from
// outside.
var (
	beats   atomic.Int64
	running atomic.Int64
)

func beat(ended chan struct{}) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			beats.Add(1)
		case <-ended:
			return
		}
	}
}

// patience is how long virtual time may stand still.
const patience = 20 * time.Second

// Main runs the tests of a package with scenarios, for its TestMain. If virtual time stands still for 20 s of real
// time, a goroutine of a bubble waits for something outside it: Main then shows all goroutines and ends the program.
func Main(m *testing.M) {
	go func() {
		for last := int64(-1); ; {
			time.Sleep(patience)
			now := beats.Load()
			if running.Load() > 0 && now == last {
				fmt.Fprintf(os.Stderr, "virtual time has stood still for %v; all goroutines:\n", patience)
				_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 2)
				os.Exit(2)
			}
			last = now
		}
	}()
	os.Exit(m.Run())
}

// dir returns the data directory of a node.
func (w *World) dir(n *Node) string {
	return filepath.Join(w.root, fmt.Sprintf("%s.%d", n.Name, n.lives))
}
