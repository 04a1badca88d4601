package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// shortestRetry and longestRetry bound the pause before the next try, which doubles with each failure
// and is drawn at random below that, so that the watchers of a dead server do not return in step.
const shortestRetry, longestRetry = 100 * time.Millisecond, 5 * time.Second

// WatchConfig says what to watch. The zero WatchConfig watches everything from now on.
type WatchConfig struct {
	App string // of one application, in any case; "": all
	// Index is where to go on: the Index of the last WatchEvent that was handled. "": from now.
	Index string
}

// Watch tells each of every change, in order, until ctx ends or each returns an error. It stays with
// one server while that one answers, turns to the next otherwise, and goes on where it was: no change
// is missed and none told twice, except that changes of one instance in short order may be told as
// the last of them. When a server no longer knows what happened since, each gets a WatchReset.
//
// It returns nil when ctx has ended, ErrClosed when the client was closed, the error of each as it is,
// and an error if a server refuses the watch (a malformed index; ErrNeedsRollcall) or sends what cannot
// be read. While no server can be reached it tries on. StartDiscovery keeps a whole list up to date.
func (c *Client) Watch(ctx context.Context, config WatchConfig, each func(WatchEvent) error) error {
	w := &watch{each: each, foreign: make(map[string]bool)}
	w.stream = watchStream{client: c, app: strings.ToUpper(config.App), index: config.Index, each: w.tell}
	alive, done := c.alive(ctx)
	defer done()
	err := w.run(alive)
	if err == nil && ctx.Err() == nil {
		return ErrClosed
	}
	return err
}

// watch is the state of one Watch. It belongs to the goroutine that called it.
type watch struct {
	stream  watchStream
	server  *server // who is asked
	each    func(WatchEvent) error
	foreign map[string]bool // URLs of servers that are not Rollcall, as far as is known
	failing bool
}

// run returns nil when ctx has ended.
func (w *watch) run(ctx context.Context) error {
	for failures := 0; ctx.Err() == nil; failures++ {
		start := time.Now()
		err := w.follow(ctx, failures)
		if final := (finalError{}); errors.As(err, &final) {
			return final.error
		}
		if ctx.Err() != nil {
			return nil
		}
		w.report(err)
		if time.Since(start) > longestRetry {
			failures = 0
		}
		if !wait(ctx, retryPause(failures)) {
			return nil
		}
	}
	return nil
}

// follow follows the best server that may be Rollcall. It is final if none is.
func (w *watch) follow(ctx context.Context, failures int) error {
	candidates, err := w.stream.client.toWatch(ctx, failures)
	if err != nil {
		return err
	}
	mayBe := func(s *server) bool { return !w.foreign[s.url] }
	w.server = candidates[max(0, slices.IndexFunc(candidates, mayBe))]
	err = w.stream.follow(ctx, w.server)
	if !errors.Is(err, ErrNeedsRollcall) {
		return err
	}
	w.foreign[w.server.url] = true
	if slices.ContainsFunc(candidates, mayBe) {
		return err
	}
	return finalError{err}
}

func retryPause(failures int) time.Duration {
	return rand.N(min(shortestRetry<<min(failures, 10), longestRetry))
}

// tell notes that a server took the watch up, before the caller learns it.
func (w *watch) tell(e WatchEvent) error {
	if _, began := e.(WatchStart); began {
		w.report(nil)
		clear(w.foreign)
	}
	return w.each(e)
}

// report logs changes between success and failure, not each failure.
func (w *watch) report(err error) {
	log := w.stream.client.log
	switch failing := err != nil; {
	case failing && !w.failing:
		log.Warn("watch was cut, trying again", "err", err, "index", w.stream.index)
	case !failing && w.failing:
		log.Info("watch goes on", "server", w.server.url, "index", w.stream.index)
	}
	w.failing = err != nil
}
