package integration

import (
	"os"
	"path/filepath"
	"testing"
)

// installed skips the test where a file that `make clients` makes is missing, with a word how to get it.
func installed(t *testing.T, file, advice string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join("clients", file)); err != nil {
		lacks(t, "clients/%s is missing: %s", file, advice)
	}
}

// lacks skips the test, because the machine lacks what it needs; under ROLLCALL_TEST_ALL=1 it fails instead.
func lacks(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("ROLLCALL_TEST_ALL") == "1" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// TestEurekaJSClientLifeCycle drives npm's eureka-js-client.
func TestEurekaJSClientLifeCycle(t *testing.T) {
	installed(t, "node/node_modules/.stamp", "run make clients")
	t.Parallel()
	testLifeCycle(t, func(t *testing.T) stockClient { return startDriver(t, "node", "node", "driver.js") })
}

// TestEurekaJSClientFollowsDeltas: with shouldUseDelta it never fetches the whole registry again, so
// every change must reach it by delta. It ignores ADDED for an instance that it knows, of any
// server, and so never sees the end of an override: that step is left out.
func TestEurekaJSClientFollowsDeltas(t *testing.T) {
	installed(t, "node/node_modules/.stamp", "run make clients")
	t.Parallel()
	eachMode(t, func(t *testing.T, ap bool) {
		c := StartCluster(t, steadfast(fewer(ap, 2)))
		client := startDriver(t, "node", "node", "driver.js")
		client.delta = true
		life := newLifeCycle(c, c.Nodes[1], "delta", client)
		life.starts(t)
		life.discovers(t)
		life.isOverridden(t)
		life.stops(t)
	})
}

// TestPyEurekaClientLifeCycle drives PyPI's py_eureka_client, which reads XML and follows deltas.
func TestPyEurekaClientLifeCycle(t *testing.T) {
	installed(t, "python/.venv/.stamp", "apt-get install -y python3-venv, then make clients")
	t.Parallel()
	testLifeCycle(t, func(t *testing.T) stockClient {
		d := startDriver(t, "python", ".venv/bin/python", "driver.py")
		d.overrides = true
		return d
	})
}

// TestNetflixJavaClientLifeCycle drives the original client, com.netflix.eureka:eureka-client, which
// follows deltas and compares their hash.
func TestNetflixJavaClientLifeCycle(t *testing.T) { testJavaClient(t, "netflix") }

// TestSpringCloudClientLifeCycle drives a Spring Boot application with Spring Cloud's own transport,
// RestClient, which reads strictly and registers in a spelling of its own.
func TestSpringCloudClientLifeCycle(t *testing.T) { testJavaClient(t, "spring") }

func testJavaClient(t *testing.T, module string) {
	installed(t, "java/target/.stamp", "apt-get install -y default-jdk-headless maven, then make clients")
	t.Parallel()
	testLifeCycle(t, func(t *testing.T) stockClient {
		d := startDriver(t, "java", "java", "-Xmx192m", "-jar", module+"/target/driver.jar")
		d.overrides = true
		return d
	})
}
