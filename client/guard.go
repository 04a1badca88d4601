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
	// DefaultGuardShare is the largest share of the known instances (of one application, or of all) that a full
	// response may lack and still be believed.
	DefaultGuardShare = 0.5
	// DefaultGuardHold is a lease's default duration: every living instance has registered again by then.
	DefaultGuardHold = 90 * time.Second
)

// Guard keeps instances in the list that a full response suddenly lacks: a server that has just been restarted with
// nothing, or one that cannot see the others, must not take every address away. It judges only full responses. A
// removal that the server reports (a delta's DELETED, a watch's event) is believed at once, however many there are.
//
// A full response is suspect if it is empty while instances are known, or lacks more than Share of the instances of
// an application, or of all. An instance is known if it is in the list, so held instances count as lacking in the
// next response too. The instances that a suspect response lacks (if it is suspect only for some applications, those
// of them) are then held: they stay in the list, and everything is fetched again at every refresh, until a response
// contains them again, the server reports their removal, or every full response lacked them for Hold.
type Guard struct {
	Share float64       // between 0 and 1; 0 means DefaultGuardShare; if negative, full responses are believed
	Hold  time.Duration // 0 means DefaultGuardHold
}

// Validate reports every mistake at once.
func (g Guard) Validate() error {
	var mistakes []error
	if !(g.Share <= 1) { // also catches NaN
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
