package load

import (
	"context"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// caller is one client: it has a home node, keep-alive connections, and at most one call under way. One
// goroutine uses it.
type caller struct {
	number int
	home   int
	load   *Load
}

// answer is how a call ended.
type answer struct {
	outcome trial.Outcome
	status  int    // 0: none came
	node    int    // that was asked last
	body    []byte // of the answer, valid until the caller's next call
	asked   time.Time
	done    time.Time
}

// call sends a request to the caller's home node and, unless it is pinned there, to the next nodes that it
// can reach, as stock clients do, while they take nothing, give no answer in time or answer 5xx. The outcome is
// that of the last try, but Unknown if any try may have taken effect.
func (c *caller) call(ctx context.Context, request []byte, pinned bool) answer { panic("not written") }

// source makes the calls of one operation.
type source interface {
	// operation is what its calls are recorded as; a source may record some of its calls as another one.
	operation() trial.Operation
	// send makes the call that was due for the caller at due, if there is anything to do, by c.call, and records
	// what came of it by Load.record.
	send(ctx context.Context, c *caller, due time.Time)
}

// record counts one ended call of a client of home that was due at due.
func (l *Load) record(o trial.Operation, home int, due time.Time, a answer) { panic("not written") }
