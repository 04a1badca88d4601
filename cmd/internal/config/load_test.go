package config

import (
	"crypto/tls"
	"crypto/x509"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/certfiles"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/internal/setting"
	"github.com/seed-20419f34/rollcall/replication/link"
)

// loadWith loads settings from a command line, an environment and a file's text ("" for no file).
func loadWith(t *testing.T, args []string, env map[string]string, file string) (Loaded, error) {
	t.Helper()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	AddFlags(flags)
	if file != "" {
		args = append(args, "--config", "c.yaml")
	}
	need.OK(t, flags.Parse(args))
	return Load(inputs{
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
			expect.Deep(t, *need.Got(source())(t).Config, want, "got")
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

func TestLoadNamesAnInvalidCheckTarget(t *testing.T) {
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
		{name: "list for a text", file: "http: {addr: [a]}\n", want: []string{"c.yaml:1: key http.addr must have a text"}},
		{name: "map for a list", file: "cluster: {join: {a: b}}\n", want: []string{"c.yaml:1: key cluster.join must have a list"}},
		{name: "list of lists", file: "cluster: {join: [[a]]}\n", want: []string{"c.yaml:1: key cluster.join must have plain"}},
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
			expect.Equal(t, len(strings.Split(err.Error(), "\n")), len(tc.want), "%v\nmistakes reported:", err)
		})
	}
}

func TestLoadNamesAMissingFile(t *testing.T) {
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	AddFlags(flags)
	missing := filepath.Join(t.TempDir(), "missing.yaml")
	need.OK(t, flags.Parse([]string{"--config", missing}))
	expect.ErrorSays(t, expect.Err(Load(inputs{flags: flags, env: os.LookupEnv, read: os.ReadFile})), missing, "got")
}

func TestDefaultLeasesMatchTheRegistry(t *testing.T) {
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

// A default or a bound that cannot be parsed panics, at the latest in this test.
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

func writeNodes(dir string, forProduction bool, args ...string) error {
	nodes, err := ParseNodes(args)
	if err != nil {
		return err
	}
	return WriteNodes(dir, nodes, forProduction)
}

func tree(t *testing.T, dir string) (files []string) {
	t.Helper()
	need.OK(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			info := need.Got(d.Info())(t)
			files = append(files, strings.TrimPrefix(path, dir+"/")+" "+info.Mode().String())
		}
		return err
	}))
	return files
}

func TestWriteNodesMakesFoldersThatWorkWhereTheyAreCopiedTo(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cluster")
	need.OK(t, writeNodes(dir, false, "n1=10.0.0.1", "n2=10.0.0.2,fd00::2", "n3=db.example.org"))
	files := []string{"authority.crt -rw-r--r--", "authority.key -rw-------"}
	for _, name := range []string{"n1", "n2", "n3"} {
		files = append(files, name+"/authority.crt -rw-r--r--", name+"/node.crt -rw-r--r--", name+"/node.key -rw-------", name+"/rollcall.yaml -rw-r-----")
	}
	expect.Deep(t, tree(t, dir), files, "files")
	for name, want := range map[string]struct {
		addr, advertise string
		hosts           []string
	}{
		"n1": {"10.0.0.1", "", []string{"10.0.0.1"}},
		"n2": {"", "10.0.0.2", []string{"10.0.0.2", "fd00::2"}},
		"n3": {"", "db.example.org", []string{"db.example.org"}},
	} {
		there := filepath.Join(t.TempDir(), "rollcall")
		need.OK(t, os.Rename(filepath.Join(dir, name), there))
		c := need.Got(loadFile(filepath.Join(there, NodeFile)))(t)
		advertised := func(port string) string {
			if want.advertise == "" {
				return ""
			}
			return want.advertise + port
		}
		got := []string{c.NodeName, c.Store.DataDir, c.HTTP.Addr, c.HTTP.Advertise, c.Store.ClusterAddr, c.Store.ClusterAdvertise, strings.Join(c.Store.Join, " ")}
		expect.Deep(t, got, []string{name, filepath.Join(there, "data"), want.addr + ":8761", advertised(":8761"), want.addr + ":7761", advertised(":7761"), "10.0.0.1:7761 10.0.0.2:7761 db.example.org:7761"}, name)
		expect.Equal(t, c.Store.BootstrapExpect, 3, "founders")
		crt, key, ca := filepath.Join(there, "node.crt"), filepath.Join(there, "node.key"), filepath.Join(there, "authority.crt")
		expect.Deep(t, []string{c.HTTP.TLS.Cert, c.HTTP.TLS.Key, c.HTTP.TLS.ClientCA}, []string{crt, key, ""}, "HTTP")
		expect.Deep(t, []string{c.Store.TLS.Cert, c.Store.TLS.Key, c.Store.TLS.CA}, []string{crt, key, ca}, "node-to-node")
		expect.Deep(t, []string{c.Replication.TLS.Cert, c.Replication.TLS.Key, c.Replication.TLS.CA}, []string{crt, key, ca}, "replication")
		pair := need.Got(tls.LoadX509KeyPair(crt, key))(t)
		roots := need.Got(certfiles.ReadPool(ca))(t)
		for _, host := range append(want.hosts, name, "localhost", "127.0.0.1", "::1") {
			for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
				_, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: roots, KeyUsages: []x509.ExtKeyUsage{usage}})
				expect.OKf(t, err, "%s for %s, usage %v", name, host, usage)
			}
		}
		expect.That(t, expect.Err(pair.Leaf.Verify(x509.VerifyOptions{DNSName: "n4", Roots: roots})) != nil, "%s has a certificate for n4", name)
	}
}

