package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/bench/compare"
	"github.com/seed-20419f34/rollcall/cmd/bench/load"
	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/localcluster"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// launching makes parallel tests find free ports one after the other.
var launching sync.Mutex

// The columns of the modes.
var (
	cpColumn = scenario.Column{Name: "cp", System: scenario.Rollcall, Mode: scenario.CP}
	apColumn = scenario.Column{Name: "ap", System: scenario.Rollcall, Mode: scenario.AP}
)

// launched returns a cluster below a directory of its own, closed at the end of the test.
func launched(t *testing.T, s compare.Spec) *comparedCluster {
	t.Helper()
	return launchedIn(t, t.TempDir(), s)
}

func launchedIn(t *testing.T, dir string, s compare.Spec) *comparedCluster {
	t.Helper()
	launching.Lock()
	defer launching.Unlock()
	c := need.Got(startCompared(t.Context(), testServer.path, dir, s))(t)
	t.Cleanup(func() {
		expect.OK(t, c.Close())
	})
	return c
}

// within polls until a condition holds: for seconds, although milliseconds or tens of them are expected.
func within(t *testing.T, what string, reached func() bool) {
	t.Helper()
	deadline := time.After(60 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !reached() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("in vain: %s", what)
		}
	}
}

// register registers an instance, and returns how long the node took to confirm it: while a leader is being elected
// there are other responses.
func register(t *testing.T, n compare.Node, id string) (took time.Duration) {
	t.Helper()
	body := fmt.Sprintf(`{"instance":{"instanceId":%q,"app":"A","hostName":"h","ipAddr":"10.0.0.1","status":"UP","dataCenterInfo":{"name":"MyOwn"},`+
		`"leaseInfo":{"renewalIntervalInSecs":30,"durationInSecs":3600}}}`, id)
	within(t, n.Name+" registers an instance", func() bool {
		began := time.Now()
		resp := need.Got(http.Post("http://"+n.HTTP+"/eureka/apps/A", "application/json", strings.NewReader(body)))(t)
		resp.Body.Close()
		took = time.Since(began)
		return resp.StatusCode == http.StatusNoContent
	})
	return took
}

// has reports whether a node itself knows an instance.
func has(n compare.Node, id string) bool {
	return status("http://"+n.HTTP+"/eureka/apps/A/"+id+"?consistency=stale") == http.StatusOK
}

// leaderFirst returns the nodes' numbers, the leader's first, if the mode has one.
func leaderFirst(t *testing.T, mode scenario.Mode, nodes []compare.Node) []int {
	t.Helper()
	order := []int{0, 1, 2}
	if mode == scenario.AP {
		return order
	}
	cl := need.Got(client.New(client.Config{Servers: []string{"http://" + nodes[0].HTTP}}))(t)
	first := -1
	within(t, "a node knows the leader and its address", func() bool {
		s, err := cl.Status(t.Context())
		if err != nil {
			return false
		}
		leader := slices.IndexFunc(s.Nodes, func(n client.NodeStatus) bool { return n.ID == s.Leader })
		first = slices.IndexFunc(nodes, func(n compare.Node) bool { return leader >= 0 && n.HTTP == s.Nodes[leader].HTTP })
		return first >= 0
	})
	order[0], order[first] = first, 0
	return order
}

func TestComparedClusterKeepsCutNodesApartUntilTheCutIsHealed(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		spec compare.Spec
		far  []int // indexes into leaderFirst's result and, from 3 on, numbers
		both bool  // both sides keep working
	}{
		{spec: compare.Spec{Column: cpColumn, Datacenters: 1}, far: []int{2}},
		{spec: compare.Spec{Column: apColumn, Datacenters: 2}, far: []int{3, 4, 5}, both: true},
	} {
		t.Run(fmt.Sprintf("%s in %d datacenters", tc.spec.Column.Mode, tc.spec.Datacenters), func(t *testing.T) {
			t.Parallel()
			c := launched(t, tc.spec)
			nodes := c.Nodes()
			order := append(leaderFirst(t, tc.spec.Column.Mode, nodes), 3, 4, 5)[:len(nodes)]
			home, near, far := order[0], order[1], order[tc.far[0]]
			register(t, nodes[home], "before")
			within(t, "every node has what was registered before the cut", func() bool {
				return !slices.ContainsFunc(nodes, func(n compare.Node) bool { return !has(n, "before") })
			})
			for i, a := range order {
				for _, b := range tc.far {
					if !slices.Contains(tc.far, i) {
						c.Cut(a, order[b])
					}
				}
			}
			if tc.both {
				register(t, nodes[far], "there")
			}
			register(t, nodes[home], "here")
			within(t, "the nodes of the same side hear of each other", func() bool { return has(nodes[near], "here") })
			expect.That(t, !has(nodes[far], "here") && !has(nodes[home], "there"), "a side has heard of what was registered at the other one")
			c.Heal()
			within(t, "each side hears of the other one after the cut", func() bool {
				return has(nodes[far], "here") && (!tc.both || has(nodes[home], "there"))
			})
		})
	}
}

