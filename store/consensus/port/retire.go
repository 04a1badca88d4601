package port

import (
	"math/rand/v2"
	"net"
	"time"
)

// Connections whose certificates have changed end within Port.Life, so that none outlives the trust in it.
// Each ends at a time of its own. Those that this node dialled end first: the ones for calls between nodes end
// cleanly, and Raft repeats what it sent on one that ends. Those that another node dialled end last: that node's
// certificates most likely change at the same time, and it has ended them by then.

// Shares of Port.Life, in sixtieths.
const (
	firstDialled, lastDialled   time.Duration = 5, 45
	firstAccepted, lastAccepted time.Duration = 50, 58
)

// ReloadCertificates reads the certificate files again, and returns the settings whose files have changed.
func (n *Port) ReloadCertificates() (changed []string) {
	if n.files == nil {
		return nil
	}
	return n.files.Reload()
}

// retire schedules the end of each connection that is open now.
func (n *Port) retire() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for conn, c := range n.conns {
		first, last, end := firstDialled, lastDialled, func() { conn.Close() }
		switch c.dialled {
		case 0:
			first, last = firstAccepted, lastAccepted
		case streamNode:
			end = func() { n.leave(conn) }
		}
		time.AfterFunc(n.Life*first/60+rand.N(n.Life*(last-first)/60+1), end)
	}
}

// lastCalls is how long calls in flight have on a connection that gets no new ones: the longest is a write.
const lastCalls = 15 * time.Second

// leaveLine makes further calls dial anew, and closes the connection when its last calls have ended.
func (p *Nodes) leaveLine(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for to, l := range p.lines {
		if tracked, ok := l.conn.(*trackedConn); ok && tracked.Conn == conn {
			delete(p.lines, to)
			time.AfterFunc(lastCalls, func() { l.client.Close() })
		}
	}
}
