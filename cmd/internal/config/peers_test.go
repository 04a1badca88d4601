package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/replication/link"
)

func TestValidateNamesThePeer(t *testing.T) {
	tokenFile := filepath.Join(t.TempDir(), "token")
	need.OK(t, os.WriteFile(tokenFile, []byte("t"), 0o600))
	for _, tc := range []struct {
		name   string
		change func(*Config)
		want   string // "": valid
	}{
		{name: "everything", change: func(c *Config) {
			c.Replication.Datacenters = map[string]string{"dc2": "http://10.0.0.1:8761 https://10.0.0.2:8761/"}
			c.Replication.Eureka = map[string]string{"old": "http://user:pw@10.0.0.9:8761/eureka"}
			c.Store.Settings.OnCut = "dc2=keep-for:1h,old=expire"
			c.Replication.Rates = map[string]string{"dc2": "5000"}
			c.Replication.Timeouts = map[string]string{"old": "200ms"}
			c.Replication.Single = []string{"old"}
		}},
		{name: "nodes in mode cp", change: func(c *Config) { c.Replication.Nodes = []string{"http://10.0.0.1:8761"} }, want: "replication.nodes: is for mode ap"},
		{name: "nodes in mode ap", change: func(c *Config) {
			c.Mode, c.HTTPD.Reads, c.Replication.Nodes = AP, "stale", []string{"http://10.0.0.1:8761"}
			c.Replication.Rates = map[string]string{"10.0.0.1:8761": "1"}
		}},
		{name: "node with a path", change: func(c *Config) {
			c.Mode, c.HTTPD.Reads, c.Replication.Nodes = AP, "stale", []string{"http://10.0.0.1:8761/eureka"}
		}, want: "replication.nodes: \"http://10.0.0.1:8761/eureka\" has a path"},
		{name: "own datacenter", change: func(c *Config) { c.Replication.Datacenters = map[string]string{"dc1": "http://h:1"} }, want: "replication.datacenters: dc1: is this node's own datacenter"},
		{name: "no URL", change: func(c *Config) { c.Replication.Datacenters = map[string]string{"dc2": " "} }, want: "replication.datacenters: dc2: has no URL"},
		{name: "no scheme", change: func(c *Config) { c.Replication.Datacenters = map[string]string{"dc2": "h:1"} }, want: "replication.datacenters: dc2: is not a URL"},
		{name: "bad name", change: func(c *Config) { c.Replication.Eureka = map[string]string{"a.b": "http://h:1"} }, want: "replication.eureka: a.b: is not a name"},
		{name: "one name twice", change: func(c *Config) {
			c.Replication.Datacenters = map[string]string{"dc2": "http://h:1"}
			c.Replication.Eureka = map[string]string{"dc2": "http://h:2"}
		}, want: "replication.eureka: dc2: is the name of a datacenter too"},
		{name: "policy for no peer", change: func(c *Config) { c.Store.Settings.OnCut = "dc9=keep" }, want: "replication.on-cut: dc9: there is no peer of that name"},
		{name: "unknown policy", change: func(c *Config) {
			c.Replication.Datacenters = map[string]string{"dc2": "http://h:1"}
			c.Store.Settings.OnCut = "dc2=keep-for:ever"
		}, want: "replication.on-cut: dc2: \"keep-for:ever\" is none of"},
		{name: "rate that is none", change: func(c *Config) {
			c.Replication.Datacenters = map[string]string{"dc2": "http://h:1"}
			c.Replication.Rates = map[string]string{"dc2": "fast"}
		}, want: "replication.rates: dc2: \"fast\" is not a number"},
		{name: "queue below a batch", change: func(c *Config) { c.Replication.Queue = 10 }, want: "replication.queue: 10 is below replication.batch-size, 250"},
		{name: "batch too large", change: func(c *Config) { c.Replication.BatchSize = 5000 }, want: "replication.batch-size: 5000 is above 1000"},
		{name: "no time for the copy", change: func(c *Config) { c.Replication.CopyWait = 0 }, want: "replication.copy-wait: 0s is below 1ms"},
		{name: "token for no peer", change: func(c *Config) { c.Replication.TokenFiles = map[string]string{"dc9": tokenFile} }, want: "replication.token-files: dc9: there is no peer of that name"},
		{name: "token and password", change: func(c *Config) {
			c.Replication.Eureka = map[string]string{"old": "http://user:canary@h:1"}
			c.Replication.TokenFiles = map[string]string{"old": tokenFile}
		}, want: "replication.token-files: old: there is a password in the peer's URL"},
		{name: "token of nobody", change: func(c *Config) {
			c.Replication.Datacenters = map[string]string{"dc2": "http://h:1"}
			c.Replication.TokenFiles = map[string]string{"dc2": tokenFile + "x"}
		}, want: "replication.token-files: dc2: open "},
		{name: "tokens", change: func(c *Config) {
			c.Mode, c.HTTPD.Reads, c.Replication.Nodes = AP, "stale", []string{"http://10.0.0.1:8761"}
			c.Replication.Eureka = map[string]string{"old": "http://user@h:1"}
			c.Replication.TokenFiles = map[string]string{"old": tokenFile, "dc1": tokenFile}
		}},
		{name: "half a certificate", change: func(c *Config) { c.Replication.TLS.Cert = "/dev/null" }, want: "replication.tls: cert and key belong together"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := validConfig()
			tc.change(c)
			err := c.Validate()
			expect.That(t, (err != nil) == (tc.want != "") && (err == nil || strings.Contains(err.Error(), tc.want)),
				"got %v, want %q", err, tc.want)
		})
	}
}