func TestWriteNodesForProductionKeepsDataElsewhere(t *testing.T) {
	dir := t.TempDir()
	need.OK(t, writeNodes(dir, true, "n1=10.0.0.1"))
	c := need.Got(loadFile(filepath.Join(dir, "n1", NodeFile)))(t)
	expect.Deep(t, []string{c.Store.DataDir, c.LogFormat, c.Store.TLS.Cert, strings.Join(c.Store.Join, " ")},
		[]string{"/var/lib/rollcall", "json", filepath.Join(dir, "n1", "node.crt"), "10.0.0.1:7761"}, "settings")
}

func TestWriteNodesAddsANodeByTheSameAuthority(t *testing.T) {
	dir := t.TempDir()
	need.OK(t, writeNodes(dir, false, "n1=10.0.0.1", "n2=10.0.0.2", "n3=10.0.0.3"))
	before := need.Got(os.ReadFile(filepath.Join(dir, AuthorityFile)))(t)
	need.OK(t, writeNodes(dir, false, "n4=10.0.0.4"))
	need.OK(t, writeNodes(dir, false, "n5=10.0.0.5"))
	for _, at := range []string{"", "n4", "n5"} {
		expect.Equal(t, string(need.Got(os.ReadFile(filepath.Join(dir, at, AuthorityFile)))(t)), string(before), "authority")
	}
	c := need.Got(loadFile(filepath.Join(dir, "n5", NodeFile)))(t)
	expect.Equal(t, strings.Join(c.Store.Join, " "), "10.0.0.1:7761 10.0.0.2:7761 10.0.0.3:7761 10.0.0.4:7761 10.0.0.5:7761", "n5 joins")
	expect.Equal(t, c.Store.BootstrapExpect, 3, "founders")
	leaf := need.Got(tls.LoadX509KeyPair(c.Store.TLS.Cert, c.Store.TLS.Key))(t).Leaf
	_, err := leaf.Verify(x509.VerifyOptions{DNSName: "n5", Roots: need.Got(certfiles.ReadPool(filepath.Join(dir, "n1", AuthorityFile)))(t)})
	expect.OKf(t, err, "n5 for n1")
}

