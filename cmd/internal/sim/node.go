package sim

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/cmd/internal/node"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/internal/world"
)

// Node is a node of the cluster, whose process may run.
type Node struct {
	Name string

	w       *World
	dc      int
	ip      string
	ahead   atomic.Int64 // how far the wall clock of its machine is ahead of the scenario's
	lives   int          // how often it was killed: each life has a data directory
	process *process
	past    []*process // were told to stop, or killed
	all     []*process
	disk    disk
	broken  atomic.Bool // its disk was broken, and it may exit on its own
}

// process is one run of a node.
type process struct {
	host    host
	tell    context.CancelFunc
	hangups chan os.Signal
	ending  atomic.Bool   // it was told to stop, or killed
	done    chan struct{} // closed when it has ended
	err     error         // of its end
	excused bool          // it may have ended: it was told to, its disk was broken, or the scenario has seen it
}

// end tells a process to stop.
func (p *process) end() {
	p.ending.Store(true)
	p.tell()
}

func (w *World) newNode(dc, place int) *Node {
	return &Node{Name: nodeName(dc, place), w: w, dc: dc, ip: address(dc, place)}
}

func nodeName(dc, place int) string {
	if dc > 1 {
		return fmt.Sprintf("dc%d-n%d", dc, place)
	}
	return fmt.Sprintf("n%d", place)
}

// address returns a node's address. It is a loopback address, so no setting asks for TLS.
func address(dc, place int) string { return fmt.Sprintf("127.0.%d.%d", dc, place) }

// running reports whether the node has a process, which may have exited on its own; alive reports that it has not.
func (n *Node) running() bool { return n.process != nil }

func (n *Node) alive() bool {
	if n.process == nil {
		return false
	}
	select {
	case <-n.process.done:
		return false
	default:
		return true
	}
}

// hourApart stands for the setting "skew" of a schedule in a node's settings.
var hourApart = new(world.World)

// world returns the world that a process on the node's machine sees.
func (n *Node) world(network world.Network) *world.World {
	return &world.World{Network: network, Ahead: func() time.Duration { return time.Duration(n.ahead.Load()) }}
}

// spreadClocks sets the wall clocks of all nodes, the first one's half a skew behind the scenario's, the last one's
// half a skew ahead.
func (w *World) spreadClocks(skew time.Duration) {
	for i, n := range w.nodes {
		n.ahead.Store(int64(skew)*int64(i)/int64(max(len(w.nodes)-1, 1)) - int64(skew/2))
	}
}

// StepClock sets a node's wall clock forward, or back if by is negative.
func (w *World) StepClock(name string, by time.Duration) { w.Node(name).ahead.Add(int64(by)) }

// settings returns the settings of the node.
func (n *Node) settings() *config.Config {
	c, all := config.Default(), n.w.cluster
	c.NodeName, c.Datacenter, c.Store.DataDir = n.Name, fmt.Sprintf("dc%d", n.dc), n.w.dir(n)
	c.HTTP.Addr, c.Store.ClusterAddr = n.ip+":8761", n.ip+":7761"
	if all.Mode != "" {
		c.Mode = all.Mode
	}
	c.Replication.Datacenters = map[string]string{}
	for dc := 1; dc <= max(all.Datacenters, 1); dc++ {
		for place := 1; place <= all.Nodes; place++ {
			url := "http://" + address(dc, place) + ":8761"
			switch {
			case dc != n.dc:
				name := fmt.Sprintf("dc%d", dc)
				c.Replication.Datacenters[name] += url + " "
			case c.Mode == config.AP:
				c.Replication.Nodes = append(c.Replication.Nodes, url)
			case all.Nodes > 1:
				c.Store.Join = append(c.Store.Join, address(dc, place)+":7761")
			}
		}
	}
	if c.Mode == config.CP {
		c.Store.BootstrapExpect = all.Nodes
	} else {
		c.HTTPD.Reads = "stale"
	}
	c.Store.Test.Write = n.disk.write
	if all.Configure != nil {
		all.Configure(c)
	}
	return c
}

// load reads the settings again.
func (n *Node) load() (config.Loaded, error) {
	c := n.settings()
	return config.Loaded{Config: c}, c.Validate()
}

