package integration

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/localcluster"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// inTheWild skips a test that only `make wild` runs, and returns the paths of the programs that it runs.
func inTheWild(t *testing.T, programs ...string) (paths []string) {
	t.Helper()
	if os.Getenv("ROLLCALL_WILD") == "" {
		t.Skip("make wild runs it")
	}
	for _, name := range programs {
		installed(t, "wild/bin/"+name, "make wild builds it")
		paths = append(paths, need.Got(filepath.Abs("clients/wild/bin/"+name))(t))
	}
	return paths
}

// hosts has what two hosts, web-1 and web-2, are configured with to use Consul, or Rollcall instead.
type hosts struct {
	agents [2]string // addresses of the agents
	server string    // host:port of a server
}

// client returns Consul's official client on a host.
func (h hosts) client(t *testing.T, host int) *api.Client {
	t.Helper()
	return need.Got(api.NewClient(&api.Config{Address: h.agents[host], Transport: consulTransport}))(t)
}

// atServer returns Consul's official client of a server.
func (h hosts) atServer(t *testing.T) *api.Client {
	t.Helper()
	return need.Got(api.NewClient(&api.Config{Address: h.server, Transport: consulTransport}))(t)
}

// places start Consul and Rollcall for two hosts, by name.
var places = []struct {
	name  string
	start func(*testing.T) hosts
}{{"Consul", startConsul}, {"Rollcall", startRollcall}}

// startRollcall starts three nodes. Each host has another one, with an address that names its agent.
func startRollcall(t *testing.T) hosts {
	t.Helper()
	c := StartCluster(t, Config{})
	return hosts{[2]string{c.Nodes[0].URL() + "/agent/web-1", c.Nodes[1].URL() + "/agent/web-2"}, c.Nodes[2].HTTP}
}

// startConsul starts a server, which is the agent of one host, and a client agent for the other. They gossip from the
// hosts' own addresses: at 127.0.0.1 the claims themselves occupy the UDP ports.
func startConsul(t *testing.T) hosts {
	t.Helper()
	program := inTheWild(t, "consul")[0]
	ports := need.Got(localcluster.ClaimPorts(6))(t)
	dir := t.TempDir()
	start := func(host, http, gossip int, args ...string) {
		t.Helper()
		name := fmt.Sprint("web-", host-1)
		launchWild(t, program, append([]string{"agent", "-node=" + name, fmt.Sprint("-bind=127.0.0.", host), "-data-dir=" + filepath.Join(dir, name),
			fmt.Sprint("-http-port=", http), fmt.Sprint("-serf-lan-port=", gossip), "-dns-port=-1", "-grpc-port=-1", "-grpc-tls-port=-1", "-hcl=disable_update_check=true"}, args...)...)
	}
	start(2, ports[0], ports[1], "-server", "-bootstrap-expect=1", fmt.Sprint("-server-port=", ports[2]), fmt.Sprint("-serf-wan-port=", ports[3]), "-hcl=performance{raft_multiplier=1}")
	start(3, ports[4], ports[5], fmt.Sprint("-retry-join=127.0.0.2:", ports[1]), "-retry-interval=1s")
	h := hosts{[2]string{"http://" + localcluster.Address(ports[0]), "http://" + localcluster.Address(ports[4])}, localcluster.Address(ports[0])}
	Eventually(t, ReadyLimit, "both agents of Consul are in its catalog", func() error {
		nodes, _, err := h.client(t, 1).Catalog().Nodes(nil)
		if err != nil {
			return err
		}
		return notYet(len(nodes), 2)
	})
	return h
}

// launchWild starts a program that knows nothing of its parent. It ends with the test, however that ends.
func launchWild(t *testing.T, program string, args ...string) *Process {
	t.Helper()
	command := append([]string{"setpriv", "--pdeathsig", "KILL", "--", program}, args...)
	log := filepath.Join(t.TempDir(), filepath.Base(program)+".log")
	p := need.Got(launch(t, log, nil, command))(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s: %s", strings.Join(args, " "), p.LastWords(30))
		}
	})
	return p
}

