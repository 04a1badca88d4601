package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/cmd/cli"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// testServer is the server's program, built for the tests.
var testServer server

// TestMain builds the server's program, and lets the tests' own program be a baseline.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{"bare", "raft"}, os.Args[1]) {
		main()
	}
	dir, err := os.MkdirTemp("", "rollcall-bench-*")
	if err == nil {
		testServer.path = filepath.Join(dir, "rollcall")
		var out []byte
		if out, err = exec.Command("go", "build", "-o", testServer.path, "../rollcall").CombinedOutput(); err != nil {
			err = fmt.Errorf("build the server: %w\n%s", err, out)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// bench runs a command line as main does, and returns what it printed and its exit code.
func bench(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&errs)
	code = cli.ExitCode(&errs, "rollcall-bench", root.ExecuteContext(t.Context()))
	return out.String(), errs.String(), code
}

// status is the status of a GET; 0: there was no answer.
func status(url string) int {
	resp, err := http.Get(url)
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

func TestEveryCommandIsDocumentedWithItsExamplesAndFlags(t *testing.T) {
	page := need.Got(os.ReadFile("../../docs/cli.md"))(t)
	shared := &cobra.Command{}
	new(cli.Output).AddFlag(shared)
	for _, lack := range cli.Undocumented(newRootCommand(), string(page), shared.Flags()) {
		t.Errorf("docs/cli.md: %s", lack)
	}
}

func TestTheDefaultsThatBaselinesShareAreTheServers(t *testing.T) {
	d, err := testServer.defaults(t.Context())
	if err != nil || d.GC.Percent <= 0 || d.Raft.CommitTimeout <= 0 {
		t.Errorf("got %+v, %v", d, err)
	}
	if _, err := (&server{path: filepath.Join(t.TempDir(), "missing")}).defaults(t.Context()); err == nil {
		t.Error("a program that does not exist told its settings")
	}
}
