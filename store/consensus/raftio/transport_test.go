package raftio

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store"
)

// stuckPipeline is a pipeline whose replies are not read.
type stuckPipeline struct {
	closed chan struct{}
	once   sync.Once
}

func (p *stuckPipeline) AppendEntries(*raft.AppendEntriesRequest, *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	<-p.closed
	return nil, raft.ErrPipelineShutdown
}

func (p *stuckPipeline) Consumer() <-chan raft.AppendFuture { return nil }

func (p *stuckPipeline) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func TestPipelineHangsForNoSender(t *testing.T) {
	tests := []struct {
		name  string
		stops time.Duration // when the node stops
		want  time.Duration
	}{
		{"the node goes on", time.Hour, pipelineLimit},
		{"the node stops", time.Second, time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				closing, stop := context.WithTimeout(t.Context(), tt.stops)
				defer stop()
				p := (&Transport{closing: closing}).newPipeline("f", &stuckPipeline{closed: make(chan struct{})})
				began := time.Now()
				_, err := p.AppendEntries(&raft.AppendEntriesRequest{}, nil)
				got := time.Since(began)
				expect.That(t, errors.Is(err, raft.ErrPipelineShutdown) && got == tt.want,
					"ended after %v with %v, want the end of the pipeline after %v", got, err, tt.want)
				if err := p.Close(); err != nil { // raft closes it once more
					t.Error(err)
				}
			})
		})
	}
}

// countingPipeline counts the requests that reach it.
type countingPipeline struct {
	stuckPipeline
	sent int
}

func (p *countingPipeline) AppendEntries(*raft.AppendEntriesRequest, *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	p.sent++
	return nil, nil
}

func TestPipelineLeavesOutWhatTellsTheFollowerNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below := &countingPipeline{stuckPipeline: stuckPipeline{closed: make(chan struct{})}}
		tr := &Transport{closing: t.Context()}
		p := tr.newPipeline("f", below)
		defer p.Close()
		steps := []struct {
			name   string
			wait   time.Duration
			failed uint64 // failed heartbeats in total
			args   raft.AppendEntriesRequest
			sent   bool
			rests  time.Duration
		}{
			{name: "the first request of a pipeline", args: raft.AppendEntriesRequest{LeaderCommitIndex: 5}, sent: true},
			{name: "the same commit index", wait: 5 * time.Millisecond, args: raft.AppendEntriesRequest{LeaderCommitIndex: 5}},
			{name: "an entry", args: raft.AppendEntriesRequest{LeaderCommitIndex: 5, Entries: logsOf(1, 1, 1)}, sent: true},
			{name: "another entry", args: raft.AppendEntriesRequest{LeaderCommitIndex: 5, Entries: logsOf(1, 1, 1)}, sent: true},
			{name: "the commit index that came with the entries", wait: 5 * time.Millisecond, args: raft.AppendEntriesRequest{LeaderCommitIndex: 5}},
			{name: "their commit", wait: 5 * time.Millisecond, args: raft.AppendEntriesRequest{LeaderCommitIndex: 7}, sent: true},
			{name: "the same once more, before its time", wait: tellAgain - 1, rests: restFor, args: raft.AppendEntriesRequest{LeaderCommitIndex: 7}},
			{name: "the same once more, at its time", args: raft.AppendEntriesRequest{LeaderCommitIndex: 7}, sent: true},
			{name: "after a heartbeat that failed", failed: 1, args: raft.AppendEntriesRequest{LeaderCommitIndex: 7}, sent: true},
			{name: "after no other one", failed: 1, args: raft.AppendEntriesRequest{LeaderCommitIndex: 7}},
			{name: "at once again, as while leadership is handed over", failed: 1, rests: askedAgain, args: raft.AppendEntriesRequest{LeaderCommitIndex: 7}},
		}
		for _, s := range steps {
			time.Sleep(s.wait)
			tr.follower("f").failed.Store(s.failed)
			before, began := below.sent, time.Now()
			_, err := p.AppendEntries(&s.args, nil)
			expect.That(t, err == nil && (below.sent > before) == s.sent, "%s: sent: %v (%v), want %v", s.name, below.sent > before, err, s.sent)
			expect.Equal(t, time.Since(began), s.rests, s.name+": the sender waits")
		}
	})
}

