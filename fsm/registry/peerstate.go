package registry

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"math"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/codec"
)

// Link is what is known about the link from a remote datacenter. Times are lease clock, ms.
type Link struct {
	DC          string
	LastContact int64 // last contact
	Since       int64 // when the present contact began: a silence of more than Cut ends one
	Cut         int64
}

func (l *Link) Fields(c *codec.Codec) {
	c.String(&l.DC)
	c.Int64(&l.LastContact)
	c.Int64(&l.Since)
	c.Int64(&l.Cut)
}

// Silent reports whether the link counts as cut at a moment of the lease clock.
func (l Link) Silent(now int64) bool { return now-l.LastContact > l.Cut }

// Sender is the newest message of a sender, by its clock, in one of its incarnations. A name means one sender in each
// datacenter.
type Sender struct {
	DC          string // "": this one
	Name        string
	Incarnation uint64
	Clock       int64 // the sender's lease clock, ms
	LastMessage Stamp // when
	// Principal is the first known principal that used the sender's name; "" if none was known.
	Principal string
}

func (s *Sender) Fields(c *codec.Codec) {
	c.String(&s.Name)
	c.String(&s.DC)
	c.Uint64(&s.Incarnation)
	c.Int64(&s.Clock)
	s.LastMessage.Fields(c)
	c.Lasting(&s.Principal)
}

// Bounds on the kept senders and links, so that invented names and incarnations displace only the longest silent
// ones, and cost no memory.
const (
	maxIncarnations = 4 // of one sender
	maxSenders      = 1000
	maxLinks        = 1000
)

// maxSenderAhead is how far (ms) a sender's clock may run ahead of the time since its last message.
const maxSenderAhead = 10 * 60 * 1000

func (k *otherServers) timing(said Sender, now Stamp) (late, ahead int64) {
	s, ok := find(k.senders, said.name())
	if !ok {
		return 0, 0
	}
	passed := max(now.Lease-s.LastMessage.Lease, 0)
	if said.Clock-s.Clock > max(passed, now.Wall-s.LastMessage.Wall)+maxSenderAhead {
		return 0, said.Clock - s.Clock - passed
	}
	for _, other := range k.incarnations(said) {
		if other.LastMessage.Lease > s.LastMessage.Lease {
			return max(0, passed-(said.Clock-s.Clock)), 0
		}
	}
	return max(0, s.Clock-said.Clock), 0
}

// incarnations returns the known incarnations of a sender.
func (k *otherServers) incarnations(of Sender) []Sender {
	of.Incarnation = 0
	begin, _ := slices.BinarySearchFunc(k.senders, of.name(), compareNames)
	end := begin
	for end < len(k.senders) && k.senders[end].DC == of.DC && k.senders[end].Name == of.Name {
		end++
	}
	return k.senders[begin:end]
}

// principal returns who owns a sender's name, or "" if nobody does yet.
func (k *otherServers) principal(dc, name string) string {
	for _, s := range k.incarnations(Sender{DC: dc, Name: name}) {
		if s.Principal != "" {
			return s.Principal
		}
	}
	return ""
}

// withSender returns the senders including s, without any that no longer fit.
func (k *otherServers) withSender(s Sender) []Sender {
	if _, ok := find(k.senders, s.name()); ok {
		return with(k.senders, s)
	}
	senders := k.senders
	for _, full := range []struct {
		among []Sender
		most  int
	}{{k.incarnations(s), maxIncarnations}, {k.senders, maxSenders}} {
		if len(full.among) < full.most || len(senders) < len(k.senders) {
			continue
		}
		silent := slices.MinFunc(full.among, func(a, b Sender) int { return cmp.Compare(a.LastMessage.Lease, b.LastMessage.Lease) })
		senders = slices.DeleteFunc(slices.Clone(senders), func(o Sender) bool { return o.name() == silent.name() })
	}
	return with(senders, s)
}

// withLink returns the links including l, without one that no longer fits.
func (k *otherServers) withLink(l Link) []Link {
	links := k.links
	if _, ok := find(links, l.DC); !ok && len(links) >= maxLinks {
		silent := slices.MinFunc(links, func(a, b Link) int { return cmp.Compare(a.LastContact, b.LastContact) })
		links = slices.DeleteFunc(slices.Clone(links), func(o Link) bool { return o.DC == silent.DC })
	}
	return with(links, l)
}

