package fsm

import (
	"fmt"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// The records of this file are for stores that keep a registry without a log: the records of a snapshot's sections,
// each on its own and preceded by its level (docs/reference/formats/local-disk.md). Errors of reading wrap
// ErrNewerVersion, codec.ErrOlderVersion or ErrCorrupt; nothing returned refers to the input.

// AppendLeaseState appends the encoding of a live lease. It panics on a lease without an instance.
func AppendLeaseState(dst []byte, level byte, l registry.LeaseState) []byte {
	return appendRecord(dst, level, &l, (*registry.LeaseState).Fields)
}

// ParseLeaseState is the inverse of AppendLeaseState.
func ParseLeaseState(b []byte) (registry.LeaseState, error) {
	return parseRecord("lease", codec.SharingReader(b, 1), (*registry.LeaseState).Fields)
}

// AppendRenewals appends the encoding of the last renewals of a lease.
func AppendRenewals(dst []byte, level byte, l registry.LeaseState) []byte {
	return appendRecord(dst, level, &l, (*registry.LeaseState).Renewals)
}

// ReadRenewals replaces the last renewals of a lease by those in an encoding of AppendRenewals.
func ReadRenewals(b []byte, l *registry.LeaseState) error {
	later, err := parseRecord("renewals", codec.Reader(b), (*registry.LeaseState).Renewals)
	if err == nil {
		l.Renewed, l.Client, l.Remote = later.Renewed, later.Client, later.Remote
	}
	return err
}

// AppendRemoval appends the encoding of the record of a removal. It panics on one without an instance.
func AppendRemoval(dst []byte, level byte, r registry.Removal) []byte {
	return appendRecord(dst, level, &r, (*registry.Removal).Fields)
}

// ParseRemoval is the inverse of AppendRemoval.
func ParseRemoval(b []byte) (registry.Removal, error) {
	return parseRecord("removal", codec.SharingReader(b, 1), (*registry.Removal).Fields)
}

// AppendFrozen appends the encoding of everything in a registry except its Leases, its Removals and its Free slots.
func AppendFrozen(dst []byte, level byte, f registry.Frozen) []byte {
	return appendRecord(dst, level, &f, walkFrozen)
}

// ParseFrozen is the inverse of AppendFrozen.
func ParseFrozen(b []byte) (registry.Frozen, error) {
	return parseRecord("registry", codec.Reader(b), walkFrozen)
}

// walkFrozen walks the lists with the least size of an element: its strings and lists empty, its numbers 0.
func walkFrozen(f *registry.Frozen, c *codec.Codec) {
	f.Head(c)
	codec.List(c, &f.Registered, 3, (*registry.Recent).Fields)
	codec.List(c, &f.Canceled, 3, (*registry.Recent).Fields)
	codec.List(c, &f.Transitions, 12, (*registry.Preservation).Fields)
	codec.List(c, &f.Links, 4, (*registry.Link).Fields)
	codec.List(c, &f.Senders, 7, (*registry.Sender).Fields)
	codec.List(c, &f.Peers, 8, (*registry.PeerState).Fields)
	codec.List(c, &f.Nodes, 8, codec.Each((*catalog.Node).Fields))
	codec.List(c, &f.CheckHeartbeats, 3, (*catalog.CheckHeartbeat).Fields)
}

func appendRecord[T any](dst []byte, level byte, v *T, fields func(*T, *codec.Codec)) []byte {
	c := codec.Writer(dst, level)
	c.Version()
	fields(v, &c)
	return c.Written()
}

// parseRecord reads a record that must be the whole input.
func parseRecord[T any](what string, c codec.Codec, fields func(*T, *codec.Codec)) (v T, err error) {
	c.Version()
	fields(&v, &c)
	if err := c.End(); err != nil {
		var none T
		return none, fmt.Errorf("%s on disk: %w", what, err)
	}
	return v, nil
}
