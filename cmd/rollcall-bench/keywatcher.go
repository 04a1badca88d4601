package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/wire"
)

// oneWatcher counts how often a watcher of one key is answered while all others are written, and then it:
// once is right.
func (r *ratiosRun) oneWatcher(ctx context.Context, c *benchCluster) error {
	return r.steady(ctx, watcherAnswers, c, func(leader string) (func(), error) {
		if err := exchangeOnce(leader, putRequest("watched", 0)); err != nil {
			return nil, err
		}
		load := httpLoad{targets: []string{leader}, conns: 64, requests: bounded(r.keys, putsOf(r.keys)), want: http.StatusOK}
		watcher, err := watchKey(ctx, leader, "watched")
		if err != nil {
			return nil, err
		}
		defer watcher.stop()
		result, err := load.closed(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", watcherAnswers, err)
		}
		r.wronged(watcherAnswers, result.wrong)
		sent := time.Now()
		if err := exchangeOnce(leader, putRequest("watched", 1)); err != nil {
			return nil, err
		}
		answers, err := watcher.await(ctx)
		if err != nil {
			return nil, err
		}
		return func() {
			r.record(watcherAnswers, "answers", float64(answers))
			r.record(watcherArrival, "ms", milliseconds(watcher.last.Sub(sent)))
		}, nil
	})
}

// bounded ends a workload after so many requests of all connections.
func bounded(all int, w workload) workload {
	var sent atomic.Int64
	return func(conn, conns int) func() []byte {
		next := w(conn, conns)
		return func() []byte {
			if sent.Add(1) > int64(all) {
				return nil
			}
			return next()
		}
	}
}

func exchangeOnce(addr string, request []byte) error {
	conn, err := wire.Dial(addr, time.Now().Add(benchGrace))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = timed(conn, request, http.StatusOK)
	return err
}

// keyWatcher reads one key by blocking queries, one after the other, until its value is 1.
type keyWatcher struct {
	stop    func()
	done    chan error
	answers int       // before done
	last    time.Time // of the last one
}

// watchKey begins to watch.
func watchKey(ctx context.Context, addr, key string) (*keyWatcher, error) {
	ctx, stop := context.WithCancel(ctx)
	w := &keyWatcher{stop: stop, done: make(chan error, 1)}
	index, _, err := readKey(ctx, addr, key, "")
	if err != nil {
		stop()
		return nil, err
	}
	go func() { w.done <- w.follow(ctx, addr, key, index) }()
	return w, nil
}

func (w *keyWatcher) follow(ctx context.Context, addr, key, index string) error {
	for {
		next, value, err := readKey(ctx, addr, key, index)
		if err != nil {
			return err
		}
		w.answers++
		w.last = time.Now()
		if value == fmt.Sprintf("%0128d", 1) {
			return nil
		}
		index = next
	}
}

// await waits for the value, and says how many answers it took.
func (w *keyWatcher) await(ctx context.Context) (answers int, err error) {
	select {
	case err := <-w.done:
		return w.answers, err
	case <-time.After(arrivalLimit):
		return 0, fmt.Errorf("the watcher of a key was not answered within %v of its change", arrivalLimit)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// readKey reads a key when its index is not the one given; "": now.
func readKey(ctx context.Context, addr, key, index string) (next, value string, err error) {
	url := "http://" + addr + "/v1/kv/" + key + "?raw"
	if index != "" {
		url += "&wait=9m&index=" + index
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	return resp.Header.Get("X-Consul-Index"), string(text), err
}
