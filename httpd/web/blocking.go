package web

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Found is the result of a read.
type Found struct {
	// Index is where a blocking query for the same thing goes on.
	Index uint64
	// Absent means that nothing was found. A read that waits for something that stays absent goes on waiting.
	Absent   bool
	Document func() (any, error)
	// Weight returns the approximate size of the document in bytes; nil if it is small, or written in pieces.
	Weight func() int
	// Age bounds how old the result of a stale read can be: it was read before the result, so nothing is older than
	// that.
	Age time.Duration
}

// Source is something that can be read and waited for.
type Source struct {
	// join begins to wait for a change. It is called before read, so that no change is missed.
	join func() (woken <-chan struct{}, leave func())
	read func(ctx context.Context, read registry.Consistency) (Found, error)
}

// SourceOf returns a source that applies show to views of one half of the state.
func SourceOf[V any](n *Node, view viewer[V], show func(V) Found, join func() (<-chan struct{}, func())) Source {
	return Source{join: join, read: func(ctx context.Context, read registry.Consistency) (Found, error) {
		v, age, err := ViewWithAge(ctx, n, view, read)
		if err == nil {
			err = judgeRead(ctx)
		}
		if err != nil {
			return Found{}, err
		}
		f := show(v)
		f.Age = age
		return f, nil
	}}
}

// DocumentOf returns the document of a result.
func (c *Call) DocumentOf(f Found) (any, error) {
	if f.Weight != nil {
		if err := c.Reserve(f.Weight()); err != nil {
			return nil, err
		}
	}
	return f.Document()
}

// ReadOrWait reads a source, and waits for a change if the request asks for a newer one.
func (c *Call) ReadOrWait(q Query, s Source) (Found, error) {
	if q.After == 0 {
		return ReadOnce(c.R.Context(), q, s)
	}
	ctx, done, err := c.Hold()
	if err != nil {
		return Found{}, err
	}
	defer done()
	// The server's time limit for a whole response would cut a wait short.
	out := NewStreamWriter(c.W, c.node.Watches.Pace)
	out.Pause()
	defer out.Finish()
	return block(ctx, q, s)
}

// block reads a source until its index is higher than the query's, its time is over or the context ends: at shutdown
// it returns the last result; a caller that may not go on gets the refusal.
func block(ctx context.Context, q Query, s Source) (Found, error) {
	// a random bit longer than asked for, so that reads that began together do not all return together
	timer := time.NewTimer(q.Wait + rand.N(q.Wait/jitterFraction+1))
	defer timer.Stop()
	var last Found
	for turn, over := 0, false; ; turn++ {
		woken, leave := s.join()
		now, err := ReadOnce(ctx, q, s)
		if err != nil {
			leave()
			return lastOr(last, turn, ctx, err)
		}
		if turn > 0 && last.Absent && now.Absent {
			q.After = max(q.After, now.Index) // other keys changed, but not this one
		}
		last = now
		if over || now.Index > q.After {
			leave()
			return now, nil
		}
		select {
		case <-woken:
		case <-timer.C:
			over = true
		case <-ctx.Done():
			leave()
			return now, EndedBy(ctx)
		}
		leave()
	}
}

// lastOr returns the last result if a shutdown interrupts a read in a later turn.
func lastOr(last Found, turn int, ctx context.Context, err error) (Found, error) {
	if ctx.Err() == nil {
		return Found{}, err
	}
	if refused := EndedBy(ctx); refused != nil {
		return Found{}, refused
	}
	if turn == 0 {
		return Found{}, errors.Join(registry.ErrClosed, err)
	}
	return last, nil
}

// ReadOnce reads a source once, as fresh as the query asks for.
func ReadOnce(ctx context.Context, q Query, s Source) (Found, error) {
	if q.Read == registry.Stale || q.Soon {
		return s.read(ctx, q.Read)
	}
	return untilLeader(ctx, func(ctx context.Context) (Found, error) {
		ctx, cancel := context.WithTimeout(ctx, leaderWait)
		defer cancel()
		return s.read(ctx, q.Read)
	})
}

// Bounds of blocking queries (hashicorp/consul, agent/blockingquery/blockingquery.go).
const (
	DefaultWait    = 5 * time.Minute
	MaxWait        = 10 * time.Minute
	jitterFraction = 16 // up to this fraction of the wait is added
)

// Query is how fresh a read wants its response, and after which change.
type Query struct {
	Read  registry.Consistency // Linearizable or Stale
	Soon  bool                 // fail soon if there is no leader
	After uint64               // respond once the index is higher; 0: at once
	Wait  time.Duration        // at most this long, without the jitter
}

// KVSource reads the state of sessions and keys with show, and waits for a change of topic.
func (n *Node) KVSource(topic kv.Topic, show func(*kv.View) Found) Source {
	return SourceOf(n, n.Coordination.View, show, func() (<-chan struct{}, func()) {
		wait := n.Coordination.Watch(topic)
		return wait.Woken(), wait.Leave
	})
}
