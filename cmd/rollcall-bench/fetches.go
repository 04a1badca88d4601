package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-20419f34/rollcall/cmd/bench/wire"
)

// fetches measures documents on the leader, alone and beside renewals.
func (r *ratiosRun) fetches(ctx context.Context, c *benchCluster, renewed workload, changed benchFleet) error {
	if err := r.smallDelta(ctx, c, changed); err != nil {
		return err
	}
	rig := fetchRig{r, c, renewed, changed.changes()}
	if err := r.inRounds(ctx, rig.delta, rig.full, rig.rebuilds, rig.busy); err != nil {
		return err
	}
	if err := r.profile(ctx, "delta", c, rig.fetching(64, deltaStale)); err != nil {
		return err
	}
	return r.profile(ctx, "full", c, rig.fetching(8, fullStale))
}

type fetchRig struct {
	*ratiosRun
	*benchCluster
	renewed workload
	changed workload
}

// deltaChanges make a delta of some 5 KB, compressed.
const deltaChanges = 40

// smallDelta waits until the registrations so far have left the delta, and puts a few changes into it.
// A quick run takes the delta as it is.
func (r *ratiosRun) smallDelta(ctx context.Context, c *benchCluster, changed benchFleet) error {
	if r.quick {
		return nil
	}
	leader, err := c.leader(ctx)
	if err != nil {
		return err
	}
	target := []string{c.nodes[leader].HTTP}
	if err := r.awaitEmptyDelta(ctx, target); err != nil {
		return err
	}
	few := benchFleet{name: "delta", size: deltaChanges}
	return c.register(ctx, few)
}

// awaitEmptyDelta waits for longer than a change stays in the delta.
func (r *ratiosRun) awaitEmptyDelta(ctx context.Context, target []string) error {
	const (
		longest = 5 * time.Minute
		empty   = 1 << 10 // bytes
	)
	r.say("waiting until the registrations have left the delta")
	limit := time.NewTimer(longest)
	defer limit.Stop()
	for {
		l := httpLoad{targets: target, conns: 1, requests: once(fetch(deltaStale)), want: http.StatusOK}
		result, err := l.closed(ctx)
		if err != nil {
			return err
		}
		if result.right == 1 && result.body < empty {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-limit.C:
			return fmt.Errorf("the delta still has %d bytes after %v", result.body, longest)
		case <-time.After(time.Second):
		}
	}
}

// once is the first request of each connection of a workload.
func once(w workload) workload {
	return func(conn, conns int) func() []byte {
		next, sent := w(conn, conns), false
		return func() []byte {
			if sent {
				return nil
			}
			sent = true
			return next()
		}
	}
}

// delta is a round of delta fetches.
func (r fetchRig) delta(ctx context.Context) error {
	return r.againstFixed(ctx, 64, deltaFixed, fetchedDocument{deltaCached, deltaStale})
}

// full is a round of full fetches.
func (r fetchRig) full(ctx context.Context) error {
	return r.againstFixed(ctx, 8, fullFixed, fetchedDocument{fullCached, fullStale}, fetchedDocument{fullConfirmed, fullLinearizable})
}

// fetchedDocument is what is fetched.
type fetchedDocument struct {
	name figureName
	path string
}

// againstFixed fetches documents, and then as many bytes from the bare handler.
func (r fetchRig) againstFixed(ctx context.Context, conns int, fixed figureName, documents ...fetchedDocument) error {
	var body int64
	for _, d := range documents {
		err := r.steady(ctx, d.name, r.benchCluster, func(leader string) (func(), error) {
			l := r.fetching(conns, d.path)
			l.targets = []string{leader}
			result, err := r.rate(ctx, d.name, l)
			return func() {
				body = result.body
				r.record(d.name, "/s", result.rate)
			}, err
		})
		if err != nil {
			return err
		}
	}
	r.say("the answers have %d bytes", body)
	l := r.fetching(conns, barePath(body))
	l.targets = []string{r.bare}
	return r.recordRate(ctx, fixed, l)
}

