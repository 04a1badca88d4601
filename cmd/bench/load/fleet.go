package load

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/truth"
)

// fleet is the clients of a load's instances: of lasting ones, and of passing ones.
type fleet struct {
	load     *Load
	book     *truth.Book
	interval time.Duration // between two heartbeats of an instance
	lease    time.Duration
	stay     time.Duration // of an instance that comes and goes
	lasting  []*instance
	arrivals atomic.Int64 // instances that have come; some may have canceled

	mu      sync.Mutex
	passing []*instance // in the order of their arrival
	seals   []*instance // in the order of their numbers
	forgot  []pastForgotten
	dice    *rand.Rand // chooses the instances to strike
	agendas []*agenda  // by home node
	// the lasting instances are being registered, and their agenda renews them; heartbeats begin later
	registering bool
	staying     bool // instances that come and go no longer cancel
	awaited     int  // lasting instances not yet registered
	complete    chan struct{}
}

// instance is one instance and its client, which does one thing at a time.
type instance struct {
	described
	home    int
	leaves  time.Time // when it cancels; zero if it lasts
	version int64     // of its newest write; changed only by the goroutine that made the instance busy
	// its newest acknowledged heartbeat or registration since its last cancel, likewise; zero if none
	acked  time.Time
	late   bool // a cancel got no answer, and may take effect at any time, likewise
	felt   struct{ heartbeats, registrations, cancels felt }
	writes []pastSeal // of a sealed instance

	// Guarded by the fleet.
	mode       mode
	busy       bool      // its client is at work
	known      bool      // it was registered once
	registered bool      // its registration is certain, and no cancel has begun since
	canceling  bool      // a cancel has begun, and its outcome is uncertain
	beat       time.Time // when its next heartbeat is due, for one that comes and goes
	planned    time.Time // its time in the agenda; zero if it has none
}

// mode is what the client of an instance does.
type mode uint8

const (
	living   mode = iota
	flapping      // it cancels and registers again
	silent        // it sends nothing until it restarts
	dead          // it never sends anything again
	canceled      // it has canceled, and will not register again
	sealed        // it is written once or twice, and never again
)

// Each purpose draws from its own sequence.
const (
	diceFleet = iota + 1
	diceKeys
)

// bookOf returns the load's book, or one that nobody reads.
func bookOf(l *Load) *truth.Book {
	if l.Book == nil {
		return new(truth.Book)
	}
	return l.Book
}

const (
	fewInstances = 1000 // up to this many instances an application has appFew of them, above it appMany
	appFew       = 10
	appMany      = 100
)

// newFleet creates the instances of a load.
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
	perApp := cmp.Or(l.PerApp, appFew)
	if l.PerApp == 0 && len(f.lasting) > fewInstances {
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

// describe makes an instance; number distinguishes it from the others of its application. Its host is its id, as with
// Spring.
func (f *fleet) describe(app string, number, home int) *instance {
	return &instance{home: home, described: described{
		app: app, id: fmt.Sprintf("%s-%06x.cluster.example.internal:8080", app, number), number: number,
		interval: int(f.interval / time.Second), duration: int(f.lease / time.Second),
	}}
}

// register registers all lasting instances, as fast as the cluster accepts them, and renews those that wait for the
// others and for then.
func (f *fleet) register(ctx context.Context, then func() error) error {
	f.planRegistrations()
	ctx, stop := context.WithCancel(ctx)
	var tending sync.WaitGroup
	tending.Go(func() { f.tend(ctx) })
	defer f.endRegistering()
	defer tending.Wait()
	defer stop()
	select {
	case <-f.complete:
		return then()
	case <-ctx.Done():
		f.mu.Lock()
		defer f.mu.Unlock()
		return fmt.Errorf("%d of %d instances could not be registered: %w", f.awaited, len(f.lasting), ctx.Err())
	}
}

// planRegistrations plans the registration of all lasting instances.
func (f *fleet) planRegistrations() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.registering = true
	now := time.Now()
	for _, i := range f.lasting {
		f.plan(i, now)
	}
}

// endRegistering leaves the heartbeats of the lasting instances to their schedule.
func (f *fleet) endRegistering() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.registering = false
}

// reserve makes the client of a registered, living instance busy, if it is idle.
func (f *fleet) reserve(i *instance) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i.busy || i.mode != living || !i.registered {
		return false
	}
	i.busy = true
	return true
}

