package replication

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/replication/batcher"
	"github.com/seed-20419f34/rollcall/replication/link"
)

// peer is one receiver: its configuration, its link, and what is known of it across all of its feeds.
type peer struct {
	link.PeerConfig
	config  Config
	link    link.Link
	waiting prometheus.Observer // of its tasks; a removed peer's waits are recorded nowhere
	log     *slog.Logger
	woken   chan struct{}  // something happened that may need tasks
	refused *link.Refusals // what the peer refused, and has not accepted since

	mu      sync.Mutex
	feed    *feed          // nil if nothing is sent now
	reached registry.Index // the cursor when the last feed ended
	acked   registry.Index // newest cursor that is in the state
	record  record
}

// record holds what is counted and remembered of a peer since the node started.
type record struct {
	sent, dropped, repairs map[string]uint64
	repair                 *api.PeerRepair
	stats                  batcher.Stats // sum over the feeds that ended
	success                time.Time     // of the last call; zero before the first
	failure                *api.PeerError
	failing                bool // the last call failed
	since                  time.Time
}

// notSending returns the error for what needs a feed while none runs.
func (p *peer) notSending() error {
	if p.paused() {
		return fmt.Errorf("%w to %s: it is paused", ErrNotSending, p.Name)
	}
	return fmt.Errorf("%w to %s", ErrNotSending, p.Name)
}

// paused reports whether an operator stopped the sending.
func (p *peer) paused() bool { return p.config.View().Peer(p.Name).Paused }

// wake makes the feed look for changes, and for a pause.
func (p *peer) wake() {
	select {
	case p.woken <- struct{}{}:
	default:
	}
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

// gaveUp counts an item that the peer refused although the call succeeded.
func (p *peer) gaveUp() { p.dropped(dropNames[batcher.Permanent]) }

// repaired records a repair that found something.
func (p *peer) repaired(reason string, d api.PeerDiff) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.record.repairs[reason]++
	p.record.repair = &api.PeerRepair{At: p.config.World.Now().UnixMilli(), Reason: reason, Sent: d.Missing, Removed: d.Extra}
	p.log.Info("repairing the peer", "reason", reason, "missing", d.Missing, "extra", d.Extra)
}

// failed records a call without a usable response, and logs the first in a row.
func (p *peer) failed(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.record.failure = &api.PeerError{At: p.config.World.Now().UnixMilli(), Text: err.Error()}
	if !p.record.failing {
		p.record.failing = true
		p.log.Warn("peer does not respond", "err", err)
	}
}

func (p *peer) failing() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.record.failing
}

// reachedAt returns since when the peer is known, and when it was last reached, or zero if it was not yet.
func (p *peer) reachedAt() (since, success time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.record.since, p.record.success
}

// sum returns now with the counters of before added.
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
