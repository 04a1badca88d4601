package replication

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/replication/batcher"
	"github.com/seed-20419f34/rollcall/replication/link"
)

// newPeer returns a peer to which nothing is sent yet. waiting is the histogram of how long tasks wait.
func newPeer(c Config, pc link.PeerConfig, waiting prometheus.Observer, newLink func(link.Env) link.Link) *peer {
	p := &peer{
		PeerConfig: pc, config: c, waiting: waiting,
		log:     c.Log.With("peer", pc.Name),
		woken:   make(chan struct{}, 1),
		refused: link.NewRefusals(c.World, c.Log.With("peer", pc.Name)),
		record: record{
			sent: make(map[string]uint64), dropped: make(map[string]uint64), repairs: make(map[string]uint64),
			since: time.Now(),
		},
	}
	origin := registry.Origin{Kind: registry.RemoteDC, DC: pc.Name}
	if pc.Kind == link.Node {
		origin = registry.Origin{Kind: registry.LocalPeer}
	}
	p.link = newLink(link.Env{
		Side: c.Side, Peer: pc, Submit: p.submit, Sent: p.sent,
		Succeeded: p.succeeded, Failed: p.failed, GaveUp: p.gaveUp, Origin: origin,
		Refused: func(key registry.Key, fact, why string) { p.refused.Record(key, fact, "", why) }, Owed: p.refused,
	})
	return p
}

// run sends until ctx ends, while the peer is not paused.
func (p *peer) run(ctx context.Context) {
	retry := time.NewTicker(p.BatchDelay)
	defer retry.Stop()
	for ctx.Err() == nil {
		if !p.paused() {
			p.send(ctx)
		}
		select {
		case <-retry.C:
		case <-p.woken:
		case <-ctx.Done():
		}
	}
}

// send sends until ctx ends or the peer is paused.
func (p *peer) send(ctx context.Context) {
	f := newFeed(p, p.cursor())
	p.mu.Lock()
	p.feed, p.acked = f, f.from
	p.mu.Unlock()
	defer func() { // records how far the feed came, and what it counted
		p.mu.Lock()
		defer p.mu.Unlock()
		p.feed = nil
		p.reached = max(p.reached, f.cursor.reached())
		p.record.stats = sum(p.record.stats, f.tasks.Stats())
	}()
	if err := f.run(ctx); err != nil && !errors.Is(err, errPaused) && ctx.Err() == nil {
		p.log.Error("sending to the peer ended", "err", err)
	}
}

// currentFeed returns nil if nothing is sent now.
func (p *peer) currentFeed() *feed {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.feed
}

// submit queues what a reply of the peer asks for.
func (p *peer) submit(t link.Task) {
	if f := p.currentFeed(); f != nil {
		f.submit(t)
	}
}

// cursor returns how far the peer is known to be.
func (p *peer) cursor() registry.Index {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.feed != nil {
		return max(p.reached, p.feed.cursor.reached())
	}
	return p.reached
}

// moved returns the cursor if it moved since it was last acknowledged.
func (p *peer) moved() (to registry.Index, ok bool) {
	to = p.cursor()
	p.mu.Lock()
	defer p.mu.Unlock()
	return to, to > p.acked
}

// succeeded records a call that the peer responded to.
func (p *peer) succeeded() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.record.success = p.config.World.Now()
	if p.record.failing {
		p.record.failing = false
		p.log.Info("peer responds again")
		if p.feed != nil {
			p.feed.tasks.Reached()
		}
		p.wake()
	}
}

// stats returns the dispatcher's numbers, with the counters over all feeds.
func (p *peer) stats() batcher.Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.feed == nil {
		return sum(p.record.stats, batcher.Stats{}) // only counters outlive a feed
	}
	return sum(p.record.stats, p.feed.tasks.Stats())
}
