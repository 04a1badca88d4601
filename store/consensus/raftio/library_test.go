package raftio

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestWaitForAFutureIsBoundedAlsoWhereItTakesTimeToGetIt(t *testing.T) {
	busy := make(chan struct{})
	defer close(busy)
	err := Wait(t.Context(), Later(func() raft.SnapshotFuture {
		<-busy
		return nopSnapshot{}
	}), time.Millisecond)
	expect.ErrorIs(t, err, ErrNoResult, "got")
}

// nopSnapshot is a snapshot that was saved.
type nopSnapshot struct{ raft.SnapshotFuture }

func (nopSnapshot) Error() error { return nil }

// TestWaitLeavesNoOneWaiting waits for an entry that is not applied: what waits for it ends with the wait, not with the entry, which
// Raft may never answer.
func TestWaitLeavesNoOneWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conf, machine := raft.DefaultConfig(), &stuckFSM{release: make(chan struct{})}
		conf.LocalID, conf.LogOutput = "n1", io.Discard
		store, snapshots := raft.NewInmemStore(), raft.NewInmemSnapshotStore()
		_, transport := raft.NewInmemTransport("n1")
		need.OK(t, raft.BootstrapCluster(conf, store, store, snapshots, transport, raft.Configuration{Servers: []raft.Server{{ID: "n1", Address: "n1"}}}))
		r := need.Got(raft.NewRaft(conf, machine, store, store, snapshots, transport))(t)
		<-r.LeaderCh()
		entry := r.Apply([]byte("x"), 0)
		expect.ErrorIs(t, Wait(t.Context(), entry, time.Second), ErrNoResult, "got")
		synctest.Wait()
		expect.ErrorIs(t, entry.Error(), raft.ErrRaftShutdown, "got")
		close(machine.release)
		need.OK(t, r.Shutdown().Error())
	})
}

// stuckFSM applies nothing until it is released.
type stuckFSM struct {
	raft.FSM
	release chan struct{}
}

func (f *stuckFSM) Apply(*raft.Log) any { <-f.release; return nil }
