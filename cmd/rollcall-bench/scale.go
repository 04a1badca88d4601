package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-20419f34/rollcall/cmd/bench/load"
	"github.com/seed-20419f34/rollcall/cmd/bench/wire"
	"github.com/seed-20419f34/rollcall/internal/localcluster"
)

// inManyApp is how many instances an application of a large registry has: a million are in 20,000.
const inManyApp = 50

// scale measures what a large registry costs.
func (r *ratiosRun) scale(ctx context.Context) error {
	few := benchFleet{name: "few", size: r.few, inApp: inManyApp, lease: largeLease}
	many := benchFleet{name: "many", size: r.many, inApp: inManyApp, lease: largeLease}
	clusters, err := r.clusters(ctx,
		clusterSpec{name: "few-instances", fleets: []benchFleet{few}, settings: []string{"--commit-renewal-wait=0s"}},
		clusterSpec{name: "many-instances", fleets: []benchFleet{many}, settings: []string{
			"--commit-renewal-wait=0s", fmt.Sprintf("--limits-instances-total=%d", 2*r.many)}}) // see savings
	if err != nil {
		return err
	}
	defer stopClusters(clusters)
	small, large := clusters[0], clusters[1]
	err = r.inRounds(ctx, r.measure(
		loadStep{name: renewFew, at: small, Bulk: r.renewals(256, few.renewals())},
		loadStep{name: renewMany, at: large, Bulk: r.renewals(256, many.renewals())}))
	if err != nil {
		return err
	}
	small.stop()
	rig := fetchRig{r, large, many.renewals(), many.changes()}
	for _, measure := range []func(context.Context) error{
		rig.wholeDelta, rig.rebuildsOf(rebuildMany), rig.largeReads, rig.savings, rig.evictions,
		func(ctx context.Context) error { return r.heaps(ctx, large) },
		func(ctx context.Context) error { return r.restarts(ctx, large) },
	} {
		if err := measure(ctx); err != nil {
			return err
		}
	}
	return nil
}

// wholeDelta records how long the delta takes at the leader while every instance is in it: built from scratch, and
// after one more change.
func (r fetchRig) wholeDelta(ctx context.Context) error {
	return r.underOneLeader(ctx, deltaOfMany, r.benchCluster, func(leader string) (func(), error) {
		change, read := r.changed(0, 1), fetchesOf(deltaLinearizable)(0, 1)()
		took := make([]time.Duration, 2)
		for i := range took {
			err := withConn(leader, time.Now().Add(time.Minute), func(c *wire.Conn) (err error) {
				if _, err = exchangeUntilServed(ctx, c, change(), http.StatusNoContent); err != nil {
					return err
				}
				took[i], err = timedExchange(c, read, http.StatusOK)
				return err
			})
			if err != nil {
				return nil, fmt.Errorf("%s: %w", deltaOfMany, err)
			}
		}
		return func() {
			r.record(deltaOfMany, "s", took[0].Seconds())
			r.record(deltaAgainMany, "s", took[1].Seconds())
		}, nil
	})
}

// deltaLinearizable is the path of the delta as clients ask for it.
const deltaLinearizable = "/eureka/apps/delta"

// largeReads are documents of a large registry, each fetched on its own.
var largeReads = []struct {
	name figureName
	path string
}{
	{fullMany, fullLinearizable},
	{deltaMany, deltaLinearizable},
	{appMany, "/eureka/apps/MANY-000"},
	{metricsMany, "/metrics"},
	{overviewMany, "/"},
	{appsPageMany, "/ui/apps"},
}

