package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/seed-20419f34/rollcall/client"
)

// coordination measures keys, locks and sessions.
func (r *ratiosRun) coordination(ctx context.Context) error {
	clusters, err := r.clusters(ctx,
		clusterSpec{name: "coordination"},
		clusterSpec{name: "coordination-one-entry-per-write", settings: []string{"--commit-batching=false"}})
	if err != nil {
		return err
	}
	defer stopClusters(clusters)
	batching, singly := clusters[0], clusters[1]
	err = r.inRounds(ctx, func(ctx context.Context) error {
		if err := r.recordLeaderRate(ctx, put256, batching, r.puts(r.keys)); err != nil {
			return err
		}
		return r.recordLeaderRate(ctx, putSolo, singly, r.puts(r.keys))
	})
	if err != nil {
		return err
	}
	singly.stop()
	for _, part := range []func(context.Context, *benchCluster) error{r.handOvers, r.oneWatcher, r.sessionCosts} {
		if err := part(ctx, batching); err != nil {
			return err
		}
	}
	return nil
}

// puts is a load of writes to keys in turn, each with a value of 128 bytes that no write before had.
func (r *ratiosRun) puts(keys int) httpLoad {
	return r.renewals(256, putsOf(keys))
}

func putsOf(keys int) workload {
	var written atomic.Int64
	return func(conn, conns int) func() []byte {
		i := conn - conns
		return func() []byte {
			i += conns
			return putRequest(benchKey(i%keys), written.Add(1))
		}
	}
}

func benchKey(i int) string { return fmt.Sprintf("bench/%03d/%06d", i%1000, i) }

func putRequest(key string, value int64) []byte {
	return fmt.Appendf(nil, "PUT /v1/kv/%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 128\r\n\r\n%0128d", key, value)
}

// benchSession creates a session that outlasts what it is made for.
func benchSession(ctx context.Context, cl *client.Client) (id string, err error) {
	for {
		s, err := cl.CreateSession(ctx, client.SessionOptions{Name: "bench", TTL: time.Hour, LockDelay: -1})
		status, answered := errors.AsType[*client.StatusError](err)
		if !answered || status.Status != http.StatusServiceUnavailable || !pauseBench(ctx, benchInsist) {
			return s.ID, err
		}
	}
}
