package store

// noteRefused says of an entry that came damaged whose it is. The leader sends it again and again, so it is
// said once.
func (s *Raft) noteRefused(index uint64) {
	s.metrics.refused.Inc()
	if s.lastRefused.Swap(index) == index {
		return
	}
	address, id := s.raft.LeaderWithID()
	s.log.Error("an entry came damaged from the leader and is not stored: if this goes on, look at the leader's memory, and at the network between",
		"index", index, "leader", nameOf(string(id)), "addr", string(address))
}

// noteDamaged says that this node's memory does not keep what it is given.
func (s *Raft) noteDamaged(index uint64) {
	s.metrics.damaged.Inc()
	if s.lastDamaged.Swap(index) != index {
		s.log.Error("an entry is damaged in this node's memory, and is read from the disk instead: look at the memory", "index", index)
	}
}
