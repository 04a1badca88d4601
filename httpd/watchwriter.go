package httpd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
)

const (
	fullPiece = 32 << 10 // what is collected before it is written
	maxPiece  = 64 << 10 // what is written at once, under one time limit
)

var pieces = sync.Pool{New: func() any {
	b := make([]byte, 0, maxPiece)
	return &b
}}

// watchWriter collects what a watcher is sent and writes it in pieces, each with a time limit of its
// own: the server's limit for a whole answer means nothing to one that has no end. A buffer is held
// only while there is something to send.
type watchWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	pace    pace
	pooled  *[]byte
	buf     []byte
	slow    bool // a piece took longer than pace.slow
}

func newWatchWriter(w http.ResponseWriter, p pace) *watchWriter {
	return &watchWriter{w: w, control: http.NewResponseController(w), pace: p}
}

// begin gets a buffer.
func (o *watchWriter) begin() {
	if o.pooled == nil {
		o.pooled = pieces.Get().(*[]byte)
		o.buf = (*o.pooled)[:0]
	}
}

// pause says that nothing will be sent for a while. A time limit would end a stream of HTTP/2 then,
// and the server has set one for the request. A failure shows at the next write.
func (o *watchWriter) pause() {
	_ = o.control.SetWriteDeadline(time.Time{})
	o.release()
}

// end leaves net/http its time to end the answer.
func (o *watchWriter) end() {
	_ = o.control.SetWriteDeadline(time.Now().Add(o.pace.cut)) // else the connection has broken
	o.release()
}

// release gives the buffer back, unless one large change made it grow.
func (o *watchWriter) release() {
	if o.pooled != nil && cap(o.buf) <= 2*maxPiece {
		*o.pooled = o.buf
		pieces.Put(o.pooled)
	}
	o.pooled, o.buf = nil, nil
}

// full says that what was collected is to be written.
func (o *watchWriter) full() bool { return len(o.buf) >= fullPiece }

// flush writes what was collected. It fails when the reader took nothing for pace.cut, or went away.
func (o *watchWriter) flush() error {
	for rest := o.buf; len(rest) > 0; {
		n := min(len(rest), maxPiece)
		if err := o.piece(rest[:n]); err != nil {
			return err
		}
		rest = rest[n:]
	}
	o.buf = o.buf[:0]
	return nil
}

func (o *watchWriter) piece(p []byte) error {
	begun := time.Now()
	err := o.control.SetWriteDeadline(begun.Add(o.pace.cut))
	if err == nil {
		_, err = o.w.Write(p)
	}
	if err == nil {
		err = o.control.Flush()
	}
	took := time.Since(begun)
	o.slow = o.slow || took > o.pace.slow
	if err != nil {
		o.pooled = nil // HTTP/2 may still read from it
	}
	if err != nil && took >= o.pace.cut {
		return fmt.Errorf("%w for %v: %w", errReadsNothing, o.pace.cut, err)
	}
	return err
}

// errReadsNothing: a watcher was cut off.
var errReadsNothing = errors.New("the watcher read nothing")

// pieceLimit is how long a client may take for a piece of an answer. The whole may take any time.
const pieceLimit = 30 * time.Second

// pieceWriter gives each write a time limit of its own: the server's limit for a whole answer is for
// short ones.
type pieceWriter struct {
	w       io.Writer
	control *http.ResponseController
	begun   bool
}

func newPieceWriter(w http.ResponseWriter) *pieceWriter {
	return &pieceWriter{w: w, control: http.NewResponseController(w)}
}

// Write implements io.Writer.
func (p *pieceWriter) Write(piece []byte) (int, error) {
	p.begun = true
	_ = p.control.SetWriteDeadline(time.Now().Add(pieceLimit)) // else the connection has broken
	return p.w.Write(piece)
}

// stream is one watcher's stream of server-sent events.
type stream struct {
	feed    *feed
	out     *watchWriter
	watches *watches
	age     func() time.Duration // of what this node has
}

// stream sends events until the watcher goes, the node shuts down, or the watcher reads too slowly.
// It begins with the position that the watcher named, so that one that is cut off before it heard
// that this position is lost names it again.
func (h *Handler) stream(ctx context.Context, w http.ResponseWriter, f *feed) error {
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // nginx holds answers back otherwise
	s := &stream{feed: f, out: newWatchWriter(w, h.watches.pace), watches: h.watches, age: func() time.Duration { return h.config.Service.Health().Age }}
	defer s.out.end()
	err := s.run(ctx)
	switch {
	case errors.Is(err, errReadsNothing):
		h.watches.resets.WithLabelValues("cut").Inc()
	case ctx.Err() == nil:
		h.config.Log.Debug("a watch ended", "err", err, "index", f.at.String())
	}
	return nil // the answer has begun: there is no other one
}

func (s *stream) run(ctx context.Context) error {
	s.out.begin()
	s.event("start", s.position)
	if err := s.out.flush(); err != nil {
		return err
	}
	for !s.out.slow {
		changes, err := s.next(ctx)
		if reason := lost(err); reason != "" {
			err = s.reset(reason)
		}
		if err == nil {
			err = s.send(changes)
		}
		if err != nil {
			return err
		}
		if err := s.rest(ctx); err != nil {
			return err
		}
	}
	if err := s.reset("slow"); err != nil {
		return err
	}
	return s.out.flush()
}

