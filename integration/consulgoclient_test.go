package integration

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// consulTransport is shared by all clients of Consul's, so that connections are kept alive. With a TLS
// configuration the library leaves it as it is.
var consulTransport = &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute, TLSClientConfig: &tls.Config{}}

// consulClient is Consul's official client, configured with one node.
func consulClient(t *testing.T, n *Node) *api.Client {
	t.Helper()
	return need.Got(api.NewClient(&api.Config{Address: n.HTTP, Transport: consulTransport, Token: n.Token}))(t)
}

// patientConsul is a client of Consul's whose calls are repeated for as long as there is no leader, so that nothing was
// done: for the preparations and the reads of a test. In tests about a missing leader clients get the refusals.
func patientConsul(t *testing.T, n *Node) *api.Client {
	t.Helper()
	return need.Got(api.NewClient(&api.Config{Address: n.HTTP, HttpClient: &http.Client{Transport: ledTransport{}}}))(t)
}

// ledTransport is consulTransport for a patientConsul.
type ledTransport struct{}

// RoundTrip implements http.RoundTripper.
func (ledTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	var asked []byte
	if req.Body != nil {
		var err error
		if asked, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
		req.Body.Close()
	}
	return readUntilTaken(func() (*http.Response, error) {
		again := req.Clone(req.Context())
		if req.Body != nil {
			again.Body = io.NopCloser(bytes.NewReader(asked))
		}
		resp, err := consulTransport.RoundTrip(again)
		if err != nil || resp.StatusCode != http.StatusInternalServerError {
			return resp, err
		}
		said, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err == nil && bytes.HasPrefix(said, []byte("No cluster leader")) && req.Context().Err() == nil {
			err = fmt.Errorf("%w: %s", errRefused, said)
		}
		resp.Body = io.NopCloser(bytes.NewReader(said))
		return resp, err
	})
}

// unled marks the error of a call that a client made while there was no leader, and does not repeat by itself.
func unled(err error) error {
	if err != nil && strings.Contains(err.Error(), "No cluster leader") {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	return err
}

// value is need.Got for a call that tells something about its response, too.
func value[T, M any](t *testing.T) func(T, M, error) T {
	return func(v T, _ M, err error) T {
		t.Helper()
		need.OK(t, err)
		return v
	}
}

// lockOptions are those of a program that cannot wait for the defaults' 15 s.
func lockOptions(key string) *api.LockOptions {
	return &api.LockOptions{Key: key, Value: []byte("held"), SessionTTL: "10s", LockDelay: time.Millisecond}
}

// TestConsulsLockOutlivesTheLeader holds a lock through a follower while the leader is killed: the holder must not lose
// it, no other client may get it, and it goes to the waiting client as soon as it is free.
func TestConsulsLockOutlivesTheLeader(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Config{})
	leader := c.Leader()
	others := c.Others(leader)
	first := need.Got(consulClient(t, others[0]).LockOpts(lockOptions("locks/demo")))(t)
	lost := need.Got(readUntilTaken(func() (<-chan struct{}, error) {
		lost, err := first.Lock(nil)
		return lost, unled(err)
	}))(t)

	second := need.Got(consulClient(t, others[1]).LockOpts(lockOptions("locks/demo")))(t)
	acquired := make(chan error, 1)
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	go func() {
		acquired <- untilTaken(func() error {
			_, err := second.Lock(stop)
			return unled(err)
		})
	}()

	leader.Kill()
	c.Leader(others...)
	select {
	case <-lost:
		t.Fatal("the holder lost its lock when the leader was killed")
	case err := <-acquired:
		t.Fatalf("the second got the lock while the first held it (%v)", err)
	case <-time.After(12 * time.Second): // longer than the session lives without being renewed
	}
	// Without a leader it is given up by the end of its session.
	if err := first.Unlock(); !errors.Is(unled(err), errRefused) {
		need.OK(t, err)
	}
	select {
	case err := <-acquired:
		need.OK(t, err)
	case <-time.After(ReadyLimit):
		t.Fatal("the lock is free, and the client that waits does not get it")
	}
	need.OK(t, second.Unlock())
	leader.Start(t)
	leader.WaitReady(t)
}

