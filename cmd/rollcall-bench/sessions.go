package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-20419f34/rollcall/client"
)

// sessionEvery is how often each session of the benchmark is renewed.
const sessionEvery = 10 * time.Second

// sessionCosts measures the CPU that sessions take that are renewed, beyond what the cluster takes with
// the same sessions while nobody renews.
func (r *ratiosRun) sessionCosts(ctx context.Context, c *benchCluster) error {
	ids, err := r.createSessions(ctx, c)
	if err != nil {
		return err
	}
	return r.steady(ctx, cpuSessions, c, func(leader string) (func(), error) {
		idle, err := r.cpuOf(ctx, c)
		if err != nil {
			return nil, err
		}
		busy, err := r.cpuOfRenewing(ctx, c, ids)
		if err != nil {
			return nil, err
		}
		return func() {
			all := 0.0
			for addr, cpu := range busy {
				all += cpu - idle[addr]
			}
			r.record(cpuSessions, "%", busy[leader]-idle[leader])
			r.record(cpuSessionsAll, "%", all)
		}, nil
	})
}

// createSessions creates the sessions, at all nodes.
func (r *ratiosRun) createSessions(ctx context.Context, c *benchCluster) ([]string, error) {
	r.say("creating %d sessions", r.sessions)
	ids := make([]string, r.sessions)
	clients := make([]*client.Client, len(c.nodes))
	for i, addr := range c.addrs() {
		cl, err := benchClient(addr)
		if err != nil {
			return nil, err
		}
		defer cl.Close(ctx)
		clients[i] = cl
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(64)
	for i := range ids {
		g.Go(func() (err error) {
			ids[i], err = benchSession(ctx, clients[i%len(clients)])
			return err
		})
	}
	return ids, g.Wait()
}

// cpuOfRenewing is cpuOf while sessions are renewed, each as often as its client would.
func (r *ratiosRun) cpuOfRenewing(ctx context.Context, c *benchCluster, ids []string) (cpu map[string]float64, err error) {
	load := httpLoad{targets: c.addrs(), conns: 16 * benchNodes, want: http.StatusOK, window: 2*r.window + benchGrace, requests: func(conn, conns int) func() []byte {
		i := conn - conns
		return func() []byte {
			i += conns
			return fmt.Appendf(nil, "PUT /v1/session/renew/%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", ids[i%len(ids)])
		}
	}}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var g errgroup.Group
	g.Go(func() error {
		result, err := load.open(ctx, float64(len(ids))/sessionEvery.Seconds())
		if result == nil {
			return fmt.Errorf("%s: %w", cpuSessions, err)
		}
		r.wronged(cpuSessions, result.wrong)
		return nil // that ctx has ended is no error here
	})
	cpu, err = r.cpuOf(ctx, c)
	stop()
	if loadErr := g.Wait(); err == nil {
		err = loadErr
	}
	return cpu, err
}

// cpuOf is how much of a core the process of each node takes in a window, in percent, by address.
func (r *ratiosRun) cpuOf(ctx context.Context, c *benchCluster) (map[string]float64, error) {
	if !pauseBench(ctx, r.warm) {
		return nil, ctx.Err()
	}
	begin := time.Now()
	before, err := cpuSeconds(ctx, c)
	if err != nil {
		return nil, err
	}
	if !pauseBench(ctx, 2*r.window) {
		return nil, ctx.Err()
	}
	after, err := cpuSeconds(ctx, c)
	seconds := time.Since(begin).Seconds()
	for addr := range after {
		after[addr] = 100 * (after[addr] - before[addr]) / seconds
	}
	return after, err
}

func cpuSeconds(ctx context.Context, c *benchCluster) (map[string]float64, error) {
	cpu := map[string]float64{}
	for _, addr := range c.addrs() {
		seconds, err := nodeMetric(ctx, addr, "process_cpu_seconds_total")
		if err != nil {
			return nil, err
		}
		cpu[addr] = seconds
	}
	return cpu, nil
}
