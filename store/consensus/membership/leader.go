package membership

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/wait"
	"github.com/seed-20419f34/rollcall/store/disk"
	"github.com/seed-20419f34/rollcall/store/expiry"
)

// LeaderState tells which node leads, to this node's knowledge. Its zero value knows none; Run keeps it up to date.
type LeaderState struct {
	Self string // this node's server id
	Log  *slog.Logger

	own     atomic.Pointer[Leadership] // set while this node is the established leader
	leader  atomic.Pointer[Leader]     // the leader as Raft reported it; nil if nobody leads
	terms   atomic.Pointer[Terms]      // newest that the leader has said about its leadership; may be nil
	changed wait.Broadcast             // fires when own or leader changed
}

// Own returns this node's leadership, or nil while this node is not the established leader.
func (s *LeaderState) Own() *Leadership { return s.own.Load() }

// Leader returns the node that leads, possibly this one, or nil if none is known.
func (s *LeaderState) Leader() *Leader { return s.leader.Load() }

// Other returns the leader if it is another node, or nil if none is known.
func (s *LeaderState) Other() *Leader {
	if l := s.leader.Load(); l != nil && l.ID != s.Self {
		return l
	}
	return nil
}

// Name returns the name of the node that leads, or "" if none is known.
func (s *LeaderState) Name() string {
	if l := s.leader.Load(); l != nil {
		return disk.NodeName(l.ID)
	}
	return ""
}

// Changed returns a channel that is closed at the next change of the leader or of this node's leadership.
func (s *LeaderState) Changed() <-chan struct{} { return s.changed.Wait() }

// Lead makes a leadership this node's own, until it is lost.
func (s *LeaderState) Lead(l *Leadership) {
	s.own.Store(l)
	s.changed.Fire()
	// At once, and not when a leader's work notices: until then this node's writes would be offered to its own Raft,
	// which no longer takes them.
	context.AfterFunc(l.Lost, func() {
		s.own.CompareAndSwap(l, nil)
		s.changed.Fire()
	})
}

// Terms returns the newest that this node knows about another node's leadership, or nil.
func (s *LeaderState) Terms() *Terms { return s.terms.Load() }

// SetTerms keeps what the leader has said about its leadership.
func (s *LeaderState) SetTerms(t *Terms) { s.terms.Store(t) }

// ClearTerms makes this node ask again, unless it has done so since.
func (s *LeaderState) ClearTerms(t *Terms) { s.terms.CompareAndSwap(t, nil) }

// Run keeps the leader up to date until ctx ends. It also asks Raft at each interval.
func (s *LeaderState) Run(ctx context.Context, node *raft.Raft, interval time.Duration) {
	seen := make(chan raft.Observation, 16)
	observer := raft.NewObserver(seen, false, func(o *raft.Observation) bool {
		_, ok := o.Data.(raft.LeaderObservation)
		return ok
	})
	node.RegisterObserver(observer)
	defer node.DeregisterObserver(observer)
	// Observations may be dropped when several come at once, so an occasional look is needed too.
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		s.Observe(node.LeaderWithID())
		select {
		case <-seen:
		case <-tick.C:
		case <-ctx.Done():
			if v := s.leader.Swap(nil); v != nil {
				v.replace()
			}
			return
		}
	}
}

// Observe takes over the leader that Raft reports. An empty id means that no node leads.
func (s *LeaderState) Observe(address raft.ServerAddress, id raft.ServerID) {
	old := s.leader.Load()
	switch {
	case old == nil && id == "", old != nil && old.ID == string(id) && old.Address == string(address):
		return
	case id == "":
		s.leader.Store(nil)
		s.Log.Warn("no leader")
	default:
		replaced, replace := context.WithCancel(context.Background())
		s.leader.Store(&Leader{ID: string(id), Address: string(address), Replaced: replaced, replace: replace})
		s.Log.Info("leader", "leader", disk.NodeName(string(id)))
	}
	if old != nil {
		old.replace()
	}
	s.changed.Fire()
}

// WhileLeading calls do each time this node is established as leader, with the leadership's epoch and a context that
// ends when this node no longer leads. It waits for do to return before the next call. It returns when ctx ends.
func (s *LeaderState) WhileLeading(ctx context.Context, do func(context.Context, registry.Epoch)) {
	var last *Leadership
	for {
		l, err := s.next(ctx, last)
		if err != nil {
			return
		}
		leading, cancel := context.WithCancel(ctx)
		detach := context.AfterFunc(l.Lost, cancel)
		do(leading, l.Epoch)
		detach()
		cancel()
		last = l
	}
}

// next waits until this node leads, in a leadership other than the last.
func (s *LeaderState) next(ctx context.Context, last *Leadership) (*Leadership, error) {
	for {
		changed := s.changed.Wait()
		if l := s.own.Load(); l != nil && l != last {
			return l, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// ErrNotLeader means that this node is not the established leader.
var ErrNotLeader = errors.New("this node does not lead")

// Leadership is the time between Establish and the loss of leadership. Only within it does this node propose entries,
// confirm reads and evict.
type Leadership struct {
	*expiry.Reign
	Lost  context.Context // ends with the leadership
	began time.Time       // when its tenure began
}

// Leader is the node that leads, as Raft told this node.
type Leader struct {
	ID       string
	Address  string
	Replaced context.Context // ends when another node leads, or nobody does
	replace  context.CancelFunc
}

// NewLeadership returns a leadership that Establish has begun, as of a moment, and that is lost when a context ends.
func NewLeadership(reign *expiry.Reign, lost context.Context, began time.Time) *Leadership {
	return &Leadership{Reign: reign, Lost: lost, began: began}
}

// A batch that its node has abandoned must not take effect any longer, wherever a copy of it was held up. So every copy
// says in which leadership it may take effect and until when, by the leader's own clock (fsm.Bound). That clock is
// the leadership's tenure, not the lease clock, which leaves out pauses and outages and so shows less time than has
// passed.

// Tenure returns how long a leadership has lasted at a time, in ms.
func (l *Leadership) Tenure(now time.Time) int64 { return now.Sub(l.began).Milliseconds() }

// Bound lets a batch take effect in a leadership until a time of this node's clock.
func (l *Leadership) Bound(until time.Time) fsm.Bound {
	return fsm.Bound{Leadership: l.Epoch.Index, Until: l.Tenure(until)}
}

// Permits reports whether a batch may be proposed now.
func (l *Leadership) Permits(b fsm.Bound, now time.Time) bool {
	return b == fsm.Bound{} || (b.Leadership == l.Epoch.Index && l.Tenure(now) <= b.Until)
}

// Terms is what a node knows about another node's leadership, to bound its batches.
type Terms struct {
	Leader *Leader
	Seen   fsm.Bound // how long the leadership had lasted
	At     time.Time // when this node received that, which is later
	Level  byte      // that the leader wrote; 0 from one that does not say
}

// Bound lets a batch take effect until a time of this node's clock, or a little earlier: by the time that the
// leader's reply took.
func (t *Terms) Bound(until time.Time) fsm.Bound {
	return fsm.Bound{Leadership: t.Seen.Leadership, Until: t.Seen.Until + until.Sub(t.At).Milliseconds()}
}