// TestConsulsLockOfADeadHolderIsFreed: a holder that stops renewing loses its lock after twice its TTL, as with
// Consul, and the lock delay.
func TestConsulsLockOfADeadHolderIsFreed(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Config{})
	client := patientConsul(t, c.Nodes[0])
	began := time.Now()
	session := value[string, *api.WriteMeta](t)(client.Session().Create(&api.SessionEntry{TTL: "10s", LockDelay: time.Second}, nil))
	need.That(t, value[bool, *api.WriteMeta](t)(client.KV().Acquire(&api.KVPair{Key: "dead", Session: session}, nil)),
		"the key has no holder, and it was not acquired")
	heir := value[string, *api.WriteMeta](t)(patientConsul(t, c.Nodes[1]).Session().Create(&api.SessionEntry{TTL: "60s"}, nil))
	Eventually(t, ReadyLimit, "the lock of the dead holder is free", func() error {
		ok, _, err := consulClient(t, c.Nodes[1]).KV().Acquire(&api.KVPair{Key: "dead", Session: heir}, nil)
		if err != nil || ok {
			return err
		}
		return errors.New("held, or delayed")
	})
	took := time.Since(began)
	expect.That(t, took >= 21*time.Second, "acquired %v after the holder's last sign, want twice its TTL of 10 s and its lock-delay of 1 s", took)
}

// TestConsulsSemaphoreNeverExceedsItsLimit has five contenders at three nodes for a semaphore of two,
// with a leader killed.
func TestConsulsSemaphoreNeverExceedsItsLimit(t *testing.T) {
	t.Parallel()
	const contenders, limit = 5, 2
	c := StartCluster(t, Config{})
	leader := c.Leader()
	inside := make(chan int, contenders)
	for range limit {
		inside <- 0
	}
	done := make(chan error, contenders)
	for i := range contenders {
		client := patientConsul(t, c.Others(leader)[i%2])
		go func() {
			done <- func() error {
				s, err := client.SemaphoreOpts(&api.SemaphoreOptions{Prefix: "semaphores/demo", Limit: limit, SessionTTL: "10s", MonitorRetries: 3})
				if err != nil {
					return err
				}
				err = Poll(ReadyLimit, func() error { // a call that was under way when the leader died has an unknown outcome
					_, err := s.Acquire(nil)
					return err
				})
				if err != nil {
					return fmt.Errorf("acquire: %w", err)
				}
				select {
				case <-inside:
				default:
					return fmt.Errorf("more than %d hold a permit", limit)
				}
				<-time.After(300 * time.Millisecond) // the work
				inside <- 0
				if err := s.Release(); err != nil && !strings.Contains(err.Error(), "it is not known") { // then the permit ends with its session
					return fmt.Errorf("release: %w", err)
				}
				return nil
			}()
		}()
	}
	leader.Kill()
	c.Leader(c.Others(leader)...)
	for range contenders {
		select {
		case err := <-done:
			need.OK(t, err)
		case <-time.After(2 * ReadyLimit):
			t.Fatal("not all contenders had their turn")
		}
	}
	leader.Start(t)
	leader.WaitReady(t)
}