func TestPeersAreThoseOfTheSettingsWithoutTheNodeItself(t *testing.T) {
	c := validConfig()
	c.Mode = AP
	c.Replication.Nodes = []string{"http://10.0.0.1:8761", "http://10.0.0.2:8761/"}
	c.Replication.Datacenters = map[string]string{"dc2": "http://10.1.0.1:8761 http://10.1.0.2:8761"}
	c.Replication.Eureka = map[string]string{"old": "http://10.9.0.1:8761/eureka/"}
	c.Replication.Timeouts = map[string]string{"old": "200ms"}
	c.Replication.Single = []string{"old"}
	peers := c.Peers(nil, "10.0.0.1:8761")
	var names []string
	for _, p := range peers {
		names = append(names, p.Name+" "+strings.Join(p.URLs, " "))
	}
	want := []string{"10.0.0.2:8761 http://10.0.0.2:8761", "dc2 http://10.1.0.1:8761 http://10.1.0.2:8761", "old http://10.9.0.1:8761/eureka"}
	need.Deep(t, names, want, "got")
	dc2 := peers[1]
	expect.That(t, dc2.ReadTimeout == 5*time.Second && !dc2.Single, "dc2 is %+v", dc2)
	old := peers[2]
	expect.That(t, old.ReadTimeout == 200*time.Millisecond && old.Single && old.Kind == link.Eureka, "old is %+v", old)
}

func TestPeersHaveTheTokensOfTheirDatacenters(t *testing.T) {
	c := validConfig()
	c.Mode = AP
	c.Replication.Nodes = []string{"http://10.0.0.1:8761"}
	c.Replication.Datacenters = map[string]string{"dc2": "http://10.0.1.1:8761", "dc3": "http://10.0.2.1:8761"}
	c.Replication.TokenFiles = map[string]string{"dc1": "/nodes", "dc2": "/dc2"}
	got := map[string]string{}
	for _, p := range c.Peers(nil) {
		got[p.Name] = p.TokenFile
	}
	expect.Deep(t, got, map[string]string{"10.0.0.1:8761": "/nodes", "dc2": "/dc2", "dc3": ""}, "files by peer")
}
