package rollcallpeer

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/replication/link"
)

const (
	// contestedFor is how long this side does not repair what it refused: the peer would reply with the same.
	contestedFor = 5 * time.Minute
	// offerAgain bounds how soon what a peer has refused for a while is offered to it again, and offerLatest how
	// late: nobody knows when an instance without a lease ends.
	offerAgain, offerLatest = 5 * time.Second, 10 * time.Minute
)

// taking judges which items of another datacenter's message need the right to take over.
type taking struct {
	judge   access.Judge
	need    access.Need
	asked   bool // the right matters: another datacenter sends, and is authenticated
	refuses bool // it lacks the right, and what needs that is refused
	may     bool
	seized  []string // by item, see registry.View.Seizes
}

// takingOf returns what the sender of a message from an origin may take over.
func takingOf(ctx context.Context, view *registry.View, origin registry.Origin, items int) *taking {
	t := &taking{
		judge: access.JudgeOf(ctx), seized: make([]string, items),
		need: access.Need{Resource: access.Peer, Name: origin.DC, Verb: access.Takeover, Counted: view.CountsNewRights()},
	}
	t.asked = origin.Kind == registry.RemoteDC && t.judge.Mode != access.Off
	t.may = !t.asked || t.judge.Allows(t.need)
	t.refuses = !t.may && t.judge.Mode == access.On && !t.need.Counted
	return t
}

// admit returns the operation of an item as it must be performed, or why it is refused whatever is registered here.
func (t *taking) admit(view *registry.View, origin registry.Origin, item int, op registry.Op) (registry.Op, error) {
	if !t.asked {
		return yielding(op, false), nil
	}
	what, always := view.Seizes(origin, op)
	if t.seized[item] = what; t.refuses && always {
		return nil, fmt.Errorf("the sender needs the right %q %s", t.need, what)
	}
	return yielding(op, t.refuses), nil
}

// yielding returns an operation that yields or does not, whatever its sender says.
func yielding(op registry.Op, yields bool) registry.Op {
	switch op := op.(type) {
	case registry.Replica:
		op.Yields = yields
		return op
	case registry.Remove:
		op.Yields = yields
		return op
	case registry.Renew:
		op.Yields = yields
		return op
	}
	return op
}

// recordTaken counts a message that took over, or would have, without the right; names what is refused; and has the
// audit record what was taken over.
func (r *Receiver) recordTaken(m *Message, in *intake) {
	without := false
	for n, op := range in.ops {
		item := in.items[n]
		if item < 0 || !in.taking.asked {
			continue
		}
		seized, outcome := in.taking.seized[item], in.applied[n].Outcome
		key, _ := registry.KeyOf(op)
		switch {
		case outcome == registry.Held || in.taking.refuses && seized != "":
			without = true
			r.side.Refusals.Hold(key, m.Items[item].Name(), m.Datacenter, r.heldText(m.Datacenter), contestedFor)
		case seized == "" || in.applied[n].Index == 0:
		default:
			in.taking.judge.Records(in.taking.need, key.String())
			if without = without || !in.taking.may; !in.taking.may {
				r.side.Log.Warn("a peer has taken over a living instance without the right to; this will be refused", "app", key.App, "id", key.ID,
					"from", m.Datacenter, "right", in.taking.need.String())
			}
		}
	}
	for n, result := range in.results {
		without = without || in.taking.seized[n] != "" && result.Status == Invalid
	}
	if without {
		_ = in.taking.judge.Refuses(in.taking.need) // counts it; what is refused has its result
	}
}

// heldText says why an item of another datacenter is held.
func (r *Receiver) heldText(from string) string {
	return fmt.Sprintf("a client renews it in %s, its owner, and %s lacks the right \"peer %[2]s takeover\"", r.side.Datacenter, from)
}

// dropTaken leaves out what came back with a reply and would take over a living instance: nobody checked whether the
// peer may. The peer also sends it on its own.
func (l *Link) dropTaken(ops []registry.Op) []registry.Op {
	if l.env.Peer.Kind != link.Datacenter || !l.env.Asks() {
		return ops
	}
	var kept []registry.Op
	view, on := l.env.View(), l.env.AuthMode() == access.On.String()
	for _, op := range ops {
		if seized, _ := view.Seizes(l.env.Origin, op); seized != "" {
			key, _ := registry.KeyOf(op)
			if !on { // what the peer sends on its own is accepted, and counted
				continue
			}
			l.env.Refusals.Hold(key, registry.Operations.Name(op), l.env.Peer.Name, fmt.Sprintf("what comes back with a reply has no right %s", seized), contestedFor)
			continue
		}
		kept = append(kept, yielding(op, on))
	}
	return kept
}

// offer sends the peer again what it has held, when the lease of its instance has ended.
func (l *Link) offer() {
	view := l.env.View()
	there := func(key registry.Key) bool {
		_, ok := view.Find(key)
		return ok
	}
	for _, key := range l.env.Owed.Due(2*offerAgain, there) {
		l.env.Submit(link.Task{Key: key, Facts: link.Registered})
	}
}

// contested reports whether a comparison must leave an instance alone: one of the two sides refuses the other's.
func (l *Link) contested(key registry.Key) bool {
	return l.env.Owed.Held(key, "") || l.env.Refusals.Held(key, l.env.Peer.Name)
}
