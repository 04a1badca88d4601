package consensus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/store/wait"
)

// loopWatch notices that Raft's main loop stands still on a leader. A leader in this state answers nobody,
// and is never replaced, because heartbeats go on beside the loop.
type loopWatch struct {
	rpcs  chan<- raft.RPC // to the main loop
	leads func() bool
	steps func() loopSteps
	fail  func(error)

	turns atomic.Uint64 // questions that the loop has answered
}

// loopSteps is what a loop that is busy gets done: a slow disk keeps the loop from answering for as long
// as it has calls to make.
type loopSteps struct{ turns, disk, applied uint64 }

// loopQuestion is no request that Raft knows. Its main loop, in whatever state it is, refuses such a one
// at once and without a word (checkRPCHeader in raft.go), and that is the answer that is wanted.
type loopQuestion struct{}

var errLoopStands = errors.New("the main loop of Raft stands still")

// run watches until ctx ends.
func (w *loopWatch) run(ctx context.Context) {
	var asking sync.WaitGroup
	defer asking.Wait()
	asking.Go(func() { w.askOn(ctx) })
	dog := watchdog[loopSteps]{limit: hungLoop}
	wait.Every(ctx, watchInterval, func(now time.Time) {
		var underWay []loopSteps
		if w.leads() {
			steps := w.steps()
			steps.turns = w.turns.Load()
			underWay = append(underWay, steps)
		}
		if _, hangs := dog.look(now, underWay); hangs {
			w.fail(fmt.Errorf("%w for longer than %v, while this node leads", errLoopStands, hungLoop))
		}
	})
}

// askOn asks the loop again and again.
func (w *loopWatch) askOn(ctx context.Context) {
	pause := time.NewTicker(watchInterval / 2)
	defer pause.Stop()
	for w.ask(ctx) {
		w.turns.Add(1)
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
	}
}

// ask returns true when the loop has answered, false when ctx has ended.
func (w *loopWatch) ask(ctx context.Context) bool {
	answer := make(chan raft.RPCResponse, 1)
	select {
	case w.rpcs <- raft.RPC{Command: loopQuestion{}, RespChan: answer}:
	case <-ctx.Done():
		return false
	}
	select {
	case <-answer:
		return true
	case <-ctx.Done():
		return false
	}
}
