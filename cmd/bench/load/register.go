package load

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/wire"
)

// Register registers all instances (Load.Instances) and the watched keys, as fast as the cluster accepts them, and
// returns when all were acknowledged and Config.AwaitListed has returned.
func (l *Load) Register(ctx context.Context) error {
	return l.fleet.register(ctx, func() error {
		if err := l.keys.register(ctx); err != nil || l.AwaitListed == nil {
			return err
		}
		return l.AwaitListed(ctx)
	})
}

// CancelAll cancels what the load has registered and not canceled yet: instances and watched keys. Call it after Stop.
// The error says how many may still be registered, until their leases end.
func (l *Load) CancelAll(ctx context.Context) error {
	all := l.registered()
	_, failed := l.cancel(ctx, all, false)
	l.cancelKeys(ctx)
	if failed > 0 {
		return fmt.Errorf("%d of %d instances could not be canceled", failed, len(all))
	}
	return nil
}

// cancelKeys cancels the watched keys at every node until no node knows one: without consensus, a write that another
// node has just received may arrive after the cancel, and is newer than what was canceled.
func (l *Load) cancelKeys(ctx context.Context) {
	var all []cancelable
	for _, key := range l.keys.keys {
		for home := range l.Nodes {
			all = append(all, cancelable{key.described, home})
		}
	}
	for range cancelRounds {
		if done, _ := l.cancel(ctx, all, true); done == 0 || !wire.Pause(ctx, cancelPause) {
			return
		}
	}
}

// cancelable is an instance to be canceled, and the node that it was registered at: another node may not know it yet.
type cancelable struct {
	described
	home int
}

// registered returns the instances that are, or may be, registered. Those that come and go have a planned departure
// until they have left.
func (l *Load) registered() []cancelable {
	l.fleet.mu.Lock()
	defer l.fleet.mu.Unlock()
	var all []cancelable
	for _, i := range l.fleet.lasting {
		all = append(all, cancelable{i.described, i.home})
	}
	for _, a := range l.fleet.agendas {
		for _, p := range a.plans {
			if !p.leaves.IsZero() && p.mode != canceled && p.planned.Equal(p.due) {
				all = append(all, cancelable{p.described, p.home})
			}
		}
	}
	for _, key := range l.keys.keys {
		all = append(all, cancelable{key.described, key.writers[0].home})
	}
	return all
}

// cancel cancels instances, each by a client of its home, and counts those that were registered there (done) and those
// without a response (failed).
func (l *Load) cancel(ctx context.Context, all []cancelable, pinned bool) (done, failed int64) {
	var left, lost atomic.Int64
	var under sync.WaitGroup
	idle, hangUp := l.idleCallers()
	for _, i := range all {
		c := <-idle[i.home]
		under.Go(func() {
			switch outcome := c.call(ctx, i.cancel(), pinned).outcome; {
			case !outcome.Answered():
				lost.Add(1)
			case outcome == trial.Done:
				left.Add(1)
			}
			idle[i.home] <- c
		})
	}
	under.Wait()
	hangUp()
	return left.Load(), lost.Load()
}

// idleCallers returns idle clients of each home. hangUp ends them when all are idle again.
func (l *Load) idleCallers() (idle []chan *caller, hangUp func()) {
	for range l.Nodes {
		idle = append(idle, make(chan *caller, errandClients))
	}
	callers := l.newCallers(errandClients * len(idle))
	for _, c := range callers {
		idle[c.home] <- c
	}
	return idle, func() {
		for _, c := range callers {
			c.close()
		}
	}
}
