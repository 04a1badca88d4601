package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
)

// indexHeader is the version of the registry that an answer of a Rollcall server shows. A watch from there
// misses nothing, however old the answer is.
const indexHeader = "X-Rollcall-Index"

// fetch gets everything, or what there is of the application that is configured.
func (r *refresher) fetch(ctx context.Context) (a answer, _ []*registry.Instance, err error) {
	var leases []*registry.Lease
	if r.config.App != "" {
		a, leases, err = r.client.leasesOf(ctx, r.config.App)
	} else {
		a, leases, err = r.client.leases(ctx)
	}
	return a, instancesOf(leases), err
}

func instancesOf(leases []*registry.Lease) []*registry.Instance {
	instances := make([]*registry.Instance, len(leases))
	for i, l := range leases {
		instances[i] = l.Instance
	}
	return instances
}

// serverOf is who gave an answer; nil: it is not one of the client's servers any more.
func (c *Client) serverOf(a answer) *server {
	for _, s := range c.servers.order() {
		if s.url == a.server {
			return s
		}
	}
	return nil
}

var (
	// errMismatch: after a delta the list is not what the server has.
	errMismatch = errors.New("the list does not have the delta's hash")
	// errNoDelta: there is none to apply.
	errNoDelta = errors.New("no delta")
)

// delta fetches what changed lately, and everything where that does not lead to what the server has.
// Source: com.netflix.discovery.DiscoveryClient.getAndUpdateDelta, reconcileAndLogDifference.
func (r *refresher) delta(ctx context.Context) step {
	a, document, err := r.fetchDelta(ctx)
	if err == nil {
		err = r.takeDelta(a, document)
	}
	if ctx.Err() != nil {
		return nil
	}
	r.count("delta", err)
	switch {
	case errors.Is(err, errMismatch), errors.Is(err, errNoDelta):
		return r.full
	case err != nil:
		r.failed(err)
		return after(ctx, r.pause(), r.delta)
	}
	r.succeeded()
	if r.config.Mode == RefreshAuto && a.header.Get(indexHeader) != "" && a.server != r.unable {
		return r.full // another server, which may be watched
	}
	return r.poll(ctx)
}

// fetchDelta gets the document. The error is errNoDelta if there is none: upstream refuses it where it is
// disabled.
func (r *refresher) fetchDelta(ctx context.Context) (answer, *eureka.Applications, error) {
	a, err := r.client.tell(ctx, r.client.reading(ofEureka(http.MethodGet, "apps", "delta")), "fetch the delta")
	if a.status == http.StatusForbidden || a.status == http.StatusNotFound {
		return a, nil, fmt.Errorf("%w: %w", errNoDelta, a.refusal())
	}
	if err != nil {
		return a, nil, err
	}
	document, err := eureka.DecodeApplications(a.body)
	if err != nil {
		return a, nil, fmt.Errorf("%w: delta as %s shows it: %w", errNoDelta, a.server, err)
	}
	if document.Version == "" {
		return a, nil, fmt.Errorf("%w: that of %s has no version", errNoDelta, a.server)
	}
	return a, document, nil
}

// takeDelta applies a delta to the list. What it tells is believed, also when there is more to know
// (errMismatch).
func (r *refresher) takeDelta(a answer, document *eureka.Applications) error {
	next := applyDelta(r.list.Load(), document.Leases, r.guard.told)
	hash := next.HashCode()
	fits := hash == document.HashCode
	if r.index = ""; fits {
		r.index = a.header.Get(indexHeader)
	}
	r.publish(next)
	if !fits {
		return fmt.Errorf("%w: it is %q, that of %s %q", errMismatch, hash, a.server, document.HashCode)
	}
	r.listed = a.server
	r.came(SourceFetch, a.server, a.sent)
	return nil
}

// applyDelta returns the list after a delta, and tells of each instance in it. What was applied before
// changes nothing: a server repeats it for three minutes.
func applyDelta(list *Snapshot, entries []*registry.Lease, told func(registry.Key)) *Snapshot {
	edit := list.edit()
	for _, l := range entries {
		key := l.Instance.Key()
		switch l.Action {
		case registry.ActionAdded, registry.ActionModified:
			edit.put(l.Instance)
		case registry.ActionDeleted:
			edit.remove(key)
		default:
			continue // it does not say what happened; the hash will tell whether anything did
		}
		told(key)
	}
	return edit.snapshot()
}

// OnChange calls each after every change of the list, with the list before and after it, in order, from
// one goroutine; changes in short order may be told as one. It should return soon: until it has, it is
// told of nothing more, but nothing else waits, not even others who are told. The first change that is
// told is the first after OnChange. stop ends it, without waiting for a call that is under way, so that each
// may call it; Close waits.
func (d *Discovery) OnChange(each func(old, new *Snapshot)) (stop func()) {
	s := &subscriber{each: each, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	ctx, quit := context.WithCancel(context.Background())
	s.quit = quit
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		quit()
		return func() {}
	}
	d.subscribers[s] = struct{}{}
	s.told = d.list.Load()
	go func() {
		defer d.forget(s)
		s.run(ctx, d.list.Load)
	}()
	return quit
}

// subscriber is a function that is told of changes, by a goroutine of its own.
type subscriber struct {
	each  func(old, new *Snapshot)
	told  *Snapshot     // what it was told last; of the goroutine
	wake  chan struct{} // there may be news
	quit  context.CancelFunc
	ended chan struct{}
}

// run tells of changes until ctx ends.
func (s *subscriber) run(ctx context.Context, list func() *Snapshot) {
	defer close(s.ended)
	for {
		select {
		case <-s.wake:
		case <-ctx.Done():
			return
		}
		if next := list(); next != s.told && ctx.Err() == nil {
			s.each(s.told, next)
			s.told = next
		}
	}
}

// tell wakes the subscribers.
func (d *Discovery) tell() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for s := range d.subscribers {
		select {
		case s.wake <- struct{}{}:
		default: // it is awake, and will look
		}
	}
}

// forget drops a subscriber whose goroutine has ended, so that until then Close waits for it.
func (d *Discovery) forget(s *subscriber) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.subscribers, s)
}

// unsubscribe ends all subscriptions, for good, and returns who may still be called.
func (d *Discovery) unsubscribe() []*subscriber {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	var all []*subscriber
	for s := range d.subscribers {
		s.quit()
		all = append(all, s)
	}
	return all
}
