package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/client/sse"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
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

const (
	// watchSilence is how long a stream may be silent before another server is asked: three of the
	// marks that a server sends when nothing happens.
	watchSilence = 45 * time.Second
	eventStream  = "text/event-stream"
	fetchSSE     = 32 << 10 // bytes of a stream that are taken at once: what a server collects before it writes
)

// watchStream is the changes of a cluster from an index on, as one server after another streams them. It
// belongs to one goroutine.
type watchStream struct {
	client *Client
	app    string // upper case; "": all
	index  string // where to go on; "": from now
	// each is told of every event. Its error ends the stream, and comes back as a finalError.
	each func(WatchEvent) error
	// idle is called whenever all that came was told (which may be nothing, after a mark), before more is
	// waited for. Nil: nobody wants to know.
	idle func()

	bears time.Duration // how old a server's state may be, if that is more than watchSilence
}

// finalError is one that the same question to another server would not change.
type finalError struct{ error }

// Unwrap returns what happened.
func (e finalError) Unwrap() error { return e.error }

// errWithdrawn ends the stream of a server that the client has no more.
var errWithdrawn = errors.New("it is not among the client's servers any more")

// follow reads the stream of one server until it ends, which is always an error.
func (w *watchStream) follow(ctx context.Context, s *server) error {
	bounded, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	quiet := time.AfterFunc(w.client.timeout, func() { cancel(silence{"no answer", w.client.timeout}) })
	defer quiet.Stop()
	body, err := w.open(bounded, s)
	if err == nil {
		quiet.Stop()
		quiet = time.AfterFunc(watchSilence, func() { cancel(silence{"no mark", watchSilence}) })
		err = w.read(bounded, s, body, quiet)
	}
	if !errors.As(err, new(finalError)) && !errors.Is(err, errWithdrawn) {
		w.client.noteFate(ctx, s, &call{}, err)
	}
	return err
}

// read reads a stream to its end.
func (w *watchStream) read(ctx context.Context, s *server, body io.ReadCloser, quiet *time.Timer) error {
	defer body.Close()
	defer quiet.Stop()
	before := func() error {
		if w.idle != nil {
			w.idle()
		}
		return w.client.stillHas(ctx, s)
	}
	events := sse.NewReader(watchedReader{body, before, func() { quiet.Reset(watchSilence) }}, fetchSSE)
	for {
		event, err := events.Next()
		if err == nil {
			err = w.behind(string(event.Comment))
		}
		if err != nil {
			return fmt.Errorf("the stream of %s ended: %w", s.url, err)
		}
		if err := w.take(s, event); err != nil {
			return finalError{err}
		}
	}
}

// behind is an error if a server says in a mark that it has not heard of its cluster for too long: cut off
// with a minority, it would stream nothing for ever. When others say the same, each is borne for longer,
// so that an outage of all is not spent on going round.
func (w *watchStream) behind(mark string) error {
	text, said := strings.CutPrefix(mark, "age ")
	seconds, err := strconv.ParseFloat(text, 32)
	if !said || err != nil {
		return nil
	}
	switch age := time.Duration(seconds * float64(time.Second)); {
	case age < watchSilence:
		w.bears = 0
	case age >= max(w.bears, watchSilence):
		w.bears = 2 * age
		return fmt.Errorf("it has not heard of its cluster for %v", age)
	}
	return nil
}

// stillHas is errWithdrawn if a server is not one of the client's any more.
func (c *Client) stillHas(ctx context.Context, s *server) error {
	servers, err := c.candidates(ctx)
	if err != nil || slices.ContainsFunc(servers, func(one *server) bool { return one.eureka == s.eureka }) {
		return nil
	}
	return errWithdrawn
}

// toWatch are the servers to watch, the best first, after so many failures in a row; there is at least one.
// As for a call, the source is asked for others when all may have failed.
func (c *Client) toWatch(ctx context.Context, failures int) ([]*server, error) {
	servers, err := c.candidates(ctx)
	if err != nil {
		return nil, err
	}
	if failures >= len(servers) {
		servers = append(c.newcomers(ctx, servers), servers...)
	}
	return servers, nil
}

