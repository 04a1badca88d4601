package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// blockFor is how long a server is asked to wait for a change; it adds up to a sixteenth of that.
const blockFor = time.Minute

// Watch tells each of a key's entry (nil: there is none): first as it is, then after every change,
// until ctx ends or each returns an error. Changes in short order may be told as the last of them.
//
// It returns nil when ctx has ended, the error of each as it is, and an error if a server refuses the
// question. ErrClosed: the client was closed. While no server can be reached it tries on.
func (k KV) Watch(ctx context.Context, key string, each func(*Entry) error) error {
	w := kvWatch{kv: k, key: key, query: url.Values{}}
	return w.run(ctx, func(entries []Entry) error {
		if len(entries) == 0 {
			return each(nil)
		}
		return each(&entries[0])
	})
}

// WatchTree is Watch for all keys that begin with prefix, in byte order.
func (k KV) WatchTree(ctx context.Context, prefix string, each func([]Entry) error) error {
	w := kvWatch{kv: k, key: prefix, query: url.Values{"recurse": {""}}}
	return w.run(ctx, each)
}

// kvWatch is the state of one watch. It belongs to the goroutine that called it.
type kvWatch struct {
	kv      KV
	key     string
	query   url.Values
	index   uint64 // of what was told last; 0: nothing was
	failing bool
	// routed, if not nil, ends a question whose server is not worth waiting for.
	routed func(context.Context) (context.Context, context.CancelFunc)
}

func (w *kvWatch) run(ctx context.Context, each func([]Entry) error) error {
	for failures := 0; ; {
		entries, index, err := w.ask(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if refused(err) || offersNone(err) {
			return fmt.Errorf("watch key %q: %w", w.key, err)
		}
		w.report(err)
		if err != nil {
			if !wait(ctx, retryPause(failures)) {
				return nil
			}
			failures++
			continue
		}
		failures = 0
		if index == w.index {
			continue // the server's time was up
		}
		w.index = index
		if err := each(entries); err != nil {
			return err
		}
	}
}

// ask waits for a change after the index. An index that has gone back is a change: the cluster has lost
// its data.
func (w *kvWatch) ask(ctx context.Context) ([]Entry, uint64, error) {
	patience := w.kv.client.timeout
	if w.index > 0 {
		w.query.Set("index", strconv.FormatUint(w.index, 10))
		w.query.Set("wait", blockFor.String())
		patience += blockFor + blockFor/16
	}
	if w.routed != nil {
		routed, cancel := w.routed(ctx)
		defer cancel()
		ctx = routed
	}
	a, err := w.kv.read(ctx, w.key, w.query, patience)
	if err != nil {
		return nil, 0, err
	}
	entries, err := a.entries()
	if err != nil {
		return nil, 0, err
	}
	index, err := strconv.ParseUint(a.header.Get("X-Consul-Index"), 10, 64)
	if err != nil || index == 0 {
		return nil, 0, fmt.Errorf("answer of %s: X-Consul-Index %q is not an index", a.server, a.header.Get("X-Consul-Index"))
	}
	if len(entries) == 1 {
		entries[0].Fence = a.fence()
	}
	return entries, index, nil
}

// report logs changes between success and failure, not each failure.
func (w *kvWatch) report(err error) {
	switch failing := err != nil; {
	case failing && !w.failing:
		w.kv.client.log.Warn("watch of a key was cut, trying again", "key", w.key, "err", err)
	case !failing && w.failing:
		w.kv.client.log.Info("watch of a key goes on", "key", w.key)
	}
	w.failing = err != nil
}

// offersNone says that the cluster has no coordination at all.
func offersNone(err error) bool {
	var status *StatusError
	return errors.As(err, &status) && status.Status == http.StatusNotImplemented
}
