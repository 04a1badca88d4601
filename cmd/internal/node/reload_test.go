package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/internal/setting"
)

func TestReloadAppliesWhatCanChangeAndNothingElse(t *testing.T) {
	before := *config.Default()
	limited, slow := before, before
	slow.Store.Test.SyncDelay = time.Second
	limited.HTTPD.RateLimit = httpd.RateLimit{Enabled: true, BurstSize: 1, FetchRate: 2, FullFetchRate: 3, ThrottleStandard: true, Privileged: []string{"a"}}
	other := before
	other.LogFormat, other.Store.EvictionInterval = "json", 7
	for _, tc := range []struct {
		name string
		load func() (config.Loaded, error)
		want []config.Config // as applied
		says []string
	}{
		{name: "the limiter", load: func() (config.Loaded, error) { return config.Loaded{Config: &limited}, nil },
			want: []config.Config{limited},
			says: []string{"level=INFO", "rate-limiter.burst-size"}},
		{name: "the delay of syncs", load: func() (config.Loaded, error) { return config.Loaded{Config: &slow}, nil },
			want: []config.Config{slow},
			says: []string{"level=INFO", "changed=[test.sync-delay]"}},
		{name: "something else", load: func() (config.Loaded, error) { return config.Loaded{Config: &other}, nil },
			want: []config.Config{before},
			says: []string{"level=WARN", "need a restart", "[eviction.interval log.format]"}},
		{name: "a mistake", load: func() (config.Loaded, error) { return config.Loaded{Config: &limited}, errors.New("c.yaml:1: no") },
			says: []string{"level=ERROR", "the old ones hold", "c.yaml:1: no"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var said bytes.Buffer
			var applied []config.Config
			r := reloader{load: tc.load, reread: func() []string { return nil }, apply: func(c *config.Config) { applied = append(applied, *c) }, running: before, log: slog.New(slog.NewTextHandler(&said, nil))}
			r.reload()
			expect.Deep(t, applied, tc.want, "applied")
			for _, want := range tc.says {
				expect.That(t, strings.Contains(said.String(), want), "it says %q, want %q in it", &said, want)
			}
		})
	}
}

func TestReloadComparesWithTheOneBefore(t *testing.T) {
	c := *config.Default()
	c.HTTPD.RateLimit.BurstSize = 5
	var said bytes.Buffer
	r := reloader{load: func() (config.Loaded, error) { return config.Loaded{Config: &c}, nil }, reread: func() []string { return nil }, apply: func(*config.Config) {}, running: *config.Default(), log: slog.New(slog.NewTextHandler(&said, nil))}
	r.reload()
	said.Reset()
	r.reload()
	expect.That(t, strings.Contains(said.String(), "changed=[]"), "a second reload says %q, want that nothing has changed", &said)
}

func TestReloadFollowsASignal(t *testing.T) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	reloaded := make(chan bool)
	r := reloader{load: func() (config.Loaded, error) { close(reloaded); return config.Loaded{}, errors.New("stop here") }, log: quiet}
	go r.run(t.Context(), hup)
	need.OK(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
	<-reloaded
}

// refuses reports whether many fetches of the whole registry in a row are too many.
func refuses(url string) bool {
	for range 20 {
		if status(url+"/eureka/apps") == http.StatusServiceUnavailable {
			return true
		}
	}
	return false
}

func TestReloadTurnsTheRateLimiterOnAndOffWhileTheNodeRuns(t *testing.T) {
	c := oneNode(t)
	n := opened(t, c)
	file := filepath.Join(t.TempDir(), "rollcall.yaml")
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	config.AddFlags(flags)
	need.OK(t, flags.Parse([]string{"--config", file, "--data-dir", c.Store.DataDir}))
	r := reloader{load: func() (config.Loaded, error) { return config.Load(config.FromProcess(flags)) }, apply: n.apply, reread: n.reread, running: *c, log: quiet}
	hup := make(chan os.Signal)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.during(ctx, hup, n.run) }()
	url := readyURL(t, n)
	const few = "rate-limiter: {enabled: true, burst-size: 1, registry-fetch-average-rate: 1, full-fetch-average-rate: 1}"
	for _, step := range []struct {
		name, file string
		refuses    bool
	}{
		{name: "off", file: ""},
		{name: "on", file: few, refuses: true},
		{name: "a mistake changes nothing", file: "rate-limiter: {enabled: perhaps}", refuses: true},
		{name: "off again", file: "rate-limiter: {enabled: false}"},
	} {
		// The second reload of the step before may read now, and must not find half a file.
		next := file + ".next"
		need.OK(t, errors.Join(os.WriteFile(next, []byte(step.file), 0o600), os.Rename(next, file)))
		hup <- syscall.SIGHUP
		hup <- syscall.SIGHUP // accepted once the first one has taken effect
		expect.Equal(t, refuses(url), step.refuses, "%s: fetches are refused:", step.name)
	}
	cancel()
	expect.OK(t, <-ended)
}

