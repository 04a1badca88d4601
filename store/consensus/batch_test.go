package consensus

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/store"
)

// newCall is a call of one client.
func newCall(op registry.Op) *call {
	item := fsm.Item{Origin: registry.FromClient, Op: op}
	return &call{items: []fsm.Item{item}, size: store.SizeOf(item), arrived: time.Now(), done: make(chan struct{})}
}

// alien is an operation that no leader can read: one of another build has such a status.
func alien(id string) registry.Op {
	return registry.SetOverride{Key: registry.NewKey("A", id), Status: 99}
}

// follower is a follower of a cluster, which is to stay one: a leader must not propose what the others cannot read.
func follower(t *testing.T) *testNode {
	t.Helper()
	c := startCluster(t, 3, nil)
	return c.nodes[(c.leader()+1)%3]
}

func TestOnlyTheCallerOfAnUnreadableOperationIsRefused(t *testing.T) {
	n := follower(t)
	const clients = 60
	for i := range clients {
		n.apply(t, registry.Register{Instance: instance("A", fmt.Sprint("i", i), 90)})
	}
	for _, planted := range [][]int{{0}, {30}, {clients - 1}, {7, 8, 40}} {
		var calls []*call
		for i := range clients {
			id := fmt.Sprint("i", i)
			if slices.Contains(planted, i) {
				calls = append(calls, newCall(alien(id)))
				continue
			}
			calls = append(calls, newCall(registry.Renew{Key: registry.NewKey("A", id)}))
		}
		c := n.committer
		c.mu.Lock() // so that they share a batch
		for _, k := range calls {
			k.arrived = time.Now()
			c.calls = append(c.calls, k)
		}
		c.signal()
		c.mu.Unlock()
		for i, k := range calls {
			<-k.done
			switch {
			case slices.Contains(planted, i):
				expect.ErrorIs(t, k.err, registry.ErrUnreadable, "planted %v: the caller of %d got", planted, i)
			case k.err != nil || len(k.results.registry) != 1 || k.results.registry[0].Outcome != registry.Done:
				t.Errorf("planted %v: heartbeat %d got %+v, %v, want done", planted, i, k.results, k.err)
			}
		}
	}
	n.apply(t, registry.Cancel{Key: registry.NewKey("A", "i0")})
	eventually(t, "no number is open", func() bool {
		n.committer.mu.Lock()
		defer n.committer.mu.Unlock()
		return len(n.committer.open) == 0
	})
}

// Under new numbers it could take effect twice.
func TestABatchThatMayHaveTakenEffectIsNotDivided(t *testing.T) {
	n := follower(t)
	c := n.committer
	calls := []*call{newCall(alien("i0")), newCall(registry.Renew{Key: registry.NewKey("A", "i1")})}
	b := c.reseal(calls)
	b.sent = time.Now().Add(time.Second/2 - answerWait)
	c.sendUntilAnswered(context.Background(), b)
	for _, k := range calls {
		<-k.done
		expect.ErrorIs(t, k.err, registry.ErrUnknownOutcome, "got")
	}
}

func TestABatchIsDividedAroundWhatCannotBeRead(t *testing.T) {
	one := &call{items: make([]fsm.Item, 1)}
	two := &call{items: make([]fsm.Item, 2)}
	b := &batch{calls: []*call{one, two, one, one}}
	for _, tt := range []struct {
		name string
		item int
		want []int // calls of the parts
	}{
		{"the first", 0, []int{1, 3}},
		{"the second, by its first operation", 1, []int{1, 1, 2}},
		{"the second, by its last operation", 2, []int{1, 1, 2}},
		{"the last", 4, []int{3, 1}},
		{"not known", -1, []int{2, 2}},
		{"beyond the last", 5, []int{2, 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []int
			for _, part := range b.around(tt.item) {
				got = append(got, len(part))
			}
			expect.That(t, slices.Equal(got, tt.want), "parts of %v calls, want %v", got, tt.want)
		})
	}
}
