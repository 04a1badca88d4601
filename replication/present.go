package replication

import (
	"context"
	"reflect"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/replication/link"
)

// SetPeers replaces the peers while the replicator runs, or before. Peers of which nothing has changed are not touched; one
// with changed settings is sent to anew, from its cursor on. An error says what is wrong with the peers, every mistake at once;
// nothing has changed then.
func (r *Replicator) SetPeers(configs []link.PeerConfig) error {
	side := r.config.Side
	side.Peers = configs
	if err := side.Validate(); err != nil {
		return err
	}
	r.setting.Lock()
	defer r.setting.Unlock()
	configs = filled(configs)
	before := map[string]*peer{}
	for _, p := range r.present() {
		before[p.Name] = p
	}
	same := len(configs) == len(before)
	peers := make([]*peer, len(configs))
	for i, c := range configs {
		old := before[c.Name]
		if old != nil && sameSettings(old.PeerConfig, c) {
			peers[i] = old
			delete(before, c.Name)
			continue
		}
		same = false
		peers[i] = r.newPeer(c)
		if old != nil {
			peers[i].record.since, peers[i].record.success = old.reachedAt()
		}
	}
	if same {
		return nil
	}
	for name := range before {
		r.waiting.DeletePartialMatch(prometheus.Labels{"peer": name})
	}
	r.config.Now.Store(&configs)
	r.peers.Store(&peers)
	r.eurekas.Forget()
	select {
	case r.changed <- struct{}{}:
	default:
	}
	return nil
}

// sameSettings compares two peers. What a connection is made with is the same for all.
func sameSettings(a, b link.PeerConfig) bool {
	a.TLS, b.TLS = nil, nil
	return reflect.DeepEqual(a, b)
}

// sending is the sending to one peer.
type sending struct {
	stop  context.CancelFunc
	ended chan struct{}
}

// runPeers sends to the peers of now until ctx ends.
func (r *Replicator) runPeers(ctx context.Context) {
	running := map[*peer]sending{}
	var all sync.WaitGroup
	defer all.Wait()
	for {
		present := map[*peer]bool{}
		for _, p := range r.present() {
			present[p] = true
		}
		r.stopOthers(ctx, running, present)
		for p := range present {
			if _, runs := running[p]; runs {
				continue
			}
			ctx, stop := context.WithCancel(ctx)
			s := sending{stop, make(chan struct{})}
			running[p] = s
			all.Go(func() {
				defer close(s.ended)
				defer stop()
				p.run(ctx)
			})
		}
		select {
		case <-r.changed:
		case <-ctx.Done():
			return
		}
	}
}

// stopOthers stops the sending to the peers that are not present, and has the state keep how far they came: a peer of the
// same name, with other settings, goes on there.
func (r *Replicator) stopOthers(ctx context.Context, running map[*peer]sending, present map[*peer]bool) {
	var stopped []*peer
	for p, s := range running {
		if !present[p] {
			s.stop()
			stopped = append(stopped, p)
		}
	}
	for _, p := range stopped {
		<-running[p].ended
		delete(running, p)
	}
	if len(stopped) > 0 {
		acknowledgeLast(ctx, &r.config.Side, func() []*peer { return stopped })
	}
}
