package registry

import (
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
	// PreservationReleased: evictions go on although the condition holds; it cannot come on again until the condition
	// has been false once.
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

// Withholds reports whether evictions are withheld in this state.
func (s PreservationState) Withholds() bool { return s == PreservationOn || s == PreservationHeld }

// Preservation is self-preservation at one moment: its state and the transition that led to it.
type Preservation struct {
	State   PreservationState
	Since   Stamp
	Until   int64 // lease clock, ms, of its automatic end; 0: never
	By      Act   // an operator; zero if it happened automatically
	Figures Figures
}

func (p *Preservation) Fields(c *codec.Codec) {
	p.State.fields(c)
	p.Since.Fields(c)
	c.Int64(&p.Until)
	p.By.Fields(c)
	p.Figures.fields(c)
}

// Figures are the numbers of self-preservation. Only leases of this datacenter count.
type Figures struct {
	Leases  uint32 // leases, counted or not
	Counted uint32 // those older than one interval since their life began
	Fresh   uint32 // of the counted: renewed recently enough, see Freshness
	Expired uint32 // of all: those that have ended but are not yet evicted
	// Upstream's formula at the same moment.
	Renewals  uint32 // in the last complete minute
	Threshold uint32 // renewals per minute at or below which upstream stops evicting
}

func (f *Figures) fields(c *codec.Codec) {
	for _, n := range [...]*uint32{&f.Leases, &f.Counted, &f.Fresh, &f.Expired, &f.Renewals, &f.Threshold} {
		c.Uint32(n)
	}
}

// Bounds of self-preservation.
const (
	transitionsKept = 50                      // how many transitions are remembered
	maxHold         = 7 * 24 * 60 * 60 * 1000 // ms of lease clock that an operator may hold it
)

// nextState returns the state that self-preservation should have at a moment, without an operator's act.
func nextState(p Preservation, now int64, holds bool) PreservationState {
	switch {
	case p.State == PreservationHeld && !isOver(p, now):
		return PreservationHeld
	case !holds:
		return PreservationOff
	case p.State == PreservationOff || p.State == PreservationHeld:
		return PreservationOn
	case isOver(p, now):
		return PreservationReleased
	default:
		return p.State
	}
}

// isOver reports whether the time of a state has passed.
func isOver(p Preservation, now int64) bool { return p.Until > 0 && now >= p.Until }

// newest returns the last of transitions; before the first one, self-preservation is off.
func newest(transitions []Preservation) Preservation {
	if len(transitions) == 0 {
		return Preservation{}
	}
	return transitions[len(transitions)-1]
}

// evictionsResumed returns when (lease clock, ms) self-preservation last went off because its condition was false, or
// 0 if it never did. A hold ends when its operator said, and after a release no client is waited for.
func evictionsResumed(transitions []Preservation) int64 {
	for i := len(transitions) - 1; i > 0; i-- {
		if transitions[i].State == PreservationOff && transitions[i-1].State == PreservationOn {
			return transitions[i].Since.Lease
		}
	}
	return 0
}

// boundFrom returns when (lease clock, ms) self-preservation that came on automatically at a moment is released; 0:
// never.
func boundFrom(s Settings, since int64) int64 {
	if s.Bound == 0 || s.Expectation {
		return 0
	}
	return order.Later(since, s.Bound)
}
