package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

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

// besideHeartbeats measures while every instance of a fleet sends its heartbeats, as many a second as
// they are due, by an open loop.
func (r *ratiosRun) besideHeartbeats(ctx context.Context, c *benchCluster, f benchFleet, measure func(context.Context) error) error {
	rate := float64(f.size) / float64(f.lease.interval)
	l := httpLoad{targets: c.addrs(), requests: f.renewals(), want: http.StatusOK}
	return r.beside(ctx, "heartbeats", l, rate, measure)
}

// beside measures while a load goes on.
func (r *ratiosRun) beside(ctx context.Context, name figureName, l httpLoad, rate float64, measure func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	l.conns, l.window = 30, r.cut+pairLimit
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

// beatCosts measures the CPU that the leader takes with its peer paused and not, right after each other.
func (r *ratiosRun) beatCosts(ctx context.Context, p *benchPair) error {
	return r.steady(ctx, cpuForPeer, p.here, func(leader string) (func(), error) {
		if err := p.pause(ctx); err != nil {
			return nil, err
		}
		paused, err := r.cpuShare(ctx, leader)
		if err != nil {
			return nil, err
		}
		if err := p.resume(ctx); err != nil {
			return nil, err
		}
		before, err := p.beatsTold(ctx)
		if err != nil {
			return nil, err
		}
		begin := time.Now()
		sending, err := r.cpuShare(ctx, leader)
		if err != nil {
			return nil, err
		}
		after, err := p.beatsTold(ctx)
		return func() {
			r.record(cpuPaused, "%", paused)
			r.record(cpuSending, "%", sending)
			r.record(cpuForPeer, "%", sending-paused)
			r.record(beatsTold, "/s", float64(after-before)/time.Since(begin).Seconds())
		}, err
	})
}

// beatsTold is how many heartbeats the second datacenter was told of.
func (p *benchPair) beatsTold(ctx context.Context) (uint64, error) {
	peer, err := onlyPeer(ctx, p.here)
	return peer.Sent["heartbeat"], err
}

// benchAct is who pauses peers.
var benchAct = registry.Act{Author: "bench"}

// pause stops the sending to the second datacenter.
func (p *benchPair) pause(ctx context.Context) error {
	cl, err := p.here.client()
	if err != nil {
		return err
	}
	return cl.PausePeer(ctx, datacenterName(2), benchAct)
}

// resume lets it go on, and waits until it does.
func (p *benchPair) resume(ctx context.Context) error {
	cl, err := p.here.client()
	if err != nil {
		return err
	}
	if err := cl.ResumePeer(ctx, datacenterName(2), benchAct); err != nil {
		return err
	}
	return p.awaitEqual(ctx)
}

// cpuShare is how much of a core a node's process takes, in percent, over some windows: what it does
// now and then, such as collecting garbage, is to be in it.
func (r *ratiosRun) cpuShare(ctx context.Context, node string) (float64, error) {
	if !pauseBench(ctx, r.warm) {
		return 0, ctx.Err()
	}
	begin := time.Now()
	before, err := nodeMetric(ctx, node, "process_cpu_seconds_total")
	if err != nil {
		return 0, err
	}
	if !pauseBench(ctx, 2*r.window) {
		return 0, ctx.Err()
	}
	after, err := nodeMetric(ctx, node, "process_cpu_seconds_total")
	return 100 * (after - before) / time.Since(begin).Seconds(), err
}

// nodeMetric asks a node for one of its metrics without labels.
func nodeMetric(ctx context.Context, node, name string) (float64, error) {
	text, err := getText(ctx, "http://"+node+"/metrics")
	if err != nil {
		return 0, err
	}
	return metricValue(text, name)
}
