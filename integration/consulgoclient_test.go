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
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"golang.org/x/sync/errgroup"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// consulTransport is shared by all clients of Consul's, so that connections are kept alive. With a TLS configuration
// the library leaves it as it is.
var consulTransport = &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute, TLSClientConfig: &tls.Config{}}

// consulClient returns Consul's official client, configured with one node.
func consulClient(t *testing.T, n *Node) *api.Client {
	t.Helper()
	return need.Got(api.NewClient(&api.Config{Address: n.HTTP, Transport: consulTransport, Token: n.Token}))(t)
}

// patientConsul returns a client of Consul's that repeats its calls while no node leads, so that nothing was
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

// value is need.Got for a call that also returns metadata about its response.
func value[T, M any](t *testing.T) func(T, M, error) T {
	return func(v T, _ M, err error) T {
		t.Helper()
		need.OK(t, err)
		return v
	}
}

// lockOptions returns the options of a program that cannot wait for the default 15 s.
func lockOptions(key string) *api.LockOptions {
	return &api.LockOptions{Key: key, Value: []byte("held"), SessionTTL: "10s", LockDelay: time.Millisecond}
}

// second returns the error of a call whose value is ignored.
func second[T any](_ T, err error) error { return err }

// It registers at one node, sends heartbeats at the next, and deregisters at the third (with Consul each of these
// would be another agent's, and a 404).
func TestConsulsAgentIsEveryNode(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, withSteadyLeader(Config{}))
	a, b, d := consulClient(t, c.Nodes[0]), consulClient(t, c.Nodes[1]), consulClient(t, c.Nodes[2])
	need.OK(t, a.Agent().ServiceRegister(&api.AgentServiceRegistration{
		ID: "web-1", Name: "web", Tags: []string{"v1"}, Address: "10.0.0.7", Port: 8080, Meta: map[string]string{"zone": "a"},
		Check: &api.AgentServiceCheck{TTL: "10s"}, // during which every node is asked
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

// passing returns how many instances of a service are listed as passing.
func passing(t *testing.T, c *api.Client, service string) int {
	t.Helper()
	return len(value[[]*api.ServiceEntry, *api.QueryMeta](t)(c.Health().Service(service, "", true, nil)))
}

// ownTests has the tests of Consul's official Go client, by the client's files, that are about what Rollcall serves.
// The others are about the service mesh (two in catalog_test.go register a proxy), access control, the metadata of an
// agent's node, the federation of datacenters and the agent of a machine (its maintenance); one compares the hash of
// a service's document with Consul's own.
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

// ownTries is how often one of them may be run until it passes. Some have bounds for a machine that does nothing
// else: one expects three calls and a wait of 250 ms to take at most half a second.
const ownTries = 3

// It runs the tests that come with github.com/hashicorp/consul/api, as their authors wrote them, with Rollcall
// instead of the consul program that they start: for some files one that asks for the token in the tests'
// environment.
func TestConsulsClientPassesItsOwnTests(t *testing.T) {
	t.Parallel()
	program := compileOwnTests(t)
	path := standIn(t)
	for file, names := range ownTests {
		behind := "1"
		// this many are enough to see a token with every call
		if file == "kv" || file == "session" || file == "catalog" {
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

// runOwnTests runs the tests that a pattern names, atOnce at a time. They start the program consul in the folder
// path: the stand-in does what the value of asConsul says; Consul itself does not know that variable.
func runOwnTests(ctx context.Context, t *testing.T, program, path, behind, names string, atOnce int) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, "-test.v", "-test.timeout=10m", fmt.Sprint("-test.parallel=", atOnce), "-test.run", "^"+names+"$")
	temp, err := os.MkdirTemp("", "own") // one of the tests puts a socket there, whose path has at most 107 bytes
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

// compileOwnTests compiles the client's test program from a copy of its module.
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

// failures returns the output of the failed tests of a verbose run, without the logs of their servers.
func failures(out []byte) string {
	var kept []string
	for line := range strings.SplitSeq(string(out), "\n") {
		if regexp.MustCompile(`--- FAIL|_test\.go:\d+|Error|panic|^\s+(expected|actual|Messages?)`).MatchString(line) && !strings.Contains(line, "CONFIG JSON") && !strings.Contains(line, "test cmd args") {
			kept = append(kept, line)
		}
	}
	return fmt.Sprintf("%.12000s", strings.Join(kept, "\n"))
}

// ownTestsPage says which of the tests of Consul's Go client pass, and why the others do not.
const ownTestsPage = "../docs/reference/protocol/consul-tests.md"

// The sections of the page.
const (
	everywhere   = "Passed"
	laterConsul  = "Passed, and not with Consul 1.15.6" // the one of make wild, which is older than the client
	atHostsAgent = "Passed at the agent of a host"
	onOneNode    = "Passed on one node"
	notPassed    = "Not passed"
	nowhere      = "Not passed with Consul either"
)

// ownTestsPlaces has what replaces the agent that a test starts.
var ownTestsPlaces = []struct {
	name     string
	behind   string // the value of asConsul; "" for Consul itself
	sections []string
	passed   []string // of these
}{
	{"one node", "1", []string{everywhere, laterConsul, atHostsAgent, onOneNode, notPassed, nowhere}, []string{everywhere, laterConsul, atHostsAgent, onOneNode}},
	{"three nodes", "3", []string{everywhere, laterConsul, atHostsAgent, onOneNode, notPassed, nowhere}, []string{everywhere, laterConsul, atHostsAgent}},
	{"Consul", "", []string{everywhere, laterConsul, atHostsAgent, onOneNode, nowhere}, []string{everywhere, atHostsAgent, onOneNode}},
}

// It runs all tests of Consul's Go client, including those about what Rollcall does not serve, and compares the
// outcome with the page. A test that should pass is run up to ownTries times; one that should not but does is a
// mistake in the page, too.
func TestWildConsulsOwnTestsAreAsThePageSays(t *testing.T) {
	consul := filepath.Dir(inTheWild(t, "consul")[0])
	program, shim := compileOwnTests(t), standIn(t)
	names := strings.Fields(string(need.Got(exec.Command(program, "-test.list", ".*").Output())(t)))
	sections := pageOfOwnTests(t)
	for _, name := range names {
		expect.That(t, sections[name] != "", "the page does not name %s", name)
	}
	need.Equal(t, len(sections), len(names), "tests that the page names:")
	for _, place := range ownTestsPlaces {
		t.Run(place.name, func(t *testing.T) {
			path := shim
			if place.behind == "" {
				path = consul
			}
			var g errgroup.Group
			g.SetLimit(3)
			var run []string
			for _, name := range names {
				if slices.Contains(place.sections, sections[name]) {
					run = append(run, name)
				}
			}
			got := make([]error, len(run))
			passes := func(name string) bool { return slices.Contains(place.passed, sections[name]) }
			for i, name := range run {
				behind := place.behind
				if sections[name] == atHostsAgent {
					behind += " host"
				}
				g.Go(func() error {
					for try := 1; try == 1 || try <= ownTries && got[i] != nil && passes(name); try++ {
						got[i] = runOwnTest(t, program, path, behind, name)
					}
					return nil
				})
			}
			need.OK(t, g.Wait())
			passed := 0
			for i, name := range run {
				if got[i] == nil {
					passed++
				} else {
					t.Logf("%s: %v", name, got[i])
				}
				expect.That(t, (got[i] == nil) == passes(name), "%s passes: %v, and the page has it under %q", name, got[i] == nil, sections[name])
			}
			t.Logf("%d of %d tests passed", passed, len(run))
		})
	}
}

// runOwnTest returns nil if a test passes, and otherwise its output.
func runOwnTest(t *testing.T, program, path, behind, name string) error {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, err := runOwnTests(ctx, t, program, path, behind, name, 1)
	switch {
	case bytes.Contains(out, []byte("--- SKIP: "+name+" ")):
		return errors.New("it skips itself")
	case err != nil:
		return fmt.Errorf("%w\n%s", err, failures(out))
	}
	return nil
}

// pageOfOwnTests reads which section of the page names each test.
func pageOfOwnTests(t *testing.T) map[string]string {
	t.Helper()
	page := need.Got(os.ReadFile(ownTestsPage))(t)
	sections := make(map[string]string)
	for _, section := range strings.Split(string(page), "\n## ")[1:] {
		heading, body, _ := strings.Cut(section, "\n")
		for _, name := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(body, -1) {
			earlier, twice := sections[name[1]]
			expect.That(t, !twice, "the page names %s under %q and under %q", name[1], earlier, heading)
			sections[name[1]] = heading
		}
	}
	return sections
}
