package kv

import (
	"github.com/seed-20419f34/rollcall/fsm/order"
)

// Use is what a principal has of the state: the sessions that it made, and in bytes, about, these with what they hold or wait for and
// the keys that it wrote last.
type Use struct{ Sessions, Bytes int }

// uses are those of all principals that have something, by name. They are derived, and so no part of a snapshot.
type uses struct{ order.Map[string, Use] }

// heldWeight is what a key, lock or place in a queue that a session has counts for, in bytes.
const heldWeight = 512

func newUses() uses { return uses{order.NewMap[string, Use](order.Degree)} }

// share returns a copy for views.
func (u uses) share() uses { return uses{u.Copy()} }

// add adds to what a principal has. What nobody has to answer for ("") is not counted.
func (u uses) add(by string, sessions, bytes int) {
	if by == "" {
		return
	}
	now, _ := u.Get(by)
	if now = (Use{now.Sessions + sessions, now.Bytes + bytes}); now == (Use{}) {
		u.Delete(by)
		return
	}
	u.Set(by, now)
}

// replace counts a pair in the place of old. Either may be nil.
func (u uses) replace(old, p *Pair) {
	if old != nil {
		u.add(old.By, 0, -old.Weight())
	}
	if p != nil {
		u.add(p.By, 0, p.Weight())
	}
}
