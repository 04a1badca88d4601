package consensus

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/backup"
	"github.com/seed-20419f34/rollcall/store/disk"
)

// ErrRestoreRefused means that a restore was refused and nothing was changed. Its text is for the caller.
var ErrRestoreRefused = errors.New("the restore was refused")

// restorePatience is how long each step of a restore is tried while no node leads.
const restorePatience = 15 * time.Second

// Backup returns the source of a snapshot for people, at least as new as read demands. It returns the errors of View.
func (s *Raft) Backup(ctx context.Context, read registry.Consistency) (backup.Source, error) {
	if err := s.reader.CatchUp(ctx, read); err != nil {
		return backup.Source{}, err
	}
	k := s.machine.KV()
	return backup.Source{Registry: k.Registry, KV: k, Header: backup.Header{Level: s.machine.Level(), Mode: disk.ModeCP, Cluster: s.identity.Cluster(), Node: s.cfg.Node}}, nil
}

// CheckRestore refuses a snapshot from another mode and, unless another is true, from another cluster.
func (s *Raft) CheckRestore(h backup.Header, another bool) error {
	switch own := s.identity.Cluster(); {
	case h.Level > s.machine.Level():
		return fmt.Errorf("%w: the snapshot has level %d, and this cluster is at %d until all of its nodes read the next one: finalize its upgrade (rollcall upgrade status)", ErrRestoreRefused, h.Level, s.machine.Level())
	case h.Mode != disk.ModeCP:
		return fmt.Errorf("%w: the snapshot is of mode %s, whose instances have no order with this cluster's; this cluster takes those of mode cp", ErrRestoreRefused, h.Mode)
	case h.Cluster != own && !another:
		return fmt.Errorf("%w: the snapshot is of cluster %s, and this one is %s; if that is meant, say so (--another-cluster)", ErrRestoreRefused, h.Cluster, own)
	}
	return nil
}

// Restore brings a snapshot into the state. op says which part of it; Restore fills in ID and Parts. The file must
// have been verified. Restore returns what was done. It returns ErrRestoreRefused or the errors of Apply; after
// registry.ErrUnknownOutcome it may have been done.
func (s *Raft) Restore(ctx context.Context, file io.Reader, op kv.Restore) (kv.Restoration, error) {
	r, err := backup.Open(file)
	if err != nil {
		return kv.Restoration{}, err
	}
	op.ID, op.Newest = rand.Text(), r.Header.Index
	if op.Parts, err = s.stageParts(ctx, r, op); err == nil {
		err = s.restoreStep(ctx, op)
	}
	if err != nil {
		drop, cancel := context.WithTimeout(context.WithoutCancel(ctx), store.ResultWait)
		defer cancel()
		// otherwise it expires
		_, _ = s.committer.Commit(drop, []fsm.Item{{KV: kv.DropStaged{ID: op.ID}}}, atOnce)
		return kv.Restoration{}, err
	}
	if err := s.reader.CatchUp(ctx, registry.Linearizable); err != nil {
		return kv.Restoration{}, fmt.Errorf("%w: %w", registry.ErrUnknownOutcome, err)
	}
	if done := s.machine.KV().LastRestoration(); done != nil && done.ID == op.ID {
		s.log.Info("restored from a snapshot", "by", op.By.Author, "reason", op.By.Reason, "instances", done.Instances, "keys", done.Keys, "index", done.Index)
		return *done, nil
	}
	return kv.Restoration{}, registry.ErrUnknownOutcome // another restore came after it
}

// stageParts stages the parts of a file in the state, and returns how many there are.
func (s *Raft) stageParts(ctx context.Context, r *backup.Reader, op kv.Restore) (n uint64, err error) {
	stage := func(part []byte) error {
		n++
		return s.restoreStep(ctx, kv.StagePart{ID: op.ID, By: op.By, Part: n - 1, Content: bytes.Clone(part)})
	}
	for {
		part, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil && op.KeysOnly {
			part, err = backup.Narrow(part, s.machine.Level(), op.Prefix)
		}
		if err == nil && part != nil {
			err = stage(part)
		}
		if err != nil {
			return n, err
		}
	}
	if n > 0 {
		return n, nil
	}
	none, err := backup.Nothing(s.machine.Level()) // the restore of an empty state
	if err == nil {
		err = stage(none)
	}
	return n, err
}

// restoreStep commits an operation of a restore. It repeats it while no leader takes it: repeating it changes
// nothing. Once the outcome of one kv.Restore is unknown, no later refusal is certain; staged parts alone restore
// nothing.
func (s *Raft) restoreStep(ctx context.Context, op kv.Op) error {
	_, last := op.(kv.Restore)
	until, unknown := time.Now().Add(restorePatience), false
	for {
		results, err := s.committer.Commit(ctx, []fsm.Item{{KV: op, By: access.SenderOf(ctx)}}, atOnce)
		unknown = unknown || last && errors.Is(err, registry.ErrUnknownOutcome)
		switch {
		case err == nil && results.KV[0].Revoked:
			err = registry.ErrRevoked
		case err == nil && results.KV[0].Refusal != "":
			err = fmt.Errorf("%w: %s", ErrRestoreRefused, results.KV[0].Refusal)
		case err == nil:
			return nil
		case ctx.Err() != nil || time.Now().After(until) || !errors.Is(err, registry.ErrNoLeader) && !errors.Is(err, registry.ErrUnknownOutcome):
			err = fmt.Errorf("restore: %w", err)
		default:
			continue
		}
		if unknown && !errors.Is(err, registry.ErrUnknownOutcome) {
			return fmt.Errorf("restore: %w; afterwards: %v", registry.ErrUnknownOutcome, err)
		}
		return err
	}
}
