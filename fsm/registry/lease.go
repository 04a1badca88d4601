package registry

import (
	"slices"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/codec"
)

// Lease wraps an instance with the server's side of its registration. A Lease is immutable: a
// change replaces it. Renewals do not: they are kept beside it, see View.LastRenewal.
// Times ending in At are ms since the epoch by the proposer's wall clock, unless said otherwise.
type Lease struct {
	Instance     *Instance // with the status and override that the rules decided
	Handle       Handle
	Interval     int32 // seconds, clamped
	Duration     int32 // seconds, clamped
	RegisteredAt int64 // of this lease; a re-registration starts a new one
	ServiceUpAt  int64 // first time UP; survives re-registration; 0 = never
	EvictedAt    int64 // when it was removed; 0 in a live lease
	UpdatedAt    int64 // last change that the server made (lastUpdatedTimestamp)
	RenewedAt    Stamp // last renewal as of the last change
	Action       Action
	// Permanent: there is no lease to expire. The instance goes only by a removal, stays outside
	// self-preservation, and is shown with an interval of 30 s and a duration of 90 s. (The field stands here
	// because here it takes no memory.)
	Permanent    bool
	Life         uint32       // from 1; rises where timestamps cannot say what is newer, see outlives and outrank
	Registered   Index        // of the (re-)registration
	Changed      Index        // of the last change
	ChangedLease int64        // lease clock of the last change, ms
	Origin       Origin       // of the last (re-)registration; in a record of removal, of the removal
	BeganLease   int64        // lease clock of the first registration, or of that after a removal, ms; a re-registration keeps it
	StartedLease int64        // lease clock of the (re-)registration, ms
	Override     *Override    // details of the override; nil if there is none or nothing is known of it
	Quarantine   *Quarantined // nil: listed

	// Service is what was registered through Consul's API of this datacenter; nil: registered otherwise.
	Service *catalog.Service

	// Owner is the remote datacenter (or Eureka server) that the instance belongs to; "": this one. A
	// client's Register makes it this one. In a record of removal: the owner before.
	Owner string
	// Edit counts what operators decided of this life: overrides, quarantines, their ends, also by a cancel.
	// See Version.
	Edit uint32
	// ByClient is the last change that a client of this datacenter made, which goes to all peers; ByRemote the
	// last that came from a remote datacenter, which goes to nodes of this datacenter. Neither is above
	// Changed.
	ByClient, ByRemote Index
	// Described is the last change of what the client says (registration, metadata), Overrode that of the override.
	// Both are sent to Eureka servers. Neither is above Changed.
	Described, Overrode Index
	// Defined is the last change of what Consul's table of services shows: a registration with another
	// address, port or metadata, or with another Service apart from its checks, or a change in whether the
	// instance is listed. Statuses and checks do not count. It is not above Changed, and equal to it in what
	// is quarantined.
	Defined Index
	// Said is the timestamp of the registration by its client, where a server has raised the instance's since
	// (metadata, an override); 0: it is the instance's. Outdated is the greatest timestamp that a registration has
	// taken the place of. From level 3 of the formats on, see Registry.keeps.
	Said, Outdated int64
}

// Fields walks a lease.
func (l *Lease) Fields(c *codec.Codec) {
	codec.Ptr(c, &l.Instance).Fields(c)
	l.Handle.Fields(c)
	c.Int32(&l.Interval)
	c.Int32(&l.Duration)
	c.Int64(&l.RegisteredAt)
	c.Int64(&l.ServiceUpAt)
	c.Int64(&l.EvictedAt)
	c.Int64(&l.UpdatedAt)
	l.RenewedAt.Fields(c)
	codec.Enum(c, &l.Action, ActionDeleted, "action")
	c.Uint32(&l.Life)
	codec.Uint(c, &l.Registered)
	codec.Uint(c, &l.Changed)
	c.Int64(&l.ChangedLease)
	l.Origin.Fields(c)
	c.Int64(&l.BeganLease)
	c.Int64(&l.StartedLease)
	l.acts(c)
	c.Lasting(&l.Owner)
	c.Uint32(&l.Edit)
	codec.Uint(c, &l.ByClient)
	codec.Uint(c, &l.ByRemote)
	codec.Uint(c, &l.Described)
	codec.Uint(c, &l.Overrode)
	c.Bool(&l.Permanent)
	codec.Optional(c, &l.Service, (*catalog.Service).Fields)
	codec.Uint(c, &l.Defined)
	if c.Since(3, false) {
		c.Int64(&l.Said)
		c.Int64(&l.Outdated)
	}
}

// acts walks what operators did to a lease.
func (l *Lease) acts(c *codec.Codec) {
	has := c.Mask(codec.Bits(l.Override != nil, l.Quarantine != nil), 2, "acts")
	if has&1 != 0 {
		codec.Ptr(c, &l.Override).fields(c)
	}
	if has&2 != 0 {
		codec.Ptr(c, &l.Quarantine).fields(c)
	}
}

// Override holds what is known of an override beside its status (Instance.Overridden). Immutable.
type Override struct {
	By       Act
	At       Stamp
	Until    int64  // lease clock, ms, at which it ends; 0: never
	Reported Status // what the client reported last; the instance gets it back when the override ends
	Set      Index  // of the SetOverride, or of the registration that brought it back
	// Drain: it ends with the next registration of the instance by its client that follows a removal or is newer. With
	// an Until it ends when both have come: an operator keeps it out of service for that time, also through a restart.
	Drain bool
}

