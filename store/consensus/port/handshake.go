package port

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/seed-20419f34/rollcall/store/disk"
)

// handshakeTimeout bounds a handshake.
const handshakeTimeout = 5 * time.Second

// welcome is the accepting side of the handshake.
func (n *Port) welcome(conn net.Conn) (kind byte, peer Hello, err error) {
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
	if peer, err = readHello(conn); err != nil {
		return 0, Hello{}, err
	}
	own := n.Self()
	own.Known = n.Known(peer.ServerID)
	if err := writeHello(conn, own); err != nil {
		return 0, Hello{}, err
	}
	if err := n.accepts(conn, first[0], own, peer); err != nil {
		return 0, Hello{}, err
	}
	return first[0], peer, conn.SetDeadline(time.Time{})
}

// accepts decides whether to talk to a peer. Raft's messages pass only within one known cluster; the
// node channel is open to nodes that have none yet, for it is how they find one.
func (n *Port) accepts(conn net.Conn, kind byte, own, peer Hello) error {
	if err := verifyPeer(conn, peer.ServerID); err != nil {
		return err
	}
	if own.Cluster != "" && peer.Cluster != "" && own.Cluster != peer.Cluster {
		return &ForeignError{Own: own, Peer: peer}
	}
	if own.Cluster != "" && own.Cluster == peer.Cluster {
		if err := own.Outdated(peer.Known); err != nil {
			n.Outdated(err)
			return err
		}
		if err := peer.Outdated(n.Known(peer.ServerID)); err != nil {
			return err
		}
	}
	if kind == streamRaft && (own.Cluster == "" || peer.Cluster == "") {
		return errors.New("no cluster yet")
	}
	return nil
}

// greet is the dialling side of the handshake.
func (n *Port) greet(conn net.Conn, kind byte, timeout time.Duration) (Hello, error) {
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return Hello{}, err
	}
	own := n.Self()
	w := bufio.NewWriter(conn)
	w.WriteByte(kind) // the error comes with Flush
	if err := writeHello(w, own); err != nil {
		return Hello{}, err
	}
	if err := w.Flush(); err != nil {
		return Hello{}, err
	}
	peer, err := readHello(conn)
	if err != nil {
		return Hello{}, err
	}
	if err := n.accepts(conn, kind, own, peer); err != nil {
		return peer, err
	}
	return peer, conn.SetDeadline(time.Time{})
}

// verifyPeer checks that the certificate of a TLS connection names the node that the peer says it is.
func verifyPeer(conn any, serverID string) error {
	t, ok := conn.(*tls.Conn)
	if !ok {
		return nil
	}
	name := disk.NodeName(serverID)
	if err := t.ConnectionState().PeerCertificates[0].VerifyHostname(name); err != nil {
		return fmt.Errorf("peer says it is node %q, but its certificate does not name it: %w", name, err)
	}
	return nil
}
