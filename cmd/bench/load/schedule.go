package load

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/wire"
)

// schedule says when the calls of one stream are due: at even distances, which change with the rate. The part of
// a distance that has passed when the rate changes counts.
type schedule struct {
	rate float64   // per second; 0: nothing is due
	from time.Time // when the rate last changed
	wait float64   // from then to the first time, in distances
	n    int       // times handed out since then
}

// next is when the next call is due, if one ever is.
func (s *schedule) next() (due time.Time, ever bool) {
	if s.rate <= 0 {
		return time.Time{}, false
	}
	return s.from.Add(time.Duration((s.wait + float64(s.n)) / s.rate * float64(time.Second))), true
}

// change sets the rate. All times before now have been handed out.
func (s *schedule) change(rate float64, now time.Time) {
	if rate == s.rate {
		return
	}
	if due, ever := s.next(); ever {
		s.wait = max(0, due.Sub(now).Seconds()*s.rate)
	}
	s.rate, s.from, s.n = rate, now, 0
}

// longestNap is after how long new rates, and the end, are noticed.
const longestNap = 5 * time.Millisecond

// pacer hands out times to the callers of streams, each when it has come.
type pacer struct {
	streams []*stream
	rate    func(*stream) float64          // that holds now
	hand    func(s *stream, due time.Time) // gives a time to the stream's callers
	begin   time.Time
	end     time.Time // from which on only lasting streams are due
	ended   func()    // called once, when all times before end have been handed out, or no more will be
}

// run paces until ctx ends.
func (p *pacer) run(ctx context.Context) {
	// A thread of its own, asleep in the kernel: the runtime's timers may be a millisecond late, which
	// is more than a write takes.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for i, s := range p.streams {
		// Streams of the same rate must not always meet.
		s.schedule = schedule{from: p.begin, wait: float64(i) / float64(len(p.streams))}
		s.schedule.change(p.rate(s), p.begin)
	}
	ended := sync.OnceFunc(p.ended)
	defer ended()
	for ctx.Err() == nil {
		now := time.Now()
		wake := now.Add(longestNap)
		for _, s := range p.streams {
			if next, ever := p.handOut(s, now); ever && next.Before(wake) {
				wake = next
			}
		}
		if !now.Before(p.end) {
			ended()
		}
		wire.SleepUntil(wake)
	}
}

// handOut hands out what is due of a stream, and returns when something is next, if ever.
func (p *pacer) handOut(s *stream, now time.Time) (next time.Time, ever bool) {
	for {
		next, ever = s.schedule.next()
		if ever && !s.lasting && !next.Before(p.end) {
			return time.Time{}, false
		}
		if !ever || next.After(now) {
			break
		}
		p.hand(s, next)
		s.schedule.n++
	}
	s.schedule.change(p.rate(s), now)
	return s.schedule.next()
}