// largeReads records how long each takes after a change, at the leader, once the registrations have left the delta.
func (r fetchRig) largeReads(ctx context.Context) error {
	if !r.quick {
		if err := r.awaitEmptyDelta(ctx, r.addrs()[:1]); err != nil {
			return err
		}
	}
	change := r.changed(0, 1)
	for _, read := range largeReads {
		err := r.underOneLeader(ctx, read.name, r.benchCluster, func(leader string) (func(), error) {
			const tries = 5
			took := make([]time.Duration, tries)
			for i := range took {
				err := withConn(leader, time.Now().Add(time.Minute), func(c *wire.Conn) (err error) {
					if _, err = exchangeUntilServed(ctx, c, change(), http.StatusNoContent); err != nil {
						return err
					}
					took[i], err = timedExchange(c, fetchesOf(read.path)(0, 1)(), http.StatusOK)
					return err
				})
				if err != nil {
					return nil, fmt.Errorf("%s: %w", read.name, err)
				}
			}
			slices.Sort(took)
			return func() { r.record(read.name, "ms", milliseconds(took[tries/2])) }, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// savingRate is how many renewals a second run while a snapshot is saved.
const savingRate = 1000

// beatConns is large enough that a renewal waits for no other one of the load unless each takes a quarter of a second.
const beatConns = 256

// savings records how long the leader takes to save a snapshot, and the longest wait of a renewal meanwhile, and
// without it over the same time. Its cluster lets no renewal wait for others, which would count as waits for the
// snapshot.
func (r fetchRig) savings(ctx context.Context) error {
	return r.underOneLeader(ctx, savedMany, r.benchCluster, func(leader string) (func(), error) {
		var took time.Duration
		beside, err := r.beatsDuring(ctx, leader, func() error {
			begin := time.Now()
			err := fetchCompressed(ctx, "http://"+leader+"/v1/rollcall/snapshot", "application/json")
			took = time.Since(begin)
			return err
		})
		if err != nil {
			return nil, err
		}
		alone, err := r.beatsDuring(ctx, leader, func() error {
			wire.Pause(ctx, took)
			return ctx.Err()
		})
		if err != nil {
			return nil, err
		}
		return func() {
			r.record(savedMany, "s", took.Seconds())
			r.record(savedLongest, "ms", milliseconds(beside))
			r.record(aloneLongest, "ms", milliseconds(alone))
		}, nil
	})
}

// beatsDuring sends renewals to the leader while do runs, and returns how long the longest of them took.
func (r fetchRig) beatsDuring(ctx context.Context, leader string, do func() error) (longest time.Duration, err error) {
	beating, stop := context.WithCancel(ctx)
	defer stop()
	var beats *load.BulkResult
	var g errgroup.Group
	g.Go(func() (err error) {
		l := load.Bulk{Targets: []string{leader}, Conns: beatConns, Requests: r.renewed, Want: http.StatusOK, Window: load.BulkLongest}
		if beats, err = l.Open(beating, savingRate); beating.Err() != nil {
			return nil // it was stopped
		}
		return err
	})
	wire.Pause(ctx, r.warm)
	err = do()
	stop()
	if err = errors.Join(err, g.Wait()); err != nil {
		return 0, fmt.Errorf("%s: %w", savedMany, err)
	}
	r.countWrong(savedMany, beats.Wrong)
	return beats.Quantile(100), nil
}

// largeLease makes self-preservation count the instances of a large registry as fresh for two minutes after each was
// renewed once.
var largeLease = benchLease{interval: 60, duration: 86400}

// mortalLease is the lease of instances which die together: they are registered within it.
var mortalLease = benchLease{interval: 5, duration: 15}

// evictions records how long after their leases have ended the last of many instances is gone from each node: of a
// hundredth of all, at most 10,000. A quick run has no time for it.
func (r fetchRig) evictions(ctx context.Context) error {
	if r.quick {
		return nil
	}
	all := load.Bulk{Targets: r.addrs(), Conns: 256, Requests: firstRequests(r.many, r.renewed), Want: http.StatusOK, Insist: true}
	renewed, err := all.Closed(ctx)
	if err != nil {
		return fmt.Errorf("%s: renew all: %w", evictedMany, err)
	}
	r.countWrong(evictedMany, renewed.Wrong)
	n := min(max(r.many/100, 1), 10_000)
	mortal := benchFleet{name: "mortal", size: n, inApp: n, lease: mortalLease}
	if err := r.register(ctx, mortal); err != nil {
		return err
	}
	end := time.Now().Add(time.Duration(mortalLease.duration) * time.Second)
	if !wire.Pause(ctx, time.Until(end)) {
		return ctx.Err()
	}
	look := fetchesOf("/eureka/apps/"+strings.ToUpper(mortal.app(0)))(0, 1)()
	for _, addr := range r.addrs() {
		if err := withConn(addr, end.Add(crashLimit), func(c *wire.Conn) error { return awaitAbsent(ctx, c, look) }); err != nil {
			return fmt.Errorf("%s: %w", evictedMany, err)
		}
	}
	r.record(evictedMany, "s", time.Since(end).Seconds())
	return nil
}

// heaps records the live heap of each node, after clients of both formats fetched everything.
func (r *ratiosRun) heaps(ctx context.Context, c *benchCluster) error {
	for i, n := range c.nodes {
		for _, accept := range []string{"application/json", "application/xml"} {
			if err := fetchCompressed(ctx, "http://"+n.HTTP+fullLinearizable, accept); err != nil {
				return err
			}
		}
		heap, err := liveHeap(ctx, n.HTTP, c.profilers[i])
		if err != nil {
			return err
		}
		r.record(heapEach, "KB", heap/1000/float64(r.many))
	}
	return nil
}

// restarts records each node's restart; the leader's turn is the last.
func (r *ratiosRun) restarts(ctx context.Context, c *benchCluster) error {
	leader, err := c.leader(ctx)
	if err != nil {
		return err
	}
	for i := range c.nodes {
		took, err := c.restart(ctx, (leader+1+i)%len(c.nodes))
		if err != nil {
			return err
		}
		r.record(restartReady, "s", took.Seconds())
		if err := localcluster.AwaitReady(ctx, c.nodes); err != nil {
			return err
		}
	}
	return nil
}

// fetchCompressed fetches a document and discards it.
func fetchCompressed(ctx context.Context, url, accept string) error {
	// set explicitly, so that the transport leaves the body compressed
	resp, err := getOK(ctx, url, "Accept", accept, "Accept-Encoding", "gzip")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// liveHeap returns the bytes that survive a garbage collection.
func liveHeap(ctx context.Context, node, profiler string) (float64, error) {
	// Twice: pooled memory survives the first one.
	for range 2 {
		if _, err := getText(ctx, "http://"+profiler+"/debug/pprof/heap?gc=1"); err != nil {
			return 0, err
		}
	}
	text, err := getText(ctx, "http://"+node+"/metrics")
	if err != nil {
		return 0, err
	}
	return metricValue(text, "go_memstats_heap_alloc_bytes")
}

// metricValue finds a metric without labels in Prometheus' text form.
func metricValue(text, name string) (float64, error) {
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("the node's metrics have no %s", name)
}
