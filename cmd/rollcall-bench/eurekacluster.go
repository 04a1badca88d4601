package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-20419f34/rollcall/cmd/bench/load"
	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/internal/localcluster"
)

// eurekaCluster is three stock Eureka servers: Spring Cloud's with Netflix's own inside, as published, with default
// settings except where the servers share one host (eurekaNode.command). It implements compare.Cluster.
type eurekaCluster struct {
	linkedNodes
	servers []*eurekaNode // the nodes
}

// Start returns when the node serves. A node whose peers serve has copied their registry by then. Without a serving
// peer it serves an empty registry, and looks for a peer's every 30 s, five times, before it begins to evict, as is
// its default.
func (c *eurekaCluster) Start(ctx context.Context, node int) error { return c.servers[node].start(ctx) }

// SlowDisk implements compare.Cluster.
func (c *eurekaCluster) SlowDisk(node int, _ time.Duration) error {
	return fmt.Errorf("slow the disk of %s down: a Eureka server writes nothing that it waits for", c.nodes[node].Name)
}

// startEureka starts a cluster of the Eureka server in a jar below dir, with links that can be cut or direct ones. It is
// in a normal running state then: each server has opened, which takes half a minute longer than serving if all start at
// once, and knows all three. Before that a server would neither count the clients that register, nor evict. After an
// error nothing runs.
func startEureka(ctx context.Context, jar, dir string, linked bool) (*eurekaCluster, error) {
	c := new(eurekaCluster)
	if err := c.layOut(jar, dir, linked); err != nil {
		return nil, errors.Join(fmt.Errorf("lay out a cluster of Eureka servers: %w", err), c.Close())
	}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start a cluster of Eureka servers: %w", err), c.Close())
	}
	return c, nil
}

// layOut makes everything except the processes.
func (c *eurekaCluster) layOut(jar, dir string, linked bool) (err error) {
	if c.dir, err = os.MkdirTemp(dir, "eureka-*"); err != nil {
		return err
	}
	if c.dir, err = filepath.Abs(c.dir); err != nil {
		return err
	}
	nodes, err := localcluster.LayOut(c.dir, localcluster.AP, 1, benchNodes)
	if err != nil {
		return err
	}
	if c.links, err = localcluster.StartLinks(nodes, func(_, _ *localcluster.Node) bool { return linked }); err != nil {
		return err
	}
	hosts := filepath.Join(c.dir, "hosts")
	for i, n := range nodes {
		server := &eurekaNode{linkedNode: &linkedNode{Node: n, stopped: exitByTerm}, jar: jar, hosts: hosts}
		for j, proxy := range c.links[i] {
			if proxy != nil {
				server.peers = append(server.peers, nodes[j].Name+":"+portOf(proxy.Addr()))
			} else if j != i {
				server.peers = append(server.peers, nodes[j].Name+":"+portOf(nodes[j].HTTP))
			}
		}
		if err := os.MkdirAll(server.temporary(), 0o700); err != nil {
			return err
		}
		c.nodes, c.servers = append(c.nodes, server.linkedNode), append(c.servers, server)
	}
	return os.WriteFile(hosts, hostsFile(nodes), 0o600)
}

// hostsFile maps the nodes' names to this host, in the form of hosts(5). A Eureka server that finds its own host name
// in a peer's URL, whatever the port, takes the peer for itself, and a peer is available if an instance with its host
// name is registered: so each server has its own host name, which its peers find at their proxies.
func hostsFile(nodes []*localcluster.Node) []byte {
	names := []string{"127.0.0.1", "localhost"}
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	return []byte(strings.Join(names, " ") + "\n")
}

func portOf(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }

// eurekaOpenWithin bounds the start of a cluster. Three servers starting together keep two processors busy for most of
// a minute before they serve.
const eurekaOpenWithin = 10 * time.Minute