// TestConsulsKeysThroughALeaderKill: compare-and-set counters at all nodes lose no step, and a blocking
// read at a follower survives the leader.
func TestConsulsKeysThroughALeaderKill(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Config{})
	leader := c.Leader()
	others := c.Others(leader)
	kv := consulClient(t, others[0]).KV()
	need.OK(t, second(patientConsul(t, others[0]).KV().Put(&api.KVPair{Key: "watched", Value: []byte("old"), Flags: 1<<64 - 1}, nil)))
	pair, meta, err := patientConsul(t, others[0]).KV().Get("watched", nil)
	need.OK(t, err)
	expect.That(t, pair.Flags == 1<<64-1 && meta.LastIndex == pair.ModifyIndex && meta.KnownLeader,
		"got %+v with %+v, want all 64 bits of the flags, the key's own index and a known leader", pair, meta)
	type answer struct {
		pair *api.KVPair
		err  error
	}
	changed := make(chan answer, 1)
	go func() {
		pair, _, err := kv.Get("watched", &api.QueryOptions{WaitIndex: meta.LastIndex, WaitTime: ReadyLimit})
		changed <- answer{pair, err}
	}()
	leader.Kill()
	c.Leader(others...)
	need.OK(t, second(patientConsul(t, others[1]).KV().Put(&api.KVPair{Key: "watched", Value: []byte("new")}, nil)))
	select {
	case a := <-changed:
		need.OK(t, a.err)
		expect.That(t, string(a.pair.Value) == "new", "the blocking read answered %q, want the new value", a.pair.Value)
	case <-time.After(ReadyLimit):
		t.Fatal("the blocking read slept through the change")
	}
	leader.Start(t)
	leader.WaitReady(t)
	count(t, c)
}

// second is the error of a call of which nothing else matters.
func second[T any](_ T, err error) error { return err }

