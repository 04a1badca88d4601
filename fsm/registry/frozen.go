package registry

import (
	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/codec"
)

// Frozen is the whole state of a Registry at one moment, for a snapshot: a few pointers and a copy of the renewal
// times, valid while the registry goes on. Every list has a canonical order, so equal registries freeze to equal
// values.
type Frozen struct {
	Index       Index // of the last change that readers see
	Reserved    Index // the last one that Take gave out; 0 if none
	Clock       Stamp
	Epoch       Epoch
	Established int64 // lease clock when the epoch was established, ms
	Cluster     string
	Slots       uint32   // size of the handle table
	Generation  uint64   // the last one given out
	Free        []uint32 // free slots, in the order of their future use
	Leases      []LeaseState
	Removals    []Removal // records of the change list, by Index ascending
	Pruned      Index     // newest pruned record of a removal; 0 if none
	Restored    Index     // where the newest incarnation began, see Registry.Raise; 0 if none did
	Registered  []Recent  // newest last
	Canceled    []Recent

	Settings     Settings
	Preservation Preservation
	Transitions  []Preservation // newest last, the present one included; at most 50
	Expectation  ExpectationState

	Links   []Link // by name, like the next two
	Senders []Sender
	Peers   []PeerState

	// Nodes of the catalog, by name: the logical one ("") only if it ever had checks of its own.
	Nodes        []*catalog.Node
	CatalogIndex Index
	Parts        PartIndexes
	// CheckHeartbeats holds the last heartbeats of checks with a TTL, each once, by node, then id.
	CheckHeartbeats []catalog.CheckHeartbeat
}

// Head walks all single values of a registry.
func (f *Frozen) Head(c *codec.Codec) {
	codec.Uint(c, &f.Index)
	f.Clock.Fields(c)
	f.Epoch.Fields(c)
	c.Int64(&f.Established)
	c.String(&f.Cluster)
	c.Uint32(&f.Slots)
	c.Uint64(&f.Generation)
	codec.Uint(c, &f.Pruned)
	f.Settings.Fields(c)
	f.Preservation.Fields(c)
	f.Expectation.fields(c)
	codec.Uint(c, &f.Reserved)
	codec.Uint(c, &f.CatalogIndex)
	f.Parts.fields(c)
	codec.Uint(c, &f.Restored)
}

// LeaseState is a live lease and its last renewal, sorted by application and id.
type LeaseState struct {
	Lease   *Lease
	Renewed Stamp
	History History
	// Client and Remote are the last renewals (lease clock, ms) by a client of this datacenter and by a replicator; 0
	// if there was none in this life.
	Client, Remote int64
	Asked          byte // see renewal
}

func (s *LeaseState) Fields(c *codec.Codec) {
	codec.Ptr(c, &s.Lease).Fields(c)
	s.History.fields(c)
	s.Renewals(c)
	if c.Since(3, false) {
		c.Byte(&s.Asked)
	}
}

// Renewals walks when a lease was last renewed.
func (s *LeaseState) Renewals(c *codec.Codec) {
	s.Renewed.Fields(c)
	c.Int64(&s.Client)
	c.Int64(&s.Remote)
}
