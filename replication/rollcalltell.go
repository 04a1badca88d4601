package replication

import (
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/replication/wire"
)

// maxItem bounds the items of one message (bytes), which leaves room for its head.
const maxItem = wire.MaxMessage - 64<<10

// tell is what a message says of a task.
type tell struct {
	task task
	fact string // as linkEnv.sent; empty: not counted
	item wire.Item
}

// tells are what there is to say of tasks now. Nothing is said of an instance that is gone: its removal
// is a task of its own.
func (l *rollcallLink) tells(tasks []task) []tell {
	view, now := l.env.view(), l.env.clock()
	tells := make([]tell, 0, len(tasks))
	for _, t := range tasks {
		if op, fact := opOf(view, now, t); op != nil {
			tells = append(tells, tell{task: t, fact: fact, item: wire.ItemOf(op)})
		}
	}
	return tells
}

// opOf is what a task says at a moment of the lease clock; nil: nothing.
func opOf(view *registry.View, now int64, t task) (op registry.Op, fact string) {
	if t.facts&canceled != 0 {
		return t.remove, "cancel"
	}
	lease, ok := view.Find(t.key)
	switch {
	case !ok:
		return nil, ""
	case t.facts&registered != 0:
		return view.ReplicaOf(lease, now), "register"
	case t.facts&overridden != 0:
		return view.ReplicaOf(lease, now), "override"
	}
	v := lease.Version()
	return registry.Renew{Key: t.key, Life: v.Life, LastDirty: v.LastDirty, Age: view.Age(lease, now)}, "heartbeat"
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
