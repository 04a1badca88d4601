package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/localcluster"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestDevRefusesWhatItCannotOffer(t *testing.T) {
	valid := devOptions{nodes: 3, mode: "cp", dcs: 1, httpPort: 8761, listen: "127.0.0.1"}
	for _, tc := range []struct {
		name   string
		change func(*devOptions)
		want   string // "" if valid
	}{
		{name: "defaults", change: func(*devOptions) {}},
		{name: "mode ap", change: func(o *devOptions) { o.mode = "ap" }},
		{name: "another mode", change: func(o *devOptions) { o.mode = "ca" }, want: `--mode: "ca" is not one of ["cp" "ap"]`},
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

// shells returns nodes whose processes are shell scripts.
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

// output is what a process prints.
type output struct {
	mu     sync.Mutex // guards the fields below
	buffer bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buffer.Write(p)
}

func (o *output) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buffer.String()
}

// eventually waits for at most a minute until something holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(50 * time.Millisecond) {
		need.That(t, time.Now().Before(deadline), "%s: not within a minute", what)
	}
}

func get(url string) string {
	resp, err := http.Get(url)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return string(b)
}

// startDev runs dev with the tests' own program until the end of the test, and waits until it is ready.
func startDev(t *testing.T, args ...string) (said *output) {
	t.Helper()
	said = new(output)
	dev := exec.Command(os.Args[0], append([]string{"dev"}, args...)...)
	dev.Stdout, dev.Stderr = said, said
	need.OK(t, dev.Start())
	t.Cleanup(func() {
		dev.Process.Signal(syscall.SIGTERM)
		dev.Wait()
	})
	eventually(t, "dev is ready", func() bool { return strings.HasSuffix(said.text(), "\nready\n") })
	return said
}

// The demo runs meanwhile, and goes on.
func TestDevNodeThatWasKilledComesBackByTheCommandThatDevPrints(t *testing.T) {
	for _, mode := range config.Modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			port := need.Got(localcluster.ClaimPort(1, 2, -1000, -999, -998))(t)
			said := startDev(t, "--demo", "--mode", mode, "--http-port", strconv.Itoa(port), "--data", filepath.Join(t.TempDir(), "data"))
			url := func(i int) string { return "http://" + localcluster.Address(port+i) }
			up := func(i int, renewedAfter time.Time) (instances int) {
				var list []api.Instance
				_ = json.Unmarshal([]byte(get(url(i)+"/v1/rollcall/apps")), &list)
				for _, instance := range list {
					if instance.Status == "UP" && instance.LastRenewal > renewedAfter.UnixMilli() {
						instances++
					}
				}
				return instances
			}
			eventually(t, "the samples are registered", func() bool { return up(1, time.Time{}) > 25 })

			_, rest, _ := strings.Cut(said.text(), "pid=")
			pid, _, _ := strings.Cut(rest, "\n")
			need.OK(t, syscall.Kill(need.Got(strconv.Atoi(pid))(t), syscall.SIGKILL))
			const mark = "\nto start it again, in another terminal: "
			eventually(t, "dev says how the node comes back", func() bool { return strings.Contains(said.text(), mark) })
			killed := time.Now()
			eventually(t, "the samples are renewed after a node was killed", func() bool { return up(1, killed) > 25 })

			_, command, _ := strings.Cut(said.text(), mark)
			words := strings.Fields(command)
			again := exec.Command(words[0], words[1:4]...)
			need.OK(t, again.Start())
			t.Cleanup(func() {
				again.Process.Signal(syscall.SIGTERM)
				again.Wait()
			})
			eventually(t, "the node is back, with what the others have", func() bool { return get(url(0)+"/readyz") == "ready\n" && up(0, killed) > 25 })
		})
	}
}

func TestDemoHasSomethingToShow(t *testing.T) {
	for _, mode := range config.Modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			ports := need.Got(localcluster.ClaimPorts(2))(t)
			n := &localcluster.Node{Name: "n1", Datacenter: "dc1", Mode: mode, HTTP: localcluster.Address(ports[0]), Cluster: localcluster.Address(ports[1])}
			n.PutBelow(t.TempDir())
			need.OK(t, n.Start(os.Args[0]))
			t.Cleanup(n.Stop)
			need.OK(t, localcluster.AwaitReady(t.Context(), []*localcluster.Node{n}))
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- runDemo(ctx, []*localcluster.Node{n}, 2500*time.Millisecond) }()

			seen := map[string]bool{}
			cl := need.Got(client.New(client.Config{Servers: []string{n.URL()}}))(t)
			watched, enough := context.WithTimeout(ctx, time.Minute)
			want := []string{"DOWN", "DELETED canceled", "DELETED evicted"}
			need.OK(t, cl.Watch(watched, client.WatchConfig{}, func(event client.WatchEvent) error {
				if e, ok := event.(client.WatchChange); ok {
					seen[e.Action+" "+e.Why], seen[e.Status] = true, true
				}
				for _, w := range want {
					if !seen[w] {
						return nil
					}
				}
				enough()
				return nil
			}))
			expect.That(t, seen[want[0]] && seen[want[1]] && seen[want[2]], "seen are %v, want %v", seen, want)
			// One application has a single instance, which is not listed while it is in trouble.
			eventually(t, "a dozen applications are listed", func() bool { return len(need.Got(cl.Apps(ctx))(t)) >= 12 })
			if mode == config.CP {
				for _, path := range []string{"/v1/rollcall/locks", "/v1/session/list", "/v1/kv/?keys", "/v1/health/state/any"} {
					eventually(t, path+" has something", func() bool {
						var list []any
						return json.Unmarshal([]byte(get(n.URL()+path)), &list) == nil && len(list) > 1
					})
				}
			}
			cancel()
			expect.OKf(t, <-ended, "the demo")
		})
	}
}
