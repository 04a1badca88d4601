package consensus

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
)

func idsOf(servers []raft.Server) []string {
	ids := make([]string, len(servers))
	for i, server := range servers {
		ids[i] = string(server.ID)
	}
	return ids
}

// members returns the servers of the newest configuration in this node's log, which may not be
// committed yet. What is to be changed is decided on the committed one, see membership.
func (s *Raft) members() ([]raft.Server, error) {
	f := s.raft.GetConfiguration()
	if err := f.Error(); err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	return f.Configuration().Servers, nil
}

// membership is a committed configuration of the cluster. Its index is the guard of every change: Raft
// makes a change only if the configuration at this index still is the newest, so that of two changes
// that were decided on the same look one is refused. (The Index of raft.GetConfiguration would be no
// guard: in version 1.7.3 it is always 0, which means "whatever the configuration is".)
type membership struct {
	index   uint64 // of its log entry
	servers []raft.Server
}

// membership returns the newest configuration that this node knows to be committed.
func (s *Raft) membership() (*membership, error) {
	m := s.committed.Load()
	if m == nil {
		return nil, errors.New("this node does not know the committed members yet")
	}
	return m, nil
}

// noteMembers notes a committed configuration, from the log or a snapshot, in any order.
func (s *Raft) noteMembers(index uint64, servers []raft.Server) {
	for {
		old := s.committed.Load()
		if old != nil && old.index >= index {
			return
		}
		if s.committed.CompareAndSwap(old, &membership{index: index, servers: servers}) {
			return
		}
	}
}
