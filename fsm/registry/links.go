package registry

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/codec"
)

// Contact notes that a peer was heard, at most once per second and peer. It takes no Index.
type Contact struct {
	// DC is the remote datacenter (or Eureka server) whose link is alive; "": a node of the own one.
	DC string
	// Sender names whose Clock it is: a cluster (CP) or a node (AP); "": the peer has no such clock.
	Sender string
	// Incarnation is a random number that the sender draws when it begins to send, so that one that goes
	// on with an older copy of its data is not taken for late.
	Incarnation uint64
	Clock       int64 // the sender's lease clock at sending, ms
	Cut         int64 // ms of silence after which the link counts as cut; kept until the next Contact
	Age         int64 // ms ago, for what a node of the own datacenter passes on
}

func (Contact) kind() Kind { return 14 }

func (op Contact) apply(r *Registry, at at) Result { return r.contact(op) }

func (op Contact) fields(c *codec.Codec) Contact {
	c.String(&op.DC)
	c.String(&op.Sender)
	c.Uint64(&op.Incarnation)
	c.Int64(&op.Clock)
	c.Int64(&op.Cut)
	c.Int64(&op.Age)
	return op
}

// ForgetSender forgets what is known of a sender's clock, in all its incarnations and in whatever datacenter:
// the next message in its name counts as its first. NotFound: no sender of that name is known. It takes no
// Index.
type ForgetSender struct {
	Sender string
	By     Act // nothing is kept of it but the entry of the log
}

func (ForgetSender) kind() Kind { return 17 }

func (op ForgetSender) apply(r *Registry, at at) Result { return r.forgetSender(op) }

func (op ForgetSender) fields(c *codec.Codec) ForgetSender {
	c.String(&op.Sender)
	op.By.fields(c)
	return op
}

// Link is what is known of the link from a remote datacenter. Times are lease clock, ms.
type Link struct {
	DC    string
	Heard int64 // last contact
	Since int64 // when the present contact began: a silence of more than Cut ends one
	Cut   int64
}

// Fields walks a link.
func (l *Link) Fields(c *codec.Codec) {
	c.String(&l.DC)
	c.Int64(&l.Heard)
	c.Int64(&l.Since)
	c.Int64(&l.Cut)
}

// Silent says whether the link counts as cut at a moment of the lease clock.
func (l Link) Silent(now int64) bool { return now-l.Heard > l.Cut }

// Sender is the newest that was heard of a sender's clock in one of its incarnations. A name means one
// sender in each datacenter.
type Sender struct {
	DC          string // "": the own one
	Name        string
	Incarnation uint64
	Clock       int64 // the sender's lease clock, ms
	Heard       Stamp // when
}

// Fields walks a sender.
func (s *Sender) Fields(c *codec.Codec) {
	c.String(&s.Name)
	c.String(&s.DC)
	c.Uint64(&s.Incarnation)
	c.Int64(&s.Clock)
	s.Heard.Fields(c)
}

// Bounds of what is kept of senders and links, so that whoever makes up names and incarnations displaces nothing
// but what has been silent longest, and costs no memory.
const (
	maxIncarnations = 4 // of one sender
	maxSenders      = 1000
	maxLinks        = 1000
)

// maxSenderAhead is how far (ms) a sender's clock may run ahead of what has passed here since it was last heard.
const maxSenderAhead = 10 * 60 * 1000

// Timing says by how much (ms) a message of a sender, stamped with its clock, is older than the newest that
// is known of it: what is played again, or was held up on its way, renews nothing. And by how much its clock
// is ahead of what it can show: more has passed on it than here, by the lease clock and the wall clock.
//
// Incarnations have no order, and nothing that is said in one counts in another: a message in the name of
// another server, or one by a broken clock, must not make this side deaf to it. An incarnation that is heard
// after a newer one is late by what has passed here and not on its own clock.
func (v *View) Timing(dc, name string, incarnation uint64, clock int64, now Stamp) (late, ahead int64) {
	return v.known.timing(Sender{DC: dc, Name: name, Incarnation: incarnation, Clock: clock}, now)
}

func (k *known) timing(told Sender, now Stamp) (late, ahead int64) {
	s, ok := find(k.senders, told.name())
	if !ok {
		return 0, 0
	}
	passed := max(now.Lease-s.Heard.Lease, 0)
	if told.Clock-s.Clock > max(passed, now.Wall-s.Heard.Wall)+maxSenderAhead {
		return 0, told.Clock - s.Clock - passed
	}
	for _, other := range k.incarnations(told) {
		if other.Heard.Lease > s.Heard.Lease {
			return max(0, passed-(told.Clock-s.Clock)), 0
		}
	}
	return max(0, s.Clock-told.Clock), 0
}

