package store

import "context"

// WhileLeading calls do each time this node was established as leader, with a context that ends when
// it leads no longer, and waits for its return before the next time. It returns when ctx ends or the
// node stops.
func (s *Raft) WhileLeading(ctx context.Context, do func(context.Context)) { panic("not written") }

// AskLeader has the leader answer a question by its RaftConfig.Answer; on the leader, its own. Errors:
// registry.ErrNoLeader, or what Answer returned, as text.
func (s *Raft) AskLeader(ctx context.Context, question []byte) ([]byte, error) { panic("not written") }
