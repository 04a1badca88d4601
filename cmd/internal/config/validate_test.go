package config

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/internal/setting"
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
		want   string // "" if valid
	}{
		{name: "defaults", change: func(*Config) {}},
		{name: "mode ap", change: func(c *Config) { c.Mode, c.HTTPD.Reads = "ap", "stale" }},
		{name: "mode ap with linearizable reads", change: func(c *Config) { c.Mode = "ap" }, want: "reads.eureka: \"linearizable\" is not offered in mode ap"},
		{name: "another mode", change: func(c *Config) { c.Mode = "ca" }, want: "mode: \"ca\" is not one of"},
		{name: "another sync", change: func(c *Config) { c.Store.Sync = "often" }, want: "data.sync: \"often\" is not one of"},
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
		{name: "unknown reads", change: func(c *Config) { c.HTTPD.Reads = "fresh" }, want: "reads.eureka: \"fresh\" is not one of"},
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
	expect.Equal(t, len(strings.Split(err.Error(), "\n")), 5, "%v\nlines, one for each mistake:", err)
}

func TestValidateRefusesKeyFilesThatOthersCanRead(t *testing.T) {
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

func TestValidateKeepsListenersOnLoopbackUnlessProtectedOrSaidOtherwise(t *testing.T) {
	const wide, local = "10.0.0.1:1", "127.0.0.1:1"
	for _, tc := range []struct {
		name   string
		change func(*Config)
		want   string // "" if allowed
	}{
		{name: "loopback", change: func(c *Config) { c.HTTP.Addr, c.Store.ClusterAddr = local, "[::1]:2" }},
		{name: "localhost", change: func(c *Config) { c.HTTP.Addr = "localhost:1" }},
		{name: "HTTP without TLS", change: func(c *Config) { c.HTTP.Addr = wide }, want: "http.addr: \"10.0.0.1:1\" can be reached from other machines without TLS; set http.tls.cert and http.tls.key"},
		{name: "HTTP on all interfaces", change: func(c *Config) { c.HTTP.Addr, c.HTTP.Advertise = ":1", wide }, want: "http.addr: "},
		{name: "HTTP with TLS, and nobody asked", change: func(c *Config) { c.HTTP.Addr, c.HTTP.TLS.Cert, c.Auth.Mode = wide, "c", "" }, want: "auth.mode: is required, because http.addr \"10.0.0.1:1\""},
		{name: "plain HTTP, and nobody asked", change: func(c *Config) { c.HTTP.Addr, c.HTTP.Plain, c.Auth.Mode = wide, true, "" }, want: "auth.mode: is required"},
		{name: "access control does not make up for TLS", change: func(c *Config) { c.HTTP.Addr, c.Auth.Mode = wide, "on" }, want: "without TLS"},
		{name: "off, written out", change: func(c *Config) { c.HTTP.Addr, c.HTTP.TLS.Cert, c.Auth.Mode = wide, "c", "off" }},
		{name: "log-only", change: func(c *Config) { c.HTTP.Addr, c.HTTP.TLS.Cert, c.Auth.Mode = wide, "c", "log-only" }},
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
			c.Auth.Mode = "on"
			tc.change(c)
			err := c.validateExposure()
			expect.That(t, (err != nil) == (tc.want != "") && (err == nil || strings.Contains(err.Error(), tc.want)),
				"got %v, want %q", err, tc.want)
		})
	}
}

