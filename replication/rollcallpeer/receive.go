package rollcallpeer

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/replication/link"
)

// Errors that a caller can act on, besides wire.ErrMalformed and those of registry.Service.
var (
	// ErrStranger means that a message comes from a datacenter that is not a peer of this one.
	ErrStranger = errors.New("not a peer")
	// ErrAhead means that the clock in a message has moved on for longer than its sender was silent. Its text says
	// more.
	ErrAhead = errors.New("the sender's clock cannot be right")
	// ErrOtherPrincipal means that a message uses the name of a sender that another principal used first.
	ErrOtherPrincipal = errors.New("the sender's name belongs to another principal")
	// ErrUnknownSender means that no sender with that name has a known clock.
	ErrUnknownSender = errors.New("no such sender")
)

// Receiver replies to the Rollcall servers that send to this one. Safe for concurrent use.
type Receiver struct {
	side         link.Side
	clockRecords clockRecords
	late, ahead  *prometheus.CounterVec // by datacenter of the sender
	waits        atomic.Bool            // see Waits
}

// NewReceiver returns the receiver of a side.
func NewReceiver(side link.Side) *Receiver {
	return &Receiver{
		side: side, clockRecords: clockRecords{of: make(map[senderName]clockRecord)},
		late:  messageCounter("late_messages_total", "Messages that arrived more than a minute after a newer one from the same sender."),
		ahead: messageCounter("refused_clocks_total", "Messages refused because their sender's clock cannot be right."),
	}
}

func messageCounter(name, help string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "rollcall", Subsystem: "replication", Name: name, Help: help}, []string{"datacenter"})
}

// Metrics returns the metrics of what was received.
func (r *Receiver) Metrics() []prometheus.Collector { return []prometheus.Collector{r.late, r.ahead} }

// Receive applies a message of a Rollcall peer and returns the reply. Errors: wire.ErrMalformed, wire.ErrNewer,
// ErrStranger, ErrAhead, or registry.Service's. After an error nothing is known to have been applied, and the message
// can be sent again.
func (r *Receiver) Receive(ctx context.Context, message []byte) (reply []byte, err error) {
	var m Message
	if err := Decode(message, &m); err != nil {
		return nil, err
	}
	origin, err := r.originOf(ctx, m.Datacenter, m.Node)
	if err != nil {
		return nil, err
	}
	view, principal := r.side.View(), access.SenderOf(ctx).Name
	if err := checkPrincipal(ctx, view, senderName{origin.DC, m.Sender}, principal); err != nil {
		return nil, err
	}
	in := r.intakeOf(view, &m, origin, takingOf(ctx, view, origin, len(m.Items)), principal)
	r.clockRecords.record(view, senderName{origin.DC, m.Sender}, in.late, in.ahead > 0)
	if in.ahead > 0 {
		r.ahead.WithLabelValues(m.Datacenter).Inc()
		return nil, fmt.Errorf("%w: since sender %s was last heard from, its clock has advanced %v more than this node's; if it is right, the sender must start a new incarnation",
			ErrAhead, m.Sender, (time.Duration(in.ahead) * time.Millisecond).Round(time.Second))
	}
	if in.late > tooLate {
		r.late.WithLabelValues(m.Datacenter).Inc()
	}
	if len(in.ops) > 0 {
		if in.applied, err = link.ApplyAll(access.FromServer(ctx, m.Node), r.side.Service, origin, in.ops); err != nil {
			return nil, fmt.Errorf("apply %d items of %s: %w", len(m.Items), m.Node, err)
		}
	}
	r.side.Log.Debug("message of a peer", "from", m.Node, "datacenter", m.Datacenter, "sequence", m.Sequence, "items", len(m.Items), "late_ms", in.late)
	if origin.Kind == registry.LocalPeer {
		in.ignored = ignored(&r.side, &m.Head)
	}
	reply = r.replyTo(levelOf(message), r.side.View(), in)
	r.recordRefused(&m, origin, in)
	r.recordTaken(&m, in)
	return reply, nil
}

// Compare replies to a peer's digests with what differs here. It returns the errors of Receive.
func (r *Receiver) Compare(ctx context.Context, message []byte) (reply []byte, err error) {
	var q Digests
	if err := Decode(message, &q); err != nil {
		return nil, err
	}
	origin, err := r.originOf(ctx, q.Datacenter, q.Node)
	if err != nil {
		return nil, err
	}
	all := origin.Kind == registry.LocalPeer
	if all != (q.Owner == "") {
		return nil, malformed("owner must be %q from another datacenter, and nothing from a node of the same one", q.Datacenter)
	}
	s := scope{view: r.side.View(), now: r.side.Service.Health().Clock, all: all, owner: q.Owner}
	d := s.differences(&q)
	return Encode(levelOf(message), &d), nil
}