// release makes the client of an instance idle, and plans what it does next. An instance that was stopped while it was
// busy dies only now, when its last work has ended.
func (f *fleet) release(i *instance, certain bool) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	i.busy = false
	switch {
	case i.mode == dead || i.mode == silent:
		f.book.Died(i.id, now)
	case i.mode == canceled:
	case i.mode == sealed:
		if f.fate(i) != alone {
			f.plan(i, i.writes[0].returned.Add(sealPause))
		}
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
	case f.registering:
		f.plan(i, i.beat)
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

const (
	retryPause = 500 * time.Millisecond // before repeating a registration or cancel of uncertain outcome
	// errandClients is how many clients of a node's instances work at the same time, apart from the heartbeats of the
	// lasting ones.
	errandClients = 64
)

// agenda is what the clients of one home node's instances will do besides scheduled heartbeats: register, cancel, try
// again, and everything that instances that come and go do.
type agenda struct {
	plans plans
	woken chan struct{} // has an element if something was planned since attend last read the plans
}

func newAgenda() *agenda { return &agenda{woken: make(chan struct{}, 1)} }

// planned is an instance whose client does something next at due. An earlier plan for it is not removed, but skipped
// when its time has come.
type planned struct {
	due time.Time
	*instance
}

// plans is a heap by time.
type plans []planned

func (p plans) Len() int           { return len(p) }
func (p plans) Less(i, j int) bool { return p[i].due.Before(p[j].due) }
func (p plans) Swap(i, j int)      { p[i], p[j] = p[j], p[i] }
func (p *plans) Push(x any)        { *p = append(*p, x.(planned)) }
func (p *plans) Pop() any {
	last := len(*p) - 1
	x := (*p)[last]
	(*p)[last] = planned{}
	*p = (*p)[:last]
	return x
}

// plan makes the client of an instance do its next action at due, instead of an earlier plan. The fleet is locked.
func (f *fleet) plan(i *instance, due time.Time) {
	i.planned = due
	a := f.agendas[i.home]
	heap.Push(&a.plans, planned{due, i})
	select {
	case a.woken <- struct{}{}:
	default:
	}
}

// tend does what is planned until ctx ends, and returns when nothing is under way.
func (f *fleet) tend(ctx context.Context) {
	idle, hangUp := f.load.idleCallers()
	defer hangUp()
	var homes sync.WaitGroup
	for n, a := range f.agendas {
		homes.Go(func() { f.attend(ctx, a, idle[n]) })
	}
	homes.Wait()
}

// attend does what is planned in one agenda, each action by an idle caller.
func (f *fleet) attend(ctx context.Context, a *agenda, idle chan *caller) {
	var working sync.WaitGroup
	defer working.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		i, due, do := f.due(a, time.Now())
		if do == nil {
			timer.Reset(time.Until(due))
			select {
			case <-timer.C:
			case <-a.woken:
			case <-ctx.Done():
			}
			continue
		}
		c := <-idle // waits for a call that ends within the timeout, or with ctx
		working.Go(func() {
			f.release(i, do(ctx, c, i, due))
			idle <- c
		})
	}
}

// longWait is longer than an agenda stays empty: something gets planned before.
const longWait = time.Hour

// errand is something that the client of an instance does. It reports whether the outcome is certain.
type errand func(ctx context.Context, c *caller, i *instance, due time.Time) (certain bool)

// due returns the instance whose time has come, made busy, and its client's action. If do is nil, there is nothing to
// do until due.
func (f *fleet) due(a *agenda, now time.Time) (i *instance, due time.Time, do errand) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(a.plans) > 0 {
		next := a.plans[0]
		if next.due.After(now) {
			return nil, next.due, nil
		}
		heap.Pop(&a.plans)
		i := next.instance
		if i.busy || !i.planned.Equal(next.due) {
			continue
		}
		i.planned = time.Time{}
		if do := f.next(i, next.due); do != nil {
			i.busy = true
			return i, next.due, do
		}
	}
	return nil, now.Add(longWait), nil
}

// stayOn makes instances that come and go stay registered from now on. Otherwise their cancels would go on for a while
// after a load's end, and it would be uncertain what the nodes should hold.
func (f *fleet) stayOn() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.staying = true
}

// next returns the action that the client of an idle instance has to do at a time, or nil if only heartbeats are due.
func (f *fleet) next(i *instance, at time.Time) errand {
	switch {
	case i.mode == silent, i.mode == dead, i.mode == canceled:
		return nil
	case i.mode == sealed:
		return f.sealAgain
	case i.canceling, i.registered && i.mode == flapping:
		return f.cancelOnce
	case !i.registered:
		return f.registerOnce
	case i.leaves.IsZero() && !f.registering:
		return nil
	case !i.leaves.IsZero() && !at.Before(i.leaves) && !f.staying:
		return f.cancelOnce
	}
	return f.renewOnce
}

