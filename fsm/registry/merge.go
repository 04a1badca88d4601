package registry

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/order"
)

// encounter compares a stored copy of an instance with an incoming one from another server. Above 0 the incoming copy
// is newer, below 0 the stored one; 0 means they are equal.
type encounter struct {
	stored *Lease
	op     Replica

	client   int // what its client says: by life, lastDirtyTimestamp, then content
	operator int // what operators decided: by life, edit, then content
	// status compares the reported statuses. It follows what the client says; if that is equal, what operators
	// decided, because the end of an override leaves a status.
	status int
	first  preference
}

func newEncounter(origin Origin, old *Lease, op Replica) encounter {
	m := encounter{stored: old, op: op}
	if m.client = cmp.Compare(op.Life, old.Life); m.client != 0 {
		m.operator, m.status = m.client, m.client
		return m
	}
	first := preferred(origin, old.Owner, op)
	m.first = first
	m.client = cmp.Compare(op.Instance.LastDirty, old.Instance.LastDirty)
	if m.client == 0 {
		m.client = first.of(cmp.Compare(op.Instance.Fingerprint(), old.Instance.Fingerprint()))
	}
	m.operator = cmp.Compare(op.Edit, old.Edit)
	if m.operator == 0 {
		m.operator = first.of(cmp.Or(
			cmp.Compare(op.Overridden, old.Instance.Overridden),
			cmp.Compare(one(op.QuarantineFor > 0), one(old.Quarantine != nil)),
		))
	}
	if old.Service != nil && m.client == 0 { // its checks decide
		m.status = preferStored.of(cmp.Compare(op.Instance.Status, old.reported()))
		return m
	}
	m.status = cmp.Or(m.client, m.operator, first.of(cmp.Compare(op.Instance.Status, old.reported())))
	return m
}

// preference decides whose copy counts as newer if the versions are equal and the contents are not.
type preference uint8

const (
	preferGreater preference = iota
	preferStored
)

// preferred prefers the greater copy. Only between the owner's datacenter and another one does each side keep its own
// copy: then the owner makes a newer version (see insist). Preferring the owner's copy without a newer version would
// not be an order: in a datacenter without consensus one node would store it, and the next node would send it the
// greater copy.
func preferred(origin Origin, owner string, op Replica) preference {
	if origin.Kind != RemoteDC || (owner == "") == (op.Owner == "") {
		return preferGreater
	}
	return preferStored
}

// of turns a comparison of contents into one of copies.
func (p preference) of(c int) int {
	if c == 0 || p == preferGreater {
		return c
	}
	return -1
}

// incomingNewer reports whether any part of the incoming copy is newer, storedNewer whether any part of the
// stored one is.
func (m encounter) incomingNewer() bool { return max(m.client, m.operator, m.status) > 0 }
func (m encounter) storedNewer() bool   { return min(m.client, m.operator, m.status) < 0 }

// mergeReplica adopts the newer parts of an instance that has a lease here. It also renews the lease, unless it is
// about a life that is over.
func (r *Registry) mergeReplica(origin Origin, old *Lease, op Replica) Result {
	if life := op.Life; life > old.Life && op.Owner == Here && r.precedes(origin, old, op.Age) {
		if r.holds(old, op.Yields) && life > old.Life+livesSkipped {
			return Result{Outcome: Held, Handle: old.Handle}
		}
		op.Life = old.Life
		r.mergeReplica(origin, old, op)
		return r.outlive(r.handles.byHandle(old.Handle), life)
	}
	res := Result{Handle: old.Handle}
	m := newEncounter(origin, old, op)
	if m.incomingNewer() && r.holds(old, op.Yields) {
		return Result{Outcome: Held, Handle: old.Handle}
	}
	if op.Life >= old.Life {
		next := *old
		next.Owner = r.ownerAfter(origin, m)
		r.heartbeatAgo(&next, origin, op.Age)
		if m.incomingNewer() || next.Owner != old.Owner {
			res.Index = r.applyMerge(origin, m, next)
		}
	}
	if m.storedNewer() {
		res.Outcome = Older
	}
	if said, decided := m.contested(r.level); old.Local() && (said || decided) {
		res.Index = r.insist(r.handles.byHandle(old.Handle), said, decided)
	}
	return res
}

