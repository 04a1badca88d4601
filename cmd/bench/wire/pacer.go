package wire

import (
	"context"
	"runtime"
	"time"
)

// Pacer says when requests are due, at a fixed rate, to connections in turn. Its channels have room
// for all that will ever be sent, so that a slow connection delays nobody else.
type Pacer struct {
	Burst int // how many are due at the same time; NewPacer sets 1

	interval time.Duration
	count    int
	conns    []chan time.Time
}

// NewPacer paces rate requests per second for length, over conns connections.
func NewPacer(rate float64, conns int, length time.Duration) *Pacer {
	p := &Pacer{Burst: 1, interval: time.Duration(float64(time.Second) / rate), count: int(rate * length.Seconds()), conns: make([]chan time.Time, conns)}
	for i := range p.conns {
		p.conns[i] = make(chan time.Time, p.count/conns+1)
	}
	return p
}

// Count is how many requests there will be in all.
func (p *Pacer) Count() int { return p.count }

// Due gives the times at which a connection is to send. It is closed after the last one.
func (p *Pacer) Due(conn int) <-chan time.Time { return p.conns[conn] }

// Run hands out the times, each when it has come, until all have been or ctx ends.
func (p *Pacer) Run(ctx context.Context) {
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
		at := start.Add(time.Duration(i-i%p.Burst) * p.interval)
		SleepUntil(at)
		p.conns[i%len(p.conns)] <- at
	}
}
