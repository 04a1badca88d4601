package rollcall_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/golden"
	"github.com/seed-20419f34/rollcall/internal/need"
)

const module = "github.com/seed-20419f34/rollcall"

// room is a package, with the other packages of ours that its non-test code may import.
type room struct {
	path    string
	imports []string
}

// rooms is the import graph. Every package has its row here; docs/architecture.md shows them in this order, each with
// the first sentence of its doc.
var rooms = []room{
	{"cmd/rollcall", []string{"internal/certfiles", "cmd/internal/cli", "internal/localcluster", "cmd/internal/config", "cmd/internal/node", "client", "httpd", "httpd/api", "internal/setting", "store", "store/backup", "internal/wait", "fsm/access", "fsm/kv", "fsm/registry"}},
	{"cmd/internal/cli", []string{"fsm/order"}},
	{"internal/localcluster", nil},
	{"cmd/internal/node", []string{"internal/certfiles", "cmd/internal/cli", "cmd/internal/config", "cmd/internal/probe", "httpd", "httpd/api", "store", "store/consensus", "store/consensus/membership", "store/local", "store/backup", "store/disk", "internal/wait", "replication", "replication/link", "fsm", "fsm/codec", "fsm/access", "fsm/registry", "fsm/kv", "internal/world", "httpd/audit", "httpd/web", "httpd/own", "httpd/consul", "fsm/order"}},
	{"cmd/internal/sim", []string{"client", "httpd/api", "cmd/internal/config", "cmd/internal/node", "fsm", "fsm/access", "fsm/codec", "fsm/registry", "internal/need", "internal/world", "replication/rollcallpeer", "store"}},
	{"cmd/internal/config", []string{"internal/certfiles", "cmd/internal/cli", "cmd/internal/probe", "internal/setting", "httpd", "store", "replication", "replication/link", "fsm/access", "fsm/registry", "httpd/audit", "httpd/web", "internal/wait"}},
	{"cmd/internal/probe", []string{"internal/world", "internal/setting", "fsm/access", "fsm/registry", "fsm/catalog"}},
	{"httpd", []string{"fsm/order", "internal/world", "internal/setting", "httpd/eurekaroutes", "httpd/dashboard", "httpd/web", "httpd/api", "fsm/access", "fsm/registry", "httpd/audit", "httpd/consul", "httpd/own", "httpd/eureka"}},
	{"httpd/httpdtest", []string{"fsm/kv", "fsm/fsmtest", "fsm/registry", "httpd", "httpd/api", "httpd/web", "httpd/consul", "internal/expect", "internal/need"}},
	{"httpd/own", []string{"fsm/order", "httpd/web", "httpd/api", "httpd/consul", "httpd/eureka", "internal/setting", "fsm/codec", "fsm/access", "fsm/registry", "fsm/catalog", "fsm/kv", "httpd/audit"}},
	{"httpd/eurekaroutes", []string{"internal/world", "httpd/web", "httpd/api", "httpd/eureka", "fsm/access", "fsm/registry"}},
	{"httpd/consul", []string{"fsm/order", "httpd/web", "fsm/access", "fsm/registry", "fsm/catalog", "fsm/kv"}},
	{"httpd/dashboard", []string{"fsm/order", "httpd/web", "httpd/consul", "httpd/api", "fsm/access", "fsm/registry", "fsm/catalog", "fsm/kv", "httpd/own"}},
	{"httpd/web", []string{"fsm/order", "internal/world", "httpd/api", "httpd/eureka", "fsm/access", "fsm/registry", "fsm/catalog", "fsm/kv", "httpd/audit"}},
	{"httpd/api", []string{"fsm/registry"}},
	{"httpd/audit", []string{"fsm/order", "httpd/api"}},
	{"httpd/eureka", []string{"fsm/order", "fsm/registry"}},
	{"store/consensus", []string{"store/consensus/membership", "store/consensus/raftio", "store/consensus/port", "store", "store/backup", "store/expiry", "store/disk", "internal/wait", "fsm", "fsm/codec", "fsm/access", "fsm/registry", "fsm/catalog", "fsm/kv", "internal/setting", "internal/world"}},
	{"store/consensus/membership", []string{"store/consensus/raftio", "store/consensus/port", "store", "store/disk", "internal/wait", "fsm", "fsm/codec", "fsm/registry", "store/expiry"}},
	{"store/consensus/raftio", []string{"store/consensus/port", "store", "store/disk", "internal/wait"}},
	{"store/consensus/port", []string{"internal/world", "internal/certfiles", "store", "store/disk"}},
	{"store/local", []string{"store", "store/expiry", "store/disk", "fsm", "fsm/codec", "fsm/access", "fsm/registry"}},
	{"store", []string{"internal/world", "internal/certfiles", "store/expiry", "fsm", "fsm/codec", "fsm/registry", "internal/setting"}},
	{"store/backup", []string{"store/disk", "fsm/kv", "fsm/registry", "fsm/catalog", "fsm/access", "fsm/codec"}},
	{"store/disk", []string{"internal/world"}},
	{"store/expiry", []string{"internal/world", "internal/wait", "fsm/registry", "fsm/kv"}},
	{"internal/wait", nil},
	{"replication", []string{"internal/setting", "replication/batcher", "replication/link", "replication/rollcallpeer", "httpd/api", "httpd/eureka", "fsm/codec", "fsm/order", "fsm/registry"}},
	{"replication/rollcallpeer", []string{"replication/batcher", "replication/link", "httpd/api", "fsm/codec", "fsm/access", "fsm/registry", "fsm/order", "httpd/eureka"}},
	{"replication/link", []string{"internal/world", "replication/batcher", "httpd/api", "fsm/order", "fsm/codec", "fsm/registry", "internal/certfiles"}},
	{"replication/batcher", nil},
	{"replication/peertest", []string{"fsm/catalog", "fsm/registry", "internal/expect", "internal/need"}},
	{"fsm", []string{"fsm/codec", "fsm/access", "fsm/registry", "fsm/catalog", "fsm/kv"}},
	{"fsm/registry", []string{"fsm/access", "fsm/catalog", "fsm/codec", "fsm/order", "internal/setting"}},
	{"fsm/fsmtest", []string{"fsm/registry", "internal/need", "fsm/access", "fsm/kv"}},
	{"fsm/catalog", []string{"fsm/codec", "fsm/order"}},
	{"fsm/kv", []string{"fsm/codec", "fsm/order", "fsm/access", "fsm/catalog", "fsm/registry"}},
	{"fsm/order", []string{"fsm/codec"}},
	{"fsm/access", []string{"fsm/order", "fsm/codec"}},
	{"fsm/codec", nil},
	{"client", []string{"client/internal/transport", "internal/wait", "httpd/api", "httpd/eureka", "fsm/registry", "fsm/kv", "fsm/order"}},
	{"client/internal/transport", []string{"internal/wait", "httpd/api", "fsm/registry", "internal/world"}},
	{"client/internal/fake", nil},
	{"client/balance", []string{"client", "fsm/registry"}},
	{"client/grpcresolver", []string{"client", "client/balance", "fsm/registry"}},
	{"docs/examples/gateway", []string{"client"}},
	{"docs/examples/orders", []string{"client", "client/balance", "fsm/registry"}},
	{"cmd/rollcall-bench", []string{"internal/setting", "cmd/internal/cli", "internal/localcluster", "cmd/bench/compare", "cmd/bench/load", "cmd/bench/report", "cmd/bench/scenario", "cmd/bench/trial", "cmd/bench/verdict", "client", "internal/wait"}},
	{"cmd/bench/compare", []string{"cmd/bench/scenario", "cmd/bench/trial", "cmd/bench/load", "client", "httpd/api", "httpd/eureka", "fsm/registry", "internal/wait"}},
	{"cmd/bench/report", []string{"cmd/bench/scenario", "cmd/bench/trial", "cmd/bench/verdict"}},
	{"cmd/bench/verdict", []string{"cmd/bench/scenario", "cmd/bench/trial"}},
	{"cmd/bench/load", []string{"cmd/bench/scenario", "cmd/bench/trial", "httpd/api", "internal/wait"}},
	{"cmd/bench/trial", []string{"cmd/bench/scenario"}},
	{"cmd/bench/scenario", nil},
	{"integration", []string{"internal/localcluster", "client", "client/balance", "fsm/registry", "httpd/api", "internal/expect", "internal/need", "internal/world"}},
	{"deploy/check", nil},
	{"release", nil},
	{"internal/devtool", nil},
	{"internal/setting", nil},
	{"internal/certfiles", nil},
	{"internal/world", nil},
	{"internal/expect", nil},
	{"internal/need", []string{"internal/expect"}},
	{"internal/chromium", []string{"internal/expect", "internal/need"}},
	{"internal/golden", []string{"internal/expect", "internal/need"}},
}

