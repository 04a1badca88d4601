package consensus

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
)

// padded returns a registration of about size bytes.
func padded(id string, size int) registry.Register {
	i := instance("A", id, 90)
	i.Metadata = []registry.Pair{{Key: "pad", Value: strings.Repeat("x", size)}}
	return registry.Register{Instance: i}
}

func TestApplyOfMoreThanOneBatchTakesEffectInOrder(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *testCluster) {
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
	})
}

func TestApplyDoesNothingIfOneOperationIsTooLarge(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *testCluster) {
		_, err := c.nodes[0].Apply(context.Background(), registry.FromClient, padded("small", 10), padded("huge", store.MaxOpBytes))
		expect.ErrorIs(t, err, registry.ErrTooLarge, "got")
		got := c.nodes[0].read(t, registry.Linearizable).Len()
		expect.That(t, got == 0, "%d instances, want none", got)
	})
}

func TestApplyThatWasDonePartlyIsUnknown(t *testing.T) {
	expect.ErrorIs(t, store.Partly(0, registry.ErrNoLeader), registry.ErrNoLeader, "nothing done: got")
	err := store.Partly(3, registry.ErrNoLeader)
	expect.That(t, errors.Is(err, registry.ErrUnknownOutcome) && !errors.Is(err, registry.ErrNoLeader),
		"some done: got %v, want ErrUnknownOutcome and not ErrNoLeader", err)
}

func TestRenewalIsShortenedOnlyIfAClientSentIt(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *testCluster) {
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
			got := c.nodes[0].shorten(tt.renew).(registry.Renew)
			expect.That(t, (got.Handle != registry.Handle{}) == tt.short, "%s: got %+v, want a handle: %v", tt.name, got, tt.short)
		}
	})
}

func TestTheSizeOfARenewalIsNotUnderestimated(t *testing.T) {
	i := fsm.Item{
		Origin: registry.Origin{Kind: registry.RemoteDC, DC: strings.Repeat("d", 63)},
		Op:     registry.Renew{Key: registry.NewKey("APP", "id"), LastDirty: math.MaxInt64, Overridden: registry.Down, Life: math.MaxUint32, Age: math.MaxInt64},
	}
	empty := len(fsm.AppendBatch(nil, codec.Newest, fsm.BatchID{}, nil))
	got, want := store.SizeOf(i), len(fsm.AppendBatch(nil, codec.Newest, fsm.BatchID{}, []fsm.Item{i}))-empty
	expect.That(t, got >= want, "%d bytes, but it takes %d", got, want)
}

func TestAReplicaIsBoundedAsARegistrationIs(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *testCluster) {
		large := registry.Replica{Instance: padded("huge", store.MaxOpBytes).Instance, Life: 1}
		expect.ErrorIs(t, expect.Err(c.nodes[0].Apply(context.Background(), registry.FromEureka, large)), registry.ErrTooLarge, "got")
	})
}

// Results must not be changed after the state machine returned them: it remembers them, and snapshots contain them.
func TestRenewalsRepeatedByNameLeaveTheRememberedResultAlone(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *testCluster) {
		n := c.nodes[0]
		n.apply(t, registry.Register{Instance: instance("A", "x", 90)})
		renew := registry.Renew{Key: registry.NewKey("A", "x")}
		remembered := []registry.Result{{Outcome: registry.DeadHandle}}
		got, err := n.resendByName(context.Background(), []fsm.Item{{Op: renew}}, []registry.Op{renew}, remembered)
		expect.That(t, err == nil && len(got) == 1 && got[0].Outcome == registry.Done, "got %+v, %v, want the renewal done", got, err)
		expect.That(t, remembered[0].Outcome == registry.DeadHandle, "the remembered result is %+v now", remembered[0])
	})
}

func TestHeartbeatsOfChecksAreGatheredOnlyIfTheyChangeNothing(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *testCluster) {
		n := c.nodes[0]
		for i, status := range []catalog.CheckStatus{catalog.Passing, catalog.Critical} {
			n.apply(t, registry.RegisterCatalog{Checks: []*catalog.Check{{
				ID: fmt.Sprint(i), Name: "c", Type: "ttl", TTL: 60_000, Status: status, Output: "as before",
			}}})
		}
		tests := []struct {
			name string
			op   registry.Op
			want bool
		}{
			{"passing as before", registry.SetCheck{Check: "0", TTL: true, Output: "as before"}, true},
			{"passing with another output", registry.SetCheck{Check: "0", TTL: true, Output: "other"}, true},
			{"another state", registry.SetCheck{Check: "0", TTL: true, Status: catalog.Warning, Output: "as before"}, false},
			{"critical as before", registry.SetCheck{Check: "1", TTL: true, Status: catalog.Critical, Output: "as before"}, true},
			{"critical with another output", registry.SetCheck{Check: "1", TTL: true, Status: catalog.Critical, Output: "other"}, false},
			{"not a heartbeat", registry.SetCheck{Check: "0", Output: "as before"}, false},
			{"an unknown check", registry.SetCheck{Check: "2", TTL: true}, false},
			{"a renewal of a lease", registry.Renew{}, false},
		}
		for _, tt := range tests {
			expect.Equal(t, n.repeatsCheck(tt.op), tt.want, "%s: gathered", tt.name)
		}
		if got := n.apply(t, registry.SetCheck{Check: "0", TTL: true}); got.Outcome != registry.Done || got.Index != 0 {
			t.Errorf("a gathered heartbeat: %+v, want it done without an index", got)
		}
	})
}

