package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/seed-20419f34/rollcall/cmd/localcluster"
)

// scale measures what a large registry costs.
func (r *ratiosRun) scale(ctx context.Context) error {
	few, many := benchFleet{name: "few", size: r.few}, benchFleet{name: "many", size: r.many}
	clusters, err := r.clusters(ctx,
		clusterSpec{name: "few-instances", fleets: []benchFleet{few}},
		clusterSpec{name: "many-instances", fleets: []benchFleet{many}})
	if err != nil {
		return err
	}
	defer stopClusters(clusters)
	small, large := clusters[0], clusters[1]
	renewFewLoad, renewManyLoad := r.renewals(256, few.renewals()), r.renewals(256, many.renewals())
	err = r.inRounds(ctx, func(ctx context.Context) error {
		if err := r.recordLeaderRate(ctx, renewFew, small, renewFewLoad); err != nil {
			return err
		}
		return r.recordLeaderRate(ctx, renewMany, large, renewManyLoad)
	})
	if err != nil {
		return err
	}
	small.stop()
	if err := r.heaps(ctx, large); err != nil {
		return err
	}
	return r.restarts(ctx, large)
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

// fetchCompressed fetches a document and drops it.
func fetchCompressed(ctx context.Context, url, accept string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", accept)
	req.Header.Set("Accept-Encoding", "gzip") // named, so that the transport leaves it compressed
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// liveHeap returns the bytes that survive a garbage collection.
func liveHeap(ctx context.Context, node, profiler string) (float64, error) {
	// Twice: what is pooled survives the first one.
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
