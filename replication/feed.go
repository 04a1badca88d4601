package replication

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/replication/batcher"
	"github.com/seed-20419f34/rollcall/replication/link"
)

// errPaused ends a feed whose peer was paused.
var errPaused = errors.New("paused")

// readAtOnce is how many elements of the change list are read together.
const readAtOnce = 1000

// feed sends to a peer until the next pause, the end of the leadership or the end of the node. One goroutine reads
// the change list and makes the tasks; the dispatcher gets no others except those that the peer's replies ask for.
type feed struct {
	*peer
	from   registry.Index // the cursor in the state at the start
	cursor *cursor
	tasks  *batcher.Dispatcher[registry.Key, link.Task]
	acts   *batcher.Dispatcher[struct{}, registry.SelfPreservation] // for nodes only

	// making is held while tasks are made from a view and queued, so that none from an older view is queued after one
	// from a newer.
	making sync.Mutex

	ended chan struct{} // closed when findings are no longer received
	// The fields below belong to the goroutine of makeTasks.
	comparisons *comparisons
	beat        registry.Beat // up to which renewals were queued
	backlog     []link.Task   // tasks of repairs that found no room yet
	why         string        // why the cursor is unknown
}

// newFeed returns a feed that starts from the cursor in the state, or from one that an earlier feed has reached.
func newFeed(p *peer, reached registry.Index) *feed {
	state := p.config.View().Peer(p.Name)
	f := &feed{
		peer: p, from: state.Cursor, ended: make(chan struct{}),
		comparisons: &comparisons{peer: p, found: make(chan finding)}, why: repairFirst,
	}
	// A cursor ahead of the list dates from a state that was lost.
	at := max(state.Cursor, reached)
	known := (state.Known || at > 0) && at <= p.config.View().Index()
	f.cursor = newCursor(at, known)
	f.tasks = batcher.New(batcher.Config[registry.Key, link.Task]{
		Name:      p.Name,
		Processor: transmission{p},
		Merge: func(older, newer link.Task) link.Task { // keeps the cursor's account
			if older.First != 0 && newer.First != 0 {
				f.cursor.done(max(older.First, newer.First))
			}
			return link.Merge(older, newer)
		},
		Done:    func(_ registry.Key, t link.Task) { f.cursor.done(t.First) },
		Dropped: f.giveUp,

		MaxBufferSize: p.Queue, WorkloadSize: p.BatchSize, WorkerCount: p.Workers, MaxBatchingDelay: p.BatchDelay,
		CongestionRetryDelay: p.CongestionDelay, NetworkFailureRetry: p.NetworkDelay, MaxRetryDelay: p.MaxDelay,
		Backoff: p.Backoff, Rate: p.Rate,
	})
	if a, ok := p.link.(link.Actor); ok && p.Kind == link.Node {
		// in single-item form, without delay; if two are waiting, the newer one counts
		f.acts = batcher.New(batcher.Config[struct{}, registry.SelfPreservation]{
			Name: p.Name + " acts", Processor: acting{a}, WorkloadSize: 1,
			CongestionRetryDelay: p.CongestionDelay, NetworkFailureRetry: p.NetworkDelay, MaxRetryDelay: p.MaxDelay, Backoff: p.Backoff,
		})
	}
	return f
}

// run sends until ctx ends or the peer is paused.
func (f *feed) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return f.tasks.Run(ctx, 0) })
	if f.acts != nil {
		g.Go(func() error { return f.acts.Run(ctx, 0) })
	}
	g.Go(func() error { return f.link.Run(ctx) })
	g.Go(func() error { return f.makeTasks(ctx) })
	err := g.Wait()
	f.comparisons.group.Wait()
	return err
}

