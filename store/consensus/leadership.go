package consensus

import (
	"context"
	"time"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/store/expiry"
)

// leadership is the time between Establish and the loss of leadership. Only within it this node
// proposes entries, confirms reads and evicts.
type leadership struct {
	*expiry.Reign
	lost  context.Context // ends with it
	began time.Time       // from when on its tenure counts
}

// leaderView is who leads, as Raft told this node.
type leaderView struct {
	id       string
	address  string
	replaced context.Context // ends when another node leads, or none
	leave    context.CancelFunc
}

// A batch that its node has given up must not take effect any more, wherever a copy of it was held up.
// So every copy says in which leadership it may take effect and until when, by the leader's own clock
// (fsm.Bound). That clock is the leadership's tenure, not the lease clock, which leaves out
// pauses and outages and so says less than the time that has passed.

// tenure is how long a leadership has lasted at a time, in ms.
func (l *leadership) tenure(now time.Time) int64 { return now.Sub(l.began).Milliseconds() }

// bound lets a batch take effect in a leadership until a time of this node's clock.
func (l *leadership) bound(until time.Time) fsm.Bound {
	return fsm.Bound{Leadership: l.Epoch.Index, Until: l.tenure(until)}
}

// permits says whether a batch may be proposed now.
func (l *leadership) permits(b fsm.Bound, now time.Time) bool {
	return b == fsm.Bound{} || (b.Leadership == l.Epoch.Index && l.tenure(now) <= b.Until)
}

// terms is what a node knows of the leadership of another, by which it bounds its batches.
type terms struct {
	leader *leaderView
	seen   fsm.Bound // how long the leadership had lasted
	at     time.Time // when this node heard that, which is later
}

// bound lets a batch take effect until a time of this node's clock, or a little earlier: by the time
// that the leader's answer took.
func (t *terms) bound(until time.Time) fsm.Bound {
	return fsm.Bound{Leadership: t.seen.Leadership, Until: t.seen.Until + until.Sub(t.at).Milliseconds()}
}
