package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/client/internal/transport"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

// WatchConfig says what to watch. The zero WatchConfig watches everything from now on.
type WatchConfig struct {
	App string // one application, in any case; "" means all
	// Index is where to resume: the Index of the last WatchEvent that was handled. "" means from now.
	Index string
}

// Watch calls each with every change, in order, until ctx ends or each returns an error. It stays with one server
// while that one responds, turns to the next otherwise, and resumes where it was: it misses no change and reports
// none twice, except that changes of one instance in quick succession may be reported as the last of them. When a
// server no longer knows what happened since, each gets a WatchReset.
//
// It returns nil when ctx has ended, ErrClosed when the client was closed, the error of each unchanged, and an error
// if a server refuses the watch (a malformed index; ErrNeedsRollcall) or sends what cannot be read. While no server
// can be reached it keeps trying. StartDiscovery keeps a whole list up to date.
func (c *Client) Watch(ctx context.Context, config WatchConfig, each func(WatchEvent) error) error {
	f := &follower{each: each, outage: wait.Outage{Log: c.log}, foreign: make(map[string]bool)}
	f.stream = changeStream{cluster: c.cluster, app: strings.ToUpper(config.App), index: config.Index, each: f.pass}
	alive, done := wait.Either(ctx, c.cluster.Life())
	defer done()
	err := f.run(alive)
	if err == nil && ctx.Err() == nil {
		return ErrClosed
	}
	return err
}

// WatchEvent is what a Watch reports: a WatchStart, WatchChange or WatchReset.
type WatchEvent interface{ isWatchEvent() }

// WatchStart means that a server accepted the watch, at first and after each failover.
type WatchStart struct {
	Index  string // changes after it follow
	Server string // base URL
}

// WatchChange is one change of one instance.
type WatchChange struct {
	Index  string // of the change
	Action string // ADDED, MODIFIED or DELETED, as in Eureka's delta
	Why    string // registered, changed, canceled, evicted or quarantined
	App    string // upper case
	ID     string
	Status string // afterwards; for a deleted instance, before
	// Instance is the instance as Eureka's documents show it, or nil if only its removal record is left.
	Instance *registry.Lease
}

// WatchReset means that changes may have been missed: fetch everything (Apps) before going on. The changes after
// Index follow.
type WatchReset struct {
	Index  string
	Reason string // a sentence
}

func (WatchStart) isWatchEvent()  {}
func (WatchChange) isWatchEvent() {}
func (WatchReset) isWatchEvent()  {}

// Key names the instance that changed.
func (c WatchChange) Key() registry.Key { return registry.Key{App: c.App, ID: c.ID} }

// follower is the state of one Watch. It belongs to the goroutine that called it.
type follower struct {
	stream  changeStream
	outage  wait.Outage
	server  string // URL of the server that is followed; "" before the first
	each    func(WatchEvent) error
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
	candidates, err := f.stream.cluster.ToWatch(ctx, failures)
	if err != nil {
		return err
	}
	mayBe := func(s *transport.Server) bool { return !f.foreign[s.URL] }
	server := candidates[max(0, slices.IndexFunc(candidates, mayBe))]
	f.server = server.URL
	err = f.stream.follow(ctx, server)
	if !errors.Is(err, ErrNeedsRollcall) {
		return err
	}
	f.foreign[f.server] = true
	if slices.ContainsFunc(candidates, mayBe) {
		return err
	}
	return final{err}
}

// pass reports that a server accepted the watch, before each is called with that event.
func (f *follower) pass(e WatchEvent) error {
	if _, started := e.(WatchStart); started {
		f.report(nil)
		clear(f.foreign)
	}
	return f.each(e)
}

// report logs changes between success and failure, not each failure.
func (f *follower) report(err error) {
	f.outage.Report(err, "watch was cut, trying again", "watch goes on", "server", f.server, "index", f.stream.index)
}

const (
	// longestSilence is how long a stream may be silent before another server is asked: three of the marks that a
	// server sends when nothing happens.
	longestSilence = 45 * time.Second
	eventStream    = "text/event-stream"
	fetchSSE       = 32 << 10 // bytes of a stream that are read at once: as many as a server collects before it writes
)

// changeStream is the changes of a cluster from an index on, as one server after another streams them. It belongs to one
// goroutine.
type changeStream struct {
	cluster *transport.Cluster
	app     string // upper case; "" means all
	index   string // where to resume; "" means from now
	// each is called with every event. Its error ends the stream, and comes back as a final error.
	each func(WatchEvent) error
	// idle is called before the stream waits for more, whenever each has been called with everything that arrived
	// (which may be no event, after a mark). It may be nil.
	idle func()

	bears time.Duration // how old a server's state may be, if that is more than longestSilence
}

// final wraps an error that the same question to another server would not change.
type final struct{ error }

// Unwrap returns the wrapped error.
func (e final) Unwrap() error { return e.error }

// errWithdrawn ends the stream of a server that the client no longer has.
var errWithdrawn = errors.New("it is not among the client's servers any more")

