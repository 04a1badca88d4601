package load

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// source makes the calls of one operation.
type source interface {
	// operation is what its calls are recorded as; a source may record some of its calls as another one.
	operation() trial.Operation
	// send makes the call that was due for the caller at due, if there is anything to do, by c.call, and records
	// what came of it by Load.record. It is called by one goroutine for each caller.
	send(ctx context.Context, c *caller, due time.Time)
}

// stream is a source and how often it is due. Due times go to its callers' homes in turn.
type stream struct {
	source
	name   string  // of its rate in scenario.Load, for SetRates; "": its rate never changes
	rate   float64 // per second
	fixed  int     // how many callers it has; 0: as many as Config.Connections says
	bodies bool    // its source looks at the bodies of answers
	// lasting streams go on after Run's length, until Stop.
	lasting bool
	// cycle is after how many due times the first caller is due again, whoever was due last; 0: it does not
	// matter which caller of a home it is. With a cycle of all instances, caller c of n sends for the instances c, c+n, c+2n …
	// in this order, and each of them is due at the same distances.
	cycle int

	callers  []*caller
	queues   []*queue // caller i takes from queue i modulo their number
	schedule schedule // the pacer's
	handed   int      // how many times were handed to the callers
}

// hand gives a time to the home, or the caller, whose turn it is.
func (s *stream) hand(due time.Time) {
	turn := s.handed
	if s.cycle > 0 {
		turn %= s.cycle
	}
	s.queues[turn%len(s.queues)].put(due)
	s.handed++
}

// close lets the callers end when they have sent what was due.
func (s *stream) close() {
	for _, q := range s.queues {
		q.close()
	}
}

// Callers of each node that a stream has which says nothing of them: as many as calls come due within a Timeout.
// If the node gives no answers, all of these wait at the same time, as clients do that know nothing of each
// other.
const (
	fewestCallers = 8
	mostCallers   = 256
)

// closedCallers is how many clients of each node a closed loop has, unless Config.Connections says otherwise.
const closedCallers = 8

// streams are all that is sent while the load runs, by who knows what to send, with their callers.
func (l *Load) streams() []*stream {
	all := slices.Concat(l.fleetStreams(), l.keyStreams(), l.fetchStreams())
	for _, s := range all {
		s.callers = l.newCallers(l.callersOf(s))
		for _, c := range s.callers {
			c.bodies = s.bodies
		}
		s.queues = make([]*queue, l.queuesOf(s))
		for i := range s.queues {
			s.queues[i] = newQueue()
		}
	}
	return all
}

// callersOf is how many callers a stream has.
func (l *Load) callersOf(s *stream) int {
	nodes := len(l.Nodes)
	switch {
	case s.fixed > 0:
		return s.fixed
	case l.Connections > 0:
		return l.Connections
	case l.Closed:
		return closedCallers * nodes
	}
	each := int(math.Ceil(s.rate * l.Timeout.Seconds() / float64(nodes)))
	return nodes * min(max(each, fewestCallers), mostCallers)
}

// queuesOf is how many queues the callers of a stream share: one for each home, so that no call waits while a
// client of its home is idle; but each caller has its own where it matters whose turn it is.
func (l *Load) queuesOf(s *stream) int {
	if s.cycle > 0 {
		return len(s.callers)
	}
	return min(len(s.callers), len(l.Nodes))
}
