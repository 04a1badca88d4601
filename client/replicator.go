package client

import (
	"runtime/debug"
	"slices"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

// SetStatus changes the status, and ends a Drain. It reports whether the cluster is told at once. If not, the token
// bucket is empty, and the change is sent, with all others made meanwhile, when a token becomes available.
func (r *Registration) SetStatus(s registry.Status) (atOnce bool) {
	r.state.stopDraining()
	return r.change(func(i *registry.Instance) { i.Status = s })
}

// SetMetadata adds or replaces entries of the metadata. It returns what SetStatus returns.
func (r *Registration) SetMetadata(entries ...registry.Pair) (atOnce bool) {
	return r.change(func(i *registry.Instance) {
		i.Metadata = slices.Clone(i.Metadata)
		for _, e := range entries {
			at := slices.IndexFunc(i.Metadata, func(p registry.Pair) bool { return p.Key == e.Key })
			if at < 0 {
				i.Metadata = append(i.Metadata, e)
				continue
			}
			i.Metadata[at] = e
		}
	})
}

// DeleteMetadata removes entries of the metadata. It returns what SetStatus returns.
func (r *Registration) DeleteMetadata(keys ...string) (atOnce bool) {
	named := func(p registry.Pair) bool { return slices.Contains(keys, p.Key) }
	return r.change(func(i *registry.Instance) { i.Metadata = slices.DeleteFunc(slices.Clone(i.Metadata), named) })
}

// change requests an update for a change: at once if there is a token, otherwise when one becomes available.
func (r *Registration) change(how func(i *registry.Instance)) (atOnce bool) {
	if !r.state.differs(how) {
		_, waiting := r.state.request()
		return !waiting
	}
	if r.life.Err() != nil {
		return false
	}
	atOnce = r.bucket.Acquire(r.config.ReplicationBurst, r.rate)
	if !atOnce {
		r.client.metrics.limited.Inc()
	}
	r.requestUpdate(atOnce)
	return atOnce
}

// replicate is the second loop of a Registration, upstream's InstanceInfoReplicator: it registers what has changed,
// at its checks and on demand.
//
// A check asks Health first, in a goroutine of its own, and continues when that has returned. If Health is still busy
// with the previous check, this one does without it.
func (r *Registration) replicate() {
	outage := &wait.Outage{Log: r.log}
	check, token := time.NewTimer(r.config.ReplicationDelay), time.NewTimer(time.Hour)
	defer check.Stop()
	defer token.Stop()
	token.Stop() // nothing waits for a token yet
	for {
		next := r.config.ReplicationInterval
		select {
		case <-r.life.Done():
			return
		case <-check.C:
			check.Reset(next)
			if !r.askHealth() {
				r.update(outage)
			}
		case status := <-r.reported:
			r.state.setHealth(status)
			r.update(outage)
		case <-r.wake:
			if demanded, waiting := r.state.request(); demanded {
				r.update(outage)
				check.Reset(next)
			} else if waiting {
				token.Reset(r.bucket.Wait(r.config.ReplicationBurst, r.rate))
			}
		case <-token.C:
			// If another change was faster, the loop waits for the next token.
			if _, waiting := r.state.request(); waiting {
				r.requestUpdate(r.bucket.Acquire(r.config.ReplicationBurst, r.rate))
			}
		}
	}
}

// update registers what has changed, with every change that waits for a token.
func (r *Registration) update(outage *wait.Outage) {
	r.state.clearRequest()
	err := r.register(r.life, whyChanged, r.state.changed)
	if r.life.Err() == nil {
		report(outage, err, "update")
	}
}

func (r *Registration) requestUpdate(atOnce bool) {
	r.state.requestUpdate(atOnce)
	select {
	case r.wake <- struct{}{}:
	default: // the loop is about to read the request
	}
}

// askHealth asks Health for the status at the next check. It returns false if Health must not be asked, or has not
// returned yet.
func (r *Registration) askHealth() bool {
	if r.config.Health == nil || r.state.facts().drain != nil || !r.healthTurn.tryAcquire() {
		return false
	}
	go func() { // withdraw waits for the turn, and so for this
		defer r.healthTurn.release()
		select {
		case r.reported <- r.health():
		case <-r.life.Done():
		}
	}()
	return true
}

// health calls the callback. A panic counts as DOWN.
func (r *Registration) health() (status registry.Status) {
	current := r.state.facts().instance.Status
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		status = registry.Down
		if current != status {
			r.log.Error("the health callback panicked, so the instance is DOWN", "panic", p, "stack", string(debug.Stack()))
		}
	}()
	return r.config.Health(r.life, current)
}
