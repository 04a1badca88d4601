package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/localcluster"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestDevRefusesWhatItCannotOffer(t *testing.T) {
	valid := devOptions{nodes: 3, mode: "cp", dcs: 1, httpPort: 8761, listen: "127.0.0.1"}
	for _, tc := range []struct {
		name   string
		change func(*devOptions)
		want   string // "": valid
	}{
		{name: "defaults", change: func(*devOptions) {}},
		{name: "mode ap", change: func(o *devOptions) { o.mode = "ap" }},
		{name: "another mode", change: func(o *devOptions) { o.mode = "ca" }, want: `--mode: "ca" is none of ["cp" "ap"]`},
		{name: "two datacenters", change: func(o *devOptions) { o.dcs = 2 }},
		{name: "no datacenter", change: func(o *devOptions) { o.dcs = 0 }, want: "--dcs: "},
		{name: "too many datacenters", change: func(o *devOptions) { o.dcs = 10 }, want: "--dcs: 10 is not a number from 1 to 9"},
		{name: "ports of the last datacenter above 65535", change: func(o *devOptions) { o.dcs, o.httpPort = 9, 65000 }, want: "--http-port: "},
		{name: "all addresses", change: func(o *devOptions) { o.listen = "0.0.0.0" }},
		{name: "a name to listen on", change: func(o *devOptions) { o.listen = "localhost" }, want: `--listen: "localhost" is not an IP address`},
		{name: "no nodes", change: func(o *devOptions) { o.nodes = 0 }, want: "--nodes: "},
		{name: "ports below 1", change: func(o *devOptions) { o.httpPort = 1000 }, want: "--http-port: "},
		{name: "ports above 65535", change: func(o *devOptions) { o.httpPort = 65534 }, want: "--http-port: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := valid
			tc.change(&o)
			err := o.validate()
			expect.That(t, (err != nil) == (tc.want != "") && (err == nil || strings.Contains(err.Error(), tc.want)),
				"got %v, want %q", err, tc.want)
		})
	}
}

func TestDevLaysOutPortsAndDirectories(t *testing.T) {
	got := devOptions{nodes: 2, mode: config.CP, dcs: 2, httpPort: 8761, listen: "127.0.0.1", data: "data"}.plan()
	want := []string{
		"node1 dc1 127.0.0.1:8761 127.0.0.1:7761 data/node1/data",
		"node2 dc1 127.0.0.1:8762 127.0.0.1:7762 data/node2/data",
		"node1 dc2 127.0.0.1:8861 127.0.0.1:7861 data/dc2/node1/data",
		"node2 dc2 127.0.0.1:8862 127.0.0.1:7862 data/dc2/node2/data",
	}
	for i, n := range got {
		expect.Equal(t, strings.Join([]string{n.Name, n.Datacenter, n.HTTP, n.Cluster, n.Dir}, " "), want[i], "node %d:", i)
	}
}

func configured(t *testing.T, n *localcluster.Node) config.Loaded {
	t.Helper()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	config.AddFlags(flags)
	need.OK(t, flags.Parse(n.Arguments()[1:]))
	return need.Got(config.Load(config.FromProcess(flags)))(t)
}

func TestDevStartsServersThatTheSettingsAllow(t *testing.T) {
	o := devOptions{nodes: 3, mode: config.CP, dcs: 3, httpPort: 8761, listen: "127.0.0.1", data: "data"}
	nodes := o.plan()
	s := configured(t, nodes[1])
	if s.NodeName != "node2" || s.HTTP.Addr != nodes[1].HTTP || s.Store.ClusterAddr != nodes[1].Cluster || s.Store.BootstrapExpect != 3 ||
		len(s.Store.Join) != 3 || s.Store.DataDir != "data/node2/data" || s.Datacenter != "dc1" || len(s.Replication.Datacenters) != 2 ||
		s.Replication.Datacenters["dc3"] != "http://127.0.0.1:8961 http://127.0.0.1:8962 http://127.0.0.1:8963" {
		t.Errorf("got %+v", s.Config)
	}
	o.mode = config.AP
	s = configured(t, o.plan()[8])
	expect.That(t, s.Datacenter == "dc3" && len(s.Replication.Nodes) == 3 && s.Replication.Nodes[2] == "http://127.0.0.1:8963" && len(s.Store.Join) == 0,
		"got %+v", s.Config)
}

