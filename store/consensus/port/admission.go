package port

import (
	"container/list"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Limits of the connections that others open to the node-to-node port. What this node dials counts for none.
const (
	handshakesPerAddress = 20   // not finished, of one address
	handshakesInAll      = 256  // of addresses from which no node of the cluster has called so far
	handshakesAtOnce     = 512  // more than those, while none of them is old enough to be ousted
	connectionsPerNode   = 32   // handshake finished, of one node at one address
	connectionsInAll     = 512  // of addresses that the other limits count, handshake finished
	parkedInAll          = 2048 // kept open without being served, see park
	knownAddresses       = 256  // that are remembered
)

// parkedFor is how long a connection that had to make room is kept open at least, and half of how long at
// most. A caller that opens a new one as soon as the last was closed is slowed down by that, and costs a file descriptor
// instead of a processor.
const parkedFor = 4 * time.Second

// How old a handshake must be that makes room for another one: a node says its name at once, and this node
// reads it as soon as it gets to it.
const (
	silentFor     = 250 * time.Millisecond // nothing was read of it
	unfinishedFor = 2 * time.Second        // something was
)

// admission decides which of the connections that others open are served. Before a handshake is finished
// the caller is not known: so callers that say nothing must not keep the nodes of the cluster out. A new
// connection is served, in the place of the oldest one that ought to have been finished by now.
type admission struct {
	mu       sync.Mutex
	open     map[string]*list.List // by address: unfinished handshakes, the oldest first
	waiting  int                   // unfinished handshakes of addresses that are not known
	known    map[string]bool       // addresses from which a node of the cluster has called
	nodes    map[nodeAt]*list.List // finished handshakes by caller, the oldest first
	nodesAll int
	parked   int
}

type nodeAt struct{ address, serverID string }

func newAdmission() *admission {
	return &admission{open: map[string]*list.List{}, known: map[string]bool{}, nodes: map[nodeAt]*list.List{}}
}

// caller is a connection that was opened to this node.
type caller struct {
	net.Conn
	address string
	spoke   atomic.Bool
	ousted  atomic.Bool // it had to make room for another one

	// What follows is the admission's, under its lock.
	began     time.Time
	handshake *list.Element // nil: finished, or ousted
	counted   bool          // it is one of admission.waiting
	node      nodeAt
	place     *list.Element // among those of the node
}

// newCaller wraps a connection that was accepted.
func newCaller(conn net.Conn) *caller {
	address := conn.RemoteAddr().String()
	if host, _, err := net.SplitHostPort(address); err == nil {
		address = host
	}
	return &caller{Conn: conn, address: address}
}

// Read implements net.Conn.
func (c *caller) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && !c.spoke.Load() {
		c.spoke.Store(true)
	}
	return n, err
}

// oust ends a handshake whose place is taken. The connection stays open until park closes it.
func (c *caller) oust() {
	c.ousted.Store(true)
	c.Conn.SetDeadline(time.Unix(1, 0)) // fails only if it is closed
}

// late says that the handshake ought to be finished.
func (c *caller) late(now time.Time) bool {
	age := now.Sub(c.began)
	return age > unfinishedFor || age > silentFor && !c.spoke.Load()
}

// startHandshake counts an unfinished handshake; false means that there is no room for it.
func (a *admission) startHandshake(c *caller, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for open := a.unfinished(c.address); open >= handshakesPerAddress; open-- {
		if a.makeRoom(a.open[c.address], now) {
			continue
		}
		if open >= handshakesPerAddress+handshakesAtOnce {
			return false
		}
		break
	}
	if !a.known[c.address] {
		if a.waiting >= handshakesInAll && !a.makeRoomAnywhere(now) && a.waiting >= handshakesInAll+handshakesAtOnce {
			return false
		}
		a.waiting++
		c.counted = true
	}
	own := a.open[c.address]
	if own == nil {
		own = list.New()
		a.open[c.address] = own
	}
	c.began, c.handshake = now, own.PushBack(c)
	return true
}

// unfinished is how many handshakes of an address are not finished.
func (a *admission) unfinished(address string) int {
	if own := a.open[address]; own != nil {
		return own.Len()
	}
	return 0
}

// makeRoom ousts the oldest handshake of an address that is late.
func (a *admission) makeRoom(of *list.List, now time.Time) bool {
	for e := of.Front(); e != nil; e = e.Next() {
		if c := e.Value.(*caller); c.late(now) {
			a.removeHandshake(c)
			c.oust()
			return true
		}
	}
	return false
}

// makeRoomAnywhere ousts a handshake of an address that is not known.
func (a *admission) makeRoomAnywhere(now time.Time) bool {
	for address, of := range a.open { // any of them will do
		if !a.known[address] && a.makeRoom(of, now) {
			return true
		}
	}
	return false
}

// removeHandshake ends the count of an unfinished handshake.
func (a *admission) removeHandshake(c *caller) {
	if c.handshake == nil {
		return
	}
	of := a.open[c.address]
	of.Remove(c.handshake)
	if of.Len() == 0 {
		delete(a.open, c.address)
	}
	c.handshake = nil
	if c.counted {
		a.waiting--
		c.counted = false
	}
}

// finishHandshake counts a connection whose handshake is finished, with the node that it is of; false means that there
// is no room for it. A node that opens ever more connections loses its oldest: they are most likely those
// of a time before its network failed.
func (a *admission) finishHandshake(c *caller, serverID string, ofCluster bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.removeHandshake(c)
	if ofCluster && len(a.known) < knownAddresses {
		a.known[c.address] = true
	}
	key := nodeAt{c.address, serverID}
	own := a.nodes[key]
	switch {
	case own != nil && own.Len() >= connectionsPerNode:
		oldest := own.Front().Value.(*caller)
		a.removeNode(oldest)
		oldest.Conn.Close()
	case a.nodesAll >= connectionsInAll && !a.known[c.address]:
		return false
	}
	if own = a.nodes[key]; own == nil {
		own = list.New()
		a.nodes[key] = own
	}
	c.node, c.place = key, own.PushBack(c)
	a.nodesAll++
	return true
}

// removeNode ends the count of a finished handshake.
func (a *admission) removeNode(c *caller) {
	if c.place == nil {
		return
	}
	of := a.nodes[c.node]
	of.Remove(c.place)
	if of.Len() == 0 {
		delete(a.nodes, c.node)
	}
	c.place = nil
	a.nodesAll--
}

// remove ends every count of a connection that is closed.
func (a *admission) remove(c *caller) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.removeHandshake(c)
	a.removeNode(c)
}

// park says whether a connection that is not served may stay open for a while, and counts it; unpark ends
// that.
func (a *admission) park() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.parked >= parkedInAll {
		return false
	}
	a.parked++
	return true
}

func (a *admission) unpark() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.parked--
}
