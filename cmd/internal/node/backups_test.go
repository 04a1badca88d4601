package node

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/cmd/internal/logging"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// The clock was ahead when a file was written. The schedule goes on by the clock as it is now, and what it writes stays.
func TestBackupsGoOnAfterTheClockWentBack(t *testing.T) {
	c := oneNode(t)
	c.Backup = config.BackupConfig{Dir: t.TempDir(), Interval: time.Hour, Keep: 1}
	early := "rollcall-n1-" + time.Now().UTC().Add(24*365*time.Hour).Format(timeForm) + ".snap"
	need.OK(t, os.WriteFile(filepath.Join(c.Backup.Dir, early), []byte("x"), 0o600))
	n := need.Got(open(Options{Config: c, Version: "test", Log: quiet, Level: logging.NewLevel("info")}))(t)
	stop := started(t, n)
	t.Cleanup(func() { expect.OK(t, stop()) })
	for range 100 {
		for _, e := range need.Got(os.ReadDir(c.Backup.Dir))(t) {
			if e.Name() != early {
				return
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatal("no snapshot was written by the schedule within 10 s, and the newest file is of next year")
}
