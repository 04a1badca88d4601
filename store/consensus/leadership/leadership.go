package leadership

import (
	"context"
	"errors"
	"time"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/store/expiry"
)

// ErrNotLeader means that this node is not the established leader.
var ErrNotLeader = errors.New("this node does not lead")

// Leadership is the time between Establish and the loss of leadership. Only within it this node
// proposes entries, confirms reads and evicts.
type Leadership struct {
	*expiry.Reign
	Lost  context.Context // ends with it
	began time.Time       // from when on its tenure counts
}

// Leader is the node that leads, as Raft told this node.
type Leader struct {
	ID       string
	Address  string
	Replaced context.Context // ends when another node leads, or none
	replace  context.CancelFunc
}

// New is a leadership that Establish has begun, as of a moment, and that is lost when a context ends.
func New(reign *expiry.Reign, lost context.Context, began time.Time) *Leadership {
	return &Leadership{Reign: reign, Lost: lost, began: began}
}

// A batch that its node has given up must not take effect any more, wherever a copy of it was held up.
// So every copy says in which leadership it may take effect and until when, by the leader's own clock
// (fsm.Bound). That clock is the leadership's tenure, not the lease clock, which leaves out
// pauses and outages and so says less than the time that has passed.

// Tenure is how long a leadership has lasted at a time, in ms.
func (l *Leadership) Tenure(now time.Time) int64 { return now.Sub(l.began).Milliseconds() }

// Bound lets a batch take effect in a leadership until a time of this node's clock.
func (l *Leadership) Bound(until time.Time) fsm.Bound {
	return fsm.Bound{Leadership: l.Epoch.Index, Until: l.Tenure(until)}
}

// Permits says whether a batch may be proposed now.
func (l *Leadership) Permits(b fsm.Bound, now time.Time) bool {
	return b == fsm.Bound{} || (b.Leadership == l.Epoch.Index && l.Tenure(now) <= b.Until)
}

// Terms is what a node knows of the leadership of another, by which it bounds its batches.
type Terms struct {
	Leader *Leader
	Seen   fsm.Bound // how long the leadership had lasted
	At     time.Time // when this node received that, which is later
}

// Bound lets a batch take effect until a time of this node's clock, or a little earlier: by the time
// that the leader's reply took.
func (t *Terms) Bound(until time.Time) fsm.Bound {
	return fsm.Bound{Leadership: t.Seen.Leadership, Until: t.Seen.Until + until.Sub(t.At).Milliseconds()}
}
