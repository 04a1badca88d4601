package list

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/client/internal/transport"
	"github.com/seed-20419f34/rollcall/httpd/api"
)

const (
	// longestSilence is how long a stream may be silent before another server is asked: three of the marks that a
	// server sends when nothing happens.
	longestSilence = 45 * time.Second
	eventStream    = "text/event-stream"
	fetchSSE       = 32 << 10 // bytes of a stream that are read at once: as many as a server collects before it writes
)

// stream is the changes of a cluster from an index on, as one server after another streams them. It belongs to one
// goroutine.
type stream struct {
	Cluster *transport.Cluster
	App     string // upper case; "" means all
	Index   string // where to resume; "" means from now
	// Each is called with every event. Its error ends the stream, and comes back as a final error.
	Each func(Event) error
	// Idle is called before the stream waits for more, whenever Each has been called with everything that arrived
	// (which may be no event, after a mark). It may be nil.
	Idle func()

	bears time.Duration // how old a server's state may be, if that is more than longestSilence
}

// final wraps an error that the same question to another server would not change.
type final struct{ error }

// Unwrap returns the wrapped error.
func (e final) Unwrap() error { return e.error }

// errWithdrawn ends the stream of a server that the client no longer has.
var errWithdrawn = errors.New("it is not among the client's servers any more")

// Follow reads the stream of one server until it ends, which is always an error.
func (w *stream) Follow(ctx context.Context, s *transport.Server) error {
	bounded, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timeout := w.Cluster.Timeout()
	quiet := time.AfterFunc(timeout, func() { cancel(transport.Silence{Of: "no response", After: timeout}) })
	defer quiet.Stop()
	body, err := w.open(bounded, s)
	if err == nil {
		quiet.Stop()
		quiet = time.AfterFunc(longestSilence, func() { cancel(transport.Silence{Of: "no mark", After: longestSilence}) })
		err = w.read(bounded, s, body, quiet)
	}
	if !errors.As(err, new(final)) && !errors.Is(err, errWithdrawn) {
		w.Cluster.RecordOutcome(ctx, s, &transport.Call{}, err)
	}
	return err
}

// open asks a server for its stream.
func (w *stream) open(ctx context.Context, s *transport.Server) (io.ReadCloser, error) {
	q := transport.Own(http.MethodGet, "watch").With("app", w.App, "index", w.Index)
	q.Accept = eventStream
	body, refused, err := w.Cluster.OpenStream(ctx, s, q)
	if err != nil {
		err = fmt.Errorf("watch: %w", err)
	}
	if refused {
		err = final{err}
	}
	return body, err
}

func (w *stream) read(ctx context.Context, s *transport.Server, body io.ReadCloser, quiet *time.Timer) error {
	defer body.Close()
	defer quiet.Stop()
	before := func() error {
		if w.Idle != nil {
			w.Idle()
		}
		if !w.Cluster.Has(ctx, s) {
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
func (w *stream) outdated(mark string) error {
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

// pass calls Each with an event and remembers where to resume.
func (w *stream) pass(s *transport.Server, e api.StreamEvent) error {
	event, index, err := decodeEvent(s.URL, e)
	if err != nil {
		return fmt.Errorf("watch: event %q of %s: %w", e.Name, s.URL, err)
	}
	if event != nil {
		if _, started := event.(Start); started {
			w.Cluster.Responded(s)
		}
		if err := w.Each(event); err != nil {
			return err
		}
	}
	w.Index = cmp.Or(string(e.ID), index, w.Index)
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
