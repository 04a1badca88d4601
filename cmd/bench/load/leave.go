package load

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
)

// Leave cancels what the load has registered and not canceled yet: instances and watched keys. Call it after
// Stop. The error says how many may still be registered, until their leases end.
func (l *Load) Leave(ctx context.Context) error {
	all := l.registered()
	callers := l.newCallers(min(errandClients*len(l.Nodes), len(all)))
	var next, failed atomic.Int64
	var leaving sync.WaitGroup
	for _, c := range callers {
		leaving.Go(func() {
			defer c.close()
			for n := next.Add(1); n <= int64(len(all)); n = next.Add(1) {
				if !c.call(ctx, all[n-1].cancel(), false).outcome.Answered() {
					failed.Add(1)
				}
			}
		})
	}
	leaving.Wait()
	if n := failed.Load(); n > 0 {
		return fmt.Errorf("%d of %d instances could not be canceled", n, len(all))
	}
	return nil
}

// registered are the instances that are, or may be, registered. Those that come and go are planned to leave
// as long as they have not.
func (l *Load) registered() []described {
	l.fleet.mu.Lock()
	defer l.fleet.mu.Unlock()
	var all []described
	for _, i := range l.fleet.lasting {
		all = append(all, i.described)
	}
	for _, a := range l.fleet.agendas {
		for _, p := range a.plans {
			if !p.leaves.IsZero() && p.mode != gone && p.planned.Equal(p.due) {
				all = append(all, p.described)
			}
		}
	}
	for _, key := range l.keys.keys {
		all = append(all, key.described)
	}
	return all
}
