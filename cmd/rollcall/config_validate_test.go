package main

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/replication/link"
)

func validConfig() *Config {
	c := defaultConfig()
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
		{name: "all interfaces, not advertised", change: func(c *Config) { c.HTTP.Addr, c.HTTP.Plain = ":8761", true }, want: "http.advertise: is required"},
		{name: "all interfaces, advertised", change: func(c *Config) {
			c.Store.ClusterAddr, c.Store.ClusterAdvertise, c.ClusterPlain = "0.0.0.0:7761", "10.0.0.1:7761", true
		}},
		{name: "advertised to nobody", change: func(c *Config) { c.Store.ClusterAdvertise = "[::]:7761" }, want: "cluster.advertise: "},
		{name: "joining nobody", change: func(c *Config) { c.Store.Join = []string{":7761"} }, want: "cluster.join: "},
		{name: "dialling nobody", change: func(c *Config) { c.Store.Test.Dial = map[string]string{"n2": "x"} }, want: "test.dial: n2: "},
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
		}, want: "http.tls.client-ca: stat missing.pem"},
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

func TestListenersStayOnLoopbackUnlessTLSOrPlain(t *testing.T) {
	const wide, local = "10.0.0.1:1", "127.0.0.1:1"
	for _, tc := range []struct {
		name   string
		change func(*Config)
		want   string // "": allowed
	}{
		{name: "loopback", change: func(c *Config) { c.HTTP.Addr, c.Store.ClusterAddr = local, "[::1]:2" }},
		{name: "localhost", change: func(c *Config) { c.HTTP.Addr = "localhost:1" }},
		{name: "HTTP without TLS", change: func(c *Config) { c.HTTP.Addr = wide }, want: "http.addr: \"10.0.0.1:1\" can be reached from other machines without TLS; set http.tls.cert and http.tls.key"},
		{name: "HTTP on all interfaces", change: func(c *Config) { c.HTTP.Addr, c.HTTP.Advertise = ":1", wide }, want: "http.addr: "},
		{name: "node-to-node without TLS", change: func(c *Config) { c.Store.ClusterAddr = wide }, want: "cluster.addr: \"10.0.0.1:1\" can be reached from other machines without TLS; set cluster.tls.cert"},
		{name: "TLS of HTTP does not cover node-to-node", change: func(c *Config) { c.HTTP.Addr, c.HTTP.TLS.Cert, c.Store.ClusterAddr = wide, "c", wide }, want: "cluster.addr: "},
		{name: "both plain", change: func(c *Config) {
			c.HTTP.Addr, c.Store.ClusterAddr, c.HTTP.Plain, c.ClusterPlain = wide, wide, true, true
		}},
		{name: "plain HTTP does not open the node-to-node port", change: func(c *Config) { c.HTTP.Addr, c.Store.ClusterAddr, c.HTTP.Plain = wide, wide, true }, want: "cluster.plain: true"},
		{name: "a plain node-to-node port does not open HTTP", change: func(c *Config) { c.HTTP.Addr, c.Store.ClusterAddr, c.ClusterPlain = wide, wide, true }, want: "http.plain: true"},
		{name: "TLS", change: func(c *Config) {
			c.HTTP.Addr, c.HTTP.TLS.Cert, c.Store.ClusterAddr, c.Store.TLS.Cert = wide, "c", wide, "c"
		}},
		{name: "profiler, even with plain HTTP", change: func(c *Config) { c.PProfAddr, c.HTTP.Plain = wide, true }, want: "pprof.addr: \"10.0.0.1:1\" is not loopback"},
		{name: "profiler on loopback", change: func(c *Config) { c.PProfAddr = local }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := validConfig()
			tc.change(c)
			err := c.validateExposure()
			expect.That(t, (err != nil) == (tc.want != "") && (err == nil || strings.Contains(err.Error(), tc.want)),
				"got %v, want %q", err, tc.want)
		})
	}
}

