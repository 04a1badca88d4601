package node

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/cmd/internal/logging"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// The oldest files of the node go, and what it had written of one when it was killed. Files of other names stay. A directory that cannot be written to is said once.
func TestBackupsKeepTheNewestOfTheNodesOwn(t *testing.T) {
	c := oneNode(t)
	c.Backup = config.BackupConfig{Dir: t.TempDir(), Interval: time.Hour, Keep: 2}
	others := []string{"rollcall-n2-20260101T000000Z.snap", "rollcall-n1-monday.snap", "notes.txt"}
	for _, name := range append(others, "rollcall-n1-20260101T000000Z.snap.123.tmp", "rollcall-n1-20260101T000000Z.snap", "rollcall-n1-20260102T000000Z.snap", "rollcall-n1-20260103T000000Z.snap") {
		need.OK(t, os.WriteFile(filepath.Join(c.Backup.Dir, name), []byte("x"), 0o600))
	}
	n := need.Got(open(Options{Config: c, Version: "test", Log: quiet, Level: logging.NewLevel("info")}))(t)
	stop := started(t, n)
	t.Cleanup(func() { expect.OK(t, stop()) })
	var names []string
	await(t, "the other files, the new one and the newest one before are left", func() bool {
		names = filesIn(t, c.Backup.Dir)
		return len(names) == len(others)+2 && slices.Contains(names, "rollcall-n1-20260103T000000Z.snap") && !strings.Contains(strings.Join(names, ""), ".tmp")
	})
	for _, other := range others {
		expect.That(t, slices.Contains(names, other), "%s is gone; there are %v", other, names)
	}
}

func filesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	for _, e := range need.Got(os.ReadDir(dir))(t) {
		names = append(names, e.Name())
	}
	return names
}

// The clock was ahead when a file was written. The schedule goes on by the clock as it is now, and what it writes stays.
func TestBackupsGoOnAfterTheClockWentBack(t *testing.T) {
	c := oneNode(t)
	c.Backup = config.BackupConfig{Dir: t.TempDir(), Interval: time.Hour, Keep: 1}
	early := "rollcall-n1-" + time.Now().UTC().Add(24*365*time.Hour).Format(timeForm) + ".snap"
	need.OK(t, os.WriteFile(filepath.Join(c.Backup.Dir, early), []byte("x"), 0o600))
	n := need.Got(open(Options{Config: c, Version: "test", Log: quiet, Level: logging.NewLevel("info")}))(t)
	stop := started(t, n)
	t.Cleanup(func() { expect.OK(t, stop()) })
	await(t, "the schedule writes a snapshot, though the newest file is of next year", func() bool {
		return slices.ContainsFunc(filesIn(t, c.Backup.Dir), func(name string) bool { return name != early })
	})
}
