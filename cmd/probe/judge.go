package probe

import (
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// outputPause is the shortest time between two outputs of a state that stays the same. Bodies hold times
// and counters, and each that is told is a log entry which wakes readers.
const outputPause = time.Minute

// tally counts a check's results in a row.
type tally struct {
	successes, failures int32
	told                time.Time // the newest output
}

// judge counts a result and returns the state that follows from it. It is not settled before as many
// results in a row as the probe asks for say the same. A failure never makes a state better.
func (t *tally) judge(p *registry.Probe, present, found registry.CheckStatus) (status registry.CheckStatus, settled bool) {
	if found != registry.Critical {
		t.successes, t.failures = t.successes+1, 0
		return found, t.successes >= p.SuccessBeforePassing
	}
	t.successes, t.failures = 0, t.failures+1
	warns := p.FailuresBeforeWarning
	if warns == 0 {
		warns = p.FailuresBeforeCritical
	}
	switch {
	case present == registry.Critical, t.failures >= p.FailuresBeforeCritical:
		return registry.Critical, true
	case t.failures >= warns:
		return registry.Warning, true
	}
	return present, false
}

// news says whether the registry must be told of a result that is settled. The output of a check that
// passes is as it was when it began to.
func (t *tally) news(present *registry.Check, r result, now time.Time) bool {
	if r.status != present.Status {
		return true
	}
	return r.status != registry.Passing && r.output != present.Output && now.Sub(t.told) >= outputPause
}