// besideConsul runs saw with Consul and with Rollcall, and checks that it sees the same. saw returns what it saw,
// line by line, without names and times that differ by chance.
func besideConsul(t *testing.T, saw func(*testing.T, hosts) []string) {
	t.Helper()
	var seen [2][]string
	for i, place := range places {
		t.Run(place.name, func(t *testing.T) { seen[i] = saw(t, place.start(t)) })
	}
	if t.Failed() {
		return
	}
	t.Logf("with Consul:\n%s", strings.Join(seen[0], "\n"))
	expect.Equal(t, strings.Join(seen[1], "\n"), strings.Join(seen[0], "\n"), "with Rollcall (wanted: with Consul)")
}

// registerAtBoth registers an instance of web at each host, with the id and port that the hosts' programs give all of
// them.
func registerAtBoth(t *testing.T, h hosts) {
	t.Helper()
	for i := range h.agents {
		need.OK(t, h.client(t, i).Agent().ServiceRegister(&api.AgentServiceRegistration{
			ID: "web", Name: "web", Address: fmt.Sprint("10.0.0.", i+1), Port: 8080, Tags: []string{fmt.Sprint("v", i+1)}, Meta: map[string]string{"host": fmt.Sprint(i + 1)}}))
	}
	Eventually(t, ReadyLimit, "both hosts have their instance", func() error { return notYet(len(h.passing(t)), 2) })
}

// passing returns the nodes of the instances of web that a server lists as passing.
func (h hosts) passing(t *testing.T) []string {
	t.Helper()
	var nodes []string
	for _, e := range value[[]*api.ServiceEntry, *api.QueryMeta](t)(h.atServer(t).Health().Service("web", "", true, nil)) {
		nodes = append(nodes, e.Node.Node)
	}
	slices.Sort(nodes)
	return nodes
}

// command runs Consul's command-line program on a host, and returns what it printed.
func (h hosts) command(t *testing.T, program string, host int, env []string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), ReadyLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(append(os.Environ(), "CONSUL_HTTP_ADDR="+h.agents[host]), env...)
	out, err := cmd.CombinedOutput()
	said := strings.TrimSpace(string(out))
	if err != nil {
		said += fmt.Sprintf(" (%v)", err)
	}
	return fmt.Sprintf("%s: %s", strings.Join(args, " "), said)
}

// An operator takes a host out and back, and deletes keys in a namespace that does not exist.
func TestWildConsulCommandsTouchOneHost(t *testing.T) {
	program := inTheWild(t, "consul")[0]
	t.Parallel()
	besideConsul(t, func(t *testing.T, h hosts) (saw []string) {
		registerAtBoth(t, h)
		note := func(env []string, args ...string) {
			saw = append(saw, h.command(t, program, 0, env, args...))
		}
		awaitPassing := func(want ...string) {
			t.Helper()
			Eventually(t, ReadyLimit, fmt.Sprintf("passing on %v", want), func() error {
				got := h.passing(t)
				return unless(slices.Equal(got, want), "passing on %v", got)
			})
			saw = append(saw, fmt.Sprintf("passing on %v", want))
		}
		note(nil, "maint", "-enable", "-reason", "new disk")
		awaitPassing("web-2")
		note(nil, "maint")
		note(nil, "maint", "-disable")
		awaitPassing("web-1", "web-2")
		note(nil, "maint", "-enable", "-service", "web", "-reason", "one")
		awaitPassing("web-2")
		note(nil, "maint", "-disable", "-service", "web")
		awaitPassing("web-1", "web-2")

		note(nil, "kv", "put", "app/key", "of prod")
		note([]string{"CONSUL_NAMESPACE=stage"}, "kv", "delete", "-recurse", "app")
		note([]string{"CONSUL_NAMESPACE=stage"}, "kv", "delete", "app/key")
		note([]string{"CONSUL_PARTITION=stage"}, "kv", "delete", "app/key")
		note(nil, "kv", "get", "app/key")

		note(nil, "services", "deregister", "-id=web")
		awaitPassing("web-2")
		return saw
	})
}

// stable is how long two of Nomad's loops must leave each other's services alone: ten of their rounds. They remove
// nothing in their first minute.
const stable = 5 * time.Minute

