package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-20419f34/rollcall/cmd/localcluster"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// toldLease is what most instances have: their heartbeats travel to the other datacenter.
var toldLease = benchLease{interval: 30, duration: 90}

// changeRate is the open loop's, in changes per second.
const changeRate = 1000

// replication measures what two datacenters know of each other, and what it costs.
func (r *ratiosRun) replication(ctx context.Context) error {
	pair, err := r.startPair(ctx)
	if err != nil {
		return fmt.Errorf("two datacenters: %w", err)
	}
	defer pair.stop()
	if err := r.inRounds(ctx, func(ctx context.Context) error { return r.crossings(ctx, pair) }); err != nil {
		return err
	}
	told := pair.fleet("told", r.many)
	told.lease = toldLease
	r.say("registering %d instances", told.size)
	if err := pair.here.register(ctx, told); err != nil {
		return err
	}
	return r.besideHeartbeats(ctx, pair.here, told, func(ctx context.Context) error {
		if err := pair.awaitEqual(ctx); err != nil {
			return err
		}
		if err := r.inRounds(ctx, func(ctx context.Context) error { return r.beatCosts(ctx, pair) }); err != nil {
			return err
		}
		return r.cutLink(ctx, pair, told)
	})
}

// beatBursts is how often a second heartbeats are sent, many at the same time. If each came by itself, the
// leader's log would take many times the CPU that a peer does, and now more, now less of it, by how many
// share an entry.
const beatBursts = 10

// besideHeartbeats measures while every instance of a fleet sends its heartbeats, as many a second as
// are due, by an open loop.
func (r *ratiosRun) besideHeartbeats(ctx context.Context, c *benchCluster, f benchFleet, measure func(context.Context) error) error {
	rate := float64(f.size) / float64(f.lease.interval)
	burst := max(1, int(rate/beatBursts))
	l := httpLoad{targets: c.addrs(), conns: burst, requests: f.renewals(), want: http.StatusOK, burst: burst}
	return r.beside(ctx, "heartbeats", l, rate, measure)
}

// beside measures while a load goes on.
func (r *ratiosRun) beside(ctx context.Context, name figureName, l httpLoad, rate float64, measure func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	l.window = r.cut + pairLimit
	var g errgroup.Group
	g.Go(func() error {
		result, err := l.open(ctx, rate)
		if result == nil {
			return fmt.Errorf("%s beside replication: %w", name, err)
		}
		r.wronged(name, result.wrong)
		return nil // that ctx has ended is no error here
	})
	err := measure(ctx)
	stop()
	if loadErr := g.Wait(); err == nil {
		err = loadErr
	}
	return err
}

// beatTurns is how often in a round the peer is paused. The leader's CPU is many times what the peer
// costs, and drifts.
const beatTurns = 4

// beatCosts measures the CPU that the leader takes with its peer paused and not, in turns.
func (r *ratiosRun) beatCosts(ctx context.Context, p *benchPair) error {
	return r.steady(ctx, cpuForPeer, p.here, func(leader string) (func(), error) {
		var paused, sending, told float64
		for range beatTurns {
			if err := p.pause(ctx); err != nil {
				return nil, err
			}
			cpu, _, err := r.beatCost(ctx, p, leader)
			if err != nil {
				return nil, err
			}
			paused += cpu / beatTurns
			if err := p.resume(ctx); err != nil {
				return nil, err
			}
			cpu, rate, err := r.beatCost(ctx, p, leader)
			if err != nil {
				return nil, err
			}
			sending += cpu / beatTurns
			told += rate / beatTurns
		}
		return func() {
			r.record(cpuPaused, "%", paused)
			r.record(cpuSending, "%", sending)
			r.record(cpuForPeer, "%", sending-paused)
			r.record(beatsTold, "/s", told)
		}, nil
	})
}

// beatCost is how much of a core a node's process takes, in percent, and of how many heartbeats a second
// the second datacenter is told meanwhile.
func (r *ratiosRun) beatCost(ctx context.Context, p *benchPair, node string) (cpu, told float64, err error) {
	if !pauseBench(ctx, r.warm) {
		return 0, 0, ctx.Err()
	}
	begin := time.Now()
	before, err := p.beatsSoFar(ctx, node)
	if err != nil {
		return 0, 0, err
	}
	if !pauseBench(ctx, r.window/2) {
		return 0, 0, ctx.Err()
	}
	after, err := p.beatsSoFar(ctx, node)
	seconds := time.Since(begin).Seconds()
	return 100 * (after.cpu - before.cpu) / seconds, (after.told - before.told) / seconds, err
}

// beatCount is what a node has done since its start.
type beatCount struct {
	cpu  float64 // seconds
	told float64 // heartbeats, to the peer
}

func (p *benchPair) beatsSoFar(ctx context.Context, node string) (n beatCount, err error) {
	peer, err := onlyPeer(ctx, p.here)
	if err != nil {
		return n, err
	}
	n.told = float64(peer.Sent["heartbeat"])
	n.cpu, err = nodeMetric(ctx, node, "process_cpu_seconds_total")
	return n, err
}

// benchAct is who pauses peers.
var benchAct = registry.Act{Author: "bench"}

// pause stops the sending to the second datacenter.
func (p *benchPair) pause(ctx context.Context) error {
	cl, err := p.here.client()
	if err != nil {
		return err
	}
	return cl.PausePeer(ctx, localcluster.DatacenterName(2), benchAct)
}

// resume lets it go on, and waits until it does.
func (p *benchPair) resume(ctx context.Context) error {
	cl, err := p.here.client()
	if err != nil {
		return err
	}
	if err := cl.ResumePeer(ctx, localcluster.DatacenterName(2), benchAct); err != nil {
		return err
	}
	return awaitSent(ctx, p.here)
}

// nodeMetric asks a node for one of its metrics without labels.
func nodeMetric(ctx context.Context, node, name string) (float64, error) {
	text, err := getText(ctx, "http://"+node+"/metrics")
	if err != nil {
		return 0, err
	}
	return metricValue(text, name)
}
