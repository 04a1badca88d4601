package replication

import (
	"math/rand/v2"
	"sync/atomic"

	"github.com/seed-20419f34/rollcall/replication/wire"
)

// incarnation is the number by which receivers tell what this sender says now from what it said before its
// clock may have gone back: with its process, its leadership, or an older copy of its data.
type incarnation struct{ number atomic.Uint64 }

func newIncarnation() *incarnation {
	i := new(incarnation)
	i.draw()
	return i
}

func (i *incarnation) now() uint64 { return i.number.Load() }

// draw begins another incarnation.
func (i *incarnation) draw() { i.number.Store(rand.Uint64() | 1) }

// tooLate is by how much (ms) a message may be older than the newest of its sender before that one begins
// another incarnation. No message is on its way for as long: what is newer was not said by this sender, or
// its clock went back.
const tooLate = 60_000

// judged has the sender begin another incarnation if a peer takes for too late, or ahead, what it said in
// the one of a head.
func (l *rollcallLink) judged(head wire.Head, late int64, ahead bool) {
	if late <= tooLate && !ahead || l.env.config.incarnation.now() != head.Incarnation {
		return
	}
	l.env.config.incarnation.draw()
	l.log.Warn("the peer knows another clock of this sender, which begins to send anew", "late_ms", late, "ahead", ahead)
}
