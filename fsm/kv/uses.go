package kv

import (
	"github.com/seed-20419f34/rollcall/fsm/order"
)

// Use counts what a principal has: the sessions that it created, and roughly how many bytes these take together with
// what they hold or wait for, and the keys that it wrote last.
type Use struct{ Sessions, Bytes int }

// uses holds the use of each principal that has something, by name. It is derived, so snapshots leave it out.
type uses struct{ order.Map[string, Use] }

// heldWeight is the weight, in bytes, of each key, lock or place in a queue that a session has.
const heldWeight = 512

// share returns a copy for views.
func (u uses) share() uses { return uses{u.Copy()} }

// add adds to what a principal has. Things without a principal ("") are not counted.
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

// replace counts p instead of old. Either may be nil.
func (u uses) replace(old, p *Pair) {
	if old != nil {
		u.add(old.By, 0, -old.Weight())
	}
	if p != nil {
		u.add(p.By, 0, p.Weight())
	}
}
