package rollcall_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

const module = "github.com/seed-20419f34/rollcall"

// allowed is the import graph of docs/architecture.md: which of our own packages the non-test code
// of each package may import. A package without a row is an error. "*" means everything.
var allowed = map[string][]string{
	"cmd/rollcall": {"*"},
	"integration":  {"cmd/localcluster", "client", "client/sse", "client/balance", "fsm/registry", "fsm/kv", "httpd/api", "httpd/eureka", "httpd/consul", "replication/wire", "internal/expect", "internal/need"},
	"httpd/api":    {"fsm/registry"},
	"httpd":        {"internal/setting", "httpd/api", "httpd/eureka", "httpd/consul", "httpd/ratelimit", "fsm/registry", "fsm/kv", "fsm/order"},
	"replication":  {"internal/setting", "replication/batcher", "replication/wire", "httpd/api", "httpd/eureka", "fsm/registry"},
	// The dispatcher, which knows nothing of registries.
	"replication/batcher": {},
	// What Rollcall servers tell each other, in bytes.
	"replication/wire": {"fsm/codec", "fsm/registry", "httpd/eureka"},
	"store":            {"internal/setting", "fsm", "fsm/registry", "fsm/kv"},
	"client/sse":       {},
	"client":           {"client/sse", "httpd/api", "httpd/eureka", "httpd/consul", "httpd/ratelimit", "fsm/registry", "fsm/kv", "fsm/order"},
	// What chooses among instances, beside the client so that it stays optional.
	"client/balance": {"client", "fsm/registry"},
	"httpd/eureka":   {"fsm/registry"},
	"httpd/consul":   {"fsm/kv", "fsm/registry"},
	"fsm":            {"fsm/codec", "fsm/registry", "fsm/kv"},
	"fsm/registry":   {"fsm/codec", "fsm/order", "internal/setting"},
	"fsm/kv":         {"fsm/codec", "fsm/order"},
	// Indexes, ends and waiters, which both halves of the state have.
	"fsm/order": {"fsm/codec"},
	// The one walk that writes and reads a record.
	"fsm/codec": {},
	// Settings as rows: what holds them declares them by tags.
	"internal/setting": {},
	// What measures the inner order of the packages.
	"internal/shape": {},
	// What tests examine, and what they cannot go on without.
	"internal/expect": {},
	"internal/golden": {"internal/expect", "internal/need"},
	"internal/need":   {"internal/expect"},
	// The service that tests of what works on one take.
	"fsm/registry/registrytest": {"fsm/registry", "internal/need"},
	"httpd/ratelimit":           {},
	// What runs the HTTP and TCP checks of services, on the leader; cmd/rollcall wires it.
	"cmd/probe": {"internal/setting", "fsm/registry"},
	// What the programs' command lines have in common.
	"cmd/cli": {},
	// Clusters of local processes: dev, the benchmarks, the comparison and the integration tests start them.
	"cmd/localcluster": {},
	// The benchmarks, which know the servers from outside only.
	"cmd/rollcall-bench": {"internal/setting", "cmd/cli", "cmd/localcluster", "cmd/bench/compare", "cmd/bench/load", "cmd/bench/report", "cmd/bench/scenario", "cmd/bench/trial", "cmd/bench/verdict", "cmd/bench/wire", "client", "client/sse", "fsm/registry"},
	"cmd/bench/scenario": {},
	"cmd/bench/wire":     {},
	"cmd/bench/trial":    {"cmd/bench/scenario"},
	"cmd/bench/truth":    {"cmd/bench/trial"},
	"cmd/bench/load":     {"cmd/bench/scenario", "cmd/bench/trial", "cmd/bench/truth", "cmd/bench/wire", "client/sse"},
	"cmd/bench/observe":  {"cmd/bench/scenario", "cmd/bench/trial", "cmd/bench/truth", "cmd/bench/wire", "client", "fsm/registry", "httpd/eureka"},
	"cmd/bench/verdict":  {"cmd/bench/scenario", "cmd/bench/trial"},
	"cmd/bench/report":   {"cmd/bench/scenario", "cmd/bench/trial", "cmd/bench/verdict"},
	"cmd/bench/compare":  {"cmd/bench/scenario", "cmd/bench/trial", "cmd/bench/truth", "cmd/bench/load", "cmd/bench/observe", "cmd/bench/wire", "client"},
	// The same for gRPC, a module of its own.
	"client/grpcresolver": {"client", "client/balance", "fsm/registry"},
	// Examples, which are clients like any other.
	"docs/examples/gateway": {"client"},
	"docs/examples/orders":  {"client", "client/balance", "fsm/registry"},
	// The protocol's test suite: tests import it, nothing else does.
	"httpd/conformance": {"client/sse", "httpd/eureka", "fsm/registry", "internal/expect", "internal/need"},
}

