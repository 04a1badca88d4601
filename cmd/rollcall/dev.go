package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/internal/localcluster"
)

// devOptions are the flags of dev.
type devOptions struct {
	nodes    int
	mode     string
	dcs      int
	httpPort int
	listen   string
	data     string
	demo     bool
}

func newDevCommand() *cobra.Command {
	var o devOptions
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a local cluster, one process per node, until Ctrl-C",
		Long: "Starts the nodes of a local cluster as processes of their own, prints a line for each and then\n" +
			"\"ready\", and stops them at Ctrl-C. A node that dies is reported with the command that starts it\n" +
			"again, by the file of settings in its directory. Node i serves\n" +
			"HTTP on port P+i-1 and, in mode cp, the other nodes on port P+i-1001. With --dcs M there are M\n" +
			"datacenters of N nodes, dc1, dc2 and so on, that replicate to each other; those of dc2 use ports that\n" +
			"are higher by 100. The nodes inherit the environment, so ROLLCALL_LOG_LEVEL=debug and the like reach\n" +
			"all of them. With --demo some sample services, whose instances change or die now and then, are\n" +
			"kept registered.",
		Example: "  rollcall dev --nodes 3\n" +
			"  rollcall dev --demo\n" +
			"  rollcall dev --demo --listen 0.0.0.0\n" +
			"  rollcall dev --mode ap\n" +
			"  rollcall dev --mode cp --dcs 2",
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return cli.Usage(err)
			}
			if o.data == "" {
				o.data = filepath.Join("data", o.mode)
			}
			return runDev(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.nodes, "nodes", 3, "nodes of each datacenter")
	f.StringVar(&o.mode, "mode", config.CP, "how operations are ordered: cp or ap")
	f.IntVar(&o.dcs, "dcs", 1, "datacenters")
	f.IntVar(&o.httpPort, "http-port", 8761, "HTTP port of the first node")
	f.StringVar(&o.listen, "listen", "127.0.0.1", "IP address to serve HTTP on; every machine that reaches another one than this may read and change everything")
	f.StringVar(&o.data, "data", "", "directory of the nodes' data, settings and logs (default data/cp or data/ap, by the mode)")
	f.BoolVar(&o.demo, "demo", false, "keep sample services registered, to have something to look at")
	return cmd
}

// maxDCs keeps the node-to-node ports of the last datacenter below the HTTP ports of the first.
const maxDCs = 9

// dcPortsApart is the distance between the ports of two neighbouring datacenters.
const dcPortsApart = 100

// clusterPortsBelow is how far the node-to-node ports are below the HTTP ports.
const clusterPortsBelow = 1000

func (o devOptions) validate() error {
	var errs []error
	errs = append(errs, cli.OneOf("--mode", o.mode, config.Modes))
	if o.dcs < 1 || o.dcs > maxDCs {
		errs = append(errs, fmt.Errorf("--dcs: %d is not a number from 1 to %d", o.dcs, maxDCs))
	}
	if o.nodes < 1 || o.nodes > 99 {
		errs = append(errs, fmt.Errorf("--nodes: %d is not a number from 1 to 99", o.nodes))
	}
	if last := o.httpPort + (o.dcs-1)*dcPortsApart + o.nodes - 1; o.httpPort <= clusterPortsBelow || last > 65535 {
		errs = append(errs, fmt.Errorf("--http-port: %d leaves no room for the ports of %d nodes between 1 and 65535", o.httpPort, o.dcs*o.nodes))
	}
	if _, err := netip.ParseAddr(o.listen); err != nil {
		errs = append(errs, fmt.Errorf("--listen: %q is not an IP address, such as 0.0.0.0", o.listen))
	}
	return errors.Join(errs...)
}

// open reports whether other machines may reach the nodes.
func (o devOptions) open() bool { return !netip.MustParseAddr(o.listen).IsLoopback() }

// warning returns which protection is missing with --listen, or "".
func (o devOptions) warning() string {
	if !o.open() {
		return ""
	}
	return fmt.Sprintf("insecure: every machine that reaches %s may read and change everything: there is no TLS (http.plain: true) and no access control (auth.mode: off)",
		net.JoinHostPort(o.listen, strconv.Itoa(o.httpPort)))
}

// place sets where a node serves HTTP. The other nodes, which are on this machine, find one that serves on all of its
// addresses on loopback. Settings allow explicitly what a server would otherwise refuse to leave open.
func (o devOptions) place(n *localcluster.Node, port int) {
	listen := net.JoinHostPort(o.listen, strconv.Itoa(port))
	n.HTTP, n.Settings = listen, map[string]string{}
	if netip.MustParseAddr(o.listen).IsUnspecified() {
		n.HTTP = localcluster.Address(port)
		n.Settings["http.addr"], n.Settings["http.advertise"] = listen, n.HTTP
	}
	if o.open() {
		n.Settings["http.plain"], n.Settings["auth.mode"] = "true", "off"
	}
}

