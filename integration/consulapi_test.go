package integration

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// ownTests are the tests of Consul's official Go client, by its own files, that are about what Rollcall
// serves. The others are about the service mesh (two of catalog_test.go's register a proxy), access control,
// filter expressions, the federation of datacenters and the agent of a machine (its maintenance); one compares the hash of a
// service's document with Consul's own.
var ownTests = map[string]string{
	"kv":        `TestAPI_(ClientPutGetDelete|ClientList_DeleteRecurse|ClientDeleteCAS|ClientCAS|ClientWatchGet|ClientWatchList|ClientKeys_DeleteRecurse|ClientAcquireRelease|KVClientTxn)`,
	"lock":      `TestAPI_Lock(LockUnlock|ForceInvalidate|DeleteKey|Contend|Destroy|Conflict|ReclaimLock|MonitorRetry|OneShot)`,
	"semaphore": `TestAPI_Semaphore(AcquireRelease|ForceInvalidate|DeleteKey|Contend|BadLimit|Destroy|Conflict|MonitorRetry|OneShot)`,
	"session":   `TestAPI_Session(CreateDestroy|CreateRenewDestroy|CreateRenewDestroyRenew|CreateDestroyRenewPeriodic|RenewPeriodic_Cancel|Info|Info_NoChecks|Node|List|NodeChecks|ServiceChecks)`,
	"status":    `TestAPI_Status(Leader|LeaderWithQueryOptions|Peers|PeersWithQueryOptions|Leader_WrongDC|Peers_WrongDC)`,
	"agent": `(TestAPI_Agent(Self|Members|ServiceAndReplaceChecks|Services|Services_CheckPassing|Services_CheckBadStatus|Services_CheckID|ServiceAddress|` +
		`EnableTagOverride|Services_MultipleChecks|SetTTLStatus|UpdateTTLOpts|Checks|CheckStartPassing|Checks_serviceBound|HealthServiceOpts)|` +
		`TestAPI_ServiceMaintenanceOpts|TestAgent_(ServiceRegisterOpts|AgentChecksRegisterOpts)_WithContextTimeout)`,
	"catalog": `TestAPI_Catalog(Datacenters|Nodes|Services|Service|Service_SingleTag|Service_MultipleTags|Registration|EnableTagOverride)`,
	"health":  `TestAPI_Health(Node|Checks_AggregatedStatus|Checks|Service|Service_SingleTag|Service_MultipleTags|State)`,
}

// ownTries is how often one of them may be run until it passes. Some have bounds of a machine that does nothing
// else: one wants three calls and a wait of 250 ms to take at most half a second.
const ownTries = 3

// TestConsulsClientPassesItsOwnTests runs the tests that come with github.com/hashicorp/consul/api, as
// its authors wrote them, with Rollcall in the place of the consul program that they start.
func TestConsulsClientPassesItsOwnTests(t *testing.T) {
	t.Parallel()
	program := compileOwnTests(t)
	path := standIn(t)
	for file, names := range ownTests {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			run := func(names string, atOnce int) (out []byte, err error) {
				cmd := exec.CommandContext(t.Context(), program, "-test.v", "-test.timeout=10m", fmt.Sprint("-test.parallel=", atOnce), "-test.run", "^"+names+"$")
				cmd.Env = append(os.Environ(), asConsul+"=1", "PATH="+path+string(filepath.ListSeparator)+os.Getenv("PATH"), "TMPDIR="+t.TempDir())
				return cmd.CombinedOutput()
			}
			passed := 0
			out, err := run(names, 4)
			for try := 1; ; try++ {
				if skipped := regexp.MustCompile(`(?m)^--- SKIP: .*$`).FindAll(out, -1); len(skipped) > 0 {
					t.Errorf("skipped, so nothing is known of them:\n%s", bytes.Join(skipped, []byte("\n")))
				}
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
				out, err = run("("+strings.Join(again, "|")+")", 1)
			}
			want := alternatives(names)
			expect.That(t, passed == want, "%d tests passed, want %d: names have changed", passed, want)
			t.Logf("%d tests of the client's %s_test.go passed", passed, file)
		})
	}
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
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("compile the client's tests: %v\n%s", err, out)
	}
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

// failures is what the failed tests of a verbose run said, without what they logged of their servers.
func failures(out []byte) string {
	var kept []string
	for line := range strings.SplitSeq(string(out), "\n") {
		if regexp.MustCompile(`--- FAIL|_test\.go:\d+|Error|panic|^\s+(expected|actual|Messages?)`).MatchString(line) && !strings.Contains(line, "CONFIG JSON") && !strings.Contains(line, "test cmd args") {
			kept = append(kept, line)
		}
	}
	return fmt.Sprintf("%.12000s", strings.Join(kept, "\n"))
}
