package consensus

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/internal/wait"
	"github.com/seed-20419f34/rollcall/store/consensus/raftio"
	"github.com/seed-20419f34/rollcall/store/disk"
)

// reportRefused logs where a damaged entry came from. The leader sends it over and over, so it is logged once.
func (s *Raft) reportRefused(index uint64) {
	s.metrics.refused.Inc()
	if s.lastRefused.Swap(index) == index {
		return
	}
	address, id := s.raft.LeaderWithID()
	s.log.Error("an entry came damaged from the leader and is not stored: if this goes on, look at the leader's memory, and at the network between",
		"index", index, "leader", disk.NodeName(string(id)), "addr", string(address))
}

// reportDamaged logs that this node's memory corrupts its contents.
func (s *Raft) reportDamaged(index uint64) {
	s.metrics.damaged.Inc()
	if s.lastDamaged.Swap(index) != index {
		s.log.Error("an entry is damaged in this node's memory, and is read from the disk instead: look at the memory", "index", index)
	}
}

// SetSyncDelay slows each durable write to the log by the given time from now on. 0 ends the delay.
func (s *Raft) SetSyncDelay(by time.Duration) { s.disk.SlowDown(by) }

// logWatchInterval is how often the log's size is checked.
const logWatchInterval = 2 * time.Second

// leastTrailing is how many entries stay behind a snapshot in any case, so that a follower that lacks only a few
// finds them in the log.
const leastTrailing = 8

// watchLog bounds the log by bytes, which Raft does not: it saves a snapshot when the entries since the last one
// exceed the bound, unless the snapshot would be much larger, and keeps at most the bound behind it. It also
// saves a snapshot when the cluster's level was raised: the version after the next does not read what was written
// before.
func (s *Raft) watchLog(ctx context.Context) {
	share := ownShare()
	wait.Every(ctx, logWatchInterval, func(time.Time) {
		if s.trimLog(ctx, share) {
			share = ownShare()
		}
	})
}

// ownShare returns the share of the bound at which this node saves. The logs of all nodes grow alike: without it all
// would save at the same moment, and the cluster would be as slow as its slowest node.
func ownShare() float64 { return 1 - rand.Float64()/3 }

// trimLog reports whether it saved a snapshot.
func (s *Raft) trimLog(ctx context.Context, share float64) (saved bool) {
	entries, known := s.logs.EntriesWithin(s.cfg.LogBytes)
	trailing := s.cfg.TrailingLogs
	if known {
		trailing = min(trailing, max(entries, leastTrailing))
	}
	if conf := s.raft.ReloadableConfig(); conf.TrailingLogs != trailing {
		conf.TrailingLogs = trailing
		if err := s.raft.ReloadConfig(conf); err != nil {
			s.log.Warn("the bound of the log could not be set", "entries", trailing, "err", err)
		}
	}
	var last snapshotNow
	if found, err := s.snapshots.List(); err == nil && len(found) > 0 {
		last.index, last.bytes = found[0].Index, found[0].Size
		// Raft names a snapshot by term, index and time (raft.snapshotName).
		if ms, err := strconv.ParseInt(found[0].ID[strings.LastIndexByte(found[0].ID, '-')+1:], 10, 64); err == nil {
			last.at = time.UnixMilli(ms)
		}
	}
	s.saved.Store(&last)
	bound := share * float64(max(int64(s.cfg.LogBytes), last.bytes))
	if float64(s.logs.BytesAfter(last.index)) <= bound && last.index >= s.raised.Load() {
		return false
	}
	err := raftio.Wait(ctx, raftio.Later(s.raft.Snapshot), time.Minute)
	if err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) && ctx.Err() == nil {
		s.log.Warn("no snapshot, although the log is large, or the level of the cluster was raised", "err", err)
	}
	return err == nil
}