// renew sends a heartbeat, and registers an unknown instance again at once, as stock clients do. It reports whether
// the outcome is certain.
func (f *fleet) renew(ctx context.Context, c *caller, i *instance, due time.Time) (certain bool) {
	r := c.call(ctx, i.renewal(i.version), false)
	f.load.record(trial.Heartbeat, i.home, due, r, &i.felt.heartbeats)
	switch r.outcome {
	case trial.Done:
		i.acked = r.done
		f.book.Renewed(i.id, r.done)
	case trial.NotFound:
		f.noteForgotten(i, r)
		if f.markUnregistered(i) {
			return f.registerOnce(ctx, c, i, r.done)
		}
	}
	return true
}

// pastForgotten is a heartbeat answered 404.
type pastForgotten struct {
	id       string
	node     int
	at, last time.Time
}

// noteForgotten keeps a 404 if it is certain that the instance was registered before, and has not been canceled since.
func (f *fleet) noteForgotten(i *instance, r callResult) {
	if i.acked.IsZero() || i.late {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forgot = append(f.forgot, pastForgotten{i.id, r.node, r.done, i.acked})
}

// Forgotten returns the heartbeats answered 404.
func (l *Load) Forgotten(began time.Time) []trial.Forgotten {
	l.fleet.mu.Lock()
	defer l.fleet.mu.Unlock()
	var all []trial.Forgotten
	for _, p := range l.fleet.forgot {
		all = append(all, trial.Forgotten{At: trial.Since(began, p.at), Node: p.node, ID: p.id, Last: trial.Since(began, p.last)})
	}
	return all
}

// instances returns all instances so far.
func (f *fleet) instances() []*instance {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Concat(f.lasting, f.passing)
}

// renewOnce renews an instance whose heartbeats have no schedule. The next one is due an interval after this one was
// due, however late this one is.
func (f *fleet) renewOnce(ctx context.Context, c *caller, i *instance, due time.Time) (certain bool) {
	f.mu.Lock()
	i.beat = due.Add(f.interval)
	f.mu.Unlock()
	return f.renew(ctx, c, i, due)
}

// markUnregistered records that an instance is not registered, and reports whether its client should register it
// again.
func (f *fleet) markUnregistered(i *instance) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	i.registered = false
	return i.mode == living
}

