package load

import (
	"context"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// caller is one client: it has a home node, keep-alive connections, and at most one call under way. One
// goroutine uses it at a time.
type caller struct {
	number int // unlike that of any other caller of the load
	turn   int // its place among the callers of its stream, from 0
	home   int // turn modulo the nodes
	load   *Load
	bodies bool // of answers are kept
}

// newCallers makes n clients whose homes are the nodes in turn. Close each when it is not needed any more.
func (l *Load) newCallers(n int) []*caller { panic("not written") }

// close gives the connections back.
func (c *caller) close() { panic("not written") }

// answer is how a call ended.
type answer struct {
	outcome trial.Outcome
	status  int    // 0: none came
	node    int    // that was asked last
	body    []byte // of the answer, valid until the caller's next call
	asked   time.Time
	done    time.Time
	// doubtful says that an earlier try of this call, too, may have taken effect, or may still do so.
	doubtful bool
}

// call sends a request to the caller's home node and, unless it is pinned there, to the next nodes that it
// can reach, as stock clients do, while they take nothing, give no answer in time or answer 5xx. The outcome is
// that of the last try, but of a write that was not answered (Refused, Unreached) Unknown if an earlier try may
// have taken effect.
func (c *caller) call(ctx context.Context, request []byte, pinned bool) answer { panic("not written") }

// record counts one ended call of a client of home that was due at due. Calls before Run's begin count nowhere,
// but as Renewals.
func (l *Load) record(o trial.Operation, home int, due time.Time, a answer) { panic("not written") }
