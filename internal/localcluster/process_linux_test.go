package localcluster

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// asParent makes this test program the parent of a foreign process, which writes to a named pipe, until its input
// ends.
const asParent = "ROLLCALL_TEST_PARENT_OF"

func TestForeignProcessEndsWithItsParentEvenIfBothAreKilled(t *testing.T) {
	if pipe := os.Getenv(asParent); pipe != "" {
		need.Got(StartForeign(pipe+".log", nil, "/bin/sh", "-c", `exec >"$0"; kill -STOP $$; exec sleep 60`, pipe))(t)
		io.Copy(io.Discard, os.Stdin)
		return
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	need.OK(t, syscall.Mkfifo(pipe, 0o600))
	parent := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	parent.Env = append(os.Environ(), asParent+"="+pipe)
	stdin := need.Got(parent.StdinPipe())(t)
	defer stdin.Close()
	need.OK(t, parent.Start())
	written := need.Got(os.Open(pipe))(t) // when the process has opened it, too
	defer written.Close()
	need.OK(t, parent.Process.Kill())
	parent.Wait()
	got, err := io.ReadAll(written) // until the process has ended
	expect.That(t, err == nil && len(got) == 0, "the process wrote %q, %v", got, err)
}
