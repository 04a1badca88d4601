package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// watchSilence is how long a stream may be silent before another server is asked: three of the
	// marks that a server sends when nothing happens.
	watchSilence = 45 * time.Second
	// shortestRetry and longestRetry bound the pause before the next try, which doubles with each
	// failure and is drawn at random below that, so that the watchers of a dead server do not return
	// in step.
	shortestRetry, longestRetry = 100 * time.Millisecond, 5 * time.Second
)

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
// It returns nil when ctx has ended, the error of each as it is, and an error if a server refuses the
// watch (a malformed index) or sends what cannot be read. While no server can be reached it tries on.
func (c *Client) Watch(ctx context.Context, config WatchConfig, each func(WatchEvent) error) error {
	w := &watch{client: c, app: strings.ToUpper(config.App), index: config.Index, each: each}
	return w.run(ctx)
}

// watch is the state of one Watch. It belongs to the goroutine that called it.
type watch struct {
	client  *Client
	app     string
	index   string  // where to go on
	server  *server // who is asked
	each    func(WatchEvent) error
	failing bool
}

// finalError is one that no other try would change.
type finalError struct{ error }

// run returns nil when ctx has ended.
func (w *watch) run(ctx context.Context) error {
	for failures := 0; ; failures++ {
		start := time.Now()
		err := w.follow(ctx)
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
		w.client.servers.failed(w.server)
		if !wait(ctx, retryPause(failures)) {
			return nil
		}
	}
}

func retryPause(failures int) time.Duration {
	return rand.N(min(shortestRetry<<min(failures, 10), longestRetry))
}

// follow reads the stream of one server until it ends, which is always an error.
func (w *watch) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(w.client.timeout, cancel)
	defer silence.Stop()
	w.server = w.client.servers.order()[0]
	server := w.server.url
	body, err := w.open(ctx)
	if err != nil {
		return err
	}
	defer body.Close()
	silence.Reset(watchSilence)
	stream := newSSEReader(watchedReader{body, silence})
	for {
		event, err := stream.next()
		if err != nil {
			return fmt.Errorf("the stream of %s ended: %w", server, err)
		}
		if err := w.handle(server, event); err != nil {
			return finalError{err}
		}
	}
}

// watchedReader puts the end of a stream off whenever something comes.
type watchedReader struct {
	io.Reader
	silence *time.Timer
}

// Read implements io.Reader.
func (r watchedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.silence.Reset(watchSilence)
	return n, err
}

// open asks a server for its stream.
func (w *watch) open(ctx context.Context) (io.ReadCloser, error) {
	q := call{method: http.MethodGet, path: []string{"v1", "rollcall", "watch"}, query: url.Values{}}
	if w.app != "" {
		q.query.Set("app", w.app)
	}
	if w.index != "" {
		q.query.Set("index", w.index)
	}
	req, err := q.request(ctx, w.server)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/event-stream")
	resp, err := w.client.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	return nil, w.refusal(resp)
}

// refusal is an answer that is no stream.
func (w *watch) refusal(resp *http.Response) error {
	server := w.server.url
	body, err := io.ReadAll(io.LimitReader(resp.Body, longestSSE))
	if err != nil {
		return fmt.Errorf("read the answer of %s: %w", server, err)
	}
	status := &StatusError{Server: server, Status: resp.StatusCode, Message: answer{body: body}.message()}
	if status.elsewhere() || status.Status == http.StatusTooManyRequests {
		return status
	}
	return finalError{fmt.Errorf("watch: %w", status)}
}

// handle tells of an event and remembers where to go on. Events of unknown names are for later
// versions of this package.
func (w *watch) handle(server string, e sseEvent) error {
	told, index, err := decodeWatchEvent(server, e)
	if err != nil {
		return fmt.Errorf("watch: event %q of %s: %w", e.name, server, err)
	}
	if told != nil {
		if _, began := told.(WatchStart); began {
			w.client.servers.answered(w.server)
			w.report(nil)
		}
		if err := w.each(told); err != nil {
			return err
		}
	}
	w.index = cmp.Or(e.id, index, w.index)
	return nil
}

// report logs changes between success and failure, not each failure.
func (w *watch) report(err error) {
	switch failing := err != nil; {
	case failing && !w.failing:
		w.client.log.Warn("watch was cut, trying again", "err", err, "index", w.index)
	case !failing && w.failing:
		w.client.log.Info("watch goes on", "server", w.server.url, "index", w.index)
	}
	w.failing = err != nil
}

// decodeWatchEvent returns the event for the caller, nil if there is none, and its index.
func decodeWatchEvent(server string, e sseEvent) (event WatchEvent, index string, err error) {
	switch e.name {
	case "start":
		start := WatchStart{Server: server}
		err = json.Unmarshal([]byte(e.data), &start)
		return start, start.Index, err
	case "change":
		var change WatchChange
		err = json.Unmarshal([]byte(e.data), &change)
		return change, change.Index, err
	case "reset":
		var reset WatchReset
		err = json.Unmarshal([]byte(e.data), &reset)
		return reset, reset.Index, err
	}
	return nil, "", nil
}
