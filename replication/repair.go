package replication

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/replication/link"
)

// repairRetry is the time after a comparison that failed, where nothing can be sent without it.
const repairRetry = time.Second

// The reasons of repairs.
const (
	repairFirst  = "first"   // nothing is known of the peer
	repairTooOld = "too-old" // the change list does not reach back
	repairDigest = "digest"  // the comparison that is made anyway
	repairAsked  = "asked"   // by an operator
)

// finding is what a comparison found.
type finding struct {
	reason string
	view   *registry.View // from before the comparison
	diff   api.PeerDiff
	tasks  []link.Task
	err    error
	queued chan struct{} // closed when the tasks are taken; nil: nobody waits
}

// untilDigest varies, so that peers are not compared with all at the same time.
func (s *session) untilDigest() time.Duration {
	d := s.config.Digest
	return d - d/10 + rand.N(d/5+1)
}

// digest compares with the peer, if it can be, and if nothing else is to be done first.
func (s *session) digest(ctx context.Context) {
	if s.Kind == link.Eureka || s.comparing || len(s.backlog) > 0 {
		return
	}
	s.compare(ctx, repairDigest)
}

// compareAll compares because nothing can be sent without it.
func (s *session) compareAll(ctx context.Context) {
	if !s.comparing && time.Since(s.compared) >= repairRetry {
		s.compare(ctx, s.why)
	}
}

// compare compares beside the feed, because the peer may be slow.
func (s *session) compare(ctx context.Context, reason string) {
	s.comparing, s.compared = true, time.Now()
	s.comparison.Go(func() {
		f := s.find(ctx, reason)
		select {
		case s.found <- f:
		case <-ctx.Done():
		}
	})
}

// find compares, for a repair.
func (s *session) find(ctx context.Context, reason string) finding {
	f := finding{reason: reason, view: s.config.View()}
	f.diff, f.tasks, f.err = s.link.Compare(ctx, true)
	if errors.Is(f.err, link.ErrNoDigests) {
		f.diff, f.err = api.PeerDiff{Missing: live(f.tasks)}, nil
	}
	return f
}

// live is how many tasks tell of instances that are there.
func live(tasks []link.Task) int {
	n := 0
	for _, t := range tasks {
		if t.Facts&link.Canceled == 0 {
			n++
		}
	}
	return n
}

// take queues what a comparison found.
func (s *session) take(f finding) {
	if f.queued == nil {
		s.comparing = false
	}
	if f.err != nil {
		s.log.Debug("comparison failed", "reason", f.reason, "err", f.err)
		return
	}
	if f.reason == repairFirst || f.reason == repairTooOld {
		// The cursor stays unknown until all of it was transmitted.
		for i := range f.tasks {
			f.tasks[i].First = everything
			s.cursor.add(everything, f.view.Stamp().Lease)
		}
		s.cursor.found(f.view)
	}
	if len(f.tasks) > 0 {
		s.repaired(f.reason, f.diff)
	}
	s.backlog = append(s.backlog, f.tasks...)
	if f.queued != nil {
		close(f.queued)
	}
}

// repair compares because an operator wants it, and returns when what differs is queued: by the
// dispatcher, or until it has room. Errors: ErrNotSending, or the transport's.
func (s *session) repair(ctx context.Context) (api.PeerDiff, error) {
	f := s.find(ctx, repairAsked)
	if f.err != nil {
		return api.PeerDiff{}, f.err
	}
	f.queued = make(chan struct{})
	select {
	case s.found <- f:
		<-f.queued
		return f.diff, nil
	case <-s.ended:
		return api.PeerDiff{}, s.notSending()
	case <-ctx.Done():
		return api.PeerDiff{}, ctx.Err()
	}
}
