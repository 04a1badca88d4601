package load

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// heartbeatClients is how many clients of each node send the heartbeats of instances that last. Up to so many
// instances have each its own.
const heartbeatClients = 256

// callers is how many clients send heartbeats.
func (f *fleet) callers() int {
	most := f.load.Connections
	if most == 0 {
		most = heartbeatClients * len(f.load.Nodes)
	}
	return max(1, min(len(f.lasting), most))
}

// fleetStreams are the heartbeats of the instances, and the registrations and cancels of those that come and go.
func (l *Load) fleetStreams() []*stream {
	var streams []*stream
	if n := len(l.fleet.lasting); n > 0 {
		callers := l.fleet.callers()
		streams = append(streams, &stream{
			source: &heartbeats{fleet: l.fleet, turns: make([]int, callers)},
			rate:   float64(n) / l.fleet.interval.Seconds(), fixed: callers, lasting: true, cycle: n,
		})
	}
	return append(streams, &stream{source: churn{l.fleet}, name: "registers", rate: l.Load.Registers})
}

// heartbeats are those of the lasting instances. Caller c of n renews the instances c, c+n, c+2n …
type heartbeats struct {
	fleet *fleet
	turns []int // by caller: how many instances it has passed in this round
}

func (h *heartbeats) operation() trial.Operation { return trial.Heartbeat }

// send renews the caller's next instance. One that is not registered now, or whose client does something else,
// has missed its turn.
func (h *heartbeats) send(ctx context.Context, c *caller, due time.Time) {
	i := h.fleet.lasting[c.turn+h.turns[c.turn]*len(h.turns)]
	h.turns[c.turn]++
	if c.turn+h.turns[c.turn]*len(h.turns) >= len(h.fleet.lasting) {
		h.turns[c.turn] = 0
	}
	if h.fleet.take(i) {
		h.fleet.release(i, h.fleet.renew(ctx, c, i, due))
	}
}

// churn registers instances that renew their leases like the others, and cancel after their stay.
type churn struct{ fleet *fleet }

func (churn) operation() trial.Operation { return trial.Register }

func (s churn) send(ctx context.Context, c *caller, due time.Time) {
	f := s.fleet
	number := int(f.came.Add(1))
	i := f.describe(fmt.Sprintf("%s-CHURN", f.load.Prefix), number, c.home)
	i.leaves, i.busy = due.Add(f.stay), true
	f.release(i, f.enter(ctx, c, i, due))
}