// incarnations are those that are known of a sender.
func (k *known) incarnations(of Sender) []Sender {
	of.Incarnation = 0
	begin, _ := slices.BinarySearchFunc(k.senders, of.name(), compareNames)
	end := begin
	for end < len(k.senders) && k.senders[end].DC == of.DC && k.senders[end].Name == of.Name {
		end++
	}
	return k.senders[begin:end]
}

// withSender returns the senders with one that was heard, and without those for which there is no room.
func (k *known) withSender(s Sender) []Sender {
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
		silent := slices.MinFunc(full.among, func(a, b Sender) int { return cmp.Compare(a.Heard.Lease, b.Heard.Lease) })
		senders = slices.DeleteFunc(slices.Clone(senders), func(o Sender) bool { return o.name() == silent.name() })
	}
	return with(senders, s)
}

// withLink returns the links with one that was heard, and without the one for which there is no room.
func (k *known) withLink(l Link) []Link {
	links := k.links
	if _, ok := find(links, l.DC); !ok && len(links) >= maxLinks {
		silent := slices.MinFunc(links, func(a, b Link) int { return cmp.Compare(a.Heard, b.Heard) })
		links = slices.DeleteFunc(slices.Clone(links), func(o Link) bool { return o.DC == silent.DC })
	}
	return with(links, l)
}

