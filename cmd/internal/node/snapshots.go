package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/store/backup"
	"github.com/seed-20419f34/rollcall/store/consensus"
)

// snapshots is the snapshots for people of a node, as httpd.Snapshots. Files that come are kept in the data directory while
// they are verified and restored.
type snapshots struct {
	dir, version string
	// source is what a snapshot is made of.
	source func(context.Context, registry.Consistency) (backup.Source, error)
	// check refuses a snapshot by its header; another: it may be of another cluster.
	check func(h backup.Header, another bool) error
	// restore restores a verified file.
	restore func(ctx context.Context, file io.Reader, op kv.Restore) (kv.Restoration, error)
}

// Save implements httpd.Snapshots.
func (s *snapshots) Save(ctx context.Context, read registry.Consistency) (httpd.SavedSnapshot, error) {
	from, err := s.source(ctx, read)
	if err != nil {
		return nil, err
	}
	from.Header.Version = s.version
	return savedSnapshot(from), nil
}

// savedSnapshot is a state that is to be written.
type savedSnapshot backup.Source

// WriteTo implements io.WriterTo.
func (s savedSnapshot) WriteTo(w io.Writer) (int64, error) {
	_, n, err := backup.Write(w, backup.Source(s))
	return n, err
}

// Restore implements httpd.Snapshots.
func (s *snapshots) Restore(ctx context.Context, body io.Reader, o httpd.RestoreOptions) (api.Restored, error) {
	file, err := s.receive(body)
	if err != nil {
		return api.Restored{}, restoreRefusal(err)
	}
	defer file.Close()
	r, err := backup.Open(file)
	if err == nil {
		err = s.check(r.Header, o.AnotherCluster)
	}
	if err == nil {
		err = drain(r)
	}
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return api.Restored{}, restoreRefusal(err)
	}
	op := kv.Restore{By: o.By, KeysOnly: o.KeysOnly, Prefix: o.Prefix, KeepSessions: o.KeepSessions}
	if o.DryRun {
		return s.plan(ctx, file, op)
	}
	done, err := s.restore(ctx, file, op)
	if err != nil {
		return api.Restored{}, restoreRefusal(err)
	}
	return restored(r.Header, done), nil
}

// receive keeps what a reader gives in a file that has no name any more.
func (s *snapshots) receive(body io.Reader) (*os.File, error) {
	file, err := os.CreateTemp(s.dir, "restore-*.tmp")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(file.Name()); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if _, err = io.Copy(file, body); err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("receive the snapshot: %w", err), file.Close())
	}
	return file, nil
}

// drain reads a file to its end.
func drain(r *backup.Reader) error {
	for {
		if _, err := r.Next(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// plan says what a restore would do now.
func (s *snapshots) plan(ctx context.Context, file io.Reader, op kv.Restore) (api.Restored, error) {
	saved, err := backup.Read(file)
	if err != nil {
		return api.Restored{}, restoreRefusal(err)
	}
	from, err := s.source(ctx, registry.Linearizable)
	if errors.Is(err, registry.ErrNotOffered) {
		from, err = s.source(ctx, registry.Stale)
	}
	if err != nil {
		return api.Restored{}, err
	}
	var b bytes.Buffer
	if _, _, err := backup.Write(&b, from); err != nil {
		return api.Restored{}, err
	}
	now, err := backup.Read(&b)
	if err != nil {
		return api.Restored{}, err
	}
	p := backup.PlanOf(&saved.Image, &now.Image, op)
	return api.Restored{
		DryRun: true, From: snapshotOf(saved.Header),
		Instances: len(p.Instances), InstancesStayed: p.InstancesStayed, Keys: len(p.KeysWritten), KeysDeleted: len(p.KeysDeleted), SessionsEnded: len(p.SessionsEnded),
		Plan: &api.RestorePlan{
			Instances: first(p.Instances), InstancesNewer: p.InstancesNewer, Nodes: first(p.Nodes), KeysWritten: first(p.KeysWritten), KeysDeleted: first(p.KeysDeleted),
			SessionsEnded: first(p.SessionsEnded),
		},
	}, nil
}

// namesShown is how many names of each list a plan has.
const namesShown = 1000

func first(names []string) []string {
	return append([]string{}, names[:min(len(names), namesShown)]...)
}

func restored(h backup.Header, done kv.Restoration) api.Restored {
	return api.Restored{
		From: snapshotOf(h), ModifyIndex: uint64(done.Index), Instances: done.Instances, InstancesStayed: done.InstancesStayed,
		Keys: done.Keys, KeysDeleted: done.KeysDeleted, SessionsEnded: done.SessionsEnded,
	}
}

func snapshotOf(h backup.Header) api.Snapshot {
	return api.Snapshot{
		Level: int(h.Level), Mode: h.Mode, ClusterID: h.Cluster, Node: h.Node, Version: h.Version, Time: h.Wall, Index: formatIndex(h.Epoch, h.Index),
		Instances: h.Counts.Instances, Nodes: h.Counts.Nodes, Keys: h.Counts.Keys, Sessions: h.Counts.Sessions, Permits: h.Counts.Permits,
	}
}

// restoreRefusal is an error in the terms of httpd.
func restoreRefusal(err error) error {
	switch {
	case errors.Is(err, backup.ErrDamaged), errors.Is(err, backup.ErrNewerVersion):
		return inTermsOf{err, httpd.ErrSnapshotUnreadable}
	case errors.Is(err, consensus.ErrRestoreRefused):
		return inTermsOf{err, httpd.ErrRestoreRefused}
	}
	return err
}
