package store

import (
	"bufio"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// nodeCalls are the methods of the node channel, in the form that net/rpc wants. A node answers for
// itself only: "not the leader" is an answer, never a reason to ask somebody else.
type nodeCalls struct{ s *Raft }

func (n *nodeCalls) table() callTable {
	return callTable{
		"Node.Commit": callOf(n.Commit), "Node.ReadIndex": callOf(n.ReadIndex), "Node.Ask": callOf(n.Ask), "Node.Term": callOf(n.Term), "Node.State": callOf(n.State),
		"Node.Found": callOf(n.Found), "Node.Fresh": callOf(n.Fresh), "Node.Join": callOf(n.Join), "Node.Remove": callOf(n.Remove),
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
	case errors.Is(err, errNotSent):
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
	reply, err := invoke[CommitReply](ctx, s.peers, address, "Node.Commit", encoded)
	switch {
	case err != nil:
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			s.peers.hangUp(linkKey{address, laneWork}) // what is still on its way must not arrive
		}
		return fsm.BatchResult{}, err
	case reply.Answer == answerNotLeader:
		return fsm.BatchResult{}, fmt.Errorf("%w: %s: %w", errNotSent, address, errNotLeader)
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
	ctx, cancel := context.WithTimeout(context.Background(), n.s.peers.attemptLimit())
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
	reply, err := invoke[IndexReply](ctx, s.peers, address, "Node.ReadIndex", verify)
	if err != nil {
		return 0, err
	}
	if reply.Answer != answerOK {
		return 0, fmt.Errorf("%s: %w", address, errNotLeader)
	}
	return reply.Index, nil
}

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
	reply, err := invoke[AskReply](ctx, s.peers, address, "Node.Ask", question)
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
	address := s.peers.addressOf(server)
	if _, busy := s.asking.LoadOrStore(address, struct{}{}); busy {
		return 0, errors.New("an earlier question is still open")
	}
	defer s.asking.Delete(address)
	reply, err := invoke[TermReply](context.Background(), s.peers, address, "Node.Term", struct{}{})
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
	Founders  []Founder         // of its cluster, if it is one of them
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
	address := s.peers.addressOf(m)
	st, err := s.stateAt(ctx, address)
	if err == nil && st.ServerID != string(m.ID) {
		err = &errOther{asked: string(m.ID), answered: st.ServerID, address: address}
	}
	return st, err
}

// stateAt asks whoever is at an address.
func (s *Raft) stateAt(ctx context.Context, address string) (NodeState, error) {
	return invoke[NodeState](ctx, s.peers, address, "Node.State", struct{}{})
}

// serveCalls answers the calls that come over one connection. When the connection ends, calls that
// are still being served end within their own time limits.
func (s *Raft) serveCalls(calls callTable) func(net.Conn, hello) {
	return func(conn net.Conn, _ hello) { calls.serve(sender{conn}) }
}

// askAll calls do for every address at once and returns when all have ended.
func askAll[T any](ctx context.Context, addresses []string, limit time.Duration, do func(context.Context, string) (T, error)) []answer[T] {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answers := make(chan answer[T], len(addresses))
	for _, address := range addresses {
		go func() {
			v, err := do(ctx, address)
			answers <- answer[T]{address: address, value: v, err: err}
		}()
	}
	all := make([]answer[T], 0, len(addresses))
	for range addresses {
		all = append(all, <-answers)
	}
	return all
}

type answer[T any] struct {
	address string
	value   T
	err     error
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
		changed := s.changed.wait()
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
	do(ctx, l.epoch)
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
	defer context.AfterFunc(leader.gone, cancel)()
	return s.askAt(ctx, s.peers.dialAddress(leader.id, leader.address), question)
}

// answer answers a question, on the leader.
func (s *Raft) answer(ctx context.Context, question []byte) ([]byte, error) {
	if s.cfg.Answer == nil {
		return nil, errNoAnswerHere
	}
	return s.cfg.Answer(ctx, question)
}

// callTable is what a node answers on the node channel, by the name of the call. It speaks with clients of net/rpc. The server
// of net/rpc finds methods by reflection, for which the linker must keep every exported method of the whole program: a fifth
// of its size.
type callTable map[string]acceptor

// acceptor reads the arguments of a call and returns what performs it.
type acceptor func(decode func(any) error) (perform func() (reply any, err error), err error)

// callOf makes an entry of a method in the form of net/rpc.
func callOf[A, R any](method func(A, *R) error) acceptor {
	return func(decode func(any) error) (func() (any, error), error) {
		var args A
		if err := decode(&args); err != nil {
			return nil, err
		}
		return func() (any, error) {
			reply := new(R)
			err := method(args, reply)
			return reply, err
		}, nil
	}
}

// serve answers the calls of one connection, each as soon as it has ended, until the connection ends and all calls have.
func (t callTable) serve(conn net.Conn) {
	defer conn.Close()
	var calls sync.WaitGroup
	defer calls.Wait()
	requests, replies := gob.NewDecoder(bufio.NewReader(conn)), newReplies(conn)
	for {
		var request rpc.Request
		if err := requests.Decode(&request); err != nil {
			return
		}
		perform, err := t.accept(request.ServiceMethod, requests.Decode)
		if err != nil {
			replies.send(request, nil, err)
			continue
		}
		calls.Go(func() {
			reply, err := perform()
			replies.send(request, reply, err)
		})
	}
}

func (t callTable) accept(name string, decode func(any) error) (func() (any, error), error) {
	if accept, ok := t[name]; ok {
		return accept(decode)
	}
	return nil, errors.Join(errors.New("this node knows no call "+name), decode(nil))
}

// replies writes the answers of one connection.
type replies struct {
	conn net.Conn

	mu  sync.Mutex // guards the following
	out *bufio.Writer
	enc *gob.Encoder
}

func newReplies(conn net.Conn) *replies {
	out := bufio.NewWriter(conn)
	return &replies{conn: conn, out: out, enc: gob.NewEncoder(out)}
}

// send hangs up if it fails: who waits must not take a part of an answer for the next one.
func (r *replies) send(request rpc.Request, reply any, err error) {
	response := rpc.Response{ServiceMethod: request.ServiceMethod, Seq: request.Seq}
	if err != nil {
		response.Error, reply = err.Error(), struct{}{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := errors.Join(r.enc.Encode(&response), r.enc.Encode(reply), r.out.Flush()); err != nil {
		r.conn.Close()
	}
}
