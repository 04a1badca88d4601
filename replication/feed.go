package replication

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/replication/batcher"
)

// errPaused ends a session whose peer was paused.
var errPaused = errors.New("paused")

const (
	readAtOnce  = 1000        // elements of the change list that are looked at together
	repairRetry = time.Second // after a comparison that failed, where nothing can be sent without it
)

// The reasons of repairs.
const (
	repairFirst  = "first"   // nothing is known of the peer
	repairTooOld = "too-old" // the change list does not reach back
	repairDigest = "digest"  // the comparison that is made anyway
	repairAsked  = "asked"   // by an operator
)

// session is the sending to a peer from one moment to the next pause, end of leadership or end of the
// node. Its feed, one goroutine, makes tasks of what the peer is to be told; the dispatcher has no others
// but those that answers of the peer ask for.
type session struct {
	*peer
	from   registry.Index // the cursor in the state at the beginning
	cursor *cursor
	tasks  *batcher.Dispatcher[registry.Key, task]
	acts   *batcher.Dispatcher[struct{}, registry.SelfPreservation] // to nodes only

	// making is held while tasks are made of a view and queued, so that none of an older view is queued
	// after one of a newer.
	making sync.Mutex

	found chan finding
	// The following belong to the feed.
	beat       registry.Beat // up to which renewals were queued
	backlog    []task        // of repairs, that did not find room yet
	comparing  bool
	compared   time.Time // when the last comparison began
	why        string    // why the cursor is unknown
	comparison sync.WaitGroup
}

// finding is what a comparison found.
type finding struct {
	reason string
	view   *registry.View // from before the comparison
	diff   Diff
	tasks  []task
	err    error
	queued chan struct{} // closed when the tasks are queued; nil: nobody waits
}

