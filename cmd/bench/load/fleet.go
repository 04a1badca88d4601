package load

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

// fleet is the clients of a load's instances: of lasting ones, of passing ones, and of sealed ones. Heartbeats of the
// lasting ones are a stream; everything else that an instance's client does is a short script in its own goroutine.
type fleet struct {
	load     *Load
	interval time.Duration // between two heartbeats of an instance
	lease    time.Duration
	stay     time.Duration // of an instance that comes and goes
	lasting  []*instance
	idle     []pool // by home: clients that scripts use

	staying atomic.Bool    // instances that come and go no longer cancel
	sealing sync.WaitGroup // second writes of sealed instances

	mu      sync.Mutex
	passing []*instance // in the order of their arrival
	seals   []*instance // in the order of their numbers
	forgot  []trial.Forgotten
	dice    *rand.Rand // chooses the instances to strike
}

// instance is one instance and its client, which does one thing at a time.
type instance struct {
	described
	home   int
	leaves time.Time // when it cancels; zero if it lasts
	mode   atomic.Int32
	felt   struct{ heartbeats, registrations, cancels felt }

	work       sync.Mutex // held while its client is at work; guards what follows
	version    int64      // of its newest write
	registered bool       // its registration is certain, and no cancel has begun since
	acked      time.Time  // its newest acknowledged heartbeat or registration since its last cancel; zero if none
	late       bool       // a cancel got no answer, and may take effect at any time
	left       bool       // it has canceled, and will not register again
	writes     []trial.SealWrite
}

// What the client of a lasting instance does: its mode.
const (
	living   int32 = iota
	flapping       // it cancels and registers again
	silent         // it sends nothing until it restarts
	dead           // it never sends anything again
)

// Each purpose draws from its own sequence.
const (
	diceFleet = iota + 1
	diceKeys
)

const (
	fewInstances = 1000 // up to this many instances an application has appFew of them, above it appMany
	appFew       = 10
	appMany      = 100

	// heartbeatClients is how many clients of each node send the heartbeats of lasting instances. Up to this number
	// each instance has its own client.
	heartbeatClients = 256
	// scriptClients is how many clients of a node's instances work at the same time, apart from the heartbeats of the
	// lasting ones.
	scriptClients = 64

	retryPause = 500 * time.Millisecond // before repeating a registration or cancel of uncertain outcome
	// flapPause is the time between a cancel and the next registration of a flapping instance, and vice versa.
	flapPause = 500 * time.Millisecond
	// sealPause is from the registration of a sealed instance to its second write.
	sealPause = time.Second
)

// newFleet creates the instances of a load.
func newFleet(l *Load) *fleet {
	f := &fleet{
		load:     l,
		interval: cmp.Or(l.Load.Heartbeat.Duration(), 30*time.Second),
		lease:    cmp.Or(l.Load.Lease.Duration(), 90*time.Second),
		stay:     5 * time.Second,
		lasting:  make([]*instance, l.Load.Instances),
		idle:     l.newPools(len(l.Nodes), scriptClients*len(l.Nodes)),
		dice:     rand.New(rand.NewPCG(l.Seed, diceFleet)),
	}
	perApp := cmp.Or(l.PerApp, appFew)
	if l.PerApp == 0 && len(f.lasting) > fewInstances {
		perApp = appMany
	}
	for i := range f.lasting {
		app := fmt.Sprintf("%s-%03d", l.Prefix, i/perApp)
		f.lasting[i] = f.describe(app, i, i%f.clients()%len(l.Nodes))
	}
	return f
}

// clients returns how many clients send heartbeats.
func (f *fleet) clients() int {
	return max(1, min(len(f.lasting), cmp.Or(f.load.Connections, heartbeatClients*len(f.load.Nodes))))
}

// describe makes an instance; number distinguishes it from the others of its application. Its host is its id, as with
// Spring.
func (f *fleet) describe(app string, number, home int) *instance {
	return &instance{home: home, described: described{
		app: app, id: fmt.Sprintf("%s-%06x.cluster.example.internal:8080", app, number), number: number,
		interval: int(f.interval / time.Second), duration: int(f.lease / time.Second),
	}}
}

