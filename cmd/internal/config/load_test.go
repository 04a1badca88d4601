package config

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/internal/setting"
)

// loadWith loads settings from a command line, an environment and a file's text ("": no file).
func loadWith(t *testing.T, args []string, env map[string]string, file string) (Loaded, error) {
	t.Helper()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	AddFlags(flags)
	if file != "" {
		args = append(args, "--config", "c.yaml")
	}
	need.OK(t, flags.Parse(args))
	return Load(Inputs{
		flags: flags,
		env:   func(name string) (string, bool) { v, ok := env[name]; return v, ok },
		read:  func(string) ([]byte, error) { return []byte(file), nil },
	})
}

func TestLoadPrefersTheStrongestSource(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		env  map[string]string
		file string
		want string
		from source
	}{
		{name: "default", want: "127.0.0.1:8761", from: fromDefault},
		{name: "file", file: "http: {addr: '127.0.0.1:1'}", want: "127.0.0.1:1", from: fromFile},
		{name: "environment over file", file: "http: {addr: '127.0.0.1:1'}", env: map[string]string{"ROLLCALL_HTTP_ADDR": "127.0.0.1:2"}, want: "127.0.0.1:2", from: fromEnv},
		{name: "empty environment is none", file: "http: {addr: '127.0.0.1:1'}", env: map[string]string{"ROLLCALL_HTTP_ADDR": ""}, want: "127.0.0.1:1", from: fromFile},
		{name: "flag over all", args: []string{"--http-addr", "127.0.0.1:3"}, file: "http: {addr: '127.0.0.1:1'}", env: map[string]string{"ROLLCALL_HTTP_ADDR": "127.0.0.1:2"}, want: "127.0.0.1:3", from: fromFlag},
		{name: "flag that repeats the default", args: []string{"--http-addr", "127.0.0.1:8761"}, file: "http: {addr: '127.0.0.1:1'}", want: "127.0.0.1:8761", from: fromFlag},
		{name: "key without a value", file: "http:\n  addr:\n", want: "127.0.0.1:8761", from: fromDefault},
		{name: "section without keys", file: "http:\n", want: "127.0.0.1:8761", from: fromDefault},
		{name: "file of comments", file: "# nothing\n", want: "127.0.0.1:8761", from: fromDefault},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := need.Got(loadWith(t, append(tc.args, "--data-dir", "d"), tc.env, tc.file))(t)
			expect.That(t, s.HTTP.Addr == tc.want && s.sources["http.addr"] == tc.from,
				"http.addr is %s from %s, want %s from %s", s.HTTP.Addr, s.sources["http.addr"], tc.want, tc.from)
		})
	}
}

func TestLoadReadsEveryTypeOfValueFromEverySource(t *testing.T) {
	want := *Default()
	want.Store.DataDir = "/d"
	want.HTTP.Plain = true
	want.Store.InFlight, want.Store.Test.NoBatching = 3, true
	want.Store.HeartbeatTimeout, want.Store.ElectionTimeout = 700*time.Millisecond, 700*time.Millisecond
	want.Store.TrailingLogs = 7
	want.HTTPD.Limits.BatchBytes = 9
	want.Store.Join = []string{"127.0.0.1:1", "127.0.0.1:2"}
	want.Store.Test.Dial = map[string]string{"a": "127.0.0.1:3", "b": "127.0.0.1:4"}
	values := map[string]string{
		"data.dir": "/d", "http.plain": "true", "commit.in-flight": "3", "test.no-batching": "true",
		"raft.heartbeat-timeout": "700ms", "raft.election-timeout": "700ms", "raft.trailing-logs": "7",
		"limits.batch-bytes": "9", "cluster.join": "127.0.0.1:1, 127.0.0.1:2", "test.dial": "a=127.0.0.1:3,b=127.0.0.1:4",
	}
	var args []string
	env := make(map[string]string)
	for name, value := range values {
		s := setting.Setting{Key: name}
		args = append(args, "--"+s.Flag()+"="+value)
		env[s.Env()] = value
	}
	const file = `
data: {dir: /d}
http: {plain: true}
commit: {in-flight: 3}
raft:
  heartbeat-timeout: 700ms
  election-timeout: 700ms
  trailing-logs: 7
limits: {batch-bytes: 9}
cluster: {join: ["127.0.0.1:1", "127.0.0.1:2"]}
test:
  no-batching: true
  dial: {a: "127.0.0.1:3", b: "127.0.0.1:4"}
`
	for name, source := range map[string]func() (Loaded, error){
		"flags":       func() (Loaded, error) { return loadWith(t, args, nil, "") },
		"environment": func() (Loaded, error) { return loadWith(t, nil, env, "") },
		"file":        func() (Loaded, error) { return loadWith(t, nil, nil, file) },
	} {
		t.Run(name, func(t *testing.T) {
			s := need.Got(source())(t)
			expect.Deep(t, *s.Config, want, "got")
		})
	}
}

