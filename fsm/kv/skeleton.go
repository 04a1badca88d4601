package kv

import "sync/atomic"

type living struct {
	session *Session
	renewed atomic.Int64
}
type (
	expiry    struct{}
	links     struct{}
	delayEnds struct{}
	answers   struct{}
)

func newLinks() links           { return links{} }
func newDelayEnds() delayEnds   { return delayEnds{} }
func newAnswers() answers       { return answers{} }
func compareAged(a, b aged) int { panic("not written") }

func (a *answers) prune(lease int64)                            {}
func (t *tables) pruneDeletions(lease int64) bool               { return false }
func (s *State) keyOp(at At, op KeyOp) Result                   { panic("not written") }
func (s *State) txn(at At, op Txn) Result                       { panic("not written") }
func (s *State) createSession(at At, op CreateSession) Result   { panic("not written") }
func (s *State) renewSession(op RenewSession) Result            { panic("not written") }
func (s *State) destroySession(at At, op DestroySession) Result { panic("not written") }
func (s *State) expireSession(at At, op ExpireSession) Result   { panic("not written") }
func (s *State) endDelay(at At, op EndDelay) Result             { panic("not written") }
func (s *State) once(at At, op Once) Result                     { panic("not written") }
func (s *State) Lose(at At, checks []CheckRef) bool             { panic("not written") }
func (s *State) LoseNode(at At, node string) bool               { panic("not written") }
func (s *State) Due(now int64, limit int) []Op                  { panic("not written") }
func (s *State) NeedsClock() bool                               { panic("not written") }
func (s *State) Freeze() Frozen                                 { panic("not written") }
func Thaw(f Frozen, catalog Catalog) (*State, error)            { panic("not written") }

// lockDelay is how long (ms) what the session held is kept from others when it ends.
func (s *Session) lockDelay() int64 {
	ns := min(max(s.LockDelay, 0), MaxLockDelay)
	return (ns + 999_999) / 1_000_000
}