// originOf returns the origin under which a datacenter's items are applied, if it may send here.
func (r *Receiver) originOf(ctx context.Context, datacenter, node string) (registry.Origin, error) {
	if err := access.Allow(ctx, access.Need{Resource: access.Peer, Name: datacenter, Verb: access.Exchange}); err != nil {
		return registry.Origin{}, err
	}
	if datacenter != r.side.Datacenter {
		for _, p := range r.side.Present() {
			if p.Kind == link.Datacenter && p.Name == datacenter {
				return registry.Origin{Kind: registry.RemoteDC, DC: datacenter}, nil
			}
		}
		return registry.Origin{}, fmt.Errorf("datacenter %q: %w of %s", clip(datacenter), ErrStranger, r.side.Datacenter)
	}
	switch {
	case r.side.Consensus:
		return registry.Origin{}, fmt.Errorf("datacenter %q: %w, it is this one, whose nodes agree by consensus", datacenter, ErrStranger)
	case node == r.side.Node:
		return registry.Origin{}, fmt.Errorf("node %q: %w, it is this one, or has its name", node, ErrStranger)
	}
	return registry.Origin{Kind: registry.LocalPeer}, nil
}

// checkPrincipal refuses, if callers need a name, a message in the name of a sender that another principal used
// first: whoever could speak in the name of another server could end the instances of its clients.
func checkPrincipal(ctx context.Context, view *registry.View, sender senderName, principal string) error {
	first := view.SenderPrincipal(sender.datacenter, sender.name)
	if first == "" || first == principal || access.ModeOf(ctx) != access.On {
		return nil
	}
	return fmt.Errorf("%w: %s used the name %s first, and %s sends now; if that is right, an operator frees the name here: rollcall peers forget %s", ErrOtherPrincipal, first, sender.name, principal, sender.name)
}

// intake is a message on its way into the registry.
type intake struct {
	late    int64 // ms, as in wire.Context
	ahead   int64 // ms, as in registry.View.Timing
	ops     []registry.Op
	items   []int  // per op, the item that asked for it, or -1
	ignored string // as returned by ignored
	results []result
	applied []registry.Result // per op
	taking  *taking
}

// intakeOf returns the operations of a message, the contacts first. Items that are not valid have their results
// already.
func (r *Receiver) intakeOf(
	view *registry.View, m *Message, origin registry.Origin, t *taking, principal string,
) *intake {
	in := &intake{results: make([]result, len(m.Items)), taking: t}
	in.late, in.ahead = view.Timing(origin.DC, m.Sender, m.Incarnation, m.Clock, r.now(view))
	for _, contact := range contacts(&r.side, view, &m.Head, origin, in.late, principal) {
		in.add(-1, contact)
	}
	c := Context{Late: in.late}
	if origin.Kind != registry.LocalPeer {
		c.Here = r.side.Datacenter
	}
	for n := range m.Items {
		op, err := m.Items[n].Check(c)
		if err == nil {
			op, err = t.admit(view, origin, n, op)
		}
		switch {
		case err != nil:
			in.results[n] = result{Status: Invalid, Error: err.Error()}
		case repeatedAct(view, op, in.late):
			in.results[n] = result{Status: resultDone}
		default:
			in.add(n, op)
		}
	}
	return in
}

// now returns the current time of the lease clock, with the wall clock or that of the newest operation.
func (r *Receiver) now(view *registry.View) registry.Stamp {
	now := view.Stamp()
	return registry.Stamp{Lease: max(now.Lease, r.side.Service.Health().Clock), Wall: max(now.Wall, r.side.World.Now().UnixMilli())}
}

func (in *intake) add(item int, op registry.Op) {
	in.items = append(in.items, item)
	in.ops = append(in.ops, op)
}

// recordRefused records the items of a message that will always be refused, and those that are accepted. It leaves
// out items that panicked, which the store logs and lists.
func (r *Receiver) recordRefused(m *Message, origin registry.Origin, in *intake) {
	from := origin.DC
	if origin.Kind == registry.LocalPeer {
		from = m.Node
	}
	for n, result := range in.results {
		key, ok := registry.KeyOf(m.Items[n].Op)
		switch {
		case result.Status == Invalid:
			r.side.Refusals.Record(key, m.Items[n].Name(), from, result.Error)
		case ok && result.Status == resultDone:
			r.side.Refusals.Record(key, "", from, "")
		}
	}
}

// replyTo encodes the result of each item, at the level of the message.
func (r *Receiver) replyTo(level byte, view *registry.View, in *intake) []byte {
	e := &resultMaker{level: level, view: view, now: r.side.Service.Health().Clock, left: maxStored, asked: in.ops, held: r.heldText(in.taking.need.Name)}
	for n, item := range in.items {
		if item >= 0 {
			in.results[item] = e.resultOf(in.ops[n], in.applied[n].Outcome)
		}
	}
	return Encode(level, &Reply{Datacenter: r.side.Datacenter, Node: r.side.Node, Late: in.late, Ignored: in.ignored, Results: in.results})
}
