package port

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/seed-20419f34/rollcall/store/disk"
)

// Hello is what each side says first.
type Hello struct {
	Cluster  string // "" while the node has neither bootstrapped nor joined
	ServerID string
	Boot     uint64 // this start of the server
	Before   uint64 // the start before it, as its data directory has it
	Known    uint64 // the newest start of the peer that this node knows of; the dialling side cannot say
}

// outdatedError means that a server runs with an old data directory, or that there are two of it.
type outdatedError struct {
	serverID string
	copied   bool // the directory is older than the newest start, else the process is
}

func (e *outdatedError) Error() string {
	name := disk.NodeName(e.serverID)
	if e.copied {
		return fmt.Sprintf("node %s was started with an older copy of its data directory: the cluster counts on what the node has stored since; remove it (rollcall members remove %s) and start it with an empty data directory", name, name)
	}
	return fmt.Sprintf("node %s was started again since, with this data directory or a copy of it: run one of the two; if the other one is to go, remove the node (rollcall members remove %s) and start this one with an empty data directory", name, name)
}

// Outdated returns an error if a server's newest start is another one than it says. A directory that
// nobody has set back knows all starts but its own.
func (h Hello) Outdated(known uint64) error {
	switch {
	case known > h.Boot:
		return &outdatedError{serverID: h.ServerID}
	case known != h.Boot && known > h.Before:
		return &outdatedError{serverID: h.ServerID, copied: true}
	}
	return nil
}

// ForeignError means that the peer belongs to another cluster.
type ForeignError struct{ Own, Peer Hello }

func (e *ForeignError) Error() string {
	return fmt.Sprintf("node %s belongs to cluster %q, this node to cluster %q", disk.NodeName(e.Peer.ServerID), e.Peer.Cluster, e.Own.Cluster)
}

func writeHello(w io.Writer, h Hello) error {
	b := []byte{helloVersion, byte(len(h.Cluster))}
	b = append(b, h.Cluster...)
	b = append(b, byte(len(h.ServerID)))
	b = append(b, h.ServerID...)
	for _, n := range []uint64{h.Boot, h.Before, h.Known} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	_, err := w.Write(b)
	return err
}

func readHello(r io.Reader) (Hello, error) {
	var version [1]byte
	if _, err := io.ReadFull(r, version[:]); err != nil {
		return Hello{}, err
	}
	if version[0] != helloVersion {
		return Hello{}, fmt.Errorf("peer speaks version %d of the node-to-node protocol, this node %d", version[0], helloVersion)
	}
	cluster, err := readField(r)
	if err != nil {
		return Hello{}, err
	}
	id, err := readField(r)
	if err != nil {
		return Hello{}, err
	}
	var starts [3]uint64
	err = binary.Read(r, binary.BigEndian, &starts)
	return Hello{Cluster: cluster, ServerID: id, Boot: starts[0], Before: starts[1], Known: starts[2]}, err
}

func readField(r io.Reader) (string, error) {
	var n [1]byte
	if _, err := io.ReadFull(r, n[:]); err != nil {
		return "", err
	}
	b := make([]byte, n[0])
	_, err := io.ReadFull(r, b)
	return string(b), err
}

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
