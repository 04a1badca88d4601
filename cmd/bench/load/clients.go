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
	waits    time.Time // since when it has had no answer; zero if it has had one since its last call was due
	gap      time.Duration
}

// add counts a call that was due at a time and has ended. If it was due after the load (over), it only matters as the
// end of the client's wait.
func (f *felt) add(due, done time.Time, answered, over bool) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !over {
		f.calls++
		if answered {
			f.answered++
		}
		if f.waits.IsZero() {
			f.waits = due
		}
	}
	if answered && !f.waits.IsZero() {
		f.gap = max(f.gap, done.Sub(f.waits))
		f.waits = time.Time{}
	}
}

// stop records that the client stops calling, and so stops waiting for missing answers.
func (f *felt) stop(at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.waits.IsZero() {
		f.gap = max(f.gap, at.Sub(f.waits))
		f.waits = time.Time{}
	}
}

// saw returns what the client saw of the load. end is when it stopped calling.
func (f *felt) saw(end time.Time, o trial.Operation, home int) trial.Client {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := trial.Client{Operation: o, Home: home, Calls: f.calls, Answered: f.answered, Gap: trial.Of(f.gap)}
	if wait := trial.Since(f.waits, end); !f.waits.IsZero() && wait >= c.Gap {
		c.Gap, c.Open = wait, true
	}
	return c
}

// Clients returns what the clients saw that made any call during the load: those of instances, for heartbeats,
// registrations and cancels; and those that fetch, which end with the load. The others have been calling until now.
func (l *Load) Clients() []trial.Client {
	now, loaded := time.Now(), time.Now()
	if w := l.recorder.window.Load(); w != nil && w.end.Before(now) {
		loaded = w.end
	}
	var all []trial.Client
	add := func(f *felt, o trial.Operation, home int) {
		end := now
		if o.Reads() {
			end = loaded
		}
		if c := f.saw(end, o, home); c.Calls > 0 {
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
