package consensus

import (
	"context"
	"time"

	"github.com/hashicorp/raft"
	"github.com/seed-20419f34/rollcall/store/disk"
)

// watchLeader keeps s.leader up to date.
func (s *Raft) watchLeader(ctx context.Context) {
	seen := make(chan raft.Observation, 16)
	observer := raft.NewObserver(seen, false, func(o *raft.Observation) bool {
		_, ok := o.Data.(raft.LeaderObservation)
		return ok
	})
	s.raft.RegisterObserver(observer)
	defer s.raft.DeregisterObserver(observer)
	// Observations may be dropped when several come at once, so a look now and then is needed too.
	tick := time.NewTicker(s.cfg.HeartbeatTimeout / 2)
	defer tick.Stop()
	for {
		s.noteLeader()
		select {
		case <-seen:
		case <-tick.C:
		case <-ctx.Done():
			if v := s.leader.Swap(nil); v != nil {
				v.leave()
			}
			return
		}
	}
}

func (s *Raft) noteLeader() {
	address, id := s.raft.LeaderWithID()
	old := s.leader.Load()
	switch {
	case old == nil && id == "", old != nil && old.id == string(id) && old.address == string(address):
		return
	case id == "":
		s.leader.Store(nil)
		s.log.Warn("no leader")
	default:
		gone, leave := context.WithCancel(context.Background())
		s.leader.Store(&leaderView{id: string(id), address: string(address), replaced: gone, leave: leave})
		s.log.Info("leader", "node", disk.NodeName(string(id)))
	}
	if old != nil {
		old.leave()
	}
	s.changed.Fire()
}

// Leader is the name of the node that leads, as far as this node knows; "": it knows none.
func (s *Raft) Leader() string {
	if v := s.leader.Load(); v != nil {
		return disk.NodeName(v.id)
	}
	return ""
}