// makeTasks makes tasks whenever something happens that may need some.
func (f *feed) makeTasks(ctx context.Context) error {
	defer close(f.ended)
	f.beat = f.config.View().NewestBeat()
	beat := time.NewTicker(f.BatchDelay)
	defer beat.Stop()
	permanent := time.NewTicker(permanentBeat)
	defer permanent.Stop()
	f.beatPermanent()
	digest := time.NewTimer(f.comparisons.untilDigest())
	defer digest.Stop()
	for ctx.Err() == nil {
		if f.paused() {
			return errPaused
		}
		f.fill(ctx)
		select {
		case <-f.woken:
		case <-f.tasks.Freed():
		case <-beat.C:
			f.beats()
		case <-permanent.C:
			f.beatPermanent()
		case <-digest.C:
			// A Eureka server cannot be compared with, and what was found before comes first.
			if f.Kind != link.Eureka && !f.comparisons.running && len(f.backlog) == 0 {
				f.comparisons.start(ctx, repairDigest)
			}
			digest.Reset(f.comparisons.untilDigest())
		case found := <-f.comparisons.found:
			f.queueFound(found)
		case <-ctx.Done():
		}
	}
	return nil
}

// queueFound queues what a comparison found.
func (f *feed) queueFound(found finding) {
	if found.queued == nil {
		f.comparisons.running = false
	}
	if found.err != nil {
		f.log.Debug("comparison failed", "reason", found.reason, "err", found.err)
		return
	}
	if found.reason == repairFirst || found.reason == repairTooOld {
		// The cursor stays unknown until all of it is transmitted.
		for i := range found.tasks {
			found.tasks[i].First = everything
			f.cursor.add(everything, found.view.Stamp().Lease)
		}
		f.cursor.compared(found.view)
	}
	if len(found.tasks) > 0 {
		f.repaired(found.reason, found.diff)
	}
	f.backlog = append(f.backlog, found.tasks...)
	if found.queued != nil {
		close(found.queued)
	}
}

// repair compares because an operator asked for it, and returns when the difference is queued, by the dispatcher or
// in the backlog. Errors: ErrNotSending, or the transport's.
func (f *feed) repair(ctx context.Context) (api.PeerDiff, error) {
	found := f.comparisons.find(ctx, repairAsked)
	if found.err != nil {
		return api.PeerDiff{}, found.err
	}
	found.queued = make(chan struct{})
	select {
	case f.comparisons.found <- found:
		<-found.queued
		return found.diff, nil
	case <-f.ended:
		return api.PeerDiff{}, f.notSending()
	case <-ctx.Done():
		return api.PeerDiff{}, ctx.Err()
	}
}

// fill queues as much as there is room for: first what a repair found, which is older, then changes.
func (f *feed) fill(ctx context.Context) {
	for ctx.Err() == nil && f.queueBacklog() {
		if _, known := f.cursor.reading(); !known {
			if !f.comparisons.running && time.Since(f.comparisons.started) >= repairRetry {
				f.comparisons.start(ctx, f.why)
			}
			return
		}
		if !f.read() {
			return
		}
	}
}

// room returns how many tasks may be queued now. While the peer does not respond, at most one batch is tried, so
// that what is given up is soon read again when it does.
func (f *feed) room() int {
	room := f.tasks.Room()
	if f.failing() {
		room = min(room, f.BatchSize-(f.Queue-room))
	}
	return max(room, 0)
}

// queueBacklog queues what repairs found, and reports whether that was all of it.
func (f *feed) queueBacklog() bool {
	if len(f.backlog) == 0 {
		return true
	}
	f.making.Lock()
	defer f.making.Unlock()
	v := f.config.View()
	for room := f.room(); len(f.backlog) > 0 && room > 0; room-- {
		t := f.backlog[0]
		f.backlog = f.backlog[1:]
		f.queueIfTrue(v, t)
	}
	if len(f.backlog) > 0 {
		return false
	}
	f.backlog = nil
	return true
}

// queueIfTrue queues a task that was made without a view, unless it has become untrue: whatever happened meanwhile is
// in the change list and was, or will be, queued from there.
func (f *feed) queueIfTrue(v *registry.View, t link.Task) {
	l, live := v.Find(t.Key)
	if live == (t.Facts&link.Canceled != 0) {
		f.cursor.done(t.First)
		return
	}
	f.queue(t, l)
}

// queue hands a task to the dispatcher. Its first change was added to the cursor's. l is nil for a removed instance.
func (f *feed) queue(t link.Task, l *registry.Lease) {
	t.Queued, t.AsOf = time.Now(), time.Now()
	f.tasks.Process(t.Key, t, t.Queued.Add(f.expiry(t, l)))
}

