package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/wire"
)

// backlogLimit is how long after its end a run still sends what was due before it, in Timeouts. Calls not sent by then
// count as trial.Unreached.
const backlogLimit = 3

var errRanAlready = errors.New("the load has run or was stopped: make a new one")

// Run begins the schedule at began, and returns when length is over and every call that was due has been sent and has
// ended, or ctx ends. Calls that could not be sent within three Timeouts of the end count as trial.Unreached.
// Heartbeats go on until ctx ends or Stop is called, so that leases do not end while others still observe; an instance
// that has come and not canceled yet stays registered. A load runs only once.
func (l *Load) Run(ctx context.Context, began time.Time, length time.Duration) error {
	living, stop := context.WithCancel(ctx)
	if !l.start(stop) {
		stop()
		return errRanAlready
	}
	defer l.background.Done()
	r := &running{load: l, streams: l.streams(), begin: began, end: began.Add(length), living: living}
	var cancel context.CancelFunc
	r.scheduled, cancel = context.WithDeadline(living, r.end.Add(backlogLimit*l.Timeout))
	defer cancel()
	l.recorder.window.Store(&window{r.begin, r.end})
	l.background.Go(func() { l.watch(living) })
	l.background.Go(func() { l.fleet.tend(living) })
	if l.Closed {
		r.closed()
	}
	r.open()
	l.fleet.stayOn()
	l.fleet.drain(living)
	return ctx.Err()
}

// Stop ends the heartbeats, and returns when nothing is under way.
func (l *Load) Stop() {
	l.mu.Lock()
	l.started = true
	stop := l.stop
	l.mu.Unlock()
	if stop != nil {
		stop()
	}
	l.background.Wait()
	l.keys.close()
}

// start reports whether the load may run. Stop calls stop.
func (l *Load) start(stop context.CancelFunc) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.started {
		return false
	}
	l.started, l.stop = true, stop
	l.background.Add(1) // for Run itself
	return true
}

// SetRates replaces rates, by their names in scenario.Load ("fetches"), from now on; nil restores the load's own.
// Unknown names are ignored.
func (l *Load) SetRates(rates map[string]float64) {
	rates = maps.Clone(rates)
	l.rates.Store(&rates)
}

// rate returns the current rate of a stream.
func (l *Load) rate(s *stream) float64 {
	if rates := l.rates.Load(); rates != nil && s.name != "" {
		if rate, given := (*rates)[s.name]; given {
			return rate / float64(max(s.calls, 1))
		}
	}
	return s.rate / float64(max(s.calls, 1))
}

// running is the one run of a load.
type running struct {
	load       *Load
	streams    []*stream
	begin, end time.Time
	living     context.Context // until Stop
	scheduled  context.Context // context of calls that were due before the end
	due        sync.WaitGroup  // these calls, until they have ended
}

// open lets the callers send by the schedule. It returns when what was due before the end has ended; lasting streams
// go on.
func (r *running) open() {
	ended := make(chan struct{})
	p := &pacer{
		streams: r.streams, rate: r.load.rate, hand: r.hand,
		begin: r.begin, end: r.end, onEnd: func() { close(ended) },
	}
	if r.load.Closed { // everything else is over
		p.begin, p.streams = r.end, slices.DeleteFunc(r.streams, func(s *stream) bool { return !s.lasting })
	}
	for _, s := range p.streams {
		for i, c := range s.callers {
			r.load.background.Go(func() { r.serve(s, c, s.queues[i%len(s.queues)]) })
		}
	}
	r.load.background.Go(func() {
		p.run(r.living)
		for _, s := range p.streams {
			s.close()
		}
	})
	<-ended
	for _, s := range p.streams {
		if !s.lasting {
			s.close()
		}
	}
	r.due.Wait()
}

func (r *running) hand(s *stream, due time.Time) {
	if due.Before(r.end) {
		r.due.Add(1)
	}
	s.hand(due)
}

// serve makes the calls of one caller, even when their context has ended: nothing is sent then, but they are recorded.
func (r *running) serve(s *stream, c *caller, q *queue) {
	defer c.close()
	// since when the caller has had nothing to do: a call that waited for it is not late because of the machine
	var idle time.Time
	for {
		due, ok := q.pop()
		if !ok {
			return
		}
		r.load.pace.add(time.Since(later(due, idle)))
		switch {
		case due.Before(r.end):
			s.send(r.scheduled, c, due)
			r.due.Done()
		case r.living.Err() == nil:
			s.send(r.living, c, due)
		}
		idle = time.Now()
	}
}

// source makes the calls of one operation.
type source interface {
	// send makes the call that was due for the caller at due, if there is anything to do, by c.call, and records its
	// result by Load.record. Each caller has its own goroutine that calls it.
	send(ctx context.Context, c *caller, due time.Time)
}