func TestWarnOfWhatIsOpen(t *testing.T) {
	const wide = "10.0.0.1:1"
	for _, tc := range []struct {
		name   string
		change func(*Config)
		want   []string // warnings with these words, and no others
	}{
		{name: "loopback, and nothing said", change: func(*Config) {}, want: []string{"every program of this machine"}},
		{name: "loopback, and off", change: func(c *Config) { c.Auth.Mode = "off" }},
		{name: "loopback, and on", change: func(c *Config) { c.Auth.Mode = "on" }},
		{name: "TLS and on", change: func(c *Config) { c.HTTP.Addr, c.HTTP.TLS.Cert, c.Auth.Mode = wide, "c", "on" }},
		{name: "log-only", change: func(c *Config) { c.HTTP.Addr, c.HTTP.TLS.Cert, c.Auth.Mode = wide, "c", "log-only" }, want: []string{"insecure=auth-log-only"}},
		{name: "everything open", change: func(c *Config) {
			c.HTTP.Addr, c.HTTP.Plain, c.Auth.Mode, c.Store.ClusterAddr, c.ClusterPlain = wide, true, "off", wide, true
		}, want: []string{"insecure=http-plain", "insecure=cluster-plain", "insecure=auth-off"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, log := validConfig(), new(strings.Builder)
			tc.change(c)
			c.Warn(slog.New(slog.NewTextHandler(log, nil)))
			got := strings.Count(log.String(), "level=WARN")
			expect.That(t, got == len(tc.want) && !slices.ContainsFunc(tc.want, func(w string) bool { return !strings.Contains(log.String(), w) }),
				"logged %q, want warnings %q", log, tc.want)
		})
	}
}

// The cluster's mode may be stricter than the node's.
func TestInsecureNamesTheModeInForce(t *testing.T) {
	c := validConfig()
	c.HTTP.Addr, c.HTTP.TLS.Cert, c.Auth.Mode = "10.0.0.1:1", "c", "off"
	for mode, want := range map[access.Mode]string{access.Off: "auth-off", access.LogOnly: "auth-log-only", access.On: ""} {
		var got []string
		for _, lack := range c.Insecure(mode) {
			got = append(got, lack.What)
		}
		expect.Equal(t, strings.Join(got, " "), want, mode.String()+":")
	}
}

func TestValidateReadsTheFilesOfAccessControl(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		need.OK(t, os.WriteFile(path, []byte(text), mode))
		return path
	}
	good, bad, wide := file("good.yaml", "mode: on\n", 0o640), file("bad.yaml", "mode: maybe\n", 0o600), file("wide.yaml", "mode: on\n", 0o644)
	secret := NewTokenText("")
	for _, tc := range []struct {
		name   string
		change func(*Config)
		want   string // "" if allowed
	}{
		{name: "a file", change: func(c *Config) { c.Auth.File = good }},
		{name: "mistakes", change: func(c *Config) { c.Auth.File = bad }, want: "auth.file: " + bad + ":1: mode: want"},
		{name: "readable for all", change: func(c *Config) { c.Auth.File = wide }, want: "auth.file: " + wide + " has mode 0644"},
		{name: "mode ap needs it", change: func(c *Config) { c.Mode, c.Auth.Mode = AP, "on" }, want: "auth.file: is required in mode ap"},
		{name: "mode ap that only counts", change: func(c *Config) { c.Mode, c.Auth.Mode = AP, "log-only" }},
		{name: "the first operator", change: func(c *Config) { c.Auth.BootstrapTokenFile = file("first", secret+"\n", 0o600) }},
		{name: "the first operator in mode ap", change: func(c *Config) { c.Mode, c.Auth.BootstrapTokenFile = AP, file("first", secret, 0o600) }, want: "auth.bootstrap-token-file: is for mode cp"},
		{name: "half of a token", change: func(c *Config) { c.Auth.BootstrapTokenFile = file("half", secret[:50], 0o600) }, want: "half: the token has 50 characters"},
		{name: "a password", change: func(c *Config) { c.Auth.BootstrapTokenFile = file("password", "canary-1234", 0o600) }, want: "password: the credential is no token"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := validConfig()
			tc.change(c)
			err := c.validateAuth()
			expect.That(t, (err != nil) == (tc.want != "") && (err == nil || strings.Contains(err.Error(), tc.want) && !strings.Contains(err.Error(), "canary") && !strings.Contains(err.Error(), secret[21:45])),
				"got %v, want %q", err, tc.want)
		})
	}
}