func (r fetchRig) fetching(conns int, path string) httpLoad {
	return httpLoad{conns: conns, requests: fetch(path), want: http.StatusOK, warm: r.warm, window: r.window}
}

// rebuilds measures how much longer than others the first full fetch after a change takes.
func (r fetchRig) rebuilds(ctx context.Context) error {
	return r.steady(ctx, rebuild, r.benchCluster, func(leader string) (func(), error) {
		const tries = 21
		c, err := wire.Dial(leader, time.Now().Add(time.Minute))
		if err != nil {
			return nil, err
		}
		defer c.Close()
		change, read := r.changed(0, 1), fetch(fullStale)(0, 1)()
		extra := make([]time.Duration, tries)
		for i := range extra {
			if extra[i], err = firstFetch(c, change(), read); err != nil {
				return nil, fmt.Errorf("%s: %w", rebuild, err)
			}
		}
		slices.Sort(extra)
		return func() { r.record(rebuild, "ms", milliseconds(extra[tries/2])) }, ctx.Err()
	})
}

// firstFetch makes a change and returns the time of the first fetch after it minus that of the second.
func firstFetch(c *wire.Conn, change, read []byte) (time.Duration, error) {
	if _, err := timed(c, change, http.StatusNoContent); err != nil {
		return 0, err
	}
	first, err := timed(c, read, http.StatusOK)
	if err != nil {
		return 0, err
	}
	second, err := timed(c, read, http.StatusOK)
	return first - second, err
}

// timed returns how long an exchange takes.
func timed(c *wire.Conn, request []byte, want int) (time.Duration, error) {
	begin := time.Now()
	status, err := c.Exchange(request)
	if err == nil && status != want {
		err = fmt.Errorf("status %d instead of %d", status, want)
	}
	return time.Since(begin), err
}

// insisted is an exchange that is repeated as long as the answer is 503: nothing was done then, because the
// machine is busy or a leader is missing, and it is not this exchange that is measured. sent is when the last one
// was.
func insisted(ctx context.Context, c *wire.Conn, request []byte, want int) (sent time.Time, err error) {
	for {
		sent = time.Now()
		status, err := c.Exchange(request)
		switch {
		case err != nil:
			return sent, err
		case status == want:
			return sent, nil
		case status != http.StatusServiceUnavailable || !pauseBench(ctx, benchInsist):
			return sent, fmt.Errorf("status %d instead of %d", status, want)
		}
	}
}

// busy is a round of renewals alone, and beside fetches and registrations.
func (r fetchRig) busy(ctx context.Context) error {
	l := r.renewals(256, r.renewed)
	if err := r.recordLeaderRate(ctx, renewQuiet, r.benchCluster, l); err != nil {
		return err
	}
	return r.steady(ctx, renewBusy, r.benchCluster, func(leader string) (func(), error) {
		l.targets = []string{leader}
		result, err := r.beside(ctx, l)
		return func() { r.record(renewBusy, "/s", result.rate) }, err
	})
}

// beside runs a load while others fetch the registry and register, ten times a second each.
func (r fetchRig) beside(ctx context.Context, l httpLoad) (result *loadResult, err error) {
	const each = 10 // per second
	others := []httpLoad{r.fetching(4, fullLinearizable), r.fetching(4, "")}
	others[1].requests, others[1].want = r.changed, http.StatusNoContent
	var g errgroup.Group
	for _, other := range others {
		other.targets = l.targets
		g.Go(func() error {
			beside, err := other.open(ctx, each)
			if err == nil && len(beside.wrong) > 0 {
				err = errors.New(beside.wrong.String())
			}
			return err
		})
	}
	result, err = r.rate(ctx, renewBusy, l)
	if besideErr := g.Wait(); besideErr != nil {
		err = errors.Join(err, fmt.Errorf("%s: %w", renewBusy, besideErr))
	}
	return result, err
}