// Register registers all instances (Load.Instances) and the watched keys, as fast as the cluster accepts them, and
// returns when all were acknowledged and Config.AwaitListed has returned. Instances that wait for this are renewed.
func (l *Load) Register(ctx context.Context) error {
	beating, stop := context.WithCancel(ctx)
	var beats sync.WaitGroup
	defer beats.Wait()
	defer stop()
	p := &pacer{streams: l.fleet.heartbeats(), rate: l.rate, begin: time.Now().Add(l.fleet.interval), onEnd: func() {}}
	p.hand = func(s *stream, due time.Time) {
		do := s.next()
		beats.Go(func() { do(beating, due) })
	}
	beats.Go(func() { p.run(beating) })
	if err := l.fleet.register(ctx); err != nil {
		return err
	}
	if err := l.keys.register(ctx); err != nil || l.AwaitListed == nil {
		return err
	}
	return l.AwaitListed(ctx)
}

// register registers all lasting instances.
func (f *fleet) register(ctx context.Context) error {
	var failed atomic.Int64
	var g errgroup.Group
	g.SetLimit(scriptClients * len(f.load.Nodes))
	for _, i := range f.lasting {
		g.Go(func() error {
			if !f.insist(ctx, i, time.Now(), f.renew) {
				failed.Add(1)
			}
			return nil
		})
	}
	_ = g.Wait() // no error: they are counted
	if n := failed.Load(); n > 0 {
		return fmt.Errorf("%d of %d instances could not be registered: %w", n, len(f.lasting), ctx.Err())
	}
	return nil
}

// heartbeats returns the stream of the lasting instances' heartbeats. They take turns, so that each is due at the same
// distances, and always has the same client.
func (f *fleet) heartbeats() []*stream {
	n := len(f.lasting)
	if n == 0 {
		return nil
	}
	beats := &stream{rate: float64(n) / f.interval.Seconds(), lasting: true}
	pools := f.load.newPools(n, f.clients())
	for number, i := range f.lasting {
		beat := func(ctx context.Context, c *client, due time.Time) { f.beat(ctx, c, i, due) }
		beats.turns = append(beats.turns, f.load.by(pools[number%len(pools)], beat))
	}
	return []*stream{beats}
}

// beat renews a lasting instance. One that is not registered now, or whose client is busy, misses its turn.
func (f *fleet) beat(ctx context.Context, c *client, i *instance, due time.Time) {
	if !i.work.TryLock() {
		return
	}
	defer i.work.Unlock()
	if i.mode.Load() == living && i.registered && !f.renew(ctx, c, i, due) {
		again := time.Now().Add(retryPause)
		f.load.background.Go(func() { f.insist(f.load.living, i, again, f.renew) })
	}
}

// task is something that the client of an instance does. It reports whether the outcome is certain.
type task func(ctx context.Context, c *client, i *instance, due time.Time) (certain bool)

// insist performs a task at due, and again until its outcome is certain. It returns false if ctx ends, or the instance
// was struck.
func (f *fleet) insist(ctx context.Context, i *instance, due time.Time, do task) (certain bool) {
	for wait.For(ctx, time.Until(due)) {
		i.work.Lock()
		if mode := i.mode.Load(); mode == silent || mode == dead {
			i.work.Unlock()
			return false
		}
		f.load.use(f.idle[i.home], time.Time{}, func(c *client) { certain = do(ctx, c, i, due) })
		i.work.Unlock()
		if certain {
			return true
		}
		due = time.Now().Add(retryPause)
	}
	return false
}

// renew sends a heartbeat, and registers an unknown instance again at once, as stock clients do. It registers an
// instance that is not registered.
func (f *fleet) renew(ctx context.Context, c *client, i *instance, due time.Time) (certain bool) {
	if !i.registered {
		return f.registerOnce(ctx, c, i, due)
	}
	r := c.call(ctx, i.renewal(i.version))
	f.load.record(trial.Heartbeat, i.home, due, r, &i.felt.heartbeats)
	switch r.outcome {
	case trial.Done:
		i.acked = r.done
		f.load.Book.Renewed(i.id, r.done)
	case trial.NotFound:
		if i.registered = false; !i.acked.IsZero() && !i.late { // it was registered, and not canceled since
			at, last := trial.Since(f.load.made, r.done), trial.Since(f.load.made, i.acked)
			f.mu.Lock()
			f.forgot = append(f.forgot, trial.Forgotten{ID: i.id, Node: r.node, At: at, Last: last})
			f.mu.Unlock()
		}
		if i.mode.Load() == living {
			return f.registerOnce(ctx, c, i, r.done)
		}
	}
	return true
}

