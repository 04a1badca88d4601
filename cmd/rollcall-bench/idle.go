package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/seed-20419f34/rollcall/cmd/bench/load"
	"github.com/seed-20419f34/rollcall/cmd/bench/wire"
)

// idleCosts measures what an idle cluster uses, and how soon its followers then show a write: polling less often for
// something to send means finding it later.
func (r *ratiosRun) idleCosts(ctx context.Context) error {
	clusters, err := r.clusters(ctx, clusterSpec{name: "idle"})
	if err != nil {
		return err
	}
	defer stopClusters(clusters)
	c := clusters[0]
	return r.inRounds(ctx, func(ctx context.Context) error {
		if err := r.underOneLeader(ctx, idleLeader, c, func(leader string) (func(), error) { return r.leaveAlone(ctx, c, leader) }); err != nil {
			return err
		}
		return r.underOneLeader(ctx, shownP99, c, func(leader string) (func(), error) {
			latencies, err := r.showWrites(ctx, c, leader)
			return func() { r.recordLatencies(latencies, "ms", time.Millisecond, shownP50, shownP99) }, err
		})
	})
}

func (r *ratiosRun) leaveAlone(ctx context.Context, c *benchCluster, leader string) (record func(), err error) {
	if !wire.Pause(ctx, r.idle/10) { // let earlier work come to an end
		return nil, ctx.Err()
	}
	cpu, err := r.cpuOf(ctx, c, r.idle)
	if err != nil {
		return nil, err
	}
	return func() {
		r.record(idleLeader, "%", cpu[leader])
		followers := 0.0
		for addr, used := range cpu {
			if addr != leader {
				followers += used
			}
		}
		r.record(idleFollower, "%", followers/float64(len(cpu)-1))
	}, nil
}

// shownPause lets a cluster come to rest between two lone writes.
const shownPause = 20 * time.Millisecond

// showWrites writes a key at the leader, again and again, and returns how long after sending each write it answered a
// blocking query at a follower.
func (r *ratiosRun) showWrites(ctx context.Context, c *benchCluster, leader string) (*hdrhistogram.Histogram, error) {
	addrs := c.addrs()
	follower := addrs[(slices.Index(addrs, leader)+1)%len(addrs)]
	latencies := load.NewLatency()
	if err := exchangeOnce(leader, putRequest("shown", 0)); err != nil {
		return nil, err
	}
	return latencies, withConn(leader, time.Now().Add(load.BulkLongest), func(conn *wire.Conn) error {
		for i := range r.shown {
			took, err := showWrite(ctx, conn, follower, int64(i)+1)
			if err != nil {
				return fmt.Errorf("write %d: %w", i, err)
			}
			if err := latencies.RecordValue(took.Microseconds()); err != nil {
				return err
			}
		}
		return nil
	})
}

// showWrite writes a new value of the key, and waits until the follower shows it. The follower may show an older value
// before.
func showWrite(ctx context.Context, conn *wire.Conn, follower string, value int64) (took time.Duration, err error) {
	index, _, err := readKey(ctx, follower, "shown", "") // linearizable, so that it includes the previous write
	if err != nil {
		return 0, err
	}
	type shown struct {
		at  time.Time
		err error
	}
	answer := make(chan shown, 1)
	go func() {
		for want, got := fmt.Sprintf("%0128d", value), ""; got != want; {
			if index, got, err = readKey(ctx, follower, "shown", index, "stale"); err != nil {
				break
			}
		}
		answer <- shown{time.Now(), err}
	}()
	if !wire.Pause(ctx, shownPause) {
		return 0, ctx.Err()
	}
	sent := time.Now()
	if _, err := timedExchange(conn, putRequest("shown", value), http.StatusOK); err != nil {
		return 0, err
	}
	s := <-answer
	return s.at.Sub(sent), s.err
}
