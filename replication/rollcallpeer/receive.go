package rollcallpeer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/replication/link"
	"github.com/seed-20419f34/rollcall/replication/wire"
)

// contactEvery is how often (ms of the sender's lease clock) a peer that sends is noted as heard.
const contactEvery = 1000

// maxEntities bounds (bytes) the instances that go back with an answer: what does not fit is found by
// the next comparison.
const maxEntities = wire.MaxMessage / 2

// Errors that a caller can act on, beside wire.ErrMalformed and those of registry.Service.
var (
	// ErrStranger: a message of a datacenter that is no peer of this one.
	ErrStranger = errors.New("not a peer")
	// ErrAhead: the clock of a message has gone on for longer than its sender was silent. Its text says more.
	ErrAhead = errors.New("the sender's clock cannot be right")
	// ErrUnknownSender: the clock of no sender of that name is known.
	ErrUnknownSender = errors.New("no such sender")
)

// Receiver answers the Rollcall servers that send to this one. Safe for concurrent use.
type Receiver struct {
	side        link.Side
	judgements  judgements
	late, ahead *prometheus.CounterVec // by datacenter of the sender
}

// newReceiver is the receiver of a side.
func NewReceiver(side link.Side) *Receiver {
	return &Receiver{
		side: side, judgements: judgements{of: make(map[senderName]judgement)},
		late:  messageCounter("late_messages_total", "Messages that came more than a minute after the newest of their sender."),
		ahead: messageCounter("refused_clocks_total", "Messages that were refused because their sender's clock cannot be right."),
	}
}

func messageCounter(name, help string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "rollcall", Subsystem: "replication", Name: name, Help: help}, []string{"datacenter"})
}

// Metrics are those of what was received.
func (r *Receiver) Metrics() []prometheus.Collector { return []prometheus.Collector{r.late, r.ahead} }

// Receive applies a message of a Rollcall peer and returns the answer. Errors: wire.ErrMalformed,
// ErrStranger, ErrAhead, or registry.Service's; with those nothing is known to have been applied, and the
// message can be sent again.
func (r *Receiver) Receive(ctx context.Context, message []byte) (answer []byte, err error) {
	var m wire.Message
	if err := wire.Decode(message, &m); err != nil {
		return nil, err
	}
	origin, err := r.originOf(m.Datacenter, m.Node)
	if err != nil {
		return nil, err
	}
	view, err := r.side.Service.View(ctx, registry.Stale)
	if err != nil {
		return nil, fmt.Errorf("receive from %s: %w", m.Node, err)
	}
	in := r.intakeOf(view, &m, origin)
	r.judgements.note(view, senderName{origin.DC, m.Sender}, in.late, in.ahead > 0)
	if in.ahead > 0 {
		r.ahead.WithLabelValues(m.Datacenter).Inc()
		return nil, fmt.Errorf("%w: that of sender %s has gone on for %v longer than has passed here since it was last heard; if it is right, the sender is to send in another incarnation",
			ErrAhead, m.Sender, (time.Duration(in.ahead) * time.Millisecond).Round(time.Second))
	}
	if in.late > tooLate {
		r.late.WithLabelValues(m.Datacenter).Inc()
	}
	if err := r.take(ctx, origin, in); err != nil {
		return nil, fmt.Errorf("apply %d items of %s: %w", len(m.Items), m.Node, err)
	}
	r.side.Log.Debug("message of a peer", "from", m.Node, "datacenter", m.Datacenter, "sequence", m.Sequence, "items", len(m.Items), "late_ms", in.late)
	if view, err = r.side.Service.View(ctx, registry.Stale); err != nil {
		return nil, fmt.Errorf("answer %s: %w", m.Node, err)
	}
	if origin.Kind == registry.LocalPeer {
		in.ignored = r.ignored(&m.Head)
	}
	return r.answerTo(view, in), nil
}

// originOf is what a datacenter's items are applied as, if it may send here.
func (r *Receiver) originOf(datacenter, node string) (registry.Origin, error) {
	if datacenter != r.side.Datacenter {
		for _, p := range r.side.Peers {
			if p.Kind == link.Datacenter && p.Name == datacenter {
				return registry.Origin{Kind: registry.RemoteDC, DC: datacenter}, nil
			}
		}
		return registry.Origin{}, fmt.Errorf("datacenter %q: %w of %s", wire.Clip(datacenter), ErrStranger, r.side.Datacenter)
	}
	switch {
	case r.side.Consensus:
		return registry.Origin{}, fmt.Errorf("datacenter %q: %w, it is this one, whose nodes agree by consensus", datacenter, ErrStranger)
	case node == r.side.Node:
		return registry.Origin{}, fmt.Errorf("node %q: %w, it is this one, or has its name", node, ErrStranger)
	}
	return registry.Origin{Kind: registry.LocalPeer}, nil
}

