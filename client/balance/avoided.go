package balance

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// avoided are the instances that could not be connected to lately. Every request reads them, and they
// change when something dies; so they are read without a lock, and copied to be changed.
type avoided struct {
	time  time.Duration // for which an instance is avoided; not positive: it is not
	mu    sync.Mutex    // held by who changes until
	until atomic.Pointer[map[listed]time.Time]
}

// listed is an instance at an address, as the list had it. One that has registered anew since then is
// alive, and another one: what was avoided may be called again at once.
type listed struct {
	address address
	version int64 // lastDirtyTimestamp
}

// now returns what is avoided at present, which must not be changed. nil: nothing.
func (a *avoided) now() map[listed]time.Time {
	until := a.until.Load()
	if until == nil {
		return nil
	}
	now := time.Now()
	for _, end := range *until {
		if !now.Before(end) {
			return a.change(func(map[listed]time.Time) {})
		}
	}
	return *until
}

// note takes what came of a try: who could not be connected to is avoided, who answered is not.
func (a *avoided) note(who listed, err error) {
	switch {
	case unconnected(err):
		a.add(who)
	case err == nil:
		a.drop(who)
	}
}

// add avoids an instance from now on.
func (a *avoided) add(who listed) {
	a.change(func(until map[listed]time.Time) { until[who] = time.Now().Add(a.time) })
}

// drop does not avoid an instance any more: it was connected to after all.
func (a *avoided) drop(who listed) {
	if _, is := a.now()[who]; is {
		a.change(func(until map[listed]time.Time) { delete(until, who) })
	}
}

// change changes a copy, without what is over, and returns it.
func (a *avoided) change(do func(map[listed]time.Time)) map[listed]time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	next := make(map[listed]time.Time)
	if until := a.until.Load(); until != nil {
		maps.Copy(next, *until)
	}
	do(next)
	now := time.Now()
	maps.DeleteFunc(next, func(_ listed, end time.Time) bool { return !now.Before(end) })
	if len(next) == 0 {
		a.until.Store(nil)
		return nil
	}
	a.until.Store(&next)
	return next
}
