package consensus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
	"github.com/seed-20419f34/rollcall/store/disk"
)

func (n *nodeCalls) table() port.Calls {
	return port.Calls{
		"Node.Commit": port.Method(n.Commit), "Node.ReadIndex": port.Method(n.ReadIndex), "Node.Ask": port.Method(n.Ask), "Node.Term": port.Method(n.Term), "Node.State": port.Method(n.State),
		"Node.Found": port.Method(n.Found), "Node.Fresh": port.Method(n.Fresh), "Node.Join": port.Method(n.Join), "Node.Remove": port.Method(n.Remove),
	}
}

// Answers of Commit, ReadIndex, Ask, Join and Remove.
const (
	answerOK uint8 = iota
	answerNotLeader
	answerUnknown
	answerRefused
	answerNoSuchNode
	answerRunsTwice
	answerUnreadable
)

// CommitReply and the other types of the node channel are exported because net/rpc asks for it; they
// are of no use outside this package.
type CommitReply struct {
	Answer  uint8
	Results []byte // fsm.AppendResults

	// With answerUnreadable:
	Reason string
	Item   int  // the first operation that could not be read, from 1; 0: it is not known
	All    bool // no batch of this format version can be read
}

// Commit commits a batch on the leader.
func (n *nodeCalls) Commit(encoded []byte, reply *CommitReply) error {
	id, _, err := fsm.ParseBatch(encoded)
	if err != nil {
		n.unreadable(err, reply)
		return nil
	}
	if l := n.s.lead.Load(); l == nil || !l.permits(id.Bound, time.Now()) {
		reply.Answer = answerNotLeader // not in the leadership that the batch is for, or no longer
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerWait)
	defer cancel()
	res, err := n.s.committer.propose(ctx, encoded, id.Bound)
	switch {
	case errors.Is(err, port.ErrNotSent):
		reply.Answer = answerNotLeader
	case err != nil:
		reply.Answer = answerUnknown
	default:
		reply.Results = fsm.AppendResults(nil, res)
	}
	return nil
}

// commitAt commits a batch at another node.
func (s *Raft) commitAt(ctx context.Context, address string, encoded []byte) (fsm.BatchResult, error) {
	reply, err := port.Invoke[CommitReply](ctx, s.peers, address, "Node.Commit", encoded)
	switch {
	case err != nil:
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			s.peers.HangUp(address) // what is still on its way must not arrive
		}
		return fsm.BatchResult{}, err
	case reply.Answer == answerNotLeader:
		return fsm.BatchResult{}, fmt.Errorf("%w: %s: %w", port.ErrNotSent, address, errNotLeader)
	case reply.Answer == answerUnreadable:
		return fsm.BatchResult{}, fmt.Errorf("%s: %w", address, unreadOf(reply))
	case reply.Answer != answerOK:
		return fsm.BatchResult{}, fmt.Errorf("%s: %w", address, registry.ErrUnknownOutcome)
	}
	res, err := fsm.ParseResults(reply.Results)
	if err == nil {
		err = lateness(res)
	}
	return res, err
}

// IndexReply answers ReadIndex.
type IndexReply struct {
	Answer uint8
	Index  uint64
}

// ReadIndex says how far the leader has applied; with verify only after proof that it leads.
func (n *nodeCalls) ReadIndex(verify bool, reply *IndexReply) error {
	ctx, cancel := context.WithTimeout(context.Background(), n.s.peers.AttemptLimit())
	defer cancel()
	var err error
	if verify {
		// Followers' rounds join the leader's own: one proof serves all nodes.
		reply.Index, err = n.s.joinLeaderRound(ctx)
	} else {
		reply.Index, err = n.s.leaderIndex(ctx, false)
	}
	if err != nil {
		reply.Answer = answerNotLeader
	}
	return nil
}

func (s *Raft) joinLeaderRound(ctx context.Context) (uint64, error) {
	if s.lead.Load() == nil {
		return 0, errNotLeader
	}
	return s.reads.join(ctx)
}

func (s *Raft) readIndexAt(ctx context.Context, address string, verify bool) (uint64, error) {
	reply, err := port.Invoke[IndexReply](ctx, s.peers, address, "Node.ReadIndex", verify)
	if err != nil {
		return 0, err
	}
	if reply.Answer != answerOK {
		return 0, fmt.Errorf("%s: %w", address, errNotLeader)
	}
	return reply.Index, nil
}

// TermReply answers Term.
type TermReply struct {
	ServerID string
	Term     uint64
}