// Forgotten returns the heartbeats answered 404.
func (l *Load) Forgotten(began time.Time) []trial.Forgotten {
	l.fleet.mu.Lock()
	defer l.fleet.mu.Unlock()
	all := slices.Clone(l.fleet.forgot)
	for i := range all {
		rebase(l.made, began, &all[i].At, &all[i].Last)
	}
	return all
}

// instances returns all instances that send heartbeats, so far.
func (f *fleet) instances() []*instance {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Concat(f.lasting, f.passing)
}

// registerOnce registers an instance in its next version. After an unknown outcome it must be repeated: the conflict
// rule ignores the older version, whenever that arrives.
func (f *fleet) registerOnce(ctx context.Context, c *client, i *instance, due time.Time) (certain bool) {
	i.version++
	send := func(request []byte) callResult { return c.call(ctx, request) }
	r := f.load.write(i.described, i.version, trial.Write, send)
	f.load.record(trial.Register, i.home, due, r, &i.felt.registrations)
	if r.outcome != trial.Done {
		return false
	}
	i.registered, i.acked = true, r.done
	return true
}

// cancelOnce cancels an instance. NotFound is a certain outcome, too, but does not promise that no node lists the
// instance: the book only learns that its client has died.
func (f *fleet) cancelOnce(ctx context.Context, c *client, i *instance, due time.Time) (certain bool) {
	i.version++
	i.felt.heartbeats.stop(time.Now())
	send := func(request []byte) callResult { return c.call(ctx, request) }
	r := f.load.write(i.described, i.version, trial.Remove, send)
	f.load.record(trial.Cancel, i.home, due, r, &i.felt.cancels)
	certain = r.outcome.Answered()
	i.registered, i.acked = false, time.Time{}
	i.late = i.late || r.doubtful || r.outcome == trial.Unknown
	i.left = certain && !i.leaves.IsZero()
	if i.left && r.outcome == trial.NotFound {
		f.load.Book.Died(i.id, r.done)
	}
	return certain
}

// write sends a registration or a cancel of an instance, and records it in the book. A write that was not found, or
// whose outcome is unknown, stays open there.
func (l *Load) write(d described, version int64, action trial.Action, send func(request []byte) callResult) callResult {
	request, begin, done := d.registration(version), l.Book.Registering, l.Book.Registered
	if action == trial.Remove {
		request, begin, done = d.cancel(), l.Book.Canceling, l.Book.Canceled
	}
	begin(d.id, version, time.Now())
	r := send(request)
	if r.doubtful {
		begin(d.id, version, r.done) // the earlier try, whose response never arrives
	}
	switch r.outcome {
	case trial.Done:
		done(d.id, version, r.done)
	case trial.Refused, trial.Unreached:
		l.Book.NotDone(d.id, version)
	}
	return r
}

// arrive registers an instance that renews its lease like the others, and cancels after its stay.
func (f *fleet) arrive(ctx context.Context, c *client, due time.Time) {
	f.mu.Lock()
	i := f.describe(f.load.Prefix+"-CHURN", len(f.passing)+1, c.home)
	i.leaves = due.Add(f.stay)
	f.passing = append(f.passing, i)
	f.mu.Unlock()
	certain := f.renew(ctx, c, i, due)
	again := time.Now().Add(retryPause)
	f.load.background.Go(func() {
		if certain || f.insist(f.load.living, i, again, f.renew) {
			f.pass(f.load.living, i)
		}
	})
}

