package client

import (
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Defaults of a Guard.
const (
	// DefaultGuardShare is the share of the known instances (of one application, or of all) of which a
	// full answer may lack no more than that.
	DefaultGuardShare = 0.5
	// DefaultGuardHold is a lease's default duration: whoever is alive has registered again by then.
	DefaultGuardHold = 90 * time.Second
)

// Guard keeps instances in the list that a full answer suddenly lacks: a server that has just been
// restarted with nothing, or one that cannot see the others, must not take everybody's address away. It
// judges full answers only. A removal that the server tells of (a delta's DELETED, a watch's event) is
// believed at once, however many there are.
//
// A full answer is suspect if it is empty while instances are known, or lacks more than Share of the
// instances of an application, or of all. The instances that it lacks are held then: they stay in the
// list, and the full answer is asked for again at every refresh, until they are in one again, are told to
// be removed, or were lacking in every full answer for Hold.
type Guard struct {
	Share float64       // between 0 and 1; 0: DefaultGuardShare; negative: full answers are believed
	Hold  time.Duration // 0: DefaultGuardHold
}

// guarded is a guard at work: what it holds, and since when. It belongs to one goroutine. Times are
// readings of the monotonic clock.
type guarded struct {
	guard Guard
}

// full turns a full answer into the next list: the answer, and what is held of old. suspect says that
// something is held now.
func (g *guarded) full(old *Snapshot, answer []*registry.Instance, now time.Time) (next *Snapshot, suspect bool) {
	panic("not written")
}

// told notes that the server told of an instance (that it is there, or that it was removed), so that it
// is not held any more.
func (g *guarded) told(key registry.Key) { panic("not written") }

// held is the number of instances that are held.
func (g *guarded) held() int { panic("not written") }