func TestLogLevelIsChangedByARequestForAWhileAndBySIGHUP(t *testing.T) {
	level := NewLogLevel("warn")
	c := oneNode(t)
	c.LogLevel = "warn"
	n := need.Got(open(Options{Config: c, Version: "test", Log: quiet, Level: level}))(t)
	stop := started(t, n)
	url := "http://" + n.listeners[0].Addr().String() + "/v1/rollcall/log-level"
	ask := func(method, query string) string {
		resp := need.Got(http.DefaultClient.Do(need.Got(http.NewRequest(method, url+query, nil))(t)))(t)
		defer resp.Body.Close()
		return fmt.Sprint(resp.StatusCode, " ", string(need.Got(io.ReadAll(resp.Body))(t)))
	}
	expect.Equal(t, ask("GET", ""), "200 {\"level\":\"warn\",\"configured\":\"warn\"}\n", "at first")
	for _, query := range []string{"", "?level=loud", "?level=debug&for=1ms", "?level=debug&for=25h"} {
		got := ask("PUT", query)
		expect.That(t, strings.HasPrefix(got, "400 "), "PUT %s: %s, want 400", query, got)
	}
	before := time.Now()
	got := ask("PUT", "?level=debug&for=1m")
	now, _, until := level.Show()
	expect.That(t, strings.HasPrefix(got, `200 {"level":"debug","configured":"warn","until":`) && now == "debug" && until.After(before.Add(50*time.Second)), "PUT: %s; the level is %s until %v", got, now, until)
	c.LogLevel = "error"
	n.apply(c)
	_, configured, _ := level.Show()
	expect.Equal(t, configured, "error", "configured after SIGHUP")
	expect.OK(t, stop())
}

// settingsFile is a file of settings that a node reads again.
type settingsFile struct{ path string }

func (f settingsFile) write(t *testing.T, values map[string]string) {
	t.Helper()
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(values)) {
		fmt.Fprintf(&text, "%s: %q\n", key, values[key])
	}
	next := f.path + ".next"
	need.OK(t, errors.Join(os.WriteFile(next, []byte(text.String()), 0o600), os.Rename(next, f.path)))
}

func (f settingsFile) load() (config.Loaded, error) {
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	config.AddFlags(flags)
	if err := flags.Parse([]string{"--config", f.path}); err != nil {
		return config.Loaded{}, err
	}
	return config.Load(config.FromProcess(flags))
}

