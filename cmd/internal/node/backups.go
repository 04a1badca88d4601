package node

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/wait"
	"github.com/seed-20419f34/rollcall/internal/world"
	"github.com/seed-20419f34/rollcall/store/backup"
	"github.com/seed-20419f34/rollcall/store/disk"
)

// backups writes snapshots for people on a schedule: in mode cp the leader does, without consensus every node.
type backups struct {
	config.BackupConfig
	node        string
	world       *world.World
	snapshots   *snapshots
	log         *slog.Logger
	lastSuccess prometheus.Gauge
	failing     bool // as of the last attempt
}

// backups returns what writes snapshots on a schedule, or nil if none is set.
func (s setup) backups(of *snapshots) *backups {
	if s.Backup.Dir == "" {
		return nil
	}
	b := &backups{BackupConfig: s.Backup, node: s.name, world: s.world, snapshots: of, log: s.log, lastSuccess: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "rollcall_backup_last_success_timestamp_seconds", Help: "When this node last wrote a scheduled snapshot, in seconds since the epoch; 0: never.",
	})}
	s.metrics.MustRegister(b.lastSuccess)
	if own := b.own(); len(own) > 0 {
		b.lastSuccess.Set(float64(b.timeOf(own[len(own)-1]).Unix()))
	}
	return b
}

// timeForm is the form of the time in a file's name, chosen so that names sort by time.
const timeForm = "20060102T150405Z"

func (b *backups) prefix() string { return "rollcall-" + b.node + "-" }

// own returns the names of the files that this node has written, oldest first. Files whose names lie in the future,
// because a clock was ahead, are left alone until then.
func (b *backups) own() (names []string) {
	entries, _ := os.ReadDir(b.Dir) // an unreadable directory is noticed when a file is written
	for _, e := range entries {
		if at := b.timeOf(e.Name()); e.Type().IsRegular() && !at.IsZero() && !at.After(b.world.Now()) {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names
}

// timeOf returns when the file of a name was written, or zero if the name is not one of this node's.
func (b *backups) timeOf(name string) time.Time {
	text, found := strings.CutPrefix(name, b.prefix())
	text, ends := strings.CutSuffix(text, ".snap")
	at, err := time.Parse(timeForm, text)
	if !found || !ends || err != nil {
		return time.Time{}
	}
	return at
}

// run writes files on the schedule until ctx ends: the first at once, unless the newest is recent enough.
func (b *backups) run(ctx context.Context) {
	next := time.Duration(0)
	if own := b.own(); len(own) > 0 {
		next = b.timeOf(own[len(own)-1]).Add(b.Interval).Sub(b.world.Now())
	}
	for wait.Pause(ctx, nil, next); ctx.Err() == nil; wait.Pause(ctx, nil, next) {
		next = b.Interval
		err := b.write(ctx)
		switch { // logs a failure once, and its end
		case ctx.Err() != nil:
			return
		case err != nil && !b.failing:
			b.log.Error("no snapshot could be written by the schedule; trying again", "dir", b.Dir, "err", err)
		case err == nil && b.failing:
			b.log.Info("snapshots are written by the schedule again", "dir", b.Dir)
		}
		if b.failing = err != nil; b.failing {
			next = max(b.Interval/10, time.Second)
		}
	}
}

// write writes a file, and removes the oldest of this node's beyond those that are kept.
func (b *backups) write(ctx context.Context) error {
	if err := disk.MakeDir(b.Dir); err != nil {
		return err
	}
	entries, err := os.ReadDir(b.Dir)
	for _, e := range entries { // of a file, what this node had written when it was killed
		if name, end, _ := strings.Cut(e.Name(), ".snap."); strings.HasSuffix(end, ".tmp") && !b.timeOf(name+".snap").IsZero() {
			err = errors.Join(err, os.Remove(filepath.Join(b.Dir, e.Name())))
		}
	}
	if err != nil {
		return err
	}
	saved, err := b.snapshots.Save(ctx, registry.Stale)
	if err != nil {
		return err
	}
	now := b.world.Now().UTC()
	path := filepath.Join(b.Dir, b.prefix()+now.Format(timeForm)+".snap")
	h, size, err := backup.SaveFile(path, func(w io.Writer) error {
		_, err := saved.WriteTo(w)
		return err
	})
	if err != nil {
		return err
	}
	b.lastSuccess.Set(float64(now.Unix()))
	b.log.Debug("a snapshot was written by the schedule", "file", path, "bytes", size, "index", uint64(h.Index))
	own := b.own()
	for _, name := range own[:max(len(own)-b.Keep, 0)] {
		if err := os.Remove(filepath.Join(b.Dir, name)); err != nil {
			return err
		}
	}
	return nil
}
