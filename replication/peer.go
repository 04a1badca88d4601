package replication

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/replication/batcher"
	"github.com/seed-20419f34/rollcall/replication/link"
)

// peer is one receiver: what is configured, its link, and what is known of it over all sessions.
type peer struct {
	link.PeerConfig
	config  Config
	link    link.Link
	metrics *metrics
	log     *slog.Logger
	poked   chan struct{} // something happened that its session should look at

	mu      sync.Mutex
	session *session       // nil: not sending
	reached registry.Index // the cursor when the last session ended
	acked   registry.Index // the newest cursor that is in the state
	record  record
}

// record is what is counted and remembered of a peer since the node started.
type record struct {
	sent, dropped, repairs map[string]uint64
	repair                 *api.PeerRepair
	stats                  batcher.Stats // of the sessions that ended
	success                time.Time     // of the last call; zero: none yet
	failure                *api.PeerError
	failing                bool // the last call failed
	since                  time.Time
}

func newPeer(c Config, pc link.PeerConfig, m *metrics, newLink func(link.Env) link.Link) *peer {
	p := &peer{
		PeerConfig: pc, config: c, metrics: m,
		log:   c.Log.With("peer", pc.Name),
		poked: make(chan struct{}, 1),
		record: record{
			sent: make(map[string]uint64), dropped: make(map[string]uint64), repairs: make(map[string]uint64),
			since: time.Now(),
		},
	}
	p.link = newLink(link.Env{
		Side: c.Side, Peer: pc, Submit: p.submit, Sent: p.sent,
		Succeeded: p.succeeded, Failed: p.failed, Origin: p.origin(),
	})
	return p
}

// origin is what the peer's own instances are applied as.
func (p *peer) origin() registry.Origin {
	if p.Kind == link.Node {
		return registry.Origin{Kind: registry.LocalPeer}
	}
	return registry.Origin{Kind: registry.RemoteDC, DC: p.Name}
}

// paused says whether an operator stopped the sending.
func (p *peer) paused() bool { return p.config.View().Peer(p.Name).Paused }

// poke has the session look at what happened.
func (p *peer) poke() {
	select {
	case p.poked <- struct{}{}:
	default:
	}
}

// run sends until ctx ends, while it is not paused.
func (p *peer) run(ctx context.Context) {
	look := time.NewTicker(p.BatchDelay)
	defer look.Stop()
	for ctx.Err() == nil {
		if !p.paused() {
			p.send(ctx)
		}
		select {
		case <-look.C:
		case <-p.poked:
		case <-ctx.Done():
		}
	}
}

// send sends until ctx ends or it is paused.
func (p *peer) send(ctx context.Context) {
	s := newSession(p)
	p.begin(s)
	defer p.end(s)
	if err := s.run(ctx); err != nil && !errors.Is(err, errPaused) && ctx.Err() == nil {
		p.log.Error("sending to the peer ended", "err", err)
	}
}

func (p *peer) begin(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.session = s
	p.acked = s.from
}

func (p *peer) end(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.session = nil
	p.reached = max(p.reached, s.cursor.reached())
	p.record.stats = sum(p.record.stats, s.tasks.Stats())
}

// sending is the present session; nil if there is none.
func (p *peer) sending() *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.session
}

// notSending is the error of what needs a session where there is none.
func (p *peer) notSending() error {
	if p.paused() {
		return fmt.Errorf("%w to %s: it is paused", ErrNotSending, p.Name)
	}
	return fmt.Errorf("%w to %s", ErrNotSending, p.Name)
}

// submit queues what an answer of the peer asks for.
func (p *peer) submit(t link.Task) {
	if s := p.sending(); s != nil {
		s.submit(t)
	}
}

// cursor is how far the peer is known to be.
func (p *peer) cursor() registry.Index {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session != nil {
		return max(p.reached, p.session.cursor.reached())
	}
	return p.reached
}

// moved returns the cursor if it moved since it was acknowledged last.
func (p *peer) moved() (to registry.Index, ok bool) {
	to = p.cursor()
	p.mu.Lock()
	defer p.mu.Unlock()
	return to, to > p.acked
}

func (p *peer) acknowledged(at registry.Index) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.acked = max(p.acked, at)
}

func (p *peer) sent(fact string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.record.sent[fact]++
}

func (p *peer) dropped(why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.record.dropped[why]++
}

// repaired notes a repair that found something.
func (p *peer) repaired(reason string, d api.PeerDiff) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.record.repairs[reason]++
	p.record.repair = &api.PeerRepair{At: time.Now().UnixMilli(), Reason: reason, Sent: d.Missing, Removed: d.Extra}
	p.log.Info("repairing the peer", "reason", reason, "missing", d.Missing, "extra", d.Extra)
}

// succeeded notes a call that was answered.
func (p *peer) succeeded() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.record.success = time.Now()
	if p.record.failing {
		p.record.failing = false
		p.log.Info("peer answers again")
		if p.session != nil {
			p.session.tasks.Reached()
		}
		p.poke()
	}
}

// failed notes a call that was not; that is logged once.
func (p *peer) failed(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.record.failure = &api.PeerError{At: time.Now().UnixMilli(), Text: err.Error()}
	if !p.record.failing {
		p.record.failing = true
		p.log.Warn("peer does not answer", "err", err)
	}
}

func (p *peer) failing() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.record.failing
}

// silence is the time since the peer was last reached, or since the node started.
func (p *peer) silence() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.record.success.IsZero() {
		return time.Since(p.record.since)
	}
	return time.Since(p.record.success)
}

// stats are the dispatcher's numbers, the counters over all sessions.
func (p *peer) stats() batcher.Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session == nil {
		return sum(p.record.stats, batcher.Stats{})
	}
	return sum(p.record.stats, p.session.tasks.Stats())
}

// sum is now with the counters of before added.
func sum(before, now batcher.Stats) batcher.Stats {
	now.AcceptedTasks += before.AcceptedTasks
	now.ReplayedTasks += before.ReplayedTasks
	now.ExpiredTasks += before.ExpiredTasks
	now.OverriddenTasks += before.OverriddenTasks
	now.QueueOverflows += before.QueueOverflows
	now.StoppedTasks += before.StoppedTasks
	now.SuccessfulExecutions += before.SuccessfulExecutions
	now.TransientErrors += before.TransientErrors
	now.PermanentErrors += before.PermanentErrors
	now.CongestionIssues += before.CongestionIssues
	return now
}
