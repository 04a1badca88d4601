package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/compare"
	"github.com/seed-20419f34/rollcall/cmd/bench/load"
	"github.com/seed-20419f34/rollcall/cmd/bench/wire"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// launchedEureka is a cluster of the Eureka server that make clients or make eureka-server has built, below a directory.
// Where it was not built the test is skipped, or fails under ROLLCALL_TEST_ALL=1.
func launchedEureka(t *testing.T, dir string) *eurekaCluster {
	t.Helper()
	jar, missing := findEureka(filepath.Join("..", "..", eurekaJar))
	need.Present(t, missing == "", "%s", missing)
	c := need.Got(launchEureka(jar, dir)(t.Context(), compare.Spec{Datacenters: 1}))(t)
	return c.(*eurekaCluster)
}

// TestEurekaClusterIsThreeStockServers has one cluster for everything, because its start takes more than a minute.
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
	conn := need.Got(wire.Dial(n.HTTP, time.Now().Add(time.Minute)))(t)
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

func TestEurekaClusterHasOneDatacenter(t *testing.T) {
	dir := t.TempDir()
	_, err := launchEureka("none.jar", dir)(t.Context(), compare.Spec{Datacenters: 2})
	expect.That(t, err != nil && strings.Contains(err.Error(), "one datacenter, not 2"), "got %v", err)
	nothingIn(t, dir)
}

// TestEurekaClusterThatCannotStartSaysWhy has a program in Java's place.
func TestEurekaClusterThatCannotStartSaysWhy(t *testing.T) {
	bin, dir := t.TempDir(), t.TempDir()
	need.OK(t, os.WriteFile(filepath.Join(bin, "java"), []byte("#!/bin/sh\necho no such version >&2\nexit 1\n"), 0o700))
	t.Setenv("PATH", bin)
	_, err := launchEureka("some.jar", dir)(t.Context(), compare.Spec{Datacenters: 1})
	expect.That(t, err != nil && strings.Contains(err.Error(), "no such version"), "got %v, want the program's last words", err)
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
