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
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/spf13/pflag"

	"github.com/seed-20419f34/rollcall/cmd/internal/authfile"
	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/cmd/internal/logging"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/internal/setting"
)

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

// changed is another text for a setting, with other settings that it needs.
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
		{"auth.file": private("roles: {prometheus: [metrics read]}\n")}, {"auth.bootstrap-token-file": private(authfile.NewText(""))},
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

// logged are the keys that a line of the log lists behind a word.
func logged(log, word string) []string {
	m := regexp.MustCompile(word + `="?\[([^]]*)\]`).FindStringSubmatch(log)
	if m == nil {
		return nil
	}
	return strings.Fields(m[1])
}

// TestEverySettingIsReloadedOrNamedAsItsRowSays changes each setting in a file: one with the mark is applied and named as
// changed, one without changes nothing and is named as one that waits for a restart.
func TestEverySettingIsReloadedOrNamedAsItsRowSays(t *testing.T) {
	dir := t.TempDir()
	nodes := need.Got(config.ParseNodes([]string{"n1=10.0.0.1"}))(t)
	need.OK(t, config.WriteNodes(filepath.Join(dir, "cluster"), nodes, false))
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
			l, err := file.load()
			need.OK(t, err)
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

// reloadedNode runs a node whose settings are in a file, on top of those of a test's node, until the test ends. reload has it
// read others.
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
	n := need.Got(open(Options{Config: loaded.Config, Version: "test", Log: quiet, Level: logging.NewLevel("info")}))(t)
	r := reloader{load: file.load, apply: n.apply, reread: n.reread, running: *loaded.Config, log: quiet}
	hup := make(chan os.Signal)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.during(ctx, hup, n.run) }()
	t.Cleanup(func() {
		cancel()
		expect.OK(t, <-ended)
	})
	url = "http://" + n.listeners[0].Addr().String()
	awaitReady(t, url)
	return url, func(values map[string]string) {
		write(values)
		hup <- syscall.SIGHUP
		hup <- syscall.SIGHUP // accepted once the first one has taken effect
	}
}

func TestReloadedLimitsAndQuotasHoldFromThenOn(t *testing.T) {
	url, reload := reloadedNode(t, map[string]string{"limits.instances-in-app": "1", "limits.sessions": "1"})
	instance := func(id string) string {
		return fmt.Sprintf(`{"instance":{"instanceId":%q,"app":"A","hostName":"h","ipAddr":"10.0.0.1","status":"UP","vipAddress":"a","dataCenterInfo":{"name":"MyOwn"}}}`, id)
	}
	register := func(id string) int {
		resp := need.Got(http.Post(url+"/eureka/apps/A", "application/json", strings.NewReader(instance(id))))(t)
		resp.Body.Close()
		return resp.StatusCode
	}
	session := func() int { status, _ := request(t, "PUT", url+"/v1/session/create", "{}"); return status }
	poll := func() int { return status(url + "/v1/rollcall/watch?wait=10ms") }
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
		got := []int{register(step.id), session(), poll()}
		expect.Deep(t, got, []int{step.register, step.session, step.polled}, fmt.Sprintf("%s with %v: register, create a session, watch", step.id, step.values))
	}
	reload(map[string]string{"limits.watchers": "1"})
	resp := need.Got(http.Get(url + "/v1/rollcall/watch"))(t) // takes the place
	defer resp.Body.Close()
	expect.Equal(t, poll(), http.StatusServiceUnavailable, "a second watch of one")
	reload(map[string]string{"limits.watchers": "2"})
	expect.Equal(t, poll(), http.StatusOK, "a second watch of two")
}

// eurekaServer is a Eureka server that notes who calls it.
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
		body := fmt.Sprintf(`{"instance":{"instanceId":"i%d","app":"A","hostName":"h","ipAddr":"10.0.0.1","status":"UP","vipAddress":"a","dataCenterInfo":{"name":"MyOwn"}}}`, id)
		resp := need.Got(http.Post(url+"/eureka/apps/A", "application/json", strings.NewReader(body)))(t)
		resp.Body.Close()
		need.Equal(t, resp.StatusCode, http.StatusNoContent, "register")
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
	expect.Equal(t, first.calls("a:new"), gone, "calls to the removed peer")
	_, text := request(t, "GET", url+"/v1/rollcall/peers", "")
	expect.That(t, strings.Contains(text, `"e2"`) && !strings.Contains(text, `"e1"`), "peers: %s", text)
	_, text = request(t, "GET", url+"/metrics", "")
	expect.That(t, strings.Contains(text, `peer="e2"`) && !strings.Contains(text, `peer="e1"`), "metrics of a removed peer are shown")
}