func TestPipelineRestsUntilThereIsSomethingToTell(t *testing.T) {
	tests := []struct {
		name   string
		before bool          // something is stored before the sender comes
		wakes  time.Duration // when something is stored
		stops  time.Duration // when the node stops
		want   time.Duration
	}{
		{"nothing", false, time.Hour, time.Hour, restFor},
		{"an entry", false, restFor / 2, time.Hour, restFor / 2},
		{"an entry that came before", true, time.Hour, time.Hour, 0},
		{"the end of the node", false, time.Hour, restFor / 3, restFor / 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				closing, stop := context.WithTimeout(t.Context(), time.Second+tt.stops)
				defer stop()
				tr := &Transport{closing: closing}
				p := tr.newPipeline("f", &countingPipeline{stuckPipeline: stuckPipeline{closed: make(chan struct{})}})
				defer p.Close()
				log := &Log{LogStore: raft.NewInmemStore(), Stored: tr.Wake}
				store := func() { expect.OK(t, log.StoreLogs(logsOf(1, 1, 1))) }
				time.Sleep(time.Second - restAfter)
				p.AppendEntries(&raft.AppendEntriesRequest{}, nil)
				time.Sleep(restAfter)
				if tt.before {
					store()
				}
				time.AfterFunc(tt.wakes, store)
				began := time.Now()
				_, err := p.AppendEntries(&raft.AppendEntriesRequest{}, nil)
				expect.That(t, err == nil && time.Since(began) == tt.want, "the sender waits %v (%v), want %v", time.Since(began), err, tt.want)
			})
		})
	}
}

func TestTransportCountsTheHeartbeatsThatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		tr := newFollower(t.Context(), w)
		defer tr.Close()
		defer tr.CloseStreams()
		tr.during = inTerm(1)
		tr.SetHeartbeatHandler(func(rpc raft.RPC) { rpc.Respond(&raft.AppendEntriesResponse{}, nil) })
		for _, away := range []bool{true, false, true} {
			w.away.Store(away)
			tr.CloseStreams()
			before := tr.follower("f").failed.Load()
			err := tr.AppendEntries("f", "follower", heartbeatOf("leader", 1), new(raft.AppendEntriesResponse))
			expect.That(t, (err != nil) == away && tr.follower("f").failed.Load()-before == map[bool]uint64{true: 1}[away], "away %v: error %v, %d heartbeats failed", away, err, tr.follower("f").failed.Load()-before)
		}
	})
}

// wire is a network of one server, which may be away.
type wire struct {
	away     atomic.Bool
	broken   int // how many of the next connections end at once
	accepted chan net.Conn
	closed   chan struct{}
}

func newWire() *wire { return &wire{accepted: make(chan net.Conn), closed: make(chan struct{})} }

func (w *wire) Dial(raft.ServerAddress, time.Duration) (net.Conn, error) {
	if w.away.Load() {
		return nil, errors.New("refused")
	}
	here, there := net.Pipe()
	if w.broken > 0 {
		w.broken--
		there.Close()
		return here, nil
	}
	w.accepted <- there
	return here, nil
}

func (w *wire) Accept() (net.Conn, error) {
	select {
	case c := <-w.accepted:
		return c, nil
	case <-w.closed:
		return nil, net.ErrClosed
	}
}

func (w *wire) Addr() net.Addr { return &net.TCPAddr{} }

func (w *wire) Close() error {
	close(w.closed)
	return nil
}

// newFollower returns the transport of a server that answers on w.
func newFollower(closing context.Context, w *wire) *Transport {
	return &Transport{
		NetworkTransport: raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{Stream: w, MaxPool: 1, Timeout: time.Second, Logger: NewLogger(slog.New(slog.DiscardHandler))}),
		closing:          closing,
		rpcs:             make(chan raft.RPC),
	}
}

