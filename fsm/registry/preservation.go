package registry

import (
	"slices"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/order"
)

// PreservationState says whether evictions are withheld, and why.
type PreservationState uint8

// The states of self-preservation.
const (
	// PreservationOff: leases are evicted when they end.
	PreservationOff PreservationState = iota
	// PreservationOn: too few leases are fresh; evictions are withheld until the condition is false,
	// the bound is reached or an operator releases them.
	PreservationOn
	// PreservationReleased: evictions go on although the condition holds; it cannot come on again
	// until the condition was false once.
	PreservationReleased
	// PreservationHeld: an operator withholds evictions until a time.
	PreservationHeld
)

func (s *PreservationState) fields(c *codec.Codec) {
	codec.Enum(c, s, PreservationHeld, "state of self-preservation")
}

var preservationNames = [...]string{PreservationOff: "off", PreservationOn: "on", PreservationReleased: "released", PreservationHeld: "held"}

// String returns the word used in answers, metrics and commands.
func (s PreservationState) String() string { return preservationNames[s] }

// Withholds says that no lease is evicted in this state.
func (s PreservationState) Withholds() bool { return s == PreservationOn || s == PreservationHeld }

// Preservation is self-preservation at one moment: its state and the transition that led to it.
type Preservation struct {
	State   PreservationState
	Since   Stamp
	Until   int64 // lease clock, ms, at which it ends by itself; 0: at no time
	By      Act   // an operator; the zero Act: it happened by itself
	Figures Figures
}

// Fields walks self-preservation.
func (p *Preservation) Fields(c *codec.Codec) {
	p.State.fields(c)
	p.Since.Fields(c)
	c.Int64(&p.Until)
	p.By.fields(c)
	p.Figures.fields(c)
}

// Figures are the numbers of self-preservation. Only leases of the own datacenter count.
type Figures struct {
	Leases  uint32 // leases, counted or not
	Counted uint32 // those older than one interval since their life began
	Fresh   uint32 // of the counted: renewed lately enough, see Freshness
	Expired uint32 // of all: those that have ended and are not evicted
	// Upstream's formula at the same moment.
	Renewals  uint32 // of the last complete minute
	Threshold uint32 // renewals per minute at or below which upstream stops evicting
}

func (f *Figures) fields(c *codec.Codec) {
	for _, n := range [...]*uint32{&f.Leases, &f.Counted, &f.Fresh, &f.Expired, &f.Renewals, &f.Threshold} {
		c.Uint32(n)
	}
}

// Act says who did something and why, as they said themselves. The zero Act is a protocol without
// such fields, or the registry itself.
type Act struct{ Author, Reason string }

// maxNote bounds an author or a reason, in bytes. The interfaces to operators allow less. What
// exceeds it all the same is cut off where it is written.
const maxNote = 1024

func (a *Act) fields(c *codec.Codec) {
	c.Note(&a.Author, maxNote)
	c.Note(&a.Reason, maxNote)
}

// Bounds of self-preservation.
const (
	transitionsKept = 50                      // how many transitions are remembered
	maxHold         = 7 * 24 * 60 * 60 * 1000 // ms of lease clock that an operator may hold it
)

// Preservation is self-preservation now.
func (v *View) Preservation() Preservation { return newest(v.transitions) }

// Transitions are the last transitions of self-preservation, newest first.
func (v *View) Transitions() []Preservation {
	transitions := slices.Clone(v.transitions)
	slices.Reverse(transitions)
	return transitions
}

// NextPreservation is the transition of self-preservation that is due at a moment of the lease clock,
// given figures that Freshness counted; ok is false if none is. The caller fills in the epoch.
func (v *View) NextPreservation(now int64, f Figures) (op SelfPreservation, ok bool) {
	holds, _ := v.Condition(f)
	p := v.Preservation()
	next := p.next(now, holds)
	if next == p.State {
		return SelfPreservation{}, false
	}
	return SelfPreservation{From: p.State, To: next, Figures: f}, true
}

// next is the state that self-preservation takes by itself at a moment.
func (p Preservation) next(now int64, holds bool) PreservationState {
	switch {
	case p.State == PreservationHeld && !p.over(now):
		return PreservationHeld
	case !holds:
		return PreservationOff
	case p.State == PreservationOff || p.State == PreservationHeld:
		return PreservationOn
	case p.over(now):
		return PreservationReleased
	default:
		return p.State
	}
}

// over says that the time of a state has passed.
func (p Preservation) over(now int64) bool { return p.Until > 0 && now >= p.Until }

// preservation is self-preservation now.
func (r *Registry) preservation() Preservation { return newest(r.transitions) }

// newest is the last of transitions; before the first one self-preservation is off.
func newest(transitions []Preservation) Preservation {
	if len(transitions) == 0 {
		return Preservation{}
	}
	return transitions[len(transitions)-1]
}

// preserve is a transition of self-preservation, if it fits the present state. No reader of the
// registry's content sees it, so it takes no Index.
func (r *Registry) preserve(term uint64, op SelfPreservation) Result {
	if !r.mayPreserve(term, op) {
		return Result{Outcome: Refused}
	}
	p := Preservation{State: op.To, Since: r.clock, By: op.By, Figures: op.Figures}
	switch op.To {
	case PreservationOn:
		p.Until = r.settings.boundFrom(r.clock.Lease)
	case PreservationHeld:
		p.Until = r.clock.Lease + op.For
	}
	if len(r.transitions) == transitionsKept {
		r.transitions = r.transitions[1:]
	}
	r.transitions = append(r.transitions, p)
	r.returned = returned(r.transitions)
	return Result{}
}

