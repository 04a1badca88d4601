package replication

import (
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// maxItem bounds the items of one message (bytes), which leaves room for its head.
const maxItem = maxMessage - 64<<10

// tell is what a message says of a task.
type tell struct {
	task task
	fact string // as linkEnv.sent; empty: not counted
	item []byte // encoded
}

// tells are what there is to say of tasks now. Nothing is said of an instance that is gone: its removal
// is a task of its own.
func (l *rollcallLink) tells(tasks []task) []tell {
	view, now := l.env.view(), l.env.clock()
	tells := make([]tell, 0, len(tasks))
	for _, t := range tasks {
		item, fact, ok := itemOf(view, now, t)
		if !ok {
			continue
		}
		text, err := encode(&item)
		if err != nil {
			l.log.Error("an instance cannot be told", "instance", t.key, "err", err)
			continue
		}
		tells = append(tells, tell{task: t, fact: fact, item: text})
	}
	return tells
}

// itemOf is what a task says at a moment of the lease clock.
func itemOf(view *registry.View, now int64, t task) (item wireItem, fact string, ok bool) {
	if t.facts&canceled != 0 {
		return removeItem(t.remove), "cancel", true
	}
	lease, ok := view.Find(t.key)
	switch {
	case !ok:
		return wireItem{}, "", false
	case t.facts&registered != 0:
		return replicaItem(view.ReplicaOf(lease, now)), "register", true
	case t.facts&overridden != 0:
		return replicaItem(view.ReplicaOf(lease, now)), "override", true
	}
	return renewItem(t.key, lease.Version(), view.Age(lease, now)), "heartbeat", true
}

// cutTells cuts what is to be said into messages that receivers accept. One that alone is too large
// makes a message of its own, which they refuse.
func cutTells(tells []tell) [][]tell {
	var parts [][]tell
	size, begin := 0, 0
	for n, t := range tells {
		if n > begin && (size+len(t.item) >= maxItem || n-begin == maxItems) {
			parts = append(parts, tells[begin:n])
			size, begin = 0, n
		}
		size += len(t.item) + 1
	}
	if begin < len(tells) {
		parts = append(parts, tells[begin:])
	}
	return parts
}