// Two of Nomad's agents keep the services of their hosts, each its own and not the other's.
func TestWildNomadsLoopsAreStable(t *testing.T) {
	program := inTheWild(t, "nomadsync", "consul")[0]
	for _, place := range append(slices.Clone(places), bySource) {
		t.Run(place.name, func(t *testing.T) {
			t.Parallel()
			h := place.start(t)
			for i, url := range h.agents {
				source := "127.0.0.1"
				if place.name == bySource.name {
					source = fmt.Sprint("127.0.0.", i+2)
				}
				launchWild(t, program, url, source, fmt.Sprint(8080+i))
			}
			Eventually(t, ReadyLimit, "both services are there", func() error { return notYet(len(h.passing(t)), 2) })
			for end := time.Now().Add(stable); time.Now().Before(end); Pass(t, time.Second) {
				nodes := h.passing(t)
				need.That(t, len(nodes) == 2 && nodes[0] != nodes[1], "web is on %v", nodes)
			}
		})
	}
}

// bySource is Rollcall for hosts that are known by the addresses from which they call.
var bySource = struct {
	name  string
	start func(*testing.T) hosts
}{"Rollcall by source address", func(t *testing.T) hosts {
	c := StartCluster(t, Config{})
	return hosts{[2]string{c.Nodes[0].URL(), c.Nodes[1].URL()}, c.Nodes[2].HTTP}
}}

