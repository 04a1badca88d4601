package registry

import (
	"encoding/binary"
	"hash/fnv"
	"iter"
)

// settlingTime is how long (ms of lease clock) after a change of an instance two servers need not
// agree on it yet.
const settlingTime = 10_000

// Digest sums up an application's instances; equal sets have equal digests.
type Digest struct {
	Count uint32
	Sum   uint64 // of Lease.Sum, modulo 2^64
}

// Settled yields the live leases, quarantined ones included, that two servers can be expected to
// agree on at a moment of the lease clock (ms): unchanged for 10 s, and not ended. They are sorted by
// application and id. all is false: only those of an owner ("": the own datacenter).
func (v *View) Settled(now int64, all bool, owner string) iter.Seq[*Lease] {
	return func(yield func(*Lease) bool) {
		for l := range v.All() {
			if (all || l.Owner == owner) && now-l.ChangedLease >= settlingTime && v.Ends(l) >= now && !yield(l) {
				return
			}
		}
	}
}

// SettledIndex is the newest index of the change list up to which all changes are settled at a moment
// of the lease clock (ms): what is newer, comparisons may leave out, and readers of the list must tell.
func (v *View) SettledIndex(now int64) Index {
	settled, fresh := v.tables.pruned, v.index+1 // fresh: the oldest change that is not settled
	old := func(l *Lease) bool {
		if now-l.ChangedLease < settlingTime {
			fresh = min(fresh, l.Changed)
			return true
		}
		settled = max(settled, l.Changed)
		return false
	}
	v.tables.live.Reverse(func(_ Index, l *Lease) bool { return old(l) })
	v.tables.removed.Reverse(func(_ Index, m Removal) bool { return old(m.Lease) })
	return min(settled, fresh-1) // records that were made after it may have been forgotten for their number
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

func appendFlag(b []byte, flag bool) []byte { return append(b, byte(one(flag))) }

// hashOf is the same in every process, as digests of different servers are compared.
func hashOf(b []byte) uint64 {
	h := fnv.New64a()
	h.Write(b)
	return h.Sum64()
}

// What things take beside their texts, in bytes, about. Equal states must have equal weights, on a node that has
// applied all operations as on one that was restored: by weight it is decided which records of removals are kept.
const (
	nodeWeight    = 512
	checkWeight   = 512
	removalWeight = 1024
	leaseWeight   = 1024
	eventWeight   = 96
	pairWeight    = 32
)

// Weight is what a node takes with its checks, in bytes, about.
func (n *Node) Weight() int {
	bytes := n.ownWeight()
	for _, c := range n.Checks {
		bytes += c.weight()
	}
	return bytes
}

func (n *Node) ownWeight() int {
	return nodeWeight + len(n.ID) + len(n.Name) + len(n.Address) + weightOf(n.Tagged) + weightOf(n.Meta)
}

func (c *Check) weight() int {
	bytes := checkWeight + len(c.ID) + len(c.Name) + len(c.Notes) + len(c.Output) + len(c.Type) + len(c.Definition)
	if p := c.Probe; p != nil {
		bytes += len(p.HTTP) + len(p.Method) + len(p.Body) + len(p.TCP) + weightOf(p.Header)
	}
	return bytes
}

// weight is what a record of a removal takes, in bytes, about.
func (m Removal) weight() int {
	bytes := removalWeight + m.Lease.Instance.weight() + len(m.Lease.Origin.DC) + len(m.Lease.Owner)
	if q := m.Lease.Quarantine; q != nil {
		bytes += q.By.weight()
	}
	p := m.History.newest
	for range p.length() {
		bytes += eventWeight
		if p.who != nil {
			bytes += len(p.who.origin.DC) + p.who.by.weight()
		}
		p = p.before
	}
	return bytes
}

func (a Act) weight() int { return len(a.Author) + len(a.Reason) }

func weightOf(pairs []Pair) (bytes int) {
	for _, p := range pairs {
		bytes += pairWeight + len(p.Key) + len(p.Value)
	}
	return bytes
}

// Weight is what a lease takes, in bytes, about: in memory, and as a text in answers.
func (l *Lease) Weight() int {
	bytes := leaseWeight + l.Instance.weight()
	s := l.Service
	if s == nil {
		return bytes
	}
	bytes += len(s.Address) + len(s.SocketPath) + len(s.Locality) + len(s.Ports)
	for _, tag := range s.Tags {
		bytes += pairWeight + len(tag)
	}
	for _, t := range s.Tagged {
		bytes += pairWeight + len(t.Tag) + len(t.Address)
	}
	for _, c := range s.Checks {
		bytes += c.weight()
	}
	return bytes
}