func TestTransportHandlesHeartbeatsOfTheTermBesideTheMainLoop(t *testing.T) {
	tests := []struct {
		name   string
		term   uint64 // of the heartbeat; the node's is 3
		beside bool
	}{
		{"a later term", 4, false},
		{"the same term", 3, true},
		{"an earlier term", 2, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWire()
				closing, stop := context.WithCancel(t.Context())
				tr := newFollower(closing, w)
				defer tr.Close()
				defer tr.CloseStreams()
				defer stop()
				tr.during = inTerm(3)
				beside := false
				tr.SetHeartbeatHandler(func(rpc raft.RPC) {
					beside = true
					rpc.Respond(&raft.AppendEntriesResponse{}, nil)
				})
				go func() {
					select {
					case rpc := <-tr.Consumer():
						rpc.Respond(&raft.AppendEntriesResponse{}, nil)
					case <-closing.Done():
					}
				}()
				need.OK(t, tr.AppendEntries("f", "follower", heartbeatOf("leader", tt.term), new(raft.AppendEntriesResponse)))
				expect.Equal(t, beside, tt.beside, "answered beside the main loop:")
			})
		})
	}
}

// inTerm returns the term of a node that never raises it.
func inTerm(now uint64) During {
	return func(term uint64, do func()) bool {
		if term == now {
			do()
		}
		return term == now
	}
}

func heartbeatOf(leader string, term uint64) *raft.AppendEntriesRequest {
	return &raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(leader), Addr: []byte(leader)}, Term: term}
}

// road leads from one server to all others.
type road struct {
	*wire
	to map[raft.ServerAddress]*wire
}

func (r road) Dial(to raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	return r.to[to].Dial(to, timeout)
}

// A late leader sends a heartbeat while a node that has just won the pre-vote stores the term of its election on a
// slow disk. After a pause of a whole cluster all its nodes are in this situation.
func TestTransportLetsNoLateHeartbeatLowerTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wires := map[raft.ServerAddress]*wire{"f": newWire(), "leader": newWire(), "other": newWire()}
		closing, stop := context.WithCancel(t.Context())
		network := func(address raft.ServerAddress) *raft.NetworkTransportConfig {
			return &raft.NetworkTransportConfig{Stream: road{wires[address], wires}, MaxPool: 1, Timeout: time.Minute, Logger: NewLogger(slog.New(slog.DiscardHandler))}
		}
		var servers []raft.Server
		for address := range wires {
			servers = append(servers, raft.Server{ID: raft.ServerID(address), Address: address})
		}
		// The others grant every pre-vote, and no vote.
		serve := func(tr *raft.NetworkTransport) {
			for {
				select {
				case rpc := <-tr.Consumer():
					switch r := rpc.Command.(type) {
					case *raft.RequestPreVoteRequest:
						rpc.Respond(&raft.RequestPreVoteResponse{Term: r.Term, Granted: true}, nil)
					case *raft.RequestVoteRequest:
						rpc.Respond(&raft.RequestVoteResponse{Term: r.Term}, nil)
					}
				case <-closing.Done():
					return
				}
			}
		}
		leader, other := raft.NewNetworkTransportWithConfig(network("leader")), raft.NewNetworkTransportWithConfig(network("other"))
		go serve(leader)
		go serve(other)

		d := diskIn(t, t.TempDir(), store.LogBolt)
		tr := NewTransport(network("f"), nil, d.During, closing)
		go tr.PassOn()
		conf := raft.DefaultConfig()
		conf.LocalID, conf.Logger = "f", NewLogger(slog.New(slog.DiscardHandler))
		snaps := raft.NewDiscardSnapshotStore()
		need.OK(t, raft.BootstrapCluster(conf, d, d.Stable(), snaps, tr, raft.Configuration{Servers: servers}))
		node := need.Got(New(conf, &raft.MockFSM{}, d, d.Stable(), snaps, tr))(t)
		defer func() {
			stop()
			need.OK(t, node.Shutdown().Error())
			for _, tr := range []*raft.NetworkTransport{leader, other, tr.NetworkTransport} {
				tr.CloseStreams()
				need.OK(t, tr.Close())
			}
			need.OK(t, d.Close())
		}()
		beat := func() (reply raft.AppendEntriesResponse) {
			need.OK(t, leader.AppendEntries("f", "f", heartbeatOf("leader", 2), &reply))
			return reply
		}
		expect.Equal(t, beat().Term, 2, "the term that follows the leader is")

		d.SlowDown(conf.ElectionTimeout / 10)
		for node.State() != raft.Candidate {
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		expect.Equal(t, d.term.Load(), 2, "while the term is being raised it still is")
		expect.Equal(t, beat().Term, 3, "a late leader is told of term")
		expect.Equal(t, d.term.Load(), 3, "the stored term is")
	})
}

