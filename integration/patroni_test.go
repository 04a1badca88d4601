package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// patroniMember is one PostgreSQL server with the Patroni that decides whether it is the primary.
type patroniMember struct {
	name, dir     string
	sql, rest     int // ports
	process       *Process
	mu            sync.Mutex
	acknowledged  int
	first, latest time.Time // when the first write that was acknowledged began, and the last one ended
}

// postgresPrograms is the folder of Debian's PostgreSQL; the test skips without it.
func postgresPrograms(t *testing.T) string {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	_, err := user.Lookup("postgres")
	need.Present(t, len(found) != 0 && err == nil && os.Geteuid() == 0,
		"PostgreSQL is missing, or this user is not root, and cannot run the servers as the user postgres: apt-get install -y postgresql")
	return filepath.Dir(found[len(found)-1])
}

// asPostgres is a command as the user postgres: PostgreSQL refuses to run as root.
func asPostgres(args ...string) []string {
	return append([]string{"setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups", "--"}, args...)
}

func startPatroni(t *testing.T, name string, n *Node, programs string, sql, rest int) *patroniMember {
	t.Helper()
	dir := need.Got(os.MkdirTemp("", "patroni-"+name))(t) // where the user postgres may go, unlike t.TempDir
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
	// A copy, and a folder of its own to run in, because the user postgres may not go into a checkout that only
	// root may read.
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

// killServer ends the PostgreSQL server, which outlives its Patroni, and removes the shared memory by which it would notice
// another one in its folder. It is the last word of the pid file's seventh line.
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

// TestPatroniWithDefaultsFailsOverOnceAndNeverHasTwoPrimaries: Patroni asks for a session of half of its ttl of
// 30 s, and counts on twice that.
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