// plan lays out the nodes' addresses and directories, one datacenter after the other.
func (o devOptions) plan() []*localcluster.Node {
	var nodes []*localcluster.Node
	for dc := 1; dc <= o.dcs; dc++ {
		for number := 1; number <= o.nodes; number++ {
			port := o.httpPort + (dc-1)*dcPortsApart + number - 1
			n := &localcluster.Node{
				Name: "node" + strconv.Itoa(number), Datacenter: localcluster.DatacenterName(dc), Mode: o.mode,
			}
			o.place(n, port)
			if o.mode == config.CP {
				n.Cluster = localcluster.Address(port - clusterPortsBelow)
			}
			n.PutBelow(filepath.Join(o.dataOf(dc), n.Name))
			nodes = append(nodes, n)
		}
	}
	for _, n := range nodes {
		n.Introduce(nodes)
	}
	return nodes
}

// dataOf returns where a datacenter's nodes have their directories.
func (o devOptions) dataOf(dc int) string {
	if dc == 1 {
		return o.data
	}
	return filepath.Join(o.data, localcluster.DatacenterName(dc))
}

// checkPorts finds ports that other processes use, before the first node is started: a cluster starts as a whole or
// not at all.
func checkPorts(nodes []*localcluster.Node) error {
	var errs []error
	for _, n := range nodes {
		errs = append(errs, checkPort(cmp.Or(n.Settings["http.addr"], n.HTTP), "HTTP", n.Name))
		if n.Cluster != "" {
			errs = append(errs, checkPort(n.Cluster, "node-to-node", n.Name))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w\nuse other ports with --http-port (node-to-node ports lie %d below the HTTP ports), or stop the programs that use these", err, clusterPortsBelow)
	}
	return nil
}

func checkPort(addr, what, node string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("the %s port of %s cannot be used: %w", what, node, err)
	}
	return l.Close()
}

// checkData refuses a directory that holds clusters of another size: their nodes would wait for others that are not
// started, or not know those that are.
func (o devOptions) checkData() error {
	for dc := 1; dc <= o.dcs; dc++ {
		entries, err := os.ReadDir(o.dataOf(dc))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("--data: %w", err)
		}
		found := 0
		for _, e := range entries {
			if number, ok := strings.CutPrefix(e.Name(), "node"); ok {
				if _, err := strconv.Atoi(number); err == nil && e.IsDir() {
					found++
				}
			}
		}
		if found != 0 && found != o.nodes {
			return fmt.Errorf("--data: %s holds a cluster of %d nodes; run dev with --nodes %d, or with another --data", o.dataOf(dc), found, found)
		}
	}
	return nil
}

// runDev runs a local cluster until ctx ends or every node has died.
func runDev(ctx context.Context, o devOptions, out io.Writer) error {
	nodes := o.plan()
	if err := errors.Join(checkPorts(nodes), o.checkData()); err != nil {
		return err
	}
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	if warning := o.warning(); warning != "" {
		fmt.Fprintln(out, warning)
	}
	defer localcluster.StopAll(nodes)
	for _, n := range nodes {
		if err := errors.Join(writeSettings(n), n.Start(binary)); err != nil {
			return err
		}
		fmt.Fprintln(out, nodeLine(n))
	}
	if err := localcluster.AwaitReady(ctx, nodes); ctx.Err() != nil {
		return nil
	} else if err != nil {
		return err
	}
	if o.demo {
		ended := make(chan error, 1)
		demoCtx, endDemo := context.WithCancel(ctx)
		go func() { ended <- runDemo(demoCtx, nodes, demoPace) }()
		defer func() {
			endDemo()
			<-ended
		}()
		fmt.Fprintln(out, "sample services: see them by rollcall status --watch, ls, watch and events, and on the dashboard")
	}
	fmt.Fprintf(out, "dashboard: %s/\nkill a node by its pid to see the others go on; then, in another terminal, this starts it again: %s\n", nodes[0].URL(), restart(nodes[0]))
	fmt.Fprintln(out, "ready")
	return supervise(ctx, nodes, out)
}

// settingsOf returns the path of a node's settings file.
func settingsOf(n *localcluster.Node) string {
	return filepath.Join(filepath.Dir(n.Dir), "rollcall.yaml")
}

// writeSettings writes the settings of a node, so that it can be started without dev.
func writeSettings(n *localcluster.Node) error {
	settings := n.AllSettings()
	settings["data.dir"] = filepath.Base(n.Dir) // beside the file
	path := settingsOf(n)
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(config.Template(false, settings)), 0o600))
}

// restart returns the command that starts a node again.
func restart(n *localcluster.Node) string {
	return os.Args[0] + " server --config " + settingsOf(n)
}

// nodeLine returns what dev prints for a node; scripts read it.
func nodeLine(n *localcluster.Node) string {
	return fmt.Sprintf("node=%s dc=%s http=%s pid=%d", strings.TrimPrefix(n.Name, "node"), n.Datacenter, n.HTTP, n.Pid())
}

// supervise reports nodes that die. It returns nil when ctx has ended, and an error when all nodes are dead.
func supervise(ctx context.Context, nodes []*localcluster.Node, out io.Writer) error {
	deaths := make(chan *localcluster.Node, len(nodes)) // room for all, so that no goroutine waits
	for _, n := range nodes {
		go func() {
			<-n.Done()
			deaths <- n
		}()
	}
	for range nodes {
		select {
		case <-ctx.Done():
			return nil
		case n := <-deaths:
			fmt.Fprintf(out, "%s %s\nto start it again, in another terminal: %s\n", nodeLine(n), n.Obituary(), restart(n))
		}
	}
	return errors.New("every node that dev started has ended")
}
