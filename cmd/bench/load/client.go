package load

import (
	"context"
	"errors"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/wire"
)

const (
	refusedPause = 100 * time.Millisecond // before a caller retries a node that refused the connection
	silentPause  = 2                      // before it retries one that gave no response, in Timeouts
)

// caller is one client: it has a home node, keep-alive connections, and at most one call under way. One goroutine uses
// it at a time.
type caller struct {
	number int // unique among the callers of the load
	turn   int // its index among the callers of its stream
	home   int // turn modulo the nodes
	load   *Load
	bodies bool // keep the bodies of responses

	links []link // by node
	order []int  // nodes of the call under way; reused

	mu   sync.Mutex
	conn *wire.Conn // of the try under way, or nil
	node int        // target of the try
}

// link is a caller's relation to one node.
type link struct {
	conn         *wire.Conn // nil if closed
	skippedUntil time.Time  // until then other nodes, if any, are called instead
}

// newCallers makes n clients whose homes are the nodes in turn. Close each after use.
func (l *Load) newCallers(n int) []*caller {
	callers := make([]*caller, n)
	for i := range callers {
		c := &caller{
			number: int(l.numbers.Add(1) - 1), turn: i, home: i % len(l.Nodes), load: l, bodies: true,
			links: make([]link, len(l.Nodes)), order: make([]int, 0, len(l.Nodes)),
		}
		l.Reach.addCaller(c)
		callers[i] = c
	}
	return callers
}

// close closes the connections.
func (c *caller) close() {
	c.load.Reach.removeCaller(c)
	for node := range c.links {
		c.hangUp(node)
	}
}

// callResult is how a call ended.
type callResult struct {
	outcome trial.Outcome
	status  int    // 0 without a response
	node    int    // the last one asked
	body    []byte // of the response, valid until the caller's next call
	done    time.Time
	// doubtful says that an earlier try of this call may also have taken effect, or may still do so.
	doubtful bool
}

// call sends a request to the caller's home node and, unless it is pinned there, to the next nodes that it can reach,
// as stock clients do, while a node accepts no request, gives no response in time or refuses it: a node that is still
// starting responds with 403. A node that accepted no connection, or gave no response, is skipped for a while, if
// there is another one. The outcome is the last try's, except that it is Unknown for an unanswered write (Refused,
// Unreached) if an earlier try may have taken effect.
func (c *caller) call(ctx context.Context, request []byte, pinned bool) callResult {
	now := time.Now()
	r := callResult{outcome: trial.Unreached, node: c.home}
	for _, node := range c.toAsk(now, pinned) {
		if ctx.Err() != nil {
			break
		}
		if !c.load.Reach.reaches(c.home, node) { // a split came in between
			continue
		}
		r.doubtful = r.doubtful || r.outcome == trial.Unknown
		r.node = node
		r.outcome, r.status = c.try(ctx, node, request)
		if r.outcome.Answered() {
			break
		}
	}
	if r.doubtful && !r.outcome.Answered() && request[0] != 'G' { // only GETs write nothing
		r.outcome = trial.Unknown
	}
	if r.status != 0 {
		r.body = c.links[r.node].conn.Body()
	}
	r.done = time.Now()
	if c.load.Closed && r.outcome == trial.Unreached {
		wire.Pause(ctx, refusedPause) // no schedule keeps it from retrying at once
	}
	return r
}

// toAsk returns the nodes to call, in order. Valid until the next call.
func (c *caller) toAsk(now time.Time, pinned bool) []int {
	if pinned {
		return append(c.order[:0], c.home)
	}
	nodes := c.reachable(func(node int) bool { return !now.Before(c.links[node].skippedUntil) })
	if len(nodes) == 0 {
		nodes = c.reachable(func(int) bool { return true })
	}
	return nodes
}

