package consensus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
)

// AskReply is the reply to the call Node.Ask.
type AskReply struct {
	Answer port.Outcome
	Bytes  []byte
	Error  string // from the leader's Config.Reply; empty if it succeeded
}

// serveAsk serves the call Node.Ask: the leader answers a question that was asked at another node.
func (s *Raft) serveAsk(question []byte) AskReply {
	l := s.leadership.Own()
	if l == nil {
		return AskReply{Answer: port.NotLeader}
	}
	ctx, cancel := context.WithTimeout(l.Lost, askTimeout)
	defer cancel()
	result, err := s.replyHere(ctx, question)
	switch {
	case err == nil:
		return AskReply{Bytes: result}
	case l.Lost.Err() != nil:
		return AskReply{Answer: port.NotLeader}
	}
	return AskReply{Answer: port.Refused, Error: err.Error()}
}

// askTimeout bounds a question to the leader.
const askTimeout = 5 * time.Second

// errNoReplyHere means that the node has no Config.Reply.
var errNoReplyHere = errors.New("this node answers no questions")

// AskLeader has the leader answer a question by its Config.Reply; on the leader, by this node's own. It waits at most
// 5 s. It returns registry.ErrNoLeader, also if the leader loses its leadership meanwhile, or an error with the text
// that Config.Reply returned.
func (s *Raft) AskLeader(ctx context.Context, question []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)()
	if l := s.leadership.Own(); l != nil {
		defer context.AfterFunc(l.Lost, cancel)()
		result, err := s.replyHere(ctx, question)
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
	address := s.nodes.DialAddress(leader.ID, leader.Address)
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

// replyHere answers a question on this node, the leader.
func (s *Raft) replyHere(ctx context.Context, question []byte) ([]byte, error) {
	if s.cfg.Reply == nil {
		return nil, errNoReplyHere
	}
	return s.cfg.Reply(ctx, question)
}
