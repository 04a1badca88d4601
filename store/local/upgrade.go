package local

import (
	"context"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/codec"
)

// Levels returns what this node's program reads.
func (s *Store) Levels() codec.Reads {
	own := codec.OwnReads(s.cfg.Version, s.id.ReadsSince, s.level())
	s.levels.mu.Lock()
	defer s.levels.mu.Unlock()
	own.Fresh = s.levels.rise.Fresh
	return own
}

// nodes returns what the nodes of the datacenter read.
func (s *Store) nodes() []codec.NodeReads {
	return append(s.cfg.Others(), codec.NodeReads{Name: s.cfg.Node, Known: true, Reads: s.Levels()})
}

// riseRound raises the level, several times if need be, while it is due, or while a node of the datacenter writes a
// higher one because an operator finalized it there.
func (s *Store) riseRound(now time.Time) {
	for s.level() != codec.Newest {
		nodes, from := s.nodes(), s.level()
		s.levels.mu.Lock()
		due := s.levels.rise.Observe(s.cfg.World.Wall(now), from, nodes)
		s.levels.mu.Unlock()
		for _, n := range nodes {
			due = due || n.Known && n.Writes > from && codec.Lacking(nodes, from+1) == ""
		}
		if !due {
			return
		}
		s.raise(from)
	}
}

// raise raises the level by one, unless that has happened since it was decided, and has everything rewritten: the
// version after the next does not read what was written before.
func (s *Store) raise(from byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.level() != from {
		return
	}
	to := from + 1
	s.levels.writes.Store(uint32(to))
	s.registry.SetLevel(to)
	s.rewrite, s.dirty = true, true
	s.publish() // readers judge by the level in the view
	s.log.Info("this node writes a higher level", "node-level", to, "version", codec.VersionOf(to))
}

// Upgrade returns what the nodes of the datacenter read, and when this one will write the next level automatically;
// due is zero if it will not.
func (s *Store) Upgrade() (nodes []codec.NodeReads, due time.Time) {
	nodes = s.nodes()
	s.levels.mu.Lock()
	defer s.levels.mu.Unlock()
	return nodes, s.levels.rise.Due(s.level(), nodes)
}

// Finalize makes this node write the next level, and the others of its datacenter after it. The error is a
// codec.NotYet.
func (s *Store) Finalize(context.Context) error {
	nodes, from := s.nodes(), s.level()
	s.levels.mu.Lock()
	err := s.levels.rise.Finalizable(s.cfg.World.Now(), from, nodes)
	s.levels.mu.Unlock()
	if err == nil {
		s.raise(from)
	}
	return err
}
