package main

import (
	"context"
	"runtime"
	"time"
)

// pacer says when requests are due, at a fixed rate, to connections in turn. Its channels have room
// for all that will ever be sent, so that a slow connection delays nobody else.
type pacer struct {
	interval time.Duration
	count    int
	burst    int // how many are due at the same time
	conns    []chan time.Time
}

func newPacer(rate float64, conns int, length time.Duration) *pacer {
	p := &pacer{interval: time.Duration(float64(time.Second) / rate), count: int(rate * length.Seconds()), burst: 1, conns: make([]chan time.Time, conns)}
	for i := range p.conns {
		p.conns[i] = make(chan time.Time, p.count/conns+1)
	}
	return p
}

// due gives the times at which a connection is to send. It is closed after the last one.
func (p *pacer) due(conn int) <-chan time.Time { return p.conns[conn] }

// run hands out the times, each when it has come.
func (p *pacer) run(ctx context.Context) {
	// A thread of its own, asleep in the kernel: the runtime's timers may be a millisecond late, which
	// is more than a write takes.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer func() {
		for _, c := range p.conns {
			close(c)
		}
	}()
	start := time.Now()
	for i := range p.count {
		if ctx.Err() != nil {
			return
		}
		at := start.Add(time.Duration(i-i%p.burst) * p.interval)
		sleepUntil(at)
		p.conns[i%len(p.conns)] <- at
	}
}
