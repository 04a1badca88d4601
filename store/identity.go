package store

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// identityVersion is the version of the identity file's format.
const identityVersion = 1

// modeCP is written into the identity of a data directory that holds a Raft log.
const modeCP = "cp"

// identity says whom a data directory belongs to: one mode, one node, one cluster. It lies beside
// the log as identity.json.
type identity struct {
	Version int    `json:"version"`
	Mode    string `json:"mode"`
	Node    string `json:"node"`
	// ServerID is the name and a random part, so that a node whose directory was lost cannot be
	// mistaken for the one that promised to remember the log.
	ServerID string `json:"server_id"`
	// Cluster is empty until the node has bootstrapped or joined.
	Cluster string `json:"cluster"`
	// Boot counts the starts; batches of an older boot are refused by the state machine.
	Boot uint64 `json:"boot"`

	path string
}

var nodeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`)

// openIdentity reads the identity of dir, or makes one for an empty directory, and counts the start.
func openIdentity(dir, node string) (*identity, error) {
	if !nodeName.MatchString(node) {
		return nil, fmt.Errorf("node name %q: want 1 to 63 letters, digits, '-' or '_', beginning with a letter or digit", node)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	path := filepath.Join(dir, "identity.json")
	id, err := readIdentity(path, node)
	if errors.Is(err, fs.ErrNotExist) {
		id, err = newIdentity(dir, node)
	}
	if err != nil {
		return nil, err
	}
	id.path = path
	id.Boot++
	return id, id.save()
}

func readIdentity(path, node string) (*identity, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read identity: %w", err)
	}
	id := &identity{}
	if err := json.Unmarshal(b, id); err != nil {
		return nil, fmt.Errorf("%s is corrupt (%v): restore it from a copy, or give the node an empty data directory", path, err)
	}
	switch {
	case id.Version > identityVersion:
		return nil, fmt.Errorf("%s was written by a newer version of rollcall (format %d, this one reads up to %d)", path, id.Version, identityVersion)
	case id.Version != identityVersion || id.ServerID == "" || id.Node == "":
		return nil, fmt.Errorf("%s is corrupt (version %d, node %q, server id %q): restore it from a copy, or give the node an empty data directory", path, id.Version, id.Node, id.ServerID)
	case id.Mode != modeCP:
		return nil, fmt.Errorf("data directory %s belongs to a node in mode %q, this node runs in mode %q: use another directory", filepath.Dir(path), id.Mode, modeCP)
	case id.Node != node:
		return nil, fmt.Errorf("data directory %s belongs to node %q, this node is %q: use its own directory or set node.name to %[2]q", filepath.Dir(path), id.Node, node)
	}
	return id, nil
}

func newIdentity(dir, node string) (*identity, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	for _, e := range entries {
		if e.Name() == raftDir {
			return nil, fmt.Errorf("data directory %s has a log but no identity.json: restore the file from a copy, or give the node an empty data directory", dir)
		}
	}
	random := make([]byte, 6)
	if _, err := rand.Read(random); err != nil {
		return nil, fmt.Errorf("draw a server id: %w", err)
	}
	return &identity{Version: identityVersion, Mode: modeCP, Node: node, ServerID: node + "." + hex.EncodeToString(random)}, nil
}

// save writes the identity so that a crash leaves the old file or the new one.
func (id *identity) save() error {
	b, err := json.MarshalIndent(id, "", "  ")
	if err != nil {
		return fmt.Errorf("save identity: %w", err)
	}
	tmp := id.path + ".tmp"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("save identity: %w", err)
	}
	_, err = f.Write(append(b, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("save identity: %w", err)
	}
	if err := os.Rename(tmp, id.path); err != nil {
		return fmt.Errorf("save identity: %w", err)
	}
	return syncDir(filepath.Dir(id.path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}

// nameOf returns the node name within a server id.
func nameOf(serverID string) string {
	if i := strings.LastIndexByte(serverID, '.'); i >= 0 {
		return serverID[:i]
	}
	return serverID
}

// clusterIDOf is the id of the cluster that a set of servers bootstraps. The ids have random parts,
// so two clusters never share one, and every founder computes the same without asking.
func clusterIDOf(serverIDs []string) string {
	sorted := slices.Sorted(slices.Values(serverIDs))
	sum := sha256.Sum256([]byte(strings.Join(sorted, "\n")))
	return hex.EncodeToString(sum[:8])
}
