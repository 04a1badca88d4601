package membership

import (
	"sync"
	"sync/atomic"

	"github.com/seed-20419f34/rollcall/store/consensus/port"
	"github.com/seed-20419f34/rollcall/store/disk"
)

// Identity is the node's identity on disk, as it changes.
type Identity struct {
	start disk.Identity // as it was at the start: the server, and which start this is

	mu  sync.Mutex                    // held while the identity is changed on disk
	now atomic.Pointer[disk.Identity] // newest that is on disk
}

// OpenIdentity reads the identity of a data directory, or creates one, and counts the start.
func OpenIdentity(dir string, owner disk.Owner) (*Identity, error) {
	opened, err := disk.OpenIdentity(dir, owner)
	if err != nil {
		return nil, err
	}
	i := &Identity{start: *opened}
	i.now.Store(opened)
	return i, nil
}

// Start returns the identity as it was at the start.
func (i *Identity) Start() disk.Identity { return i.start }

// ServerID returns the id of this node's server.
func (i *Identity) ServerID() string { return i.start.ServerID }

// Now returns the newest identity on disk. It must not be changed.
func (i *Identity) Now() *disk.Identity { return i.now.Load() }

// Cluster returns the id of the cluster that this node belongs to, or "".
func (i *Identity) Cluster() string { return i.now.Load().Cluster }

// Hello returns what this node says of itself.
func (i *Identity) Hello() port.Hello {
	return port.Hello{Cluster: i.Cluster(), ServerID: i.start.ServerID, Boot: i.start.Boot, Before: i.start.Before, Recovered: i.Now().Recovered, Skipped: i.Now().Skipped}
}

// Adopt writes down, once and for all, which cluster this node belongs to, at which index that cluster was recovered,
// and which entries of its log are skipped.
func (i *Identity) Adopt(cluster string, recovered uint64, skipped []uint64) error {
	return i.Change(func(id *disk.Identity) bool {
		// its promise may have come to nothing
		id.Cluster, id.Recovered, id.Skipped, id.Founding = cluster, recovered, skipped, disk.Founding{}
		return true
	})
}

// Change changes the identity on disk, unless do returns false. Others see the change only once it is on disk:
// meanwhile they see the old identity, and do not wait for the disk.
func (i *Identity) Change(do func(*disk.Identity) bool) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	id := *i.now.Load()
	if !do(&id) {
		return nil
	}
	if err := id.Save(); err != nil {
		return err
	}
	i.now.Store(&id)
	return nil
}