// expiry returns how long a task is useful (upstream: PeerEurekaNode): heartbeats until the next one is due, and so
// are registrations, which a heartbeat would bring about again. Registrations are not given up before other changes,
// however short their interval: they would be read over and over while the queue is longer than that.
func (f *feed) expiry(t link.Task, l *registry.Lease) time.Duration {
	if l == nil {
		return f.Expiry
	}
	interval := time.Duration(l.Interval) * time.Second
	switch {
	case t.Facts == link.Heartbeat:
		return interval
	case t.Facts&link.Registered != 0:
		return max(interval, f.Expiry)
	}
	return f.Expiry
}

// submit queues what a reply of the peer asks for.
func (f *feed) submit(t link.Task) {
	f.making.Lock()
	defer f.making.Unlock()
	f.cursor.add(t.First, 0) // change of the task that the reply is about, which is not transmitted yet
	f.queueIfTrue(f.config.View(), t)
}

// read queues some changes, and reports whether there are more that fit.
func (f *feed) read() (more bool) {
	f.making.Lock()
	defer f.making.Unlock()
	from, known := f.cursor.reading()
	v := f.config.View()
	if !known || from.after >= v.Index() {
		return false
	}
	limit := min(f.room(), readAtOnce)
	if limit == 0 {
		return false
	}
	changes, err := v.Changes(from.upto, limit)
	if err != nil {
		f.why = repairTooOld
		f.cursor.markUnknown()
		return true
	}
	now := f.config.Clock()
	for _, c := range changes {
		if t, ok := f.taskOf(v, c, from, now); ok {
			f.cursor.add(t.First, c.Lease.ChangedLease)
			f.queue(t, c.Lease)
		}
	}
	if len(changes) < limit {
		f.cursor.read(from, v.Index(), v.Stamp().Lease, true)
		return false
	}
	f.cursor.read(from, changes[limit-1].Index, 0, false)
	return true
}

// beats queues the heartbeats since the last call. A heartbeat that finds no room is dropped: the next renewal of its
// lease brings another.
func (f *feed) beats() {
	v := f.config.View()
	after := f.beat
	if v.NewestBeat() == after {
		return
	}
	room := f.room()
	if room == 0 && f.failing() {
		return // they are found when the peer responds again
	}
	f.beat = v.NewestBeat()
	for l := range v.RenewedAfter(after, f.Kind == link.Node) {
		if room == 0 {
			f.dropped(dropNames[batcher.Overflow])
			continue
		}
		room--
		f.queue(link.Task{Key: l.Key(), Facts: link.Heartbeat}, l)
	}
}

// permanentBeat is how often a Eureka server gets a heartbeat for an instance without a lease: the server gives the
// instance one, of 90 s.
const permanentBeat = registry.DefaultRenewalInterval * time.Second

// beatPermanent queues heartbeats for a Eureka server, for this datacenter's instances without a lease. No client
// renews them; other Rollcall servers know that they do not end.
func (f *feed) beatPermanent() {
	if f.Kind != link.Eureka {
		return
	}
	room := f.room()
	for l := range f.config.View().Permanent {
		if !l.Local() {
			continue
		}
		if room == 0 {
			f.dropped(dropNames[batcher.Overflow])
			continue
		}
		room--
		f.queue(link.Task{Key: l.Key(), Facts: link.Heartbeat}, l)
	}
}

var dropNames = [...]string{
	batcher.Expired: "expired", batcher.Overflow: "overflow", batcher.Permanent: "permanent", batcher.Stopped: "stopped",
}

// giveUp is called by the dispatcher. A task that the peer refuses is left to the next comparison; every other one is
// read again when the dispatcher has room.
func (f *feed) giveUp(_ registry.Key, t link.Task, why batcher.Drop) {
	f.dropped(dropNames[why])
	if why == batcher.Permanent {
		f.cursor.done(t.First)
		return
	}
	f.cursor.giveUp(t.First)
}

// cursorUnknown reports whether the list does not show what the peer lacks.
func (f *feed) cursorUnknown() bool {
	_, known := f.cursor.reading()
	return !known
}
