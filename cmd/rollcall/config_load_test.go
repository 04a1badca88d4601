package main

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/seed-20419f34/rollcall/cmd/cli"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/internal/setting"
)

// loadWith loads settings from a command line, an environment and a file's text ("": no file).
func loadWith(t *testing.T, args []string, env map[string]string, file string) (settings, error) {
	t.Helper()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	addConfigFlags(flags)
	if file != "" {
		args = append(args, "--config", "c.yaml")
	}
	need.OK(t, flags.Parse(args))
	return loadSettings(inputs{
		flags: flags,
		env:   func(name string) (string, bool) { v, ok := env[name]; return v, ok },
		read:  func(string) ([]byte, error) { return []byte(file), nil },
	})
}

func TestTheStrongestSourceDecides(t *testing.T) {
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

func TestEveryTypeOfValueIsReadFromEverySource(t *testing.T) {
	want := *defaultConfig()
	want.Store.DataDir = "d"
	want.HTTP.Plain = true
	want.Store.InFlight, want.Store.Test.NoBatching = 3, true
	want.Store.HeartbeatTimeout, want.Store.ElectionTimeout = 700*time.Millisecond, 700*time.Millisecond
	want.Store.TrailingLogs = 7
	want.HTTPD.Limits.BatchBytes = 9
	want.Store.Join = []string{"127.0.0.1:1", "127.0.0.1:2"}
	want.Store.Test.Dial = map[string]string{"a": "127.0.0.1:3", "b": "127.0.0.1:4"}
	values := map[string]string{
		"data.dir": "d", "http.plain": "true", "commit.in-flight": "3", "test.no-batching": "true",
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
data: {dir: d}
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
	for name, source := range map[string]func() (settings, error){
		"flags":       func() (settings, error) { return loadWith(t, args, nil, "") },
		"environment": func() (settings, error) { return loadWith(t, nil, env, "") },
		"file":        func() (settings, error) { return loadWith(t, nil, nil, file) },
	} {
		t.Run(name, func(t *testing.T) {
			s := need.Got(source())(t)
			expect.Deep(t, *s.Config, want, "got")
		})
	}
}

func TestListsAndMapsMayBeGivenInParts(t *testing.T) {
	s := need.Got(loadWith(t, []string{"--data-dir=d", "--cluster-join=a:1", "--cluster-join=b:2", "--test-dial=x=a:1", "--test-dial=y=b:2"}, nil, ""))(t)
	expect.That(t, len(s.Store.Join) == 2 && len(s.Store.Test.Dial) == 2, "got %v and %v, want two of each", s.Store.Join, s.Store.Test.Dial)
}

func TestMistakesNameTheirPlace(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		env  map[string]string
		file string
		want []string // one per mistake
	}{
		{name: "unknown keys", file: "http:\n  adress: x\ndatta: {}\nraft: {timeout: 1s}\n", want: []string{"c.yaml:2: unknown key http.adress", "c.yaml:3: unknown key datta", "c.yaml:4: unknown key raft.timeout"}},
		{name: "key given twice", file: "http:\n  addr: a:1\n  addr: b:1\n", want: []string{"c.yaml:3: key http.addr is given twice"}},
		{name: "value for a section", file: "http: 8761\n", want: []string{"c.yaml:1: http is a section"}},
		{name: "list for a text", file: "http: {addr: [a]}\n", want: []string{"c.yaml:1: key http.addr wants a text"}},
		{name: "map for a list", file: "cluster: {join: {a: b}}\n", want: []string{"c.yaml:1: key cluster.join wants a list"}},
		{name: "list of lists", file: "cluster: {join: [[a]]}\n", want: []string{"c.yaml:1: key cluster.join wants plain"}},
		{name: "not a mapping", file: "- a\n", want: []string{"c.yaml:1: the file is a section"}},
		{name: "not YAML", file: "a: [\n", want: []string{"c.yaml: yaml:"}},
		{name: "two documents", file: "mode: cp\n---\nmode: ap\n", want: []string{"more than one YAML document"}},
		{name: "duration without a unit", file: "raft:\n  heartbeat-timeout: 5\n", want: []string{`c.yaml:2: raft.heartbeat-timeout: "5" is not a duration with its unit`}},
		{name: "threshold in percent", args: []string{"--self-preservation-renewal-percent-threshold=85"}, want: []string{`"85" is not a share between 0 and 1`}},
		{name: "negative threshold", args: []string{"--self-preservation-renewal-percent-threshold=-0.1"}, want: []string{`"-0.1" is not a share`}},
		{name: "threshold that is no number", args: []string{"--self-preservation-renewal-percent-threshold=NaN"}, want: []string{`"NaN" is not a share`}},
		{name: "negative population", args: []string{"--self-preservation-min-instances=-1"}, want: []string{`"-1" is not a number, zero or more`}},
		{name: "expectation of half a second", args: []string{"--eureka-compat-expected-client-renewal-interval=500ms"}, want: []string{`"500ms" is not a whole number of 1s`}},
		{name: "one in each source",
			args: []string{"--commit-in-flight=two"}, env: map[string]string{"ROLLCALL_HTTP_PLAIN": "maybe"}, file: "test: {dial: nowhere}\n",
			want: []string{`environment variable ROLLCALL_HTTP_PLAIN: "maybe" is not true or false`, `flag --commit-in-flight: "two" is not a number`, `c.yaml:1: test.dial: "nowhere" is not of the form name=address`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := loadWith(t, append(tc.args, "--data-dir=d"), tc.env, tc.file)
			need.That(t, err != nil, "no error")
			for _, want := range tc.want {
				expect.That(t, strings.Contains(err.Error(), want), "error does not say %q:\n%v", want, err)
			}
			got := len(strings.Split(err.Error(), "\n"))
			expect.That(t, got == len(tc.want), "%d mistakes reported, want %d:\n%v", got, len(tc.want), err)
		})
	}
}

func TestAMissingFileIsAMistake(t *testing.T) {
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	addConfigFlags(flags)
	missing := filepath.Join(t.TempDir(), "missing.yaml")
	need.OK(t, flags.Parse([]string{"--config", missing}))
	_, err := loadSettings(inputs{flags: flags, env: os.LookupEnv, read: os.ReadFile})
	expect.That(t, err != nil && strings.Contains(err.Error(), missing), "got %v, want an error that names %s", err, missing)
}

func TestAnAddressThatOthersReachIsWarnedOf(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Config)
		want   string // "": nothing
	}{
		{name: "loopback", change: func(*Config) {}},
		{name: "plain", change: func(c *Config) { c.HTTP.Addr, c.HTTP.Plain = "10.0.0.1:1", true }, want: "every client that can reach http.addr"},
		{name: "TLS", change: func(c *Config) { c.HTTP.Addr, c.HTTP.TLS.Cert = "10.0.0.1:1", "c" }, want: "every client that can reach http.addr"},
		{name: "client certificates", change: func(c *Config) { c.HTTP.Addr, c.HTTP.TLS.ClientCA = "10.0.0.1:1", "ca" }, want: "every client with a certificate of http.tls.client-ca"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, log := validConfig(), new(strings.Builder)
			tc.change(c)
			c.warn(slog.New(slog.NewTextHandler(log, nil)))
			if tc.want == "" && log.Len() > 0 || !strings.Contains(log.String(), tc.want) || tc.want != "" && !strings.Contains(log.String(), "level=WARN") {
				t.Errorf("logged %q, want a warning that %q", log, tc.want)
			}
		})
	}
}

