package consensus

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
)

// batchOfAnotherNode is the encoded batch of another node that registers one instance.
func batchOfAnotherNode(seq uint64, bound fsm.Bound) []byte {
	id := fsm.BatchID{Node: "other", Boot: 1, Seq: seq, Bound: bound}
	return fsm.AppendBatch(nil, codec.Newest, id, []fsm.Item{{Op: registry.Register{Instance: instance("LATE", fmt.Sprintf("i%d", seq), 600)}}})
}

func TestCommitterOfTheLeaderServesNoBatchAfterItsBound(t *testing.T) {
	c := startCluster(t, 3, nil)
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
		// A copy may have been in time when it was proposed, and late when it is applied.
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
}

func TestWriteOnAnyNodeSucceedsAfterEachChangeOfTheLeader(t *testing.T) {
	c := startCluster(t, 3, nil)
	for i := range 4 {
		leader := c.leader()
		for j, n := range c.nodes {
			expect.Equal(t, n.apply(t, registry.Register{Instance: instance("A", fmt.Sprintf("i%d-%d", i, j), 600)}).Outcome, registry.Done,
				"leader n%d, write at %s:", leader+1, n.cfg.Node)
		}
		c.moveLeadership()
	}
}
