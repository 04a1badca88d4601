package main

import (
	"context"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/wire"
)

// workload makes the requests of one connection out of conns: each call of the returned function
// gives the next one, complete and valid until the next call; nil ends the connection's work.
type workload func(conn, conns int) (next func() []byte)

// httpLoad is requests to be sent over keep-alive connections. Connection i goes to target i modulo
// their number.
type httpLoad struct {
	targets  []string // addresses
	conns    int
	requests workload
	want     int           // the only right status
	warm     time.Duration // sent before it counts
	window   time.Duration // that counts
	burst    int           // of an open loop: how many requests are due at the same time; 0: each by itself
	insist   bool          // repeat what is answered 503, because it was certainly not done; for what only prepares
}

// Bounds of a load, so that a server that does not answer ends the run instead of stopping it.
const (
	benchGrace    = 10 * time.Second // for answers after the window; a server takes 4 s to call an outcome unknown
	benchLongest  = 10 * time.Minute // of a load without a window
	benchLoadDial = 5 * time.Second
	benchInsist   = 20 * time.Millisecond // until what was answered 503 is sent again
)

// closed sends each connection's next request when the previous one was answered, and counts what was
// sent and answered within the window. A load without a window ends when its requests do, and counts
// all of them.
func (l httpLoad) closed(ctx context.Context) (*loadResult, error) {
	return l.run(func(s *loadSender, next func() []byte) {
		for s.err == nil && ctx.Err() == nil {
			now := time.Now()
			if l.window > 0 && !now.Before(s.end) {
				return
			}
			request := next()
			if request == nil {
				return
			}
			s.closed(request, now)
		}
	}, ctx)
}

// open sends rate requests a second by a schedule that does not wait for answers, as many independent
// clients would. A request that finds its connection busy is sent late, and its latency counts from
// when it should have been sent: a server that stalls cannot hide the requests that it kept from
// being sent.
func (l httpLoad) open(ctx context.Context, rate float64) (*loadResult, error) {
	p := wire.NewPacer(rate, l.conns, l.warm+l.window)
	p.Burst = max(l.burst, 1)
	return l.run(func(s *loadSender, next func() []byte) {
		for intended := range p.Due(s.conn) {
			if s.err != nil || ctx.Err() != nil {
				return
			}
			s.open(next(), intended)
		}
	}, ctx, p.Run)
}

// run opens the connections, lets work send on each of them at the same time and beside it, and adds up.
func (l httpLoad) run(work func(*loadSender, func() []byte), ctx context.Context, beside ...func(context.Context)) (*loadResult, error) {
	senders, err := l.dial()
	defer closeSenders(senders)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	var wg sync.WaitGroup
	for _, s := range senders {
		s.begin, s.end = start.Add(l.warm), start.Add(l.warm+l.window)
		if l.insist {
			s.again = func() bool { return pauseBench(ctx, benchInsist) }
		}
		wg.Go(func() { work(s, l.requests(s.conn, l.conns)) })
	}
	for _, b := range beside {
		wg.Go(func() { b(ctx) })
	}
	wg.Wait()
	counted := l.window
	if counted == 0 {
		counted = time.Since(start)
	}
	return sumLoad(senders, counted), ctx.Err()
}

func (l httpLoad) dial() ([]*loadSender, error) {
	longest := benchLongest
	if l.window > 0 {
		longest = l.warm + l.window + benchGrace
	}
	senders := make([]*loadSender, 0, l.conns)
	for i := range l.conns {
		s := &loadSender{conn: i, target: l.targets[i%len(l.targets)], want: l.want, until: time.Now().Add(longest)}
		senders = append(senders, s)
		if s.dial(); s.err != nil {
			return senders, s.err
		}
	}
	return senders, nil
}
