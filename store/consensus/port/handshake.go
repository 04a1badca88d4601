package port

import (
	"bufio"
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/seed-20419f34/rollcall/store/disk"
)

// handshakeTimeout bounds a handshake.
const handshakeTimeout = 5 * time.Second

// welcome is the accepting side of the handshake.
func (n *Port) welcome(conn net.Conn) (kind byte, remote Hello, err error) {
	if err := conn.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return 0, Hello{}, err
	}
	var first [1]byte
	if _, err := io.ReadFull(conn, first[:]); err != nil {
		return 0, Hello{}, err
	}
	if first[0] != streamRaft && first[0] != streamNode {
		return 0, Hello{}, fmt.Errorf("first byte %#x is neither %q nor %q", first[0], streamRaft, streamNode)
	}
	if remote, err = readHello(conn); err != nil {
		return 0, Hello{}, err
	}
	own := n.Self()
	own.Known = n.Known(remote.ServerID)
	if err := writeHello(conn, own); err != nil {
		return 0, Hello{}, err
	}
	if err := n.accepts(conn, first[0], own, remote); err != nil {
		return 0, Hello{}, err
	}
	return first[0], remote, conn.SetDeadline(time.Time{})
}

// accepts decides whether to talk to a remote. Raft's messages pass only within one known cluster. The node channel
// is also open to nodes without a cluster, because they find one through it.
func (n *Port) accepts(conn net.Conn, kind byte, own, remote Hello) error {
	if t, ok := conn.(*tls.Conn); ok { // the certificate must name the node that the remote claims to be
		name := disk.NodeName(remote.ServerID)
		if err := t.ConnectionState().PeerCertificates[0].VerifyHostname(name); err != nil {
			return fmt.Errorf("peer says it is node %q, but its certificate does not name it: %w", name, err)
		}
	}
	if own.Cluster != "" && remote.Cluster != "" && own.Cluster != remote.Cluster {
		return &ForeignError{Own: own, Remote: remote}
	}
	if own.Cluster != "" && own.Cluster == remote.Cluster {
		if err := cmp.Or(own.Outdated(remote.Known), own.superseded(remote)); err != nil {
			n.Outdated(err)
			return err
		}
		if err := remote.superseded(own); err != nil {
			return err
		}
		if err := remote.Outdated(n.Known(remote.ServerID)); err != nil {
			return err
		}
		if err := n.skipsAlike(own, remote); err != nil {
			return err
		}
	}
	if kind == streamRaft && (own.Cluster == "" || remote.Cluster == "") {
		return errors.New("no cluster yet")
	}
	return nil
}

// skipsAlike returns an error if a node skips other log entries than this one. Each change is logged once.
func (n *Port) skipsAlike(own, remote Hello) (err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if slices.Equal(own.Skipped, remote.Skipped) {
		delete(n.differs, remote.ServerID)
		return nil
	}
	err = &skippedError{own, remote}
	if !n.differs[remote.ServerID] {
		n.differs[remote.ServerID] = true
		n.log.Error("a node of this cluster is refused", "other", disk.NodeName(remote.ServerID), "err", err)
	}
	return err
}

// greet is the dialling side of the handshake.
func (n *Port) greet(conn net.Conn, kind byte, timeout time.Duration) (Hello, error) {
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return Hello{}, err
	}
	own := n.Self()
	w := bufio.NewWriter(conn)
	w.WriteByte(kind) // Flush returns the error
	if err := writeHello(w, own); err != nil {
		return Hello{}, err
	}
	if err := w.Flush(); err != nil {
		return Hello{}, err
	}
	remote, err := readHello(conn)
	if err != nil {
		return Hello{}, err
	}
	if err := n.accepts(conn, kind, own, remote); err != nil {
		return remote, err
	}
	return remote, conn.SetDeadline(time.Time{})
}
