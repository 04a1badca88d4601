package load

import (
	"sync"
	"time"
)

const (
	idlePause    = time.Millisecond      // of a client of a closed loop that had nothing to send
	shortestCall = 10 * time.Microsecond // what took less was none: no answer comes so soon
)

// closed lets clients send one call after the other, as fast as they are answered, until the end. It returns when
// the last one has ended.
func (r *running) closed() {
	pauseFor(r.scheduled, time.Until(r.begin))
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

// sendInTurn is one client.
func (r *running) sendInTurn(t *turns) {
	for now := time.Now(); now.Before(r.end) && r.scheduled.Err() == nil; {
		if s, c := t.take(); s != nil {
			s.send(r.scheduled, c, now)
			t.give(s, c)
		}
		before := now
		if now = time.Now(); now.Sub(before) < shortestCall {
			pauseFor(r.scheduled, idlePause)
			now = time.Now()
		}
	}
}

// turns says whose call is next in a closed loop: streams get turns in proportion to their rates, and the callers
// of a stream one after the other, each with one call at a time. Safe for concurrent use.
type turns struct {
	streams []*stream
	rate    func(*stream) float64

	mu     sync.Mutex
	credit []float64 // by stream: what it is behind its share
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

// take takes the idle caller of the stream that is most behind its share; nil if no stream with a rate has one.
func (t *turns) take() (*stream, *caller) {
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
	return t.streams[best], <-t.idle[best] // not empty: only this function takes, one at a time
}

// give returns a caller.
func (t *turns) give(s *stream, c *caller) {
	for i := range t.streams {
		if t.streams[i] == s {
			t.idle[i] <- c
		}
	}
}