// contested reports which halves of an encounter have equal versions but differ, so that neither side would adopt the
// other's copy: between the owner's datacenter and another one, and where a service's checks decide on its status here
// and the other side keeps another one, because it is greater or because that side has ceded the instance.
func (m encounter) contested(level byte) (said, decided bool) {
	if m.op.Life != m.stored.Life {
		return false, false
	}
	if m.client == 0 && m.operator == 0 && m.status != 0 && m.stored.Service != nil && level >= Level3 {
		return m.first == preferStored || m.op.Instance.Status > m.stored.reported(), false
	}
	if m.first != preferStored {
		return false, false
	}
	said = m.client < 0 && m.op.Instance.LastDirty == m.stored.Instance.LastDirty
	decided = m.operator < 0 && m.op.Edit == m.stored.Edit || m.status < 0 && m.client == 0 && m.operator == 0
	return said, decided && (m.stored.Service == nil || m.operator < 0)
}

// insist gives the stored copy of this datacenter's instance a newer version, because another datacenter has an equal
// version with other content.
func (r *Registry) insist(old *Lease, said, decided bool) Index {
	l := *old
	if said {
		dirty := after(old.Instance.LastDirty)
		if r.level < 2 {
			dirty = old.Instance.LastDirty + 1 // overflows, as in 0.1.0
		}
		l.Instance = old.Instance.with(old.Instance.Status, old.Instance.Overridden, dirty)
		l.outrank(old, r.level)
	}
	if decided {
		l.Edit++
	}
	return r.exchange(old, &l, ActionModified, FromClient).Index
}

// applyMerge turns next, a copy of the stored lease with its new owner, into the merged lease.
func (r *Registry) applyMerge(origin Origin, m encounter, next Lease) Index {
	l, i, status, override := &next, m.stored.Instance, m.stored.reported(), m.stored.Instance.Overridden
	if m.client > 0 {
		i, l.Life, l.Origin = m.op.Instance, m.op.Life, origin
		l.Permanent, l.Service = m.op.Permanent, nil
	}
	if m.operator > 0 {
		override = m.op.Overridden
		r.decideAs(l, m.op)
	}
	if m.status > 0 {
		status = m.op.Instance.Status
	}
	l.Override = hiding(l.Override, status, override, r.clock, r.Next())
	describe(l, i, status, override)
	r.succeed(l, m.stored, r.said(m.op))
	var events []Event
	if m.operator > 0 {
		events = decisions(m.stored, l, m.op)
	}
	events = append(events, m.ownership(l)...)
	if m.client > 0 {
		return r.replace(origin, m.stored, l, events)
	}
	if l.Instance.Status != m.stored.Instance.Status && len(events) == 0 {
		events = append(events, Event{Kind: EventStatus})
	}
	action := ActionModified
	if m.stored.Quarantine != nil && l.Quarantine == nil {
		action = ActionAdded // for readers it is new
	}
	return r.exchange(m.stored, l, action, origin, events...).Index
}

// replace does what restart does, with a registration from another server and its last renewal.
func (r *Registry) replace(origin Origin, old, l *Lease, events []Event) Index {
	renewed := r.renewed(old)
	if l.Life > old.Life {
		l.BeganLease = renewed.Lease
	}
	hearsay := r.tables.renewals.hearsay(old)
	res := r.restart(origin, old, l, renewed)
	if hearsay {
		r.tables.renewals.doubt(l.Handle.Slot)
	}
	r.recordReregistration(old, l, origin)
	r.recordEvents(l, origin, events)
	return res.Index
}