// rows calls check with every setting of a default configuration.
func rows(t *testing.T, check func(*testing.T, setting.Setting)) {
	t.Helper()
	for _, s := range defaultConfig().settings() {
		t.Run(s.Key, func(t *testing.T) { check(t, s) })
	}
}

func TestEverySettingHasAHelpAndNamesOfItsOwn(t *testing.T) {
	seen := make(map[string]string)
	rows(t, func(t *testing.T, s setting.Setting) {
		for _, name := range []string{"--" + s.Flag(), s.Env()} {
			other, taken := seen[name]
			expect.That(t, !taken, "%s belongs to %s too", name, other)
			seen[name] = s.Key
		}
		expect.That(t, s.Help != "" && !strings.Contains(s.Help, "|"), "its help is %q, want a text for a cell of a table", s.Help)
	})
}

// A default or a bound that cannot be parsed panics, in this test at the latest.
func TestTheDefaultOfEverySettingIsWithinItsBounds(t *testing.T) {
	rows(t, func(t *testing.T, s setting.Setting) {
		expect.OKf(t, s.Check(), "its default")
		for _, bound := range []string{s.Min, s.Max} {
			other := s
			other.Value = reflect.New(s.Value.Type()).Elem()
			if bound == "" {
				continue
			}
			if err := other.Set(bound); err != nil {
				t.Errorf("its bound: %v", err)
			} else if err := other.Check(); err != nil {
				t.Errorf("its bound is out of its bounds: %v", err)
			}
		}
	})
}