func TestKeyFilesThatOthersCanReadAreRefused(t *testing.T) {
	for _, tc := range []struct {
		mode os.FileMode
		ok   bool
	}{{0o600, true}, {0o640, true}, {0o400, true}, {0o644, false}, {0o660, false}, {0o700, false}} {
		path := filepath.Join(t.TempDir(), "key.pem")
		need.OK(t, os.WriteFile(path, nil, tc.mode))
		if err := os.Chmod(path, tc.mode); err != nil { // whatever the umask
			t.Fatal(err)
		}
		err := checkKeyFile("http.tls.key", path)
		expect.That(t, (err == nil) == tc.ok, "mode %#o: %v, want allowed: %v", tc.mode, err, tc.ok)
	}
}

func TestLeasesEndAsTheRegistryWouldByDefault(t *testing.T) {
	expect.Equal(t, defaultConfig().leases(), registry.DefaultSettings(), "got")
}

func TestSettingsOfLeasesReachTheRegistry(t *testing.T) {
	s, err := loadWith(t, []string{
		"--data-dir=d", "--self-preservation-enabled=false", "--self-preservation-renewal-percent-threshold=0.333333",
		"--self-preservation-min-instances=3", "--self-preservation-max-duration=0s", "--eureka-compat-expectation",
		"--eureka-compat-expected-client-renewal-interval=10s", "--eureka-compat-renewal-threshold-update-interval=90s", "--eureka-compat-doubled-lease",
		"--replication-datacenters=dc2=http://10.1.0.1:8761,dc3=http://10.2.0.1:8761", "--replication-eureka=old=http://10.9.0.1:8761/eureka",
		"--replication-on-cut=old=expire,dc3=keep,dc2=keep-for:60m",
	}, nil, "")
	need.OK(t, err)
	want := registry.DefaultSettings()
	want.SelfPreservation, want.Threshold, want.Population, want.Bound = false, 333_333, 3, 0
	want.Expectation, want.ExpectedInterval, want.ExpectationUpdate, want.DoubledLease = true, 10, 90_000, true
	want.OnCut = "dc2=keep-for:1h0m0s,old=expire"
	expect.Equal(t, s.leases(), want, "got")
}

func TestAThresholdOfZeroIsAccepted(t *testing.T) {
	s := need.Got(loadWith(t, []string{"--data-dir=d", "--self-preservation-renewal-percent-threshold=0", "--self-preservation-enabled=false"}, nil, ""))(t)
	got := s.leases()
	expect.That(t, got.Threshold == 0 && !got.SelfPreservation, "got %+v, want a threshold of 0 without self-preservation", got)
}

func TestOneSwitchTurnsTheFourOfCompatibilityOn(t *testing.T) {
	four := []string{"doubled-lease", "eviction-timer", "expectation", "read-only-cache"}
	for _, tc := range []struct {
		name string
		args []string
		want []string
	}{
		{name: "none"},
		{name: "one", args: []string{"--eureka-compat-eviction-timer"}, want: []string{"eviction-timer"}},
		{name: "all", args: []string{"--eureka-compat-all"}, want: append([]string{"all"}, four...)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := need.Got(loadWith(t, append(tc.args, "--data-dir=d"), nil, ""))(t)
			var on []string
			for _, each := range s.Config.settings() {
				if name, compat := strings.CutPrefix(each.Key, "eureka-compat."); compat && each.String() == "true" {
					on = append(on, name)
				}
			}
			expect.That(t, slices.Equal(on, tc.want), "%q are on, want %q", on, tc.want)
			c := s.storeConfig(engineEnv{})
			expect.That(t, c.Settings == s.leases(), "the store gets %+v, want %+v", c.Settings, s.leases())
		})
	}
}