func TestComparedNodeThatEndedComesBackWithWhatItMissed(t *testing.T) {
	t.Parallel()
	for _, mode := range []scenario.Mode{scenario.CP, scenario.AP} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			c := launched(t, compare.Spec{Column: scenario.Column{Name: string(mode), System: scenario.Rollcall, Mode: mode}, Datacenters: 1})
			nodes := c.Nodes()
			for name, end := range map[string]func(node int) error{
				"killed":  c.Kill,
				"stopped": func(node int) error { return c.Stop(t.Context(), node) },
			} {
				order := leaderFirst(t, mode, nodes)
				home, node := nodes[order[0]], order[2]
				need.OK(t, end(node))
				expect.Equal(t, status("http://"+nodes[node].HTTP+"/healthz"), 0, "%s: it answers", name)
				err := end(node)
				expect.That(t, err != nil && strings.Contains(err.Error(), "ended: "), "%s twice: got %v, want that it has ended", name, err)
				register(t, home, name)
				need.OK(t, c.Start(t.Context(), node))
				got := status("http://" + nodes[node].HTTP + "/readyz")
				expect.That(t, got == http.StatusOK, "%s and started: it answers %d, want that it is ready", name, got)
				within(t, "the node has what it missed", func() bool { return has(nodes[node], name) })
				err = c.Start(t.Context(), node)
				expect.That(t, err != nil && strings.Contains(err.Error(), "it runs"), "started twice: got %v, want that it runs", err)
			}
		})
	}
}

func TestComparedNodeThatIsPausedIsSilentUntilItGoesOn(t *testing.T) {
	t.Parallel()
	c := launched(t, compare.Spec{Column: apColumn, Datacenters: 1})
	n := c.Nodes()[1]
	need.OK(t, c.Pause(1))
	silent := http.Client{Timeout: 100 * time.Millisecond}
	if resp, err := silent.Get("http://" + n.HTTP + "/healthz"); err == nil {
		resp.Body.Close()
		t.Errorf("a paused node answers %s", resp.Status)
	} else if !os.IsTimeout(err) {
		t.Errorf("a paused node: %v, want silence", err)
	}
	need.OK(t, c.Resume(1))
	expect.Equal(t, status("http://"+n.HTTP+"/healthz"), http.StatusOK, "afterwards it answers")
}

func TestComparedNodeWithASlowDiskIsSlowUntilTheDiskIsFast(t *testing.T) {
	t.Parallel()
	const delay = 300 * time.Millisecond
	for _, spec := range []compare.Spec{
		{Column: cpColumn, Datacenters: 1},
		{Column: apColumn, Datacenters: 1, Settings: map[string]string{"data.sync": "always"}},
	} {
		t.Run(string(spec.Column.Mode), func(t *testing.T) {
			t.Parallel()
			c := launched(t, spec)
			nodes := c.Nodes()
			order := leaderFirst(t, spec.Column.Mode, nodes)
			home := nodes[order[0]]
			for node := range nodes {
				need.OK(t, c.SlowDisk(node, delay))
			}
			within(t, "a registration waits for the slow disk", func() bool { return register(t, home, "x") >= delay })
			for _, node := range order[1:] { // the leader of mode cp needs one of them
				need.OK(t, errors.Join(c.Kill(node), c.Start(t.Context(), node)))
			}
			need.OK(t, c.SlowDisk(order[0], 0))
			slow := nodes[order[1]]
			took := register(t, slow, "x")
			expect.That(t, took >= delay, "where the disk is still slow after a restart it takes %v", took)
			for node := range nodes {
				need.OK(t, c.SlowDisk(node, 0))
			}
			within(t, "a registration does not wait any more", func() bool { return register(t, home, "x") < delay })
		})
	}
}

func TestComparedNodeRefusesADiskSlowerThanTheServerAllows(t *testing.T) {
	n := comparedNode{linkedNode: &linkedNode{Node: &localcluster.Node{Name: "n1"}}}
	for _, delay := range []time.Duration{-1, maxSyncDelay + 1} {
		err := n.slowDisk(delay)
		expect.That(t, err != nil && strings.Contains(err.Error(), delay.String()), "%v: got %v, want an error that names it", delay, err)
	}
}

func TestComparedClusterIsNotStartedWithASettingThatTheServerDoesNotKnow(t *testing.T) {
	dir := t.TempDir()
	expect.ErrorSays(t, expect.Err(startCompared(t.Context(), testServer.path, dir, compare.Spec{Column: apColumn, Datacenters: 1, Settings: map[string]string{"data.sink": "1"}})), "unknown key data.sink", "got")
	nothingIn(t, dir)
}

