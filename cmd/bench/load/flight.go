package load

import (
	"context"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// flight tracks how many writes of watched keys are on their way to each node. Safe for concurrent use.
type flight struct {
	mu     sync.Mutex
	counts []int      // by node
	aimed  []chan int // by node: gets the count when the next write begins; nil if nobody waits
}

// begin records that a write goes to a node. The function it returns records its landing.
func (f *flight) begin(node int) (landed func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts[node]++
	if f.aimed[node] != nil {
		f.aimed[node] <- f.counts[node] // never blocks: it has room
		f.aimed[node] = nil
	}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.counts[node]--
	}
}

// AwaitWrite waits until a write of a watched key goes to a node, and returns how many are on their way to it then, or
// 0 if ctx ended first.
func (l *Load) AwaitWrite(ctx context.Context, node int) int {
	begun := make(chan int, 1)
	l.flight.mu.Lock()
	l.flight.aimed[node] = begun
	l.flight.mu.Unlock()
	select {
	case writing := <-begun:
		return writing
	case <-ctx.Done():
		return 0
	}
}

// pace records whether idle clients begin their calls when these are due. Safe for concurrent use.
type pace struct {
	mu        sync.Mutex
	due, late int
	worst     time.Duration
}

func (p *pace) add(lateness time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.due++
	if lateness > trial.LateAfter {
		p.late++
	}
	p.worst = max(p.worst, lateness)
}

// Pace returns how many calls have been due since it was last called, how many of them began late although their
// client was idle, and the worst delay.
func (l *Load) Pace() (due, late int, worst time.Duration) {
	l.pace.mu.Lock()
	defer l.pace.mu.Unlock()
	due, late, worst = l.pace.due, l.pace.late, l.pace.worst
	l.pace.due, l.pace.late, l.pace.worst = 0, 0, 0
	return due, late, worst
}
