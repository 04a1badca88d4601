package batcher

import "time"

// trafficShaper decides how long the hand-outs of the whole dispatcher are held back after failures (upstream:
// TrafficShaper).
type trafficShaper struct {
	congestion, network pause
}

// pause is the delay after failures of one kind.
type pause struct {
	shortest, longest time.Duration
	grows             bool
	random            func(n int64) int64 // returns a number in [0, n)

	last time.Time     // of the last failure; zero if none counts
	full time.Duration // current delay before its random part was drawn; zero without a failure in this row
	rest time.Duration // how long to wait after last
}

func newTrafficShaper(congestion, network, longest time.Duration, grows bool, random func(int64) int64) trafficShaper {
	of := func(shortest time.Duration) pause {
		return pause{shortest: min(shortest, longest), longest: longest, grows: grows, random: random}
	}
	return trafficShaper{congestion: of(congestion), network: of(network)}
}

// record records the result of a transmission that was handed out at started.
func (s *trafficShaper) record(r Result, started, now time.Time) {
	switch r {
	case Success:
		s.congestion.full, s.network.full = 0, 0
	case Congestion:
		s.congestion.fail(started, now)
	case TransientError:
		s.network.fail(started, now)
	}
}

// reached ends the pause after network failures.
func (s *trafficShaper) reached() { s.network.full, s.network.last = 0, time.Time{} }

// wait returns how long nothing may be handed out from now on.
func (s *trafficShaper) wait(now time.Time) time.Duration {
	return max(s.congestion.left(now), s.network.left(now))
}

// fail starts the pause anew. It grows only if the transmission had started after the last failure: when the receiver
// goes away under twenty workers that is one failure, not twenty in a row.
func (p *pause) fail(started, now time.Time) {
	if p.full == 0 {
		p.draw(p.shortest)
	} else if p.grows && started.After(p.last) {
		p.draw(min(2*p.full, p.longest))
	}
	p.last = now
}

// draw sets the delay. With growth, half of it is random, so that senders that lose a receiver at the same moment do
// not all come back at once.
func (p *pause) draw(full time.Duration) {
	p.full, p.rest = full, full
	if p.grows {
		p.rest = full/2 + time.Duration(p.random(int64(full-full/2)+1))
	}
}

// left returns the rest of the pause. A clock set back to before the failure ends it, because nobody knows how long
// ago that was.
func (p *pause) left(now time.Time) time.Duration {
	if p.last.IsZero() {
		return 0
	}
	if elapsed := now.Sub(p.last); elapsed >= 0 && elapsed < p.rest {
		return p.rest - elapsed
	}
	p.last = time.Time{}
	return 0
}

// pacerCredit is how late a hand-out may be without loss to the rate: as much as a timer oversleeps.
const pacerCredit = 10 * time.Millisecond

// pacer limits the rate: a token bucket that goes into debt by at most one hand-out. It knows when the debt is paid,
// so that no timer has to run before that.
type pacer struct {
	rate int // tasks per second; 0 means no limit
	paid time.Time
}

// wait returns how long nothing may be handed out from now on.
func (p *pacer) wait(now time.Time) time.Duration {
	if p.rate <= 0 {
		return 0
	}
	return max(p.paid.Sub(now), 0)
}

// charge charges a hand-out of tasks to the rate.
func (p *pacer) charge(tasks int, now time.Time) {
	if p.rate <= 0 {
		return
	}
	if oldest := now.Add(-pacerCredit); p.paid.Before(oldest) {
		p.paid = oldest
	}
	p.paid = p.paid.Add(time.Duration(tasks) * time.Second / time.Duration(p.rate))
}