// intake is a message on its way into the registry.
type intake struct {
	late    int64 // ms, as wire.Context
	ahead   int64 // ms, as registry.View.Timing
	ops     []registry.Op
	items   []int  // per op, the item that asked for it; -1: none did
	ignored string // as Replicator.ignored
	results []wire.Result
	applied []registry.Result // per op
}

// intakeOf are the operations of a message, the contacts first. Items that are not valid have their
// results already.
func (r *Receiver) intakeOf(view *registry.View, m *wire.Message, origin registry.Origin) *intake {
	in := &intake{results: make([]wire.Result, len(m.Items))}
	in.late, in.ahead = view.Timing(origin.DC, m.Sender, m.Incarnation, m.Clock, r.now(view))
	for _, contact := range r.contacts(view, &m.Head, origin, in.late) {
		in.add(-1, contact)
	}
	c := wire.Context{Late: in.late}
	if origin.Kind != registry.LocalPeer {
		c.Here = r.side.Datacenter
	}
	for n := range m.Items {
		op, err := m.Items[n].Check(c)
		switch {
		case err != nil:
			in.results[n] = wire.Result{Status: wire.Invalid, Error: err.Error()}
		case told(view, op, in.late):
			in.results[n] = wire.Result{Status: wire.Done}
		default:
			in.add(n, op)
		}
	}
	return in
}

// now is the present moment of the lease clock, and of the wall clock or that of the newest operation.
func (r *Receiver) now(view *registry.View) registry.Stamp {
	now := view.Stamp()
	return registry.Stamp{Lease: max(now.Lease, r.side.Service.Health().Clock), Wall: max(now.Wall, time.Now().UnixMilli())}
}

func (in *intake) add(item int, op registry.Op) {
	in.items = append(in.items, item)
	in.ops = append(in.ops, op)
}

// contacts note that a message came: of its sender, and, of a node of the own datacenter, of those that
// it heard itself.
func (r *Receiver) contacts(view *registry.View, h *wire.Head, origin registry.Origin, late int64) []registry.Op {
	if !contactDue(view, h, origin, late) {
		return nil
	}
	contacts := []registry.Op{registry.Contact{
		DC: origin.DC, Sender: h.Sender, Incarnation: h.Incarnation, Clock: h.Clock, Cut: r.side.Cut(origin.DC).Milliseconds(), Age: late,
	}}
	if origin.Kind != registry.LocalPeer || late > 0 {
		return contacts
	}
	return append(contacts, r.overheard(h)...)
}

// contactDue says whether a second of the sender's clock has passed since it was last noted, or it never
// was. What is late is no sign of life, unless it is of an incarnation that was silent while another spoke.
func contactDue(view *registry.View, h *wire.Head, origin registry.Origin, late int64) bool {
	known, last, ok := view.Sender(origin.DC, h.Sender, h.Incarnation)
	if late > 0 {
		return ok && h.Clock > known.Clock
	}
	if origin.Kind == registry.RemoteDC {
		if _, ok := view.Link(origin.DC); !ok {
			return true
		}
	}
	return !ok || !last || h.Clock >= known.Clock+contactEvery
}

// overheardLater is added (ms) to the age of what another node heard. It is more than a message is on
// its way: with less, two nodes that tell each other of a link would keep it alive for ever.
const overheardLater = 1000

// overheard are the contacts that a node of the own datacenter tells of, of this node's peers.
func (r *Receiver) overheard(h *wire.Head) []registry.Op {
	var contacts []registry.Op
	for _, dc := range slices.Sorted(maps.Keys(h.Heard)) {
		if r.side.Remote(dc) != nil {
			contacts = append(contacts, registry.Contact{DC: dc, Cut: r.side.Cut(dc).Milliseconds(), Age: wire.Later(h.Heard[dc], overheardLater)})
		}
	}
	return contacts
}

// ignored says of which datacenters what a node of the own one heard is not noted: links are kept of this node's
// peers only, so that nobody fills the state with names. Empty: there are none.
func (r *Receiver) ignored(h *wire.Head) string {
	var others []string
	for _, dc := range slices.Sorted(maps.Keys(h.Heard)) {
		if dc != r.side.Datacenter && r.side.Remote(dc) == nil {
			others = append(others, wire.Clip(dc))
		}
	}
	const named = 10
	n := len(others)
	if n == 0 {
		return ""
	}
	if n > named {
		others = append(others[:named], "…")
	}
	return fmt.Sprintf("what was heard of %d datacenters that are no peers of this node is not noted: %s", n, strings.Join(others, ", "))
}