func TestAThresholdThatKeepsEverythingIsWarnedOf(t *testing.T) {
	for _, tc := range []struct {
		threshold registry.Share
		warned    bool
	}{{registry.Whole, true}, {999_000, false}, {0, false}, {850_000, false}} {
		c := oneNode(t)
		c.Store.Settings.Threshold = tc.threshold
		var said bytes.Buffer
		n, err := openNode(c, slog.New(slog.NewTextHandler(&said, nil)))
		need.That(t, err == nil, "threshold %v: %v, want it allowed", tc.threshold, err)
		expect.OK(t, started(t, n)())
		got := strings.Contains(said.String(), "nothing is ever evicted")
		expect.That(t, got == tc.warned, "threshold %v: warned %v, want %v:\n%s", tc.threshold, got, tc.warned, &said)
	}
}

func TestLoopbackIsProbedIfTheAPIIsServedThereUnlessSet(t *testing.T) {
	tests := []struct {
		args []string
		want bool
	}{
		{nil, true},
		{[]string{"--http-addr=localhost:8761"}, true},
		{[]string{"--http-addr=10.0.0.1:8761"}, false},
		{[]string{"--http-addr=:8761", "--http-advertise=10.0.0.1:8761"}, false},
		{[]string{"--http-addr=10.0.0.1:8761", "--checks-allow-loopback"}, true},
		{[]string{"--checks-allow-loopback=false"}, false},
	}
	for _, tt := range tests {
		s := need.Got(loadWith(t, append(tt.args, "--data-dir=d", "--http-plain"), nil, ""))(t)
		expect.That(t, s.Checks.Rules.AllowLoopback == tt.want && s.Checks.Probes, "%v: %+v, want loopback allowed: %v", tt.args, s.Checks, tt.want)
	}
}

// registerProbed registers a service whose check asks a URL, and returns its checks' URL.
func registerProbed(t *testing.T, api, url string) (checks string) {
	t.Helper()
	_, port, _ := strings.Cut(strings.TrimPrefix(url, "http://"), ":")
	body := fmt.Sprintf(`{"Name":"web","Address":"127.0.0.1","Port":%s,"Check":{"HTTP":%q,"Interval":"1s"}}`, port, url)
	req := need.Got(http.NewRequestWithContext(t.Context(), http.MethodPut, api+"/v1/agent/service/register", strings.NewReader(body)))(t)
	resp := need.Got(http.DefaultClient.Do(req))(t)
	resp.Body.Close()
	need.Equal(t, resp.StatusCode, http.StatusOK, "register: status")
	return api + "/v1/health/checks/web"
}

func text(t *testing.T, url string) string {
	t.Helper()
	resp := need.Got(http.Get(url))(t)
	defer resp.Body.Close()
	b := need.Got(io.ReadAll(resp.Body))(t)
	return string(b)
}

func TestTheLeaderProbesServicesUnlessToldNotTo(t *testing.T) {
	for _, probes := range []bool{true, false} {
		t.Run(fmt.Sprint(probes), func(t *testing.T) {
			asked := make(chan struct{}, 1000)
			service := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked <- struct{}{} }))
			defer service.Close()
			c := oneNode(t)
			c.Checks.Probes = probes
			n := need.Got(openNode(c, quiet))(t)
			stop := started(t, n)
			defer func() {
				expect.OK(t, stop())
			}()
			api := "http://" + n.listeners[0].Addr().String()
			awaitReady(t, api)
			checks := registerProbed(t, api, service.URL)
			if !probes {
				expect.That(t, !strings.Contains(text(t, api+"/metrics"), "rollcall_probe_"), "there is a prober")
				return
			}
			deadline := time.Now().Add(30 * time.Second)
			for !strings.Contains(text(t, checks), `"Status":"passing"`) {
				need.That(t, !time.Now().After(deadline), "the checks are %s", text(t, checks))
				select {
				case <-asked:
				case <-time.After(10 * time.Millisecond):
				}
			}
		})
	}
}

func TestATargetOfChecksThatIsNoneIsNamed(t *testing.T) {
	_, err := loadWith(t, []string{"--data-dir=d", "--checks-targets=10.0.0.0/8:*,10.0.0.0/8,nowhere:80"}, nil, "")
	for _, want := range []string{`flag --checks-targets: "10.0.0.0/8" has no port`, `"nowhere:80" does not begin with a CIDR`} {
		expect.ErrorSays(t, err, want, "got")
	}
}