// start starts all processes at once, waits until each has opened and knows all of them, and warms them up meanwhile.
func (c *eurekaCluster) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, eurekaOpenWithin, fmt.Errorf("not open after %v", eurekaOpenWithin))
	defer cancel()
	g, serving := errgroup.WithContext(ctx)
	for _, n := range c.servers {
		g.Go(func() error { return n.start(serving) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	g, opening := errgroup.WithContext(ctx)
	for _, n := range c.servers {
		g.Go(func() error {
			return n.await(opening, func(ctx context.Context) error { return n.open(ctx, c.servers) })
		})
	}
	g.Go(func() error { return c.warm(opening) })
	return g.Wait()
}

// warmUp is how long servers that have begun to serve have clients before they open, which takes them 30 s.
const warmUp = 25 * time.Second

// warm lets clients of every kind except fetchers (see serves) come and go. Java compiles frequently run code while it
// runs; without this the first seconds of a trial would measure three compilers that share the processors with the
// load.
func (c *eurekaCluster) warm(ctx context.Context) error {
	var nodes []string
	for _, n := range c.servers {
		nodes = append(nodes, n.HTTP)
	}
	l, err := load.New(load.Config{Nodes: nodes, Prefix: "WARM", Load: scenario.Load{
		Instances: 100, Heartbeat: scenario.Span(time.Second), Lease: scenario.Span(90 * time.Second),
		Registers: 2, Writes: 60, Reads: 400, OwnKeys: 4,
	}})
	if err != nil {
		return err
	}
	defer l.Stop()
	if err := l.Register(ctx); err != nil {
		return fmt.Errorf("warm the servers up: %w", err)
	}
	if err := l.Run(ctx, time.Now(), warmUp); err != nil {
		return fmt.Errorf("warm the servers up: %w", err)
	}
	l.Stop()
	return l.CancelAll(ctx)
}

// eurekaNode is a Eureka server as a node.
type eurekaNode struct {
	*linkedNode
	jar   string
	hosts string   // file that maps the nodes' names
	peers []string // host:port of the proxies to the others
}

func (n *eurekaNode) temporary() string { return filepath.Join(filepath.Dir(n.Dir), "tmp") }

const (
	// eurekaApp is the application that the servers register with each other as.
	eurekaApp = "EUREKA"
	// exitByTerm is the exit code of a Java program that ended in order after SIGTERM.
	exitByTerm = 128 + 15
)

// command returns the command line of the node's process. Its settings say where the server is, where its peers are,
// and which name it registers with them under; everything else has its default: register-with-eureka, fetch-registry,
// the caches, the intervals, self-preservation. The heap is bounded, at many times what the registries of trials need,
// because the default, a quarter of the machine's memory for each of three servers, would make the memory figures
// depend on the machine. Of Java's two compilers only the first one runs: the other one would keep two processors busy
// for longer than a trial lasts.
func (n *eurekaNode) command() []string {
	var zone []string
	for _, peer := range n.peers {
		zone = append(zone, "http://"+peer+"/eureka/")
	}
	return []string{
		"java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-Djava.io.tmpdir=" + n.temporary(),
		"-Djdk.net.hosts.file=" + n.hosts,
		"-jar", n.jar,
		// ignores files in the directory that the bench was started in
		"--spring.config.location=optional:classpath:/",
		"--spring.application.name=" + eurekaApp,
		"--server.address=127.0.0.1", "--server.port=" + portOf(n.HTTP),
		"--eureka.instance.hostname=" + n.Name,
		"--eureka.instance.instance-id=" + n.Name, // the default contains the machine's name
		"--eureka.client.service-url.defaultZone=" + strings.Join(zone, ","),
	}
}

// start starts a process and waits until it serves.
func (n *eurekaNode) start(ctx context.Context) error {
	if err := n.launch(func() (*localcluster.Process, error) {
		command := n.command()
		return localcluster.StartForeign(n.LogFile, nil, command[0], command[1:]...)
	}); err != nil {
		return err
	}
	return n.await(ctx, n.serves)
}

// await waits until reached returns no error, or the process or ctx ends.
func (n *eurekaNode) await(ctx context.Context, reached func(context.Context) error) error {
	const every = 100 * time.Millisecond
	n.mu.Lock()
	process := n.Process
	n.mu.Unlock()
	for {
		err := reached(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-process.Done():
			return fmt.Errorf("start %s: %s", n.Name, process.Obituary())
		case <-ctx.Done():
			return fmt.Errorf("start %s: %w: %w; %s", n.Name, context.Cause(ctx), err, process.LastWords(5))
		case <-time.After(every):
		}
	}
}

// serves asks for no list: a server keeps the first one that it makes for 30 s, and the trial would have to wait for
// the next.
func (n *eurekaNode) serves(ctx context.Context) error { return n.ok(ctx, "/eureka/status") }

// open reports, as an error, what the first process of a node still lacks: it has not copied its peers' registry and
// begun to evict, which only its log says, or it does not know one of the servers.
func (n *eurekaNode) open(ctx context.Context, servers []*eurekaNode) error {
	log, err := os.ReadFile(n.LogFile)
	if err != nil {
		return err
	}
	if !bytes.Contains(log, []byte("Started Eureka Server")) {
		return errors.New("it serves, but has not opened")
	}
	for _, s := range servers {
		if err := n.ok(ctx, "/eureka/apps/"+eurekaApp+"/"+s.Name); err != nil {
			return err
		}
	}
	return nil
}

// ok requests a path, and returns an error unless the node responds with 200 within some seconds.
func (n *eurekaNode) ok(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := getText(ctx, n.URL()+path)
	return err
}

// eurekaJar is where `make eureka-server` puts the server, seen from the root of the repository.
var eurekaJar = filepath.Join("integration", "clients", "java", "server", "target", "driver.jar")

// findEureka returns the absolute path of the Eureka server's jar, or a sentence that says what the machine lacks to
// run it and how to get it.
func findEureka(jar string) (path, missing string) {
	const advice = "make eureka-server builds it, with a JDK of version 17 or later and Maven (apt-get install -y default-jdk-headless maven)"
	if _, err := exec.LookPath("java"); err != nil {
		return "", "Stock Eureka was left out: there is no java in PATH; " + advice + "."
	}
	path, err := filepath.Abs(jar)
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		return "", fmt.Sprintf("Stock Eureka was left out: there is no server in %s; %s, or --eureka-jar names another.", jar, advice)
	}
	return path, ""
}