// Bounds (ms) within which two messages about one operator's act mean the same.
const (
	actsDiffer = 2000
	actsExpire = 10_000
)

// told says that an operator's act has been heard here before, or was overtaken: unlike everything
// else that is sent twice, it would take effect twice.
func told(view *registry.View, op registry.Op, late int64) bool {
	act, ok := op.(registry.SelfPreservation)
	if !ok {
		return false
	}
	now := view.Preservation()
	until := view.Stamp().Lease + act.For
	again := now.State == act.To && now.By == act.By && (act.To == registry.PreservationReleased || until <= now.Until+actsDiffer)
	return again || late > actsExpire
}

// take applies the operations of a message, together.
func (r *Receiver) take(ctx context.Context, origin registry.Origin, in *intake) error {
	if len(in.ops) == 0 {
		return nil
	}
	applied, err := link.ApplyAll(ctx, r.side.Service, origin, in.ops)
	in.applied = applied
	return err
}

// answerTo says what became of each item.
func (r *Receiver) answerTo(view *registry.View, in *intake) []byte {
	e := &entities{view: view, now: r.side.Service.Health().Clock, left: maxEntities, asked: in.ops}
	for n, item := range in.items {
		if item >= 0 {
			in.results[item] = e.resultOf(in.ops[n], in.applied[n].Outcome)
		}
	}
	return wire.Encode(&wire.Answer{Datacenter: r.side.Datacenter, Node: r.side.Node, Late: in.late, Ignored: in.ignored, Results: in.results})
}

// entities makes results with what is stored here, as long as there is room in the answer.
type entities struct {
	view    *registry.View
	now     int64 // lease clock, ms
	left    int   // bytes
	asked   []registry.Op
	records map[registry.Key]registry.Removal // of what was asked about; nil: not looked for yet
}

// record is that of an instance's removal. The first call finds those of all that was asked about, for
// that takes a walk over all records.
func (e *entities) record(key registry.Key) (rec registry.Removal, ok bool) {
	if e.records == nil {
		e.records = make(map[registry.Key]registry.Removal)
		asked := make(map[registry.Key]bool)
		for _, op := range e.asked {
			if key, ok := link.KeyOf(op); ok {
				asked[key] = true
			}
		}
		for rec := range e.view.Removals() {
			if key := rec.Lease.Key(); asked[key] {
				e.records[key] = rec
			}
		}
	}
	rec, ok = e.records[key]
	return rec, ok
}

// resultOf is the result of an item.
func (e *entities) resultOf(op registry.Op, outcome registry.Outcome) wire.Result {
	key, ok := link.KeyOf(op)
	if !ok {
		return wire.Result{Status: wire.Done} // an operator's act, which fits the state here or does not
	}
	switch outcome {
	case registry.NotFound:
		return notFound(op)
	case registry.Newer:
		return wire.Result{Status: wire.Missing, Error: "an older one is stored here"}
	case registry.Older:
		return e.older(key)
	case registry.Refused:
		return e.gone(key)
	case link.TooLarge:
		return wire.Result{Status: wire.Invalid, Error: "larger than an operation may be"}
	case link.Unreadable:
		return wire.Result{Status: wire.Invalid, Error: "the leader here runs another version and does not know it"}
	}
	return wire.Result{Status: wire.Done}
}

// notFound is the result where there is nothing: that is what a removal asks for.
func notFound(op registry.Op) wire.Result {
	if _, ok := op.(registry.Remove); ok {
		return wire.Result{Status: wire.Done}
	}
	return wire.Result{Status: wire.Missing, Error: "not registered here"}
}

// older is the result where a newer copy is stored.
func (e *entities) older(key registry.Key) wire.Result {
	l, ok := e.view.Find(key)
	if !ok {
		return e.gone(key)
	}
	return wire.Result{Status: wire.Older, Stored: e.room(e.view.ReplicaOf(l, e.now))}
}

// gone is the result where the instance was removed, or its lease has ended.
func (e *entities) gone(key registry.Key) wire.Result {
	rec, ok := e.record(key)
	if !ok {
		return wire.Result{Status: wire.Gone, Error: "its lease has ended"}
	}
	return wire.Result{Status: wire.Gone, Stored: e.room(e.view.RemoveOf(rec, e.now))}
}

// room is what is stored here, if there is room for it.
func (e *entities) room(op registry.Op) wire.Item {
	item := wire.ItemOf(op)
	if item.Size() > e.left {
		return wire.Item{}
	}
	e.left -= item.Size()
	return item
}
