package balance

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// avoided are the addresses that could not be connected to lately. Every request reads them, and they
// change when something dies; so they are read without a lock, and copied to be changed.
type avoided struct {
	time  time.Duration // for which an address is avoided; not positive: it is not
	mu    sync.Mutex    // held by who changes until
	until atomic.Pointer[map[address]time.Time]
}

// now returns what is avoided at present, which must not be changed. nil: nothing.
func (a *avoided) now() map[address]time.Time {
	until := a.until.Load()
	if until == nil {
		return nil
	}
	now := time.Now()
	for _, end := range *until {
		if !now.Before(end) {
			return a.change(func(map[address]time.Time) {})
		}
	}
	return *until
}

// note takes what came of a try: who could not be connected to is avoided, who answered is not.
func (a *avoided) note(at address, err error) {
	switch {
	case unconnected(err):
		a.add(at)
	case err == nil:
		a.drop(at)
	}
}

// add avoids an address from now on.
func (a *avoided) add(at address) {
	a.change(func(until map[address]time.Time) { until[at] = time.Now().Add(a.time) })
}

// drop does not avoid an address any more: it was connected to after all.
func (a *avoided) drop(at address) {
	if _, is := a.now()[at]; is {
		a.change(func(until map[address]time.Time) { delete(until, at) })
	}
}

// change changes a copy, without what is over, and returns it.
func (a *avoided) change(do func(map[address]time.Time)) map[address]time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	next := make(map[address]time.Time)
	if until := a.until.Load(); until != nil {
		maps.Copy(next, *until)
	}
	do(next)
	now := time.Now()
	maps.DeleteFunc(next, func(_ address, end time.Time) bool { return !now.Before(end) })
	if len(next) == 0 {
		a.until.Store(nil)
		return nil
	}
	a.until.Store(&next)
	return next
}
