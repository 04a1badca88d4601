package localcluster

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func shell(t *testing.T, script string) *Process {
	t.Helper()
	p := need.Got(Start(filepath.Join(t.TempDir(), "log"), nil, "/bin/sh", "-c", script))(t)
	t.Cleanup(p.Kill)
	return p
}

func TestProcessIsStoppedByClosingItsInput(t *testing.T) {
	p := shell(t, "cat >/dev/null")
	expect.That(t, !p.Ended(), "it has ended before it was stopped")
	p.Stop()
	err := p.Err()
	expect.That(t, err == nil, "it ended with %v, want it to end by itself", err)
}

func TestProcessThatIsPausedResumesOrIsKilled(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(*Process) error
		want string // of the error; "": none
	}{
		{name: "resumed and stopped", end: func(p *Process) error { defer p.Stop(); return p.Resume() }},
		{name: "killed", end: func(p *Process) error { p.Kill(); return nil }, want: "ended: signal: killed"},
	} {
		p := shell(t, "cat >/dev/null")
		need.OKf(t, errors.Join(p.Pause(), tc.end(p)), "%s", tc.name)
		if err := p.Err(); tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
}

func TestProcessThatHasEndedHasAnObituary(t *testing.T) {
	p := shell(t, "echo first; echo last words; exit 7")
	const want = "ended: exit status 7; the end of "
	if err := p.Err(); err == nil || !strings.HasPrefix(err.Error(), want) || !strings.HasSuffix(err.Error(), "  last words") {
		t.Errorf("got %v, want %q and the last words", err, want)
	}
	for name, err := range map[string]error{"signal": p.Signal(syscall.SIGTERM), "pause": p.Pause()} {
		expect.That(t, err != nil && strings.Contains(err.Error(), want), "%s: %v, want how it ended", name, err)
	}
}

func TestLastLinesOfALongLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	need.OK(t, os.WriteFile(path, []byte(strings.Repeat("x\n", 100_000)+"a\nb\n"), 0o600))
	expect.Equal(t, LastLines(path, 3), "  x\n  a\n  b", "got")
}

func TestUntilParentEndsOnlyIfTheEnvironmentSaysSo(t *testing.T) {
	set := func(string) (string, bool) { return "1", true }
	unset := func(string) (string, bool) { return "", false }

	r, w := io.Pipe()
	ctx, cancel := UntilParentEnds(t.Context(), set, r)
	defer cancel()
	expect.That(t, ctx.Err() == nil, "it ended while its parent lives")
	w.Close()
	<-ctx.Done()

	ctx, cancel = UntilParentEnds(t.Context(), unset, strings.NewReader(""))
	defer cancel()
	expect.That(t, ctx.Err() == nil, "it ended with its input although the environment does not say so")
}