// ownership returns the event for a change of owner, unless the owner came with a registration.
func (m encounter) ownership(l *Lease) []Event {
	switch {
	case m.client > 0 || l.Owner == m.stored.Owner:
		return nil
	case l.Local():
		return []Event{{Kind: EventOwned}}
	default:
		return []Event{{Kind: EventCeded}}
	}
}

// perform adopts the newer parts of an instance that another server has.
func (op Replica) perform(r *Registry, _ uint64, origin Origin) Result {
	op.Instance = withAmazonID(op.Instance)
	op.Life = max(op.Life, 1)
	if old := r.handles.byKey(op.Instance.Key()); old != nil {
		return r.mergeReplica(origin, old, op)
	}
	return r.newReplica(origin, op)
}

// newReplica adopts an instance that has no lease here, unless it was canceled since or its lease has ended. It keeps
// the incoming life.
func (r *Registry) newReplica(origin Origin, op Replica) Result {
	key := op.Instance.Key()
	if op.Yields && r.level >= Level3 && op.Owner == Here {
		return Result{Outcome: Held}
	}
	rec, ok := r.record(key)
	if ok && rec.outdates(op, r.ago(op.Age).Lease) {
		return Result{Outcome: Refused}
	}
	hearsay := op.Age >= UnknownAge && !op.Permanent
	if hearsay && r.withoutConsensus {
		op.Age = 0 // the sender may have acknowledged it without sending it to another node; it gets one lease
	}
	_, duration, _ := ClampLease(op.Instance.RenewalInterval, op.Instance.Duration)
	if !op.Permanent && op.Age > int64(duration)*1000+wayOfRenewals { // its lease has ended
		return Result{Outcome: Refused}
	}
	l := &Lease{Life: op.Life, Origin: origin, Owner: replicaOwner(op, origin), Permanent: op.Permanent}
	r.decideAs(l, op)
	describe(l, op.Instance, op.Instance.Status, op.Overridden)
	l.Said = r.said(op)
	outcome := Done
	if ok {
		outcome = r.restoreActs(l, rec, &op)
		r.supersede(key)
	}
	res := r.enter(origin, l, r.ago(op.Age), rec.History)
	if hearsay {
		r.tables.renewals.doubt(l.Handle.Slot)
	}
	r.recordEvents(l, origin, decisions(&Lease{Instance: &Instance{}}, l, op))
	res.Outcome = outcome
	return res
}

// seemsFresher is how much later (ms) than it was the last renewal of a replayed copy may seem: its sender's clock is
// recorded only every few seconds.
const seemsFresher = 6000

// outdates reports whether a record outweighs a copy of the instance whose last renewal was at a moment (lease clock,
// ms): the copy is not newer than the canceled one, or the instance was evicted and not renewed since. An evicted
// instance may come back: a living client renews its lease, and the next copy is accepted.
func (m Removal) outdates(op Replica, renewed int64) bool {
	if compareVersion(m.Lease, op.Life, op.Instance.LastDirty) < 0 {
		return false
	}
	return m.Kind == Canceled || renewed <= m.renewed()+seemsFresher
}

// Outdates reports whether the record of a removal refuses a copy of an instance that has no lease here.
func (v *View) Outdates(rec Removal, op Replica) bool {
	return rec.outdates(op, v.stamp.Lease-op.Age)
}

// restoreActs gives an instance that comes back the override and the quarantine that wait in its record of removal,
// if operators have decided nothing since. The sender did not know about them, so the number of edits must mark its
// copy as older, or it would keep its own. op gets the override too, for the history.
func (r *Registry) restoreActs(l *Lease, rec Removal, op *Replica) Outcome {
	o, q := r.overrideAgain(rec), quarantineAgain(rec.Lease.Quarantine, r.clock.Lease, r.Next())
	known, next := uint32(0), uint32(1)
	if l.Life == rec.Lease.Life {
		known, next = rec.Lease.Edit, max(1, rec.editAfter())
	}
	hides, overrides := q != nil && l.Quarantine == nil, o != nil && l.Instance.Overridden == Unknown
	if !hides && !overrides || l.Edit > known {
		return Done
	}
	l.Edit = next
	if hides {
		l.Quarantine = q
	}
	if overrides {
		r.overrideAs(l, o)
		if op.OverrideBy = o.By; o.Until != 0 {
			op.OverrideFor = rest(o.Until, r.clock.Lease)
		}
	}
	return Older
}