// follow reads the stream of one server until it ends, which is always an error.
func (w *changeStream) follow(ctx context.Context, s *transport.Server) error {
	bounded, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timeout := w.cluster.Timeout()
	quiet := time.AfterFunc(timeout, func() { cancel(transport.Silence{Of: "no response", After: timeout}) })
	defer quiet.Stop()
	body, err := w.open(bounded, s)
	if err == nil {
		quiet.Stop()
		quiet = time.AfterFunc(longestSilence, func() { cancel(transport.Silence{Of: "no mark", After: longestSilence}) })
		err = w.read(bounded, s, body, quiet)
	}
	if !errors.As(err, new(final)) && !errors.Is(err, errWithdrawn) {
		w.cluster.RecordOutcome(ctx, s, &transport.Call{}, err)
	}
	return err
}

// open asks a server for its stream.
func (w *changeStream) open(ctx context.Context, s *transport.Server) (io.ReadCloser, error) {
	q := transport.Own(http.MethodGet, "watch").With("app", w.app, "index", w.index)
	q.Accept = eventStream
	body, refused, err := w.cluster.OpenStream(ctx, s, q)
	if err != nil {
		err = fmt.Errorf("watch: %w", err)
	}
	if refused {
		err = final{err}
	}
	return body, err
}

func (w *changeStream) read(ctx context.Context, s *transport.Server, body io.ReadCloser, quiet *time.Timer) error {
	defer body.Close()
	defer quiet.Stop()
	before := func() error {
		if w.idle != nil {
			w.idle()
		}
		if !w.cluster.Has(ctx, s) {
			return errWithdrawn
		}
		return nil
	}
	events := api.NewEventReader(watchedReader{body, before, func() { quiet.Reset(longestSilence) }}, fetchSSE)
	for {
		event, err := events.Next()
		if err == nil {
			err = w.outdated(string(event.Comment))
		}
		if err != nil {
			return fmt.Errorf("the stream of %s ended: %w", s.URL, err)
		}
		if err := w.pass(s, event); err != nil {
			return final{err}
		}
	}
}

// outdated returns an error if a server says in a mark that it has not heard from its cluster for too long: cut off
// with a minority, it would stream nothing forever. When other servers say the same, each is tolerated for longer, so
// that an outage of all is not spent on going around.
func (w *changeStream) outdated(mark string) error {
	text, said := strings.CutPrefix(mark, "age ")
	seconds, err := strconv.ParseFloat(text, 32)
	if !said || err != nil {
		return nil
	}
	switch age := time.Duration(seconds * float64(time.Second)); {
	case age < longestSilence:
		w.bears = 0
	case age >= max(w.bears, longestSilence):
		w.bears = 2 * age
		return fmt.Errorf("it has not heard of its cluster for %v", age)
	}
	return nil
}

// pass calls each with an event and remembers where to resume.
func (w *changeStream) pass(s *transport.Server, e api.StreamEvent) error {
	event, index, err := decodeEvent(s.URL, e)
	if err != nil {
		return fmt.Errorf("watch: event %q of %s: %w", e.Name, s.URL, err)
	}
	if event != nil {
		if _, started := event.(WatchStart); started {
			w.cluster.Responded(s)
		}
		if err := w.each(event); err != nil {
			return err
		}
	}
	w.index = cmp.Or(string(e.ID), index, w.index)
	return nil
}

// watchedReader calls functions around each read.
type watchedReader struct {
	io.Reader
	before func() error // its error ends the stream
	after  func()       // something arrived
}

// Read implements io.Reader.
func (r watchedReader) Read(p []byte) (int, error) {
	if err := r.before(); err != nil {
		return 0, err
	}
	n, err := r.Reader.Read(p)
	if n > 0 {
		r.after()
	}
	return n, err
}

// decodeEvent returns an event and its index. The event is nil if its name is unknown: it is for later versions of
// this package.
func decodeEvent(server string, e api.StreamEvent) (event WatchEvent, index string, err error) {
	switch string(e.Name) {
	case "start":
		var start api.Start
		err = json.Unmarshal(e.Data, &start)
		return WatchStart{Index: start.Index, Server: server}, start.Index, err
	case "change":
		var doc api.Change
		if err := json.Unmarshal(e.Data, &doc); err != nil {
			return nil, "", err
		}
		change := WatchChange{Index: doc.Index, Action: doc.Action, Why: doc.Why, App: doc.App, ID: doc.ID, Status: doc.Status}
		if len(doc.Instance) > 0 && string(doc.Instance) != "null" {
			text := slices.Concat([]byte(`{"instance":`), doc.Instance, []byte("}"))
			if change.Instance, err = eureka.DecodeInstance(text, eureka.Format{}); err != nil {
				err = fmt.Errorf("instance %s: %w", change.Key(), err)
			}
		}
		return change, change.Index, err
	case "reset":
		var reset api.Reset
		err = json.Unmarshal(e.Data, &reset)
		return WatchReset{Index: reset.Index, Reason: reset.Reason}, reset.Index, err
	}
	return nil, "", nil
}
