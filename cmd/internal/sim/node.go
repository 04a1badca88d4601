package sim

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/cmd/internal/logging"
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
	lives   int // how often it was killed: each life has a data directory
	process *process
	past    []*process // were killed, and end by themselves
	disk    disk
}

// process is one run of a node.
type process struct {
	host  host
	end   context.CancelFunc
	ended chan error
}

func (w *World) newNode(dc, place int) *Node {
	n := &Node{Name: fmt.Sprintf("n%d", place), w: w, dc: dc, ip: address(dc, place)}
	if dc > 1 {
		n.Name = fmt.Sprintf("dc%d-n%d", dc, place)
	}
	return n
}

// address is that of a node: on loopback, for which no setting asks for TLS.
func address(dc, place int) string { return fmt.Sprintf("127.0.%d.%d", dc, place) }

func (n *Node) running() bool { return n.process != nil }

// settings returns those of the node.
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

// start starts the node's process.
func (n *Node) start() {
	n.w.Helper()
	need.That(n.w, !n.running(), "%s runs already", n.Name)
	c := n.settings()
	need.OK(n.w, c.Validate())
	n.w.network.boot(n.ip)
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{host: n.w.network.host(n.ip), end: cancel, ended: make(chan error, 1)}
	options := node.Options{
		Config: c, Load: func() (config.Loaded, error) { return config.Loaded{Config: c}, nil },
		Version: "simulated", Log: n.w.logger(), Level: logging.NewLevel("info"),
		Metrics:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "simulated"}),
		Settings: func(io.Writer) error { return nil }, LogTail: func() []byte { return nil },
		World: &world.World{Network: p.host},
	}
	go func() { p.ended <- node.Run(ctx, options) }()
	n.process = p
}

// stop ends the node's process as a service manager does, and waits for its end and that of processes killed before.
func (n *Node) stop() {
	if n.running() {
		n.process.end()
		n.past, n.process = append(n.past, n.process), nil
	}
	for _, p := range n.past {
		<-p.ended
	}
	n.past = nil
}

// Start starts a node that was stopped or killed.
func (w *World) Start(name string) {
	w.Helper()
	w.Node(name).start()
}

// Stop ends a node as a service manager does, and returns how it ended.
func (w *World) Stop(name string) error {
	w.Helper()
	n := w.Node(name)
	need.That(w, n.running(), "%s does not run", name)
	p := n.process
	p.end()
	n.process = nil
	return <-p.ended
}

// Kill ends a node's process at once. Its machine resets its connections, and what its files hold stays.
func (w *World) Kill(name string) {
	w.Helper()
	w.kill(name, false)
}

// PowerOff ends a node's machine at once: its connections stay open for the others. What it wrote stays.
func (w *World) PowerOff(name string) {
	w.Helper()
	w.kill(name, true)
}

// kill leaves a process behind that reaches nobody. It ends in its own time, with its own files; the next one gets copies of them.
func (w *World) kill(name string, power bool) {
	w.Helper()
	n := w.Node(name)
	need.That(w, n.running(), "%s does not run", name)
	synctest.Wait()
	from := w.dir(n)
	n.lives++
	need.OK(w, copyDir(from, w.dir(n)))
	w.network.kill(n.process.host, power)
	n.process.end()
	n.past, n.process = append(n.past, n.process), nil
}

// copyDir copies a directory with the rights of its files.
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

// Ends waits until a node's process ends by itself, within a limit, and returns its error.
func (w *World) Ends(name string, within time.Duration) error {
	w.Helper()
	n := w.Node(name)
	need.That(w, n.running(), "%s does not run", name)
	select {
	case err := <-n.process.ended:
		n.process = nil
		return err
	case <-time.After(within):
		w.Fatalf("%s has not ended within %v", name, within)
		return nil
	}
}