// A follower is away when a leader sends entries.
func TestTransportSendsEntriesAgainAfterTheNextHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		closing, stop := context.WithCancel(t.Context())
		tr := newFollower(closing, w)
		defer tr.Close()
		defer tr.CloseStreams()
		tr.during = inTerm(1)
		tr.SetHeartbeatHandler(func(rpc raft.RPC) { rpc.Respond(&raft.AppendEntriesResponse{}, nil) })
		go func() {
			for {
				select {
				case rpc := <-tr.NetworkTransport.Consumer():
					rpc.Respond(&raft.AppendEntriesResponse{LastLog: 1, Success: true}, nil)
				case <-closing.Done():
					return
				}
			}
		}()
		send := func() <-chan error {
			done := make(chan error, 1)
			go func() {
				done <- tr.AppendEntries("f", "follower", &raft.AppendEntriesRequest{Entries: logsOf(1, 1, 1)}, new(raft.AppendEntriesResponse))
			}()
			return done
		}
		beat := func() error {
			return tr.AppendEntries("f", "follower", heartbeatOf("leader", 1), new(raft.AppendEntriesResponse))
		}
		ended := func(done <-chan error) (err error, ended bool) {
			synctest.Wait()
			select {
			case err := <-done:
				return err, true
			default:
				return nil, false
			}
		}

		w.away.Store(true)
		entries := send()
		if _, ended := ended(entries); ended || beat() == nil {
			t.Fatal("the call has ended, or a heartbeat was answered, while the follower is away")
		}
		w.away.Store(false)
		need.OK(t, beat())
		err, done := ended(entries)
		expect.That(t, done && err == nil, "after a heartbeat was answered the entries have arrived: %v (%v)", done, err)

		w.broken = MaxPool // like connections kept from before the follower stopped
		tr.CloseStreams()
		entries = send()
		_, done = ended(entries)
		expect.That(t, !done, "the failure counts before the next heartbeat")
		need.OK(t, beat())
		err, done = ended(entries)
		expect.That(t, done && err == nil, "over the first connection that holds the entries have arrived: %v (%v)", done, err)

		w.away.Store(true)
		tr.CloseStreams()
		entries = send()
		time.Sleep(silentLimit - time.Millisecond)
		_, done = ended(entries)
		expect.That(t, !done, "the failure counts before its time")
		time.Sleep(time.Millisecond)
		err, done = ended(entries)
		expect.That(t, done && err != nil, "the failure does not count after %v (%v)", silentLimit, err)
		entries = send()
		stop()
		_, done = ended(entries)
		expect.That(t, done, "the failure is held back though the node stops")
	})
}

// A follower comes back while the leader sends it a heartbeat.
func TestTransportNoticesSoonThatAFollowerIsBack(t *testing.T) {
	tests := []struct {
		name  string
		back  time.Duration
		stops time.Duration // the leader
		fails bool
		want  time.Duration
	}{
		{"soon", beatAgain / 2, time.Hour, false, beatAgain},
		{"later", time.Second + beatAgain/2, time.Hour, false, time.Second + beatAgain},
		{"never", time.Hour, time.Hour, true, beatFor},
		{"never, and the leader stops", time.Hour, time.Second + beatAgain/2, true, time.Second + beatAgain/2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWire()
				w.away.Store(true)
				closing, stop := context.WithTimeout(t.Context(), tt.stops)
				defer stop()
				tr := newFollower(closing, w)
				defer tr.Close()
				defer tr.CloseStreams()
				tr.during = inTerm(1)
				tr.SetHeartbeatHandler(func(rpc raft.RPC) { rpc.Respond(&raft.AppendEntriesResponse{}, nil) })
				back := time.AfterFunc(tt.back, func() { w.away.Store(false) })
				defer back.Stop()
				began := time.Now()
				err := tr.AppendEntries("f", "follower", heartbeatOf("leader", 1), new(raft.AppendEntriesResponse))
				expect.That(t, (err != nil) == tt.fails && time.Since(began) == tt.want, "after %v: %v, want that after %v", time.Since(began), err, tt.want)
			})
		})
	}
}