// registerOnce registers an instance in its next version. After an unknown outcome it must be repeated: the conflict
// rule ignores the older version, whenever that arrives.
func (f *fleet) registerOnce(ctx context.Context, c *caller, i *instance, due time.Time) (certain bool) {
	i.version++
	f.book.Registering(i.id, i.version, time.Now())
	r := c.call(ctx, i.registration(i.version), false)
	f.load.record(trial.Register, i.home, due, r, &i.felt.registrations)
	recordWrite(f.book, i.id, i.version, r, f.book.Registering, f.book.Registered)
	if r.outcome != trial.Done {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	i.registered, i.acked = true, r.done
	i.beat = r.done.Add(f.interval)
	if !i.known && i.leaves.IsZero() {
		if f.awaited--; f.awaited == 0 {
			close(f.complete)
		}
	}
	i.known = true
	return true
}

// cancelOnce cancels an instance. NotFound is a certain outcome, too, but does not promise that no node lists the
// instance: the book only learns that its client has died.
func (f *fleet) cancelOnce(ctx context.Context, c *caller, i *instance, due time.Time) (certain bool) {
	i.version++
	i.felt.heartbeats.stop(time.Now())
	f.book.Canceling(i.id, i.version, time.Now())
	r := c.call(ctx, i.cancel(), false)
	f.load.record(trial.Cancel, i.home, due, r, &i.felt.cancels)
	recordWrite(f.book, i.id, i.version, r, f.book.Canceling, f.book.Canceled)
	certain = r.outcome.Answered()
	f.mu.Lock()
	defer f.mu.Unlock()
	i.registered, i.canceling, i.acked = false, !certain, time.Time{}
	i.late = i.late || r.doubtful || r.outcome == trial.Unknown
	if certain && !i.leaves.IsZero() {
		i.mode = canceled
		if r.outcome == trial.NotFound {
			f.book.Died(i.id, r.done)
		}
	}
	return certain
}

// recordWrite records in the book how a write ended whose begin the book knows. begin and done are the book's methods
// for this kind of write. A write that was not found, or whose outcome is unknown, stays open.
func recordWrite(b *truth.Book, id string, version int64, r callResult, begin, done func(id string, version int64, at time.Time)) {
	if r.doubtful {
		begin(id, version, r.done) // the earlier try, whose response never arrives
	}
	switch r.outcome {
	case trial.Done:
		done(id, version, r.done)
	case trial.Refused, trial.Unreached:
		b.NotDone(id, version)
	}
}

// heartbeatClients is how many clients of each node send the heartbeats of lasting instances. Up to this number each
// instance has its own client.
const heartbeatClients = 256

// callers returns how many clients send heartbeats.
func (f *fleet) callers() int {
	most := f.load.Connections
	if most == 0 {
		most = heartbeatClients * len(f.load.Nodes)
	}
	return max(1, min(len(f.lasting), most))
}

// fleetStreams returns the heartbeats of the instances, and the registrations and cancels of the passing ones.
func (l *Load) fleetStreams() []*stream {
	var streams []*stream
	if n := len(l.fleet.lasting); n > 0 {
		callers := l.fleet.callers()
		streams = append(streams, &stream{
			source: &heartbeats{fleet: l.fleet, turns: make([]int, callers)},
			rate:   float64(n) / l.fleet.interval.Seconds(), fixed: callers, lasting: true, cycle: n,
		})
	}
	return append(streams, &stream{source: churn{l.fleet}, name: "registers", rate: l.Load.Registers})
}

// heartbeats are the lasting instances'. Caller c of n renews the instances c, c+n, c+2n …
type heartbeats struct {
	fleet *fleet
	turns []int // by caller: how many instances it has passed in this round
}

// send renews the caller's next instance. One that is not registered now, or whose client is busy, misses its turn.
func (h *heartbeats) send(ctx context.Context, c *caller, due time.Time) {
	i := h.fleet.lasting[c.turn+h.turns[c.turn]*len(h.turns)]
	h.turns[c.turn]++
	if c.turn+h.turns[c.turn]*len(h.turns) >= len(h.fleet.lasting) {
		h.turns[c.turn] = 0
	}
	if h.fleet.reserve(i) {
		h.fleet.release(i, h.fleet.renew(ctx, c, i, due))
	}
}

// churn registers instances that renew their leases like the others, and cancel after their stay.
type churn struct{ fleet *fleet }

func (s churn) send(ctx context.Context, c *caller, due time.Time) {
	f := s.fleet
	number := int(f.arrivals.Add(1))
	i := f.describe(fmt.Sprintf("%s-CHURN", f.load.Prefix), number, c.home)
	i.leaves, i.busy = due.Add(f.stay), true
	f.mu.Lock()
	f.passing = append(f.passing, i)
	f.mu.Unlock()
	f.release(i, f.registerOnce(ctx, c, i, due))
}

// flapPause is the time between a cancel and the next registration of a flapping instance, and vice versa.
const flapPause = 500 * time.Millisecond

// Die makes instances, drawn by the seed among the living, stop their heartbeats for ever, and returns how many. which
// is a number or a share, as in scenario.Fault.
func (l *Load) Die(which string) (int, error) {
	struck, err := l.fleet.stop(which, dead)
	return len(struck), err
}

// Silence stops everything that instances send; the function it returns restarts their clients, with a registration
// each.
func (l *Load) Silence(which string) (count int, restart func(), err error) {
	struck, err := l.fleet.stop(which, silent)
	return len(struck), func() { l.fleet.restart(struck) }, err
}

// Flap makes instances cancel and register again, once a second each, until stop is called; they end registered.
func (l *Load) Flap(which string) (count int, stop func(), err error) {
	struck, err := l.fleet.flap(which)
	return len(struck), func() { l.fleet.calm(struck) }, err
}

// stop draws living instances whose clients send nothing from now on. Calls under way still end.
func (f *fleet) stop(which string, how mode) ([]*instance, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	struck, err := f.draw(which)
	now := time.Now()
	for _, i := range struck {
		i.mode = how
		i.felt.heartbeats.stop(now)
		if !i.busy {
			f.book.Died(i.id, now)
		}
	}
	return struck, err
}

// restart restarts the clients of silent instances.
func (f *fleet) restart(struck []*instance) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	for _, i := range struck {
		if i.mode != silent {
			continue
		}
		i.mode, i.registered, i.canceling = living, false, false
		f.plan(i, now)
	}
}

// flap draws living instances that cancel and register again from now on, spread over the time that both take.
func (f *fleet) flap(which string) ([]*instance, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	struck, err := f.draw(which)
	now := time.Now()
	for n, i := range struck {
		i.mode = flapping
		f.plan(i, now.Add(2*flapPause*time.Duration(n)/time.Duration(len(struck))))
	}
	return struck, err
}

// calm makes flapping instances stay registered: their next plan cancels nothing. A cancel that has begun is completed
// first.
func (f *fleet) calm(struck []*instance) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, i := range struck {
		if i.mode == flapping {
			i.mode = living
		}
	}
}

// draw draws lasting instances among the living. The fleet is locked.
func (f *fleet) draw(which string) ([]*instance, error) {
	alive := slices.DeleteFunc(slices.Clone(f.lasting), func(i *instance) bool { return i.mode != living })
	n, err := scenario.Share(which, len(alive))
	if err != nil {
		return nil, err
	}
	f.dice.Shuffle(len(alive), func(a, b int) { alive[a], alive[b] = alive[b], alive[a] })
	return alive[:n], nil
}
