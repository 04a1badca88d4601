package load

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/internal/wait"
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
	if !l.start() {
		return errRanAlready
	}
	defer l.background.Done()
	context.AfterFunc(ctx, l.stop)
	end := began.Add(length)
	scheduled, cancel := context.WithDeadline(l.living, end.Add(backlogLimit*l.Timeout))
	defer cancel()
	l.recorder.mu.Lock()
	l.recorder.begin, l.recorder.end = began, end
	l.recorder.mu.Unlock()
	l.background.Go(func() { l.watch(l.living) })
	streams := l.streams()
	if l.Closed {
		l.closed(scheduled, streams, began, end)
		// everything else is over
		began, streams = end, slices.DeleteFunc(streams, func(s *stream) bool { return !s.lasting })
	}
	l.open(scheduled, streams, began, end)
	l.fleet.staying.Store(true)
	l.fleet.sealing.Wait()
	return ctx.Err()
}

// start reports whether the load may run.
func (l *Load) start() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.started {
		return false
	}
	l.started = true
	l.background.Add(1) // Stop waits for Run itself
	return true
}

// Stop ends the heartbeats, and returns when nothing is under way.
func (l *Load) Stop() {
	l.mu.Lock()
	l.started = true
	l.mu.Unlock()
	l.stop()
	l.background.Wait()
	l.hangUp()
}

// SetRates replaces rates, by their names in scenario.Load ("fetches"), from now on; nil restores the load's own.
// Unknown names are ignored.
func (l *Load) SetRates(rates map[string]float64) {
	rates = maps.Clone(rates)
	l.rates.Store(&rates)
}

// rate returns the current rate of a stream.
func (l *Load) rate(s *stream) float64 {
	rate := s.rate
	if rates := l.rates.Load(); rates != nil && s.name != "" {
		if other, given := (*rates)[s.name]; given {
			rate = other
		}
	}
	return rate / float64(max(s.calls, 1))
}

// stream is calls that come due at a rate.
type stream struct {
	name  string  // of its rate in scenario.Load, for SetRates; empty if its rate never changes
	rate  float64 // per second
	calls int     // that count for the rate, per due time; 0 means one
	// lasting streams go on after Run's length, until Stop.
	lasting bool
	// turns are taken one after the other, again and again, as due times come.
	turns    []call
	turn     int // the next one
	schedule schedule
}

// next returns the call whose turn it is.
func (s *stream) next() call {
	do := s.turns[s.turn]
	s.turn = (s.turn + 1) % len(s.turns)
	return do
}

// call waits for a client that is idle, makes the call that was due at due, if there is anything to do, by
// client.call, and records its result by Load.record. If ctx has ended, nothing is sent, but the result is recorded.
type call func(ctx context.Context, due time.Time)

// streams returns everything that is sent at a rate while the load runs.
func (l *Load) streams() []*stream {
	fleet := []*stream{
		{name: "registers", rate: l.Load.Registers, turns: l.atNodes(l.Load.Registers, l.fleet.arrive)},
		{name: "sealed", rate: l.Load.Sealed, turns: l.atNodes(l.Load.Sealed, l.fleet.seal)},
	}
	return slices.Concat(l.fleet.heartbeats(), fleet, l.keyStreams(), l.fetchStreams())
}

// by returns a call that any client of a pool makes.
func (l *Load) by(p pool, do func(ctx context.Context, c *client, due time.Time)) call {
	return func(ctx context.Context, due time.Time) {
		l.use(p, due, func(c *client) { do(ctx, c, due) })
	}
}

// atNodes returns a turn for each node, with as many clients as the rate needs.
func (l *Load) atNodes(rate float64, do func(ctx context.Context, c *client, due time.Time)) (turns []call) {
	for _, p := range l.newPools(len(l.Nodes), l.clientsFor(rate)) {
		turns = append(turns, l.by(p, do))
	}
	return turns
}

// Default clients per node of a stream: as many as calls come due within a Timeout. If the node gives no responses,
// all of these wait at the same time, as independent clients do.
const (
	fewestClients = 8
	mostClients   = 256
	// closedClients is how many clients of each node a closed loop has, unless Config.Connections says otherwise.
	closedClients = 8
)

// clientsFor returns how many clients make the calls of a rate.
func (l *Load) clientsFor(rate float64) int {
	nodes := len(l.Nodes)
	switch {
	case l.Connections > 0:
		return l.Connections
	case l.Closed:
		return closedClients * nodes
	}
	each := int(math.Ceil(rate * l.Timeout.Seconds() / float64(nodes)))
	return nodes * min(max(each, fewestClients), mostClients)
}

// open makes calls by the schedule, without waiting for responses. It returns when what was due before the end has
// ended; lasting streams go on.
func (l *Load) open(scheduled context.Context, streams []*stream, begin, end time.Time) {
	var due sync.WaitGroup
	hand := func(s *stream, at time.Time) {
		do := s.next()
		if at.Before(end) {
			due.Go(func() { do(scheduled, at) })
			return
		}
		l.background.Go(func() {
			if l.living.Err() == nil {
				do(l.living, at)
			}
		})
	}
	ended := make(chan struct{})
	p := &pacer{streams: streams, rate: l.rate, hand: hand, begin: begin, end: end, onEnd: func() { close(ended) }}
	l.background.Go(func() { p.run(l.living) })
	<-ended
	due.Wait()
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

// pacer hands out the due times of streams, each when it has come.
type pacer struct {
	streams []*stream
	rate    func(*stream) float64          // current rate
	hand    func(s *stream, due time.Time) // must not block
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
		SleepUntil(wake)
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

const (
	idlePause    = time.Millisecond      // of a closed loop's client that had nothing to send
	shortestCall = 10 * time.Microsecond // a shorter send made no call: no response comes so soon
)

// closed lets clients make one call after the other, as fast as they are answered, until the end. It returns when the
// last one has ended. Calls keep the order of the streams' schedules, and so the proportion of the rates.
func (l *Load) closed(ctx context.Context, streams []*stream, begin, end time.Time) {
	wait.For(ctx, time.Until(begin))
	for _, s := range streams {
		s.schedule = schedule{rate: l.rate(s), from: begin}
	}
	var mu sync.Mutex
	next := func() call {
		mu.Lock()
		defer mu.Unlock()
		return earliest(streams)
	}
	var clients sync.WaitGroup
	for range cmp.Or(l.Connections, closedClients*len(l.Nodes)) {
		clients.Go(func() { callInTurn(ctx, next, end) })
	}
	clients.Wait()
}

// callInTurn makes one call after the other until end.
func callInTurn(ctx context.Context, next func() call, end time.Time) {
	for now := time.Now(); now.Before(end) && ctx.Err() == nil; now = time.Now() {
		next()(ctx, now)
		if time.Since(now) < shortestCall {
			wait.For(ctx, idlePause)
		}
	}
}

// earliest takes the call that is due next by the schedules, whenever that is.
func earliest(streams []*stream) call {
	var first *stream
	var at time.Time
	for _, s := range streams {
		if due, ever := s.schedule.next(); ever && (first == nil || due.Before(at)) {
			first, at = s, due
		}
	}
	if first == nil {
		return func(context.Context, time.Time) {}
	}
	first.schedule.n++
	return first.next()
}
