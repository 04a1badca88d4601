package batcher

import "time"

// pacerCredit is how late a hand-out may be without loss to the rate: as much as a timer oversleeps.
const pacerCredit = 10 * time.Millisecond

// pacer is the limit of the rate, a token bucket that goes into debt by one hand-out at most. It knows
// the moment at which the debt is paid, so that nobody has to look at it before.
type pacer struct {
	rate int // tasks per second; 0: no limit
	paid time.Time
}

// delay is how long nothing may be handed out from now on.
func (p *pacer) delay(now time.Time) time.Duration {
	if p.rate <= 0 {
		return 0
	}
	return max(p.paid.Sub(now), 0)
}

// take notes that tasks were handed out.
func (p *pacer) take(tasks int, now time.Time) {
	if p.rate <= 0 {
		return
	}
	if oldest := now.Add(-pacerCredit); p.paid.Before(oldest) {
		p.paid = oldest
	}
	p.paid = p.paid.Add(time.Duration(tasks) * time.Second / time.Duration(p.rate))
}