func (c *caller) reachable(which func(node int) bool) []int {
	nodes := c.order[:0]
	for i := range c.links {
		if node := (c.home + i) % len(c.links); c.load.Reach.reaches(c.home, node) && which(node) {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// try calls one node.
func (c *caller) try(ctx context.Context, node int, request []byte) (outcome trial.Outcome, status int) {
	deadline := time.Now().Add(c.load.Timeout)
	if err := c.connect(ctx, node, deadline); err != nil {
		c.skip(node, err)
		return trial.Unreached, 0
	}
	conn := c.links[node].conn
	if !c.startTry(ctx, node, conn, deadline) {
		return trial.Unreached, 0
	}
	status, err := conn.Exchange(request)
	aborted := c.endTry()
	if err == nil {
		return outcomeOf(status), status
	}
	c.hangUp(node)
	if errors.Is(err, wire.ErrNotSent) {
		return trial.Unreached, 0
	}
	if !aborted {
		c.skip(node, err)
	}
	return trial.Unknown, 0
}

// connect ensures an open connection to a node. It checks a used connection first, so that a node that was killed
// meanwhile counts as unreached: nothing was sent to it.
func (c *caller) connect(ctx context.Context, node int, deadline time.Time) (err error) {
	l := &c.links[node]
	if l.conn != nil && !l.conn.Idle() {
		c.hangUp(node)
	}
	if l.conn == nil {
		if l.conn, err = wire.DialContext(ctx, c.load.Nodes[node], deadline); err != nil {
			return err
		}
		l.conn.KeepBody = c.bodies
	}
	return nil
}

func (c *caller) hangUp(node int) {
	if l := &c.links[node]; l.conn != nil {
		l.conn.Close()
		l.conn = nil
	}
}

// skip leaves a node alone for a while.
func (c *caller) skip(node int, why error) {
	pause := refusedPause
	if errors.Is(why, os.ErrDeadlineExceeded) {
		pause = silentPause * c.load.Timeout
	}
	c.links[node].skippedUntil = time.Now().Add(pause)
}

// startTry lets abort end the try from now on, and returns false if the try would be aborted at once.
func (c *caller) startTry(ctx context.Context, node int, conn *wire.Conn, deadline time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Err() != nil || !c.load.Reach.reaches(c.home, node) || conn.SetDeadline(deadline) != nil {
		return false
	}
	c.conn, c.node = conn, node
	return true
}

// endTry ends what startTry began, and reports whether the try was aborted.
func (c *caller) endTry() (aborted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	aborted = c.conn == nil
	c.conn = nil
	return aborted
}

// abort ends the try under way without a response, if the try goes to one of the selected nodes. Any goroutine may
// call it at any time.
func (c *caller) abort(which func(node int) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil && which(c.node) {
		// An error means that the connection is closed, which is just as good.
		_ = c.conn.SetDeadline(time.Unix(1, 0))
		c.conn = nil
	}
}

// outcomeOf returns the outcome of a status.
func outcomeOf(status int) trial.Outcome {
	switch {
	case status < http.StatusBadRequest:
		return trial.Done
	case status == http.StatusNotFound:
		return trial.NotFound
	case status == http.StatusGatewayTimeout:
		return trial.Unknown
	}
	return trial.Refused
}

// Reach says which nodes the clients of a node can reach. With the zero value every client reaches every node. Safe
// for concurrent use.
type Reach struct {
	splits atomic.Pointer[[][]int] // the nodes of one side of each split; replaced, never changed

	mu      sync.Mutex
	callers map[*caller]bool // callers whose calls a split may strike
}

// Split cuts the given nodes, and the clients with their home there, off from the others. A call under way across the
// split gets no response.
func (r *Reach) Split(nodes []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	splits := append(slices.Clone(r.current()), slices.Clone(nodes))
	r.splits.Store(&splits)
	for c := range r.callers {
		c.abort(func(node int) bool { return !r.reaches(c.home, node) })
	}
}

// Join ends all splits.
func (r *Reach) Join() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.splits.Store(nil)
}

// From returns the nodes, of n, that the clients of home can reach, home first, then in turn.
func (r *Reach) From(home, n int) []int {
	nodes := make([]int, 0, n)
	for i := range n {
		if node := (home + i) % n; r.reaches(home, node) {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

func (r *Reach) current() [][]int {
	if splits := r.splits.Load(); splits != nil {
		return *splits
	}
	return nil
}

// reaches reports whether the clients of home can reach a node.
func (r *Reach) reaches(home, node int) bool {
	for _, side := range r.current() {
		if slices.Contains(side, home) != slices.Contains(side, node) {
			return false
		}
	}
	return true
}

// addCaller adds a caller to those whose calls a split can end; removeCaller removes it.
func (r *Reach) addCaller(c *caller) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.callers == nil {
		r.callers = make(map[*caller]bool)
	}
	r.callers[c] = true
}

func (r *Reach) removeCaller(c *caller) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.callers, c)
}