func TestValidateNamesThePeer(t *testing.T) {
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
			c.Mode, c.HTTPD.Reads, c.Replication.Nodes = modeAP, "stale", []string{"http://10.0.0.1:8761"}
			c.Replication.Rates = map[string]string{"10.0.0.1:8761": "1"}
		}},
		{name: "node with a path", change: func(c *Config) {
			c.Mode, c.HTTPD.Reads, c.Replication.Nodes = modeAP, "stale", []string{"http://10.0.0.1:8761/eureka"}
		}, want: "replication.nodes: \"http://10.0.0.1:8761/eureka\" has a path"},
		{name: "own datacenter", change: func(c *Config) { c.Replication.Datacenters = map[string]string{"dc1": "http://h:1"} }, want: "replication.datacenters: dc1: is this node's own datacenter"},
		{name: "no URL", change: func(c *Config) { c.Replication.Datacenters = map[string]string{"dc2": " "} }, want: "replication.datacenters: dc2: has no URL"},
		{name: "no scheme", change: func(c *Config) { c.Replication.Datacenters = map[string]string{"dc2": "h:1"} }, want: "replication.datacenters: dc2: is not a URL"},
		{name: "bad name", change: func(c *Config) { c.Replication.Eureka = map[string]string{"a.b": "http://h:1"} }, want: "replication.eureka: a.b: is not a name"},
		{name: "one name twice", change: func(c *Config) {
			c.Replication.Datacenters = map[string]string{"dc2": "http://h:1"}
			c.Replication.Eureka = map[string]string{"dc2": "http://h:2"}
		}, want: "replication.eureka: dc2: is the name of a datacenter too"},
		{name: "policy for nobody", change: func(c *Config) { c.Store.Settings.OnCut = "dc9=keep" }, want: "replication.on-cut: dc9: there is no peer of that name"},
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
		{name: "nobody is waited for", change: func(c *Config) { c.Replication.CopyWait = 0 }, want: "replication.copy-wait: 0s is below 1ms"},
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

func TestPeersAreWhatTheSettingsSayWithoutTheNodeItself(t *testing.T) {
	c := validConfig()
	c.Mode = modeAP
	c.Replication.Nodes = []string{"http://10.0.0.1:8761", "http://10.0.0.2:8761/"}
	c.Replication.Datacenters = map[string]string{"dc2": "http://10.1.0.1:8761 http://10.1.0.2:8761"}
	c.Replication.Eureka = map[string]string{"old": "http://10.9.0.1:8761/eureka/"}
	c.Replication.Timeouts = map[string]string{"old": "200ms"}
	c.Replication.Single = []string{"old"}
	peers := need.Got(c.peers("10.0.0.1:8761"))(t)
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

func TestReadsInModeAPAreStaleUnlessSomebodyAsksForMore(t *testing.T) {
	s, err := loadWith(t, []string{"--data-dir", "d", "--mode", "ap"}, nil, "")
	expect.That(t, err == nil && s.HTTPD.Reads == "stale", "reads.eureka is %q, %v", s.HTTPD.Reads, err)
	_, err = loadWith(t, []string{"--data-dir", "d", "--mode", "ap", "--reads-eureka", "linearizable"}, nil, "")
	expect.That(t, err != nil, "linearizable reads are accepted")
}

func TestPasswordsOfPeersAreNotShown(t *testing.T) {
	s, err := loadWith(t, []string{"--data-dir", "d", "--replication-eureka", "old=http://user:secret@h:8761/eureka",
		"--replication-datacenters", "dc2=http://user:secret@h:1 http://user:secret@h:2"}, nil, "")
	need.OK(t, err)
	var out strings.Builder
	need.OK(t, s.write(&out, false))
	expect.That(t, !strings.Contains(out.String(), "secret") && strings.Contains(out.String(), "http://user:xxxxx@h:2"),
		"it prints\n%s", out.String())
}
