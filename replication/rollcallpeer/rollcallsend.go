package rollcallpeer

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/replication/batcher"
	"github.com/seed-20419f34/rollcall/replication/link"
	"github.com/seed-20419f34/rollcall/replication/wire"
)

// send sends a message and does what its answer asks for. Items that the peer refuses make all of it
// permanent, so that the dispatcher finds them.
func (l *rollcallLink) send(ctx context.Context, tells []tell) batcher.Result {
	results, err := l.exchange(ctx, tells)
	if err != nil {
		l.env.Failed(err)
		return link.ResultOf(err)
	}
	if refused := firstRefused(tells, results); refused != nil {
		l.env.Failed(refused)
		return batcher.PermanentError
	}
	if err := l.bringHome(ctx, results); err != nil {
		l.env.Failed(err)
		return batcher.TransientError
	}
	l.env.Succeeded()
	for n, t := range tells {
		l.follow(t, results[n])
	}
	return batcher.Success
}

// exchange sends a message and reads its answer. The error is a *callError.
func (l *rollcallLink) exchange(ctx context.Context, tells []tell) ([]wire.Result, error) {
	m := wire.Message{Head: l.head(), Items: make([]wire.Item, len(tells))}
	for n, t := range tells {
		m.Items[n] = t.item
	}
	text, err := l.calls.post(ctx, rollcallCall{messagePath, wire.Encode(&m), wire.MaxMessage, 1})
	if err != nil {
		l.judged(m.Head, 0, errors.Is(err, errConflict))
		return nil, err
	}
	var a wire.Answer
	if err := wire.Decode(text, &a); err != nil {
		return nil, link.Failed(batcher.PermanentError, fmt.Errorf("the answer cannot be read: %w", err))
	}
	l.judged(m.Head, a.Late, false)
	if len(a.Results) != len(tells) {
		return nil, link.Failed(batcher.PermanentError, fmt.Errorf("%d items were answered by %d results", len(tells), len(a.Results)))
	}
	return a.Results, nil
}

// firstRefused is an error about the first item that the peer refused and always will; nil: there is
// none.
func firstRefused(tells []tell, results []wire.Result) error {
	for n, result := range results {
		switch result.Status {
		case wire.Done, wire.Missing, wire.Older, wire.Gone:
		default:
			return fmt.Errorf("%s of %s was answered %d: %s", tells[n].fact, tells[n].task.Key, result.Status, wire.Clip(result.Error))
		}
	}
	return nil
}

// follow does what the peer's result for one item asks for.
func (l *rollcallLink) follow(t tell, result wire.Result) {
	switch {
	case result.Status == wire.Done && t.fact != "":
		l.env.Sent(t.fact)
	case result.Status == wire.Missing && t.task.Tries < link.MaxTries:
		l.env.Submit(link.Task{Key: t.task.Key, Facts: link.Registered, Tries: t.task.Tries + 1})
	}
}

// bringHome applies what the peer has newer, or removed, and sent back.
func (l *rollcallLink) bringHome(ctx context.Context, results []wire.Result) error {
	var ops []registry.Op
	for _, result := range results {
		if op := l.returned(&result.Stored); op != nil {
			ops = append(ops, op)
		}
	}
	if len(ops) == 0 {
		return nil
	}
	if _, err := link.ApplyAll(ctx, l.env.Service, l.env.Origin, ops); err != nil {
		return fmt.Errorf("take over %d instances that %s has newer: %w", len(ops), l.env.Peer.Name, err)
	}
	return nil
}

// returned is the operation of an item that came back; nil if there is none to apply.
func (l *rollcallLink) returned(item *wire.Item) registry.Op {
	switch item.Op.(type) {
	case registry.Replica, registry.Remove:
	default:
		return nil
	}
	var c wire.Context
	if l.env.Peer.Kind == link.Datacenter {
		c.Here = l.env.Datacenter
	}
	op, err := item.Check(c)
	if err != nil {
		key, _ := link.KeyOf(item.Op)
		l.log.Warn("the peer sent back what is not valid", "app", wire.Clip(key.App), "id", wire.Clip(key.ID), "err", err)
		return nil
	}
	return op
}

// maxItem bounds the items of one message (bytes), which leaves room for its head.
const maxItem = wire.MaxMessage - 64<<10

// tell is what a message says of a task.
type tell struct {
	task link.Task
	fact string // as linkEnv.sent; empty: not counted
	item wire.Item
}

// tells are what there is to say of tasks now. Nothing is said of an instance that is gone: its removal
// is a task of its own.
func (l *rollcallLink) tells(tasks []link.Task) []tell {
	view, now := l.env.View(), l.env.Clock()
	tells := make([]tell, 0, len(tasks))
	for _, t := range tasks {
		if op, fact := opOf(view, now, t); op != nil {
			tells = append(tells, tell{task: t, fact: fact, item: wire.ItemOf(op)})
		}
	}
	return tells
}

// opOf is what a task says at a moment of the lease clock; nil: nothing.
func opOf(view *registry.View, now int64, t link.Task) (op registry.Op, fact string) {
	if t.Facts&link.Canceled != 0 {
		return t.Remove, "cancel"
	}
	lease, ok := view.Find(t.Key)
	switch {
	case !ok:
		return nil, ""
	case t.Facts&link.Registered != 0:
		return view.ReplicaOf(lease, now), "register"
	case t.Facts&link.Overridden != 0:
		return view.ReplicaOf(lease, now), "override"
	}
	v := lease.Version()
	return registry.Renew{Key: t.Key, Life: v.Life, LastDirty: v.LastDirty, Age: view.Age(lease, now)}, "heartbeat"
}

// cutTells cuts what is to be said into messages that receivers accept. One that alone is too large
// makes a message of its own, which they refuse.
func cutTells(tells []tell) [][]tell {
	var parts [][]tell
	size, begin := 0, 0
	for n, t := range tells {
		if n > begin && (size+t.item.Size() >= maxItem || n-begin == wire.MaxItems) {
			parts = append(parts, tells[begin:n])
			size, begin = 0, n
		}
		size += t.item.Size()
	}
	if begin < len(tells) {
		parts = append(parts, tells[begin:])
	}
	return parts
}

// tooLate is by how much (ms) a message may be older than the newest of its sender before that one begins
// another incarnation. No message is on its way for as long: what is newer was not said by this sender, or
// its clock went back.
const tooLate = 60_000

// judged has the sender begin another incarnation if a peer takes for too late, or ahead, what it said in
// the one of a head.
func (l *rollcallLink) judged(head wire.Head, late int64, ahead bool) {
	if late <= tooLate && !ahead || l.env.Incarnation.Now() != head.Incarnation {
		return
	}
	l.env.Incarnation.Draw()
	l.log.Warn("the peer knows another clock of this sender, which begins to send anew", "late_ms", late, "ahead", ahead)
}
