package kv

import "iter"

// fenceHolds says whether an acquisition lasts, and whose does now; 0: nobody's.
func (s *State) fenceHolds(f *Fence) (holds bool, now Index) { panic("not written") }

// Held yields what a session holds: keys, locks and semaphores, by kind and name.
func (v *View) Held(session string) iter.Seq[Fence] { panic("not written") }

// Permits returns a lock or semaphore, nil if nobody holds, waits or is delayed, and the index by which
// a blocking query goes on.
func (v *View) Permits(kind Kind, name string) (*Permits, Index) { panic("not written") }

// AllPermits yields locks or semaphores by name.
func (v *View) AllPermits(kind Kind) iter.Seq[*Permits] { panic("not written") }

// Holds says whether an acquisition lasts: by session, or (session "") by whomever. now is the token of
// whoever holds; of a semaphore that of the session; 0: nobody.
func (v *View) Holds(f Fence, session string) (holds bool, now Index) { panic("not written") }
