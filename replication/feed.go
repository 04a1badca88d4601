package replication

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/replication/batcher"
	"github.com/seed-20419f34/rollcall/replication/link"
)

// errPaused ends a session whose peer was paused.
var errPaused = errors.New("paused")

// readAtOnce is how many elements of the change list are looked at together.
const readAtOnce = 1000

// session is the sending to a peer from one moment to the next pause, end of leadership or end of the
// node. Its feed, one goroutine, makes tasks of what the peer is to be told; the dispatcher has no others
// but those that answers of the peer ask for.
type session struct {
	*peer
	from   registry.Index // the cursor in the state at the beginning
	cursor *cursor
	tasks  *batcher.Dispatcher[registry.Key, link.Task]
	acts   *batcher.Dispatcher[struct{}, registry.SelfPreservation] // to nodes only

	// making is held while tasks are made of a view and queued, so that none of an older view is queued
	// after one of a newer.
	making sync.Mutex

	found chan finding
	ended chan struct{} // closed when nobody takes what is found any more
	// The following belong to the feed.
	beat       registry.Beat // up to which renewals were queued
	backlog    []link.Task   // of repairs, that did not find room yet
	comparing  bool
	compared   time.Time // when the last comparison began
	why        string    // why the cursor is unknown
	comparison sync.WaitGroup
}

func newSession(p *peer) *session {
	state := p.config.View().Peer(p.Name)
	s := &session{peer: p, from: state.Cursor, found: make(chan finding), ended: make(chan struct{}), why: repairFirst}
	// A cursor ahead of the list is of a state that was lost.
	at := max(state.Cursor, p.cursor())
	known := (state.Known || at > 0) && at <= p.config.View().Index()
	s.cursor = newCursor(at, known)
	s.tasks = batcher.New(batcher.Config[registry.Key, link.Task]{
		Name:      p.Name,
		Processor: transmission{p},
		Merge:     s.merge,
		Done:      func(_ registry.Key, t link.Task) { s.cursor.done(t.First) },
		Dropped:   s.givenUp,

		MaxBufferSize: p.Queue, WorkloadSize: p.BatchSize, WorkerCount: p.Workers, MaxBatchingDelay: p.BatchDelay,
		CongestionRetryDelay: p.CongestionDelay, NetworkFailureRetry: p.NetworkDelay, MaxRetryDelay: p.MaxDelay,
		Backoff: p.Backoff, Rate: p.Rate,
	})
	if a, ok := p.link.(link.Actor); ok && p.Kind == link.Node {
		s.acts = newActs(p, a)
	}
	return s
}

// run sends until ctx ends or the peer is paused.
func (s *session) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.tasks.Run(ctx, 0) })
	if s.acts != nil {
		g.Go(func() error { return s.acts.Run(ctx, 0) })
	}
	g.Go(func() error { return s.link.Run(ctx) })
	g.Go(func() error { return s.feed(ctx) })
	err := g.Wait()
	s.comparison.Wait()
	return err
}

// feed makes tasks, whenever something happens that may need some.
func (s *session) feed(ctx context.Context) error {
	defer close(s.ended)
	s.beat = s.config.View().Beats()
	beat := time.NewTicker(s.BatchDelay)
	defer beat.Stop()
	permanent := time.NewTicker(permanentBeat)
	defer permanent.Stop()
	s.beatPermanent()
	digest := time.NewTimer(s.untilDigest())
	defer digest.Stop()
	for ctx.Err() == nil {
		if s.paused() {
			return errPaused
		}
		s.fill(ctx)
		select {
		case <-s.poked:
		case <-s.tasks.Freed():
		case <-beat.C:
			s.beats()
		case <-permanent.C:
			s.beatPermanent()
		case <-digest.C:
			s.digest(ctx)
			digest.Reset(s.untilDigest())
		case f := <-s.found:
			s.take(f)
		case <-ctx.Done():
		}
	}
	return nil
}

// fill queues as much as there is room for: first what a repair found, which is older, then changes.
func (s *session) fill(ctx context.Context) {
	for ctx.Err() == nil && s.queueBacklog() {
		if _, known := s.cursor.reading(); !known {
			s.compareAll(ctx)
			return
		}
		if !s.read() {
			return
		}
	}
}

// room is how many tasks may be queued now. While the peer does not answer, no more than one batch is
// tried, so that what is given up is soon read again when it does.
func (s *session) room() int {
	room := s.tasks.Room()
	if s.failing() {
		room = min(room, s.BatchSize-(s.Queue-room))
	}
	return max(room, 0)
}

