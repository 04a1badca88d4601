package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

func TestDevRefusesWhatItCannotOffer(t *testing.T) {
	valid := devOptions{nodes: 3, mode: "cp", dcs: 1, httpPort: 8761}
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
		{name: "no nodes", change: func(o *devOptions) { o.nodes = 0 }, want: "--nodes: "},
		{name: "ports below 1", change: func(o *devOptions) { o.httpPort = 1000 }, want: "--http-port: "},
		{name: "ports above 65535", change: func(o *devOptions) { o.httpPort = 65534 }, want: "--http-port: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := valid
			tc.change(&o)
			err := o.validate()
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// TestDevKeepsTheDataOfTheModesApart, since a node refuses a directory of the other mode.
func TestDevKeepsTheDataOfTheModesApart(t *testing.T) {
	dirs := map[string]string{}
	for _, mode := range []string{modeCP, modeAP} {
		for _, n := range (devOptions{nodes: 3, mode: mode, dcs: 2, httpPort: 8761, data: dataOfMode(mode)}).plan() {
			if of, taken := dirs[n.dir]; taken {
				t.Errorf("%s is a node's directory in mode %s and in mode %s", n.dir, of, mode)
			}
			dirs[n.dir] = mode
		}
	}
}

func TestDevLaysOutPortsAndDirectories(t *testing.T) {
	got := devOptions{nodes: 2, mode: modeCP, dcs: 2, httpPort: 8761, data: "data"}.plan()
	want := []devNode{
		{dc: 1, number: 1, http: "127.0.0.1:8761", cluster: "127.0.0.1:7761", dir: "data/node1"},
		{dc: 1, number: 2, http: "127.0.0.1:8762", cluster: "127.0.0.1:7762", dir: "data/node2"},
		{dc: 2, number: 1, http: "127.0.0.1:8861", cluster: "127.0.0.1:7861", dir: "data/dc2/node1"},
		{dc: 2, number: 2, http: "127.0.0.1:8862", cluster: "127.0.0.1:7862", dir: "data/dc2/node2"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if line := got[3].line(42); line != "node=2 dc=dc2 http=127.0.0.1:8862 pid=42" {
		t.Errorf("prints %q", line)
	}
}

func TestDevStartsServersThatTheSettingsAllow(t *testing.T) {
	o := devOptions{nodes: 3, mode: modeCP, dcs: 3, httpPort: 8761, data: "data"}
	nodes := o.plan()
	s, err := loadWith(t, o.serverArgs(nodes[1], nodes)[1:], nil, "")
	if err != nil {
		t.Fatal(err)
	}
	if s.Node.Name != "node2" || s.HTTP.Addr != nodes[1].http || s.Cluster.Addr != nodes[1].cluster || s.Cluster.BootstrapExpect != 3 ||
		len(s.Cluster.Join) != 3 || s.Data.Dir != "data/node2/data" || s.Datacenter != "dc1" || len(s.Replication.Datacenters) != 2 ||
		s.Replication.Datacenters["dc3"] != "http://127.0.0.1:8961 http://127.0.0.1:8962 http://127.0.0.1:8963" {
		t.Errorf("got %+v", s.Config)
	}
	o.mode = modeAP
	if s, err = loadWith(t, o.serverArgs(nodes[8], nodes)[1:], nil, ""); err != nil {
		t.Fatal(err)
	}
	if s.Datacenter != "dc3" || len(s.Replication.Nodes) != 3 || s.Replication.Nodes[2] != "http://127.0.0.1:8963" || len(s.Cluster.Join) != 0 {
		t.Errorf("got %+v", s.Config)
	}
}

func TestDevSaysWhichPortIsInUseAndByWhichFlagToChangeIt(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().String()
	for _, n := range []devNode{{number: 2, http: taken, cluster: "127.0.0.1:0"}, {number: 2, http: "127.0.0.1:0", cluster: taken}} {
		err := checkPorts([]devNode{{number: 1, http: "127.0.0.1:0", cluster: "127.0.0.1:0"}, n})
		if err == nil || !strings.Contains(err.Error(), taken) || !strings.Contains(err.Error(), "node2") || !strings.Contains(err.Error(), "--http-port") {
			t.Errorf("got %v, want %s, node2 and --http-port in it", err, taken)
		}
		if strings.Contains(err.Error(), "node1") {
			t.Errorf("%v blames node1, whose ports are free", err)
		}
	}
}

func TestDevRefusesTheDataOfAClusterOfAnotherSize(t *testing.T) {
	data := t.TempDir()
	for i := range 3 {
		if err := os.Mkdir(filepath.Join(data, "node"+strconv.Itoa(i+1)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		nodes int
		data  string
		ok    bool
	}{{3, data, true}, {5, data, false}, {5, t.TempDir(), true}, {5, filepath.Join(data, "missing"), true}} {
		if err := (devOptions{nodes: tc.nodes, dcs: 1, data: tc.data}).checkData(); (err == nil) != tc.ok {
			t.Errorf("%d nodes on %s: %v, want allowed: %v", tc.nodes, tc.data, err, tc.ok)
		}
	}
}

// shell starts a node whose process is a shell script.
func shell(t *testing.T, d *devCluster, number int, script string) *devChild {
	t.Helper()
	n := devNode{dc: 1, number: number, http: "127.0.0.1:0", dir: filepath.Join(t.TempDir(), "node")}
	c, err := n.start("/bin/sh", []string{"-c", script})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.stop)
	d.watch(c)
	return c
}

// untilStopped is the script of a process that behaves as a server does.
const untilStopped = "cat >/dev/null"

func newDevCluster(out io.Writer) *devCluster {
	return &devCluster{out: out, deaths: make(chan *devChild, 2)}
}

func TestDevStopsItsNodesByEndingTheirInput(t *testing.T) {
	d := newDevCluster(io.Discard)
	a, b := shell(t, d, 1, untilStopped), shell(t, d, 2, untilStopped)
	d.stop()
	for _, c := range []*devChild{a, b} {
		if c.err != nil {
			t.Errorf("%s ended with %v, want it to end by itself", c.name(), c.err)
		}
	}
}

func TestDevReportsANodeThatDiesAndGoesOn(t *testing.T) {
	r, w := io.Pipe()
	d := newDevCluster(w)
	shell(t, d, 1, "echo first; echo last words; exit 7")
	shell(t, d, 2, untilStopped)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.supervise(ctx) }()

	said := bufio.NewReader(r)
	var lines string
	for !strings.Contains(lines, "last words") {
		line, err := said.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		lines += line
	}
	if !strings.Contains(lines, "node=1 dc=dc1 pid=") || !strings.Contains(lines, "exit status 7") {
		t.Errorf("it says %q, want node and exit", lines)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("supervise: %v, want nil at the end", err)
	}
}

func TestDevEndsWhenNoNodeIsLeft(t *testing.T) {
	d := newDevCluster(io.Discard)
	shell(t, d, 1, "exit 1")
	shell(t, d, 2, "exit 1")
	if err := d.supervise(t.Context()); err == nil {
		t.Error("no error")
	}
}

func TestANodeThatDiesBeforeTheClusterIsReadyFailsTheStart(t *testing.T) {
	d := newDevCluster(io.Discard)
	shell(t, d, 1, untilStopped)
	shell(t, d, 2, "echo no such disk; exit 1")
	err := d.awaitReady(t.Context())
	if err == nil || !strings.Contains(err.Error(), "node=2") || !strings.Contains(err.Error(), "no such disk") {
		t.Errorf("got %v, want the node and its last words", err)
	}
}

func TestLastLinesOfALongLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte(strings.Repeat("x\n", 10_000)+"a\nb\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, want := lastLines(path, 3), "  x\n  a\n  b"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