// count has a client at each node add to one counter by compare-and-set.
func count(t *testing.T, c *Cluster) {
	t.Helper()
	const steps = 20
	done := make(chan error, len(c.Nodes))
	for _, n := range c.Nodes {
		kv := patientConsul(t, n).KV()
		go func() {
			for range steps {
				if err := step(kv); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range c.Nodes {
		need.OK(t, <-done)
	}
	pair := value[*api.KVPair, *api.QueryMeta](t)(patientConsul(t, c.Nodes[0]).KV().Get("counter", nil))
	want := fmt.Sprint(steps * len(c.Nodes))
	expect.That(t, string(pair.Value) == want, "the counter is %s, want %s", pair.Value, want)
}

// step adds one to the counter.
func step(kv *api.KV) error {
	for {
		pair, _, err := kv.Get("counter", nil)
		if err != nil {
			return err
		}
		n := 0
		if pair == nil {
			pair = &api.KVPair{Key: "counter"}
		} else if _, err := fmt.Sscan(string(pair.Value), &n); err != nil {
			return err
		}
		pair.Value = fmt.Append(nil, n+1)
		ok, _, err := kv.CAS(pair, nil)
		if err != nil || ok {
			return err
		}
	}
}

// TestConsulsClientUpdatesChecksInTransactionsThroughALeaderKill does what consul-esm does: it sets the check of an external
// node by compare-and-set, here together with a key that counts. The leader is killed meanwhile. Whatever a reader sees, the
// two are of one transaction; a call of unknown outcome was performed, or was not.
func TestConsulsClientUpdatesChecksInTransactionsThroughALeaderKill(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Config{})
	leader := c.Leader()
	others := c.Others(leader)
	client := patientConsul(t, others[0])
	need.OK(t, second(client.Catalog().Register(&api.CatalogRegistration{Node: "far", Address: "192.0.2.1",
		Check: &api.AgentCheck{Node: "far", CheckID: "up", Name: "is up", Output: "0"}}, nil)))
	need.OK(t, second(client.KV().Put(&api.KVPair{Key: "counter", Value: []byte("0")}, nil)))
	const half = 10
	for _, until := range []int{half, 2 * half} {
		Eventually(t, actLimit, fmt.Sprintf("the check was set %d times", until), func() error {
			for {
				n, err := setCheckAndCount(t, client, until)
				if err != nil || n == until {
					return err
				}
			}
		})
		if until == half {
			leader.Kill()
		}
	}
	checks := value[api.HealthChecks, *api.QueryMeta](t)(patientConsul(t, others[1]).Health().Node("far", nil))
	need.That(t, len(checks) == 1 && checks[0].Output == fmt.Sprint(2*half) && checks[0].Name == "is up", "at another node the checks are %+v", checks)
}

// setCheckAndCount reads a check and a key in a transaction, which must say the same number, and sets both to the next one,
// up to a limit. n is what they said.
func setCheckAndCount(t *testing.T, client *api.Client, limit int) (n int, err error) {
	t.Helper()
	ok, now, _, err := client.Txn().Txn(api.TxnOps{
		{Check: &api.CheckTxnOp{Verb: api.CheckGet, Check: api.HealthCheck{Node: "far", CheckID: "up"}}},
		{KV: &api.KVTxnOp{Verb: api.KVGet, Key: "counter"}},
	}, nil)
	if err != nil {
		return 0, err
	}
	need.That(t, ok && len(now.Results) == 2, "reading: %+v", now)
	check, pair := now.Results[0].Check, now.Results[1].KV
	need.Equal(t, string(pair.Value), check.Output, "of one transaction, the key:")
	if _, err := fmt.Sscan(check.Output, &n); err != nil || n >= limit {
		return n, err
	}
	next := *check
	next.Output, next.Status = fmt.Sprint(n+1), api.HealthPassing
	_, _, _, err = client.Txn().Txn(api.TxnOps{
		{Check: &api.CheckTxnOp{Verb: api.CheckCAS, Check: next}},
		{KV: &api.KVTxnOp{Verb: api.KVCAS, Key: "counter", Index: pair.ModifyIndex, Value: []byte(next.Output)}},
	}, nil)
	return n, err
}

// TestConsulsAgentOutlivesTheLeader registers and reports through the leader, which is killed: the service
// is listed at the others, its TTL runs on, and its heartbeats there keep it.
func TestConsulsAgentOutlivesTheLeader(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Config{})
	leader := c.Leader()
	others := c.Others(leader)
	at := patientConsul(t, leader).Agent()
	need.OK(t, at.ServiceRegister(&api.AgentServiceRegistration{Name: "kept", Port: 80, Check: &api.AgentServiceCheck{TTL: "10s"}}))
	need.OK(t, at.ServiceRegister(&api.AgentServiceRegistration{Name: "silent", Port: 80, Check: &api.AgentServiceCheck{TTL: "10s"}}))
	need.OK(t, at.UpdateTTL("service:kept", "", api.HealthPassing))
	need.OK(t, at.UpdateTTL("service:silent", "", api.HealthPassing))
	leader.Kill()
	kept, read := consulClient(t, others[0]), patientConsul(t, others[1])
	Eventually(t, actLimit, "the service that is silent turns critical, the other one does not", func() error {
		if err := kept.Agent().UpdateTTL("service:kept", "", api.HealthPassing); err != nil {
			return err
		}
		need.Equal(t, passing(t, read, "kept"), 1, "instances of the service that is kept that are passing:")
		return notYet(1-passing(t, read, "silent"), 1)
	})
}

// TestConsulsAgentIsEveryNode registers at one node, sends heartbeats at the next, and deregisters at
// the third (with Consul each of these would be another agent's, and a 404).
func TestConsulsAgentIsEveryNode(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, withSteadyLeader(Config{}))
	a, b, d := consulClient(t, c.Nodes[0]), consulClient(t, c.Nodes[1]), consulClient(t, c.Nodes[2])
	need.OK(t, a.Agent().ServiceRegister(&api.AgentServiceRegistration{
		ID: "web-1", Name: "web", Tags: []string{"v1"}, Address: "10.0.0.7", Port: 8080, Meta: map[string]string{"zone": "a"},
		Check: &api.AgentServiceCheck{TTL: "10s"}, // in which every node is asked
	}))
	expect.That(t, passing(t, d, "web") == 0, "a check begins critical, and the service is listed as passing")
	need.OK(t, b.Agent().UpdateTTL("service:web-1", "fine", api.HealthPassing))
	for _, n := range c.Nodes {
		entries := value[[]*api.ServiceEntry, *api.QueryMeta](t)(consulClient(t, n).Health().Service("web", "v1", true, nil))
		expect.That(t, len(entries) == 1 && entries[0].Service.ID == "web-1" && entries[0].Service.Port == 8080 && entries[0].Service.Meta["zone"] == "a",
			"node %s lists %+v", n.Name, entries)
	}
	Eventually(t, ReadyLimit, "a TTL that is not renewed turns critical", func() error {
		checks, _, err := a.Health().Checks("web", nil)
		if err != nil {
			return err
		}
		return unless(len(checks) == 1 && checks[0].Status == api.HealthCritical, "%+v", checks)
	})
	need.OK(t, d.Agent().ServiceDeregister("web-1"))
	for _, n := range c.Nodes {
		entries := value[[]*api.ServiceEntry, *api.QueryMeta](t)(consulClient(t, n).Health().Service("web", "", false, nil))
		expect.That(t, len(entries) == 0, "node %s still lists %+v", n.Name, entries)
	}
	err := b.Agent().UpdateTTL("service:web-1", "", api.HealthPassing)
	expect.That(t, err != nil, "a heartbeat for a service that is gone is accepted")
}