func (o *Override) fields(c *codec.Codec) {
	o.By.Fields(c)
	o.At.Fields(c)
	c.Int64(&o.Until)
	o.Reported.fields(c)
	codec.Uint(c, &o.Set)
	if c.Since(3, false) { // below level 3 a drain is an override like any other
		c.Bool(&o.Drain)
	}
}

// Outlasts reports whether the lease's override outlives it: an operator's OUT_OF_SERVICE that is no drain alone. It
// waits in the record of the removal. Before level 3 of the formats none did.
func (l *Lease) Outlasts() bool {
	o := l.Override
	return o != nil && l.Instance.Overridden == OutOfService && (!o.Drain || o.Until != 0) && o.By != (Act{})
}

// Quarantined says why and until when an instance is hidden. Immutable.
type Quarantined struct {
	By    Act
	At    Stamp
	Until int64 // lease clock, ms
	Set   Index // of the Quarantine, or of the registration that brought it back
}

func (q *Quarantined) fields(c *codec.Codec) {
	q.By.Fields(c)
	q.At.Fields(c)
	c.Int64(&q.Until)
	codec.Uint(c, &q.Set)
}

// sameDefinition reports whether Consul's table of services shows the same of l as of old, which has the same
// key or is nil.
func (l *Lease) sameDefinition(old *Lease) bool {
	if old == nil || old.Quarantine != nil || l.Quarantine != nil || (old.Service == nil) != (l.Service == nil) {
		return false
	}
	was, is := old.Instance, l.Instance
	if l.Service != nil { // it covers the rest
		return old.Service.ModifyIndex == l.Service.ModifyIndex && slices.Equal(was.Metadata, is.Metadata)
	}
	return was.IPAddr == is.IPAddr && was.HostName == is.HostName && was.Port == is.Port && was.SecurePort == is.SecurePort &&
		slices.Equal(was.Metadata, is.Metadata)
}

// node returns the node of the catalog on which the instance is listed, and whether it is listed on one.
func (l *Lease) node() (name string, listed bool) {
	if l.Service != nil {
		name = l.Service.Node
	}
	return name, l.Instance != nil && l.Quarantine == nil
}

// Local reports whether the lease belongs to this datacenter.
func (l *Lease) Local() bool { return l.Owner == "" }

// Key returns the instance's key.
func (l *Lease) Key() Key { return l.Instance.Key() }

func (q *Quarantined) clone() *Quarantined {
	if q == nil {
		return nil
	}
	c := *q
	c.By = c.By.Clone()
	return &c
}

// reported returns the status that the client reported last. If the instance brought its override along, that
// is not known, and its client has to register again.
func (l *Lease) reported() Status {
	switch i := l.Instance; {
	case l.Override != nil:
		return l.Override.Reported
	case i.Overridden != Unknown && i.Status == i.Overridden:
		return Unknown
	default:
		return i.Status
	}
}

// HasReplaced reports whether a timestamp that is newer than the stored one is of a registration that was replaced.
func (l *Lease) HasReplaced(dirty int64) bool {
	return l.Instance.LastDirty < dirty && dirty <= l.Outdated
}

// raisedTo returns the timestamp after an act that came with one: the newer of the two, but none that was replaced.
func (l *Lease) raisedTo(dirty int64) int64 {
	if l.HasReplaced(dirty) {
		return l.Instance.LastDirty
	}
	return max(l.Instance.LastDirty, dirty)
}

// Version says which of two copies of an instance, on two servers, is the newer one: what the client
// says of itself by life, then lastDirtyTimestamp; what operators decided of it by life, then Edit.
// The two halves are compared, and merged, each for itself, so that an override set on one side of a
// cut and a registration on the other both survive it.
type Version struct {
	Life      uint32
	LastDirty int64  // ms by the client's clock
	Edit      uint32 // Lease.Edit
}

// Version returns the version of the lease's instance.
func (l *Lease) Version() Version {
	return Version{Life: l.Life, LastDirty: l.Instance.LastDirty, Edit: l.Edit}
}

// outrank gives l, a copy of old with the next timestamp, the next life if that timestamp could not rise, so
// that every server takes l for newer. From level 2 of the formats on.
func (l *Lease) outrank(old *Lease, level byte) {
	if level >= 2 && l.Instance.LastDirty == old.Instance.LastDirty {
		l.Life++
	}
}

// Weight returns about how many bytes a lease takes, in memory and as text in answers.
func (l *Lease) Weight() int {
	bytes := leaseWeight + l.Instance.weight()
	if l.Service != nil {
		bytes += l.Service.Weight()
	}
	return bytes
}

func (o *Override) clone() *Override {
	c := *o
	c.By = c.By.Clone()
	return &c
}

// hiding returns the details of an override that hides a reported status. o holds those known so far; nil:
// nothing is known.
func hiding(o *Override, reported, override Status, now Stamp, set Index) *Override {
	switch {
	case override == Unknown || o == nil && reported == Unknown:
		return nil
	case o == nil:
		return &Override{At: now, Reported: reported, Set: set}
	case o.Reported == reported:
		return o
	}
	c := *o
	c.Reported = reported
	return &c
}

// quarantineAgain returns the quarantine with which an instance comes back: that of its record of removal, if
// its time has not passed.
func quarantineAgain(q *Quarantined, now int64, set Index) *Quarantined {
	if q == nil || q.Until <= now {
		return nil
	}
	c := *q
	c.Set = set
	return &c
}

// leaseWeight is about how many bytes a lease takes beside its texts. Equal states must have equal weights,
// whether a node has applied all operations or was restored: weights decide which records of removals are
// kept.
const leaseWeight = 1024