// pass is the life of a passing instance once it is registered. A heartbeat is due an interval after the last one was
// due, however late that was. After the load's end it no longer cancels: it would be uncertain for a while what the
// nodes should hold.
func (f *fleet) pass(ctx context.Context, i *instance) {
	beat := i.acked.Add(f.interval)
	for {
		due, leaving := beat, i.leaves.Before(beat) && !f.staying.Load()
		if leaving {
			due = i.leaves
		}
		switch {
		case !wait.For(ctx, time.Until(due)):
			return
		case !leaving:
			version := i.version
			f.insist(ctx, i, due, f.renew)
			if beat = due.Add(f.interval); i.version != version { // it was registered again
				beat = i.acked.Add(f.interval)
			}
		case !f.staying.Load():
			f.insist(ctx, i, due, f.cancelOnce)
			return
		}
	}
}

// What happens to a sealed instance after its registration, if that was acknowledged; otherwise nothing does.
const (
	alone = iota
	again
	canceledOnce
	fates
)

// Sealed instances are never renewed, nor are watched keys: their leases, in seconds, outlast any trial.
const (
	endlessInterval = 1200
	endlessDuration = 3600
)

// seal registers the next sealed instance, and a while later registers it in another version, or cancels it, or leaves
// it alone. It is never written again.
func (f *fleet) seal(ctx context.Context, c *client, due time.Time) {
	i := f.newSealed(c.home)
	f.writeSealed(ctx, c, i, trial.Register, due)
	fate := i.number / len(f.load.Nodes) % fates
	if i.writes[0].Outcome != trial.Done || fate == alone {
		return
	}
	o := trial.Register
	if fate == canceledOnce {
		o = trial.Cancel
	}
	second := time.Now().Add(sealPause)
	f.sealing.Go(func() {
		if wait.For(f.load.living, time.Until(second)) {
			f.load.use(f.idle[i.home], time.Time{}, func(c *client) { f.writeSealed(f.load.living, c, i, o, second) })
		}
	})
}

func (f *fleet) newSealed(home int) *instance {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.seals)
	i := &instance{home: home, described: described{
		app: f.load.sealedApp(), id: fmt.Sprintf("sealed-%d", n), number: n,
		interval: endlessInterval, duration: endlessDuration,
	}}
	f.seals = append(f.seals, i)
	return i
}

func (f *fleet) writeSealed(ctx context.Context, c *client, i *instance, o trial.Operation, due time.Time) {
	i.version++
	request := i.registration(i.version)
	if o == trial.Cancel {
		request = i.cancel()
	}
	called := time.Now()
	r := c.call(ctx, request)
	f.load.record(o, c.home, due, r, nil)
	i.writes = append(i.writes, trial.SealWrite{
		Cancel: o == trial.Cancel, Node: r.node, Outcome: r.outcome, Doubtful: r.doubtful,
		Called: trial.Since(f.load.made, called), Returned: returned(f.load.made, r.outcome, r.done),
	})
}

func (l *Load) sealedApp() string { return l.Prefix + "-SEALED" }

// Sealed returns the sealed instances and their writes, and their application. Call it when Run has returned.
func (l *Load) Sealed(began time.Time) (app string, all []trial.Sealed) {
	l.fleet.mu.Lock()
	defer l.fleet.mu.Unlock()
	for _, i := range l.fleet.seals {
		writes := slices.Clone(i.writes)
		for n := range writes {
			rebase(l.made, began, &writes[n].Called, &writes[n].Returned)
		}
		all = append(all, trial.Sealed{ID: i.id, Writes: writes})
	}
	return l.sealedApp(), all
}

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
	return len(struck), func() {
		for now, i := time.Now(), 0; i < len(struck); i++ {
			if struck[i].mode.CompareAndSwap(silent, living) {
				l.background.Go(func() { l.fleet.insist(l.living, struck[i], now, l.fleet.renew) })
			}
		}
	}, err
}

// stop draws living instances whose clients send nothing from now on. Calls under way still end: only then is the
// instance dead.
func (f *fleet) stop(which string, mode int32) ([]*instance, error) {
	struck, err := f.draw(which, mode)
	for _, i := range struck {
		i.felt.heartbeats.stop(time.Now())
		if i.work.TryLock() {
			f.die(i)
			continue
		}
		f.load.background.Go(func() {
			i.work.Lock()
			f.die(i)
		})
	}
	return struck, err
}

