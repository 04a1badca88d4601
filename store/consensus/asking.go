package consensus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
)

// AskReply answers Ask.
type AskReply struct {
	Answer uint8
	Bytes  []byte
	Error  string // of the one who was to answer; "": none
}

// Ask has the leader answer a question that another node was asked.
func (n *nodeCalls) Ask(question []byte, reply *AskReply) error {
	l := n.s.lead.Load()
	if l == nil {
		reply.Answer = answerNotLeader
		return nil
	}
	ctx, cancel := context.WithTimeout(l.lost, askTimeout)
	defer cancel()
	answer, err := n.s.answer(ctx, question)
	switch {
	case err == nil:
		reply.Bytes = answer
	case l.lost.Err() != nil:
		reply.Answer = answerNotLeader
	default:
		reply.Answer, reply.Error = answerRefused, err.Error()
	}
	return nil
}

// askAt asks a question at another node.
func (s *Raft) askAt(ctx context.Context, address string, question []byte) ([]byte, error) {
	reply, err := port.Invoke[AskReply](ctx, s.peers, address, "Node.Ask", question)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", registry.ErrNoLeader, err)
	case reply.Answer == answerNotLeader:
		return nil, fmt.Errorf("%s: %w", address, registry.ErrNoLeader)
	case reply.Answer != answerOK:
		return nil, errors.New(reply.Error)
	}
	return reply.Bytes, nil
}

// askTimeout bounds a question to the leader.
const askTimeout = 5 * time.Second

// errNoAnswerHere: a question came to a node that was given nothing to answer with.
var errNoAnswerHere = errors.New("this node answers no questions")

// WhileLeading calls do each time this node was established as leader, with a context that ends when
// it leads no longer and the leadership's epoch, and waits for its return before the next time. It returns when ctx ends or the
// node stops.
func (s *Raft) WhileLeading(ctx context.Context, do func(context.Context, registry.Epoch)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)()
	var last *leadership
	for {
		l, err := s.awaitLeadership(ctx, last)
		if err != nil {
			return
		}
		l.during(ctx, do)
		last = l
	}
}

// awaitLeadership waits until this node leads, in another leadership than the last.
func (s *Raft) awaitLeadership(ctx context.Context, last *leadership) (*leadership, error) {
	for {
		changed := s.changed.Wait()
		if l := s.lead.Load(); l != nil && l != last {
			return l, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// during calls do with a context that ends with the leadership.
func (l *leadership) during(ctx context.Context, do func(context.Context, registry.Epoch)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.lost, cancel)()
	do(ctx, l.Epoch)
}

// AskLeader has the leader answer a question by its Config.Answer; on the leader, its own. It waits 5 s
// at most. Errors: registry.ErrNoLeader, also if the leader ceases to be one meanwhile, or what Answer
// returned, as text.
func (s *Raft) AskLeader(ctx context.Context, question []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)()
	if l := s.lead.Load(); l != nil {
		defer context.AfterFunc(l.lost, cancel)()
		answer, err := s.answer(ctx, question)
		if err != nil && l.lost.Err() != nil {
			return nil, fmt.Errorf("ask the leader, which this node was until now: %w", registry.ErrNoLeader)
		}
		return answer, err
	}
	leader := s.leader.Load()
	if leader == nil || leader.id == s.id.ServerID {
		return nil, fmt.Errorf("ask the leader: %w", registry.ErrNoLeader)
	}
	defer context.AfterFunc(leader.replaced, cancel)()
	return s.askAt(ctx, s.peers.DialAddress(leader.id, leader.address), question)
}

// answer answers a question, on the leader.
func (s *Raft) answer(ctx context.Context, question []byte) ([]byte, error) {
	if s.cfg.Answer == nil {
		return nil, errNoAnswerHere
	}
	return s.cfg.Answer(ctx, question)
}
