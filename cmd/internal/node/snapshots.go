package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/own"
	"github.com/seed-20419f34/rollcall/store/backup"
	"github.com/seed-20419f34/rollcall/store/consensus"
)

// snapshots is a node's snapshots for people, as own.Snapshots. Incoming files are kept in the data directory while
// they are verified and restored.
type snapshots struct {
	dir, version string
	// source returns what a snapshot is made from.
	source func(context.Context, registry.Consistency) (backup.Source, error)
	// check refuses a snapshot by its header; with another, it may come from another cluster.
	check func(h backup.Header, another bool) error
	// restore restores a verified file, and plan says what that would do now.
	restore func(ctx context.Context, file io.Reader, op kv.Restore) (kv.Restoration, error)
	plan    func(ctx context.Context, saved *kv.Image, op kv.Restore) (backup.Plan, error)
	limits  atomic.Pointer[restoreLimits]
}

// restoreLimits bound how much a file may bring.
type restoreLimits struct {
	stateBytes int64        // of keys, sessions and nodes
	instances  int          // in total
	room       func() int64 // bytes that the disk of the data directory may take
}

// check refuses a file that brings more than the node may keep.
func (l restoreLimits) check(h backup.Header, bytes int64) error {
	switch {
	case bytes > l.stateBytes:
		return fmt.Errorf("%w: the keys, sessions and nodes of the snapshot take %d bytes, and limits.state-bytes is %d", registry.ErrFull, bytes, l.stateBytes)
	case h.Counts.Instances > l.instances:
		return fmt.Errorf("%w: the snapshot has %d instances, and limits.instances-total is %d", registry.ErrFull, h.Counts.Instances, l.instances)
	}
	return nil
}

// Save implements own.Snapshots.
func (s *snapshots) Save(ctx context.Context, read registry.Consistency) (own.SavedSnapshot, error) {
	from, err := s.source(ctx, read)
	if err != nil {
		return nil, err
	}
	from.Header.Version = s.version
	return savedSnapshot(from), nil
}

// savedSnapshot is a state that will be written.
type savedSnapshot backup.Source

// WriteTo implements io.WriterTo.
func (s savedSnapshot) WriteTo(w io.Writer) (int64, error) {
	_, n, err := backup.Write(w, backup.Source(s))
	return n, err
}

// Restore implements own.Snapshots.
func (s *snapshots) Restore(ctx context.Context, body io.Reader, o own.RestoreOptions) (api.Restored, error) {
	file, err := s.receive(body)
	if err != nil {
		return api.Restored{}, restoreRefusal(err)
	}
	defer file.Close()
	header, err := s.verify(file, o.AnotherCluster)
	if err != nil {
		return api.Restored{}, restoreRefusal(err)
	}
	op := kv.Restore{By: o.By, KeysOnly: o.KeysOnly, Prefix: o.Prefix, KeepSessions: o.KeepSessions, WithAuth: o.WithAuth}
	if o.DryRun {
		return s.dryRun(ctx, file, op)
	}
	done, err := s.restore(ctx, file, op)
	if err != nil {
		return api.Restored{}, restoreRefusal(err)
	}
	return api.Restored{
		From: snapshotOf(header), ModifyIndex: uint64(done.Index), Instances: done.Instances, InstancesStayed: done.InstancesStayed,
		Keys: done.Keys, KeysDeleted: done.KeysDeleted, SessionsEnded: done.SessionsEnded, Roles: done.Roles, Tokens: done.Tokens,
	}, nil
}

// receive stores what a reader delivers in a file that no longer has a name.
func (s *snapshots) receive(body io.Reader) (*os.File, error) {
	file, err := os.CreateTemp(s.dir, "restore-*.tmp")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(file.Name()); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	room := s.limits.Load().room()
	n, err := io.Copy(file, io.LimitReader(body, room+1))
	if err == nil && n > room {
		return nil, errors.Join(fmt.Errorf("%w: the snapshot has more than the %d bytes that the disk of the data directory has room for", registry.ErrFull, room), file.Close())
	}
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("receive the snapshot: %w", err), file.Close())
	}
	return file, nil
}

// verify reads a file to its end, and refuses what cannot be restored here. It then rewinds the file.
func (s *snapshots) verify(file io.ReadSeeker, another bool) (h backup.Header, err error) {
	r, err := backup.Open(file)
	if err == nil {
		err = s.check(r.Header, another)
	}
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return h, err
	}
	h, bytes, err := backup.Verify(file)
	if err == nil {
		err = s.limits.Load().check(h, bytes)
	}
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	return h, err
}

// dryRun says what a restore would do now.
func (s *snapshots) dryRun(ctx context.Context, file io.Reader, op kv.Restore) (api.Restored, error) {
	saved, err := backup.Read(file)
	if err != nil {
		return api.Restored{}, restoreRefusal(err)
	}
	p, err := s.plan(ctx, &saved.Image, op)
	if err != nil {
		return api.Restored{}, err
	}
	return api.Restored{
		DryRun: true, From: snapshotOf(saved.Header),
		Instances: len(p.Instances), InstancesStayed: p.InstancesStayed, Keys: len(p.KeysWritten), KeysDeleted: len(p.KeysDeleted), SessionsEnded: len(p.SessionsEnded),
		Plan: &api.RestorePlan{
			Instances: first(p.Instances), InstancesNewer: p.InstancesNewer, Nodes: first(p.Nodes), KeysWritten: first(p.KeysWritten), KeysDeleted: first(p.KeysDeleted),
			SessionsEnded: first(p.SessionsEnded),
		},
	}, nil
}

// planOf returns a function that plans a restore of a cluster with consensus.
func planOf(source func(context.Context, registry.Consistency) (backup.Source, error)) func(context.Context, *kv.Image, kv.Restore) (backup.Plan, error) {
	return func(ctx context.Context, saved *kv.Image, op kv.Restore) (backup.Plan, error) {
		from, err := source(ctx, registry.Linearizable)
		if err != nil {
			return backup.Plan{}, err
		}
		var b bytes.Buffer
		if _, _, err := backup.Write(&b, from); err != nil {
			return backup.Plan{}, err
		}
		now, err := backup.Read(&b)
		return backup.PlanOf(saved, &now.Image, op), err
	}
}

// namesShown is how many names of each list a plan has.
const namesShown = 1000

func first(names []string) []string {
	return append([]string{}, names[:min(len(names), namesShown)]...)
}

func snapshotOf(h backup.Header) api.Snapshot {
	return api.Snapshot{
		Level: int(h.Level), Mode: h.Mode, ClusterID: h.Cluster, Node: h.Node, Version: h.Version, Time: h.Wall, Index: formatIndex(h.Epoch, h.Index),
		Instances: h.Counts.Instances, Nodes: h.Counts.Nodes, Keys: h.Counts.Keys, Sessions: h.Counts.Sessions, Permits: h.Counts.Permits, Roles: h.Counts.Roles, Tokens: h.Counts.Tokens,
	}
}

// restoreRefusal converts an error into one that package httpd knows.
func restoreRefusal(err error) error {
	switch {
	case errors.Is(err, backup.ErrDamaged), errors.Is(err, backup.ErrNewerVersion):
		return sentinelError{err, own.ErrSnapshotUnreadable}
	case errors.Is(err, consensus.ErrRestoreRefused):
		return sentinelError{err, own.ErrRestoreRefused}
	}
	return err
}