// forbidden lists what the deterministic state machine must not import: a network, an operating
// system or a source of randomness would make replicas differ.
var forbidden = []string{"net", "os", "math/rand", "crypto/rand"}

type goPackage struct {
	ImportPath, Doc string
	Imports         []string
}

// packages lists the packages of this module, and of the modules inside it.
func packages(t *testing.T) []goPackage {
	t.Helper()
	var pkgs []goPackage
	for _, dir := range modules(t) {
		dec := json.NewDecoder(strings.NewReader(output(t, "go", "-C", dir, "list", "-json=ImportPath,Doc,Imports", "./...")))
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
			continue // the module root only holds this test
		}
		i := slices.IndexFunc(rooms, func(r room) bool { return r.path == name })
		if i < 0 {
			t.Errorf("package %s has no row in the import graph: add one to rooms", name)
			continue
		}
		for _, imp := range p.Imports {
			ours, ok := strings.CutPrefix(imp, module+"/")
			if ok && !slices.Contains(rooms[i].imports, ours) {
				t.Errorf("%s imports %s; allowed are %v", name, ours, rooms[i].imports)
			}
		}
	}
}

func TestImportsUseEveryRow(t *testing.T) {
	imports := map[string][]string{}
	for _, p := range packages(t) {
		imports[strings.TrimPrefix(p.ImportPath, module+"/")] = p.Imports
	}
	for _, r := range rooms {
		used, ok := imports[r.path]
		expect.That(t, ok, "rooms has a row for %s, which is no package", r.path)
		for _, imp := range r.imports {
			expect.That(t, slices.Contains(used, module+"/"+imp), "%s may import %s, and does not", r.path, imp)
		}
	}
}