func nothingIn(t *testing.T, dir string) {
	t.Helper()
	left := need.Got(os.ReadDir(dir))(t)
	expect.That(t, len(left) == 0, "%s is left", left)
}

func TestComparedClusterLeavesNothingAfterItsClose(t *testing.T) {
	http.DefaultClient.CloseIdleConnections()
	before := goleak.IgnoreCurrent()
	dir := t.TempDir()
	c := need.Got(startCompared(t.Context(), testServer.path, dir, compare.Spec{Column: apColumn, Datacenters: 1}))(t)
	c.Cut(0, 1)
	need.OK(t, errors.Join(c.Pause(1), c.Kill(2)))
	expect.OK(t, errors.Join(c.Close(), c.Close()))
	for _, n := range c.nodes {
		err := syscall.Kill(n.Pid(), 0)
		expect.That(t, errors.Is(err, syscall.ESRCH), "the process of %s: %v, want that there is none", n.Name, err)
	}
	nothingIn(t, dir)
	expect.That(t, c.Start(t.Context(), 2) != nil, "a node of a closed cluster was started")
	http.DefaultClient.CloseIdleConnections()
	within(t, "no goroutine is left", func() bool { return goleak.Find(before) == nil })
}

func TestComparedClusterReportsANodeThatEndedByItself(t *testing.T) {
	c := need.Got(startCompared(t.Context(), testServer.path, t.TempDir(), compare.Spec{Column: apColumn, Datacenters: 1}))(t)
	node := c.nodes[1]
	need.OK(t, syscall.Kill(node.Pid(), syscall.SIGABRT))
	<-node.Done()
	err := c.Close()
	expect.That(t, err != nil && strings.Contains(err.Error(), "node2 "), "got %v, want how the node ended", err)
}

// launchedEureka is a cluster of the Eureka server built by make clients or make eureka-server, below a directory. If
// it was not built, the test is skipped, or fails under ROLLCALL_TEST_ALL=1.
func launchedEureka(t *testing.T, dir string) *eurekaCluster {
	t.Helper()
	jar, missing := findEureka(filepath.Join("..", "..", eurekaJar))
	need.Present(t, missing == "", "%s", missing)
	return need.Got(startEureka(t.Context(), jar, dir, true))(t)
}

// TestEurekaClusterIsThreeStockServers uses one cluster for everything, because its start takes more than a minute.
func TestEurekaClusterIsThreeStockServers(t *testing.T) {
	dir := t.TempDir()
	c := launchedEureka(t, dir)
	t.Cleanup(func() { expect.OK(t, c.Close()) })
	t.Run("which are each other's peers through the proxies", func(t *testing.T) { mustBePeers(t, c) })
	t.Run("which a cut keeps apart", func(t *testing.T) { mustBeKeptApart(t, c) })
	t.Run("which can be paused", func(t *testing.T) { mustPause(t, c) })
	t.Run("which copy the registry when they start again", func(t *testing.T) { mustComeBack(t, c) })
	t.Run("of which nothing is left", func(t *testing.T) { mustLeaveNothing(t, c, dir) })
}

// mustBePeers expects each node to count both others as available, at the addresses of its proxies, and to have sent
// something through them.
func mustBePeers(t *testing.T, c *eurekaCluster) {
	for i, n := range c.servers {
		var want []string
		for _, peer := range n.peers {
			want = append(want, "http://"+peer+"/eureka/")
		}
		slices.Sort(want)
		text := need.Got(getText(t.Context(), n.URL()+"/eureka/status"))(t)
		for _, which := range []string{"registered", "available"} {
			got := regexp.MustCompile("<" + which + "-replicas>([^<]*)<").FindStringSubmatch(text)
			need.That(t, got != nil, "%s: no %s replicas in %s", n.Name, which, text)
			urls := slices.DeleteFunc(strings.FieldsFunc(got[1], func(r rune) bool { return r == ',' || r == ' ' }), func(s string) bool { return s == "" })
			slices.Sort(urls)
			expect.Equal(t, strings.Join(urls, ","), strings.Join(want, ","), "%s: %s replicas", n.Name, which)
		}
		u := need.Got(c.Usage(i))(t)
		expect.That(t, u.Sent > 0 && u.CPU > 0 && u.Memory > 0 && u.Stored == 0, "%s: it has used %+v", n.Name, u)
	}
	expect.That(t, c.SlowDisk(0, time.Millisecond) != nil, "a Eureka server has a slow disk")
}

