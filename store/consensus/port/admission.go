package port

import (
	"container/list"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Limits on connections that others open to the node-to-node port. Connections that this node dials do not count.
const (
	handshakesPerAddress = 20   // unfinished, from one address
	handshakesInAll      = 256  // from addresses where no node of the cluster has called so far
	handshakesAtOnce     = 512  // beyond those, while none of them is old enough to be ousted
	connectionsPerNode   = 32   // handshake finished, for one node at one address
	connectionsInAll     = 512  // handshake finished, from addresses that the other limits count
	parkedInAll          = 2048 // kept open without being served, see park
	knownAddresses       = 256  // addresses remembered
)

// parkedFor is the shortest time that an ousted connection is kept open, and half of the longest. That slows down a
// caller that opens a new connection as soon as the last one is closed, and costs a file descriptor instead of
// processor time.
const parkedFor = 4 * time.Second

// How old a handshake must be before it makes room for another: a node says its name at once, and this node reads it
// as soon as it can.
const (
	silentFor     = 250 * time.Millisecond // if nothing was read from it
	unfinishedFor = 2 * time.Second        // if something was
)

// admission decides which connections from others are served. Until a handshake is finished the caller is unknown,
// and callers that say nothing must not keep the nodes of the cluster out. So a new connection replaces the oldest
// one that should have finished by now.
type admission struct {
	mu       sync.Mutex
	open     map[string]*list.List // unfinished handshakes by address, oldest first
	waiting  int                   // unfinished handshakes from unknown addresses
	known    map[string]bool       // addresses from which a node of the cluster has called
	nodes    map[nodeAt]*list.List // finished handshakes by caller, oldest first
	nodesAll int
	parked   int
}

type nodeAt struct{ address, serverID string }

func newAdmission() *admission {
	return &admission{open: map[string]*list.List{}, known: map[string]bool{}, nodes: map[nodeAt]*list.List{}}
}

// caller is a connection that another node, or anyone else, opened to this node.
type caller struct {
	net.Conn
	address string
	spoke   atomic.Bool
	ousted  atomic.Bool // it had to make room for another one

	// The fields below are the admission's, under its lock.
	began     time.Time
	handshake *list.Element // nil once it is finished or ousted
	counted   bool          // counted in admission.waiting
	node      nodeAt
	place     *list.Element // its place among the node's connections
}

// newCaller wraps an accepted connection.
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

// late reports whether the handshake should have finished by now.
func (c *caller) late(now time.Time) bool {
	age := now.Sub(c.began)
	return age > unfinishedFor || age > silentFor && !c.spoke.Load()
}

// startHandshake counts an unfinished handshake, or returns false without room for it.
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

// unfinished returns the number of unfinished handshakes from an address.
func (a *admission) unfinished(address string) int {
	if own := a.open[address]; own != nil {
		return own.Len()
	}
	return 0
}

// makeRoom ousts the oldest late handshake from an address. The connection stays open until park closes it.
func (a *admission) makeRoom(of *list.List, now time.Time) bool {
	for e := of.Front(); e != nil; e = e.Next() {
		if c := e.Value.(*caller); c.late(now) {
			a.removeHandshake(c)
			c.ousted.Store(true)
			c.Conn.SetDeadline(time.Unix(1, 0)) // fails only on a closed connection
			return true
		}
	}
	return false
}

// makeRoomAnywhere ousts a handshake from an unknown address.
func (a *admission) makeRoomAnywhere(now time.Time) bool {
	for address, of := range a.open { // any of them will do
		if !a.known[address] && a.makeRoom(of, now) {
			return true
		}
	}
	return false
}

// removeHandshake stops counting an unfinished handshake.
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

// finishHandshake counts a connection with a finished handshake for its node, or returns false without room for it. A
// node that opens ever more connections loses its oldest: most likely they date from before its network
// failed.
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

// removeNode stops counting a finished handshake.
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

// remove stops counting a closed connection.
func (a *admission) remove(c *caller) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.removeHandshake(c)
	a.removeNode(c)
}

// park reports whether a connection that is not served may stay open for a while, and counts it.
func (a *admission) park() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.parked >= parkedInAll {
		return false
	}
	a.parked++
	return true
}