// next waits for changes, and holds no buffer meanwhile.
func (s *stream) next(ctx context.Context) ([]registry.Change, error) {
	s.out.pause()
	defer s.out.begin()
	return s.feed.next(ctx, s.watches.pace.quiet)
}

// send sends changes. Without any, it says where the stream is, so that a watcher who resumes after
// a long quiet is not too old.
func (s *stream) send(changes []registry.Change) error {
	if len(changes) == 0 && len(s.out.buf) == 0 {
		s.keepAlive()
	}
	sent := 0
	for _, c := range changes {
		s.out.buf = appendEvent(s.out.buf, "change", formatIndex(s.feed.at.epoch, c.Index), func(dst []byte) []byte {
			return appendChange(dst, s.feed.at.epoch, c)
		})
		sent++
		if !s.out.full() {
			continue
		}
		if err := s.flush(sent); err != nil || s.out.slow {
			return err
		}
		sent = 0
	}
	return s.flush(sent)
}

func (s *stream) flush(sent int) error {
	err := s.out.flush()
	if err == nil {
		s.watches.events.Add(float64(sent))
	}
	return err
}

// rest lets the gap pass, unless there is more to send already.
func (s *stream) rest(ctx context.Context) error {
	if s.feed.more {
		return nil
	}
	gap := time.NewTimer(s.watches.pace.gap)
	defer gap.Stop()
	select {
	case <-gap.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reset tells the watcher to fetch everything; the stream goes on from what this node has now.
func (s *stream) reset(reason string) error {
	if err := s.feed.restart(); err != nil {
		return err
	}
	s.watches.resets.WithLabelValues(reason).Inc()
	s.event("reset", func(dst []byte) []byte {
		dst = eureka.AppendText(append(dst, `{"reason":`...), lostText[reason])
		dst = eureka.AppendText(append(dst, `,"index":`...), s.feed.at.String())
		return append(dst, '}')
	})
	return nil
}

// event collects an event with the stream's position as its id.
func (s *stream) event(name string, data func([]byte) []byte) {
	s.out.buf = appendEvent(s.out.buf, name, s.feed.at.String(), data)
}

func (s *stream) position(dst []byte) []byte {
	return append(eureka.AppendText(append(dst, `{"index":`...), s.feed.at.String()), '}')
}

// keepAlive collects a new id without an event, and a comment that says how old this node's state
// may be: a node that lost its leader is quiet as well.
func (s *stream) keepAlive() {
	s.out.buf = append(append(s.out.buf, "id: "...), s.feed.at.String()...)
	s.out.buf = append(s.out.buf, "\n: age "...)
	s.out.buf = strconv.AppendFloat(s.out.buf, s.age().Seconds(), 'f', 3, 64)
	s.out.buf = append(s.out.buf, "\n\n"...)
}

// appendChange appends a change as our own API shows it: what happened, to whom, and the instance as
// Eureka shows it. Where only the record of a removal is left there is nothing more than the name.
func appendChange(dst []byte, epoch string, c registry.Change) []byte {
	l := shownLease(c)
	dst = eureka.AppendText(append(dst, `{"index":`...), formatIndex(epoch, c.Index))
	dst = eureka.AppendText(append(dst, `,"action":`...), l.Action.String())
	dst = eureka.AppendText(append(dst, `,"why":`...), whyChanged(c))
	dst = eureka.AppendText(append(dst, `,"app":`...), l.Instance.App)
	dst = eureka.AppendText(append(dst, `,"id":`...), l.Instance.ID())
	if !reduced(l) {
		dst = eureka.AppendText(append(dst, `,"status":`...), l.Instance.Status.String())
		dst = eureka.AppendInstance(append(dst, `,"instance":`...), eureka.Format{}, l, l.RenewedAt)
	}
	return append(dst, '}')
}

// shownLease is a changed lease as readers see it: one in quarantine is gone for them.
func shownLease(c registry.Change) *registry.Lease {
	if c.Kind != registry.Hidden {
		return c.Lease
	}
	hidden := *c.Lease
	hidden.Action = registry.ActionDeleted
	return &hidden
}

// reduced says that only the record of a removal is left of a lease. Every other one knows when it
// was registered.
func reduced(l *registry.Lease) bool { return l.RegisteredAt == 0 }

// whyChanged is the cause of a change in one word. The end of a quarantine shows an instance anew
// that was registered before: it is added, but not registered.
func whyChanged(c registry.Change) string {
	switch {
	case c.Kind == registry.Canceled:
		return "canceled"
	case c.Kind == registry.Evicted:
		return "evicted"
	case c.Kind == registry.Hidden:
		return "quarantined"
	case c.Lease.Registered == c.Index:
		return "registered"
	}
	return "changed"
}

// appendEvent appends a server-sent event. data holds no line break, as JSON never needs one.
func appendEvent(dst []byte, name, id string, data func([]byte) []byte) []byte {
	dst = append(append(dst, "event: "...), name...)
	dst = append(append(dst, "\nid: "...), id...)
	dst = data(append(dst, "\ndata: "...))
	return append(dst, "\n\n"...)
}