// rawRequests are requests whose responses are compared: names of nodes and their IDs, and what agents say of checks.
// A JSON body is cut down to the named fields; without fields, the text counts.
var rawRequests = []struct {
	name, method, path, body string
	fields                   []string
}{
	{"register", "PUT", "/v1/catalog/register", `{"Node":"Win-Host","Address":"10.9.0.1","Service":{"Service":"far","ID":"f1","Port":80},"Check":{"Name":"c","Status":"passing"}}`, nil},
	{"read by another spelling", "GET", "/v1/catalog/node/win-host", "", []string{"Node", "Address", "Service", "Port"}},
	{"services by another spelling", "GET", "/v1/catalog/node-services/WIN-HOST", "", []string{"Node", "Address", "Service", "Port"}},
	{"checks by another spelling", "GET", "/v1/health/node/win-HOST", "", []string{"CheckID", "Status"}},
	{"register by another spelling", "PUT", "/v1/catalog/register", `{"Node":"win-host","Address":"10.9.0.2","Service":{"Service":"far","ID":"f1","Port":81},"Check":{"Name":"c","Status":"critical","Node":"WIN-HOST"}}`, nil},
	{"one service", "GET", "/v1/catalog/service/far", "", []string{"Address", "ServiceID", "ServicePort"}},
	{"one check", "GET", "/v1/health/node/Win-Host", "", []string{"CheckID", "Status"}},
	{"deregister the check by another spelling", "PUT", "/v1/catalog/deregister", `{"Node":"wIN-host","CheckID":"c"}`, nil},
	{"no check", "GET", "/v1/health/node/Win-Host", "", []string{"CheckID", "Status"}},
	{"deregister by another spelling", "PUT", "/v1/catalog/deregister", `{"Node":"WIN-host"}`, nil},
	{"no node", "GET", "/v1/catalog/node/Win-Host", "", nil},
	{"a transaction by another spelling", "PUT", "/v1/txn", `[{"Node":{"Verb":"set","Node":{"Node":"Tx","Address":"10.9.0.3"}}},{"Check":{"Verb":"set","Check":{"Node":"tX","CheckID":"d","Name":"d","Status":"passing"}}}]`, []string{"CheckID", "Status"}},
	{"deregister what it made", "PUT", "/v1/catalog/deregister", `{"Node":"tx"}`, nil},

	{"no UUID", "PUT", "/v1/catalog/register", `{"Node":"a","ID":"7","Address":"10.9.0.4"}`, nil},
	{"no digits", "PUT", "/v1/catalog/register", `{"Node":"a","ID":"a3b1f0c2-0000-4000-8000-00000000000g","Address":"10.9.0.4"}`, nil},
	{"no dash", "PUT", "/v1/catalog/register", `{"Node":"a","ID":"a3b1f0c200000-4000-8000-00000000000a","Address":"10.9.0.4"}`, nil},
	{"an ID", "PUT", "/v1/catalog/register", `{"Node":"old","ID":"a3b1f0c2-0000-4000-8000-00000000000a","Address":"10.9.0.4","Service":{"Service":"left"}}`, nil},
	{"the ID under another name", "PUT", "/v1/catalog/register", `{"Node":"new","ID":"a3b1f0c2-0000-4000-8000-00000000000a","Address":"10.9.0.4"}`, nil},
	{"the old name", "GET", "/v1/catalog/node/old", "", nil},
	{"the new name", "GET", "/v1/catalog/node/new", "", []string{"ID", "Node", "Address"}},
	{"what was on it", "GET", "/v1/catalog/service/left", "", nil},
	{"another ID under that name", "PUT", "/v1/catalog/register", `{"Node":"NEW","ID":"b3b1f0c2-0000-4000-8000-00000000000b","Address":"10.9.0.5"}`, nil},
	{"the node with it", "GET", "/v1/catalog/node/new", "", []string{"ID", "Address"}},
	{"deregister it", "PUT", "/v1/catalog/deregister", `{"Node":"new"}`, nil},

	{"a service of another datacenter's", "PUT", "/v1/agent/service/register?dc=dc9", `{"Name":"api","Check":{"CheckID":"api","TTL":"10m"}}`, nil},
	{"its check fails", "PUT", "/v1/agent/check/fail/api?note=broken&dc=dc9", "", nil},
	{"the check is registered again", "PUT", "/v1/agent/check/register", `{"ID":"api","Name":"api","TTL":"20m","ServiceID":"api","Status":"passing"}`, nil},
	{"it fails still", "GET", "/v1/agent/checks?dc=dc9", "", []string{"CheckID", "Status", "Output"}},
	{"a bound of outputs below 0", "PUT", "/v1/agent/check/register", `{"ID":"o","Name":"o","TTL":"20m","OutputMaxSize":-1}`, nil},
	{"a large bound of outputs", "PUT", "/v1/agent/check/register", `{"ID":"o","Name":"o","TTL":"20m","OutputMaxSize":99999999999}`, nil},
	{"a check of no service", "PUT", "/v1/agent/check/register", `{"Name":"x","TTL":"20m","ServiceID":"none"}`, nil},
	{"no UUID in a transaction", "PUT", "/v1/txn", `[{"Node":{"Verb":"set","Node":{"Node":"a","ID":"7","Address":"10.9.0.6"}}}]`, []string{"What"}},
	{"a session on no node", "PUT", "/v1/session/create", `{"Node":"nosuch"}`, nil},
	{"services of a peer", "GET", "/v1/health/service/api?peer=other", "", nil},
	{"deregister the service", "PUT", "/v1/agent/service/deregister/api?dc=dc9", "", nil},
}

// It sends the same requests to an agent of each.
func TestWildConsulAnswersTheSame(t *testing.T) {
	t.Parallel()
	besideConsul(t, func(t *testing.T, h hosts) (saw []string) {
		for _, r := range rawRequests {
			req := need.Got(http.NewRequestWithContext(t.Context(), r.method, h.agents[0]+r.path, strings.NewReader(r.body)))(t)
			resp := need.Got(http.DefaultClient.Do(req))(t)
			body := need.Got(io.ReadAll(resp.Body))(t)
			resp.Body.Close()
			said := strings.TrimSpace(string(body))
			if r.fields != nil {
				var found []string
				for _, field := range r.fields {
					for _, m := range regexp.MustCompile(`"`+field+`": ?("[^"]*"|[0-9]+)`).FindAllStringSubmatch(said, -1) {
						found = append(found, field+" "+m[1])
					}
				}
				said = strings.Join(found, ", ")
			}
			saw = append(saw, fmt.Sprintf("%s: %d %s", r.name, resp.StatusCode, said))
		}
		return saw
	})
}