// stream is a source and how often it is due. Due times go to its callers' homes in turn.
type stream struct {
	source
	name   string  // of its rate in scenario.Load, for SetRates; empty if its rate never changes
	rate   float64 // per second
	calls  int     // per due time; 0 means one
	fixed  int     // how many callers it has; 0 means as many as Config.Connections says
	bodies bool    // its source looks at the bodies of responses
	// lasting streams go on after Run's length, until Stop.
	lasting bool
	// cycle is the number of due times after which the first caller is due again, whichever caller was due last; 0 if
	// any caller of a home may be due. With a cycle of all instances, caller c of n sends for the instances c, c+n,
	// c+2n … in this order, and each of them is due at the same distances.
	cycle int

	callers  []*caller
	queues   []*queue // caller i pops from queue i modulo their number
	schedule schedule // the pacer's
	handed   int      // number of times handed to the callers
}

// hand gives a time to the home, or the caller, whose turn it is.
func (s *stream) hand(due time.Time) {
	turn := s.handed
	if s.cycle > 0 {
		turn %= s.cycle
	}
	s.queues[turn%len(s.queues)].push(due)
	s.handed++
}

// close lets the callers end once they have sent what was due.
func (s *stream) close() {
	for _, q := range s.queues {
		q.close()
	}
}

// Default callers per node of a stream: as many as calls come due within a Timeout. If the node gives no responses,
// all of these wait at the same time, as independent clients do.
const (
	fewestCallers = 8
	mostCallers   = 256
)

// closedCallers is how many clients of each node a closed loop has, unless Config.Connections says otherwise.
const closedCallers = 8

// streams returns everything that is sent while the load runs, each with its source and its callers.
func (l *Load) streams() []*stream {
	l.fetching = l.fetchStreams()
	all := slices.Concat(l.fleetStreams(), l.keyStreams(), l.fetching, l.sealStreams())
	for _, s := range all {
		s.callers = l.newCallers(l.callersOf(s))
		for _, c := range s.callers {
			c.bodies = s.bodies
		}
		s.queues = make([]*queue, l.queuesOf(s))
		for i := range s.queues {
			s.queues[i] = newQueue()
		}
	}
	return all
}

// callersOf returns how many callers a stream has.
func (l *Load) callersOf(s *stream) int {
	nodes := len(l.Nodes)
	switch {
	case s.fixed > 0:
		return s.fixed
	case l.Connections > 0:
		return l.Connections
	case l.Closed:
		return closedCallers * nodes
	}
	each := int(math.Ceil(s.rate * l.Timeout.Seconds() / float64(nodes)))
	return nodes * min(max(each, fewestCallers), mostCallers)
}

// queuesOf returns how many queues the callers of a stream share: one for each home, so that no call waits while a
// client of its home is idle; but each caller has its own where it matters whose turn it is.
func (l *Load) queuesOf(s *stream) int {
	if s.cycle > 0 {
		return len(s.callers)
	}
	return min(len(s.callers), len(l.Nodes))
}

// schedule says when the calls of one stream are due: at even distances, which change with the rate. The elapsed part
// of a distance still counts when the rate changes.
type schedule struct {
	rate float64   // per second; 0 means never
	from time.Time // when the rate last changed
	wait float64   // from then to the first time, in distances
	n    int       // times handed out since then
}

// next returns when the next call is due, if ever.
func (s *schedule) next() (due time.Time, ever bool) {
	if s.rate <= 0 {
		return time.Time{}, false
	}
	return s.from.Add(time.Duration((s.wait + float64(s.n)) / s.rate * float64(time.Second))), true
}

// change sets the rate. All times before now have been handed out.
func (s *schedule) change(rate float64, now time.Time) {
	if rate == s.rate {
		return
	}
	if due, ever := s.next(); ever {
		s.wait = max(0, due.Sub(now).Seconds()*s.rate)
	}
	s.rate, s.from, s.n = rate, now, 0
}

// longestNap bounds how late new rates, and the end, are noticed.
const longestNap = 5 * time.Millisecond

// pacer hands out times to the callers of streams, each when it has come.
type pacer struct {
	streams []*stream
	rate    func(*stream) float64          // current rate
	hand    func(s *stream, due time.Time) // gives a time to the stream's callers
	begin   time.Time
	end     time.Time // after which only lasting streams are due
	onEnd   func()    // called once, when all times before end have been handed out, or no others will be
}

// run paces until ctx ends.
func (p *pacer) run(ctx context.Context) {
	// A locked thread, asleep in the kernel: the runtime's timers may be a millisecond late, which is more than a
	// write takes.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for i, s := range p.streams {
		// Streams of the same rate must not always coincide.
		s.schedule = schedule{from: p.begin, wait: float64(i) / float64(len(p.streams))}
		s.schedule.change(p.rate(s), p.begin)
	}
	ended := sync.OnceFunc(p.onEnd)
	defer ended()
	for ctx.Err() == nil {
		now := time.Now()
		wake := now.Add(longestNap)
		for _, s := range p.streams {
			if next, ever := p.handOut(s, now); ever && next.Before(wake) {
				wake = next
			}
		}
		if !now.Before(p.end) {
			ended()
		}
		wire.SleepUntil(wake)
	}
}

