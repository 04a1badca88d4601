package consensus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
)

// AskReply is the reply to Ask.
type AskReply struct {
	Answer port.Outcome
	Bytes  []byte
	Error  string // of the leader's Config.Answer; "": none
}

// serveAsk has the leader reply to a question that another node was asked: the call Node.Ask.
func (s *Raft) serveAsk(question []byte, reply *AskReply) error {
	l := s.leadership.Own()
	if l == nil {
		reply.Answer = port.NotLeader
		return nil
	}
	ctx, cancel := context.WithTimeout(l.Lost, askTimeout)
	defer cancel()
	result, err := s.reply(ctx, question)
	switch {
	case err == nil:
		reply.Bytes = result
	case l.Lost.Err() != nil:
		reply.Answer = port.NotLeader
	default:
		reply.Answer, reply.Error = port.Refused, err.Error()
	}
	return nil
}

// askAt asks a question at another node.
func (s *Raft) askAt(ctx context.Context, address string, question []byte) ([]byte, error) {
	reply, err := port.Invoke[AskReply](ctx, s.nodes, address, "Node.Ask", question)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", registry.ErrNoLeader, err)
	case reply.Answer == port.NotLeader:
		return nil, fmt.Errorf("%s: %w", address, registry.ErrNoLeader)
	case reply.Answer != port.OK:
		return nil, errors.New(reply.Error)
	}
	return reply.Bytes, nil
}

// askTimeout bounds a question to the leader.
const askTimeout = 5 * time.Second

// errNoReplyHere: a question came to a node without a Config.Answer.
var errNoReplyHere = errors.New("this node answers no questions")

// WhileLeading calls do each time this node was established as leader, with a context that ends when
// it leads no longer and the leadership's epoch, and waits for its return before the next time. It returns when ctx ends or the
// node stops.
func (s *Raft) WhileLeading(ctx context.Context, do func(context.Context, registry.Epoch)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)()
	s.leadership.WhileLeading(ctx, do)
}

// AskLeader has the leader reply to a question by its Config.Answer; on the leader, its own. It waits 5 s
// at most. Errors: registry.ErrNoLeader, also if the leader ceases to be one meanwhile, or what Answer
// returned, as text.
func (s *Raft) AskLeader(ctx context.Context, question []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)()
	if l := s.leadership.Own(); l != nil {
		defer context.AfterFunc(l.Lost, cancel)()
		result, err := s.reply(ctx, question)
		if err != nil && l.Lost.Err() != nil {
			return nil, fmt.Errorf("ask the leader, which this node was until now: %w", registry.ErrNoLeader)
		}
		return result, err
	}
	leader := s.leadership.Other()
	if leader == nil {
		return nil, fmt.Errorf("ask the leader: %w", registry.ErrNoLeader)
	}
	defer context.AfterFunc(leader.Replaced, cancel)()
	return s.askAt(ctx, s.nodes.DialAddress(leader.ID, leader.Address), question)
}

// reply replies to a question, on the leader.
func (s *Raft) reply(ctx context.Context, question []byte) ([]byte, error) {
	if s.cfg.Reply == nil {
		return nil, errNoReplyHere
	}
	return s.cfg.Reply(ctx, question)
}
