package load

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/wire"
)

// sealing registers the sealed instances: each is registered, a while later registered in another version, or
// canceled, or left alone, and then never renewed nor written again. Their leases outlast any trial.
type sealing struct{ fleet *fleet }

// pastSeal is a finished write of a sealed instance.
type pastSeal struct {
	cancel           bool
	result           callResult
	called, returned time.Time
}

const (
	// sealPause is from the registration of a sealed instance to its second write.
	sealPause = time.Second
	drainPoll = 20 * time.Millisecond
)

func (l *Load) sealedApp() string { return l.Prefix + "-SEALED" }

// sealStreams are the registrations of the sealed instances.
func (l *Load) sealStreams() []*stream {
	if l.Load.Sealed == 0 {
		return nil
	}
	return []*stream{{source: sealing{l.fleet}, name: "sealed", rate: l.Load.Sealed}}
}

// send registers the next sealed instance.
func (s sealing) send(ctx context.Context, c *caller, due time.Time) {
	f := s.fleet
	f.mu.Lock()
	n := len(f.seals)
	i := &instance{home: c.home, mode: sealed, busy: true, described: described{
		app: f.load.sealedApp(), id: fmt.Sprintf("sealed-%d", n), number: n, interval: keyInterval, duration: keyDuration,
	}}
	f.seals = append(f.seals, i)
	f.mu.Unlock()
	f.release(i, f.seal(ctx, c, i, i.registration(1), trial.Register, due))
}

// What happens to a sealed instance after its registration.
const (
	alone = iota
	again
	canceledOnce
	fates
)

// fate returns what happens to a sealed instance whose registration was acknowledged; otherwise nothing does. The
// fleet is locked.
func (f *fleet) fate(i *instance) int {
	if len(i.writes) != 1 || i.writes[0].result.outcome != trial.Done {
		return alone
	}
	return i.number / len(f.load.Nodes) % fates
}

// sealAgain writes a sealed instance for the second time.
func (f *fleet) sealAgain(ctx context.Context, c *caller, i *instance, due time.Time) (certain bool) {
	if i.number/len(f.load.Nodes)%fates == again {
		return f.seal(ctx, c, i, i.registration(2), trial.Register, due)
	}
	return f.seal(ctx, c, i, i.cancel(), trial.Cancel, due)
}

func (f *fleet) seal(ctx context.Context, c *caller, i *instance, request []byte, o trial.Operation, due time.Time) (certain bool) {
	called := time.Now()
	r := c.call(ctx, request, false)
	f.load.record(o, c.home, due, r, nil)
	f.mu.Lock()
	defer f.mu.Unlock()
	i.writes = append(i.writes, pastSeal{cancel: o == trial.Cancel, result: r, called: called, returned: r.done})
	return true
}

// drain waits until every sealed instance has been written as often as it will be, or ctx ends.
func (f *fleet) drain(ctx context.Context) {
	for wire.Pause(ctx, drainPoll) {
		f.mu.Lock()
		left := 0
		for _, i := range f.seals {
			if i.busy || f.fate(i) != alone {
				left++
			}
		}
		f.mu.Unlock()
		if left == 0 {
			return
		}
	}
}

// Sealed returns the sealed instances and their writes, and their application. Call it when Run has returned.
func (l *Load) Sealed(began time.Time) (app string, all []trial.Sealed) {
	l.fleet.mu.Lock()
	defer l.fleet.mu.Unlock()
	for _, i := range l.fleet.seals {
		one := trial.Sealed{ID: i.id}
		for _, w := range i.writes {
			returned := trial.Since(began, w.returned)
			if w.result.outcome == trial.Unknown {
				returned = math.MaxInt64
			}
			one.Writes = append(one.Writes, trial.SealWrite{
				Cancel: w.cancel, Node: w.result.node, Outcome: w.result.outcome, Doubtful: w.result.doubtful,
				Called: trial.Since(began, w.called), Returned: returned,
			})
		}
		all = append(all, one)
	}
	return l.sealedApp(), all
}
