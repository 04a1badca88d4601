package dashboard

import (
	"context"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/own"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// How often a monitor looks.
const (
	// freshFor is how long the other nodes' answers are shown without asking them again.
	freshFor = time.Second
	// watchedFor is how long after a page was read the other nodes are asked every freshFor; otherwise every
	// sampleEvery.
	watchedFor = 30 * time.Second
	// upkeepEvery is how often certificates and snapshots are looked at, which goes through all metrics.
	upkeepEvery = time.Minute
	// askWithin bounds the time for asking the other nodes.
	askWithin = 2 * time.Second
)

// seen is what was last seen of the cluster, and since when by the wall clock. It is immutable.
type seen struct {
	at         time.Time // time of the look; zero before the first
	status     api.Status
	peers      api.Peers
	silent     map[string]time.Time // nodes that do not answer, and since when
	leaderless time.Time            // since when this node hears no leader; zero if it hears one
	leading    time.Time            // since when the leader leads; zero if it already led when first seen
	moves      []leaderMove         // the last changes of the leader, newest first
}

// leaderMove is a change of the leader that this node saw.
type leaderMove struct {
	at       int64  // ms since the epoch
	from, to string // empty for no leader
}

const rememberedMoves = 100

// monitor looks at the cluster for the pages, so that they wait for no other node, and keeps the figures of the last
// hour. Without Run the pages make it look. Safe for concurrent use.
type monitor struct {
	*web.Node
	peersOf  func(context.Context) api.Peers
	writes   func() Times
	upkeepOf func() Upkeep
	tally    tally

	// looking has room for one: a look is under way while it is full.
	looking chan struct{}

	mu       sync.Mutex
	last     seen
	asked    time.Time // when the look behind it began
	acted    time.Time // when a page last acted: earlier answers show an old state
	read     time.Time // when a page was read last
	figures  registry.Figures
	figured  time.Time // when figures were counted; zero for never
	ring     [ringLength]sample
	kept     Upkeep
	keptAt   time.Time // when kept was asked for; zero for never
	sampled  int       // number of samples taken so far
	before   counters
	overdues []registry.AppFreshness // applications with overdue leases, as of the newest sample
}

// Run looks and takes samples until ctx ends.
func (m *monitor) Run(ctx context.Context) error {
	tick := time.NewTicker(freshFor)
	defer tick.Stop()
	next := time.Now()
	for {
		now := time.Now()
		m.mu.Lock()
		isRead := now.Sub(m.read) < watchedFor
		m.mu.Unlock()
		if !now.Before(next) {
			next = now.Add(sampleEvery)
			m.look(ctx)
			m.sample(now)
			m.upkeep(now)
		} else if isRead {
			m.look(ctx)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// now returns what is known of the cluster, for a page. While pages are being read, Run looks often enough that only
// the first one after a while waits, for askWithin at most.
func (m *monitor) now(ctx context.Context) seen {
	now := time.Now()
	m.mu.Lock()
	last, fits := m.last, m.asked.After(m.acted) && m.World.Wall(now).Sub(m.last.at) < freshFor+askWithin+freshFor
	m.read = now
	m.mu.Unlock()
	if fits {
		return last
	}
	return m.look(ctx)
}

// look asks the other nodes, and returns what it sees. Of several concurrent calls, one asks. A caller that gives up
// gets what was last seen, and what it saw itself is not kept: nodes that it did not wait for are not silent.
func (m *monitor) look(ctx context.Context) seen {
	begun := time.Now()
	select {
	case m.looking <- struct{}{}:
		defer func() { <-m.looking }()
	case <-ctx.Done():
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.last
	}
	m.mu.Lock()
	last, asked := m.last, m.asked
	m.mu.Unlock()
	if asked.After(begun) {
		return last
	}
	begun = time.Now()
	asking, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	status := m.ClusterNow(asking)
	next := last.after(m.World.Now(), status, m.peersOf(asking), m.Service.Health().Quorum || m.WithoutConsensus)
	m.mu.Lock()
	defer m.mu.Unlock()
	if ctx.Err() == nil {
		m.last, m.asked = next, begun
	}
	return m.last
}

// forget makes the next page look again, because what was seen before an act is old.
func (m *monitor) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.acted = time.Now()
}

// after returns what a new look sees.
func (s seen) after(wall time.Time, status api.Status, peers api.Peers, led bool) seen {
	next := seen{at: wall, status: status, peers: peers, silent: make(map[string]time.Time), leading: s.leading, leaderless: s.leaderless, moves: s.moves}
	for _, n := range status.Nodes {
		if n.Answers() {
			continue
		}
		if next.silent[n.ID] = wall; !s.silent[n.ID].IsZero() {
			next.silent[n.ID] = s.silent[n.ID]
		}
	}
	switch {
	case led:
		next.leaderless = time.Time{}
	case s.leaderless.IsZero():
		next.leaderless = wall
	}
	if status.Leader == s.status.Leader || s.at.IsZero() {
		return next
	}
	next.leading = wall
	moves := append([]leaderMove{{wall.UnixMilli(), s.status.Leader, status.Leader}}, s.moves...)
	next.moves = moves[:min(len(moves), rememberedMoves)]
	return next
}

// preservation returns the current state of self-preservation. It counts the leases once a second at most: that walks
// all of them.
func (m *monitor) preservation(v *registry.View) api.SelfPreservation {
	at, now := m.clock(v), time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.figured.IsZero() || now.Sub(m.figured) >= freshFor || m.figures.Leases > 0 != (v.Total() > 0) {
		m.figures, m.figured = v.Freshness(at.Now), now
	}
	return own.PreservationNow(v, at, m.figures)
}

// upkeep returns what the node's operators must renew in time, asked for once per upkeepEvery.
func (m *monitor) upkeep(now time.Time) Upkeep {
	m.mu.Lock()
	kept, at := m.kept, m.keptAt
	m.mu.Unlock()
	if now.Sub(at) < upkeepEvery {
		return kept
	}
	kept = m.upkeepOf()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept, m.keptAt = kept, now
	return kept
}

// clock returns the lease clock for a view.
func (m *monitor) clock(v *registry.View) own.Clock {
	return own.ClockOf(v, m.Service.Health(), m.WithoutConsensus)
}

// overdue returns the applications with overdue leases, by name, as of the newest sample.
func (m *monitor) overdue() map[string]registry.AppFreshness {
	m.mu.Lock()
	defer m.mu.Unlock()
	byName := make(map[string]registry.AppFreshness)
	for _, a := range m.overdues {
		byName[a.App] = a
	}
	return byName
}

// overdueOf returns how many leases of an application were not renewed in time.
func overdueOf(a registry.AppFreshness) int { return int(a.Counted) - int(a.Fresh) }
