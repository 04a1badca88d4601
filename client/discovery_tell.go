package client

import (
	"bytes"
	"context"
	"runtime"
	"sync"
)

// OnChange calls each after every change of the list, with the list before and after it, in order, from
// one goroutine; changes in short order may be told as one. It should return soon: until it has, it is
// told of nothing more, but nothing else waits, not even others who are told. The first change that is
// told is the first after OnChange. stop ends it, and waits for a call under way unless it is called from
// within each.
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
	return func() {
		quit()
		_ = s.wait(context.Background()) // which never ends
	}
}

// subscriber is a function that is told of changes, by a goroutine of its own.
type subscriber struct {
	each  func(old, new *Snapshot)
	told  *Snapshot     // what it was told last; of the goroutine
	wake  chan struct{} // there may be news
	quit  context.CancelFunc
	ended chan struct{}

	mu      sync.Mutex
	calling string // the goroutine; "": no call is under way
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
			s.tell(next)
		}
	}
}

func (s *subscriber) tell(next *Snapshot) {
	s.calls(goroutine())
	defer s.calls("")
	s.each(s.told, next)
	s.told = next
}

func (s *subscriber) calls(from string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calling = from
}

// wait waits until nobody is told any more, unless it is called from within the call that it would wait
// for.
func (s *subscriber) wait(ctx context.Context) error {
	s.mu.Lock()
	within := s.calling != "" && s.calling == goroutine()
	s.mu.Unlock()
	if within {
		return nil
	}
	select {
	case <-s.ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// goroutine names the calling goroutine, as a stack trace does: there is no other way to know that a
// function waits for itself.
func goroutine() string {
	var b [64]byte
	name, _, _ := bytes.Cut(b[:runtime.Stack(b[:], false)], []byte(" ["))
	return string(name)
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