func TestFlagsOfListsAndMapsMayBeGivenInParts(t *testing.T) {
	s := need.Got(loadWith(t, []string{"--data-dir=d", "--cluster-join=a:1", "--cluster-join=b:2", "--test-dial=x=a:1", "--test-dial=y=b:2"}, nil, ""))(t)
	expect.That(t, len(s.Store.Join) == 2 && len(s.Store.Test.Dial) == 2, "got %v and %v, want two of each", s.Store.Join, s.Store.Test.Dial)
}

func TestLoadTurnsAllOfEurekaCompatOnByOneSwitch(t *testing.T) {
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
			for _, each := range s.Config.Settings() {
				if name, compat := strings.CutPrefix(each.Key, "eureka-compat."); compat && each.String() == "true" {
					on = append(on, name)
				}
			}
			expect.That(t, slices.Equal(on, tc.want), "%q are on, want %q", on, tc.want)
		})
	}
}

func TestLoadAllowsProbesOfLoopbackIfTheAPIIsServedThereUnlessSet(t *testing.T) {
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
		s := need.Got(loadWith(t, append(tt.args, "--data-dir=d", "--http-plain", "--auth-mode=off"), nil, ""))(t)
		expect.That(t, s.Checks.Rules.AllowLoopback == tt.want && s.Checks.Probes, "%v: %+v, want loopback allowed: %v", tt.args, s.Checks, tt.want)
	}
}

func TestLoadMakesReadsStaleInModeAPAndRefusesOthers(t *testing.T) {
	s, err := loadWith(t, []string{"--data-dir", "d", "--mode", "ap"}, nil, "")
	expect.That(t, err == nil && s.HTTPD.Reads == "stale", "reads.eureka is %q, %v", s.HTTPD.Reads, err)
	_, err = loadWith(t, []string{"--data-dir", "d", "--mode", "ap", "--reads-eureka", "linearizable"}, nil, "")
	expect.That(t, err != nil, "linearizable reads are accepted")
}

func TestLoadNamesATargetOfChecksThatIsNone(t *testing.T) {
	_, err := loadWith(t, []string{"--data-dir=d", "--checks-targets=10.0.0.0/8:*,10.0.0.0/8,nowhere:80"}, nil, "")
	for _, want := range []string{`flag --checks-targets: "10.0.0.0/8" has no port`, `"nowhere:80" does not begin with a CIDR`} {
		expect.ErrorSays(t, err, want, "got")
	}
}

func TestLoadNamesWhereAValueThatIsOutOfBoundsComesFrom(t *testing.T) {
	file := "limits: {watchers: -5}\nraft:\n  lease-timeout: 5s\n"
	_, err := loadWith(t, []string{"--data-dir", "d", "--gc-percent", "-1"}, map[string]string{"ROLLCALL_HTTP_ADDR": "foo"}, file)
	for _, want := range []string{
		"c.yaml:1: limits.watchers: -5 is below 1", "c.yaml:3: raft.lease-timeout: ",
		"environment variable ROLLCALL_HTTP_ADDR: http.addr: ", "flag --gc-percent: gc.percent: -1 is below 0",
	} {
		expect.That(t, err != nil && strings.Contains("\n"+err.Error(), "\n"+want), "got %v, want a line with %q", err, want)
	}
	_, err = loadWith(t, nil, nil, "mode: cp")
	expect.That(t, err != nil && strings.HasPrefix(err.Error(), "c.yaml: data.dir: is required"), "got %v, want the file that lacks the key", err)
}
