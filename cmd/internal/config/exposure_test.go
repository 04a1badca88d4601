package config

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/cmd/internal/authfile"
	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestValidateKeepsListenersOnLoopbackUnlessProtectedOrSaidOtherwise(t *testing.T) {
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
	secret := authfile.NewText("")
	for _, tc := range []struct {
		name   string
		change func(*Config)
		want   string // "": allowed
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
