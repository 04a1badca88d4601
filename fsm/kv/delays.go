package kv

import (
	"github.com/seed-20419f34/rollcall/fsm/order"
)

// delay keeps a key, there or not, from being acquired for some ms.
func (s *State) delay(key string, ms int64) {
	if ms > 0 {
		s.undelay(key)
		s.setDelay(Delay{Key: key, Until: order.Later(s.lease, ms)})
	}
}

func (s *State) setDelay(d Delay) {
	s.tables.delays.Set(d.Key, d.Until)
	s.tables.bytes += delayWeight + len(d.Key)
	s.delayEnds.Set(d.Until, d.Key)
}

func (s *State) undelay(key string) {
	if until, ok := s.tables.delays.Delete(key); ok {
		s.tables.bytes -= delayWeight + len(key)
		s.delayEnds.Delete(until, key)
	}
}

// delayed says whether a lock-delay keeps a key from being acquired now.
func (s *State) delayed(key string) bool {
	until, ok := s.tables.delays.Get(key)
	return ok && s.lease < until
}

// endDelay drops the record of a lock-delay. Of a key that is no change, and a view may go on to have the
// record: who asks compares the end with the clock.
func (s *State) endDelay(at At, op EndDelay) Result {
	switch {
	case !s.epoch.Leads(at.Term, op.Epoch):
		return Result{}
	case op.Kind != Key:
		return s.endPermitDelay(at, op)
	}
	if until, ok := s.tables.delays.Get(op.Name); !ok || until != op.Until || until > at.Lease {
		return Result{}
	}
	s.undelay(op.Name)
	return Result{OK: true}
}
