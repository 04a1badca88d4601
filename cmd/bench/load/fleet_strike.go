package load

import (
	"slices"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
)

// flapPause is between a cancel and the next registration of an instance that flaps, and the other way round.
const flapPause = 500 * time.Millisecond

// Die lets instances, drawn by the seed among the living, stop their heartbeats for ever, and returns how many.
// which is a number or a share, as in scenario.Fault.
func (l *Load) Die(which string) (int, error) {
	struck, err := l.fleet.stop(which, dead)
	return len(struck), err
}

// Silence stops everything that instances send; what it returns lets their clients begin anew, with a
// registration each.
func (l *Load) Silence(which string) (count int, restart func(), err error) {
	struck, err := l.fleet.stop(which, silent)
	return len(struck), func() { l.fleet.restart(struck) }, err
}

// Flap lets instances cancel and register again, once a second each, until stop is called; they end registered.
func (l *Load) Flap(which string) (count int, stop func(), err error) {
	struck, err := l.fleet.flap(which)
	return len(struck), func() { l.fleet.calm(struck) }, err
}

// stop draws living instances whose clients send nothing from now on. What is under way still ends.
func (f *fleet) stop(which string, how mode) ([]*instance, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	struck, err := f.draw(which)
	now := time.Now()
	for _, i := range struck {
		i.mode = how
		if !i.busy {
			f.book.Died(i.id, now)
		}
	}
	return struck, err
}

// restart lets the clients of silent instances begin anew.
func (f *fleet) restart(struck []*instance) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	for _, i := range struck {
		if i.mode != silent {
			continue
		}
		i.mode, i.registered, i.canceling = living, false, false
		f.plan(i, now)
	}
}

// flap draws living instances that cancel and register again from now on, spread over the time that both take.
func (f *fleet) flap(which string) ([]*instance, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	struck, err := f.draw(which)
	now := time.Now()
	for n, i := range struck {
		i.mode = flapping
		f.plan(i, now.Add(2*flapPause*time.Duration(n)/time.Duration(len(struck))))
	}
	return struck, err
}

// calm lets flapping instances stay registered: what they have planned is a cancel no more. A cancel that has begun is
// brought to its end first.
func (f *fleet) calm(struck []*instance) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, i := range struck {
		if i.mode == flapping {
			i.mode = living
		}
	}
}

// draw draws instances among the living that last. The fleet is locked.
func (f *fleet) draw(which string) ([]*instance, error) {
	alive := slices.DeleteFunc(slices.Clone(f.lasting), func(i *instance) bool { return i.mode != living })
	n, err := scenario.Share(which, len(alive))
	if err != nil {
		return nil, err
	}
	f.dice.Shuffle(len(alive), func(a, b int) { alive[a], alive[b] = alive[b], alive[a] })
	return alive[:n], nil
}