// queueBacklog queues what repairs found, and says whether that was all of it.
func (s *session) queueBacklog() bool {
	if len(s.backlog) == 0 {
		return true
	}
	s.making.Lock()
	defer s.making.Unlock()
	v := s.config.View()
	for room := s.room(); len(s.backlog) > 0 && room > 0; room-- {
		t := s.backlog[0]
		s.backlog = s.backlog[1:]
		s.queueIfTrue(v, t)
	}
	if len(s.backlog) > 0 {
		return false
	}
	s.backlog = nil
	return true
}

// queueIfTrue queues a task that was made without a view, unless it is not true any more: what came
// meanwhile is in the change list and was, or will be, queued by that.
func (s *session) queueIfTrue(v *registry.View, t link.Task) {
	l, live := v.Find(t.Key)
	if live == (t.Facts&link.Canceled != 0) {
		s.cursor.done(t.First)
		return
	}
	s.queue(t, l)
}

// queue hands a task to the dispatcher. Its first change was added to the cursor's. l is nil for what is
// removed.
func (s *session) queue(t link.Task, l *registry.Lease) {
	t.Queued, t.AsOf = time.Now(), time.Now()
	s.tasks.Process(t.Key, t, t.Queued.Add(s.expiry(t, l)))
}

// expiry is how long a task is of use (upstream: PeerEurekaNode): heartbeats until the next one is due,
// and so are registrations, which a heartbeat would bring about again. Those are not given up before
// other changes, however short their interval: they would be read again and again while the queue is
// longer than that.
func (s *session) expiry(t link.Task, l *registry.Lease) time.Duration {
	if l == nil {
		return s.Expiry
	}
	interval := time.Duration(l.Interval) * time.Second
	switch {
	case t.Facts == link.Heartbeat:
		return interval
	case t.Facts&link.Registered != 0:
		return max(interval, s.Expiry)
	}
	return s.Expiry
}

// submit queues what an answer of the peer asks for.
func (s *session) submit(t link.Task) {
	s.making.Lock()
	defer s.making.Unlock()
	t.First = 0
	s.queueIfTrue(s.config.View(), t)
}

// read queues some changes, and says whether there are more for which there is room.
func (s *session) read() (more bool) {
	s.making.Lock()
	defer s.making.Unlock()
	from, known := s.cursor.reading()
	v := s.config.View()
	if !known || from.after >= v.Index() {
		return false
	}
	limit := min(s.room(), readAtOnce)
	if limit == 0 {
		return false
	}
	changes, err := v.Changes(from.upto, limit)
	if err != nil {
		s.why = repairTooOld
		s.cursor.lose()
		return true
	}
	now := s.config.Clock()
	for _, c := range changes {
		if t, ok := s.tell(v, c, from, now); ok {
			s.cursor.add(t.First, c.Lease.ChangedLease)
			s.queue(t, c.Lease)
		}
	}
	if len(changes) < limit {
		s.cursor.read(from, v.Index(), v.Stamp().Lease, true)
		return false
	}
	s.cursor.read(from, changes[limit-1].Index, 0, false)
	return true
}

// beats queues the heartbeats since the last call. One that finds no room is dropped: the next renewal
// of its lease brings another.
func (s *session) beats() {
	v := s.config.View()
	after := s.beat
	if v.Beats() == after {
		return
	}
	room := s.room()
	if room == 0 && s.failing() {
		return // they are found when the peer answers again
	}
	s.beat = v.Beats()
	for l := range v.RenewedAfter(after, s.Kind == link.Node) {
		if room == 0 {
			s.dropped(dropNames[batcher.Overflow])
			continue
		}
		room--
		s.queue(link.Task{Key: l.Key(), Facts: link.Heartbeat}, l)
	}
}

// permanentBeat is how often a Eureka server is told that an instance without a lease lives: it gives it
// one, of 90 s.
const permanentBeat = registry.DefaultRenewalInterval * time.Second

// beatPermanent queues heartbeats, for a Eureka server, of the own datacenter's instances that have no
// lease. Nobody renews them here; other Rollcall servers know that they do not end.
func (s *session) beatPermanent() {
	if s.Kind != link.Eureka {
		return
	}
	room := s.room()
	for l := range s.config.View().Permanent {
		if !l.Local() {
			continue
		}
		if room == 0 {
			s.dropped(dropNames[batcher.Overflow])
			continue
		}
		room--
		s.queue(link.Task{Key: l.Key(), Facts: link.Heartbeat}, l)
	}
}