// forbidden lists what the deterministic state machine must not import: a network, an operating
// system or a source of randomness would make replicas differ.
var forbidden = []string{"net", "os", "math/rand", "crypto/rand"}

type goPackage struct {
	ImportPath string
	Imports    []string
}

// packages lists the packages of this module, and of those inside it.
func packages(t *testing.T) []goPackage {
	t.Helper()
	var pkgs []goPackage
	for _, dir := range modules(t) {
		dec := json.NewDecoder(strings.NewReader(output(t, "go", "-C", dir, "list", "-json=ImportPath,Imports", "./...")))
		for {
			var p goPackage
			if err := dec.Decode(&p); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("go list's output in %s: %v", dir, err)
			}
			pkgs = append(pkgs, p)
		}
	}
	return pkgs
}

// modules lists the directories of this module and of those inside it, which ./... does not reach.
func modules(t *testing.T) []string {
	t.Helper()
	var dirs []string
	for _, file := range strings.Fields(output(t, "git", "ls-files", "-co", "--exclude-standard", "go.mod", "**/go.mod")) {
		dirs = append(dirs, path.Dir(file))
	}
	return dirs
}

func output(t *testing.T, command string, args ...string) string {
	t.Helper()
	out, err := exec.Command(command, args...).Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		t.Fatalf("%s %v: %v: %s", command, args, err, exit.Stderr)
	}
	need.OKf(t, err, "%s %v", command, args)
	return string(out)
}

func TestImportsRunOneWay(t *testing.T) {
	for _, p := range packages(t) {
		name, ok := strings.CutPrefix(p.ImportPath, module+"/")
		if !ok {
			continue // the module root holds this test only
		}
		row, ok := allowed[name]
		if !ok {
			t.Errorf("package %s has no row in the import graph; add one here and to docs/architecture.md", name)
			continue
		}
		for _, imp := range p.Imports {
			own, ok := strings.CutPrefix(imp, module+"/")
			if ok && !slices.Contains(row, own) && !slices.Contains(row, "*") {
				t.Errorf("%s imports %s; allowed are %v", name, own, row)
			}
		}
	}
}

func TestStateMachineImportsNothingThatDiffersBetweenReplicas(t *testing.T) {
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		if name != "fsm" && !strings.HasPrefix(name, "fsm/") {
			continue
		}
		for _, imp := range p.Imports {
			for _, bad := range forbidden {
				expect.That(t, imp != bad && !strings.HasPrefix(imp, bad+"/"), "%s imports %s", name, imp)
			}
		}
	}
}

func TestModulesInsideThisOneAreCheckedAndTested(t *testing.T) {
	makefile := need.Got(os.ReadFile("Makefile"))(t)
	var listed []string
	for line := range strings.Lines(string(makefile)) {
		if names, ok := strings.CutPrefix(line, "MODULES :="); ok {
			listed = strings.Fields(names)
		}
	}
	inside := slices.DeleteFunc(modules(t), func(dir string) bool { return dir == "." })
	expect.That(t, slices.Equal(listed, inside), "MODULES of the Makefile is %v; the modules are %v", listed, inside)
}

// The replace lines of the modules inside this one are theirs alone: whoever requires such a module gets
// the version of this one that it names.
func TestModulesInsideThisOneRequireAVersionThatUsersCanGet(t *testing.T) {
	for _, dir := range modules(t) {
		version := strings.TrimSpace(output(t, "go", "-C", dir, "list", "-m", "-f", "{{.Version}}", module))
		if dir != "." && (version == "" || strings.HasPrefix(version, "v0.0.0-00010101000000")) {
			t.Errorf("%s requires version %q of %s, which nobody can get", dir, version, module)
		}
	}
}

func TestModuleNeedsNoGRPC(t *testing.T) {
	for dep := range strings.Lines(output(t, "go", "list", "-deps", "-test", "./...")) {
		if strings.HasPrefix(dep, "google.golang.org/grpc") {
			t.Fatalf("%s is needed; gRPC belongs into client/grpcresolver", strings.TrimSpace(dep))
		}
	}
}