// A follower that comes back must hear nothing more from a leader that has lost its majority meanwhile.
func TestTransportSendsNothingAfterTheEndOfTheLeadership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		w.away.Store(true)
		tr := newFollower(t.Context(), w)
		defer tr.Close()
		defer tr.CloseStreams()
		tr.during = inTerm(2)
		var beats atomic.Int64
		tr.SetHeartbeatHandler(func(rpc raft.RPC) {
			beats.Add(1)
			rpc.Respond(&raft.AppendEntriesResponse{}, nil)
		})
		var term atomic.Uint64 // the term that the node leads in
		term.Store(1)
		tr.SetLeads(func(of uint64) bool { return of == term.Load() })
		ended := make(chan error, 3)
		send := func(args *raft.AppendEntriesRequest) {
			ended <- tr.AppendEntries("f", "follower", args, new(raft.AppendEntriesResponse))
		}
		go send(heartbeatOf("leader", 1))
		go send(&raft.AppendEntriesRequest{Term: 1, Entries: logsOf(1, 1, 1)})
		go func() {
			ended <- tr.InstallSnapshot("f", "follower", &raft.InstallSnapshotRequest{Term: 1}, new(raft.InstallSnapshotResponse), strings.NewReader(""))
		}()
		time.Sleep(time.Second)
		expect.Equal(t, len(ended), 0, "while it leads, calls have ended:")
		term.Store(2)
		time.Sleep(beatAgain)
		synctest.Wait()
		need.That(t, len(ended) == 3, "%d of 3 calls have ended", len(ended))
		for range 3 {
			expect.That(t, <-ended != nil, "a call to a server that is away succeeded")
		}
		w.away.Store(false)
		send(heartbeatOf("leader", 1))
		expect.ErrorIs(t, <-ended, errLeadershipEnded, "a heartbeat of the old term ended with")
		expect.Equal(t, beats.Load(), 0, "heartbeats that arrived")
		send(heartbeatOf("leader", 2))
		expect.OK(t, <-ended)
		expect.Equal(t, beats.Load(), 1, "heartbeats of the new term that arrived")
	})
}

func TestTransportHoldsTheFailureOfASnapshotBackUntilTheNextHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		w.away.Store(true)
		tr := newFollower(t.Context(), w)
		defer tr.Close()
		defer tr.CloseStreams()
		const back = 3 * time.Second
		time.AfterFunc(back, func() { tr.follower("f").replied.Fire() })
		began := time.Now()
		err := tr.InstallSnapshot("f", "follower", new(raft.InstallSnapshotRequest), new(raft.InstallSnapshotResponse), strings.NewReader(""))
		expect.That(t, err != nil && time.Since(began) == back, "failed after %v (%v), want %v", time.Since(began), err, back)
	})
}

// It reads snapshots of an entry that is applied and of one that is not: raft would install either.
func TestSnapshotThatIsBehindTheStateIsNotInstalled(t *testing.T) {
	tr := &Transport{Patience: time.Hour}
	tr.SetApplied(func() uint64 { return 262 })
	for index, want := range map[uint64]error{208: errOutdatedSnapshot, 262: errOutdatedSnapshot, 263: nil} {
		sent := strings.NewReader("what the leader sends")
		got, err := io.ReadAll(snapshotReader{sent, tr, "n1", index})
		expect.ErrorIs(t, err, want, "snapshot of entry %d", index)
		expect.That(t, sent.Len() == 0, "snapshot of entry %d: %d bytes are left for the next request", index, sent.Len())
		expect.Equal(t, string(got) != "", want == nil, "snapshot of entry %d is read", index)
	}
}
