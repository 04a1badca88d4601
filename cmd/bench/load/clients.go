package load

import (
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// felt is what one client saw of one operation. The zero value has seen nothing. Safe for concurrent use.
type felt struct {
	mu       sync.Mutex
	calls    int
	answered int
	waits    time.Time // since when it has had no answer; zero: it has had one since its last call was due
	gap      time.Duration
}

// add counts a call that was due at a time and has ended.
func (f *felt) add(due, done time.Time, answered bool) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	if f.waits.IsZero() {
		f.waits = due
	}
	if answered {
		f.answered++
		f.gap = max(f.gap, done.Sub(f.waits))
		f.waits = time.Time{}
	}
}

// stop says that the client calls no more: what it got no answer to, it waits for no longer.
func (f *felt) stop(at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.waits.IsZero() {
		f.gap = max(f.gap, at.Sub(f.waits))
		f.waits = time.Time{}
	}
}

// until is what the client saw until the end of the load.
func (f *felt) until(end time.Time, o trial.Operation, home int) trial.Client {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := trial.Client{Operation: o, Home: home, Calls: f.calls, Answered: f.answered, Gap: trial.Of(f.gap)}
	if !f.waits.IsZero() {
		c.Gap = max(c.Gap, trial.Since(f.waits, end))
	}
	return c
}

// Clients are what the clients saw that called at all until the end of the load: those of instances, of heartbeats,
// registrations and cancels; and those that fetch.
func (l *Load) Clients(end time.Time) []trial.Client {
	var all []trial.Client
	add := func(f *felt, o trial.Operation, home int) {
		if c := f.until(end, o, home); c.Calls > 0 {
			all = append(all, c)
		}
	}
	for _, i := range l.fleet.instances() {
		add(&i.felt.heartbeats, trial.Heartbeat, i.home)
		add(&i.felt.registrations, trial.Register, i.home)
		add(&i.felt.cancels, trial.Cancel, i.home)
	}
	for _, s := range l.fetching {
		f := s.source.(*fetches)
		for home := range f.clients {
			for i := range f.clients[home].felts {
				add(&f.clients[home].felts[i], f.what, home)
			}
		}
	}
	return all
}
