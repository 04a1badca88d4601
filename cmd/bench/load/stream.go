package load

import (
	"context"
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

// stream is a source and how often it is due. Due times go to its callers in turn.
type stream struct {
	source
	name   string  // of its rate in scenario.Load, for SetRates; "": its rate never changes
	rate   float64 // per second
	fixed  int     // how many callers it has; 0: as many as Config.Connections says
	bodies bool    // its source looks at the bodies of answers
	// lasting streams go on after Run's length, until Stop.
	lasting bool
	// cycle is after how many due times the first caller is due again, whoever was due last; 0: all callers
	// are due equally often. With a cycle of all instances, caller c of n sends for the instances c, c+n, c+2n …
	// in this order, and each of them is due at the same distances.
	cycle int

	callers  []*caller
	queues   []*queue // of the callers
	schedule schedule // the pacer's
	handed   int      // how many times were handed to the callers
}

// hand gives a time to the caller whose turn it is.
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

// Callers of a stream that says nothing of them, of each node. A call that finds no idle caller waits, which
// clients that know nothing of each other would not.
const (
	fewestCallers = 8
	mostCallers   = 64
	callerPeriod  = 250 * time.Millisecond // a caller is due no more often, if there may be more callers
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
			s.queues = append(s.queues, newQueue())
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
	each := int(s.rate * callerPeriod.Seconds() / float64(nodes))
	return nodes * min(max(each, fewestCallers), mostCallers)
}