// watchedReader tells of what comes through it.
type watchedReader struct {
	io.Reader
	before func() error // an error ends it
	after  func()       // something came
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

// open asks a server for its stream.
func (w *watchStream) open(ctx context.Context, s *server) (io.ReadCloser, error) {
	q := own(http.MethodGet, "watch").with("app", w.app, "index", w.index)
	q.accept = eventStream
	resp, done, err := w.client.send(ctx, s, q)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK && streams(resp) {
		return streamBody{resp.Body, done}, nil
	}
	defer done()
	defer resp.Body.Close()
	return nil, q.noStream(s, resp)
}

// streamBody is the body of a stream, whose end is the end of its request.
type streamBody struct {
	io.ReadCloser
	done context.CancelFunc
}

// Close implements io.Closer.
func (b streamBody) Close() error {
	defer b.done()
	return b.ReadCloser.Close()
}

// streams says whether an answer is a stream: a proxy may have a page for whatever it does not know.
func streams(resp *http.Response) bool {
	given := resp.Header.Get("Content-Type")
	kind, _, _ := mime.ParseMediaType(given)
	return given == "" || kind == eventStream
}

// noStream is an answer that is none.
func (q *call) noStream(s *server, resp *http.Response) error {
	a, err := readAnswer(s, resp, io.LimitReader(resp.Body, sse.Longest))
	if err != nil {
		return err
	}
	if err := q.judge(a); err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	refused := a.refusal()
	switch {
	case refused == nil:
		return fmt.Errorf("watch: %w: %s answers with %s", ErrNeedsRollcall, s.url, resp.Header.Get("Content-Type"))
	case refused.Status == http.StatusTooManyRequests:
		return refused
	}
	return finalError{fmt.Errorf("watch: %w", refused)}
}

// take tells of an event and remembers where to go on. Events of unknown names are for later
// versions of this package.
func (w *watchStream) take(s *server, e sse.Event) error {
	told, index, err := decodeWatchEvent(s.url, e)
	if err != nil {
		return fmt.Errorf("watch: event %q of %s: %w", e.Name, s.url, err)
	}
	if told != nil {
		if _, began := told.(WatchStart); began {
			w.client.servers.answered(s)
		}
		if err := w.each(told); err != nil {
			return err
		}
	}
	w.index = cmp.Or(string(e.ID), index, w.index)
	return nil
}

// decodeWatchEvent returns the event for the caller, nil if there is none, and its index.
func decodeWatchEvent(server string, e sse.Event) (event WatchEvent, index string, err error) {
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
		change, err := changeOf(doc)
		return change, change.Index, err
	case "reset":
		var reset api.Reset
		err = json.Unmarshal(e.Data, &reset)
		return WatchReset{Index: reset.Index, Reason: reset.Reason}, reset.Index, err
	}
	return nil, "", nil
}

// WatchEvent is what a Watch tells: a WatchStart, WatchChange or WatchReset.
type WatchEvent interface{ isWatchEvent() }

// WatchStart says that a server took the watch up, at first and after each failover.
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
	Status string // afterwards; of a deleted instance, before
	// Instance is the instance as Eureka's documents show it, nil where only the record of its removal
	// is left.
	Instance *registry.Lease
}

// WatchReset says that changes may have been missed: fetch everything (Apps) before going on. The
// changes after Index follow.
type WatchReset struct {
	Index  string
	Reason string // a sentence
}

func (WatchStart) isWatchEvent()  {}
func (WatchChange) isWatchEvent() {}
func (WatchReset) isWatchEvent()  {}

// Key names the instance that changed.
func (c WatchChange) Key() registry.Key { return registry.Key{App: c.App, ID: c.ID} }

// changeOf is a change with the instance that Eureka's document in it describes.
func changeOf(c api.Change) (WatchChange, error) {
	change := WatchChange{Index: c.Index, Action: c.Action, Why: c.Why, App: c.App, ID: c.ID, Status: c.Status}
	if len(c.Instance) == 0 || string(c.Instance) == "null" {
		return change, nil
	}
	lease, err := eureka.DecodeInstance(wrapped(c.Instance), eureka.Format{})
	if err != nil {
		return change, fmt.Errorf("instance %s: %w", change.Key(), err)
	}
	change.Instance = lease
	return change, nil
}

// wrapped is the document of one instance around the object of it.
func wrapped(instance []byte) []byte {
	return append(append([]byte(`{"instance":`), instance...), '}')
}
