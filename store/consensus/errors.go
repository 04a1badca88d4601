package consensus

import (
	"errors"
	"fmt"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
)

// lateness is the error of a batch that the state machine found to be late: that copy of it certainly
// had no effect.
func lateness(res fsm.BatchResult) error {
	if res.Late {
		return fmt.Errorf("%w: %w", port.ErrNotSent, errLate)
	}
	return nil
}

var errNotLeader = errors.New("this node does not lead")

// errLate: a copy of a batch came after its bound.
var errLate = errors.New("after its time")
