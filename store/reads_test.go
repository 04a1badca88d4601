package store

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// What fails at once would else be asked for as often as the processor allows, of the leader too.
func TestANodeThatCannotBecomeReadyTriesAgainAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		const most = 2 * int(time.Second/retryPause)
		tries := 0
		s := &Raft{closing: ctx, peers: newPeers(nil, nil)}
		s.reads = newRounds(func(context.Context) (uint64, error) {
			if tries++; tries > most {
				stop() // time stands still in a bubble that is busy
			}
			return 0, errors.New("refused")
		})
		var rounds sync.WaitGroup
		rounds.Go(func() { s.reads.run(ctx) })
		s.becomeReady(ctx)
		rounds.Wait() // one may have begun when the time was up
		expect.That(t, tries >= 2 && tries <= most, "it tried %d times in a second, want at most %d", tries, most)
	})
}

func TestOnlyVotersCountInTheQuorumOfARead(t *testing.T) {
	voter := func(id raft.ServerID) raft.Server { return raft.Server{ID: id} }
	learner := raft.Server{ID: "learner", Suffrage: raft.Nonvoter}
	tests := []struct {
		name    string
		members []raft.Server
		others  int
		missing int // of them, to make a majority
	}{
		{"the only one", []raft.Server{voter("self")}, 0, 0},
		{"three", []raft.Server{voter("a"), voter("self"), voter("b")}, 2, 1},
		{"four", []raft.Server{voter("a"), voter("self"), voter("b"), voter("c")}, 3, 2},
		{"three and a learner", []raft.Server{voter("a"), voter("self"), learner, voter("b")}, 2, 1},
		// B and a leader that the others have removed are no majority: C and D may have elected another leader.
		{"a leader that was removed from four", []raft.Server{voter("b"), voter("c"), voter("d")}, 3, 2},
		{"a leader that was removed from two", []raft.Server{voter("b")}, 1, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			others, missing := readQuorum(tt.members, "self")
			expect.That(t, len(others) == tt.others && missing == tt.missing,
				"asks %v, %d of them must agree; want %d to ask and %d", others, missing, tt.others, tt.missing)
		})
	}
}

func TestTheAnswerOfAnotherNodeAtAVotersAddressDoesNotCount(t *testing.T) {
	c := startCluster(t, 3, nil)
	asking := c.nodes[c.leader()]
	members := need.Got(asking.members())(t)
	for i, m := range members {
		expect.OKf(t, expect.Err(asking.termOf(m)), "the term of %s", m.ID)
		swapped := raft.Server{ID: m.ID, Address: members[(i+1)%len(members)].Address}
		var other *errOther
		_, err := asking.termOf(swapped)
		expect.That(t, errors.As(err, &other), "the term of %s asked at %s's address: %v, want errOther", m.ID, members[(i+1)%3].ID, err)
		if _, err := asking.stateOf(context.Background(), swapped); !errors.As(err, &other) {
			t.Errorf("the state of %s asked at %s's address: %v, want errOther", m.ID, members[(i+1)%3].ID, err)
		}
	}
}
