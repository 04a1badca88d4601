package config

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/seed-20419f34/rollcall/fsm/registry"
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

func TestLoadNamesThePlaceOfEveryMistake(t *testing.T) {
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
			args: []string{"--commit-in-flight=two"}, env: map[string]string{"ROLLCALL_HTTP_PLAIN": "perhaps"}, file: "test: {dial: nowhere}\n",
			want: []string{`environment variable ROLLCALL_HTTP_PLAIN: "perhaps" is not true or false`, `flag --commit-in-flight: "two" is not a number`, `c.yaml:1: test.dial: "nowhere" is not of the form name=address`}},
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

func TestLoadNamesAMissingFile(t *testing.T) {
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	AddFlags(flags)
	missing := filepath.Join(t.TempDir(), "missing.yaml")
	need.OK(t, flags.Parse([]string{"--config", missing}))
	_, err := Load(Inputs{flags: flags, env: os.LookupEnv, read: os.ReadFile})
	expect.That(t, err != nil && strings.Contains(err.Error(), missing), "got %v, want an error that names %s", err, missing)
}

func TestDefaultLeasesAreThoseOfTheRegistry(t *testing.T) {
	expect.Equal(t, Default().Leases(), registry.DefaultSettings(), "got")
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
	expect.Equal(t, s.Leases(), want, "got")
}

func TestSettingsOfLeasesAcceptAThresholdOfZero(t *testing.T) {
	s := need.Got(loadWith(t, []string{"--data-dir=d", "--self-preservation-renewal-percent-threshold=0", "--self-preservation-enabled=false"}, nil, ""))(t)
	got := s.Leases()
	expect.That(t, got.Threshold == 0 && !got.SelfPreservation, "got %+v, want a threshold of 0 without self-preservation", got)
}

func rows(t *testing.T, check func(*testing.T, setting.Setting)) {
	t.Helper()
	for _, s := range Default().Settings() {
		t.Run(s.Key, func(t *testing.T) { check(t, s) })
	}
}

func TestSettingHasAHelpAndNamesOfItsOwn(t *testing.T) {
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
func TestSettingHasADefaultWithinItsBounds(t *testing.T) {
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

func TestSettingSurvivesItsTextForm(t *testing.T) {
	rows(t, func(t *testing.T, s setting.Setting) {
		again := s
		again.Value = reflect.New(s.Value.Type()).Elem()
		err := again.Set(s.String())
		expect.That(t, err == nil && again.String() == s.String(), "%q came back as %q: %v", s, again, err)
	})
}

func TestSettingHasTheEnvironmentVariableOfTheDocuments(t *testing.T) {
	expect.Equal(t, (setting.Setting{Key: "http.tls.client-ca"}).Env(), "ROLLCALL_HTTP_TLS_CLIENT_CA", "got")
}