func TestEverySettingSurvivesItsTextForm(t *testing.T) {
	rows(t, func(t *testing.T, s setting.Setting) {
		again := s
		again.Value = reflect.New(s.Value.Type()).Elem()
		err := again.Set(s.String())
		expect.That(t, err == nil && again.String() == s.String(), "%q came back as %q: %v", s, again, err)
	})
}

// noEmptyMaps makes empty maps of settings nil, which have the same text.
func noEmptyMaps(c *Config) {
	for _, s := range setting.Of(c) {
		if s.Value.Kind() == reflect.Map && s.Value.Len() == 0 {
			s.Value.SetZero()
		}
	}
}

func TestEnvironmentVariablesAreSpeltAsDocumented(t *testing.T) {
	expect.Equal(t, (setting.Setting{Key: "http.tls.client-ca"}).Env(), "ROLLCALL_HTTP_TLS_CLIENT_CA", "got")
}

func TestShowPrintsWhatIsSetAndWhereItCameFrom(t *testing.T) {
	s, err := loadWith(t,
		[]string{"--data-dir=/var/lib/rollcall", "--test-dial=n2=127.0.0.1:9"},
		map[string]string{"ROLLCALL_RAFT_HEARTBEAT_TIMEOUT": "700ms"},
		"cluster: {join: ['127.0.0.1:7761', '127.0.0.1:7762']}")
	need.OK(t, err)
	var out bytes.Buffer
	need.OK(t, s.write(&out, false))
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

func TestEffectiveSettingsLoadToTheSame(t *testing.T) {
	s := need.Got(loadWith(t, []string{"--data-dir=d", "--cluster-join=a:1,b:2", "--test-dial=x=a:1", "--log-level=debug"}, nil, ""))(t)
	var out bytes.Buffer
	need.OK(t, s.write(&out, true))
	again, err := loadWith(t, nil, nil, out.String())
	need.That(t, err == nil, "%v in\n%s", err, out.String())
	noEmptyMaps(again.Config)
	noEmptyMaps(s.Config)
	expect.Deep(t, again.Config, s.Config, "got")
	got, want := strings.Count(out.String(), " # default\n"), len(s.Config.settings())-4
	expect.That(t, got == want, "%d keys are marked as defaults, want %d:\n%s", got, want, out.String())
}

func TestSettingsThatDifferFromTheClustersAreMarked(t *testing.T) {
	s := newFakeServer(t, 200, `{"self-preservation.enabled":true,"self-preservation.renewal-percent-threshold":0.850,"self-preservation.min-instances":20,
		"self-preservation.max-duration":"60m","eureka-compat.expectation":true,"replication.on-cut":"dc2=keep-for:1h0m0s","unknown.key":1}`)
	stdout, stderr, code := rollcall(t, "config", "show", "--effective", "--data-dir=d", "--addr", s.URL,
		"--replication-datacenters=dc2=http://10.1.0.1:8761,dc3=http://10.1.0.2:8761", "--replication-on-cut=dc2=keep-for:60m,dc3=keep")
	need.That(t, code == cli.ExitOK, "exit %d: %s", code, stderr)
	if want := "GET /v1/rollcall/settings"; len(s.requests) != 1 || s.requests[0] != want {
		t.Errorf("sent %q, want %q", s.requests, want)
	}
	var marked []string
	for line := range strings.Lines(stdout) {
		if strings.Contains(line, "the cluster has") {
			marked = append(marked, strings.TrimSpace(line))
		}
	}
	want := []string{"expectation: false # default, but the cluster has true", "min-instances: 10 # default, but the cluster has 20"}
	expect.Deep(t, marked, want, "marked")
}

func TestSettingsAreNotComparedWithAClusterThatCannotBeAsked(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		code int
		says string
	}{
		"nobody there":        {args: []string{"--effective", "--addr", "127.0.0.1:1"}, code: cli.ExitError, says: "read the cluster's settings"},
		"no URL":              {args: []string{"--effective", "--addr", "ftp://a"}, code: cli.ExitUsage, says: "--addr"},
		"without --effective": {args: []string{"--addr", "127.0.0.1:1"}, code: cli.ExitUsage, says: "give --effective too"},
	} {
		stdout, stderr, code := rollcall(t, append([]string{"config", "show", "--data-dir=d"}, tc.args...)...)
		expect.That(t, code == tc.code && strings.Contains(stderr, tc.says) && stdout == "",
			"%s: exit %d, said %q, printed %q, want exit %d and %q", name, code, stderr, stdout, tc.code, tc.says)
	}
}
