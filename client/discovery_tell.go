package client

import "context"

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

// wait waits until nobody is told any more.
func (s *subscriber) wait(ctx context.Context) error {
	select {
	case <-s.ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
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
