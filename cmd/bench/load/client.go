package load

import (
	"context"
	"errors"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

const (
	refusedPause = 100 * time.Millisecond // before a client retries a node that refused the connection
	silentPause  = 2                      // before it retries one that gave no response, in Timeouts
)

// client has a home node, keep-alive connections, and at most one call under way. Every call of a load is made by one;
// what the call is, and when it is due, the clients are told. One goroutine uses it at a time.
type client struct {
	number int // unique in the load
	home   int
	load   *Load
	bodies bool      // keep the bodies of responses
	idle   time.Time // since then it has had nothing to do

	links []link // by node
	order []int  // nodes of the call under way; reused

	mu   sync.Mutex
	conn *Conn // of the try under way, or nil
	node int   // target of the try
}

// link is a client's relation to one node.
type link struct {
	conn         *Conn     // nil if closed
	skippedUntil time.Time // until then other nodes, if any, are called instead
}

func (l *Load) newClient(home int) *client {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.Nodes)
	c := &client{number: len(l.clients), home: home, load: l, links: make([]link, n), order: make([]int, 0, n)}
	l.clients = append(l.clients, c)
	l.Reach.mu.Lock()
	defer l.Reach.mu.Unlock()
	l.Reach.clients = append(l.Reach.clients, c)
	return c
}

// hangUp closes the connections of all clients, which must be idle.
func (l *Load) hangUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.clients {
		for node := range c.links {
			c.hangUp(node)
		}
	}
}

// pool is clients that make each other's calls: a call waits for the first one that is idle.
type pool chan *client

// newPools makes n clients, whose homes are the nodes in turn, in several pools, or in fewer if there are fewer
// clients.
func (l *Load) newPools(pools, n int) []pool {
	all := make([]pool, min(pools, n))
	for i := range all {
		all[i] = make(pool, (n+len(all)-1)/len(all))
	}
	for i := range n {
		all[i%len(all)] <- l.newClient(i % len(l.Nodes))
	}
	return all
}

// use waits for an idle client to do something that was due at due.
func (l *Load) use(p pool, due time.Time, do func(c *client)) {
	c := <-p
	l.pace.add(due, c.idle)
	do(c)
	c.idle = time.Now()
	p <- c
}

// callResult is how a call ended.
type callResult struct {
	outcome trial.Outcome
	status  int    // 0 without a response
	node    int    // the last one asked
	body    []byte // of the response, valid until the client's next call
	done    time.Time
	// doubtful says that an earlier try of this call may also have taken effect, or may still do so.
	doubtful bool
}

// call sends a request to the given nodes in turn, by default to the client's home node and then to the next nodes
// that it can reach, as stock clients do, while a node accepts no request, gives no response in time or refuses it: a
// node that is still starting responds with 403. A node that accepted no connection, or gave no response, is skipped
// for a while, if there is another one. The outcome is the last try's, except that it is Unknown for an unanswered
// write (Refused, Unreached) if an earlier try may have taken effect.
func (c *client) call(ctx context.Context, request []byte, nodes ...int) callResult {
	r := callResult{outcome: trial.Unreached, node: c.home}
	if nodes == nil {
		nodes = c.toAsk(time.Now())
	}
	for _, node := range nodes {
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
		wait.For(ctx, refusedPause) // no schedule keeps it from retrying at once
	}
	return r
}

// toAsk returns the nodes to call, in order. Valid until the next call.
func (c *client) toAsk(now time.Time) (nodes []int) {
	for _, evenSkipped := range [...]bool{false, true} {
		nodes = c.order[:0]
		for i := range c.links {
			node := (c.home + i) % len(c.links)
			if c.load.Reach.reaches(c.home, node) && (evenSkipped || !now.Before(c.links[node].skippedUntil)) {
				nodes = append(nodes, node)
			}
		}
		if len(nodes) > 0 {
			break
		}
	}
	return nodes
}

// try calls one node.
func (c *client) try(ctx context.Context, node int, request []byte) (outcome trial.Outcome, status int) {
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
	c.mu.Lock()
	aborted := c.conn == nil
	c.conn = nil
	c.mu.Unlock()
	if err == nil {
		return outcomeOf(status), status
	}
	c.hangUp(node)
	if errors.Is(err, errNotSent) {
		return trial.Unreached, 0
	}
	if !aborted {
		c.skip(node, err)
	}
	return trial.Unknown, 0
}

// connect ensures an open connection to a node. It checks a used connection first, so that a node that was killed
// meanwhile counts as unreached: nothing was sent to it.
func (c *client) connect(ctx context.Context, node int, deadline time.Time) (err error) {
	l := &c.links[node]
	if l.conn != nil && !l.conn.Idle() {
		c.hangUp(node)
	}
	if l.conn == nil {
		if l.conn, err = dialContext(ctx, c.load.Nodes[node], deadline); err != nil {
			return err
		}
	}
	l.conn.KeepBody = c.bodies
	return nil
}

func (c *client) hangUp(node int) {
	if l := &c.links[node]; l.conn != nil {
		l.conn.Close()
		l.conn = nil
	}
}

// skip leaves a node alone for a while.
func (c *client) skip(node int, why error) {
	pause := refusedPause
	if errors.Is(why, os.ErrDeadlineExceeded) {
		pause = silentPause * c.load.Timeout
	}
	c.links[node].skippedUntil = time.Now().Add(pause)
}

// startTry lets abort end the try from now on, and returns false if the try would be aborted at once.
func (c *client) startTry(ctx context.Context, node int, conn *Conn, deadline time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Err() != nil || !c.load.Reach.reaches(c.home, node) || conn.SetDeadline(deadline) != nil {
		return false
	}
	c.conn, c.node = conn, node
	return true
}

// abort ends the try under way without a response, if the client can no longer reach its node. Any goroutine may call
// it at any time.
func (c *client) abort() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil && !c.load.Reach.reaches(c.home, c.node) {
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
	mu      sync.RWMutex
	splits  [][]int   // the nodes of one side of each split
	clients []*client // whose calls a split may strike
}

// Split cuts the given nodes, and the clients with their home there, off from the others. A call under way across the
// split gets no response.
func (r *Reach) Split(nodes []int) {
	r.mu.Lock()
	r.splits = append(r.splits, slices.Clone(nodes))
	clients := r.clients
	r.mu.Unlock()
	for _, c := range clients {
		c.abort()
	}
}

// Join ends all splits.
func (r *Reach) Join() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.splits = nil
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

// reaches reports whether the clients of home can reach a node.
func (r *Reach) reaches(home, node int) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return !slices.ContainsFunc(r.splits, func(side []int) bool {
		return slices.Contains(side, home) != slices.Contains(side, node)
	})
}
