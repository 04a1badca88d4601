package rollcallpeer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/replication/link"
)

// How long and how often a start-up copy is tried.
const (
	copyPause = 200 * time.Millisecond // between attempts to find a node that is ready
	copyTries = 5                      // broken transfers before it gives up
	copyRetry = time.Second            // between them
	copyChunk = 500                    // items applied together
)

// errNotReady means that a node has no state to give, now or ever.
var errNotReady = errors.New("not ready to be copied from")

// waitsError is an errNotReady that names a node which, like this one, waits for another node to copy from.
type waitsError struct{ node string }

func (e waitsError) Error() string {
	return fmt.Sprintf("%v: %s waits for another node, too", errNotReady, e.node)
}
func (e waitsError) Unwrap() error { return errNotReady }

// Copy copies what the other nodes of this datacenter have, after this one has started. It returns nil when it has
// that, when no other node exists, when all others are waiting for a node to copy from like this one and it is the
// first of them by name, or when no other node became ready within wait. Otherwise it returns an error, after its
// tries.
func (r *Receiver) Copy(ctx context.Context, wait time.Duration) error {
	var others []*copySource
	for _, p := range r.side.Present() {
		if p.Kind == link.Node && !r.side.Consensus {
			others = append(others, &copySource{Receiver: r, calls: newCalls(p)})
		}
	}
	if len(others) == 0 {
		return nil
	}
	defer func() {
		for _, o := range others {
			o.calls.client.CloseIdleConnections()
		}
	}()
	r.waits.Store(true)
	defer r.waits.Store(false)
	for broken := 0; ; {
		err := r.copyFromAny(ctx, others, wait)
		switch {
		case err == nil || ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errNotReady):
			r.side.Log.Info("no other node was ready to be copied from", "nodes", len(others), "err", err)
			return nil
		}
		if broken++; broken == copyTries {
			return fmt.Errorf("copy the state, %d tries: %w", copyTries, err)
		}
		r.side.Log.Warn("the copy of the state was interrupted", "err", err)
		if err := pause(ctx, copyRetry); err != nil {
			return err
		}
	}
}

// copyFromAny copies from the first node that is ready, and waits for one for a while.
func (r *Receiver) copyFromAny(ctx context.Context, others []*copySource, wait time.Duration) error {
	deadline := time.Now().Add(wait)
	for {
		last := errNotReady
		candidates, later := 0, 0
		for _, o := range others {
			if o.self {
				continue
			}
			candidates++
			if last = o.copy(ctx); !errors.Is(last, errNotReady) {
				return last
			}
			// includes itself, if it does not know its address and so has itself among the others
			if waits := (waitsError{}); errors.As(last, &waits) && r.side.Node <= waits.node {
				later++
			}
		}
		if later == candidates || !time.Now().Before(deadline) {
			return last
		}
		if err := pause(ctx, copyPause); err != nil {
			return err
		}
	}
}

// Waits returns the name of this node while it waits for another one to copy from, and has nothing to give but what
// is on its own disk; otherwise "". When all nodes report that to each other, the first of them by name goes on, and
// the others copy from it. A node that is away may know more, so it counts as not waiting.
func (r *Receiver) Waits() string {
	if r.waits.Load() {
		return r.side.Node
	}
	return ""
}

// waitsHeader is in the response to a node that asks for the state while this node Waits, and names it.
const waitsHeader = "X-Rollcall-Waits"

// pause waits, or returns the context's error.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// copySource is a node to copy from.
type copySource struct {
	*Receiver
	calls *calls
	self  bool // it turned out to be this node
}

// copy copies what the node has. errNotReady means that it has no state to give now. Any other error broke the
// transfer: part of it may have been applied, which does no harm.
func (c *copySource) copy(ctx context.Context) (failed error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// A node that falls silent is abandoned. The timer restarts with every piece that arrives.
	patience := time.AfterFunc(c.calls.peer.ConnectTimeout+c.calls.peer.ReadTimeout, cancel)
	defer patience.Stop()
	target := c.calls.peer.URLs[0] + statePath + "?datacenter=" + url.QueryEscape(c.side.Datacenter)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return fmt.Errorf("%s: %w: %w", c.calls.peer.Name, errNotReady, link.WithoutURL(err))
	}
	state, err := c.calls.open(r)
	if err != nil {
		return fmt.Errorf("%s: %w: %w", c.calls.peer.Name, errNotReady, err)
	}
	defer state.Close()
	c.waits.Store(false) // soon it has that node's state, so others must wait
	defer func() { c.waits.Store(failed != nil) }()
	t := &transfer{Receiver: c.Receiver, from: c.calls.peer.Name, started: time.Now()}
	t.frames = bufio.NewReaderSize(&pieces{state, func() { patience.Reset(c.calls.peer.ReadTimeout) }}, 64<<10)
	err = t.run(ctx)
	if errors.Is(err, errSelf) {
		c.self = true
		return errNotReady
	}
	if err != nil {
		return fmt.Errorf("from %s: %w", c.calls.peer.Name, err)
	}
	c.side.Log.Info("copied the state", "from", c.calls.peer.Name, "items", t.items, "invalid", t.invalid, "took", time.Since(t.started))
	return nil
}

// pieces calls came after every piece that is read.
type pieces struct {
	io.Reader
	came func()
}

// Read implements io.Reader.
func (p *pieces) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	if n > 0 {
		p.came()
	}
	return n, err
}

// errSelf means that the node that responded is the one that asked.
var errSelf = errors.New("this node itself")

// transfer is a state on its way here. It is validated as messages are: items that are not valid are left out.
type transfer struct {
	*Receiver
	from    string
	frames  *bufio.Reader
	started time.Time
	items   int
	invalid int
	ops     []registry.Op
}

// run applies the whole state.
func (t *transfer) run(ctx context.Context) error {
	var s State
	if err := ReadFrame(t.frames, &s); err != nil {
		return err
	}
	switch {
	case s.Datacenter != t.side.Datacenter:
		return malformed("a state of datacenter %q; this one is %s", clip(s.Datacenter), t.side.Datacenter)
	case s.Node == t.side.Node:
		return errSelf
	}
	t.ops = append(t.ops, overheard(&t.side, &s.Head)...) // its node was heard
	for t.items < s.Items {
		var item Item
		if err := ReadFrame(t.frames, &item); err != nil {
			return err
		}
		if t.add(&item); len(t.ops) < copyChunk {
			continue
		}
		if err := t.flush(ctx); err != nil {
			return err
		}
	}
	return t.flush(ctx)
}

// add adds an item to those that are applied next. Its ages are as of the start of the transfer.
func (t *transfer) add(item *Item) {
	t.items++
	op, err := item.Check(Context{Late: time.Since(t.started).Milliseconds()})
	if _, isAct := op.(registry.SelfPreservation); err == nil && !isAct {
		t.ops = append(t.ops, op)
		return
	}
	t.invalid++
	if err == nil {
		err = errors.New("an operator's act does not belong in a copied state")
	}
	key, _ := registry.KeyOf(item.Op)
	t.side.Refusals.Record(key, item.Name(), t.from, err.Error())
}

// flush applies the items that were added.
func (t *transfer) flush(ctx context.Context) error {
	ops := t.ops
	t.ops = nil
	if _, err := link.ApplyAll(access.FromServer(ctx, t.from), t.side.Service, registry.Origin{Kind: registry.LocalPeer}, ops); err != nil {
		return fmt.Errorf("apply %d items: %w", len(ops), err)
	}
	return nil
}
