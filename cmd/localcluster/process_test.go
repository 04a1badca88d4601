package localcluster

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/need"
)

// shell starts a process that is a shell script.
func shell(t *testing.T, script string) *Process {
	t.Helper()
	p := need.Got(Start(filepath.Join(t.TempDir(), "log"), nil, "/bin/sh", "-c", script))(t)
	t.Cleanup(p.Kill)
	return p
}

func TestAProcessIsStoppedByEndingItsInput(t *testing.T) {
	p := shell(t, "cat >/dev/null")
	if p.Ended() {
		t.Error("it has ended before it was told to")
	}
	p.Stop()
	if err := p.Err(); err != nil {
		t.Errorf("it ended with %v, want it to end by itself", err)
	}
}

func TestAPausedProcessGoesOnOrIsKilled(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(*Process) error
		want string // of the error; "": none
	}{
		{name: "resumed and stopped", end: func(p *Process) error { defer p.Stop(); return p.Resume() }},
		{name: "killed", end: func(p *Process) error { p.Kill(); return nil }, want: "ended: signal: killed"},
	} {
		p := shell(t, "cat >/dev/null")
		if err := errors.Join(p.Pause(), tc.end(p)); err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		if err := p.Err(); tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
}

func TestAProcessThatHasEndedSaysHowAndWhatItPrintedLast(t *testing.T) {
	p := shell(t, "echo first; echo last words; exit 7")
	const want = "ended: exit status 7; the end of "
	if err := p.Err(); err == nil || !strings.HasPrefix(err.Error(), want) || !strings.HasSuffix(err.Error(), "  last words") {
		t.Errorf("got %v, want %q and the last words", err, want)
	}
	for name, err := range map[string]error{"signal": p.Signal(syscall.SIGTERM), "pause": p.Pause()} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want how it ended", name, err)
		}
	}
}

func TestLastLinesOfALongLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	need.OK(t, os.WriteFile(path, []byte(strings.Repeat("x\n", 100_000)+"a\nb\n"), 0o600))
	if got, want := LastLines(path, 3), "  x\n  a\n  b"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAProgramEndsWithItsParentOnlyIfAsked(t *testing.T) {
	asked := func(string) (string, bool) { return "1", true }
	notAsked := func(string) (string, bool) { return "", false }

	r, w := io.Pipe()
	ctx, cancel := UntilParentEnds(t.Context(), asked, r)
	defer cancel()
	if ctx.Err() != nil {
		t.Error("it ended while its parent lives")
	}
	w.Close()
	<-ctx.Done()

	ctx, cancel = UntilParentEnds(t.Context(), notAsked, strings.NewReader(""))
	defer cancel()
	if ctx.Err() != nil {
		t.Error("it ended with its input although nobody asked for that")
	}
}
