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
	Disk     func() uint64 // returns how many calls to the disk were started
	Applied  func() uint64 // returns the newest entry that was applied
	Received func() uint64 // see Transport.Received
	Fail     func(error)

	turned atomic.Uint64 // questions that the loop has answered
}

// loopSteps counts the progress of a busy loop: with a slow disk, the loop does not answer while it has calls to
// make.
type loopSteps struct{ turns, disk, applied uint64 }

// loopQuestion is a request that Raft does not know. Its main loop, in any state, refuses such a request at once and
// without logging it (checkRPCHeader in raft.go), and that is the answer wanted.
type loopQuestion struct{}

var errLoopStands = errors.New("the main loop of Raft stands still")

// Turns returns how many questions the loop has answered.
func (w *LoopWatch) Turns() uint64 { return w.turned.Load() }

// Run watches until ctx ends.
func (w *LoopWatch) Run(ctx context.Context) {
	var asking sync.WaitGroup
	defer asking.Wait()
	asking.Go(func() {
		wait.Every(ctx, watchInterval/2, func(time.Time) {
			if w.Leads() && w.ask(ctx) {
				w.turned.Add(1)
			}
		})
	})
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

// Alive returns true once the loop has answered, or has received part of a snapshot since it was asked, and false
// once ctx has ended. A loop that waits for the disk does not answer.
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
	// longPause is a time between two looks after which the process, the machine or its storage must have been
	// paused: whatever was in progress then starts anew.
	longPause = time.Second
)

// hungDisk is how long one call to the disk may be seen in progress before the node gives itself up: a leader whose
// disk hangs would otherwise keep its leadership forever, because heartbeats go on beside it. No write is waited for
// longer than 4 s; a disk that takes so long is slow, but does not hang.
const hungDisk = 4500 * time.Millisecond

// hungLoop is the same for Raft's main loop on a leader, which cannot step down while its loop hangs. It is longer
// than hungDisk, so that a hung disk is reported as such.
const hungLoop = 2 * hungDisk

// watchdog finds what hangs. It counts the looks at which it saw the same thing, not the time that has passed: after
// a pause of the process everything is as old as the pause was long, and nothing of it hangs. So a late look does not
// count, and after a long pause the count starts anew.
type watchdog[K comparable] struct {
	limit time.Duration // one watchInterval per look
	last  time.Time
	seen  map[K]int // number of looks in a row, after the first, at which a thing was seen
}

// overdue takes over what is in progress, and returns something that has been for longer than the limit.
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