// handOut hands out what is due of a stream, and returns when something is next, if ever.
func (p *pacer) handOut(s *stream, now time.Time) (next time.Time, ever bool) {
	for {
		next, ever = s.schedule.next()
		if ever && !s.lasting && !next.Before(p.end) {
			return time.Time{}, false
		}
		if !ever || next.After(now) {
			break
		}
		p.hand(s, next)
		s.schedule.n++
	}
	s.schedule.change(p.rate(s), now)
	return s.schedule.next()
}

// queue holds the times at which callers should have sent, oldest first. Its size is unlimited, so that callers whose
// node stalls delay no others. Safe for concurrent use.
type queue struct {
	mu     sync.Mutex
	filled sync.Cond
	due    []time.Time
	popped int // how many of due have been popped
	closed bool
}

func newQueue() *queue {
	q := new(queue)
	q.filled.L = &q.mu
	return q
}

func (q *queue) push(due time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.due) == cap(q.due) && q.popped > len(q.due)/2 {
		q.due, q.popped = q.due[:copy(q.due, q.due[q.popped:])], 0
	}
	q.due = append(q.due, due)
	q.filled.Signal()
}

// close lets pop report the end, once the queue is empty.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.filled.Broadcast()
}

// pop waits for the next time, or returns false at the end.
func (q *queue) pop() (due time.Time, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.popped == len(q.due) {
		if q.closed {
			return time.Time{}, false
		}
		q.due, q.popped = q.due[:0], 0
		q.filled.Wait()
	}
	q.popped++
	return q.due[q.popped-1], true
}

const (
	idlePause    = time.Millisecond      // of a closed loop's client that had nothing to send
	shortestCall = 10 * time.Microsecond // a shorter send made no call: no response comes so soon
)

// closed lets clients send one call after the other, as fast as they are answered, until the end. It returns when the
// last one has ended.
func (r *running) closed() {
	wire.Pause(r.scheduled, time.Until(r.begin))
	t := newTurns(r.streams, r.load.rate)
	n := r.load.Connections
	if n == 0 {
		n = closedCallers * len(r.load.Nodes)
	}
	var clients sync.WaitGroup
	for range n {
		clients.Go(func() { r.sendInTurn(t) })
	}
	clients.Wait()
	for _, s := range r.streams {
		if !s.lasting {
			for _, c := range s.callers {
				c.close()
			}
		}
	}
}

// sendInTurn runs one client.
func (r *running) sendInTurn(t *turns) {
	for now := time.Now(); now.Before(r.end) && r.scheduled.Err() == nil; {
		if s, c := t.reserve(); s != nil {
			s.send(r.scheduled, c, now)
			t.release(s, c)
		}
		before := now
		if now = time.Now(); now.Sub(before) < shortestCall {
			wire.Pause(r.scheduled, idlePause)
			now = time.Now()
		}
	}
}

// turns decides whose call is next in a closed loop: streams get turns in proportion to their rates, and the callers
// of a stream one after the other, each with one call at a time. Safe for concurrent use.
type turns struct {
	streams []*stream
	rate    func(*stream) float64

	mu     sync.Mutex
	credit []float64 // by stream: how far it is behind its share
	idle   []chan *caller
}

func newTurns(streams []*stream, rate func(*stream) float64) *turns {
	t := &turns{streams: streams, rate: rate, credit: make([]float64, len(streams))}
	for _, s := range streams {
		idle := make(chan *caller, len(s.callers))
		for _, c := range s.callers {
			idle <- c
		}
		t.idle = append(t.idle, idle)
	}
	return t
}

// reserve reserves the idle caller of the stream that is furthest behind its share, or returns nil if no stream with a
// rate has one.
func (t *turns) reserve() (*stream, *caller) {
	t.mu.Lock()
	defer t.mu.Unlock()
	best, total := -1, 0.0
	for i, s := range t.streams {
		rate := t.rate(s)
		if rate <= 0 || len(t.idle[i]) == 0 {
			continue
		}
		total += rate
		t.credit[i] += rate
		if best < 0 || t.credit[i] > t.credit[best] {
			best = i
		}
	}
	if best < 0 {
		return nil, nil
	}
	t.credit[best] -= total
	return t.streams[best], <-t.idle[best] // not empty: only this function receives, under the mutex
}

// release returns a caller.
func (t *turns) release(s *stream, c *caller) {
	for i := range t.streams {
		if t.streams[i] == s {
			t.idle[i] <- c
		}
	}
}

// New prepares a load. It sends nothing.
func New(c Config) (*Load, error) {
	switch {
	case len(c.Nodes) == 0:
		return nil, errors.New("a load needs the address of at least one node")
	case c.Connections < 0:
		return nil, fmt.Errorf("%d connections: there must be one at least, or 0 for enough", c.Connections)
	}
	c.Timeout = cmp.Or(c.Timeout, defaultTimeout)
	c.Prefix = cmp.Or(c.Prefix, "LOAD")
	if c.Reach == nil {
		c.Reach = new(Reach)
	}
	l := &Load{Config: c, recorder: newRecorder(len(c.Nodes))}
	l.fleet, l.keys = newFleet(l), newKeys(l)
	l.flight.aimed = make([]chan int, len(c.Nodes))
	l.flight.counts = make([]int, len(c.Nodes))
	return l, nil
}