// changed returns another text for a setting, with other settings that it needs.
func changed(t *testing.T, s setting.Setting, certificates string) map[string]string {
	t.Helper()
	file := func(name string) string { return filepath.Join(certificates, name) }
	private := func(content string) string {
		path := filepath.Join(t.TempDir(), "private")
		need.OK(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	peers := "dc2=http://10.1.0.1:8761"
	for _, whole := range []map[string]string{
		{"http.tls.cert": file("node.crt"), "http.tls.key": file("node.key"), "http.tls.client-ca": file("authority.crt")},
		{"cluster.tls.cert": file("node.crt"), "cluster.tls.key": file("node.key"), "cluster.tls.ca": file("authority.crt")},
		{"replication.tls.cert": file("node.crt"), "replication.tls.key": file("node.key"), "replication.tls.ca": file("authority.crt")},
		{"mode": "ap", "replication.nodes": "http://10.0.0.9:8761"},
		{"replication.datacenters": peers, "replication.rates": "dc2=9", "replication.timeouts": "dc2=9s", "replication.on-cut": "dc2=expire"},
		{"replication.eureka": "e1=http://10.0.0.9:8761/eureka", "replication.single": "e1"},
		{"cluster.bootstrap-expect": "2", "cluster.join": "127.0.0.1:9,127.0.0.1:8"},
		{"raft.heartbeat-timeout": "2s", "raft.election-timeout": "3s", "raft.lease-timeout": "1s"},
		{"http.addr": "127.0.0.1:9"}, {"cluster.addr": "127.0.0.1:9"}, {"pprof.addr": "127.0.0.1:9"},
		{"http.advertise": "a:1"}, {"cluster.advertise": "a:1"}, {"test.dial": "n2=127.0.0.1:9"}, {"checks.targets": "10.0.0.0/8:*"},
		{"self-preservation.renewal-percent-threshold": "0.5"}, {"node.name": "n9"}, {"members.dead-after": "1h"}, {"commit.renewal-wait": "50ms"},
		{"checks.deregister-critical-after": "1h"}, {"limits.in-flight-bytes": "300000000"}, {"audit.max-bytes": "100000"},
		{"auth.file": private("roles: {prometheus: [metrics read]}\n")}, {"auth.bootstrap-token-file": private(config.NewTokenText(""))},
		{"replication.token-files": "dc2=" + private("password"), "replication.datacenters": peers}, {"replication.queue": "300", "replication.batch-size": "30"},
	} {
		if _, ok := whole[s.Key]; ok {
			return whole
		}
	}
	was := s.String()
	for _, text := range append(s.Words, "1s", "2s", "300", "3", "false", "true", "other") {
		if text != was && s.Set(text) == nil && s.String() != was && s.Check() == nil {
			return map[string]string{s.Key: text}
		}
	}
	t.Fatalf("no other value for %s, which is %q", s.Key, was)
	return nil
}

// logged returns the keys that a line of the log lists after a word.
func logged(log, word string) []string {
	m := regexp.MustCompile(word + `="?\[([^]]*)\]`).FindStringSubmatch(log)
	if m == nil {
		return nil
	}
	return strings.Fields(m[1])
}

// It changes each setting in a file: one with the mark is applied and named as changed, one without changes nothing
// and is named as waiting for a restart.
func TestEverySettingIsReloadedOrNamedAsItsRowSays(t *testing.T) {
	dir := t.TempDir()
	need.OK(t, config.WriteNodes(filepath.Join(dir, "cluster"), need.Got(config.ParseNodes([]string{"n1=10.0.0.1"}))(t), false))
	file := settingsFile{filepath.Join(dir, "rollcall.yaml")}
	base := map[string]string{"data.dir": dir}
	file.write(t, base)
	before, marked := need.Got(file.load())(t).Config, 0
	for _, row := range config.Default().Settings() {
		values := maps.Clone(base)
		maps.Copy(values, changed(t, row, filepath.Join(dir, "cluster", "n1")))
		text := func(c *config.Config) string {
			i := slices.IndexFunc(c.Settings(), func(s setting.Setting) bool { return s.Key == row.Key })
			return c.Settings()[i].String()
		}
		var said bytes.Buffer
		var read, applied string
		load := func() (config.Loaded, error) {
			l := need.Got(file.load())(t)
			read = text(l.Config)
			return l, nil
		}
		r := reloader{load: load, reread: func() []string { return nil }, running: *before, log: slog.New(slog.NewTextHandler(&said, nil)),
			apply: func(c *config.Config) { applied = text(c) }}
		file.write(t, values)
		r.reload()
		now, later := slices.Contains(logged(said.String(), "changed"), row.Key), slices.Contains(logged(said.String(), "keys"), row.Key)
		was := text(before)
		want := was
		if row.Reload {
			want = read
			marked++
		}
		expect.That(t, was != read && applied == want && now == row.Reload && later == !row.Reload,
			"%s, reloaded %v: %q in the file, %q before, %q applied; the log says: %s", row.Key, row.Reload, read, was, applied, &said)
	}
	expect.That(t, marked > 20, "%d settings are reloaded", marked)
}

// reloadedNode runs a node whose settings are in a file, on top of those of a test's node, until the test ends.
// reload makes it read others.
func reloadedNode(t *testing.T, values map[string]string) (url string, reload func(values map[string]string)) {
	t.Helper()
	c := oneNode(t)
	base := map[string]string{}
	for _, s := range c.Settings() {
		if text := s.String(); text != "" {
			base[s.Key] = text
		}
	}
	file := settingsFile{filepath.Join(t.TempDir(), "rollcall.yaml")}
	write := func(values map[string]string) {
		all := maps.Clone(base)
		maps.Copy(all, values)
		file.write(t, all)
	}
	write(values)
	loaded := need.Got(file.load())(t)
	n := opened(t, loaded.Config)
	r := reloader{load: file.load, apply: n.apply, reread: n.reread, running: *loaded.Config, log: quiet}
	hup := make(chan os.Signal)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.during(ctx, hup, n.run) }()
	t.Cleanup(func() {
		cancel()
		expect.OK(t, <-ended)
	})
	return readyURL(t, n), func(values map[string]string) {
		write(values)
		hup <- syscall.SIGHUP
		hup <- syscall.SIGHUP // accepted once the first one has taken effect
	}
}

func TestReloadedLimitsAndQuotasHoldFromThenOn(t *testing.T) {
	url, reload := reloadedNode(t, map[string]string{"limits.instances-in-app": "1", "limits.sessions": "1"})
	asked := func(method, path, body string) int { status, _ := request(t, method, url+path, body); return status }
	poll := func() int { return asked("GET", "/v1/rollcall/watch?wait=10ms", "") }
	for _, step := range []struct {
		id                        string
		values                    map[string]string
		register, session, polled int
	}{
		{id: "a", register: http.StatusNoContent, session: http.StatusOK, polled: http.StatusOK},
		{id: "b", register: http.StatusTooManyRequests, session: http.StatusInsufficientStorage, polled: http.StatusOK},
		{id: "b", values: map[string]string{"limits.instances-in-app": "2", "limits.sessions": "2", "limits.watchers": "1"}, register: http.StatusNoContent, session: http.StatusOK, polled: http.StatusOK},
		{id: "c", values: map[string]string{"limits.register-bytes": "10", "limits.state-bytes": "1"}, register: http.StatusRequestEntityTooLarge, session: http.StatusInsufficientStorage, polled: http.StatusOK},
		{id: "c", values: map[string]string{"limits.instances-total": "2", "limits.in-flight-bytes": "16", "limits.batch-bytes": "1"}, register: http.StatusServiceUnavailable, session: http.StatusOK, polled: http.StatusOK},
		{id: "c", values: map[string]string{"limits.instances-total": "2"}, register: http.StatusInsufficientStorage, session: http.StatusOK, polled: http.StatusOK},
		{id: "c", values: map[string]string{}, register: http.StatusNoContent, session: http.StatusOK, polled: http.StatusOK},
	} {
		if step.values != nil {
			reload(step.values)
		}
		got := []int{asked("POST", "/eureka/apps/A", instance(step.id)), asked("PUT", "/v1/session/create", "{}"), poll()}
		expect.Deep(t, got, []int{step.register, step.session, step.polled}, fmt.Sprintf("%s with %v: register, create a session, watch", step.id, step.values))
	}
	reload(map[string]string{"limits.watchers": "1"})
	resp := need.Got(http.Get(url + "/v1/rollcall/watch"))(t) // takes the place
	defer resp.Body.Close()
	expect.Equal(t, poll(), http.StatusServiceUnavailable, "a second watch of one")
	reload(map[string]string{"limits.watchers": "2"})
	expect.Equal(t, poll(), http.StatusOK, "a second watch of two")
}

// eurekaServer is a Eureka server that records who calls it.
type eurekaServer struct {
	*httptest.Server
	mu    sync.Mutex
	users map[string]int // calls by user and password
}

func newEurekaServer(t *testing.T) *eurekaServer {
	e := &eurekaServer{users: map[string]int{}}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		user, password, _ := r.BasicAuth()
		e.mu.Lock()
		defer e.mu.Unlock()
		e.users[user+":"+password]++
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"responseList":[]}`)
	}))
	t.Cleanup(e.Close)
	return e
}

func (e *eurekaServer) url(user string) string {
	return strings.Replace(e.URL, "http://", "http://"+user+"@", 1) + "/eureka"
}

func (e *eurekaServer) calls(user string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.users[user]
}

func TestReloadedPeersAreSentToAndRemovedOnesNot(t *testing.T) {
	first, second := newEurekaServer(t), newEurekaServer(t)
	peers := func(urls ...string) map[string]string {
		return map[string]string{"replication.eureka": strings.Join(urls, ","), "replication.batch-delay": "10ms"}
	}
	url, reload := reloadedNode(t, peers("e1="+first.url("a:old")))
	id := 0
	register := func() {
		id++
		responds(t, "POST", url+"/eureka/apps/A", instance(fmt.Sprint("i", id)), http.StatusNoContent, "")
	}
	awaitCall := func(e *eurekaServer, user string) {
		t.Helper()
		before := e.calls(user)
		await(t, "a call by "+user, func() bool { register(); return e.calls(user) > before })
	}
	awaitCall(first, "a:old")
	reload(peers("e1=" + first.url("a:new")))
	awaitCall(first, "a:new")
	old := first.calls("a:old")
	awaitCall(first, "a:new")
	expect.Equal(t, first.calls("a:old"), old, "calls with the old password")
	reload(peers("e1="+first.url("a:new"), "e2="+second.url("b:b")))
	awaitCall(second, "b:b")
	awaitCall(first, "a:new")
	reload(peers("e2=" + second.url("b:b")))
	awaitCall(second, "b:b")
	gone := first.calls("a:new")
	for range 5 {
		awaitCall(second, "b:b")
	}
	expect.That(t, first.calls("a:new") <= gone+1, "%d calls to the removed peer after its last one", first.calls("a:new")-gone)
	text := responds(t, "GET", url+"/v1/rollcall/peers", "", http.StatusOK, "")
	expect.That(t, strings.Contains(text, `"e2"`) && !strings.Contains(text, `"e1"`), "peers: %s", text)
	await(t, "the metrics of the removed peer go", func() bool {
		text = responds(t, "GET", url+"/metrics", "", http.StatusOK, "")
		return strings.Contains(text, `peer="e2"`) && !strings.Contains(text, `peer="e1"`)
	})
}
