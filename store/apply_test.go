package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// padded is a registration of about so many bytes.
func padded(id string, size int) registry.Register {
	i := instance("A", id, 90)
	i.Metadata = []registry.Pair{{Key: "pad", Value: strings.Repeat("x", size)}}
	return registry.Register{Instance: i}
}

func TestOperationsBeyondOneBatchTakeEffectInOrder(t *testing.T) {
	c := startCluster(t, 1, nil)
	var ops []registry.Op
	for i := range 20 {
		ops = append(ops, padded(fmt.Sprintf("i%d", i), 60<<10)) // five batches
	}
	ops = append(ops, registry.Cancel{Key: registry.NewKey("A", "i0")})
	results := need.Got(c.nodes[0].Apply(context.Background(), registry.FromClient, ops...))(t)
	for i := 1; i < len(results); i++ {
		expect.That(t, results[i].Outcome == registry.Done && results[i].Index > results[i-1].Index,
			"operation %d: %+v after %+v, want done and a higher index", i, results[i], results[i-1])
	}
	got := c.nodes[0].read(t, registry.Linearizable).Len()
	expect.That(t, got == 19, "%d instances, want 19", got)
}

func TestNothingIsDoneIfOneOperationIsTooLarge(t *testing.T) {
	c := startCluster(t, 1, nil)
	_, err := c.nodes[0].Apply(context.Background(), registry.FromClient, padded("small", 10), padded("huge", maxOpBytes))
	expect.ErrorIs(t, err, registry.ErrTooLarge, "got")
	got := c.nodes[0].read(t, registry.Linearizable).Len()
	expect.That(t, got == 0, "%d instances, want none", got)
}

func TestACallThatWasDonePartlyIsUnknown(t *testing.T) {
	expect.ErrorIs(t, partly(0, registry.ErrNoLeader), registry.ErrNoLeader, "nothing done: got")
	err := partly(3, registry.ErrNoLeader)
	expect.That(t, errors.Is(err, registry.ErrUnknownOutcome) && !errors.Is(err, registry.ErrNoLeader),
		"some done: got %v, want ErrUnknownOutcome and not ErrNoLeader", err)
}

func TestOnlyWhatAClientRenewsIsShortened(t *testing.T) {
	c := startCluster(t, 1, nil)
	key := registry.NewKey("A", "i0")
	c.nodes[0].apply(t, registry.Register{Instance: instance("A", "i0", 90)})
	tests := []struct {
		name  string
		renew registry.Renew
		short bool
	}{
		{"a client's", registry.Renew{Key: key, LastDirty: 5}, true},
		{"with an override", registry.Renew{Key: key, Overridden: registry.Down}, false},
		{"of a life", registry.Renew{Key: key, Life: 1}, false},
		{"of some time ago", registry.Renew{Key: key, Age: 1}, false},
		{"of an unknown instance", registry.Renew{Key: registry.NewKey("A", "i1")}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := c.nodes[0].shorten(tt.renew).(registry.Renew)
			expect.That(t, (got.Handle != registry.Handle{}) == tt.short, "got %+v, want a handle: %v", got, tt.short)
		})
	}
}

func TestTheSizeOfARenewalIsNotUnderestimated(t *testing.T) {
	i := fsm.Item{
		Origin: registry.Origin{Kind: registry.RemoteDC, DC: strings.Repeat("d", 63)},
		Op:     registry.Renew{Key: registry.NewKey("APP", "id"), LastDirty: math.MaxInt64, Overridden: registry.Down, Life: math.MaxUint32, Age: math.MaxInt64},
	}
	empty := len(fsm.AppendBatch(nil, fsm.BatchID{}, nil))
	got, want := sizeOf(i), len(fsm.AppendBatch(nil, fsm.BatchID{}, []fsm.Item{i}))-empty
	expect.That(t, got >= want, "%d bytes, but it takes %d", got, want)
}

func TestAReplicaIsBoundedAsARegistrationIs(t *testing.T) {
	c := startCluster(t, 1, nil)
	large := registry.Replica{Instance: padded("huge", maxOpBytes).Instance, Life: 1}
	expect.ErrorIs(t, expect.Err(c.nodes[0].Apply(context.Background(), registry.FromEureka, large)), registry.ErrTooLarge, "got")
}

// What an answer is made of after it was given is nobody's: the state machine remembers it, and snapshots have it.
func TestRenewalsThatAreRepeatedByNameLeaveTheRememberedAnswerAlone(t *testing.T) {
	c := startCluster(t, 1, nil)
	n := c.nodes[0]
	n.apply(t, registry.Register{Instance: instance("A", "x", 90)})
	renew := registry.Renew{Key: registry.NewKey("A", "x")}
	remembered := []registry.Result{{Outcome: registry.GoneHandle}}
	got, err := n.resendByName(context.Background(), []fsm.Item{{Op: renew}}, []registry.Op{renew}, remembered)
	expect.That(t, err == nil && len(got) == 1 && got[0].Outcome == registry.Done, "got %+v, %v, want the renewal done", got, err)
	expect.That(t, remembered[0].Outcome == registry.GoneHandle, "the remembered answer is %+v now", remembered[0])
}