// passing is how many instances of a service are listed as passing.
func passing(t *testing.T, c *api.Client, service string) int {
	t.Helper()
	return len(value[[]*api.ServiceEntry, *api.QueryMeta](t)(c.Health().Service(service, "", true, nil)))
}

// TestEurekaAndConsulClientsShareOneRegistry: what is registered through one API is found through the other.
func TestEurekaAndConsulClientsShareOneRegistry(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, withSteadyLeader(Config{}))
	mustRegister(t, c.Nodes[0], Instance{App: "ORDERS", ID: "orders-1", Metadata: map[string]string{"zone": "b"}})
	client := consulClient(t, c.Nodes[1])
	entries := value[[]*api.ServiceEntry, *api.QueryMeta](t)(client.Health().Service("orders", "", true, nil))
	if len(entries) != 1 || entries[0].Service.ID != "orders-1" || entries[0].Service.Port != 8080 ||
		entries[0].Service.Address != "127.0.0.1" || entries[0].Service.Meta["zone"] != "b" {
		t.Fatalf("Consul's health lists %+v", entries)
	}
	mustOverride(t, c.Nodes[0], "ORDERS", "orders-1", "OUT_OF_SERVICE")
	expect.Equal(t, passing(t, client, "orders"), 0, "instances that are passing while Eureka's status is OUT_OF_SERVICE:")

	need.OK(t, client.Agent().ServiceRegister(&api.AgentServiceRegistration{
		ID: "pay-1", Name: "payments", Address: "10.0.0.8", Port: 9090, Meta: map[string]string{"zone": "c"},
		Check: &api.AgentServiceCheck{TTL: "1h", Status: api.HealthPassing},
	}))
	status := func(want string) {
		t.Helper()
		instance := need.Got(c.Nodes[2].Lookup("PAYMENTS", "127.0.0.1:pay-1"))(t)
		expect.That(t, instance != nil && instance.Status == want && instance.Metadata["zone"] == "c", "Eureka shows %+v, want %s", instance, want)
	}
	status("UP")
	need.OK(t, client.Agent().FailTTL("service:pay-1", "broken"))
	status("DOWN")
	need.OK(t, client.Agent().PassTTL("service:pay-1", ""))
	need.OK(t, client.Agent().EnableServiceMaintenance("pay-1", "new disk"))
	status("OUT_OF_SERVICE")
	expect.OKf(t, c.Nodes[2].Renew("PAYMENTS", "127.0.0.1:pay-1").is(200), "a heartbeat of Eureka's on it")
	expect.OKf(t, c.Nodes[0].Cancel("PAYMENTS", "127.0.0.1:pay-1").is(200), "Eureka's cancel")
	services := value[map[string][]string, *api.QueryMeta](t)(client.Catalog().Services(nil))
	_, there := services["payments"]
	expect.That(t, !there, "Consul's catalog still lists it after Eureka's cancel: %v", services)
}