// start starts the node's process.
func (n *Node) start() {
	n.w.Helper()
	need.That(n.w, !n.running(), "%s runs already", n.Name)
	c := n.settings()
	need.OK(n.w, c.Validate())
	n.w.network.boot(n.ip)
	if c.Store.World == hourApart {
		n.w.skewed.Do(func() { n.w.spreadClocks(time.Hour) })
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{host: n.w.network.host(n.ip), tell: cancel, hangups: make(chan os.Signal), done: make(chan struct{})}
	options := node.Options{
		Config: c, Load: n.load, Hangups: p.hangups,
		Version: "simulated", Log: n.w.logger(), Level: node.NewLogLevel("info"),
		Metrics:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "simulated"}),
		Settings: func(io.Writer) error { return nil }, LogTail: func() []byte { return nil },
		World: n.world(p.host),
	}
	n.process, n.all = p, append(n.all, p)
	go func() {
		defer close(p.done)
		p.err = node.Run(ctx, options)
		p.excused = p.ending.Load() || n.broken.Load()
		n.w.network.leave(p.host)
	}()
}

// leave tells the node's process to stop, and does not wait for that.
func (n *Node) leave() {
	n.process.end()
	n.past, n.process = append(n.past, n.process), nil
}

// comeBack starts a stopped node. One that exited on its own may have left a hanging write behind: it gets a copy.
func (n *Node) comeBack() {
	if n.alive() {
		return
	}
	if n.process != nil {
		n.leave()
		n.copyFiles()
	}
	for _, p := range n.past {
		if !*p.host.dead {
			<-p.done
		}
	}
	n.start()
}

// copyFiles gives the node's next process copies of the files of the last one.
func (n *Node) copyFiles() {
	n.w.Helper()
	from := n.w.dir(n)
	n.lives++
	need.OK(n.w, copyDir(from, n.w.dir(n)))
}

// stop ends the node's process as a service manager does, and waits for its end and that of processes killed before.
func (n *Node) stop() {
	if n.running() {
		n.leave()
	}
	for _, p := range n.past {
		<-p.done
	}
	n.past = nil
	for _, p := range n.all {
		if !p.excused {
			n.w.Errorf("%s ended by itself: %v", n.Name, p.err)
		}
	}
}

// Start starts a node that was stopped or killed, or has exited.
func (w *World) Start(name string) {
	w.Helper()
	w.Node(name).comeBack()
}

// Stop ends a node as a service manager does, and returns how it ended.
func (w *World) Stop(name string) error {
	w.Helper()
	n := w.Node(name)
	need.That(w, n.running(), "%s does not run", name)
	p := n.process
	n.leave()
	<-p.done
	return p.err
}

// Reload makes a node read its settings again, as SIGHUP does, and waits until it has applied them.
func (w *World) Reload(name string) {
	w.Helper()
	n := w.Node(name)
	need.That(w, n.running(), "%s does not run", name)
	n.process.hangups <- syscall.SIGHUP
	synctest.Wait()
}

// Kill ends a node's process at once. Its machine resets its connections, and its files stay.
func (w *World) Kill(name string) {
	w.Helper()
	w.kill(name, false)
}

// PowerOff ends a node's machine at once: its connections stay open for the others. What it wrote stays.
func (w *World) PowerOff(name string) {
	w.Helper()
	w.kill(name, true)
}

// kill leaves a process behind that reaches nobody. It ends in its own time, with its own files; the next one gets
// copies of them.
func (w *World) kill(name string, power bool) {
	w.Helper()
	n := w.Node(name)
	need.That(w, n.running(), "%s does not run", name)
	synctest.Wait()
	n.copyFiles()
	w.network.kill(n.process.host, power)
	n.leave()
}

// copyDir copies a directory with the permissions of its files.
func copyDir(from, to string) error {
	return filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if e.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), b, 0o600)
	})
}

// Ends waits until a node's process exits on its own, within a limit, and returns its error.
func (w *World) Ends(name string, within time.Duration) error {
	w.Helper()
	n := w.Node(name)
	need.That(w, n.running(), "%s does not run", name)
	select {
	case <-n.process.done:
		n.process.excused = true
		return n.process.err
	case <-time.After(within):
		w.Fatalf("%s has not ended within %v", name, within)
		return nil
	}
}
