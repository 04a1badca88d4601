package list

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/seed-20419f34/rollcall/client/internal/transport"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

// StreamConfig is what Follow needs.
type StreamConfig struct {
	Cluster *transport.Cluster
	Log     *slog.Logger
	App     string // upper case; "" means all
	Index   string // where to resume; "" means from now
	Each    func(Event) error
}

// Follow calls Each with every event, like client.Watch, and returns the same errors.
func Follow(ctx context.Context, c StreamConfig) error {
	f := &follower{each: c.Each, outage: wait.Outage{Log: c.Log}, foreign: make(map[string]bool)}
	f.stream = stream{Cluster: c.Cluster, App: c.App, Index: c.Index, Each: f.pass}
	alive, done := wait.Either(ctx, c.Cluster.Life())
	defer done()
	err := f.run(alive)
	if err == nil && ctx.Err() == nil {
		return transport.ErrClosed
	}
	return err
}

// follower is the state of one Follow. It belongs to the goroutine that called it.
type follower struct {
	stream  stream
	outage  wait.Outage
	server  string // URL of the server that is followed; "" before the first
	each    func(Event) error
	foreign map[string]bool // URLs of servers found not to be Rollcall
}

// run returns nil when ctx has ended.
func (f *follower) run(ctx context.Context) error {
	for failures := 0; ctx.Err() == nil; failures++ {
		start := time.Now()
		err := f.follow(ctx, failures)
		if final := (final{}); errors.As(err, &final) {
			return final.error
		}
		if ctx.Err() != nil {
			return nil
		}
		f.report(err)
		if time.Since(start) > wait.LongestRetry {
			failures = 0
		}
		if !wait.For(ctx, wait.Retry(failures)) {
			return nil
		}
	}
	return nil
}

// follow follows the best server that may be Rollcall. The error is final if none is.
func (f *follower) follow(ctx context.Context, failures int) error {
	candidates, err := f.stream.Cluster.ToWatch(ctx, failures)
	if err != nil {
		return err
	}
	mayBe := func(s *transport.Server) bool { return !f.foreign[s.URL] }
	server := candidates[max(0, slices.IndexFunc(candidates, mayBe))]
	f.server = server.URL
	err = f.stream.Follow(ctx, server)
	if !errors.Is(err, transport.ErrNeedsRollcall) {
		return err
	}
	f.foreign[f.server] = true
	if slices.ContainsFunc(candidates, mayBe) {
		return err
	}
	return final{err}
}

// pass reports that a server accepted the watch, before Each is called with that event.
func (f *follower) pass(e Event) error {
	if _, started := e.(Start); started {
		f.report(nil)
		clear(f.foreign)
	}
	return f.each(e)
}

// report logs changes between success and failure, not each failure.
func (f *follower) report(err error) {
	f.outage.Report(err, "watch was cut, trying again", "watch goes on", "server", f.server, "index", f.stream.Index)
}
