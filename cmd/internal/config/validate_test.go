package config

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func validConfig() *Config {
	c := Default()
	c.Store.DataDir = "d"
	return c
}

func TestValidateNamesTheKey(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Config)
		want   string // "": valid
	}{
		{name: "defaults", change: func(*Config) {}},
		{name: "mode ap", change: func(c *Config) { c.Mode, c.HTTPD.Reads = "ap", "stale" }},
		{name: "mode ap with linearizable reads", change: func(c *Config) { c.Mode = "ap" }, want: "reads.eureka: \"linearizable\" is not offered in mode ap"},
		{name: "another mode", change: func(c *Config) { c.Mode = "ca" }, want: "mode: \"ca\" is none of"},
		{name: "another sync", change: func(c *Config) { c.Store.Sync = "often" }, want: "data.sync: \"often\" is none of"},
		{name: "disk that was always fast", change: func(c *Config) { c.Store.Test.SyncDelay = -1 }, want: "test.sync-delay: -1ns is below 0s"},
		{name: "disk as slow as it may be", change: func(c *Config) { c.Store.Test.SyncDelay = 10 * time.Second }},
		{name: "disk that is slower", change: func(c *Config) { c.Store.Test.SyncDelay = 10*time.Second + 1 }, want: "test.sync-delay: 10.000000001s is above 10s"},
		{name: "datacenter with a space", change: func(c *Config) { c.Datacenter = "my dc" }, want: "datacenter: \"my dc\" is not a name"},
		{name: "no data directory", change: func(c *Config) { c.Store.DataDir = "" }, want: "data.dir: is required"},
		{name: "name with a dot", change: func(c *Config) { c.NodeName = "a.b" }, want: "node.name: "},
		{name: "address without a port", change: func(c *Config) { c.HTTP.Addr = "localhost" }, want: "http.addr: \"localhost\" is not an address"},
		{name: "port out of range", change: func(c *Config) { c.Store.ClusterAddr = "127.0.0.1:70000" }, want: "cluster.addr: "},
		{name: "port by name", change: func(c *Config) { c.HTTP.Addr = "127.0.0.1:http" }, want: "http.addr: "},
		{name: "all interfaces, not advertised", change: func(c *Config) { c.HTTP.Addr, c.HTTP.Plain, c.Auth.Mode = ":8761", true, "off" }, want: "http.advertise: is required"},
		{name: "all interfaces, advertised", change: func(c *Config) {
			c.Store.ClusterAddr, c.Store.ClusterAdvertise, c.ClusterPlain = "0.0.0.0:7761", "10.0.0.1:7761", true
		}},
		{name: "advertised for all interfaces", change: func(c *Config) { c.Store.ClusterAdvertise = "[::]:7761" }, want: "cluster.advertise: "},
		{name: "joining without a host", change: func(c *Config) { c.Store.Join = []string{":7761"} }, want: "cluster.join: "},
		{name: "dialling without a port", change: func(c *Config) { c.Store.Test.Dial = map[string]string{"n2": "x"} }, want: "test.dial: n2: "},
		{name: "waiting for strangers", change: func(c *Config) { c.Store.BootstrapExpect = 3 }, want: "cluster.join: is required"},
		{name: "waiting for none", change: func(c *Config) { c.Store.BootstrapExpect = 0 }, want: "cluster.bootstrap-expect: 0 is below 1"},
		{name: "nothing in flight", change: func(c *Config) { c.Store.InFlight = 0 }, want: "commit.in-flight: 0 is below 1"},
		{name: "too much in flight", change: func(c *Config) { c.Store.InFlight = 33 }, want: "commit.in-flight: 33 is above 32"},
		{name: "no election", change: func(c *Config) { c.Store.ElectionTimeout = 0 }, want: "raft.election-timeout: 0s is below 5ms"},
		{name: "lease longer than heartbeat", change: func(c *Config) { c.Store.LeaseTimeout = 2 * time.Second }, want: "raft.lease-timeout: 2s is longer"},
		{name: "election shorter than heartbeat", change: func(c *Config) { c.Store.ElectionTimeout = 600 * time.Millisecond }, want: "raft.election-timeout: 600ms is shorter"},
		{name: "eviction without a pause", change: func(c *Config) { c.Store.EvictionInterval = 0 }, want: "eviction.interval: "},
		{name: "critical services for ever", change: func(c *Config) { c.HTTPD.ReapCritical = 0 }},
		{name: "critical services for a moment", change: func(c *Config) { c.HTTPD.ReapCritical = time.Second }, want: "checks.deregister-critical-after: 1s is below 1m; 0 means never"},
		{name: "withheld for ever", change: func(c *Config) { c.Store.Settings.Bound = 0 }},
		{name: "withheld for no time", change: func(c *Config) { c.Store.Settings.Bound = 1 }, want: "self-preservation.max-duration: 1ms is below 1s; 0 means for ever"},
		{name: "threshold updated all the time", change: func(c *Config) { c.Store.Settings.ExpectationUpdate = 0 }, want: "eureka-compat.renewal-threshold-update-interval: 0s is below 1s"},
		{name: "no watchers", change: func(c *Config) { c.HTTPD.Limits.Watchers = 0 }, want: "limits.watchers: "},
		{name: "more leases than any registry holds", change: func(c *Config) { c.Store.Settings.Population = 1_000_001 }, want: "self-preservation.min-instances: 1000001 is above 1000000"},
		{name: "unknown reads", change: func(c *Config) { c.HTTPD.Reads = "fresh" }, want: "reads.eureka: \"fresh\" is none of"},
		{name: "no instances", change: func(c *Config) { c.HTTPD.Limits.InstancesTotal = 0 }, want: "limits.instances-total: "},
		{name: "unknown level", change: func(c *Config) { c.LogLevel = "loud" }, want: "log.level: "},
		{name: "unknown format", change: func(c *Config) { c.LogFormat = "xml" }, want: "log.format: "},
		{name: "negative percentage", change: func(c *Config) { c.GCPercent = -1 }, want: "gc.percent: "},
		{name: "certificate without key", change: func(c *Config) { c.HTTP.TLS.Cert = os.Args[0] }, want: "http.tls: cert and key belong together"},
		{name: "client authority without certificate", change: func(c *Config) { c.HTTP.TLS.ClientCA = os.Args[0] }, want: "http.tls.client-ca: needs"},
		{name: "two of three", change: func(c *Config) { c.Store.TLS.Cert, c.Store.TLS.CA = os.Args[0], os.Args[0] }, want: "cluster.tls: cert, key and ca belong together"},
		{name: "missing file", change: func(c *Config) {
			c.HTTP.TLS.ClientCA, c.HTTP.TLS.Cert, c.HTTP.TLS.Key = "missing.pem", os.Args[0], os.Args[0]
		}, want: "http.tls.client-ca: open missing.pem"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := validConfig()
			tc.change(c)
			err := c.Validate()
			expect.That(t, tc.want != "" || err == nil, "got %v, want it valid", err)
			expect.That(t, tc.want == "" || err != nil && strings.Contains(err.Error(), tc.want), "got %v, want %q in it", err, tc.want)
		})
	}
}

func TestValidateReportsEveryMistakeAtOnce(t *testing.T) {
	c := validConfig()
	c.Mode, c.Store.DataDir, c.HTTP.Addr, c.LogLevel, c.Store.Test.CommitTimeout = "ca", "", "x", "loud", 0
	err := c.Validate()
	need.That(t, err != nil, "no error")
	for _, key := range []string{"mode:", "data.dir:", "http.addr:", "log.level:", "test.commit-timeout:"} {
		expect.That(t, strings.Contains(err.Error(), key), "%s is missing in\n%v", key, err)
	}
	got := len(strings.Split(err.Error(), "\n"))
	expect.That(t, got == 5, "%d lines, want one for each of 5 mistakes:\n%v", got, err)
}
