package registry

import (
	"slices"
	"strings"
)

// Contact notes that a peer was heard, at most once per second and peer. It takes no Index.
type Contact struct {
	// DC is the remote datacenter (or Eureka server) whose link is alive; "": a node of the own one.
	DC string
	// Sender names whose Clock it is: a cluster (CP) or a node (AP); "": the peer has no such clock.
	Sender string
	Boot   uint64 // of the sender: a clock of an older boot is from the past, whatever it shows
	Clock  int64  // the sender's lease clock at sending, ms
	Cut    int64  // ms of silence after which the link counts as cut; kept until the next Contact
	Age    int64  // ms ago, for what a node of the own datacenter passes on
}

// Link is what is known of the link from a remote datacenter. Times are lease clock, ms.
type Link struct {
	DC    string
	Heard int64 // last contact
	Since int64 // when the present contact began: a silence of more than Cut ends one
	Cut   int64
}

// Silent says whether the link counts as cut at a moment of the lease clock.
func (l Link) Silent(now int64) bool { return now-l.Heard > l.Cut }

// Sender is the newest that was heard of a sender's clock.
type Sender struct {
	Name  string
	Boot  uint64
	Clock int64 // the sender's lease clock, ms
}

// Late is by how much (ms) a message of the sender, stamped with its boot and lease clock, is older
// than the newest that is known of it: what is played again, or was held up on its way, renews
// nothing. A message of an older boot is as late as can be.
func (s Sender) Late(boot uint64, clock int64) int64 {
	switch {
	case boot < s.Boot:
		return maxLead
	case boot > s.Boot:
		return 0
	}
	return max(0, s.Clock-clock)
}

// known is what is known of other servers. It is immutable, because views have it: a change replaces
// it. There are as many entries as peers are configured somewhere, so that is cheap.
type known struct {
	links   []Link // by name, as the next two
	senders []Sender
	peers   []PeerState
}

// any says that there are other servers.
func (k *known) any() bool { return len(k.links)+len(k.senders)+len(k.peers) > 0 }

func (l Link) name() string      { return l.DC }
func (s Sender) name() string    { return s.Name }
func (p PeerState) name() string { return p.Name }

// named is what known has a sorted list of.
type named interface{ name() string }

// find returns the entry of a name.
func find[T named](sorted []T, name string) (entry T, ok bool) {
	at, ok := slices.BinarySearchFunc(sorted, name, compareNames)
	if ok {
		entry = sorted[at]
	}
	return entry, ok
}

// with returns a list with an entry in the place of the one of its name.
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

// learn changes what is known of other servers. It takes no Index: no list changes.
func (r *Registry) learn(change func(*known)) {
	k := *r.known
	change(&k)
	r.known = &k
}

// contact notes that a peer was heard.
func (r *Registry) contact(op Contact) Result {
	link, heard := r.known.heard(op, r.ago(op.Age).Lease)
	sender, newer := r.known.clock(op)
	if !heard && !newer {
		return Result{}
	}
	r.learn(func(k *known) {
		if heard {
			k.links = with(k.links, link)
		}
		if newer {
			k.senders = with(k.senders, sender)
		}
	})
	return Result{}
}

// heard is the link of a contact at a moment; ok is false if it says nothing new.
func (k *known) heard(op Contact, at int64) (l Link, ok bool) {
	if op.DC == "" {
		return Link{}, false
	}
	l, ok = find(k.links, op.DC)
	if !ok {
		// The name outlives the message that brought it, and must not keep its memory.
		return Link{DC: strings.Clone(op.DC), Heard: at, Since: at, Cut: max(op.Cut, 0)}, true
	}
	if at < l.Heard {
		return l, false
	}
	if l.Silent(at) {
		l.Since = at
	}
	l.Heard, l.Cut = at, max(op.Cut, 0)
	return l, true
}

// clock is the sender of a contact; ok is false if it says nothing new.
func (k *known) clock(op Contact) (s Sender, ok bool) {
	if op.Sender == "" {
		return Sender{}, false
	}
	s, ok = find(k.senders, op.Sender)
	if !ok {
		return Sender{Name: strings.Clone(op.Sender), Boot: op.Boot, Clock: op.Clock}, true
	}
	if op.Boot < s.Boot || op.Boot == s.Boot && op.Clock <= s.Clock {
		return s, false
	}
	s.Boot, s.Clock = op.Boot, op.Clock
	return s, true
}

// Link returns what is known of the link from a datacenter; ok is false if nothing was ever heard.
func (v *View) Link(dc string) (l Link, ok bool) { return find(v.known.links, dc) }

// Sender returns what is known of a sender's clock; the zero Sender if nothing was heard.
func (v *View) Sender(name string) Sender {
	s, _ := find(v.known.senders, name)
	return s
}
