package rollcallpeer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/replication/batcher"
	"github.com/seed-20419f34/rollcall/replication/link"
)

// send sends a message, at a level of the formats, and does what its reply asks for. Items that the peer refuses make
// the whole message fail permanently, so that the dispatcher finds them.
func (l *Link) send(ctx context.Context, level byte, parts []part) batcher.Result {
	results, err := l.exchange(ctx, level, parts)
	if err != nil {
		l.env.Failed(err)
		return link.ResultOf(err)
	}
	if refused := firstRefused(parts, results); refused != nil {
		l.env.Failed(refused)
		if len(parts) == 1 && parts[0].fact != "" {
			l.env.Refused(parts[0].task.Key, parts[0].fact, refused.Error())
		}
		return batcher.PermanentError
	}
	if err := l.applyReturned(ctx, results); err != nil {
		l.env.Failed(err)
		return batcher.TransientError
	}
	l.env.Succeeded()
	for n, t := range parts {
		l.follow(t, results[n])
	}
	return batcher.Success
}

// exchange sends a message and reads its reply. The error is a link.CallError.
func (l *Link) exchange(ctx context.Context, level byte, parts []part) ([]result, error) {
	m := Message{Head: l.head(), Items: make([]Item, len(parts))}
	for n, t := range parts {
		m.Items[n] = t.item
	}
	text, err := l.calls.post(ctx, call{messagePath, Encode(level, &m), maxMessage, 1})
	if err != nil {
		l.renewIncarnation(m.Head, 0, errors.Is(err, errConflict))
		return nil, err
	}
	var a Reply
	if err := Decode(text, &a); err != nil {
		return nil, link.Failed(batcher.PermanentError, fmt.Errorf("the response cannot be read: %w", err))
	}
	l.renewIncarnation(m.Head, a.Late, false)
	if len(a.Results) != len(parts) {
		return nil, link.Failed(batcher.PermanentError, fmt.Errorf("%d items were answered by %d results", len(parts), len(a.Results)))
	}
	return a.Results, nil
}

// firstRefused returns an error about the first item that the peer refuses and always will, or nil.
func firstRefused(parts []part, results []result) error {
	for n, result := range results {
		switch result.Status {
		case resultDone, resultMissing, resultOlder, resultGone, resultHeld:
		default:
			if result.Status == resultFailed && parts[n].fact != "" {
				continue // see follow
			}
			return fmt.Errorf("%s of %s was answered %d: %s", parts[n].fact, parts[n].task.Key, result.Status, clip(result.Error))
		}
	}
	return nil
}

// follow does what the peer's result for one item asks for. An item that panicked there is sent again, MaxTries times
// in total, because the peer's state may have been the cause.
func (l *Link) follow(t part, result result) {
	switch {
	case result.Status == resultHeld, result.Status == resultOlder && result.Error != "": // below level 3 only the reason says so
		after := time.Duration(result.Again) * time.Millisecond
		if result.Status != resultHeld {
			after = time.Minute
		}
		l.env.Owed.Hold(t.task.Key, t.fact, "", result.Error, min(max(after, offerAgain), offerLatest))
	case result.Status == resultOlder || result.Status == resultGone:
		l.env.Owed.Drop(t.task.Key, "")
	case result.Status == resultMissing && t.task.Tries < link.MaxTries:
		l.env.Submit(link.Task{Key: t.task.Key, Facts: link.Registered, Tries: t.task.Tries + 1})
	case result.Status == resultFailed && t.fact != "" && t.task.Tries+1 < link.MaxTries:
		again := t.task
		again.Tries++
		l.env.Submit(again)
	case result.Status == resultFailed && t.fact != "":
		l.env.GaveUp()
		l.env.Refused(t.task.Key, t.fact, clip(result.Error))
	case result.Status == resultDone && t.fact != "":
		l.env.Sent(t.fact)
		l.env.Refused(t.task.Key, t.fact, "")
		if t.task.Facts&(link.Registered|link.Overridden) != 0 { // the peer agrees with everything
			l.env.Refusals.Drop(t.task.Key, l.env.Peer.Name)
		}
	}
}

// applyReturned applies what the peer has newer, or removed, and sent back.
func (l *Link) applyReturned(ctx context.Context, results []result) error {
	var ops []registry.Op
	var c Context
	if l.env.Peer.Kind == link.Datacenter {
		c.Here = l.env.Datacenter
	}
	for n := range results {
		item := &results[n].Stored
		switch item.Op.(type) {
		case registry.Replica, registry.Remove:
		default:
			continue
		}
		op, err := item.Check(c)
		if err != nil {
			key, _ := registry.KeyOf(item.Op)
			l.env.Refusals.Record(key, item.Name(), l.env.Peer.Name, err.Error())
			continue
		}
		ops = append(ops, op)
	}
	if ops = l.dropTaken(ops); len(ops) == 0 {
		return nil
	}
	if _, err := link.ApplyAll(access.FromServer(ctx, l.env.Peer.Name), l.env.Service, l.env.Origin, ops); err != nil {
		return fmt.Errorf("take over %d instances that %s has newer: %w", len(ops), l.env.Peer.Name, err)
	}
	return nil
}

// renewIncarnation starts another incarnation if, for a peer, a message of the incarnation in head is too late, or
// ahead.
func (l *Link) renewIncarnation(head Head, late int64, ahead bool) {
	if late <= tooLate && !ahead || l.env.Incarnation.Now() != head.Incarnation {
		return
	}
	l.env.Incarnation.Draw()
	l.log.Warn("the peer knows a different clock of this sender, which starts a new incarnation", "late_ms", late, "ahead", ahead)
}

// Run implements link.Link. It sends an empty message at first, and whenever nothing else was sent for a while.
func (l *Link) Run(ctx context.Context) error {
	defer l.calls.client.CloseIdleConnections()
	due := time.NewTimer(0)
	defer due.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-due.C:
		}
		open := l.env.AsksMore(l.AuthMode())
		if l.open.Swap(open) != open && open {
			l.log.Warn("access control is off in the other datacenter, but on here: whoever reaches that one can act here in its name")
		}
		l.offer()
		if l.silence() >= l.every {
			l.send(ctx, l.level(), nil)
		}
		due.Reset(l.every - l.silence())
	}
}

// Process implements batcher.Processor.
func (l *Link) Process(ctx context.Context, one link.Task) batcher.Result {
	return l.ProcessBatch(ctx, []link.Task{one})
}

// ProcessBatch implements batcher.Processor. The messages of one batch go one after the other. If one fails, those
// before it are sent again with it, which changes nothing at the peer.
func (l *Link) ProcessBatch(ctx context.Context, tasks []link.Task) batcher.Result {
	level, view, now := l.level(), l.env.View(), l.env.Clock()
	parts := make([]part, 0, len(tasks))
	for _, t := range tasks {
		if op, fact := opOf(view, now, t); op != nil {
			parts = append(parts, part{task: t, fact: fact, item: ItemOf(level, op)})
		}
	}
	for _, message := range cutParts(parts) {
		if result := l.send(ctx, level, message); result != batcher.Success {
			return result
		}
	}
	return batcher.Success
}

// Act implements link.Actor.
func (l *Link) Act(ctx context.Context, op registry.SelfPreservation) batcher.Result {
	level := l.level()
	return l.send(ctx, level, []part{{item: ItemOf(level, op)}})
}