// ownTests are the tests of Consul's official Go client, by the client's files, that are about what Rollcall serves.
// The others are about the service mesh (two of catalog_test.go's register a proxy), access control, the metadata of an
// agent's node, the federation of datacenters and the agent of a machine (its maintenance); one compares the hash of a
// service's document with Consul's own.
var ownTests = map[string]string{
	"kv":        `TestAPI_(ClientPutGetDelete|ClientList_DeleteRecurse|ClientDeleteCAS|ClientCAS|ClientWatchGet|ClientWatchList|ClientKeys_DeleteRecurse|ClientAcquireRelease|KVClientTxn)`,
	"lock":      `TestAPI_Lock(LockUnlock|ForceInvalidate|DeleteKey|Contend|Destroy|Conflict|ReclaimLock|MonitorRetry|OneShot)`,
	"semaphore": `TestAPI_Semaphore(AcquireRelease|ForceInvalidate|DeleteKey|Contend|BadLimit|Destroy|Conflict|MonitorRetry|OneShot)`,
	"session":   `TestAPI_Session(CreateDestroy|CreateRenewDestroy|CreateRenewDestroyRenew|CreateDestroyRenewPeriodic|RenewPeriodic_Cancel|Info|Info_NoChecks|Node|List|NodeChecks|ServiceChecks)`,
	"status":    `TestAPI_Status(Leader|LeaderWithQueryOptions|Peers|PeersWithQueryOptions|Leader_WrongDC|Peers_WrongDC)`,
	"agent": `(TestAPI_Agent(Self|Members|ServiceAndReplaceChecks|Services|Services_CheckPassing|Services_CheckBadStatus|Services_CheckID|ServiceAddress|` +
		`EnableTagOverride|Services_MultipleChecks|SetTTLStatus|UpdateTTLOpts|Checks|CheckStartPassing|Checks_serviceBound|HealthServiceOpts|ServicesWithFilterOpts|ChecksWithFilterOpts)|` +
		`TestAPI_ServiceMaintenanceOpts|TestAgent_(ServiceRegisterOpts|AgentChecksRegisterOpts)_WithContextTimeout)`,
	"catalog": `TestAPI_Catalog(Datacenters|Nodes|Nodes_Filter|Services|Service|Service_SingleTag|Service_MultipleTags|Service_Filter|Connect_Filter|Node_Filter|Registration|EnableTagOverride)`,
	"health":  `TestAPI_Health(Node|Node_Filter|Checks_AggregatedStatus|Checks|Checks_Filter|Service|Service_SingleTag|Service_MultipleTags|Service_Filter|Connect_Filter|State|State_Filter)`,
	"txn":     `TestAPI_(ClientTxn|ClientTxnWrite)`,
}

// ownTries is how often one of them may be run until it passes. Some have bounds for a machine that does nothing else:
// one expects three calls and a wait of 250 ms to take at most half a second.
const ownTries = 3