func TestWriteHidesThePasswordsOfPeers(t *testing.T) {
	s, err := loadWith(t, []string{"--data-dir", "d", "--replication-eureka", "old=http://user:secret@h:8761/eureka",
		"--replication-datacenters", "dc2=http://secret@h:1 http://user:secret@h:2 http://rct_secret:x@h:3"}, nil, "")
	need.OK(t, err)
	var out strings.Builder
	need.OK(t, s.Write(&out, false))
	expect.That(t, !strings.Contains(out.String(), "secret") && strings.Contains(out.String(), "http://user:xxxxx@h:2"),
		"it prints\n%s", out.String())
}

func TestWritePrintsWhatIsSetWithItsSource(t *testing.T) {
	s, err := loadWith(t,
		[]string{"--data-dir=/var/lib/rollcall", "--test-dial=n2=127.0.0.1:9"},
		map[string]string{"ROLLCALL_RAFT_HEARTBEAT_TIMEOUT": "700ms"},
		"cluster: {join: ['127.0.0.1:7761', '127.0.0.1:7762']}")
	need.OK(t, err)
	var out bytes.Buffer
	need.OK(t, s.Write(&out, false))
	const want = `cluster:
  join: ['127.0.0.1:7761', '127.0.0.1:7762'] # file
data:
  dir: /var/lib/rollcall # flag
raft:
  heartbeat-timeout: 700ms # env
test:
  dial: {n2: '127.0.0.1:9'} # flag
`
	expect.That(t, out.String() == want, "got\n%s\nwant\n%s", out.String(), want)
}

func TestWritePrintsAFileThatLoadsToTheSame(t *testing.T) {
	s := need.Got(loadWith(t, []string{"--data-dir=/d", "--cluster-join=a:1,b:2", "--test-dial=x=a:1", "--log-level=debug"}, nil, ""))(t)
	var out bytes.Buffer
	need.OK(t, s.Write(&out, true))
	again, err := loadWith(t, nil, nil, out.String())
	need.That(t, err == nil, "%v in\n%s", err, out.String())
	noEmptyMaps(again.Config)
	noEmptyMaps(s.Config)
	expect.Deep(t, again.Config, s.Config, "got")
	got, want := strings.Count(out.String(), " # default\n"), len(s.Config.Settings())-4
	expect.That(t, got == want, "%d keys are marked as defaults, want %d:\n%s", got, want, out.String())
}

// noEmptyMaps turns empty maps of settings into nil, which have the same text.
func noEmptyMaps(c *Config) {
	for _, s := range setting.Of(c) {
		if s.Value.Kind() == reflect.Map && s.Value.Len() == 0 {
			s.Value.SetZero()
		}
	}
}

func TestTemplateHasEverySettingWithItsDefault(t *testing.T) {
	var lines []string
	for line := range strings.Lines(Template(false, nil)) {
		// As if every comment with a value were not a comment.
		name, value, isSetting := strings.Cut(strings.Replace(strings.TrimRight(line, "\n"), "# ", "", 1), ":")
		if isSetting && !strings.Contains(strings.TrimSpace(name), " ") && (value == "" || strings.HasPrefix(value, " ")) {
			lines = append(lines, name+":"+value)
		}
	}
	values, err := parseConfigFile("all", []byte(strings.Join(lines, "\n")))
	need.OKf(t, err, "the template with every setting")
	for _, s := range Default().Settings() {
		if strings.HasPrefix(s.Key, "test.") || s.Key == "data.dir" {
			continue
		}
		v, there := values[s.Key]
		expect.That(t, there && v.text == s.String(), "%s is %q, there: %v, want %q", s.Key, v.text, there, s)
	}
}

