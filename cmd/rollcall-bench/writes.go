package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-20419f34/rollcall/cmd/bench/load"
	"github.com/seed-20419f34/rollcall/cmd/bench/wire"
	"github.com/seed-20419f34/rollcall/internal/localcluster"
)

// pacedRate is the open loop's, in renewals per second.
const pacedRate = 10_000

// writeRig is the clusters and baselines on which writes are measured.
type writeRig struct {
	*ratiosRun
	batching, singly *benchCluster // default settings; one log entry per write
	wal              *benchCluster // raft.log wal
	local            *benchCluster // without consensus
	raft             *bareRaftCluster
	renewed          load.Workload
	changed          benchFleet
}

// writesAndFetches measures everything that needs a registry of ordinary size.
func (r *ratiosRun) writesAndFetches(ctx context.Context) error {
	renewed := benchFleet{name: "renewed", size: r.instances}
	changed := benchFleet{name: "changed", size: min(2560, r.instances)}
	rig := writeRig{ratiosRun: r, renewed: renewed.renewals(), changed: changed}
	var err error
	if rig.raft, err = startBareRaft(filepath.Join(r.dir, "raft"), r.defaults.Test.CommitTimeout); err != nil {
		return err
	}
	defer rig.raft.stop()
	fleets := []benchFleet{renewed, changed}
	clusters, err := r.clusters(ctx,
		clusterSpec{name: "default", fleets: fleets},
		clusterSpec{name: "one-entry-per-write", fleets: fleets, settings: []string{"--test-no-batching"}},
		clusterSpec{name: "raft-log-wal", fleets: fleets[:1], settings: []string{"--raft-log", "wal"}},
		clusterSpec{name: "without-consensus", mode: localcluster.AP, fleets: fleets[:1]})
	if err != nil {
		return err
	}
	defer stopClusters(clusters)
	rig.batching, rig.singly, rig.wal, rig.local = clusters[0], clusters[1], clusters[2], clusters[3]
	if err := r.inRounds(ctx, rig.renews, rig.registers()); err != nil {
		return err
	}
	if err := r.profile(ctx, "renew", rig.batching, r.renewals(256, rig.renewed)); err != nil {
		return err
	}
	if err := r.profile(ctx, "register", rig.batching, rig.reregistrations()); err != nil {
		return err
	}
	if err := r.profile(ctx, "renew-wal", rig.wal, r.renewals(256, rig.renewed)); err != nil {
		return err
	}
	if err := r.profile(ctx, "renew-ap", rig.local, r.renewals(256, rig.renewed)); err != nil {
		return err
	}
	rig.raft.stop()
	rig.singly.stop()
	rig.wal.stop()
	rig.local.stop()
	if err := r.fetches(ctx, rig.batching, rig.renewed, changed); err != nil {
		return err
	}
	rig.batching.stop()
	atOnce, err := r.cluster(ctx, clusterSpec{name: "renewals-at-once", fleets: fleets[:1], settings: []string{"--commit-renewal-wait=0s"}})
	if err != nil {
		return err
	}
	defer atOnce.stop()
	return r.inRounds(ctx, fetchRig{r, atOnce, rig.renewed, nil}.fair)
}

