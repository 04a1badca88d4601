package own

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// stream is one watcher's stream of server-sent events.
type stream struct {
	of      *Own
	changes *changeReader
	out     *web.StreamWriter
}

// stream sends events until the watcher goes, the node shuts down, or the watcher reads too slowly. It begins with the
// position that the watcher named: a watcher that is cut off before it hears that this position is lost must name it
// again.
func (o *Own) stream(ctx context.Context, w http.ResponseWriter, f *changeReader) error {
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // otherwise nginx holds responses back
	s := &stream{of: o, changes: f, out: web.NewStreamWriter(w, o.Watches.Pace)}
	defer s.out.Finish()
	err := s.run(ctx)
	switch {
	case errors.Is(err, web.ErrReadsNothing):
		o.resets.WithLabelValues("cut").Inc()
	case ctx.Err() == nil:
		o.Log.Debug("a watch ended", "err", err, "index", f.at.String())
	}
	return nil // too late for another response: this one has begun
}

func (s *stream) run(ctx context.Context) error {
	s.out.TakeBuffer()
	s.event("start", s.position)
	if err := s.out.Flush(); err != nil {
		return err
	}
	for !s.out.Slow {
		changes, err := s.next(ctx)
		if reason := resetReason(err); reason != "" {
			err = s.reset(reason)
		}
		if err == nil {
			err = s.send(changes)
		}
		if err != nil {
			return err
		}
		if err := s.awaitGap(ctx); err != nil {
			return err
		}
	}
	if err := s.reset("slow"); err != nil {
		return err
	}
	return s.out.Flush()
}

// next waits for changes, and holds no buffer meanwhile.
func (s *stream) next(ctx context.Context) ([]registry.Change, error) {
	s.out.Pause()
	defer s.out.TakeBuffer()
	return s.changes.next(ctx, s.of.Watches.Pace.Quiet)
}

// send sends changes. Without any, it sends the stream's position as a new id without an event, so that a watcher that
// resumes after a long quiet does not have one that is too old, and a comment that says how old this node's state may
// be: a node that lost its leader is quiet as well.
func (s *stream) send(changes []registry.Change) error {
	if len(changes) == 0 && len(s.out.Buf) == 0 {
		s.out.Buf = append(append(s.out.Buf, "id: "...), s.changes.at.String()...)
		s.out.Buf = append(s.out.Buf, "\n: age "...)
		s.out.Buf = strconv.AppendFloat(s.out.Buf, s.of.Service.Health().Age.Seconds(), 'f', 3, 64)
		s.out.Buf = append(s.out.Buf, "\n\n"...)
	}
	sent := 0
	for _, c := range changes {
		s.out.Buf = appendEvent(s.out.Buf, "change", web.FormatIndex(s.changes.at.epoch, c.Index), func(dst []byte) []byte {
			return append(dst, s.of.texts.of(s.changes.at.epoch, c)...)
		})
		sent++
		if !s.out.Full() {
			continue
		}
		if err := s.flush(sent); err != nil || s.out.Slow {
			return err
		}
		sent = 0
	}
	return s.flush(sent)
}

func (s *stream) flush(sent int) error {
	err := s.out.Flush()
	if err == nil {
		s.of.events.Add(float64(sent))
	}
	return err
}

// awaitGap lets the gap pass, unless there is more to send already.
func (s *stream) awaitGap(ctx context.Context) error {
	if s.changes.more {
		return nil
	}
	gap := time.NewTimer(s.of.Watches.Pace.Gap)
	defer gap.Stop()
	select {
	case <-gap.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reset tells the watcher to fetch everything; the stream continues from what this node has now.
func (s *stream) reset(reason string) error {
	if err := s.changes.restart(); err != nil {
		return err
	}
	s.of.resets.WithLabelValues(reason).Inc()
	s.event("reset", func(dst []byte) []byte {
		dst = eureka.AppendQuoted(append(dst, `{"reason":`...), resetText[reason])
		dst = eureka.AppendQuoted(append(dst, `,"index":`...), s.changes.at.String())
		return append(dst, '}')
	})
	return nil
}

// event collects an event with the stream's position as its id.
func (s *stream) event(name string, data func([]byte) []byte) {
	s.out.Buf = appendEvent(s.out.Buf, name, s.changes.at.String(), data)
}

func (s *stream) position(dst []byte) []byte {
	return append(eureka.AppendQuoted(append(dst, `{"index":`...), s.changes.at.String()), '}')
}

// appendChange appends a change as our own API shows it: what happened, to which instance, and the instance as Eureka
// shows it. If only the record of a removal is left, just the name is known.
func appendChange(dst []byte, epoch string, c registry.Change) []byte {
	l := c.Lease
	if c.Kind == registry.Hidden { // in quarantine: for readers it is gone
		hidden := *l
		hidden.Action = registry.ActionDeleted
		l = &hidden
	}
	dst = eureka.AppendQuoted(append(dst, `{"index":`...), web.FormatIndex(epoch, c.Index))
	dst = eureka.AppendQuoted(append(dst, `,"action":`...), l.Action.String())
	dst = eureka.AppendQuoted(append(dst, `,"why":`...), whyChanged(c))
	dst = eureka.AppendQuoted(append(dst, `,"app":`...), l.Instance.App)
	dst = eureka.AppendQuoted(append(dst, `,"id":`...), l.Instance.ID())
	if l.RegisteredAt != 0 { // otherwise only the record of its removal is left
		dst = eureka.AppendQuoted(append(dst, `,"status":`...), l.Instance.Status.String())
		dst = eureka.AppendInstance(append(dst, `,"instance":`...), eureka.Format{}, l, l.RenewedAt)
	}
	return append(dst, '}')
}

// changeTexts caches the newest changes as watchers get them: each is encoded once for all watchers, which ask at
// about the same time. A change that another one has displaced, or one of a large instance, is encoded for its reader:
// the cache has a bound.
type changeTexts [keptTexts]atomic.Pointer[changeText]

const (
	keptTexts = 1024
	keptText  = 8 << 10 // bytes that an instance may take to be cached
)

// changeText is a change in a history, and its text once somebody has asked for it.
type changeText struct {
	epoch  string
	change registry.Change
	encode func() []byte
}

// of returns the text of a change, which its reader must not modify.
func (t *changeTexts) of(epoch string, c registry.Change) []byte {
	if c.Lease.Weight() > keptText {
		return appendChange(nil, epoch, c)
	}
	place := &t[uint64(c.Index)%uint64(len(t))]
	found := place.Load()
	if found == nil || found.epoch != epoch || found.change != c {
		made := &changeText{epoch, c, sync.OnceValue(func() []byte { return appendChange(nil, epoch, c) })}
		if !place.CompareAndSwap(found, made) { // another reader was faster, most likely with the same change
			if other := place.Load(); other.epoch == epoch && other.change == c {
				made = other
			}
		}
		found = made
	}
	return found.encode()
}

// whyChanged returns the cause of a change in one word. The end of a quarantine shows an instance again that was
// registered before: it is added, but not registered.
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

// appendEvent appends a server-sent event. data has no line break, because JSON never needs one.
func appendEvent(dst []byte, name, id string, data func([]byte) []byte) []byte {
	dst = append(append(dst, "event: "...), name...)
	dst = append(append(dst, "\nid: "...), id...)
	dst = data(append(dst, "\ndata: "...))
	return append(dst, "\n\n"...)
}
