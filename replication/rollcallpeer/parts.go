package rollcallpeer

import (
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/replication/link"
)

// maxItem bounds the items of one message (bytes), which leaves room for its head.
const maxItem = maxMessage - 64<<10

// part is what a message says of a task.
type part struct {
	task link.Task
	fact string // as in link.Env.Sent; not counted if empty
	item Item
}

// opOf returns what messages must say of a task at a moment of the lease clock. It returns nil for an instance that
// was removed: its removal is a task of its own.
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

// cutParts divides parts into messages that receivers accept. A part that alone is too large makes a message of its
// own, which they refuse.
func cutParts(all []part) [][]part {
	var messages [][]part
	size, first := 0, 0
	for n, p := range all {
		if n > first && (size+p.item.Size() >= maxItem || n-first == maxItems) {
			messages = append(messages, all[first:n])
			size, first = 0, n
		}
		size += p.item.Size()
	}
	if first < len(all) {
		messages = append(messages, all[first:])
	}
	return messages
}