// A heartbeat carries not one byte for access control; other operations carry their sender.
func TestHeartbeatNamesNoSender(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *testCluster) {
		n := c.nodes[0]
		by := access.Sender{Name: "a-principal-with-a-long-name"}
		written := func(ctx context.Context, op registry.Op) string {
			t.Helper()
			before := n.raft.LastIndex()
			need.Got(n.Apply(ctx, registry.FromClient, op))(t)
			var entries strings.Builder // the leader's clock may have written another entry after it
			for i := before + 1; i <= n.raft.LastIndex(); i++ {
				var entry raft.Log
				need.OK(t, n.logs.GetLog(i, &entry))
				entries.Write(entry.Data)
			}
			return entries.String()
		}
		named := access.As(context.Background(), by)
		n.apply(t, registry.Register{Instance: instance("A", "i0", 90)})
		n.apply(t, registry.RegisterCatalog{Node: &catalog.Node{Name: "n", Address: "10.0.0.1"},
			Checks: []*catalog.Check{{Node: "n", ID: "c", Type: "ttl", Status: catalog.Passing, TTL: 60_000}}})
		beat := registry.SetCheck{Node: "n", Check: "c", Status: catalog.Passing, TTL: true}
		for _, op := range []registry.Op{registry.Renew{Key: registry.NewKey("A", "i0")}, beat} {
			expect.That(t, !strings.Contains(written(named, op), by.Name), "%T has its sender's name", op)
		}
		beat.Status = catalog.Critical
		for _, op := range []registry.Op{registry.Renew{Key: registry.NewKey("A", "i0"), Status: registry.Down}, registry.Cancel{Key: registry.NewKey("A", "i0")}, beat} {
			expect.That(t, strings.Contains(written(named, op), by.Name), "%T lacks its sender's name", op)
		}
	})
}

// batchOfAnotherNode encodes a batch, as another node would, that registers one instance.
func batchOfAnotherNode(seq uint64, bound fsm.Bound) []byte {
	id := fsm.BatchID{Node: "other", Boot: 1, Seq: seq, Bound: bound}
	return fsm.AppendBatch(nil, codec.Newest, id, []fsm.Item{{Op: registry.Register{Instance: instance("LATE", fmt.Sprintf("i%d", seq), 600)}}})
}

func TestCommitterOfTheLeaderServesNoBatchAfterItsBound(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *testCluster) {
		at := c.nodes[c.leader()]
		l := at.leadership.Own()
		index := l.Epoch.Index
		for _, row := range []struct {
			name  string
			bound fsm.Bound
		}{
			{"its time is over", l.Bound(time.Now().Add(-time.Millisecond))},
			{"for another leadership", fsm.Bound{Leadership: index + 1, Until: 1 << 40}},
		} {
			outcome := at.committer.Serve(batchOfAnotherNode(1, row.bound), false).Answer
			expect.That(t, outcome == port.NotLeader, "%s: outcome %d, want NotLeader", row.name, outcome)
			// A copy may be in time when it is proposed, and late when it is applied.
			e, err := at.proposer.Propose(batchOfAnotherNode(1, row.bound))
			need.OK(t, err)
			res, err := e.Results(t.Context())
			expect.That(t, err == nil && res[0].Late, "%s, in the log: %+v, %v, want that it is late", row.name, res, err)
		}
		inTime := l.Bound(time.Now().Add(time.Minute))
		outcome := at.committer.Serve(batchOfAnotherNode(1, inTime), false).Answer
		expect.That(t, outcome == port.OK, "in time: outcome %d", outcome)
		next := c.nodes[c.moveLeadership()]
		outcome = next.committer.Serve(batchOfAnotherNode(2, inTime), false).Answer
		expect.That(t, outcome == port.NotLeader, "of an earlier leadership: outcome %d, want NotLeader", outcome)
		v := next.read(t, registry.Linearizable)
		if _, ok := v.Lease(registry.NewKey("LATE", "i1")); !ok || v.Len() != 1 {
			t.Errorf("%d instances, want the one that came in time", v.Len())
		}
	})
}
