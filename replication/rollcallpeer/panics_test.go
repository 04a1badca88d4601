package rollcallpeer

import (
	"context"
	"slices"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/replication/link"
	"github.com/seed-20419f34/rollcall/replication/peertest"
)

// panicking is a registry, as a node without consensus has it, whose operations about an instance panic.
type panicking struct {
	registry.Service
	id      string
	servers []string // of the calls
}

// Apply implements registry.Service.
func (p *panicking) Apply(ctx context.Context, origin registry.Origin, ops ...registry.Op) ([]registry.Result, error) {
	p.servers = append(p.servers, access.ServerOf(ctx))
	results := make([]registry.Result, len(ops))
	for i, op := range ops {
		key, _ := registry.KeyOf(op)
		switch {
		case key.ID != p.id || p.id == "":
			done, err := p.Service.Apply(ctx, origin, op)
			if err != nil {
				return nil, err
			}
			results[i] = done[0]
		case len(ops) == 1:
			return nil, registry.ErrPanicked
		default:
			results[i].Outcome = registry.Panicked
		}
	}
	return results, nil
}

func TestItemThatPanicsAtThePeerIsSentThreeTimesAndTheOthersOnce(t *testing.T) {
	a, b := twoNodes(t)
	p := &panicking{Service: b.Memory, id: "2"}
	b.Receiver.side.Service = p
	var tasks []link.Task
	for _, id := range []string{"1", "2", "3"} {
		a.Perform(t, registry.Register{Instance: peertest.Instance("ORDERS", id, 1)})
		tasks = append(tasks, link.Task{Key: ordersID(id), Facts: link.Registered, First: a.Newest().Index()})
	}
	a.deliver(t, tasks...)
	b.lease(t, "1")
	b.lease(t, "3")
	b.without(t, "2")
	expect.Equal(t, len(b.requests), link.MaxTries, "messages")
	expect.Slice(t, a.refused, []string{"-register ORDERS/1", "-register ORDERS/3", "register ORDERS/2"}, "accepted and refused")
	expect.Equal(t, a.accepted("register"), 2, "registrations that were accepted")
	expect.That(t, len(a.failed()) == 0, "the peer counts as failing: %v", a.failed())
	expect.Slice(t, slices.Compact(p.servers), []string{"n1"}, "server that is named")

	p.id = ""
	a.deliver(t, tasks[1])
	b.lease(t, "2")
	expect.Equal(t, a.refused[len(a.refused)-1], "-register ORDERS/2", "said last")
}
