package load

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/wire"
)

// seals are the sealed instances: each is registered, a while later registered in another version, or canceled, or left
// alone, and then never renewed nor written again. Their leases outlast any trial.
type seals struct {
	load    *Load
	pending chan *seal   // registered, and to be written once more
	left    atomic.Int64 // of them that have not been

	mu  sync.Mutex
	all []*seal // in the order of their numbers
}

// seal is one of them.
type seal struct {
	described
	home   int
	writes []pastSeal
}

// pastSeal is a write that has ended.
type pastSeal struct {
	cancel           bool
	result           callResult
	called, returned time.Time
}

const (
	// sealPause is from the registration of a sealed instance to its second write.
	sealPause = time.Second
	// mostSeals bounds the sealed instances that wait for their second write.
	mostSeals = 1 << 16
	drainPoll = 20 * time.Millisecond
)

func newSeals(l *Load) *seals { return &seals{load: l, pending: make(chan *seal, mostSeals)} }

func (l *Load) sealedApp() string { return l.Prefix + "-SEALED" }

// sealStreams are the registrations of the sealed instances.
func (l *Load) sealStreams() []*stream {
	if l.Load.Sealed == 0 {
		return nil
	}
	return []*stream{{source: l.sealed, name: "sealed", rate: l.Load.Sealed}}
}

// send registers the next sealed instance.
func (s *seals) send(ctx context.Context, c *caller, due time.Time) {
	i := s.next(c.home)
	s.write(ctx, c, i, i.registration(1), trial.Register, due)
	if i.writes[0].result.outcome == trial.Done && s.second(i) != alone {
		s.left.Add(1)
		select {
		case s.pending <- i:
		default: // no room: it stays as it is
			s.left.Add(-1)
		}
	}
}

func (s *seals) next(home int) *seal {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.all)
	i := &seal{home: home, described: described{
		app: s.load.sealedApp(), id: fmt.Sprintf("sealed-%d", n), number: n, interval: keyInterval, duration: keyDuration,
	}}
	s.all = append(s.all, i)
	return i
}

// What becomes of a sealed instance after its registration.
const (
	alone = iota
	again
	canceledOnce
	fates
)

func (s *seals) second(i *seal) int { return i.number / len(s.load.Nodes) % fates }

// tend writes sealed instances for the second time, until ctx ends.
func (s *seals) tend(ctx context.Context) {
	var working sync.WaitGroup
	idle := make([]chan *caller, len(s.load.Nodes))
	for n := range idle {
		idle[n] = make(chan *caller, errandClients)
	}
	callers := s.load.newCallers(errandClients * len(idle))
	for _, c := range callers {
		idle[c.home] <- c
	}
	defer func() {
		working.Wait()
		for _, c := range callers {
			c.close()
		}
	}()
	for {
		select {
		case i := <-s.pending:
			due := i.writes[0].returned.Add(sealPause)
			if !wire.Pause(ctx, time.Until(due)) {
				return
			}
			c := <-idle[i.home] // its call ends within the timeout, or with ctx
			working.Go(func() {
				defer s.left.Add(-1)
				s.writeAgain(ctx, c, i, due)
				idle[i.home] <- c
			})
		case <-ctx.Done():
			return
		}
	}
}

// drain waits until every sealed instance has been written as often as it will be, or ctx ends.
func (s *seals) drain(ctx context.Context) {
	for s.left.Load() > 0 && wire.Pause(ctx, drainPoll) {
	}
}

func (s *seals) writeAgain(ctx context.Context, c *caller, i *seal, due time.Time) {
	if s.second(i) == again {
		s.write(ctx, c, i, i.registration(2), trial.Register, due)
		return
	}
	s.write(ctx, c, i, i.cancel(), trial.Cancel, due)
}

func (s *seals) write(ctx context.Context, c *caller, i *seal, request []byte, o trial.Operation, due time.Time) {
	called := time.Now()
	r := c.call(ctx, request, false)
	s.load.record(o, c.home, due, r, nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	i.writes = append(i.writes, pastSeal{cancel: o == trial.Cancel, result: r, called: called, returned: r.done})
}

// Sealed are the sealed instances and their writes, and their application. Call it when Run has returned.
func (l *Load) Sealed(began time.Time) (app string, all []trial.Sealed) {
	l.sealed.mu.Lock()
	defer l.sealed.mu.Unlock()
	for _, i := range l.sealed.all {
		sealed := trial.Sealed{ID: i.id}
		for _, w := range i.writes {
			returned := trial.Since(began, w.returned)
			if w.result.outcome == trial.Unknown {
				returned = math.MaxInt64
			}
			sealed.Writes = append(sealed.Writes, trial.SealWrite{
				Cancel: w.cancel, Node: w.result.node, Outcome: w.result.outcome, Doubtful: w.result.doubtful,
				Called: trial.Since(began, w.called), Returned: returned,
			})
		}
		all = append(all, sealed)
	}
	return l.sealedApp(), slices.Clip(all)
}
