package kv

// permitTables is what a View shows of locks and semaphores.
type permitTables struct {
	index Index // of the last change of any; Freeze and Thaw carry it
}

func newPermitTables() permitTables { return permitTables{} }

// share returns a copy for views, which is never written again.
func (t *permitTables) share() permitTables { panic("not written") }

// acquirePermit, releasePermit, leaveQueue and endPermitDelay perform the operations. at.Lease is the
// state's clock already. What readers see is noted by s.change, which gives Result.Index its value.
func (s *State) acquirePermit(at At, op AcquirePermit) Result { panic("not written") }

func (s *State) releasePermit(at At, op ReleasePermit) Result { panic("not written") }

func (s *State) leaveQueue(at At, op LeaveQueue) Result { panic("not written") }

func (s *State) endPermitDelay(at At, op EndDelay) Result { panic("not written") }

// losePermits takes from a session that ends what it holds and waits for. All sessions that end in the
// same operation are gone from the state already: s.session does not find them.
func (s *State) losePermits(at At, session *Session) (changed bool) { panic("not written") }

// permitsDue adds the ends of lock-delays that are over at a moment (lease clock, ms).
func (s *State) permitsDue(now int64, add func(until int64, op EndDelay)) { panic("not written") }

// permitsNeedClock says that a lock or semaphore waits for a time of the lease clock.
func (s *State) permitsNeedClock() bool { panic("not written") }

func (s *State) freezePermits() []*Permits { panic("not written") }

// thawPermits enters the permits of a snapshot, whose sessions and clock are in the state already.
func (s *State) thawPermits(permits []*Permits) error { panic("not written") }
