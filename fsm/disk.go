package fsm

import (
	"fmt"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// The records of this file are for stores that keep a registry without a log: what a snapshot has in
// its sections, each for itself and with its version in front (docs/formats/local-disk.md). The
// version is the lowest of a snapshot that can say it; there were none before version 3.
const firstOfDisk = 3

// AppendLeaseState appends the encoding of a live lease. It panics on one without an instance.
func AppendLeaseState(dst []byte, l registry.LeaseState) []byte {
	version := versionOfLease(l.Lease)
	return appendLeaseState(append(dst, version), version, l)
}

func versionOfLease(l *registry.Lease) byte {
	if l.Permanent || l.Service != nil {
		return 4
	}
	return firstOfDisk
}

// ParseLeaseState is the inverse of AppendLeaseState. Errors wrap ErrNewerVersion or ErrCorrupt.
// Nothing returned refers to b.
func ParseLeaseState(b []byte) (registry.LeaseState, error) {
	return parseDisk("lease", newSharing(b), func(d *decoder) registry.LeaseState {
		l := d.leaseState()
		d.lowest(versionOfLease(l.Lease))
		return l
	})
}

// AppendRemoval appends the encoding of a record of removal. It panics on one without an instance.
func AppendRemoval(dst []byte, r registry.Removal) []byte {
	version := versionOfLease(r.Lease)
	return appendRemoval(append(dst, version), version, r)
}

// ParseRemoval is the inverse of AppendRemoval. Errors wrap ErrNewerVersion or ErrCorrupt. Nothing
// returned refers to b.
func ParseRemoval(b []byte) (registry.Removal, error) {
	return parseDisk("removal", newSharing(b), func(d *decoder) registry.Removal {
		r := d.removal()
		d.lowest(versionOfLease(r.Lease))
		return r
	})
}

// AppendFrozen appends the encoding of everything of a registry but its Leases, its Removals and its
// Free slots.
func AppendFrozen(dst []byte, f registry.Frozen) []byte {
	version := versionOfFrozen(f)
	dst = appendPlace(append(dst, version), f)
	dst = appendConduct(dst, f)
	dst = appendList(dst, f.Registered, appendRecent)
	dst = appendList(dst, f.Canceled, appendRecent)
	dst = appendList(dst, f.Transitions, appendPreservation)
	dst = appendList(dst, f.Links, appendLink)
	dst = appendList(dst, f.Senders, appendSender)
	dst = appendList(dst, f.Peers, appendPeer)
	if version < 4 {
		return dst
	}
	return appendList(appendList(appendCatalogPlace(dst, f), f.Nodes, appendCatalogNode), f.Heard, appendHeard)
}

func versionOfFrozen(f registry.Frozen) byte {
	if f.Taken > 0 || f.CatalogIndex > 0 || len(f.Nodes) > 0 || len(f.Heard) > 0 {
		return 4
	}
	return firstOfDisk
}

// ParseFrozen is the inverse of AppendFrozen. Errors wrap ErrNewerVersion or ErrCorrupt. Nothing
// returned refers to b.
func ParseFrozen(b []byte) (registry.Frozen, error) {
	return parseDisk("registry", decoder{b: b}, (*decoder).frozen)
}

// The least that an element of each list takes: its strings and lists empty, its numbers 0.
const (
	minRecentSize     = 3
	minTransitionSize = 12
	minLinkSize       = 4
	minSenderSize     = 3
	minPeerSize       = 8
)

func (d *decoder) frozen() registry.Frozen {
	f := d.place()
	d.conduct(&f)
	f.Registered = list(d, minRecentSize, (*decoder).recent)
	f.Canceled = list(d, minRecentSize, (*decoder).recent)
	f.Transitions = list(d, minTransitionSize, (*decoder).preservation)
	f.Links = list(d, minLinkSize, (*decoder).link)
	f.Senders = list(d, minSenderSize, (*decoder).sender)
	f.Peers = list(d, minPeerSize, (*decoder).peer)
	if d.format > 3 {
		d.catalogPlace(&f)
		f.Nodes = list(d, minNodeSize, (*decoder).catalogNode)
		f.Heard = list(d, minHeardSize, (*decoder).heard)
	}
	d.lowest(versionOfFrozen(f))
	return f
}

// parseDisk reads a record that is all that d has.
func parseDisk[T any](what string, d decoder, decode func(*decoder) T) (T, error) {
	var none T
	if d.version(snapshotVersion); d.err == nil && d.format < firstOfDisk {
		d.fail("version %d, want %d to %d", d.format, firstOfDisk, snapshotVersion)
	}
	v := decode(&d)
	if err := d.end(); err != nil {
		return none, fmt.Errorf("%s on disk: %w", what, err)
	}
	return v, nil
}