func TestArchitectureShowsThePackages(t *testing.T) {
	const page, from, to = "docs/architecture.md", "<!-- packages: made by go test -run Packages -update . -->\n", "<!-- end of packages -->\n"
	sentences := map[string]string{}
	for _, p := range packages(t) {
		doc := strings.TrimPrefix(strings.TrimPrefix(p.Doc, "Package "), "Command ")
		_, sentences[strings.TrimPrefix(p.ImportPath, module+"/")], _ = strings.Cut(doc, " ")
	}
	table := "| Package | What it is | May import |\n|---|---|---|\n"
	for _, r := range rooms {
		need.That(t, sentences[r.path] != "", "package %s has no sentence", r.path)
		may := strings.Join(r.imports, ", ")
		table += fmt.Sprintf("| `%s` | %s | %s |\n", r.path, sentences[r.path], may)
	}
	golden.Part(t, page, from, to, table)
}

func TestStateMachineImportsNothingThatDiffersBetweenReplicas(t *testing.T) {
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		if name != "fsm" && !strings.HasPrefix(name, "fsm/") {
			continue
		}
		for _, imp := range p.Imports {
			for _, bad := range forbidden {
				pure := imp == "net/netip" // only values
				expect.That(t, pure || imp != bad && !strings.HasPrefix(imp, bad+"/"), "%s imports %s", name, imp)
			}
		}
	}
}