// die records the death of an instance, unless it was restarted before its last call had ended, and ends its work.
func (f *fleet) die(i *instance) {
	defer i.work.Unlock()
	if mode := i.mode.Load(); mode == silent || mode == dead {
		i.registered = false
		f.load.Book.Died(i.id, time.Now())
	}
}

// Flap makes instances cancel and register again, once a second each, until stop is called; they end registered. They
// are spread over the time that both take.
func (l *Load) Flap(which string) (count int, stop func(), err error) {
	struck, err := l.fleet.draw(which, flapping)
	now := time.Now()
	for n, i := range struck {
		due := now.Add(2 * flapPause * time.Duration(n) / time.Duration(len(struck)))
		l.background.Go(func() { l.fleet.flap(l.living, i, due) })
	}
	return len(struck), func() {
		for _, i := range struck {
			i.mode.CompareAndSwap(flapping, living)
		}
	}, err
}

// flap lets an instance cancel and register in turn. Once it is to stop, it begins no cancel, but completes one.
func (f *fleet) flap(ctx context.Context, i *instance, due time.Time) {
	for wait.For(ctx, time.Until(due)) && i.mode.Load() == flapping {
		if !f.insist(ctx, i, due, f.cancelOnce) || !f.insist(ctx, i, time.Now().Add(flapPause), f.renew) {
			return
		}
		due = time.Now().Add(flapPause)
	}
}

// draw draws lasting instances among the living, which change their mode.
func (f *fleet) draw(which string, mode int32) ([]*instance, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	alive := slices.DeleteFunc(slices.Clone(f.lasting), func(i *instance) bool { return i.mode.Load() != living })
	n, err := scenario.Share(which, len(alive))
	if err != nil {
		return nil, err
	}
	f.dice.Shuffle(len(alive), func(a, b int) { alive[a], alive[b] = alive[b], alive[a] })
	for _, i := range alive[:n] {
		i.mode.Store(mode)
	}
	return alive[:n], nil
}

const (
	cancelRounds = 10                     // of cancels of watched keys that reappeared
	cancelPause  = 200 * time.Millisecond // between them
)

// cancelable is an instance to be canceled, and the node that it was registered at: another node may not know it yet.
type cancelable struct {
	described
	home  int
	nodes []int // to ask; nil means home first
}

// CancelAll cancels what the load has registered and not canceled yet: instances and watched keys. Call it after Stop.
// The error says how many may still be registered, until their leases end.
func (l *Load) CancelAll(ctx context.Context) error {
	defer l.hangUp()
	all, keys := l.registered()
	outcomes := l.cancel(ctx, all)
	failed := outcomes[trial.Refused] + outcomes[trial.Unreached] + outcomes[trial.Unknown]
	// Until no node knows one: without consensus, a write that another node has just received may arrive after the
	// cancel, and is newer than what was canceled.
	for range cancelRounds {
		if l.cancel(ctx, keys)[trial.Done] == 0 || !wait.For(ctx, cancelPause) {
			break
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d instances could not be canceled", failed, len(all))
	}
	return nil
}

// registered returns the instances that are, or may be, registered, and the watched keys at every node.
func (l *Load) registered() (all, keys []cancelable) {
	for _, i := range l.fleet.instances() {
		if !i.left {
			all = append(all, cancelable{described: i.described, home: i.home})
		}
	}
	for _, key := range l.keys.keys {
		all = append(all, cancelable{described: key.described, home: key.writers[0].home})
		for home := range l.Nodes {
			keys = append(keys, cancelable{key.described, home, []int{home}})
		}
	}
	return all, keys
}

// cancel cancels instances, each by a client of its home, and counts the outcomes.
func (l *Load) cancel(ctx context.Context, all []cancelable) map[trial.Outcome]int {
	var mu sync.Mutex
	outcomes := make(map[trial.Outcome]int)
	var under sync.WaitGroup
	for _, i := range all {
		under.Go(func() {
			l.use(l.fleet.idle[i.home], time.Time{}, func(c *client) {
				outcome := c.call(ctx, i.cancel(), i.nodes...).outcome
				mu.Lock()
				defer mu.Unlock()
				outcomes[outcome]++
			})
		})
	}
	under.Wait()
	return outcomes
}
