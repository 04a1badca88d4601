package consensus

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/wait"
	"github.com/seed-20419f34/rollcall/store/backup"
	"github.com/seed-20419f34/rollcall/store/disk"
)

// A new cluster may begin with a snapshot. Every founder may be given the file, and the first that finds a leader
// restores it. The state machine refuses a second restore, and no founder that was given the file is ready before it
// is restored.

// errNotRestored is why a founder is not ready yet.
var errNotRestored = errors.New("the snapshot of restore-from was not restored yet")

// checkRestoreFrom refuses a file that cannot be restored, and any start but the first.
func (s *Raft) checkRestoreFrom() error {
	if s.cfg.RestoreFrom == "" {
		return nil
	}
	if cluster := s.identity.Cluster(); cluster != "" {
		return fmt.Errorf("restore-from is for the first start of a new cluster, and data directory %s belongs to cluster %s already: start without it; rollcall snapshot restore brings a snapshot into a cluster that runs", s.cfg.DataDir, cluster)
	}
	file, err := os.Open(s.cfg.RestoreFrom)
	if err != nil {
		return fmt.Errorf("restore-from: %w", err)
	}
	defer file.Close()
	h, _, err := backup.Verify(file)
	if err == nil && h.Mode != disk.ModeCP {
		err = fmt.Errorf("the snapshot is of mode %s, and this cluster takes those of mode cp", h.Mode)
	}
	if err != nil {
		return fmt.Errorf("restore-from %s: %w", s.cfg.RestoreFrom, err)
	}
	return nil
}

// awaitsRestore reports whether this node was given a snapshot that the cluster does not have yet.
func (s *Raft) awaitsRestore() bool {
	return s.cfg.RestoreFrom != "" && s.machine.KV().LastRestoration() == nil
}

// restoreFounded restores the snapshot that this node was given, unless another founder has.
func (s *Raft) restoreFounded(ctx context.Context) {
	retry(ctx, s.leadership, func(ctx context.Context) error {
		if s.cfg.RestoreFrom == "" {
			return nil
		}
		if err := s.reader.CatchUp(ctx, registry.Linearizable); err != nil {
			return err
		}
		if !s.awaitsRestore() {
			return nil
		}
		founding := s.identity.Now().Founding.Founders
		if !slices.ContainsFunc(founding, func(f disk.Founder) bool { return f.ID == s.serverID() }) {
			s.fail(fmt.Errorf("restore-from is for the founders of a new cluster, and this node has joined cluster %s, which exists: start without it", s.identity.Cluster()))
			return nil
		}
		file, err := os.Open(s.cfg.RestoreFrom)
		if err != nil {
			return err
		}
		defer file.Close()
		_, err = s.Restore(ctx, file, kv.Restore{Founding: true, By: registry.Act{Author: s.cfg.Node, Reason: "a new cluster begins with " + s.cfg.RestoreFrom}})
		if errors.Is(err, ErrRestoreRefused) { // another founder is restoring it
			wait.Pause(ctx, nil, time.Second)
		}
		return err
	})
}