// TestOnlyTheWorldListensAndDials keeps the server within what the simulator can give it: only its world reaches a
// network.
func TestOnlyTheWorldListensAndDials(t *testing.T) {
	reaches := regexp.MustCompile(`\b(net\.(Listen\w*|Dial\w*|ListenConfig)\b[({]|tls\.(Dial|Listen)|http\.(DefaultTransport|DefaultClient|Get|Post|ListenAndServe)\b)`)
	for _, file := range strings.Fields(output(t, "git", "ls-files", "-co", "--exclude-standard", "cmd/internal/**.go", "fsm/**.go", "httpd/**.go", "store/**.go", "replication/**.go")) {
		if strings.HasSuffix(file, "_test.go") || strings.HasPrefix(file, "httpd/httpdtest/") || strings.HasPrefix(file, "replication/peertest/") {
			continue
		}
		for i, line := range strings.Split(string(need.Got(os.ReadFile(file))(t)), "\n") {
			code, _, _ := strings.Cut(line, "//")
			expect.That(t, !reaches.MatchString(code), "%s:%d: %s: only internal/world listens and dials", file, i+1, strings.TrimSpace(line))
		}
	}
}

// toldByTheMachine lists the files that turn the machine's clock into a date or a number, and why they may.
var toldByTheMachine = map[string]string{
	"cmd/internal/config/folders.go": "a command makes certificates, not a node",
	"store/consensus/raftio/wal.go":  "raft-wal's list of segments has dates, which nothing reads",
	"httpd/plainbeat.go":             "the Date of a response, as net/http sets it",
	"fsm/registry/origin.go":         "time between two renewals on a line; a clock that was set back is noticed",
}

// TestOnlyTheWorldTellsTheTime keeps the server's dates within what the simulator can give it: a node's wall clock is
// its world's. Times of package time are only for measuring: numbers and texts come from World.Now, or World.Wall.
func TestOnlyTheWorldTellsTheTime(t *testing.T) {
	for _, file := range strings.Fields(output(t, "git", "ls-files", "-co", "--exclude-standard", "cmd/internal/**.go", "fsm/**.go", "httpd/**.go", "store/**.go", "replication/**.go")) {
		aside := regexp.MustCompile(`_test\.go$|^httpd/httpdtest/|^replication/peertest/|^fsm/fsmtest/|^cmd/internal/(sim|top)/`)
		if toldByTheMachine[file] != "" || aside.MatchString(file) {
			continue
		}
		files := token.NewFileSet()
		parsed := need.Got(parser.ParseFile(files, file, nil, 0))(t)
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
				for _, found := range datesOfTheMachine(f) {
					t.Errorf("%v: a date of the machine's clock; a node's is World.Now, or World.Wall of a time that was measured", files.Position(found.Pos()))
				}
			}
		}
	}
}

