package raftio

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/internal/wait"
)

// LoopWatch notices that Raft's main loop stands still on a leader. A leader in this state serves no call,
// and is never replaced, because heartbeats go on beside the loop.
type LoopWatch struct {
	Loop     chan<- raft.RPC // to the main loop
	Leads    func() bool
	Disk     func() uint64 // how many calls to the disk were started
	Applied  func() uint64 // newest entry that was applied
	Received func() uint64 // see Transport.Received
	Fail     func(error)

	turned atomic.Uint64 // questions to which the loop has replied
}

// loopSteps is what a loop that is busy gets done: a slow disk keeps the loop from replying for as long
// as it has calls to make.
type loopSteps struct{ turns, disk, applied uint64 }

// loopQuestion is no request that Raft knows. Its main loop, in whatever state it is, refuses such a one
// at once and without a word (checkRPCHeader in raft.go), and that is the reply that is wanted.
type loopQuestion struct{}

var errLoopStands = errors.New("the main loop of Raft stands still")

// Turns is to how many questions the loop has replied.
func (w *LoopWatch) Turns() uint64 { return w.turned.Load() }

// Run watches until ctx ends.
func (w *LoopWatch) Run(ctx context.Context) {
	var asking sync.WaitGroup
	defer asking.Wait()
	asking.Go(func() { w.askOn(ctx) })
	dog := watchdog[loopSteps]{limit: hungLoop}
	wait.Every(ctx, watchInterval, func(now time.Time) {
		var underWay []loopSteps
		if w.Leads() {
			underWay = append(underWay, loopSteps{turns: w.Turns(), disk: w.Disk(), applied: w.Applied()})
		}
		if _, hangs := dog.overdue(now, underWay); hangs {
			w.Fail(fmt.Errorf("%w for longer than %v, while this node leads", errLoopStands, hungLoop))
		}
	})
}

// askOn asks the loop again and again, while this node leads.
func (w *LoopWatch) askOn(ctx context.Context) {
	wait.Every(ctx, watchInterval/2, func(time.Time) {
		if w.Leads() && w.ask(ctx) {
			w.turned.Add(1)
		}
	})
}

// Alive returns true when the loop has replied, or takes a snapshot of which something has come since it was asked; false
// when ctx has ended. A loop that waits for the disk does not reply.
func (w *LoopWatch) Alive(ctx context.Context) bool {
	for before := w.Received(); ctx.Err() == nil; {
		patience, cancel := context.WithTimeout(ctx, hungLoop)
		replied := w.ask(patience)
		cancel()
		if replied || w.Received() != before {
			return true
		}
	}
	return false
}

func (w *LoopWatch) ask(ctx context.Context) bool {
	reply := make(chan raft.RPCResponse, 1)
	select {
	case w.Loop <- raft.RPC{Command: loopQuestion{}, RespChan: reply}:
	case <-ctx.Done():
		return false
	}
	select {
	case <-reply:
		return true
	case <-ctx.Done():
		return false
	}
}

const (
	// watchInterval is the time between two looks of a watchdog.
	watchInterval = 250 * time.Millisecond
	// longPause is a time between two looks after which the process, the machine or its storage must
	// have been paused: what was under way then starts anew.
	longPause = time.Second
)

// hungDisk is how long one call to the disk may be seen under way before the node gives itself up: a
// leader whose disk hangs would otherwise keep its leadership for ever, because heartbeats go on beside
// it. A disk that takes 4 s, longer than which no write is waited for, is slow and does not hang.
const hungDisk = 4500 * time.Millisecond

// hungLoop is the same for the main loop of Raft on a leader, which cannot step down while its loop
// stands. It is longer than hungDisk, so that a hung disk is named as what it is.
const hungLoop = 2 * hungDisk

// watchdog finds what stands still. It counts the looks at which the same thing was seen, and not the time
// that has passed: after a pause of the process everything is as old as the pause was long, and nothing
// of it hangs. So a look that comes late does not count, and after a long pause the count begins anew.
type watchdog[K comparable] struct {
	limit time.Duration // of watchInterval for each look
	last  time.Time
	seen  map[K]int // at how many looks in a row, after the first
}

// overdue takes over what is under way, and returns what has been for longer than the limit.
func (w *watchdog[K]) overdue(now time.Time, underWay []K) (hangs K, found bool) {
	since := now.Sub(w.last)
	w.last = now
	before := w.seen
	if since > longPause {
		before = nil
	}
	w.seen = make(map[K]int, len(underWay))
	for _, k := range underWay {
		looks, known := before[k]
		if known && since <= 2*watchInterval {
			looks++
		}
		w.seen[k] = looks
		if time.Duration(looks)*watchInterval >= w.limit {
			hangs, found = k, true
		}
	}
	return hangs, found
}
