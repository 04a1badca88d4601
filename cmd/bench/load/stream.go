package load

import (
	"context"
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
}

// streams are all that is sent while the load runs, by who knows what to send.
func (l *Load) streams() []*stream {
	var all []*stream
	all = append(all, l.fleetStreams()...)
	all = append(all, l.keyStreams()...)
	return append(all, l.fetchStreams()...)
}