// patroniMember is one PostgreSQL server with the Patroni that decides whether it is the primary.
type patroniMember struct {
	name, dir     string
	sql, rest     int // ports
	process       *Process
	mu            sync.Mutex
	acknowledged  int
	first, latest time.Time // start of the first acknowledged write, and end of the last one
}

// postgresPrograms returns the folder of Debian's PostgreSQL; the test skips without it.
func postgresPrograms(t *testing.T) string {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	_, err := user.Lookup("postgres")
	need.Present(t, len(found) != 0 && err == nil && os.Geteuid() == 0,
		"PostgreSQL is missing, or this user is not root, and cannot run the servers as the user postgres: apt-get install -y postgresql")
	return filepath.Dir(found[len(found)-1])
}

// asPostgres returns a command as the user postgres: PostgreSQL refuses to run as root.
func asPostgres(args ...string) []string {
	return append([]string{"setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups", "--"}, args...)
}

func startPatroni(t *testing.T, name string, n *Node, programs string, sql, rest int) *patroniMember {
	t.Helper()
	dir := need.Got(os.MkdirTemp("", "patroni-"+name))(t) // accessible to the user postgres, unlike t.TempDir
	postgres, err := user.Lookup("postgres")
	need.OK(t, err)
	uid, _ := strconv.Atoi(postgres.Uid)
	gid, _ := strconv.Atoi(postgres.Gid)
	need.OK(t, os.Chown(dir, uid, gid))
	m := &patroniMember{name: name, dir: dir, sql: sql, rest: rest}
	config := fmt.Sprintf(`
scope: demo
name: %[1]s
restapi: {listen: "127.0.0.1:%[2]d", connect_address: "127.0.0.1:%[2]d"}
consul: {host: "%[3]s"}
bootstrap:
  dcs: {postgresql: {use_pg_rewind: false}} # all else by default
  initdb: [{encoding: UTF8}, {auth-local: trust}, {auth-host: trust}, no-sync]
postgresql:
  listen: "127.0.0.1:%[4]d"
  connect_address: "127.0.0.1:%[4]d"
  data_dir: %[5]s/data
  bin_dir: %[6]s
  pgpass: %[5]s/pgpass
  parameters: {unix_socket_directories: %[5]s, shared_buffers: 16MB, max_connections: 20, dynamic_shared_memory_type: mmap}
  pg_hba: ["local all all trust", "host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"]
  authentication:
    superuser: {username: postgres}
    replication: {username: replicator}
`, name, rest, n.HTTP, sql, dir, programs)
	file := filepath.Join(dir, "patroni.yml")
	need.OK(t, os.WriteFile(file, []byte(config), 0o644))
	// A copy, and a folder of its own to run in, because the user postgres may not enter a checkout that only root
	// may read.
	venv := filepath.Join(dir, "venv")
	need.OK(t, os.CopyFS(venv, os.DirFS("clients/consul/patroni/.venv")))
	m.process, err = launch(t, filepath.Join(t.TempDir(), name+".log"), []string{"HOME=" + dir},
		asPostgres("env", "--chdir", dir, filepath.Join(venv, "bin/python3"), filepath.Join(venv, "bin/patroni"), file))
	need.OK(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s: %s", name, m.process.LastWords(30))
		}
		m.process.Kill()
		m.killServer()
		os.RemoveAll(dir)
	})
	return m
}