// overrideAs gives a lease without an override one that has been waiting.
func (r *Registry) overrideAs(l *Lease, o *Override) {
	reported := l.Instance.Status
	l.Override = hiding(o, reported, OutOfService, r.clock, o.Set)
	describe(l, l.Instance, reported, OutOfService)
}

// decideAs gives a lease what operators decided about it elsewhere.
func (r *Registry) decideAs(l *Lease, op Replica) {
	set := r.Next()
	l.Edit, l.Override, l.Quarantine = op.Edit, nil, nil
	if op.Overridden != Unknown && (op.Instance.Status != Unknown || op.OverrideBy != (Act{}) || op.OverrideFor > 0) {
		l.Override = &Override{By: op.OverrideBy, At: r.clock, Reported: op.Instance.Status, Set: set, Drain: op.Drain && r.level >= Level3}
		if op.OverrideFor > 0 {
			l.Override.Until = order.Later(r.clock.Lease, op.OverrideFor)
		}
	}
	if op.QuarantineFor > 0 {
		l.Quarantine = &Quarantined{By: op.QuarantineBy, At: r.clock, Until: order.Later(r.clock.Lease, op.QuarantineFor), Set: set}
	}
}

// describe gives a lease what its client says, with the status that follows from the reported one and an override.
// For a permanent lease, an override alone decides. If the instance brought its override along, the reported status
// is not known, see Lease.reported.
func describe(l *Lease, i *Instance, reported, override Status) {
	status := decide(reported, override, Unknown, true)
	if reported == Unknown || l.Permanent && override != Unknown {
		status = override
	}
	l.Instance = i.with(status, override, i.LastDirty)
}

// decisions returns the events for the acts of operators in op that a lease has adopted.
func decisions(old, l *Lease, op Replica) []Event {
	var events []Event
	before, now := old.Instance.Overridden, l.Instance.Overridden
	switch {
	case now == Unknown && before != Unknown:
		events = append(events, Event{Kind: EventOverrideEnded, By: op.OverrideBy})
	case now != Unknown && (now != before || !sameDecision(old.Override, l.Override)):
		events = append(events, Event{Kind: EventOverridden, For: op.OverrideFor, By: op.OverrideBy})
	}
	switch {
	case l.Quarantine == nil && old.Quarantine != nil:
		events = append(events, Event{Kind: EventQuarantineEnded, By: op.QuarantineBy})
	case l.Quarantine != nil && old.Quarantine == nil:
		events = append(events, Event{Kind: EventQuarantined, For: op.QuarantineFor, By: op.QuarantineBy})
	}
	return events
}

// recordEvents records what else a registration from another server changed.
func (r *Registry) recordEvents(l *Lease, origin Origin, events []Event) {
	for _, e := range events {
		markForEureka(l, e.Kind)
		r.recordEvent(l, origin, e)
	}
}

// replicaOwner returns the datacenter that owns an instance according to a message: a node of this datacenter may
// name any; a remote datacenter at least has the instance. If the remote one says that the owner is here, that must
// hold: otherwise each would take the other for the owner, and neither would repair it.
func replicaOwner(op Replica, origin Origin) string {
	if op.Owner == Here {
		return ""
	}
	return ownerBy(origin, op.Owner)
}

