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
	"sync/atomic"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/wire"
	"github.com/seed-20419f34/rollcall/httpd/api"
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
func (l *Load) Watched() Watched { return l.watched.now() }

// watchCounts counts what watchers see. Safe for concurrent use.
type watchCounts struct{ open, events, resets, breaks, bytes atomic.Int64 }

func (c *watchCounts) now() Watched {
	return Watched{
		Open: c.open.Load(), Events: c.events.Load(), Resets: c.resets.Load(), Breaks: c.breaks.Load(), Bytes: c.bytes.Load(),
	}
}

// watch holds the watchers' streams of changes open until ctx ends, each at its home node, or at the next reachable
// one while that does not answer.
func (l *Load) watch(ctx context.Context) {
	var all sync.WaitGroup
	for i := range l.Load.Watchers {
		all.Go(func() {
			if wire.Pause(ctx, watchSpan/time.Duration(l.Load.Watchers)*time.Duration(i)) {
				(&watcher{load: l, counts: &l.watched, home: i % len(l.Nodes)}).run(ctx)
			}
		})
	}
	all.Wait()
}

// watcher reads a stream of server-sent events and remembers their ids, from which it resumes after a break. One
// goroutine uses it.
type watcher struct {
	load   *Load
	counts *watchCounts
	home   int
	last   []byte // id of the newest event; empty before the first
}

// run watches until ctx ends: home first, and home again after every stream that had begun.
func (w *watcher) run(ctx context.Context) {
	for turn := 0; ; turn++ {
		nodes := w.load.Reach.From(w.home, len(w.load.Nodes))
		if w.watch(ctx, w.load.Nodes[nodes[turn%len(nodes)]]) {
			turn = -1
		}
		if ctx.Err() != nil {
			return
		}
		w.counts.breaks.Add(1)
		if !wire.Pause(ctx, watchRetry) {
			return
		}
	}
}

// watch reads one stream until it breaks, and reports whether it had begun.
func (w *watcher) watch(ctx context.Context, addr string) (began bool) {
	conn, err := (&net.Dialer{Timeout: w.load.Timeout}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	body, err := w.ask(conn)
	if err != nil {
		return false
	}
	w.counts.open.Add(1)
	defer w.counts.open.Add(-1)
	w.read(api.NewEventReader(&watchBody{body, conn, w.counts}, watchFetch))
	return true
}

// ask asks for the changes since the last event, and returns the body of the response.
func (w *watcher) ask(conn net.Conn) (io.Reader, error) {
	target := "/v1/rollcall/watch"
	if len(w.last) > 0 {
		target += "?index=" + url.QueryEscape(string(w.last))
	}
	if err := conn.SetDeadline(time.Now().Add(w.load.Timeout)); err != nil {
		return nil, err
	}
	return AskForEvents(conn, target)
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

// read counts events until the stream ends, and keeps the ids.
func (w *watcher) read(events *api.EventReader) {
	for {
		e, err := events.Next()
		if err != nil {
			return
		}
		switch string(e.Name) {
		case "change":
			w.counts.events.Add(1)
		case "reset":
			w.counts.resets.Add(1)
		}
		if len(e.ID) > 0 {
			w.last = append(w.last[:0], e.ID...)
		}
	}
}

// watchBody counts the bytes of a stream, and ends it when nothing comes for too long.
type watchBody struct {
	io.Reader
	conn   net.Conn
	counts *watchCounts
}

// Read implements io.Reader.
func (b *watchBody) Read(p []byte) (int, error) {
	if err := b.conn.SetReadDeadline(time.Now().Add(watchQuiet)); err != nil {
		return 0, err
	}
	n, err := b.Reader.Read(p)
	b.counts.bytes.Add(int64(n))
	return n, err
}