// forgetSender forgets all that is known of a sender.
func (r *Registry) forgetSender(op ForgetSender) Result {
	var others []Sender // none is nil, as after a restore
	for _, s := range r.known.senders {
		if s.Name != op.Sender {
			others = append(others, s)
		}
	}
	if len(others) == len(r.known.senders) {
		return Result{Outcome: NotFound}
	}
	r.learn(func(k *known) { k.senders = others })
	return Result{}
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
func (p PeerState) name() string { return p.Name }

// name is compared with many others for each contact.
func (s Sender) name() string {
	return s.Name + "\x00" + s.DC + "\x00" + hex.EncodeToString(binary.BigEndian.AppendUint64(nil, s.Incarnation))
}

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
	sender, newer := r.known.clock(op, r.clock)
	if !heard && !newer {
		return Result{}
	}
	r.learn(func(k *known) {
		if heard {
			k.links = k.withLink(link)
		}
		if newer {
			k.senders = k.withSender(sender)
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

// clock is the sender of a contact at a moment; ok is false if it says nothing new, or what cannot be.
func (k *known) clock(op Contact, now Stamp) (s Sender, ok bool) {
	if op.Sender == "" {
		return Sender{}, false
	}
	told := Sender{DC: op.DC, Name: op.Sender, Incarnation: op.Incarnation, Clock: op.Clock, Heard: now}
	if s, ok = find(k.senders, told.name()); !ok {
		// The names outlive the message that brought them, and must not keep its memory.
		told.DC, told.Name = strings.Clone(op.DC), strings.Clone(op.Sender)
		return told, true
	}
	if _, ahead := k.timing(told, now); ahead > 0 || op.Clock <= s.Clock {
		return s, false
	}
	s.Clock, s.Heard = op.Clock, now
	return s, true
}

// Link returns what is known of the link from a datacenter; ok is false if nothing was ever heard.
func (v *View) Link(dc string) (l Link, ok bool) { return find(v.known.links, dc) }

// Senders are all that is known of senders' clocks, by name, datacenter and incarnation. It is not to be changed.
func (v *View) Senders() []Sender { return v.known.senders }

// Sender returns what is known of a sender's clock in an incarnation; ok is false if nothing is. last says that
// none of its others was heard later.
func (v *View) Sender(dc, name string, incarnation uint64) (s Sender, last, ok bool) {
	s = Sender{DC: dc, Name: name, Incarnation: incarnation}
	others := v.known.incarnations(s)
	s, ok = find(v.known.senders, s.name())
	return s, !slices.ContainsFunc(others, func(o Sender) bool { return o.Heard.Lease > s.Heard.Lease }), ok
}

// Owner is Lease.Owner of the live lease of a handle; "" also if there is none.
func (r *Registry) Owner(h Handle) string {
	if l := r.handles.byHandle(h); l != nil {
		return l.Owner
	}
	return ""
}

// owner is the datacenter that an instance belongs to after a registration; before is the one until
// then.
func (o Origin) owner(before string) string {
	switch o.Kind {
	case Client:
		return ""
	case RemoteDC:
		return o.DC
	default:
		return before
	}
}

// renewOwner makes an instance that was renewed belong to those to whom its client talks.
func (r *Registry) renewOwner(l *Lease, origin Origin) Result {
	switch {
	case origin.Kind == Client && !l.Local():
		return r.takeOver(l)
	case origin.Kind == RemoteDC && l.Local():
		return r.cede(l, origin)
	}
	return Result{}
}

// takeOver makes an instance of another datacenter, which a client renewed here, the own one's, if its
// owner cannot be heard or does not hear the client any more: it will not tell whether it lives. Without
// a link there is no owner who would ever say anything else.
func (r *Registry) takeOver(l *Lease) Result {
	link, ok := find(r.known.links, l.Owner)
	if !ok || !link.Silent(r.clock.Lease) && r.hears(l, r.tables.renewals.at(l.Handle.Slot).remote) {
		return Result{}
	}
	return r.own(l)
}

// own makes an instance the own datacenter's because its clients renew it here.
func (r *Registry) own(l *Lease) Result {
	owned := *l
	owned.Owner = ""
	return r.exchange(l, &owned, ActionModified, FromClient, Event{Kind: EventOwned})
}

// cede gives an instance of the own datacenter to the remote one that is heard to renew it, if no client
// has renewed it here for long. Else both would own it, after its client was away for a while.
func (r *Registry) cede(l *Lease, origin Origin) Result {
	if _, ok := find(r.known.links, origin.DC); !ok || !r.deserted(l) {
		return Result{}
	}
	c := *l
	c.Owner = origin.DC
	return r.exchange(l, &c, ActionModified, origin, Event{Kind: EventCeded})
}

// deserted says that no client of the own datacenter has renewed a lease for long.
func (r *Registry) deserted(l *Lease) bool {
	return !r.hears(l, r.tables.renewals.at(l.Handle.Slot).client)
}

// hears says whether whoever renewed a lease last at a moment may still be there: two intervals have
// not passed.
func (r *Registry) hears(l *Lease, renewed int64) bool {
	return r.clock.Lease-renewed <= 2*int64(l.Interval)*1000
}

// owner is the datacenter that an instance belongs to by what a server tells: a node of the own
// datacenter may name any, a remote datacenter is known to have it at least. If that one says that the
// owner is here, it must be: each would take the other one for the owner, and nobody would repair it.
func (op Replica) owner(origin Origin) string {
	if op.Owner == Here {
		return ""
	}
	return origin.owner(op.Owner)
}

// ownerAfter is the owner of an instance after a merge: he who told what its client said last, unless he
// is a remote datacenter that says that it is not the owner. Where both tell the same, a remote owner may
// be replaced by whoever says that it is the owner now; the own datacenter only if no client renews the
// instance here, while one does there; of a permanent one, never.
func (r *Registry) ownerAfter(origin Origin, m encounter) string {
	before := m.old.Owner
	if m.client < 0 || origin.Kind == RemoteDC && m.op.Owner != "" {
		return before
	}
	if m.client == 0 && before == "" && (m.old.Permanent || !(r.deserted(m.old) && r.hears(m.old, r.ago(m.op.Age).Lease))) {
		return before
	}
	return m.op.owner(origin)
}

// clocksDiffer is how much earlier (ms) a renewal may seem to another datacenter than it was.
const clocksDiffer = 1000

// precedes says whether what another datacenter tells of the own one's instance, renewed last so long ago (ms),
// is of a life that ended before the present one began. The own datacenter has forgotten it then: it was
// founded anew, or its record of the removal was pruned. What is on its way longer seems to be renewed later, so
// that a small difference of clocks is all that may make it seem earlier.
func (r *Registry) precedes(origin Origin, l *Lease, age int64) bool {
	return l.Local() && origin.Kind == RemoteDC && r.ago(age).Lease+clocksDiffer < l.BeganLease
}

// outlive gives the own datacenter's instance a life after one that another datacenter still knows of.
func (r *Registry) outlive(old *Lease, life uint32) Result {
	l := *old
	l.Life = max(old.Life, life) + 1
	res := r.exchange(old, &l, ActionModified, FromClient)
	res.Outcome = Older
	return res
}