// ownerAfter returns the owner of an instance after a merge: the server that sent what its client said last, unless
// that is a remote datacenter that denies being the owner. If both copies say the same, a datacenter that now claims
// to be the owner replaces a remote owner. This datacenter is replaced only if no client renews the instance here
// while one does there, and never as the owner of a permanent instance.
func (r *Registry) ownerAfter(origin Origin, m encounter) string {
	before := m.stored.Owner
	if r.level >= Level3 && m.client >= 0 && origin.Kind == RemoteDC && m.op.Owner == Here && before == origin.DC && !m.op.Yields {
		return "" // each took the other for the owner, and neither would repair it
	}
	if m.client < 0 || origin.Kind == RemoteDC && m.op.Owner != "" || r.holds(m.stored, m.op.Yields) {
		return before
	}
	if m.client == 0 && before == "" && (m.stored.Permanent || !(r.deserted(m.stored) && r.renewedLately(m.stored, r.ago(m.op.Age).Lease))) {
		return before
	}
	return replicaOwner(m.op, origin)
}

// Seizes returns the purpose for which an operation of another datacenter needs the right to take over, or "". Without
// that right the operation is refused, always or only while the instance lives.
func (v *View) Seizes(origin Origin, op Op) (what string, always bool) {
	key, ok := KeyOf(op)
	if !ok || origin.Kind != RemoteDC {
		return "", false
	}
	l, live := v.Find(key)
	var life, edit uint32
	switch op := op.(type) {
	case Replica:
		switch life, edit = op.Life, op.Edit; {
		case !live && op.Owner == Here:
			what, always = "to enter an instance as this datacenter's own", true
		case live && v.lives(l) && newEncounter(origin, l, op).incomingNewer():
			what = "to change a living instance of this datacenter"
		}
	case Remove:
		if life = op.Life; live && v.lives(l) && op.Kind == Canceled && compareVersion(l, life, op.LastDirty) <= 0 {
			what = "to remove a living instance of this datacenter"
		}
	case Renew:
		life = op.Life
	}
	if skips(l, life, edit) {
		return fmt.Sprintf("to skip more than %d lives or edits of an instance", MaxLives), true
	}
	return what, always
}

// lives reports whether a lease belongs to this datacenter and has not ended, going by its own clients' renewals.
func (v *View) lives(l *Lease) bool {
	return v.servers.lives(l, v.tables.renewals, v.stamp.Lease, v.graces, v.settings.DoubledLease)
}

// LivesUntil returns the last moment (lease clock, ms) of a lease, going by renewals from clients here.
func (v *View) LivesUntil(l *Lease) int64 {
	return v.servers.endsAt(l, v.tables.renewals.at(l.Handle.Slot).renewedByClient.Load(), v.graces, v.settings.DoubledLease)
}

// skips reports whether a life, or its number of edits, is absurdly far ahead of l, the lease of the instance (nil if
// it does not have one). It does not search the records of removals for each item of a message.
func skips(l *Lease, life, edit uint32) bool {
	if l == nil {
		l = new(Lease)
	}
	return int64(life)-int64(l.Life) > MaxLives || int64(edit)-int64(l.Edit) > MaxLives
}

// MaxLives is how many lives, or edits, an instance may be ahead of what is known here.
const MaxLives = 1 << 24

// Readmit brings back what an image has and the registry lacks; whatever is registered now is newer and stays. An
// instance that comes back gets one full lease, and a version newer than that of its removal. It returns how many
// instances came back, and the checks and nodes that were lost by it (see Lost).
func (r *Registry) Readmit(m Image, by Act) (returned int, lost []catalog.CheckRef) {
	r.readmitting = true
	defer func() { r.readmitting = false }()
	for _, n := range m.Nodes {
		op := RegisterCatalog{Node: n, Checks: n.Checks}
		if n.Name == "" {
			op.Node = nil // the logical one
		}
		if _, there := r.catalog.Node(n.Name); !there {
			r.Apply(r.clock, 0, FromClient, op)
		}
	}
	for _, s := range m.Instances {
		if r.readmit(s, by) {
			returned++
		}
	}
	if r.level >= 2 {
		r.followUp(FromClient) // or the next operation would, unless a snapshot came between
	}
	return returned, r.Lost()
}

