package client

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/seed-20419f34/rollcall/client/internal/list"
)

// Defaults of a Guard.
const (
	// DefaultGuardShare is the share of the known instances (of one application, or of all) of which a
	// full answer may lack no more than that.
	DefaultGuardShare = 0.5
	// DefaultGuardHold is a lease's default duration: every living instance has registered again by then.
	DefaultGuardHold = 90 * time.Second
)

// Guard keeps instances in the list that a full answer suddenly lacks: a server that has just been
// restarted with nothing, or one that cannot see the others, must not take every address away. It
// judges full answers only. A removal that the server tells of (a delta's DELETED, a watch's event) is
// believed at once, however many there are.
//
// A full answer is suspect if it is empty while instances are known, or lacks more than Share of the
// instances of an application, or of all. Known is what is in the list, so that what is held counts as
// lacking in the next answer too. The instances that a suspect answer lacks are held then (if it is
// suspect only for some applications, those of them): they stay in the list, and the full answer is asked
// for again at every refresh, until they are in one again, are told to be removed, or were lacking in
// every full answer for Hold.
type Guard struct {
	Share float64       // between 0 and 1; 0: DefaultGuardShare; negative: full answers are believed
	Hold  time.Duration // 0: DefaultGuardHold
}

// Validate reports every mistake at once.
func (g Guard) Validate() error {
	var mistakes []error
	if !(g.Share <= 1) { // NaN too
		mistakes = append(mistakes, fmt.Errorf("Guard.Share %v: it must be between 0 and 1, or negative to believe every answer", g.Share))
	}
	if g.Hold < 0 {
		mistakes = append(mistakes, fmt.Errorf("Guard.Hold %v: it must not be negative (0: %v)", g.Hold, DefaultGuardHold))
	}
	return errors.Join(mistakes...)
}

func (g Guard) withDefaults() list.Guard {
	return list.Guard{Share: cmp.Or(g.Share, DefaultGuardShare), Hold: cmp.Or(g.Hold, DefaultGuardHold)}
}
