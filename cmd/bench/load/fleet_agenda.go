package load

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

const (
	retryPause = 500 * time.Millisecond // before a registration or a cancel is repeated whose outcome is not certain
	// errandClients is how many clients of a node's instances work at the same time, apart from the heartbeats of
	// those that last.
	errandClients = 64
)

// agenda is what the clients of the instances of one home node will do beside the heartbeats that have a
// schedule: register, cancel, try again, and all that instances do which come and go.
type agenda struct {
	plans plans
	woken chan struct{} // has an element if something was planned since it was last looked at
}

func newAgenda() *agenda { return &agenda{woken: make(chan struct{}, 1)} }

// planned is an instance whose client does something next at due. What was planned for it before is not
// looked for, but passed over when its time has come.
type planned struct {
	due time.Time
	*instance
}

// plans are a heap by their times.
type plans []planned

func (p plans) Len() int           { return len(p) }
func (p plans) Less(i, j int) bool { return p[i].due.Before(p[j].due) }
func (p plans) Swap(i, j int)      { p[i], p[j] = p[j], p[i] }
func (p *plans) Push(x any)        { *p = append(*p, x.(planned)) }
func (p *plans) Pop() any {
	last := len(*p) - 1
	x := (*p)[last]
	(*p)[last] = planned{}
	*p = (*p)[:last]
	return x
}

// plan lets the client of an instance do what comes next at due, instead of what was planned before. The fleet is
// locked.
func (f *fleet) plan(i *instance, due time.Time) {
	i.planned = due
	a := f.agendas[i.home]
	heap.Push(&a.plans, planned{due, i})
	select {
	case a.woken <- struct{}{}:
	default:
	}
}

// tend does what is planned until ctx ends, and returns when nothing is under way any more.
func (f *fleet) tend(ctx context.Context) {
	callers := f.load.newCallers(errandClients * len(f.agendas))
	idle := make([]chan *caller, len(f.agendas))
	for n := range idle {
		idle[n] = make(chan *caller, errandClients)
	}
	for _, c := range callers {
		idle[c.home] <- c
	}
	var homes sync.WaitGroup
	for n, a := range f.agendas {
		homes.Go(func() { f.attend(ctx, a, idle[n]) })
	}
	homes.Wait()
	for _, c := range callers {
		c.close()
	}
}

// attend does what is planned in one agenda, each thing by a caller that is idle.
func (f *fleet) attend(ctx context.Context, a *agenda, idle chan *caller) {
	var working sync.WaitGroup
	defer working.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		i, due, do := f.due(a, time.Now())
		if do == nil {
			timer.Reset(time.Until(due))
			select {
			case <-timer.C:
			case <-a.woken:
			case <-ctx.Done():
			}
			continue
		}
		c := <-idle // its call ends within the timeout, or with ctx
		working.Go(func() {
			f.release(i, do(ctx, c, i, due))
			idle <- c
		})
	}
}

// longWait is longer than anybody waits for nothing: somebody will plan something before.
const longWait = time.Hour

// errand is something that the client of an instance does. It reports whether what came of it is certain.
type errand func(ctx context.Context, c *caller, i *instance, due time.Time) (certain bool)

// due gives the instance whose time has come, busy, and what its client is to do. If do is nil, there is nothing
// to do until due.
func (f *fleet) due(a *agenda, now time.Time) (i *instance, due time.Time, do errand) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(a.plans) > 0 {
		next := a.plans[0]
		if next.due.After(now) {
			return nil, next.due, nil
		}
		heap.Pop(&a.plans)
		i := next.instance
		if i.busy || !i.planned.Equal(next.due) {
			continue
		}
		i.planned = time.Time{}
		if do := f.next(i, next.due); do != nil {
			i.busy = true
			return i, next.due, do
		}
	}
	return nil, now.Add(longWait), nil
}

// stayOn lets instances that come and go stay registered from now on. Their cancels would go on for a while after a
// load's end, and nobody could tell what the nodes should hold when all has settled.
func (f *fleet) stayOn() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.staying = true
}

// next is what the client of an idle instance has to do at a time; nil: nothing beside its heartbeats.
func (f *fleet) next(i *instance, at time.Time) errand {
	switch {
	case i.mode == silent, i.mode == dead, i.mode == gone:
		return nil
	case i.canceling, i.registered && i.mode == flapping:
		return f.leave
	case !i.registered:
		return f.enter
	case i.leaves.IsZero() && !f.entering:
		return nil
	case !i.leaves.IsZero() && !at.Before(i.leaves) && !f.staying:
		return f.leave
	}
	return f.renewOnce
}