// readmit brings back an instance, and reports whether it was missing.
func (r *Registry) readmit(s Saved, by Act) bool {
	key := s.Instance.Key()
	rec, removed := r.record(key)
	if key.ID == "" || key.App == "" || key.App != strings.ToUpper(key.App) { // not a key that a registry can have
		return false
	}
	if i := s.Instance; r.level >= 2 { // in the form that other servers accept
		s.Instance = withAmazonID(i.with(i.Status, i.Overridden, max(i.LastDirty, 0)))
	}
	if r.handles.byKey(key) != nil || s.Service != nil && !r.readmitService(s) {
		return false
	}
	s.Life = max(s.Life, 1)
	if removed {
		s.Life = max(s.Life, rec.Lease.Life+1)
	}
	if s.Service == nil {
		r.readmitLease(s, rec)
	} else if l := r.handles.byKey(key); s.Life > l.Life || s.Overridden != Unknown || s.QuarantineFor > 0 {
		next, override := *l, s.Overridden
		if r.level >= 2 { // an override hides what the checks say now
			s.Instance = s.Instance.with(l.reported(), Unknown, s.Instance.LastDirty)
		}
		r.decideAs(&next, s.Replica)
		if next.Life = max(l.Life, s.Life); r.level >= Level3 { // or what waited in its removal's record would be lost
			next.Quarantine = cmp.Or(next.Quarantine, l.Quarantine)
			if override == Unknown {
				next.Override, override = l.Override, l.Instance.Overridden
			}
		}
		describe(&next, l.Instance, l.reported(), override)
		r.exchange(l, &next, ActionAdded, FromClient, decisions(l, &next, s.Replica)...)
	}
	r.recordEvent(r.handles.byKey(key), FromClient, Event{Kind: EventRestored, By: by})
	return true
}

// readmitLease enters an instance that was not registered through Consul's API; rec is the record of its
// removal, or empty.
func (r *Registry) readmitLease(s Saved, rec Removal) {
	origin := FromClient
	if s.Owner != "" {
		origin = Origin{Kind: RemoteDC, DC: s.Owner}
	}
	l := &Lease{Life: s.Life, Origin: origin, Owner: s.Owner, Permanent: s.Permanent}
	r.decideAs(l, s.Replica)
	describe(l, s.Instance, s.Instance.Status, s.Overridden)
	l.Said = r.said(s.Replica)
	if rec.Lease != nil {
		l.Quarantine = cmp.Or(l.Quarantine, quarantineAgain(rec.Lease.Quarantine, r.clock.Lease, r.Next()))
		if o := r.overrideAgain(rec); o != nil && l.Instance.Overridden == Unknown {
			r.overrideAs(l, o)
		}
		r.supersede(s.Instance.Key())
	}
	r.enter(origin, l, r.clock, rec.History)
	r.recordEvents(l, origin, decisions(&Lease{Instance: &Instance{}}, l, s.Replica))
}

// readmitService registers a service as Consul's API would, and reports whether it did: not if another service has
// taken its id, or its node is missing. Checks whose ids were taken stay away.
func (r *Registry) readmitService(s Saved) bool {
	service := *s.Service
	node, there := r.catalog.Node(service.Node)
	if _, _, taken := r.catalog.Service(service.Node, service.ID); taken || !there && service.Node != "" ||
		strings.ToUpper(service.Name) != s.Instance.App {
		return false
	}
	op := RegisterCatalog{Node: node, KeepNode: true, Service: &service, Instance: s.Instance}
	if service.Node == "" {
		op.Node = nil
	}
	for _, check := range service.Checks {
		if _, taken := r.catalog.Check(service.Node, check.ID); !taken {
			op.Checks = append(op.Checks, check)
		}
	}
	service.Checks = nil
	return r.Apply(r.clock, 0, FromClient, op).Outcome == Done
}
