package load

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// backlogLimit is how long after its end a run still sends what was due before it, in Timeouts. What was not sent
// then counts as trial.Unreached.
const backlogLimit = 3

var errRanAlready = errors.New("the load has run or was stopped: make a new one")

// Run begins the schedule at began, and returns when length is over and every call that was due has been
// sent and has ended, or ctx ends. Calls that could not be sent within three Timeouts of the end count as
// trial.Unreached. Heartbeats go on until ctx ends or Stop is called, so that leases do not end while others still
// observe; who has come and not gone yet stays. A load runs once.
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
	l.recorder.began.Store(&began)
	l.background.Go(func() { l.watch(living) })
	l.background.Go(func() { l.fleet.tend(living) })
	if l.Closed {
		r.closed()
	}
	r.open()
	l.fleet.stayOn()
	return ctx.Err()
}

// Stop ends the heartbeats, and returns when nothing is under way any more.
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

// SetRates replaces rates, by their names in scenario.Load ("fetches"), from now on; nil brings the load's own
// back. Names of what is no rate of a load are passed over.
func (l *Load) SetRates(rates map[string]float64) {
	rates = maps.Clone(rates)
	l.rates.Store(&rates)
}

// rate is the rate of a stream that holds now.
func (l *Load) rate(s *stream) float64 {
	if rates := l.rates.Load(); rates != nil && s.name != "" {
		if rate, given := (*rates)[s.name]; given {
			return rate
		}
	}
	return s.rate
}

// running is the one run of a load.
type running struct {
	load       *Load
	streams    []*stream
	begin, end time.Time
	living     context.Context // until Stop
	scheduled  context.Context // of calls that were due before the end
	due        sync.WaitGroup  // these calls, until they have ended
}

// open lets the callers send by the schedule. It returns when what was due before the end has ended; lasting
// streams go on.
func (r *running) open() {
	ended := make(chan struct{})
	p := &pacer{
		streams: r.streams, rate: r.load.rate, hand: r.hand,
		begin: r.begin, end: r.end, ended: func() { close(ended) },
	}
	if r.load.Closed { // what does not last is over
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

// serve makes the calls of one caller. When their context has ended they are made all the same: nothing is sent
// then, but they are recorded.
func (r *running) serve(s *stream, c *caller, q *queue) {
	defer c.close()
	for {
		due, ok := q.take()
		switch {
		case !ok:
			return
		case due.Before(r.end):
			s.send(r.scheduled, c, due)
			r.due.Done()
		case r.living.Err() == nil:
			s.send(r.living, c, due)
		}
	}
}
