package integration

import (
	"os"
	"path/filepath"
	"testing"
)

// need skips the test where a file that `make clients` makes is missing, with a word how to get it;
// under ROLLCALL_TEST_ALL=1 it fails instead.
func need(t *testing.T, file, advice string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join("clients", file)); err == nil {
		return
	}
	if os.Getenv("ROLLCALL_TEST_ALL") == "1" {
		t.Fatalf("clients/%s is missing: %s", file, advice)
	}
	t.Skipf("clients/%s is missing: %s", file, advice)
}

// TestEurekaJSClientLifeCycle drives npm's eureka-js-client, with delta fetches.
func TestEurekaJSClientLifeCycle(t *testing.T) {
	need(t, "node/node_modules/.stamp", "run make clients")
	t.Parallel()
	testLifeCycle(t, func(t *testing.T) stockClient {
		return startDriver(t, "node", false, "node", "driver.js")
	})
}

// TestPyEurekaClientLifeCycle drives PyPI's py_eureka_client.
func TestPyEurekaClientLifeCycle(t *testing.T) {
	need(t, "python/.venv/.stamp", "apt-get install -y python3-venv, then make clients")
	t.Parallel()
	testLifeCycle(t, func(t *testing.T) stockClient {
		return startDriver(t, "python", true, ".venv/bin/python", "driver.py")
	})
}

// TestNetflixJavaClientLifeCycle drives the original client, com.netflix.eureka:eureka-client.
func TestNetflixJavaClientLifeCycle(t *testing.T) {
	need(t, "java/target/.stamp", "apt-get install -y default-jdk-headless maven, then make clients")
	t.Parallel()
	testLifeCycle(t, func(t *testing.T) stockClient {
		return startDriver(t, "java", true, "java", "-Xmx128m", "-jar", "target/driver.jar")
	})
}
