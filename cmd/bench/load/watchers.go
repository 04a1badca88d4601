package load

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

const (
	watchRetry = 250 * time.Millisecond // between the end of a stream and the next try
	watchSpan  = time.Second            // the streams begin spread over this time, not all at once
	watchQuiet = 45 * time.Second       // three of a node's intervals between signs of life: longer silence is a break
	watchFetch = 4 << 10                // bytes of a stream read at once
)

// Watched counts what came on the watchers' streams.
type Watched struct {
	Open   int64 // streams, now
	Events int64 // changes
	Resets int64 // times that a node could not tell what had changed since the index that a watcher named
	Breaks int64 // streams that ended or could not begin; each was retried
	Bytes  int64 // of the streams
}

// Watched returns what the watchers have seen so far.
func (l *Load) Watched() Watched {
	l.recorder.mu.Lock()
	defer l.recorder.mu.Unlock()
	return l.recorder.watched
}

// count adds what a watcher has seen.
func (w *watcher) count(seen Watched) {
	r := &w.load.recorder
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watched.Open += seen.Open
	r.watched.Events += seen.Events
	r.watched.Resets += seen.Resets
	r.watched.Breaks += seen.Breaks
	r.watched.Bytes += seen.Bytes
}

// watch holds the watchers' streams of changes open until ctx ends.
func (l *Load) watch(ctx context.Context) {
	var all sync.WaitGroup
	for i := range l.Load.Watchers {
		all.Go(func() {
			if wait.For(ctx, watchSpan/time.Duration(l.Load.Watchers)*time.Duration(i)) {
				(&watcher{load: l, home: i % len(l.Nodes)}).run(ctx)
			}
		})
	}
	all.Wait()
}

// watcher reads a stream of server-sent events and remembers their ids, from which it resumes after a break. One
// goroutine uses it.
type watcher struct {
	load *Load
	home int
	last []byte   // id of the newest event; empty before the first
	conn net.Conn // of the stream
	body io.Reader
}

// run watches until ctx ends: at home, or at the next reachable node while that does not answer, and at home again
// after every stream that had begun.
func (w *watcher) run(ctx context.Context) {
	for turn := 0; ctx.Err() == nil; turn++ {
		nodes := w.load.Reach.From(w.home, len(w.load.Nodes))
		if w.watch(ctx, w.load.Nodes[nodes[turn%len(nodes)]]) == nil {
			turn = -1
		}
		if ctx.Err() == nil {
			w.count(Watched{Breaks: 1})
			wait.For(ctx, watchRetry)
		}
	}
}

// watch reads the changes since the last event until the stream breaks. The error says why it has not begun.
func (w *watcher) watch(ctx context.Context, addr string) (err error) {
	if w.conn, err = (&net.Dialer{Timeout: w.load.Timeout}).DialContext(ctx, "tcp", addr); err != nil {
		return err
	}
	defer w.conn.Close()
	defer context.AfterFunc(ctx, func() { w.conn.Close() })()
	target := "/v1/rollcall/watch"
	if len(w.last) > 0 {
		target += "?index=" + url.QueryEscape(string(w.last))
	}
	if err := w.conn.SetDeadline(time.Now().Add(w.load.Timeout)); err != nil {
		return err
	}
	if w.body, err = AskForEvents(w.conn, target); err != nil {
		return err
	}
	w.count(Watched{Open: 1})
	defer w.count(Watched{Open: -1})
	w.follow(api.NewEventReader(w, watchFetch))
	return nil
}

// AskForEvents asks for a stream of server-sent events over a dedicated connection, and returns the body of the
// response.
func AskForEvents(conn net.Conn, target string) (io.Reader, error) {
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n", target); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(bufio.NewReaderSize(conn, watchFetch), nil)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("watch: %s", resp.Status)
	}
	return resp.Body, nil
}

// follow counts events until the stream ends, and keeps the ids.
func (w *watcher) follow(events *api.EventReader) {
	for {
		e, err := events.Next()
		if err != nil {
			return
		}
		switch string(e.Name) {
		case "change":
			w.count(Watched{Events: 1})
		case "reset":
			w.count(Watched{Resets: 1})
		}
		if len(e.ID) > 0 {
			w.last = append(w.last[:0], e.ID...)
		}
	}
}

// Read implements io.Reader for the stream. It counts the bytes, and ends the stream when nothing comes for too long.
func (w *watcher) Read(p []byte) (int, error) {
	if err := w.conn.SetReadDeadline(time.Now().Add(watchQuiet)); err != nil {
		return 0, err
	}
	n, err := w.body.Read(p)
	w.count(Watched{Bytes: int64(n)})
	return n, err
}
