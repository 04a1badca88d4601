package fsm

import (
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

func appendSelfPreservation(dst []byte, op registry.SelfPreservation) []byte {
	dst = append(appendEpoch(dst, op.Epoch), byte(op.From), byte(op.To))
	dst = appendAct(appendInt64(dst, op.For), op.By)
	return appendFigures(dst, op.Figures)
}

func (d *decoder) selfPreservation() registry.SelfPreservation {
	return registry.SelfPreservation{
		Epoch:   d.epoch(),
		From:    d.state(),
		To:      d.state(),
		For:     d.int64(),
		By:      d.act(),
		Figures: d.figures(),
	}
}

func appendPreservation(dst []byte, p registry.Preservation) []byte {
	dst = appendStamp(append(dst, byte(p.State)), p.Since)
	dst = appendAct(appendInt64(dst, p.Until), p.By)
	return appendFigures(dst, p.Figures)
}

func (d *decoder) preservation() registry.Preservation {
	return registry.Preservation{
		State:   d.state(),
		Since:   d.stamp(),
		Until:   d.int64(),
		By:      d.act(),
		Figures: d.figures(),
	}
}

func (d *decoder) state() registry.PreservationState {
	return registry.PreservationState(d.enum(lastState, "state of self-preservation"))
}

func appendFigures(dst []byte, f registry.Figures) []byte {
	for _, n := range [...]uint32{f.Leases, f.Counted, f.Fresh, f.Expired, f.Renewals, f.Threshold} {
		dst = appendUint32(dst, n)
	}
	return dst
}

func (d *decoder) figures() registry.Figures {
	return registry.Figures{
		Leases:    d.uint32(),
		Counted:   d.uint32(),
		Fresh:     d.uint32(),
		Expired:   d.uint32(),
		Renewals:  d.uint32(),
		Threshold: d.uint32(),
	}
}

func appendSettings(dst []byte, s registry.Settings) []byte {
	dst = appendBool(dst, s.SelfPreservation)
	dst = appendUint32(dst, uint32(min(s.Threshold, registry.Whole)))
	dst = appendUint32(dst, s.Population)
	dst = appendInt64(dst, s.Bound)
	dst = appendBool(dst, s.Expectation)
	dst = appendUint32(dst, s.ExpectedInterval)
	dst = appendInt64(dst, s.ExpectationUpdate)
	return appendString(appendBool(dst, s.DoubledLease), s.OnCut)
}

func (d *decoder) settings() registry.Settings {
	return registry.Settings{
		SelfPreservation:  d.bool(),
		Threshold:         d.part(),
		Population:        d.uint32(),
		Bound:             d.int64(),
		Expectation:       d.bool(),
		ExpectedInterval:  d.uint32(),
		ExpectationUpdate: d.int64(),
		DoubledLease:      d.bool(),
		OnCut:             d.lasting(),
	}
}

func (d *decoder) part() registry.Share {
	s := registry.Share(d.uint32())
	if s > registry.Whole {
		d.fail("share of %d millionths, want at most %d", s, registry.Whole)
		return 0
	}
	return s
}

func appendExpectation(dst []byte, e registry.ExpectationState) []byte {
	dst = appendInt64(appendUint32(dst, e.Clients), e.Minute)
	dst = appendUint32(appendUint32(dst, e.Current), e.Last)
	return appendInt64(dst, e.NextUpdate)
}

func (d *decoder) expectation() registry.ExpectationState {
	return registry.ExpectationState{
		Clients:    d.uint32(),
		Minute:     d.int64(),
		Current:    d.uint32(),
		Last:       d.uint32(),
		NextUpdate: d.int64(),
	}
}
