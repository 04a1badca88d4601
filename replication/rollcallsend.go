package replication

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/replication/batcher"
)

// send sends a message and does what its answer asks for. Items that the peer refuses make all of it
// permanent, so that the dispatcher finds them.
func (l *rollcallLink) send(ctx context.Context, tells []tell) batcher.Result {
	results, err := l.exchange(ctx, tells)
	if err != nil {
		l.env.failed(err)
		return resultOf(err)
	}
	if refused := firstRefused(tells, results); refused != nil {
		l.env.failed(refused)
		return batcher.PermanentError
	}
	if err := l.bringHome(ctx, results); err != nil {
		l.env.failed(err)
		return batcher.TransientError
	}
	l.env.succeeded()
	for n, t := range tells {
		l.follow(t, results[n])
	}
	return batcher.Success
}

// exchange sends a message and reads its answer. The error is a *callError.
func (l *rollcallLink) exchange(ctx context.Context, tells []tell) ([]itemResult, error) {
	items := make([][]byte, len(tells))
	for n, t := range tells {
		items[n] = t.item
	}
	head := l.head()
	body, err := appendMessage(nil, head, items)
	if err != nil {
		return nil, &callError{batcher.PermanentError, err}
	}
	text, err := l.calls.post(ctx, rollcallCall{messagePath, body, maxMessage, 1})
	if err != nil {
		l.judged(head, 0, errors.Is(err, errConflict))
		return nil, err
	}
	var a answer
	if err := decode(text, &a); err != nil {
		return nil, &callError{batcher.PermanentError, fmt.Errorf("the answer cannot be read: %w", err)}
	}
	l.judged(head, a.Late, false)
	if len(a.Results) != len(items) {
		return nil, &callError{batcher.PermanentError, fmt.Errorf("%d items were answered by %d results", len(items), len(a.Results))}
	}
	return a.Results, nil
}

// firstRefused is an error about the first item that the peer refused and always will; nil: there is
// none.
func firstRefused(tells []tell, results []itemResult) error {
	for n, result := range results {
		switch result.Status {
		case itemDone, itemUnknown, itemOlder, itemGone:
		default:
			return fmt.Errorf("%s of %s was answered %d: %s", tells[n].fact, tells[n].task.key, result.Status, clip(result.Error))
		}
	}
	return nil
}

// follow does what the peer's result for one item asks for.
func (l *rollcallLink) follow(t tell, result itemResult) {
	switch {
	case result.Status == itemDone && t.fact != "":
		l.env.sent(t.fact)
	case result.Status == itemUnknown && t.task.tries < maxTries:
		l.env.submit(task{key: t.task.key, facts: registered, tries: t.task.tries + 1})
	}
}

// bringHome applies what the peer has newer, or removed, and sent back.
func (l *rollcallLink) bringHome(ctx context.Context, results []itemResult) error {
	var ops []registry.Op
	for _, result := range results {
		for _, item := range []*wireItem{result.Register, result.Remove} {
			if op := l.returned(item); op != nil {
				ops = append(ops, op)
			}
		}
	}
	if len(ops) == 0 {
		return nil
	}
	if _, err := applyAll(ctx, l.env.config.Service, l.env.origin, ops); err != nil {
		return fmt.Errorf("take over %d instances that %s has newer: %w", len(ops), l.env.peer.Name, err)
	}
	return nil
}

// returned is the operation of an item that came back; nil if there is none to apply.
func (l *rollcallLink) returned(item *wireItem) registry.Op {
	if item == nil || item.Do != doRegister && item.Do != doRemove {
		return nil
	}
	var c itemContext
	if l.env.peer.Kind == Datacenter {
		c.here = l.env.config.Datacenter
	}
	op, err := item.op(c)
	if err != nil {
		l.log.Warn("the peer sent back what is not valid", "app", clip(item.App), "id", clip(item.ID), "err", err)
		return nil
	}
	return op
}
