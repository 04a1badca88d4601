package port

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/seed-20419f34/rollcall/store/disk"
)

// helloVersion is the version of the handshake. A different one would keep the nodes of a cluster apart during an
// upgrade, so later programs add fields at the end of Hello, which earlier ones do not read.
const helloVersion = 1

// Hello is what each side says first.
type Hello struct {
	Cluster  string // "" while the node has neither bootstrapped nor joined
	ServerID string
	Boot     uint64 // this start of the server
	Before   uint64 // the start before it, according to its data directory
	Known    uint64 // newest start of the remote that this node knows of; the dialling side cannot say
	// Recovered is disk.Identity.Recovered.
	Recovered uint64
	// Skipped is disk.Identity.Skipped. Nodes of 0.1.0 do not send it: they skip none.
	Skipped []uint64
}

// skippedError means that two nodes of a cluster skip different entries of its log.
type skippedError struct{ own, remote Hello }

func (e *skippedError) Error() string {
	return fmt.Sprintf("node %s skips the log entries %v, this node %v (rollcall recover --skip-entry), so their states differ: all nodes of a cluster must skip the same ones; stop the node that lacks some and run `rollcall recover --skip-entry` there for each, with a version that has it, or give that node an empty data directory",
		disk.NodeName(e.remote.ServerID), e.remote.Skipped, e.own.Skipped)
}

// supersededError means that the cluster was recovered from another node's data.
type supersededError struct{ serverID string }

func (e *supersededError) Error() string {
	return fmt.Sprintf("the cluster was recovered (rollcall recover) without what node %s has here, which is older: start it with an empty data directory", disk.NodeName(e.serverID))
}

// superseded returns an error if the cluster of the node that says by was recovered without the data of the node that
// says h.
func (h Hello) superseded(by Hello) error {
	if h.Recovered < by.Recovered {
		return &supersededError{h.ServerID}
	}
	return nil
}

// outdatedError means that a server runs with an old data directory, or that it exists twice.
type outdatedError struct {
	serverID string
	copied   bool // the directory is older than the newest start; otherwise the process is
}

func (e *outdatedError) Error() string {
	name := disk.NodeName(e.serverID)
	if e.copied {
		return fmt.Sprintf("node %s was started with an older copy of its data directory: the cluster counts on what the node has stored since; remove it (rollcall members remove %s, which needs a leader) and only then start it with an empty data directory", name, name)
	}
	return fmt.Sprintf("node %s was started again since, with this data directory or a copy of it: run one of the two; if the other one is to go, remove the node (rollcall members remove %s, which needs a leader) and only then start this one with an empty data directory", name, name)
}

// Outdated returns an error if a server's newest start is not the one it claims. A directory that was never set back
// knows all starts but its own.
func (h Hello) Outdated(known uint64) error {
	switch {
	case known > h.Boot:
		return &outdatedError{serverID: h.ServerID}
	case known != h.Boot && known > h.Before:
		return &outdatedError{serverID: h.ServerID, copied: true}
	}
	return nil
}

// ForeignError means that the remote belongs to another cluster.
type ForeignError struct{ Own, Remote Hello }

func (e *ForeignError) Error() string {
	return fmt.Sprintf("node %s belongs to cluster %q, this node to cluster %q", disk.NodeName(e.Remote.ServerID), e.Remote.Cluster, e.Own.Cluster)
}

func writeHello(w io.Writer, h Hello) error {
	fields := append([]byte{byte(len(h.Cluster))}, h.Cluster...)
	fields = append(fields, byte(len(h.ServerID)))
	fields = append(fields, h.ServerID...)
	for _, n := range []uint64{h.Boot, h.Before, h.Known, h.Recovered} {
		fields = binary.BigEndian.AppendUint64(fields, n)
	}
	if len(h.Skipped) > 0 {
		fields = binary.BigEndian.AppendUint16(fields, uint16(len(h.Skipped)))
		for _, n := range h.Skipped {
			fields = binary.BigEndian.AppendUint64(fields, n)
		}
	}
	b := binary.BigEndian.AppendUint16([]byte{helloVersion}, uint16(len(fields)))
	_, err := w.Write(append(b, fields...))
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
	var length [2]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return Hello{}, err
	}
	fields := make([]byte, binary.BigEndian.Uint16(length[:]))
	if _, err := io.ReadFull(r, fields); err != nil {
		return Hello{}, err
	}
	r = bytes.NewReader(fields)
	cluster, err := readField(r)
	if err != nil {
		return Hello{}, err
	}
	id, err := readField(r)
	if err != nil {
		return Hello{}, err
	}
	var numbers [4]uint64
	if err := binary.Read(r, binary.BigEndian, &numbers); err != nil {
		return Hello{}, err
	}
	skipped, err := readSkipped(r)
	return Hello{Cluster: cluster, ServerID: id, Boot: numbers[0], Before: numbers[1], Known: numbers[2], Recovered: numbers[3], Skipped: skipped}, err
}

// readSkipped reads which log entries a node skips. Nodes that skip none send nothing.
func readSkipped(r io.Reader) ([]uint64, error) {
	var n uint16
	if err := binary.Read(r, binary.BigEndian, &n); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	skipped := make([]uint64, n)
	return skipped, binary.Read(r, binary.BigEndian, skipped)
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