func newSession(p *peer) *session {
	state := p.view().Peer(p.Name)
	s := &session{peer: p, from: state.Cursor, found: make(chan finding), why: repairFirst}
	// A cursor ahead of the list is of a state that was lost.
	at := max(state.Cursor, p.cursor())
	known := (state.Known || at > 0) && at <= p.view().Index()
	s.cursor = newCursor(at, known)
	s.tasks = batcher.New(batcher.Config[registry.Key, task]{
		Name:      p.Name,
		Processor: transmission{p},
		Merge:     s.merge,
		Done:      func(_ registry.Key, t task) { s.cursor.done(t.first) },
		Dropped:   s.givenUp,

		MaxBufferSize: p.Queue, WorkloadSize: p.BatchSize, WorkerCount: p.Workers, MaxBatchingDelay: p.BatchDelay,
		CongestionRetryDelay: p.CongestionDelay, NetworkFailureRetry: p.NetworkDelay, MaxRetryDelay: p.MaxDelay,
		Backoff: p.Backoff, Rate: p.Rate,
	})
	if a, ok := p.link.(actor); ok && p.Kind == Node {
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
	g.Go(func() error { return s.link.run(ctx) })
	g.Go(func() error { return s.feed(ctx) })
	err := g.Wait()
	s.comparison.Wait()
	return err
}

// feed makes tasks, whenever something happens that may need some.
func (s *session) feed(ctx context.Context) error {
	s.beat = s.view().Beats()
	beat := time.NewTicker(s.BatchDelay)
	defer beat.Stop()
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

// untilDigest varies, so that peers are not compared with all at the same time.
func (s *session) untilDigest() time.Duration {
	d := s.config.Digest
	return d - d/10 + rand.N(d/5+1)
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
	v := s.view()
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
func (s *session) queueIfTrue(v *registry.View, t task) {
	l, live := v.Find(t.key)
	if live == (t.facts&canceled != 0) {
		s.cursor.done(t.first)
		return
	}
	s.queue(t, l)
}

// queue hands a task to the dispatcher. Its first change was added to the cursor's. l is nil for what is
// removed.
func (s *session) queue(t task, l *registry.Lease) {
	t.queued, t.asOf = time.Now(), time.Now()
	s.tasks.Process(t.key, t, t.queued.Add(s.expiry(t, l)))
}

// expiry is how long a task is of use (upstream: PeerEurekaNode): heartbeats until the next one is due,
// and so are registrations, which a heartbeat would bring about again. Those are not given up before
// other changes, however short their interval: they would be read again and again while the queue is
// longer than that.
func (s *session) expiry(t task, l *registry.Lease) time.Duration {
	if l == nil {
		return s.Expiry
	}
	interval := time.Duration(l.Interval) * time.Second
	switch {
	case t.facts == heartbeat:
		return interval
	case t.facts&registered != 0:
		return max(interval, s.Expiry)
	}
	return s.Expiry
}

// submit queues what an answer of the peer asks for.
func (s *session) submit(t task) {
	s.making.Lock()
	defer s.making.Unlock()
	t.first = 0
	s.queueIfTrue(s.view(), t)
}

// read queues some changes, and says whether there are more for which there is room.
func (s *session) read() (more bool) {
	s.making.Lock()
	defer s.making.Unlock()
	from, known := s.cursor.reading()
	v := s.view()
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
	now := s.clock()
	for _, c := range changes {
		if t, ok := s.tell(v, c, from, now); ok {
			s.cursor.add(t.first, c.Lease.ChangedLease)
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
	v := s.view()
	after := s.beat
	if v.Beats() == after {
		return
	}
	room := s.room()
	if room == 0 && s.failing() {
		return // they are found when the peer answers again
	}
	s.beat = v.Beats()
	for l := range v.RenewedAfter(after, s.Kind == Node) {
		if room == 0 {
			s.dropped(dropNames[batcher.Overflow])
			continue
		}
		room--
		s.queue(task{key: l.Key(), facts: heartbeat}, l)
	}
}

// merge is merge, and keeps the cursor's account.
func (s *session) merge(older, newer task) task {
	if older.first != 0 && newer.first != 0 {
		s.cursor.done(max(older.first, newer.first))
	}
	return merge(older, newer)
}

var dropNames = [...]string{
	batcher.Expired: "expired", batcher.Overflow: "overflow", batcher.Permanent: "permanent", batcher.Stopped: "stopped",
}

// givenUp is told by the dispatcher. What the peer refuses is left to the next comparison; everything
// else is read again, when the dispatcher says that there is room.
func (s *session) givenUp(_ registry.Key, t task, why batcher.Drop) {
	s.dropped(dropNames[why])
	if why == batcher.Permanent {
		s.cursor.done(t.first)
		return
	}
	s.cursor.giveUp(t.first)
}

// digest compares with the peer, if it can be, and if nothing else is to be done first.
func (s *session) digest(ctx context.Context) {
	if s.Kind == Eureka || s.comparing || len(s.backlog) > 0 {
		return
	}
	s.compare(ctx, repairDigest)
}

// compareAll compares because nothing can be sent without it.
func (s *session) compareAll(ctx context.Context) {
	if !s.comparing && time.Since(s.compared) >= repairRetry {
		s.compare(ctx, s.why)
	}
}

// compare compares beside the feed, because the peer may be slow.
func (s *session) compare(ctx context.Context, reason string) {
	s.comparing, s.compared = true, time.Now()
	s.comparison.Go(func() {
		f := s.find(ctx, reason)
		select {
		case s.found <- f:
		case <-ctx.Done():
		}
	})
}

// find compares, for a repair.
func (s *session) find(ctx context.Context, reason string) finding {
	f := finding{reason: reason, view: s.view()}
	f.diff, f.tasks, f.err = s.link.compare(ctx, true)
	if errors.Is(f.err, ErrNoDigests) {
		f.diff, f.err = Diff{Missing: live(f.tasks)}, nil
	}
	return f
}

// live is how many tasks tell of instances that are there.
func live(tasks []task) int {
	n := 0
	for _, t := range tasks {
		if t.facts&canceled == 0 {
			n++
		}
	}
	return n
}

// take queues what a comparison found.
func (s *session) take(f finding) {
	if f.queued == nil {
		s.comparing = false
	}
	if f.err != nil {
		s.log.Debug("comparison failed", "reason", f.reason, "err", f.err)
		return
	}
	if f.reason == repairFirst || f.reason == repairTooOld {
		// The cursor stays unknown until all of it was transmitted.
		for i := range f.tasks {
			f.tasks[i].first = everything
			s.cursor.add(everything, f.view.Stamp().Lease)
		}
		s.cursor.found(f.view)
	}
	if len(f.tasks) > 0 {
		s.repaired(f.reason, f.diff)
	}
	s.backlog = append(s.backlog, f.tasks...)
	if f.queued != nil {
		close(f.queued)
	}
}

// repair compares because an operator wants it, and returns when what differs is queued.
func (s *session) repair(ctx context.Context) (Diff, error) {
	f := s.find(ctx, repairAsked)
	if f.err != nil {
		return Diff{}, f.err
	}
	f.queued = make(chan struct{})
	select {
	case s.found <- f:
	case <-ctx.Done():
		return Diff{}, ctx.Err()
	}
	<-f.queued
	return f.diff, nil
}

// transmission is the link, as the dispatcher sees it: it brings the ages of removals up to date.
type transmission struct{ *peer }

// Process implements batcher.Processor.
func (t transmission) Process(ctx context.Context, one task) batcher.Result {
	return t.link.Process(ctx, t.aged([]task{one})[0])
}

// ProcessBatch implements batcher.Processor.
func (t transmission) ProcessBatch(ctx context.Context, tasks []task) batcher.Result {
	return t.link.ProcessBatch(ctx, t.aged(tasks))
}

func (t transmission) aged(tasks []task) []task {
	now := time.Now()
	aged := make([]task, len(tasks))
	oldest := now
	for i, one := range tasks {
		if one.queued.Before(oldest) {
			oldest = one.queued
		}
		one.remove.Age += now.Sub(one.asOf).Milliseconds()
		aged[i] = one
	}
	t.metrics.waited(t.Name, now.Sub(oldest))
	return aged
}

// newActs is the dispatcher of operators' acts: in single-item form, without delay. Of two that wait the
// newer one counts.
func newActs(p *peer, a actor) *batcher.Dispatcher[struct{}, registry.SelfPreservation] {
	return batcher.New(batcher.Config[struct{}, registry.SelfPreservation]{
		Name: p.Name + " acts", Processor: acting{a}, WorkloadSize: 1,
		CongestionRetryDelay: p.CongestionDelay, NetworkFailureRetry: p.NetworkDelay, MaxRetryDelay: p.MaxDelay, Backoff: p.Backoff,
	})
}

// acting is a link that tells acts.
type acting struct{ actor }

// Process implements batcher.Processor.
func (a acting) Process(ctx context.Context, op registry.SelfPreservation) batcher.Result {
	return a.act(ctx, op)
}

// ProcessBatch implements batcher.Processor; in single-item form nobody calls it.
func (a acting) ProcessBatch(ctx context.Context, ops []registry.SelfPreservation) batcher.Result {
	for _, op := range ops {
		if result := a.act(ctx, op); result != batcher.Success {
			return result
		}
	}
	return batcher.Success
}

// tell queues an operator's act.
func (s *session) tellAct(op registry.SelfPreservation) {
	if s.acts != nil {
		s.acts.Process(struct{}{}, op, time.Now().Add(s.Expiry))
	}
}

// notSending is the error of what needs a session where there is none.
func (p *peer) notSending() error {
	if p.paused() {
		return fmt.Errorf("%w to %s: it is paused", ErrNotSending, p.Name)
	}
	return fmt.Errorf("%w to %s", ErrNotSending, p.Name)
}
