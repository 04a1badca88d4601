package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestDamagedSnapshotIsNamed(t *testing.T) {
	c := startCluster(t, 1, func(cfg *Config) { cfg.TrailingLogs = 1 })
	n := c.nodes[0]
	for i := range 10 {
		n.apply(t, registry.Register{Instance: instance("A", fmt.Sprint(i), 90)})
	}
	if err := n.halt(); err != nil { // which saves a snapshot
		t.Fatal(err)
	}
	dirs, err := filepath.Glob(filepath.Join(n.cfg.DataDir, raftDir, "snapshots", "*"))
	need.That(t, err == nil && len(dirs) == 1, "snapshots %q, %v, want one", dirs, err)
	state, meta := filepath.Join(dirs[0], "state.bin"), filepath.Join(dirs[0], "meta.json")
	for _, tt := range []struct {
		name, file, names string
		change            func([]byte) []byte
	}{
		{"a flipped bit", state, dirs[0], func(b []byte) []byte { b[len(b)/2] ^= 4; return b }},
		{"cut short", state, dirs[0], func(b []byte) []byte { return b[:len(b)/2] }},
		{"no description", meta, meta, nil},
		{"a description that is cut short", meta, meta, func(b []byte) []byte { return b[:len(b)/2] }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			whole, err := os.ReadFile(tt.file)
			need.OK(t, err)
			if tt.change == nil {
				err = os.Remove(tt.file)
			} else {
				err = os.WriteFile(tt.file, tt.change(append([]byte(nil), whole...)), 0o600)
			}
			need.OK(t, err)
			s, err := OpenRaft(n.cfg)
			if err == nil {
				s.close()
			}
			expect.That(t, errors.Is(err, ErrDamaged) && strings.Contains(err.Error(), tt.names) && strings.Contains(err.Error(), "empty data directory"),
				"got %v, want an error that names %s and says what to do", err, tt.names)
			need.OK(t, os.WriteFile(tt.file, whole, 0o600))
		})
	}
}

// TestASnapshotThatMayNotBeReadIsNotCalledDamaged: who is told so throws good data away.
func TestASnapshotThatMayNotBeReadIsNotCalledDamaged(t *testing.T) {
	err := explainLoad(t.TempDir(), fmt.Errorf("2-10-1: %w", syscall.EACCES), errors.New("failed to load any existing snapshots"))
	expect.That(t, !errors.Is(err, ErrDamaged) && strings.Contains(err.Error(), "2-10-1") && !strings.Contains(err.Error(), "empty data directory"),
		"got %v, want an error that names the snapshot and takes it for whole", err)
}