// TestConsulsClientPassesItsOwnTests runs the tests that come with github.com/hashicorp/consul/api, as
// its authors wrote them, with Rollcall in the place of the consul program that they start: for some files one that asks for
// the token that is in the tests' environment.
func TestConsulsClientPassesItsOwnTests(t *testing.T) {
	t.Parallel()
	program := compileOwnTests(t)
	path := standIn(t)
	for file, names := range ownTests {
		behind := "1"
		if file == "kv" || file == "session" || file == "catalog" { // so many are enough to see a token with every call
			behind = "1 secured"
		}
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			passed := 0
			out, err := runOwnTests(t.Context(), t, program, path, behind, names, 4)
			for try := 1; ; try++ {
				skipped := regexp.MustCompile(`(?m)^--- SKIP: .*$`).FindAll(out, -1)
				expect.That(t, len(skipped) == 0, "skipped, so nothing is known of them:\n%s", bytes.Join(skipped, []byte("\n")))
				passed += len(regexp.MustCompile(`(?m)^--- PASS: `).FindAll(out, -1))
				if err == nil {
					break
				}
				failed := regexp.MustCompile(`(?m)^--- FAIL: (\w+)`).FindAllStringSubmatch(string(out), -1)
				if len(failed) == 0 || try == ownTries {
					t.Fatalf("%v\n%s", err, failures(out))
				}
				t.Logf("%v; those that failed are run again:\n%s", err, failures(out))
				var again []string
				for _, f := range failed {
					again = append(again, f[1])
				}
				out, err = runOwnTests(t.Context(), t, program, path, behind, "("+strings.Join(again, "|")+")", 1)
			}
			want := alternatives(names)
			expect.That(t, passed == want, "%d tests passed, want %d: names have changed", passed, want)
			t.Logf("%d tests of the client's %s_test.go passed", passed, file)
		})
	}
}

// runOwnTests runs those that a pattern names, so many at once. They start the program consul that is in the folder path:
// the stand-in does as the value of asConsul says, and Consul itself does not know it.
func runOwnTests(ctx context.Context, t *testing.T, program, path, behind, names string, atOnce int) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, "-test.v", "-test.timeout=10m", fmt.Sprint("-test.parallel=", atOnce), "-test.run", "^"+names+"$")
	temp, err := os.MkdirTemp("", "own") // one of the tests puts a socket there, whose path has 107 bytes at most
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp)
	cmd.Env = append(os.Environ(), asConsul+"="+behind, "PATH="+path+string(filepath.ListSeparator)+os.Getenv("PATH"), "TMPDIR="+temp)
	if strings.HasSuffix(behind, " secured") {
		cmd.Env = append(cmd.Env, "CONSUL_HTTP_TOKEN="+ownTestsToken)
	}
	return cmd.CombinedOutput()
}

// alternatives counts the tests that a pattern of ownTests names.
func alternatives(pattern string) int {
	return len(regexp.MustCompile(`\w+\||\w+\)`).FindAllString(strings.ReplaceAll(pattern, ")_", "_"), -1))
}

// compileOwnTests makes the client's test program from a copy of its module.
func compileOwnTests(t *testing.T) string {
	t.Helper()
	source, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/hashicorp/consul/api").Output()
	need.OKf(t, err, "find the client's module")
	dir := filepath.Join(t.TempDir(), "api")
	need.OKf(t, os.CopyFS(dir, os.DirFS(strings.TrimSpace(string(source)))), "copy the client's module")
	writable(t, dir)
	program := filepath.Join(t.TempDir(), "api.test")
	cmd := exec.Command("go", "test", "-c", "-o", program, ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	out, err := cmd.CombinedOutput()
	need.That(t, err == nil, "compile the client's tests: %v\n%s", err, out)
	return program
}

// writable undoes what the module cache does to its files, so that they can be removed.
func writable(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chmod(path, 0o755)
	})
	need.OK(t, err)
}

// standIn returns a directory with a program consul that is this test program.
func standIn(t *testing.T) string {
	t.Helper()
	self := need.Got(os.Executable())(t)
	dir := t.TempDir()
	need.OK(t, os.Symlink(self, filepath.Join(dir, "consul")))
	return dir
}

// failures is the output of the failed tests of a verbose run, without the logs of their servers.
func failures(out []byte) string {
	var kept []string
	for line := range strings.SplitSeq(string(out), "\n") {
		if regexp.MustCompile(`--- FAIL|_test\.go:\d+|Error|panic|^\s+(expected|actual|Messages?)`).MatchString(line) && !strings.Contains(line, "CONFIG JSON") && !strings.Contains(line, "test cmd args") {
			kept = append(kept, line)
		}
	}
	return fmt.Sprintf("%.12000s", strings.Join(kept, "\n"))
}