// returned is when (lease clock, ms) self-preservation last went off because its condition was false;
// 0: it never did. A hold ends when its operator said, and a release means that nobody is waited for.
func returned(transitions []Preservation) int64 {
	for i := len(transitions) - 1; i > 0; i-- {
		if transitions[i].State == PreservationOff && transitions[i-1].State == PreservationOn {
			return transitions[i].Since.Lease
		}
	}
	return 0
}

// mayPreserve says whether a transition is allowed: to an operator some, whatever he believed the
// state to be, to the leader what it saw to be due, if that is still so.
func (r *Registry) mayPreserve(term uint64, op SelfPreservation) bool {
	p := r.preservation()
	if op.By != (Act{}) {
		return p.allows(op)
	}
	return r.epoch.Leads(term, op.Epoch) && op.From == p.State && p.leadsTo(op.To, r.clock.Lease)
}

// allows says whether an operator's act fits a state.
func (p Preservation) allows(op SelfPreservation) bool {
	switch op.To {
	case PreservationReleased:
		return p.State.Withholds()
	case PreservationHeld:
		return 0 < op.For && op.For <= maxHold
	default:
		return false
	}
}

// leadsTo says whether a state goes over to another one by itself, at a moment, with the condition
// true or false: Apply does not count, but it knows the time. A hold that an operator prolonged
// meanwhile does not end when the one before would have.
func (p Preservation) leadsTo(to PreservationState, now int64) bool {
	return to != p.State && (to == p.next(now, true) || to == p.next(now, false))
}

// minute is the time, in ms of lease clock, over which upstream counts renewals.
const minute = 60_000

// Expectation is upstream's bookkeeping at the view's moment.
// Source: AbstractInstanceRegistry.updateRenewsPerMinThreshold, MeasuredRate.
type Expectation struct {
	Clients   uint32 // expectedNumberOfClientsSendingRenews
	Threshold uint32 // numberOfRenewsPerMinThreshold
	Renewals  uint32 // of the last complete minute (renewsLastMin)
	Sliding   uint32 // of the last 60 s, estimated from the two buckets
	Allows    bool   // upstream would evict: Threshold > 0 and Renewals > Threshold
}

// Expectation returns upstream's figures, which decide only under Settings.Expectation.
func (v *View) Expectation() Expectation {
	now := v.stamp.Lease
	f := Figures{Renewals: v.expectation.renewals(now), Threshold: v.settings.renewalThreshold(v.expectation.Clients)}
	return Expectation{
		Clients:   v.expectation.Clients,
		Threshold: f.Threshold,
		Renewals:  f.Renewals,
		Sliding:   v.expectation.sliding(now),
		Allows:    f.upstreamAllows(),
	}
}

// upstreamAllows is upstream's gate: evictions are allowed only while there are more renewals than
// the threshold, which must not be 0. Source: PeerAwareInstanceRegistryImpl.isLeaseExpirationEnabled.
func (f Figures) upstreamAllows() bool { return f.Threshold > 0 && f.Renewals > f.Threshold }

// renewalThreshold is the number of renewals per minute at or below which upstream stops evicting:
// (int) (clients * (60.0 / expectedClientRenewalIntervalSeconds) * renewalPercentThreshold), without
// its rounding errors.
func (s Settings) renewalThreshold(clients uint32) uint32 {
	interval := uint64(s.ExpectedInterval)
	if interval < 1 {
		interval = 30
	}
	return uint32(uint64(clients) * 60 * uint64(s.Threshold) / (interval * uint64(Whole)))
}

// newExpectation expects one client at first, as a Spring server does that found no peer.
func newExpectation(s Settings) ExpectationState {
	return ExpectationState{Clients: 1, NextUpdate: s.ExpectationUpdate}
}

// join expects one client more. Upstream does so only while it expects any.
func (e *ExpectationState) join() {
	if e.Clients > 0 {
		e.Clients++
	}
}

// leave expects one client less, after a cancel and after an eviction.
func (e *ExpectationState) leave() {
	if e.Clients > 0 {
		e.Clients--
	}
}

// roll begins the minute of a moment, if it is another one than that of Current. It must be called
// before a renewal of that moment is counted.
func (e *ExpectationState) roll(now int64) {
	if now/minute == e.Minute {
		return
	}
	e.Last, e.Current, e.Minute = e.renewals(now), 0, now/minute
}

// renewals is the number of them in the last minute that is complete at a moment.
func (e *ExpectationState) renewals(now int64) uint32 {
	switch now/minute - e.Minute {
	case 0:
		return e.Last
	case 1:
		return e.Current
	default:
		return 0
	}
}

// sliding estimates the renewals of the 60 s before a moment: those of its own minute, and of the
// minute before the part that 60 s reach back to, as if they had come evenly.
func (e *ExpectationState) sliding(now int64) uint32 {
	var current uint32
	if now/minute == e.Minute {
		current = e.Current
	}
	return current + uint32(int64(e.renewals(now))*(minute-now%minute)/minute)
}

// recount sets the expectation to the number of leases that end when that is due: unless self-preservation is
// on and the number has fallen below the threshold's share, so that such a fall is never followed.
// Source: PeerAwareInstanceRegistryImpl.updateRenewalThreshold; upstream counts what the server's
// own client fetched, here it is what the registry holds.
func (r *Registry) recount() {
	leases, expected := uint64(r.expiry.Len()), uint64(r.expectation.Clients)
	if leases*uint64(Whole) > expected*uint64(r.settings.Threshold) || !r.settings.SelfPreservation {
		r.expectation.Clients = uint32(leases)
	}
	r.expectation.NextUpdate = order.Later(r.clock.Lease, r.settings.ExpectationUpdate)
}