// Term says in which term the node is.
func (n *nodeCalls) Term(_ struct{}, reply *TermReply) error {
	*reply = TermReply{ServerID: n.s.id.ServerID, Term: n.s.raft.CurrentTerm()}
	return nil
}

// termOf asks a voter for its term. One question to each voter is under way at a time: a node that
// hangs would collect them by the thousand, and the answers of the others make the majority.
func (s *Raft) termOf(server raft.Server) (uint64, error) {
	address := s.peers.AddressOf(server)
	if _, busy := s.asking.LoadOrStore(address, struct{}{}); busy {
		return 0, errors.New("an earlier question is still open")
	}
	defer s.asking.Delete(address)
	reply, err := port.Invoke[TermReply](context.Background(), s.peers, address, "Node.Term", struct{}{})
	if err == nil && reply.ServerID != string(server.ID) {
		err = &errOther{asked: string(server.ID), answered: reply.ServerID, address: address}
	}
	return reply.Term, err
}

// errOther means that another node than the one that was asked answers at its address: its successor, or
// one that took the address over.
type errOther struct{ asked, answered, address string }

func (e *errOther) Error() string {
	return fmt.Sprintf("at %s node %s answers instead of %s", e.address, e.answered, e.asked)
}

// NodeState is what a node says of itself.
type NodeState struct {
	ServerID  string
	Boot      uint64 // this start
	Cluster   string // "" while it belongs to none
	Addr      string // node-to-node, as advertised
	HTTP      string
	Role      string
	LeaderID  string
	Term      uint64
	Applied   uint64            // newest log entry in its view
	Index     registry.Index    // of its view
	LastIndex uint64            // newest log entry on its disk
	Leads     bool              // it is the established leader
	Members   []string          // server ids of the committed configuration that it knows
	Starts    map[string]uint64 // the newest start of each of them that it knows of
	Founders  []disk.Founder    // of its cluster, if it is one of them
}

// State says what a node knows of itself.
func (n *nodeCalls) State(_ struct{}, reply *NodeState) error {
	*reply = n.s.state()
	return nil
}

func (s *Raft) state() NodeState {
	st := NodeState{
		Leads:     s.lead.Load() != nil,
		ServerID:  s.id.ServerID,
		Boot:      s.id.Boot,
		Cluster:   s.clusterID(),
		Addr:      s.net.Addr().String(),
		HTTP:      s.cfg.HTTPAdvertise,
		Role:      roles[s.raft.State()],
		Term:      s.raft.CurrentTerm(),
		Applied:   s.machine.Index(),
		Index:     s.machine.View().Index(),
		LastIndex: s.raft.LastIndex(),
	}
	if l := s.leader.Load(); l != nil {
		st.LeaderID = l.id
	}
	if look, err := s.membership(); err == nil {
		st.Members = idsOf(look.servers)
		st.Starts = map[string]uint64{}
		for _, id := range st.Members {
			st.Starts[id] = s.machine.Boot(id)
		}
	}
	if st.Cluster != "" {
		st.Founders = s.standing.Load().Founding.Founders
	}
	return st
}

var roles = map[raft.RaftState]string{
	raft.Leader:    "leader",
	raft.Follower:  "follower",
	raft.Candidate: "candidate",
	raft.Shutdown:  "stopped",
}

// stateOf asks a member how it is.
func (s *Raft) stateOf(ctx context.Context, m raft.Server) (NodeState, error) {
	address := s.peers.AddressOf(m)
	st, err := s.stateAt(ctx, address)
	if err == nil && st.ServerID != string(m.ID) {
		err = &errOther{asked: string(m.ID), answered: st.ServerID, address: address}
	}
	return st, err
}

// stateAt asks whoever is at an address.
func (s *Raft) stateAt(ctx context.Context, address string) (NodeState, error) {
	return port.Invoke[NodeState](ctx, s.peers, address, "Node.State", struct{}{})
}

// unreadOf is the error that the answer of a leader stands for.
func unreadOf(reply CommitReply) error {
	return &unread{reason: reply.Reason, item: reply.Item - 1, all: reply.All}
}

// unreadable answers a batch that this node cannot read. Only the leader's word counts: any other node
// says as usual that it does not lead.
func (n *nodeCalls) unreadable(err error, reply *CommitReply) {
	if n.s.lead.Load() == nil {
		reply.Answer = answerNotLeader
		return
	}
	reply.Answer, reply.Reason = answerUnreadable, err.Error()
	reply.All = errors.Is(err, fsm.ErrNewerVersion)
	var at *fsm.ItemError
	if errors.As(err, &at) {
		reply.Item = at.Item + 1
	}
}