// inRounds runs each part as often as the plan says before the next one.
func (r *ratiosRun) inRounds(ctx context.Context, parts ...func(context.Context) error) error {
	for _, part := range parts {
		for range r.rounds {
			if err := part(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// registers is a round of registrations.
func (r writeRig) registers() func(context.Context) error {
	l := r.reregistrations()
	return r.measure(loadStep{name: register256, at: r.batching, Bulk: l}, loadStep{name: registerSolo, at: r.singly, Bulk: l})
}

func (r writeRig) reregistrations() load.Bulk {
	l := r.renewals(256, r.changed.changes())
	l.Want = http.StatusNoContent
	return l
}

// renews is a round of renewals: one at a time, compared with one Apply at a time of the library underneath; in an
// open loop; and over more and more connections, compared with the bare handler and with renewals without consensus.
func (r writeRig) renews(ctx context.Context) error {
	alone := loadStep{name: loneRenew, at: r.batching, Bulk: r.renewals(1, r.renewed), record: func(result *load.BulkResult) {
		r.record(loneRenew, "ms", milliseconds(result.Quantile(50)))
	}}
	if err := r.measure(alone)(ctx); err != nil {
		return err
	}
	apply, err := r.raft.apply(ctx)
	if err != nil {
		return err
	}
	r.record(loneApply, "ms", apply)
	l := r.renewals(256, r.renewed)
	paced := loadStep{name: pacedP99, at: r.batching, Bulk: l, rate: pacedRate, record: func(result *load.BulkResult) {
		r.recordLatencies(result.Latency, "ms", time.Millisecond, pacedP50, pacedP99)
	}}
	spread := loadStep{name: renewSpread, at: r.batching, Bulk: l}
	spread.Targets = r.batching.addrs()
	steps := append([]loadStep{paced}, r.over(64, renew64, bare64, renewAP64)...)
	steps = append(steps, r.over(256, renew256, bare256, renewAP256)...)
	steps = append(steps, loadStep{name: renewWAL256, at: r.wal, Bulk: l}, loadStep{name: renewSingly, at: r.singly, Bulk: l}, spread)
	return r.measure(append(steps, r.over(1024, renew1024, bare1024, renewAP1024)...)...)(ctx)
}

// over returns renewals, the bare handler and renewals without consensus over a number of connections.
func (r writeRig) over(conns int, renew, bare, renewAP figureName) []loadStep {
	l := r.renewals(conns, r.renewed)
	besides := l
	besides.Targets = []string{r.bare}
	return []loadStep{{name: renew, at: r.batching, Bulk: l}, {name: bare, Bulk: besides}, {name: renewAP, at: r.local, Bulk: l}}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// fetches measures documents on the leader, alone and during renewals.
func (r *ratiosRun) fetches(ctx context.Context, c *benchCluster, renewed load.Workload, changed benchFleet) error {
	if err := c.register(ctx, benchFleet{name: "large", size: inLarge, inApp: inLarge}); err != nil {
		return err
	}
	if err := r.smallDelta(ctx, c, changed); err != nil {
		return err
	}
	rig := fetchRig{r, c, renewed, changed.changes()}
	if err := r.inRounds(ctx, rig.delta, rig.full, rig.lists, rig.rebuildsOf(rebuild), rig.busy); err != nil {
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
	renewed load.Workload
	changed load.Workload
}

// deltaChanges make a delta of some 5 KB, compressed.
const deltaChanges = 40

// smallDelta waits until the registrations so far have left the delta, and puts a few changes into it. A quick run
// uses the delta as it is.
func (r *ratiosRun) smallDelta(ctx context.Context, c *benchCluster, changed benchFleet) error {
	if r.quick {
		return nil
	}
	leader, err := c.leaderAddr(ctx)
	if err != nil {
		return err
	}
	target := []string{leader}
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
		empty   = 1 << 10         // bytes
		pause   = 2 * time.Second // between looks, each of which may go through all instances
	)
	r.reportProgress("waiting until the registrations have left the delta")
	return await(ctx, "the delta is empty", longest, func(ctx context.Context) (bool, error) {
		l := load.Bulk{Targets: target, Conns: 1, Requests: firstRequests(1, fetchesOf(deltaStale)), Want: http.StatusOK}
		result, err := l.Closed(ctx)
		if err != nil {
			return false, err
		}
		if result.Body >= empty {
			wire.Pause(ctx, pause)
			return false, fmt.Errorf("it has %d bytes", result.Body)
		}
		return result.Right == 1, nil
	})
}

// delta is a round of delta fetches.
func (r fetchRig) delta(ctx context.Context) error {
	return r.againstFixed(ctx, 64, deltaFixed, fetchedDocument{deltaCached, deltaStale})
}

// full is a round of full fetches.
func (r fetchRig) full(ctx context.Context) error {
	return r.againstFixed(ctx, 8, fullFixed, fetchedDocument{fullCached, fullStale}, fetchedDocument{fullConfirmed, fullLinearizable})
}

// inLarge is how many instances the application whose lists are fetched has.
const inLarge = 1000

// lists is a round of fetches of one application's instances, in both APIs.
func (r fetchRig) lists(ctx context.Context) error {
	return errors.Join(
		r.againstFixed(ctx, 64, appFixed, fetchedDocument{appCached, appStale}),
		r.againstFixed(ctx, 64, healthFixed, fetchedDocument{healthCached, healthStale}))
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
		fetched := loadStep{name: d.name, at: r.benchCluster, Bulk: r.fetching(conns, d.path), record: func(result *load.BulkResult) {
			body = result.Body
			r.record(d.name, "/s", result.Rate)
		}}
		if err := r.measure(fetched)(ctx); err != nil {
			return err
		}
	}
	r.reportProgress("the answers have %d bytes", body)
	l := r.fetching(conns, barePath(body))
	l.Targets = []string{r.bare}
	return r.measure(loadStep{name: fixed, Bulk: l})(ctx)
}

func (r fetchRig) fetching(conns int, path string) load.Bulk {
	return load.Bulk{Conns: conns, Requests: fetchesOf(path), Want: http.StatusOK, Warm: r.warm, Window: r.window}
}

// rebuildsOf measures how much longer than others the first full fetch after a change takes.
func (r fetchRig) rebuildsOf(name figureName) func(context.Context) error {
	return func(ctx context.Context) error { return r.rebuilds(ctx, name) }
}

func (r fetchRig) rebuilds(ctx context.Context, name figureName) error {
	return r.underOneLeader(ctx, name, r.benchCluster, func(leader string) (func(), error) {
		const tries = 21
		// Made before the connection: that takes seconds for a million, and a server closes a silent connection after
		// 5 s.
		change, read := r.changed(0, 1), fetchesOf(fullStale)(0, 1)()
		c, err := wire.Dial(leader, time.Now().Add(time.Minute))
		if err != nil {
			return nil, err
		}
		defer c.Close()
		extra := make([]time.Duration, tries)
		for i := range extra {
			if extra[i], err = firstFetch(c, change(), read); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		slices.Sort(extra)
		return func() { r.record(name, "ms", milliseconds(extra[tries/2])) }, ctx.Err()
	})
}

// firstFetch makes a change and returns the time of the first fetch after it minus that of the second.
func firstFetch(c *wire.Conn, change, read []byte) (time.Duration, error) {
	if _, err := timedExchange(c, change, http.StatusNoContent); err != nil {
		return 0, err
	}
	first, err := timedExchange(c, read, http.StatusOK)
	if err != nil {
		return 0, err
	}
	second, err := timedExchange(c, read, http.StatusOK)
	return first - second, err
}

// timedExchange returns how long an exchange takes.
func timedExchange(c *wire.Conn, request []byte, want int) (time.Duration, error) {
	begin := time.Now()
	status, err := c.Exchange(request)
	if err == nil && status != want {
		err = fmt.Errorf("status %d instead of %d", status, want)
	}
	return time.Since(begin), err
}

// exchangeUntilServed repeats an exchange as long as the response is 503: nothing was done then, because the machine
// is busy or the leader missing, and such an exchange should not be measured. sent is when the last request was sent.
func exchangeUntilServed(ctx context.Context, c *wire.Conn, request []byte, want int) (sent time.Time, err error) {
	for {
		sent = time.Now()
		status, err := c.Exchange(request)
		switch {
		case err != nil:
			return sent, err
		case status == want:
			return sent, nil
		case status != http.StatusServiceUnavailable || !wire.Pause(ctx, load.InsistPause):
			return sent, fmt.Errorf("status %d instead of %d", status, want)
		}
	}
}

// busy is a round of renewals alone, and during fetches and registrations.
func (r fetchRig) busy(ctx context.Context) error {
	l := r.renewals(256, r.renewed)
	if err := r.measure(loadStep{name: renewQuiet, at: r.benchCluster, Bulk: l})(ctx); err != nil {
		return err
	}
	return r.underOneLeader(ctx, renewBusy, r.benchCluster, func(leader string) (func(), error) {
		return r.besideOthers(ctx, loadStep{name: renewBusy, Bulk: l}, leader)
	})
}

// Heartbeats during fetches of large lists: how many a second, and how many connections fetch without a pause.
const (
	fairRate  = 1000
	fairConns = 16
)

// fair is a round of renewals while connections fetch the registry, and while as many fetch as many bytes from the
// bare handler. Its cluster lets no renewal wait for others, which would hide what a fetch adds.
func (r fetchRig) fair(ctx context.Context) error {
	return r.underOneLeader(ctx, fairP99, r.benchCluster, func(leader string) (func(), error) {
		ours, err := r.beatsBeside(ctx, leader, leader, fullStale)
		if err != nil {
			return nil, err
		}
		bare, err := r.beatsBeside(ctx, leader, r.bare, barePath(ours.fetched))
		if err != nil {
			return nil, err
		}
		return func() {
			r.record(fairP99, "ms", milliseconds(ours.p99))
			r.record(fairBareP99, "ms", milliseconds(bare.p99))
			r.record(fairFetched, "/s", ours.rate)
			r.record(fairBareFetched, "/s", bare.rate)
		}, nil
	})
}

// beside is the result of renewals during fetches.
type beside struct {
	p99     time.Duration // of the renewals
	rate    float64       // fetches per second
	fetched int64         // bytes per fetch
}

// beatsBeside sends renewals to the leader while connections fetch a document from a server.
func (r fetchRig) beatsBeside(ctx context.Context, leader, server, path string) (b beside, err error) {
	var g errgroup.Group
	g.Go(func() error {
		l := r.fetching(fairConns, path)
		l.Targets = []string{server}
		result, err := l.Closed(ctx)
		if err == nil {
			b.rate, b.fetched = result.Rate, result.Body
			r.countWrong(fairP99, result.Wrong)
		}
		return err
	})
	g.Go(func() error {
		l := r.renewals(64, r.renewed)
		l.Targets = []string{leader}
		result, err := l.Open(ctx, fairRate)
		if err == nil {
			b.p99 = result.Quantile(99)
			r.countWrong(fairP99, result.Wrong)
		}
		return err
	})
	return b, g.Wait()
}

// besideOthers sends a load while others fetch the registry and register, ten times a second each.
func (r fetchRig) besideOthers(ctx context.Context, s loadStep, leader string) (record func(), err error) {
	const each = 10 // per second
	others := []load.Bulk{r.fetching(4, fullLinearizable), r.fetching(4, "")}
	others[1].Requests, others[1].Want = r.changed, http.StatusNoContent
	var g errgroup.Group
	for _, other := range others {
		other.Targets = []string{leader}
		g.Go(func() error {
			result, err := other.Open(ctx, each)
			if err == nil && len(result.Wrong) > 0 {
				err = errors.New(result.Wrong.String())
			}
			return err
		})
	}
	record, err = r.send(ctx, s, leader)
	if besideErr := g.Wait(); besideErr != nil {
		err = errors.Join(err, fmt.Errorf("%s: %w", s.name, besideErr))
	}
	return record, err
}