// killServer ends the PostgreSQL server, which outlives its Patroni, and removes the shared memory that would tell it
// of another one in its folder. Its id is the last word of the pid file's seventh line.
func (m *patroniMember) killServer() {
	text, err := os.ReadFile(filepath.Join(m.dir, "data", "postmaster.pid"))
	if err != nil {
		return
	}
	lines := strings.Split(string(text), "\n")
	if pid, err := strconv.Atoi(lines[0]); err == nil && pid > 1 {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	if len(lines) > 6 {
		if words := strings.Fields(lines[6]); len(words) == 2 {
			exec.Command("ipcrm", "-m", words[1]).Run() // fails if it is gone
		}
	}
}

// query runs a statement at a member's own server.
func (m *patroniMember) query(ctx context.Context, programs, statement string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(programs, "psql"), "-h", "127.0.0.1", "-p", strconv.Itoa(m.sql), "-U", "postgres", "-tAqc", statement, "postgres").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// write writes to a member's server until ctx ends, and records what is acknowledged.
func (m *patroniMember) write(ctx context.Context, programs string) {
	for ctx.Err() == nil {
		began := time.Now()
		if _, err := m.query(ctx, programs, "insert into marks values (now())"); err == nil {
			m.mu.Lock()
			if m.acknowledged++; m.acknowledged == 1 {
				m.first = began
			}
			m.latest = time.Now()
			m.mu.Unlock()
		}
		select {
		case <-ctx.Done():
		case <-time.After(300 * time.Millisecond):
		}
	}
}

func (m *patroniMember) writes() (n int, first, latest time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.acknowledged, m.first, m.latest
}

// Patroni asks for a session of half of its ttl of 30 s, and counts on twice that.
func TestPatroniWithDefaultsFailsOverOnceAndNeverHasTwoPrimaries(t *testing.T) {
	t.Parallel()
	installed(t, "consul/patroni/.venv/.stamp", "apt-get install -y python3-venv, then make clients")
	programs := postgresPrograms(t)
	c := StartCluster(t, withSteadyLeader(Config{}))
	var ports [4]int
	for i := range ports {
		_, port, _ := strings.Cut(FreeAddr(t), ":")
		ports[i], _ = strconv.Atoi(port)
	}
	kv := consulClient(t, c.Nodes[2]).KV()
	leader := func() *api.KVPair { return value[*api.KVPair, *api.QueryMeta](t)(kv.Get("service/demo/leader", nil)) }
	a := startPatroni(t, "a", c.Nodes[0], programs, ports[0], ports[1])
	Eventually(t, clientLimit, "the first member leads", func() error {
		if p := leader(); p == nil || string(p.Value) != "a" {
			return fmt.Errorf("the leader's key is %+v", p)
		}
		_, err := a.query(t.Context(), programs, "create table if not exists marks (at timestamptz)")
		return err
	})
	b := startPatroni(t, "b", c.Nodes[1], programs, ports[2], ports[3])
	Eventually(t, clientLimit, "the second member has what the first has", func() error {
		_, err := b.query(t.Context(), programs, "select count(*) from marks")
		return err
	})
	ctx, cancel := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	for _, m := range []*patroniMember{a, b} {
		writers.Go(func() { m.write(ctx, programs) })
	}
	defer writers.Wait()
	defer cancel()

	Eventually(t, ReadyLimit, "the leader's session was renewed a moment ago", func() error {
		var s struct {
			EndsIn int `json:"ends_in_ms"`
		}
		decode(t, c.Nodes[0].Do(Request{Path: "/v1/rollcall/sessions/" + leader().Session}).Body, &s)
		return unless(s.EndsIn >= 28_000, "it ends in %d ms", s.EndsIn)
	})
	before := leader()
	a.process.Signal(t, syscall.SIGSTOP)
	time.Sleep(20 * time.Second)
	now := leader()
	expect.That(t, string(now.Value) == "a" && now.Session == before.Session && now.LockIndex == before.LockIndex,
		"after 20 s in which the leader's Patroni was stopped the key is %+v, want it of the same session as %+v", now, before)
	a.process.Signal(t, syscall.SIGCONT)
	n, _, _ := b.writes()
	expect.That(t, n == 0, "the other server acknowledged %d writes meanwhile", n)

	a.process.Kill()
	a.killServer()
	Eventually(t, clientLimit, "the other member takes over", func() error {
		if n, _, _ := b.writes(); n == 0 {
			return fmt.Errorf("it has acknowledged nothing; the leader's key is %+v", leader())
		}
		return nil
	})
	cancel()
	writers.Wait()
	n, _, last := a.writes()
	m, first, _ := b.writes()
	expect.That(t, n != 0 && m != 0 && last.Before(first),
		"%d writes acknowledged by the first until %v, %d by the second from %v on: want none by both at once", n, last, m, first)
	now = leader()
	expect.That(t, now != nil && string(now.Value) == "b", "the leader's key is %+v, want b's", now)
	t.Logf("%d and %d writes acknowledged, %v apart", n, m, first.Sub(last))
}