func registerByLoad(t *testing.T, n compare.Node, id string) {
	t.Helper()
	conn := need.Got(load.Dial(n.HTTP, time.Now().Add(time.Minute)))(t)
	defer conn.Close()
	status, err := conn.Exchange(load.Registration("A", id, 1, 1200, 3600))
	need.That(t, err == nil && status == http.StatusNoContent, "register %s at %s: status %d, %v", id, n.Name, status, err)
}

func mustBeKeptApart(t *testing.T, c *eurekaCluster) {
	nodes := c.Nodes()
	c.Cut(0, 1)
	c.Cut(0, 2)
	registerByLoad(t, nodes[0], "cut-off")
	registerByLoad(t, nodes[1], "rest")
	within(t, "the nodes of the same side hear of each other", func() bool { return has(nodes[2], "rest") })
	expect.That(t, !has(nodes[1], "cut-off") && !has(nodes[0], "rest"), "a side has heard of what was registered at the other one")
	c.Heal()
	within(t, "each side hears of the other one after the cut", func() bool { return has(nodes[1], "cut-off") && has(nodes[0], "rest") })
}

func mustPause(t *testing.T, c *eurekaCluster) {
	url := "http://" + c.Nodes()[1].HTTP + "/eureka/apps"
	need.OK(t, c.Pause(1))
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := getText(ctx, url)
	expect.That(t, errors.Is(err, context.DeadlineExceeded), "a paused node: %v, want silence", err)
	need.OK(t, c.Resume(1))
	expect.Equal(t, status(url), http.StatusOK, "afterwards it answers")
}

func mustComeBack(t *testing.T, c *eurekaCluster) {
	nodes := c.Nodes()
	need.OK(t, errors.Join(c.Kill(2), c.Stop(t.Context(), 1)))
	registerByLoad(t, nodes[0], "missed")
	for _, node := range []int{1, 2} {
		need.OK(t, c.Start(t.Context(), node))
		err := c.Start(t.Context(), node)
		expect.That(t, err != nil && strings.Contains(err.Error(), "it runs"), "started twice: got %v, want that it runs", err)
	}
	within(t, "the nodes have what they missed", func() bool { return has(nodes[1], "missed") && has(nodes[2], "missed") })
}

func mustLeaveNothing(t *testing.T, c *eurekaCluster, dir string) {
	need.OK(t, c.Pause(1))
	expect.OK(t, errors.Join(c.Close(), c.Close()))
	for _, n := range c.nodes {
		err := syscall.Kill(n.Pid(), 0)
		expect.That(t, errors.Is(err, syscall.ESRCH), "the process of %s: %v, want that there is none", n.Name, err)
	}
	nothingIn(t, dir)
	expect.That(t, c.Start(t.Context(), 0) != nil, "a node of a closed cluster was started")
}

// TestEurekaClusterThatCannotStartSaysWhy runs another program instead of Java.
func TestEurekaClusterThatCannotStartSaysWhy(t *testing.T) {
	bin, dir := t.TempDir(), t.TempDir()
	need.OK(t, os.WriteFile(filepath.Join(bin, "java"), []byte("#!/bin/sh\necho no such version >&2\nexit 1\n"), 0o700))
	t.Setenv("PATH", bin)
	expect.ErrorSays(t, expect.Err(startEureka(t.Context(), "some.jar", dir, true)), "no such version", "got")
	nothingIn(t, dir)
}

func TestEurekaIsFoundOrTheAdviceSaysHowToGetIt(t *testing.T) {
	dir := t.TempDir()
	java, jar := filepath.Join(dir, "java"), filepath.Join(dir, "driver.jar")
	for _, tc := range []struct {
		name, file, missing string
	}{
		{name: "no Java", missing: "no java in PATH"},
		{name: "no server", file: java, missing: "no server in " + jar},
		{name: "both", file: jar},
	} {
		t.Setenv("PATH", dir)
		if tc.file != "" {
			need.OK(t, os.WriteFile(tc.file, nil, 0o700))
		}
		path, missing := findEureka(jar)
		if tc.missing == "" {
			expect.That(t, path == jar && missing == "", "%s: got %q, %q", tc.name, path, missing)
			continue
		}
		expect.That(t, path == "" && strings.Contains(missing, tc.missing) && strings.Contains(missing, "make eureka-server"), "%s: got %q, %q", tc.name, path, missing)
	}
}

func TestSettingsOfJavaProgramsAreSettings(t *testing.T) {
	for name, want := range map[string]bool{
		"ROLLCALL_MODE": true, "ROLLCALL_PLANTED": false, "EUREKA_INSTANCE_HOSTNAME": true, "JAVA_TOOL_OPTIONS": true, "JAVA_HOME": false, "PATH": false,
	} {
		expect.Equal(t, isSetting(name), want, "%s", name)
	}
}
