package registry

import (
	"encoding/binary"
	"hash/fnv"

	"github.com/seed-20419f34/rollcall/fsm/codec"
)

// Digest sums up an application's instances; equal sets have equal digests.
type Digest struct {
	Count uint32
	Sum   uint64 // of Lease.Sum, modulo 2^64
}

// Sum is an instance's part of a digest: over its id, version, reported status, override, quarantine
// (there or not) and Fingerprint. Two servers with equal copies have equal sums.
func (l *Lease) Sum() uint64 {
	var space [256]byte
	b := appendText(space[:0], l.Key().ID)
	b = binary.AppendUvarint(b, uint64(l.Life))
	b = binary.AppendVarint(b, l.Instance.LastDirty)
	b = binary.AppendUvarint(b, uint64(l.Edit))
	b = append(b, byte(l.reported()), byte(l.Instance.Overridden))
	b = appendFlag(b, l.Quarantine != nil)
	return hashOf(binary.BigEndian.AppendUint64(b, l.Instance.Fingerprint()))
}

// Fingerprint is a number that differs, in all likelihood, where two instances do: over everything
// that their clients say (with the lease times as they count), but the status and the override. It is made of how an
// instance is written at level 1 of the formats, whatever the level of the state is, because the state depends on it.
func (i *Instance) Fingerprint() uint64 {
	var space [1024]byte
	said := *i
	said.Status, said.Overridden = Unknown, Unknown
	said.RenewalInterval, said.Duration, _ = ClampLease(i.RenewalInterval, i.Duration)
	return hashOf(said.append(space[:0], 1))
}

// appendText puts the length before a text, so that no two lists of texts give the same bytes.
func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendFlag(b []byte, flag bool) []byte {
	if flag {
		return append(b, 1)
	}
	return append(b, 0)
}

// hashOf is the same in every process, as digests of different servers are compared.
func hashOf(b []byte) uint64 {
	h := fnv.New64a()
	h.Write(b)
	return h.Sum64()
}

// What things take beside their texts, in bytes, about. Equal states must have equal weights, on a node that has
// applied all operations as on one that was restored: by weight it is decided which records of removals are kept.
const (
	leaseWeight = 1024
	pairWeight  = 32
)

func (a Act) weight() int { return len(a.Author) + len(a.Reason) }

// Weight is what a lease takes, in bytes, about: in memory, and as a text in answers.
func (l *Lease) Weight() int {
	bytes := leaseWeight + l.Instance.weight()
	if l.Service != nil {
		bytes += l.Service.Weight()
	}
	return bytes
}

// weight is what the texts of an instance take, in bytes, about.
func (i *Instance) weight() int {
	c := codec.Weigher()
	i.Fields(&c)
	return c.Len() + pairWeight*(len(i.Metadata)+len(i.DataCenter.Metadata))
}