// otherServers is what is known about other servers. It is immutable, because views share it: a change replaces it.
// It has about as many entries as there are configured peers, so that is cheap.
type otherServers struct {
	links   []Link // by name, like the next two
	senders []Sender
	peers   []PeerState
}

func (l Link) name() string { return l.DC }

func (p PeerState) name() string { return p.Name }

// name returns a key that sorts by name, datacenter and incarnation. Each contact compares it with many others.
func (s Sender) name() string {
	return s.Name + "\x00" + s.DC + "\x00" + hex.EncodeToString(binary.BigEndian.AppendUint64(nil, s.Incarnation))
}

// named is an entry of one of the sorted lists.
type named interface{ name() string }

func find[T named](sorted []T, name string) (entry T, ok bool) {
	at, ok := slices.BinarySearchFunc(sorted, name, compareNames)
	if ok {
		entry = sorted[at]
	}
	return entry, ok
}

// with returns a list with entry added, or replacing the entry of its name.
func with[T named](sorted []T, entry T) []T {
	at, ok := slices.BinarySearchFunc(sorted, entry.name(), compareNames)
	if !ok {
		return slices.Insert(slices.Clone(sorted), at, entry)
	}
	changed := slices.Clone(sorted)
	changed[at] = entry
	return changed
}

func compareNames[T named](entry T, name string) int { return strings.Compare(entry.name(), name) }

// linkAfter returns the link after a contact at a moment; ok is false if the contact says nothing new.
func (k *otherServers) linkAfter(op Contact, at int64) (l Link, ok bool) {
	if op.DC == "" {
		return Link{}, false
	}
	l, ok = find(k.links, op.DC)
	if !ok {
		// The name outlives the message that brought it, and must not keep its memory.
		return Link{DC: strings.Clone(op.DC), LastContact: at, Since: at, Cut: max(op.Cut, 0)}, true
	}
	if at < l.LastContact {
		return l, false
	}
	if l.Silent(at) {
		l.Since = at
	}
	l.LastContact, l.Cut = at, max(op.Cut, 0)
	return l, true
}

// senderAfter returns the sender after a contact at a moment; ok is false if the contact is not new, or impossible.
func (k *otherServers) senderAfter(op Contact, now Stamp) (s Sender, ok bool) {
	if op.Sender == "" {
		return Sender{}, false
	}
	said := Sender{DC: op.DC, Name: op.Sender, Incarnation: op.Incarnation, Clock: op.Clock, LastMessage: now}
	if s, ok = find(k.senders, said.name()); !ok {
		// The names outlive the message that brought them, and must not keep its memory.
		said.DC, said.Name = strings.Clone(op.DC), strings.Clone(op.Sender)
		said.Principal = cmp.Or(k.principal(op.DC, op.Sender), strings.Clone(op.Principal))
		return said, true
	}
	if _, ahead := k.timing(said, now); ahead > 0 || op.Clock <= s.Clock {
		return s, false
	}
	s.Clock, s.LastMessage = op.Clock, now
	s.Principal = cmp.Or(k.principal(op.DC, op.Sender), strings.Clone(op.Principal))
	return s, true
}

// PeerState is what the state keeps about a peer that this side sends to.
type PeerState struct {
	Name   string
	Cursor Index
	Known  bool // a cursor was acknowledged
	Paused bool
	By     Act   // the author of the last pause or resumption
	Since  Stamp // when
}

func (p *PeerState) Fields(c *codec.Codec) {
	c.String(&p.Name)
	codec.Uint(c, &p.Cursor)
	c.Bool(&p.Known)
	c.Bool(&p.Paused)
	p.By.Fields(c)
	p.Since.Fields(c)
}

// peer returns a copy of a peer's state, new if the peer is unknown.
func (k *otherServers) peer(name string) PeerState {
	p, ok := find(k.peers, name)
	if !ok {
		p.Name = strings.Clone(name)
	}
	return p
}

// endsAt returns the last moment of a lease, whoever owns it.
func (k *otherServers) endsAt(l *Lease, renewed int64, g graces, doubled bool) int64 {
	if l.Permanent {
		return math.MaxInt64
	}
	end := localEnd(l, renewed, g, doubled)
	if l.Local() {
		return end
	}
	end = max(end, livedUntil(l, renewed, doubled)+wayOfRenewals)
	if link, ok := find(k.links, l.Owner); ok {
		end = max(end, link.Since+int64(l.Duration)*1000)
	}
	return end
}
