package load

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/truth"
)

// fleet is the clients of a load's instances: of those that last, and of those that come and go.
type fleet struct {
	load     *Load
	book     *truth.Book
	interval time.Duration // between two heartbeats of an instance
	lease    time.Duration
	stay     time.Duration // of an instance that comes and goes
	lasting  []*instance
	came     atomic.Int64 // instances that came, and may have gone

	mu       sync.Mutex
	dice     *rand.Rand // by which instances are struck
	agendas  []*agenda  // by home node
	entering bool       // the lasting instances are being registered; nobody else renews them yet
	staying  bool       // those that come and go do not go any more
	awaited  int        // lasting instances that were not yet registered
	complete chan struct{}
}

// instance is one instance and its client, which does one thing at a time.
type instance struct {
	described
	home    int
	leaves  time.Time // when it cancels; zero: it lasts
	version int64     // of its newest write; whoever made it busy may change it

	// Guarded by the fleet.
	mode       mode
	busy       bool      // its client is at work
	known      bool      // it was registered once
	registered bool      // that is certain, and that no cancel has begun since
	canceling  bool      // a cancel has begun, and its outcome is not certain
	beat       time.Time // when its next heartbeat is due; of those that come and go
	planned    time.Time // its place in the agenda; zero: it has none
}

// mode is what the client of an instance is about.
type mode uint8

const (
	living   mode = iota
	flapping      // it cancels and registers again
	silent        // it sends nothing for now
	dead          // it sends nothing any more
	gone          // it has canceled for good
)

// What the seed decides is drawn from a sequence for each purpose.
const (
	diceFleet = iota + 1
	diceKeys
)

// bookOf is the load's book, or one that nobody will read.
func bookOf(l *Load) *truth.Book {
	if l.Book == nil {
		return new(truth.Book)
	}
	return l.Book
}

const (
	fewInstances = 1000 // up to which an application has appFew of them, above appMany
	appFew       = 10
	appMany      = 100
)

// newFleet lays the instances of a load out.
func newFleet(l *Load) *fleet {
	f := &fleet{
		load: l, book: bookOf(l),
		interval: cmp.Or(l.Load.Heartbeat.Duration(), 30*time.Second),
		lease:    cmp.Or(l.Load.Lease.Duration(), 90*time.Second),
		stay:     5 * time.Second,
		lasting:  make([]*instance, l.Load.Instances),
		dice:     rand.New(rand.NewPCG(l.Seed, diceFleet)),
		awaited:  l.Load.Instances, complete: make(chan struct{}),
	}
	perApp := appFew
	if len(f.lasting) > fewInstances {
		perApp = appMany
	}
	callers := f.callers()
	for i := range f.lasting {
		app := fmt.Sprintf("%s-%03d", l.Prefix, i/perApp)
		f.lasting[i] = f.describe(app, i, i%callers%len(l.Nodes))
	}
	if f.awaited == 0 {
		close(f.complete)
	}
	for range l.Nodes {
		f.agendas = append(f.agendas, newAgenda())
	}
	return f
}

// describe makes an instance; number tells it from the others of its application. Its host is its id, as with
// Spring.
func (f *fleet) describe(app string, number, home int) *instance {
	return &instance{home: home, described: described{
		app: app, id: fmt.Sprintf("%s-%06x.cluster.example.internal:8080", app, number), number: number,
		interval: int(f.interval / time.Second), duration: int(f.lease / time.Second),
	}}
}

// register registers all lasting instances, as fast as they are taken, and renews those that wait for the others.
func (f *fleet) register(ctx context.Context) error {
	f.enterAll()
	ctx, stop := context.WithCancel(ctx)
	var tending sync.WaitGroup
	tending.Go(func() { f.tend(ctx) })
	defer f.entered()
	defer tending.Wait()
	defer stop()
	select {
	case <-f.complete:
		return nil
	case <-ctx.Done():
		f.mu.Lock()
		defer f.mu.Unlock()
		return fmt.Errorf("%d of %d instances could not be registered: %w", f.awaited, len(f.lasting), ctx.Err())
	}
}

// enterAll plans the registration of all lasting instances.
func (f *fleet) enterAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.entering = true
	now := time.Now()
	for _, i := range f.lasting {
		f.plan(i, now)
	}
}

// entered leaves the heartbeats of the lasting instances to their schedule.
func (f *fleet) entered() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.entering = false
}

// take makes the client of a registered, living instance busy, if it is idle.
func (f *fleet) take(i *instance) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i.busy || i.mode != living || !i.registered {
		return false
	}
	i.busy = true
	return true
}

// release lets the client of an instance be idle, and plans what it does next. Whoever stopped it while it was
// busy could not say when it had done its last work.
func (f *fleet) release(i *instance, certain bool) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	i.busy = false
	switch {
	case i.mode == dead || i.mode == silent:
		f.book.Died(i.id, now)
	case i.mode == gone:
	case !certain:
		f.plan(i, now.Add(retryPause))
	case i.mode == flapping:
		f.plan(i, now.Add(flapPause))
	case !i.registered:
		f.plan(i, now)
	case !i.leaves.IsZero() && !f.staying:
		f.plan(i, earlier(i.beat, i.leaves))
	case !i.leaves.IsZero():
		f.plan(i, i.beat)
	case f.entering:
		f.plan(i, i.beat)
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
