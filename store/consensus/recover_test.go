package consensus

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// A node that was killed leaves its socket behind.
func TestCopyOfADataDirectoryLeavesSocketsAway(t *testing.T) {
	dir := need.Got(os.MkdirTemp("", "s"))(t) // the path of a socket must be short
	defer os.RemoveAll(dir)
	from, to := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	need.OK(t, os.MkdirAll(filepath.Join(from, "raft"), 0o700))
	need.OK(t, os.WriteFile(filepath.Join(from, "raft", "log.db"), []byte("log"), 0o600))
	l := need.Got(net.Listen("unix", filepath.Join(from, "admin.sock")))(t)
	defer l.Close()
	need.OK(t, copyTree(from, to))
	copied := need.Got(os.ReadFile(filepath.Join(to, "raft", "log.db")))(t)
	_, err := os.Lstat(filepath.Join(to, "admin.sock"))
	expect.That(t, string(copied) == "log" && os.IsNotExist(err), "copied %q, and of the socket: %v", copied, err)
}