func TestDevWritesOutWhatOpenListeningNeedsAndSaysSo(t *testing.T) {
	for _, tc := range []struct {
		listen, http, served string
		open                 bool
	}{
		{"127.0.0.1", "127.0.0.1:8761", "127.0.0.1:8761", false},
		{"::1", "[::1]:8761", "[::1]:8761", false},
		{"0.0.0.0", "127.0.0.1:8761", "0.0.0.0:8761", true},
		{"10.1.2.3", "10.1.2.3:8761", "10.1.2.3:8761", true},
	} {
		o := devOptions{nodes: 1, mode: config.CP, dcs: 1, httpPort: 8761, listen: tc.listen, data: "data"}
		n := o.plan()[0]
		expect.Equal(t, n.HTTP, tc.http, "%s: the other nodes and dev call", tc.listen)
		s := configured(t, n)
		expect.That(t, s.HTTP.Addr == tc.served && s.HTTP.Plain == tc.open && (s.Auth.Mode == "off") == tc.open, "%s: serves at %s, plain %v, auth.mode %q", tc.listen, s.HTTP.Addr, s.HTTP.Plain, s.Auth.Mode)
		expect.Equal(t, strings.Count(o.warning(), "http.plain: true")+strings.Count(o.warning(), "auth.mode: off"), map[bool]int{true: 2}[tc.open], "%s: opt-outs that dev names in %q:", tc.listen, o.warning())
	}
}

func TestDevSaysWhichPortIsInUseAndByWhichFlagToChangeIt(t *testing.T) {
	l := need.Got(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	taken := l.Addr().String()
	free := localcluster.Node{Name: "node1", HTTP: "127.0.0.1:0", Cluster: "127.0.0.1:0"}
	for _, n := range []localcluster.Node{{Name: "node2", HTTP: taken, Cluster: "127.0.0.1:0"}, {Name: "node2", HTTP: "127.0.0.1:0", Cluster: taken}} {
		err := checkPorts([]*localcluster.Node{&free, &n})
		expect.That(t, err != nil && strings.Contains(err.Error(), taken) && strings.Contains(err.Error(), "node2") && strings.Contains(err.Error(), "--http-port"),
			"got %v, want %s, node2 and --http-port in it", err, taken)
		expect.That(t, !strings.Contains(err.Error(), "node1"), "%v blames node1, whose ports are free", err)
	}
}

func TestDevRefusesTheDataOfAClusterOfAnotherSize(t *testing.T) {
	data := t.TempDir()
	for i := range 3 {
		need.OK(t, os.Mkdir(filepath.Join(data, "node"+strconv.Itoa(i+1)), 0o700))
	}
	for _, tc := range []struct {
		nodes int
		data  string
		ok    bool
	}{{3, data, true}, {5, data, false}, {5, t.TempDir(), true}, {5, filepath.Join(data, "missing"), true}} {
		err := (devOptions{nodes: tc.nodes, dcs: 1, data: tc.data}).checkData()
		expect.That(t, (err == nil) == tc.ok, "%d nodes on %s: %v, want allowed: %v", tc.nodes, tc.data, err, tc.ok)
	}
}

// shells are nodes whose processes are shell scripts.
func shells(t *testing.T, scripts ...string) []*localcluster.Node {
	t.Helper()
	var nodes []*localcluster.Node
	for i, script := range scripts {
		n := &localcluster.Node{Name: "node" + strconv.Itoa(i+1), Datacenter: "dc1", HTTP: "127.0.0.1:0"}
		n.PutBelow(t.TempDir())
		need.OK(t, n.Start("/bin/sh", "-c", script))
		t.Cleanup(n.Kill)
		nodes = append(nodes, n)
	}
	return nodes
}

// untilStopped is the script of a process that behaves as a server does.
const untilStopped = "cat >/dev/null"

func TestDevReportsANodeThatDiesAndGoesOn(t *testing.T) {
	r, w := io.Pipe()
	nodes := shells(t, "echo first; echo last words; exit 7", untilStopped)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- supervise(ctx, nodes, w) }()

	said := bufio.NewReader(r)
	var lines string
	for !strings.Contains(lines, "last words") {
		line := need.Got(said.ReadString('\n'))(t)
		lines += line
	}
	expect.That(t, strings.Contains(lines, "node=1 dc=dc1 http=127.0.0.1:0 pid=") && strings.Contains(lines, "exit status 7"),
		"it says %q, want node and exit", lines)
	cancel()
	err := <-ended
	expect.That(t, err == nil, "supervise: %v, want nil at the end", err)
}

func TestDevEndsWhenNoNodeIsLeft(t *testing.T) {
	expect.That(t, supervise(t.Context(), shells(t, "exit 1", "exit 1"), io.Discard) != nil, "no error")
}

func TestDevFailsWhenANodeDiesBeforeTheClusterIsReady(t *testing.T) {
	err := localcluster.AwaitReady(t.Context(), shells(t, untilStopped, "echo no such disk; exit 1"))
	expect.That(t, err != nil && strings.Contains(err.Error(), "node2") && strings.Contains(err.Error(), "no such disk"),
		"got %v, want the node and its last words", err)
}
