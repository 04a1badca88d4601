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

func TestWhatWaitsForAPlaceInTheQueueEndsByTheSameBound(t *testing.T) {
	for name, row := range map[string]struct {
		free time.Duration // until Raft has a place
		ends time.Duration // of the wait, in s
		want error
	}{
		"at once":      {0, 4, ErrNoResult},
		"late":         {1900 * time.Millisecond, 4, ErrNoResult},
		"without room": {time.Hour, 2, raft.ErrEnqueueTimeout},
	} {
		synctest.Test(t, func(t *testing.T) {
			began, answer := time.Now(), make(neverDone)
			err := Within(t.Context(), 4*time.Second, func(patience time.Duration) raft.Future {
				time.Sleep(min(row.free, patience))
				if row.free > patience {
					return refused{}
				}
				return answer
			})
			expect.ErrorIs(t, err, row.want, "%s: got", name)
			expect.Equal(t, time.Since(began), row.ends*time.Second, "%s: ended after", name)
			close(answer)
		})
	}
}

// neverDone is a future that has no answer before it is closed.
type neverDone chan struct{}

func (n neverDone) Error() error { <-n; return nil }

// refused is what Raft had no place for.
type refused struct{}

func (refused) Error() error { return raft.ErrEnqueueTimeout }

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