func TestTemplateIsAFileThatIsUnderstood(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rollcall.yaml")
	need.OK(t, os.WriteFile(file, []byte(Template(false, nil)), 0o600))
	expect.OKf(t, ValidateFile(file), "a new file")
	need.OK(t, os.WriteFile(file, []byte(Template(true, nil)), 0o600))
	err := ValidateFile(file)
	need.That(t, err != nil, "a file for production is right without its certificates")
	for line := range strings.Lines(err.Error()) {
		expect.That(t, strings.Contains(line, ".tls.") && strings.Contains(line, "no such file"), "a new file for production: %s", line)
	}
}

func TestValidateFileNamesEachMistakeWithItsKey(t *testing.T) {
	t.Setenv("ROLLCALL_DATA_DIR", "elsewhere") // which has no say
	for text, want := range map[string][]string{
		"":                                    {"data.dir: is required"},
		"data: {dir: d}\nhttp: {adr: x}":      {"2: unknown key http.adr"},
		"data: {dir: d}\ngc: {percent: many}": {"2: gc.percent", "many"},
		"data: {dir: d}\nmode: xp\nlog: {level: loud}": {"mode:", "log.level:"},
	} {
		file := filepath.Join(t.TempDir(), "rollcall.yaml")
		need.OK(t, os.WriteFile(file, []byte(text), 0o600))
		err := ValidateFile(file)
		for _, w := range want {
			expect.That(t, err != nil && strings.Contains(err.Error(), w), "%q: %v, want %q in it", text, err, w)
		}
	}
	expect.That(t, ValidateFile("missing.yaml") != nil, "a file that is not there is right")
}

func TestSchemaHasEverySettingAndNoOther(t *testing.T) {
	var schema map[string]any
	need.OK(t, json.Unmarshal(need.Got(json.Marshal(Schema()))(t), &schema))
	leaves := map[string]map[string]any{}
	var walk func(prefix string, at map[string]any)
	walk = func(prefix string, at map[string]any) {
		properties, isSection := at["properties"].(map[string]any)
		if !isSection {
			leaves[strings.TrimSuffix(prefix, ".")] = at
			return
		}
		expect.That(t, at["additionalProperties"] == false, "%s allows other keys", prefix)
		for name, next := range properties {
			walk(prefix+name+".", next.(map[string]any))
		}
	}
	walk("", schema)
	all := Default().Settings()
	expect.Equal(t, len(leaves), len(all), "keys")
	for _, s := range all {
		leaf := leaves[s.Key]
		words, _ := leaf["enum"].([]any)
		expect.That(t, leaf["description"] == s.Help && (len(words) == 0) == (len(s.Words) == 0), "%s is %v", s.Key, leaf)
	}
}

func TestTemplateHasWhatWasChosen(t *testing.T) {
	chosen, err := ParseChosen([]string{"data.dir=/var/lib/rollcall", "http.addr=127.0.0.1:9761", "cluster.join=a:1,b:2", "http.plain=true"})
	need.OK(t, err)
	file := filepath.Join(t.TempDir(), "rollcall.yaml")
	need.OK(t, os.WriteFile(file, []byte(Template(false, chosen)), 0o600))
	c := need.Got(loadFile(file))(t)
	expect.That(t, c.Store.DataDir == "/var/lib/rollcall" && c.HTTP.Addr == "127.0.0.1:9761" && len(c.Store.Join) == 2 && c.HTTP.Plain, "got %+v", c)
	_, err = ParseChosen([]string{"data.dir", "http.adr=x", "limits.watchers=many", "limits.watchers=-1", "test.sync-delay=1s"})
	expect.Equal(t, strings.Count(err.Error(), "\n")+1, 5, "mistakes:")
	for _, want := range []string{`"data.dir" is not of the form key=value`, "http.adr is not a setting", `limits.watchers: "many" is not`, "limits.watchers: -1 is below", "test.sync-delay is not a setting"} {
		expect.That(t, strings.Contains(err.Error(), want), "got %v, want %q in it", err, want)
	}
}
