package raftio

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
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
				p := newPipeline(closing, &stuckPipeline{closed: make(chan struct{})})
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

// wire is a network of one server, which may be away.
type wire struct {
	away     bool
	accepted chan net.Conn
	closed   chan struct{}
}

func (w *wire) Dial(raft.ServerAddress, time.Duration) (net.Conn, error) {
	if w.away {
		return nil, errors.New("refused")
	}
	here, there := net.Pipe()
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

// newFollower is the transport of a server that answers on w.
func newFollower(closing context.Context, w *wire) *Transport {
	return &Transport{
		NetworkTransport: raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{Stream: w, MaxPool: 1, Timeout: time.Second, Logger: NewLogger(slog.New(slog.DiscardHandler))}),
		closing:          closing,
		rpcs:             make(chan raft.RPC),
	}
}

func TestTransportGivesANewTermToTheMainLoopOnly(t *testing.T) {
	tests := []struct {
		name     string
		known    uint64 // the term of this node; 0: not known yet
		term     uint64 // of the heartbeat
		mainLoop bool
	}{
		{"before the term is known", 0, 3, true},
		{"a new term", 2, 3, true},
		{"the same term", 3, 3, false},
		{"an earlier term", 4, 3, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &wire{accepted: make(chan net.Conn), closed: make(chan struct{})}
				closing, stop := context.WithCancel(t.Context())
				tr := newFollower(closing, w)
				defer tr.Close()
				defer tr.CloseStreams()
				defer stop()
				if tt.known > 0 {
					known := func() uint64 { return tt.known }
					tr.term.Store(&known)
				}
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
				beat := &raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{Addr: []byte("leader")}, Term: tt.term}
				need.OK(t, tr.AppendEntries("f", "follower", beat, new(raft.AppendEntriesResponse)))
				expect.That(t, beside != tt.mainLoop, "answered beside the main loop: %v, want %v", beside, !tt.mainLoop)
			})
		})
	}
}

func TestTransportSendsEntriesAgainAfterTheNextHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{away: true, accepted: make(chan net.Conn), closed: make(chan struct{})}
		closing, stop := context.WithCancel(t.Context())
		tr := newFollower(closing, w)
		defer tr.Close()
		known := func() uint64 { return 1 }
		tr.term.Store(&known)
		tr.SetHeartbeatHandler(func(rpc raft.RPC) { rpc.Respond(&raft.AppendEntriesResponse{}, nil) })
		send := func() <-chan error {
			failed := make(chan error, 1)
			go func() {
				failed <- tr.AppendEntries("f", "follower", &raft.AppendEntriesRequest{Entries: logsOf(1, 1, 1)}, new(raft.AppendEntriesResponse))
			}()
			return failed
		}
		beat := func() error {
			leader := raft.RPCHeader{Addr: []byte("leader")}
			return tr.AppendEntries("f", "follower", &raft.AppendEntriesRequest{RPCHeader: leader, Term: 1}, new(raft.AppendEntriesResponse))
		}
		ended := func(failed <-chan error) bool {
			synctest.Wait()
			select {
			case err := <-failed:
				expect.That(t, err != nil, "entries were sent to a follower that was away")
				return true
			default:
				return false
			}
		}

		failed := send()
		if err := beat(); err == nil || ended(failed) {
			t.Fatalf("the failure counts, or a heartbeat was answered (%v), while the follower is away", err)
		}
		w.away = false
		if err := beat(); err != nil || !ended(failed) {
			t.Fatalf("the failure does not count, though the follower has answered a heartbeat (%v)", err)
		}

		w.away = true
		tr.CloseStreams()
		failed = send()
		time.Sleep(silentLimit - time.Millisecond)
		expect.That(t, !ended(failed), "the failure counts before its time")
		time.Sleep(time.Millisecond)
		expect.That(t, ended(failed), "the failure does not count after %v", silentLimit)
		failed = send()
		stop()
		expect.That(t, ended(failed), "the failure is held back though the node stops")
	})
}
