package integration

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/need"
	"go.uber.org/goleak"
)

// TestMain builds the program under test, unless ROLLCALL_BIN names one, and looks for goroutines
// that tests left behind.
func TestMain(m *testing.M) {
	if os.Getenv(asConsul) != "" {
		if err := consul(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	if err := runMore(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	remove, err := build()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(quietly{m}, goleak.Cleanup(func(code int) {
		remove()
		os.Exit(code)
	}))
}

// runMore runs four tests at a time on two processors, unless -parallel says how many. They often wait for the
// servers' clocks, but each has a cluster, and with more of them leases would not be renewed in time.
func runMore() error {
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return nil
	}
	return flag.Set("test.parallel", fmt.Sprint(runtime.GOMAXPROCS(0)*2))
}

// quietly closes the connections that were kept alive before leaks are looked for.
type quietly struct{ m *testing.M }

func (q quietly) Run() int {
	code := q.m.Run()
	CloseIdleConnections()
	consulTransport.CloseIdleConnections()
	http.DefaultTransport.(*http.Transport).CloseIdleConnections() // fargo's
	return code
}

// built is the directory of the programs that the tests build; it goes with them.
var built string

func build() (remove func(), err error) {
	if built, err = os.MkdirTemp("", "rollcall"); err != nil {
		return nil, err
	}
	remove = func() { os.RemoveAll(built) }
	if os.Getenv("ROLLCALL_BIN") != "" {
		return remove, nil
	}
	bin := filepath.Join(built, "rollcall")
	if out, err := exec.Command("go", "build", "-o", bin, "../cmd/rollcall").CombinedOutput(); err != nil {
		remove()
		return nil, fmt.Errorf("build the program under test: %w\n%s", err, out)
	}
	return remove, os.Setenv("ROLLCALL_BIN", bin)
}

// buildHealthServer builds a gRPC server, out of the tests of the module that needs gRPC.
var buildHealthServer = sync.OnceValues(func() (path string, err error) {
	path = filepath.Join(built, "healthserver")
	if out, err := exec.Command("go", "-C", "../client/grpcresolver", "test", "-c", "-o", path, ".").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build a gRPC server: %w\n%s", err, out)
	}
	return path, nil
})

// buildBench builds the benchmarks.
var buildBench = sync.OnceValues(func() (path string, err error) {
	path = filepath.Join(built, "rollcall-bench")
	if out, err := exec.Command("go", "build", "-o", path, "../cmd/rollcall-bench").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the benchmarks: %w\n%s", err, out)
	}
	return path, nil
})

// benchProgram is the path of the benchmarks' program.
func benchProgram(t testing.TB) string {
	t.Helper()
	path := need.Got(buildBench())(t)
	return path
}
