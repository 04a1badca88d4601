package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// TestRollingRestartsBehindABalancerFailNoCall restarts node after node of a cluster behind haproxy, which asks each second
// whether a node is ready and tries no call again. ROLLCALL_RESTARTS is how many restarts there are.
func TestRollingRestartsBehindABalancerFailNoCall(t *testing.T) {
	haproxy := debianProgram(t, "haproxy")
	t.Parallel()
	restarts := 3
	if text := os.Getenv("ROLLCALL_RESTARTS"); text != "" {
		restarts = need.Got(strconv.Atoi(text))(t)
	}
	eachMode(t, func(t *testing.T, ap bool) {
		cfg := withSteadyLeader(Config{AP: ap}) // of which no busy machine makes another one meanwhile
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
				n = c.Leader() // the restart that costs most
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

// callBalancer registers an instance, lists all and, with consensus, renews it: without, another node may not know it yet.
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

// debianProgram is the path of a program of the Debian package of its name; the test skips without it.
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