func TestNodesThatCannotBeWrittenAreRefusedAndNothingIsLeft(t *testing.T) {
	for _, tc := range []struct {
		name  string
		there func(t *testing.T, dir string) // nil for one node, n1
		args  []string
		want  string
	}{
		{name: "none", want: "no node is named"},
		{name: "no name", args: []string{"=10.0.0.9"}, want: `"" is not a name`},
		{name: "no address", args: []string{"n9"}, want: `"" is not an IP address or DNS name`},
		{name: "no name of a node", args: []string{"n 9=10.0.0.9"}, want: `"n 9" is not a name`},
		{name: "a path", args: []string{"../n9=10.0.0.9"}, want: `"../n9" is not a name`},
		{name: "a port", args: []string{"n9=10.0.0.9:8761"}, want: "without a port"},
		{name: "no address that is one", args: []string{"n9=10.0.0.999"}, want: `"10.0.0.999" is not an IP address`},
		{name: "all interfaces", args: []string{"n9=0.0.0.0"}, want: `"0.0.0.0" is not an IP address`},
		{name: "one of two", args: []string{"n9=10.0.0.9,"}, want: `"" is not an IP address`},
		{name: "twice", args: []string{"n9=10.0.0.9", "N9=10.0.0.8"}, want: "node N9 is given twice"},
		{name: "an address twice", args: []string{"n9=10.0.0.9", "n8=10.0.0.9"}, want: "n8=10.0.0.9: is an address of n9 already"},
		{name: "there", args: []string{"n8=10.0.0.8", "n1=10.0.0.9"}, want: "node n1 is there already"},
		{name: "an address that is there", args: []string{"n9=10.0.0.1"}, want: "is an address of n1 already"},
		{name: "a folder that is there", args: []string{"n8=10.0.0.8", "n9=10.0.0.9"}, want: "n9 already exists and is not overwritten",
			there: func(t *testing.T, dir string) { need.OK(t, os.Mkdir(filepath.Join(dir, "n9"), 0o700)) }},
		{name: "without the authority's key", args: []string{"n9=10.0.0.9"}, want: "authority.key is missing",
			there: func(t *testing.T, dir string) {
				need.OK(t, writeNodes(dir, false, "n1=10.0.0.1"))
				need.OK(t, os.Remove(filepath.Join(dir, AuthorityKey)))
			}},
		{name: "with another authority's key", args: []string{"n9=10.0.0.9"}, want: "authority.key: ",
			there: func(t *testing.T, dir string) {
				need.OK(t, writeNodes(dir, false, "n1=10.0.0.1"))
				need.OK(t, os.Rename(filepath.Join(dir, "n1", "node.key"), filepath.Join(dir, AuthorityKey)))
				need.OK(t, os.WriteFile(filepath.Join(dir, "n1", "node.key"), nil, 0o600))
			}},
		{name: "without an authority", args: []string{"n9=10.0.0.9"}, want: "authority.crt: no such file",
			there: func(t *testing.T, dir string) {
				need.OK(t, writeNodes(dir, false, "n1=10.0.0.1"))
				need.OK(t, os.Remove(filepath.Join(dir, AuthorityKey)))
				need.OK(t, os.Remove(filepath.Join(dir, AuthorityFile)))
			}},
		{name: "beside a file with a mistake", args: []string{"n9=10.0.0.9"}, want: "unknown key nodee",
			there: func(t *testing.T, dir string) {
				need.OK(t, os.Mkdir(filepath.Join(dir, "n1"), 0o700))
				need.OK(t, os.WriteFile(filepath.Join(dir, "n1", NodeFile), []byte("nodee: x"), 0o600))
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			if tc.there == nil {
				tc.there = func(t *testing.T, dir string) { need.OK(t, writeNodes(dir, false, "n1=10.0.0.1")) }
			}
			tc.there(t, dir)
			before := tree(t, dir)
			err := writeNodes(dir, false, tc.args...)
			expect.That(t, err != nil && strings.Contains(err.Error(), tc.want), "got %v, want %q in it", err, tc.want)
			expect.Deep(t, tree(t, dir), before, "files afterwards")
		})
	}
}

