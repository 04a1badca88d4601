package store

import (
	"context"
	"fmt"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// few is how many entries a cluster may write for itself while it is asked for something a hundred times.
const few = 20

func TestRenewalsOfWhatIsNotThereLeaveTheLogAlone(t *testing.T) {
	c := startCluster(t, 1, nil)
	n := c.nodes[0]
	ctx := context.Background()
	before := n.raft.LastIndex()
	for i := range 100 {
		key := registry.NewKey("A", fmt.Sprintf("i%d", i))
		for _, origin := range []registry.Origin{registry.FromClient, registry.FromEureka} {
			results, err := n.Apply(ctx, origin, registry.Renew{Key: key, LastDirty: 1}, registry.Renew{Key: key, Overridden: registry.Down})
			need.That(t, err == nil && results[0].Outcome == registry.NotFound && results[1].Outcome == registry.NotFound,
				"renewals from %v: %+v, %v, want NotFound", origin, results, err)
		}
		results, err := n.Coordination().Apply(ctx, kv.RenewSession{ID: fmt.Sprintf("s%d", i)})
		need.That(t, err == nil && !results[0].OK, "renewal of a session: %+v, %v, want none", results, err)
	}
	grown := n.raft.LastIndex() - before
	expect.That(t, grown <= few, "the log grew by %d entries", grown)
}

// A node that is behind must not take what it does not know for what is not there.
func TestARenewalIsFoundByANodeThatHasNotHeardOfTheRegistration(t *testing.T) {
	c := startCluster(t, 3, nil)
	ctx := context.Background()
	for i := range 30 {
		id := fmt.Sprintf("i%d", i)
		by, at := c.nodes[i%3], c.nodes[(i+1)%3]
		by.apply(t, registry.Register{Instance: instance("A", id, 90)})
		absent := registry.Renew{Key: registry.NewKey("A", "absent")}
		results, err := at.Apply(ctx, registry.FromClient, absent, registry.Renew{Key: registry.NewKey("A", id)})
		need.That(t, err == nil && results[0].Outcome == registry.NotFound && results[1].Outcome == registry.Done,
			"%s: %+v, %v, want NotFound and Done", id, results, err)
		created, err := by.Coordination().Apply(ctx, kv.CreateSession{ID: id})
		need.That(t, err == nil && created[0].OK, "session %s: %+v, %v", id, created, err)
		if renewed, err := at.Coordination().Apply(ctx, kv.RenewSession{ID: id}); err != nil || !renewed[0].OK {
			t.Fatalf("session %s: %+v, %v, want it renewed", id, renewed, err)
		}
	}
}

// What another server renewed after its cancel has something to say, which the log must get.
func TestARenewalAfterACancelIsCommittedIfAnotherServerSentIt(t *testing.T) {
	c := startCluster(t, 1, nil)
	n := c.nodes[0]
	key := registry.NewKey("A", "i0")
	eureka := registry.Origin{Kind: registry.RemoteDC, DC: "eureka"}
	n.apply(t, registry.Register{Instance: instance("A", "i0", 90)})
	n.apply(t, registry.Cancel{Key: key})
	expect.That(t, !n.machine.Ignores(eureka, registry.Renew{Key: key, Life: 9}) && !n.machine.Ignores(eureka, registry.Renew{Key: key}),
		"a renewal of another server would not be committed")
	expect.That(t, n.machine.Ignores(registry.FromClient, registry.Renew{Key: key}), "a renewal of a client would be committed")
}
