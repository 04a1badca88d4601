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

	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// testServer is the server's program, built for the tests.
var testServer server

// TestMain builds the server's program. The ratios start this program again as their baselines (startBaseline): with the
// command bare or raft it is rollcall-bench, and runs no tests.
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

// bench runs a command line of rollcall-bench as main does, and returns what it printed and its exit code.
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

func status(url string) int {
	resp, err := http.Get(url)
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

func TestCommandsAreDocumentedWithTheirExamplesAndFlags(t *testing.T) {
	page := need.Got(os.ReadFile("../../docs/reference/cli.md"))(t)
	shared := &cobra.Command{}
	new(cli.Output).AddFlag(shared)
	for _, lack := range cli.Undocumented(newRootCommand(), string(page), shared.Flags()) {
		t.Errorf("docs/reference/cli.md: %s", lack)
	}
}

func TestCommandsInDocumentsAreThoseOfTheProgram(t *testing.T) {
	faults, commands, err := cli.Misused(os.DirFS("../.."), newRootCommand)
	need.OK(t, err)
	need.That(t, commands > 20, "the documents have %d commands", commands)
	for _, fault := range faults {
		t.Error(fault)
	}
}

func TestBaselinesGetTheServersDefaultsFromItsProgram(t *testing.T) {
	d, err := testServer.defaults(t.Context())
	expect.That(t, err == nil && d.GC.Percent > 0 && d.Test.CommitTimeout > 0, "got %+v, %v", d, err)
	_, err = (&server{path: filepath.Join(t.TempDir(), "missing")}).defaults(t.Context())
	expect.That(t, err != nil, "a program that does not exist has defaults")
}

func TestMachineFindsTheMountOfAPath(t *testing.T) {
	const mountinfo = `22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 27 0:30 / /data rw shared:1 master:2 - tmpfs tmpfs rw
31 27 8:1 / /data rw - xfs /dev/sda1 rw
broken line
`
	for path, want := range map[string]mount{
		"/home/x":   {"/", "254:0", "ext4", "/dev/vda"},
		"/data":     {"/data", "8:1", "xfs", "/dev/sda1"},
		"/data/x":   {"/data", "8:1", "xfs", "/dev/sda1"},
		"/database": {"/", "254:0", "ext4", "/dev/vda"},
	} {
		got, ok := findMount(mountinfo, path)
		expect.That(t, ok && got == want, "%s: got %+v, %t, want %+v", path, got, ok, want)
	}
	if got, ok := findMount("", "/"); ok {
		t.Errorf("without mounts: got %+v", got)
	}
}

func TestMachineIsDescribedWithoutNamingIt(t *testing.T) {
	expect.Equal(t, kernelText("linux", "6.1.2-site-7"), "Linux 6.1.2", "kernel:")
	expect.Equal(t, kernelText("darwin", ""), "Darwin", "kernel of another system:")
	expect.Equal(t, memoryText("24101112 kB"), "23 GiB", "memory:")
	expect.Equal(t, memoryText(unknownPart), unknownPart, "unknown memory:")
	m, err := describeMachine(t.TempDir())
	expect.That(t, err == nil && m.Cores >= 1 && m.Go != "" && m.CPU != "" && m.Disk != "" && m.Sync != "", "got %+v, %v", m, err)
}

func TestMetricsAreReadByTheirWholeName(t *testing.T) {
	const text = "# HELP heap_bytes x\nheap_bytes_total 7\nheap_bytes 1.5e+06\n"
	got, err := metricValue(text, "heap_bytes")
	expect.That(t, err == nil && got == 1.5e6, "got %f, %v", got, err)
	expect.That(t, expect.Err(metricValue(text, "heap")) != nil, "a metric that is not there was found")
}