// A file appears between the check and the writing.
func TestFolderThatCannotBeWrittenLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	f := &folder{dir: dir}
	nodes := need.Got(ParseNodes([]string{"n1=10.0.0.1", "n2=10.0.0.2"}))(t)
	need.OK(t, f.openAuthority())
	for _, n := range nodes {
		need.OK(t, f.add(n, f.settings(n, nodes, false)))
	}
	need.OK(t, os.Mkdir(filepath.Join(dir, "n2"), 0o700))
	need.OK(t, os.WriteFile(filepath.Join(dir, "n2", NodeFile), []byte("mine"), 0o600))
	expect.That(t, f.write() != nil, "a file was overwritten")
	expect.Deep(t, tree(t, dir), []string{"n2/rollcall.yaml -rw-------"}, "files afterwards")
	expect.Equal(t, string(need.Got(os.ReadFile(filepath.Join(dir, "n2", NodeFile)))(t)), "mine", "the file")
}

func TestRelativePathsOfAFileBeginAtItsFolder(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "rollcall.yaml")
	need.OK(t, os.WriteFile(file, []byte("data: {dir: ../state}\nbackup: {dir: /backups}\nreplication: {datacenters: {dc2: http://h:1}, token-files: {dc2: dc2.token}}\nnode: {zone: a/b}\nmode: ap\n"), 0o600))
	token := filepath.Join(dir, "dc2.token")
	need.OK(t, os.WriteFile(token, []byte("t"), 0o600))
	c := need.Got(loadFile(file))(t)
	expect.Deep(t, []string{c.Store.DataDir, c.Backup.Dir, c.NodeZone, c.Replication.TokenFiles["dc2"]}, []string{filepath.Join(filepath.Dir(dir), "state"), "/backups", "a/b", token}, "settings")
	t.Chdir(dir)
	c = need.Got(loadFile("rollcall.yaml"))(t)
	expect.Equal(t, c.Store.DataDir, filepath.Join(filepath.Dir(dir), "state"), "beside a file that is named without its folder")
	var paths []string
	for _, s := range Default().Settings() {
		if s.Path {
			paths = append(paths, s.Key)
		}
		named := strings.HasSuffix(s.Key, ".dir") || strings.Contains(s.Key, ".tls.") || strings.HasSuffix(s.Key, ".file") || strings.Contains(s.Key, "token-file") || s.Key == "restore-from"
		named = named && s.Key != "audit.file" // which is in data.dir
		expect.That(t, s.Path == named, "%s is a path: %v", s.Key, s.Path)
	}
	expect.That(t, slices.Contains(paths, "data.dir"), "paths: %v", paths)
}

func TestValidateNamesThePeer(t *testing.T) {
	tokenFile := filepath.Join(t.TempDir(), "token")
	need.OK(t, os.WriteFile(tokenFile, []byte("t"), 0o600))
	for _, tc := range []struct {
		name   string
		change func(*Config)
		want   string // "" if valid
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
		{name: "policy for no peer", change: func(c *Config) { c.Store.Settings.OnCut = "dc9=keep" }, want: "replication.on-cut: dc9: no peer has that name"},
		{name: "unknown policy", change: func(c *Config) {
			c.Replication.Datacenters = map[string]string{"dc2": "http://h:1"}
			c.Store.Settings.OnCut = "dc2=keep-for:ever"
		}, want: "replication.on-cut: dc2: \"keep-for:ever\" is not one of"},
		{name: "not a rate", change: func(c *Config) {
			c.Replication.Datacenters = map[string]string{"dc2": "http://h:1"}
			c.Replication.Rates = map[string]string{"dc2": "fast"}
		}, want: "replication.rates: dc2: \"fast\" is not a number"},
		{name: "queue below a batch", change: func(c *Config) { c.Replication.Queue = 10 }, want: "replication.queue: 10 is below replication.batch-size, 250"},
		{name: "batch too large", change: func(c *Config) { c.Replication.BatchSize = 5000 }, want: "replication.batch-size: 5000 is above 1000"},
		{name: "no time for the copy", change: func(c *Config) { c.Replication.CopyWait = 0 }, want: "replication.copy-wait: 0s is below 1ms"},
		{name: "token for no peer", change: func(c *Config) { c.Replication.TokenFiles = map[string]string{"dc9": tokenFile} }, want: "replication.token-files: dc9: no peer has that name"},
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

func TestPeersComeFromTheSettingsWithoutTheNodeItself(t *testing.T) {
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