// datesOfTheMachine finds what a function turns into numbers and texts: time.Now(), names that hold it, and parameters
// named now.
func datesOfTheMachine(f *ast.FuncDecl) (found []ast.Node) {
	holds := map[string]bool{"now": true}
	isMachine := func(e ast.Expr) bool {
		for {
			switch x := e.(type) {
			case *ast.Ident:
				return holds[x.Name]
			case *ast.CallExpr: // time.Now(), or a method such as Add of the machine's time
				s, ok := x.Fun.(*ast.SelectorExpr)
				if !ok {
					return false
				}
				if pkg, ok := s.X.(*ast.Ident); ok && pkg.Name == "time" {
					return s.Sel.Name == "Now"
				}
				e = s.X
			default:
				return false
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i, to := range n.Lhs {
				if name, ok := to.(*ast.Ident); ok && len(n.Lhs) == len(n.Rhs) {
					holds[name.Name] = isMachine(n.Rhs[i])
				}
			}
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok && isMachine(n.Value) && regexp.MustCompile(`^(Wall|Created|.*Time)$`).MatchString(key.Name) {
				found = append(found, n)
			}
		case *ast.CallExpr:
			if s, ok := n.Fun.(*ast.SelectorExpr); ok && isMachine(s.X) && regexp.MustCompile(`^(Unix.*|.*Format|UTC|Date)$`).MatchString(s.Sel.Name) {
				found = append(found, n)
			}
		}
		return true
	})
	return found
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

// The replace lines of the modules inside this one only apply to themselves: a program that requires such a module
// gets the version of this one that it names.
func TestModulesInsideThisOneRequireAVersionThatUsersCanGet(t *testing.T) {
	for _, dir := range modules(t) {
		version := strings.TrimSpace(output(t, "go", "-C", dir, "list", "-m", "-f", "{{.Version}}", module))
		if dir != "." && (version == "" || strings.HasPrefix(version, "v0.0.0-00010101000000")) {
			t.Errorf("%s requires version %q of %s, which no user can get", dir, version, module)
		}
	}
}

func TestModuleNeedsNoGRPC(t *testing.T) {
	for dep := range strings.Lines(output(t, "go", "list", "-deps", "-test", "./...")) {
		need.That(t, !strings.HasPrefix(dep, "google.golang.org/grpc"), "%s is needed; gRPC belongs into client/grpcresolver", strings.TrimSpace(dep))
	}
}

// clientModules are the modules that a program of another module downloads for package client; docs/dependencies.md
// justifies each.
var clientModules = []string{
	"github.com/beorn7/perks", "github.com/cespare/xxhash/v2", "github.com/klauspost/compress", "github.com/munnerz/goautoneg",
	"github.com/prometheus/client_golang", "github.com/prometheus/client_model", "github.com/prometheus/common", "github.com/prometheus/procfs",
	"github.com/tidwall/btree", "golang.org/x/sys", "google.golang.org/protobuf",
}

// A module with an empty cache gets and builds the client; the cache then holds exactly what its author downloads.
func TestGettingTheClientDownloadsOnlyWhatItNeeds(t *testing.T) {
	here, dir, cache := need.Got(os.Getwd())(t), t.TempDir(), t.TempDir()
	known := strings.TrimSpace(output(t, "go", "env", "GOMODCACHE"))
	need.OK(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte("package main\n\nimport _ \""+module+"/client/balance\"\n\nfunc main() {}\n"), 0o600))
	need.OK(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.org/user\n\ngo 1.26.0\n\nreplace "+module+" => "+here+"\n"), 0o600))
	need.OK(t, os.WriteFile(filepath.Join(dir, "go.sum"), need.Got(os.ReadFile("go.sum"))(t), 0o600))
	for _, args := range [][]string{{"get", module + "/client@v0.0.0-00010101000000-000000000000"}, {"build", "-o", os.DevNull, "."}} {
		cmd := exec.Command("go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOMODCACHE="+cache, "GOPROXY=file://"+filepath.Join(known, "cache", "download"), "GOFLAGS=-mod=mod -modcacherw -trimpath", "GONOSUMDB=*", "GOWORK=off")
		out, err := cmd.CombinedOutput()
		need.That(t, err == nil, "go %v: %v\n%s", args, err, out)
	}
	var got []string
	root := filepath.Join(cache, "cache", "download")
	need.OK(t, filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		if strings.HasSuffix(path, ".zip") {
			got = append(got, strings.TrimPrefix(filepath.Dir(filepath.Dir(path)), root+"/"))
		}
		return err
	}))
	slices.Sort(got)
	expect.That(t, slices.Equal(got, clientModules), "downloaded are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(clientModules, "\n"))
}

// openLicences are the licences that programs we build for tests may have.
var openLicences = []string{"Apache-2.0", "BSD-3-Clause", "MIT", "MPL-2.0"}

// TestProgramsThatWeTestAgainstHaveARowWithAnOpenLicence compares what integration/clients/wild builds with
// docs/dependencies.md. A test of the release reads the licences after each build and compares them with the page.
func TestProgramsThatWeTestAgainstHaveARowWithAnOpenLicence(t *testing.T) {
	const page = "docs/dependencies.md"
	text := string(need.Got(os.ReadFile(page))(t))
	built := regexp.MustCompile(`bin/(\S+) (\S+)@(v\S+)`).FindAllStringSubmatch(output(t, "make", "-nB", "-C", "integration/clients/wild", "all", "peers"), -1)
	need.That(t, len(built) > 5, "make builds %q", built)
	for _, b := range built {
		row := regexp.MustCompile("(?m)^\\| `" + regexp.QuoteMeta(b[2]) + "` " + regexp.QuoteMeta(b[3]) + ` \| (\S+) \|`).FindStringSubmatch(text)
		if row == nil {
			t.Errorf("%s is built from %s@%s, and %s has no row of that version with its licence", b[1], b[2], b[3], page)
			continue
		}
		expect.That(t, slices.Contains(openLicences, row[1]), "%s: %s %s is under %s; programs that we test against are under one of %v", page, b[2], b[3], row[1], openLicences)
	}
}
