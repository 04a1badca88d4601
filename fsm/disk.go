package fsm

import (
	"fmt"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// The records of this file are for stores that keep a registry without a log: what a snapshot has in
// its sections, each for itself and with its version in front (docs/formats/local-disk.md).

// AppendLeaseState appends the encoding of a live lease. It panics on one without an instance.
func AppendLeaseState(dst []byte, l registry.LeaseState) []byte {
	return appendLeaseState(append(dst, formatVersion), l)
}

// ParseLeaseState is the inverse of AppendLeaseState. Errors wrap ErrNewerVersion, ErrOlderVersion or ErrCorrupt.
// Nothing returned refers to b.
func ParseLeaseState(b []byte) (registry.LeaseState, error) {
	return parseDisk("lease", newSharing(b), (*decoder).leaseState)
}

// AppendRemoval appends the encoding of a record of removal. It panics on one without an instance.
func AppendRemoval(dst []byte, r registry.Removal) []byte {
	return appendRemoval(append(dst, formatVersion), r)
}

// ParseRemoval is the inverse of AppendRemoval. Errors wrap ErrNewerVersion, ErrOlderVersion or ErrCorrupt. Nothing
// returned refers to b.
func ParseRemoval(b []byte) (registry.Removal, error) {
	return parseDisk("removal", newSharing(b), (*decoder).removal)
}

// AppendFrozen appends the encoding of everything of a registry but its Leases, its Removals and its
// Free slots.
func AppendFrozen(dst []byte, f registry.Frozen) []byte {
	dst = appendPlace(append(dst, formatVersion), f)
	dst = appendConduct(dst, f)
	dst = appendList(dst, f.Registered, appendRecent)
	dst = appendList(dst, f.Canceled, appendRecent)
	dst = appendList(dst, f.Transitions, appendPreservation)
	dst = appendList(dst, f.Links, appendLink)
	dst = appendList(dst, f.Senders, appendSender)
	dst = appendList(dst, f.Peers, appendPeer)
	return appendList(appendList(appendCatalogPlace(dst, f), f.Nodes, appendCatalogNode), f.Heard, appendHeard)
}

// ParseFrozen is the inverse of AppendFrozen. Errors wrap ErrNewerVersion, ErrOlderVersion or ErrCorrupt. Nothing
// returned refers to b.
func ParseFrozen(b []byte) (registry.Frozen, error) {
	return parseDisk("registry", decoder{b: b}, (*decoder).frozen)
}

// The least that an element of each list takes: its strings and lists empty, its numbers 0.
const (
	minRecentSize     = 3
	minTransitionSize = 12
	minLinkSize       = 4
	minSenderSize     = 6
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
	d.catalogPlace(&f)
	f.Nodes = list(d, minNodeSize, (*decoder).catalogNode)
	f.Heard = list(d, minHeardSize, (*decoder).heard)
	return f
}

// parseDisk reads a record that is all that d has.
func parseDisk[T any](what string, d decoder, decode func(*decoder) T) (T, error) {
	var none T
	d.version()
	v := decode(&d)
	if err := d.end(); err != nil {
		return none, fmt.Errorf("%s on disk: %w", what, err)
	}
	return v, nil
}
