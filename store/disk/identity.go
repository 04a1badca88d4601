package disk

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/internal/world"
)

// The levels of the identity file. Files beside it carry their own level.
const (
	identityLevel = 1
	// skippingLevel marks a file with skipped entries: a program that does not know them must not start with it.
	skippingLevel = 2
)

// The modes, as written into the identity of a data directory.
const (
	ModeCP = "cp" // the directory holds a Raft log
	ModeAP = "ap" // the directory holds a node's own registry
)

// Owner is the node that wants to use a data directory.
type Owner struct {
	Mode, Node, Datacenter string
	Reads                  byte         // newest level of the formats that the program reads
	World                  *world.World // nil means the real machine
}

// Identity says who a data directory belongs to: one mode, one node, one cluster or datacenter. It is stored beside
// the data as identity.json.
type Identity struct {
	Level int    `json:"level"`
	Mode  string `json:"mode"`
	Node  string `json:"node"`
	// Datacenter is set in AP mode only: a CP cluster goes by its id.
	Datacenter string `json:"datacenter,omitempty"`
	// ServerID is the name and a random part, so that a node whose directory was lost cannot be mistaken for the one
	// that promised to remember the log.
	ServerID string `json:"server_id"`
	// Cluster is empty until the node has bootstrapped or joined, and in AP mode.
	Cluster string `json:"cluster"`
	// Recovered is the index at which the cluster went on with what one node had (package consensus, Recovery), or 0
	// if it never did. A node with a lower one has old data that no longer counts.
	Recovered uint64 `json:"recovered,omitempty"`
	// Skipped has the log entries, by index ascending, that the cluster skips (package consensus, SkipEntry). Nodes
	// that skip different entries refuse each other.
	Skipped []uint64 `json:"skipped,omitempty"`
	// Founding is what the node has promised about the founders of its cluster; in CP mode only.
	Founding Founding `json:"founding,omitzero"`
	// Reads is the newest level of the formats that the program of the newest start reads, and ReadsSince the time
	// (ms since the Unix epoch) from which the programs of all starts have read it.
	Reads      byte  `json:"reads,omitempty"`
	ReadsSince int64 `json:"reads_since,omitempty"`
	// Boot numbers the starts, in rising order. In CP mode no two starts share one, not even of two copies of a
	// directory, and the state machine refuses batches of an older boot. In AP mode it counts, and indexes of
	// different boots belong to different epochs.
	Boot uint64 `json:"boot"`
	// Before is the boot of the start before this one, in CP mode: an older copy of a directory does not know the
	// newest one.
	Before uint64 `json:"before,omitempty"`

	path string
}

// Recovering is the suffix of the copy of a data directory that a recovery works on (package consensus, Recovery),
// until it replaces the directory.
const Recovering = ".recovering"

// checkCutOff refuses a data directory that a recovery has moved away and not yet replaced.
func checkCutOff(dir string) error {
	copied := filepath.Clean(dir) + Recovering
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, err := os.Lstat(copied); err != nil {
		return nil
	}
	return fmt.Errorf("data directory %s is not there, but %s is: a recovery was cut off before its last step; rename %[2]s to %[1]s", dir, copied)
}

const identityFile = "identity.json"

var nodeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`)

// OpenIdentity reads the identity of dir, or creates one for an empty directory, and counts the start.
func OpenIdentity(dir string, owner Owner) (*Identity, error) {
	if !nodeName.MatchString(owner.Node) {
		return nil, fmt.Errorf("node name %q: want 1 to 63 letters, digits, '-' or '_', beginning with a letter or digit", owner.Node)
	}
	if err := checkCutOff(dir); err != nil {
		return nil, err
	}
	if err := MakeDir(dir); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	id, err := ReadIdentity(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		id, err = newIdentity(dir, owner)
	case err == nil:
		err = id.fits(filepath.Clean(dir), owner)
	}
	if err != nil {
		return nil, err
	}
	if id.Reads != owner.Reads {
		id.Reads, id.ReadsSince = owner.Reads, owner.World.Now().UnixMilli()
	}
	id.numberStart(owner.World.Now())
	return id, id.Save()
}

// numberStart numbers a start.
func (id *Identity) numberStart(wall time.Time) {
	if id.Mode != ModeCP {
		id.Boot++
		return
	}
	id.Before = id.Boot
	// The directory may be a copy, and another node may be starting with the original: the two starts differ by the
	// wall clock, and by chance where that was set back or reads the same. Chance decides nothing else: of two starts
	// the later one has the higher number, however soon it follows.
	if id.Boot = uint64(wall.UnixMicro())<<2 | mathrand.Uint64N(1<<2); id.Boot <= id.Before {
		id.Boot = id.Before + 1 + mathrand.Uint64N(1<<20)
	}
}

// ReadIdentity reads the identity of a directory, and changes nothing. It refuses a directory that a recovery has
// moved away and not yet replaced.
func ReadIdentity(dir string) (*Identity, error) {
	if err := checkCutOff(dir); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, identityFile)
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read identity: %w", err)
	}
	id := &Identity{path: path}
	if err := json.Unmarshal(b, id); err != nil {
		return nil, fmt.Errorf("%s is corrupt (%v): "+StartEmpty, path, err)
	}
	switch {
	case id.Level > skippingLevel:
		return nil, fmt.Errorf("%s was written by a newer version of rollcall (level %d, this one reads %d): start the newer version again", path, id.Level, skippingLevel)
	case id.Level == 0 && id.ServerID != "":
		return nil, fmt.Errorf("%s was written before the first release of rollcall, and there is no upgrade: "+StartEmpty, path)
	case id.Level < 1 || id.ServerID == "" || id.Node == "":
		return nil, fmt.Errorf("%s is corrupt (level %d, node %q, server id %q): "+StartEmpty, path, id.Level, id.Node, id.ServerID)
	}
	return id, nil
}

// fits returns why a directory is not for an owner, or nil if it is.
func (id *Identity) fits(dir string, owner Owner) error {
	switch {
	case id.Mode != owner.Mode:
		return fmt.Errorf("data directory %s belongs to a node in mode %q, this node runs in mode %q: use another directory", dir, id.Mode, owner.Mode)
	case id.Node != owner.Node:
		return fmt.Errorf("data directory %s belongs to node %q, this node is %q: use its own directory or set node.name to %[2]q", dir, id.Node, owner.Node)
	case id.Datacenter != owner.Datacenter:
		return fmt.Errorf("data directory %s belongs to datacenter %q, this node is in %q: use another directory or set datacenter to %[2]q", dir, id.Datacenter, owner.Datacenter)
	}
	return nil
}

func newIdentity(dir string, owner Owner) (*Identity, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	for _, e := range entries {
		if e.Name() == RaftDir || e.Name() == LocalFile {
			return nil, fmt.Errorf("data directory %s has %s but no identity.json: "+StartEmpty, dir, e.Name())
		}
	}
	random := make([]byte, 6)
	rand.Read(random) // never fails
	return &Identity{
		path:  filepath.Join(dir, identityFile),
		Level: identityLevel, Mode: owner.Mode, Node: owner.Node, Datacenter: owner.Datacenter,
		ServerID: owner.Node + "." + hex.EncodeToString(random),
	}, nil
}

// Save writes the identity so that a crash leaves the old file or the new one.
func (id *Identity) Save() error {
	if id.Level = identityLevel; len(id.Skipped) > 0 {
		id.Level = skippingLevel
	}
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
	return SyncDir(filepath.Dir(id.path))
}

// ClusterIDOf returns the id of the cluster that a set of servers bootstraps. The server ids have random parts, so
// two clusters never share one, and every founder computes the same without asking.
func ClusterIDOf(serverIDs []string) string {
	sorted := slices.Sorted(slices.Values(serverIDs))
	sum := sha256.Sum256([]byte(strings.Join(sorted, "\n")))
	return hex.EncodeToString(sum[:8])
}

// NodeName returns the name of the node in a server id.
func NodeName(serverID string) string {
	if i := strings.LastIndexByte(serverID, '.'); i >= 0 {
		return serverID[:i]
	}
	return serverID
}

// RaftDir is the part of the data directory that hashicorp/raft owns.
const RaftDir = "raft"

// Founder is a node that founds a cluster. It and the other types of the founding are exported because net/rpc
// requires it.
type Founder struct {
	ID   string `json:"id"` // server id
	Addr string `json:"address"`
}

// Ballot numbers a proposal; two nodes never use the same.
type Ballot struct {
	Round    uint64 `json:"round"`
	ServerID string `json:"server_id"`
}

// Compare orders ballots by round, then by server.
func (b Ballot) Compare(o Ballot) int {
	return cmp.Or(cmp.Compare(b.Round, o.Round), cmp.Compare(b.ServerID, o.ServerID))
}

// Founding is what a node has promised. It is part of the identity, because it must outlive a crash.
type Founding struct {
	Promised Ballot    `json:"promised"` // no older proposal is accepted
	Accepted Ballot    `json:"accepted"` // ballot of the list below; zero if none was accepted
	Founders []Founder `json:"founders,omitempty"`
}

// LocalFile is the file below the data directory that holds the registry in AP mode.
const LocalFile = "registry.db"
