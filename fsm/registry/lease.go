package registry

import (
	"slices"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/codec"
)

// Lease wraps an instance with the server's side of its registration. A Lease is immutable: every change replaces it,
// except that renewals are kept beside it, see View.LastRenewal. Times ending in At are ms since the epoch by the
// proposer's wall clock, unless said otherwise.
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
	// Permanent means that no lease expires. The instance goes only by a removal, stays outside self-preservation,
	// and is shown with an interval of 30 s and a duration of 90 s. (The field is here because here it takes no
	// memory.)
	Permanent    bool
	Life         uint32       // from 1; rises when timestamps cannot tell what is newer, see outlives and outrank
	Registered   Index        // of the (re-)registration
	Changed      Index        // of the last change
	ChangedLease int64        // lease clock of the last change, ms
	Origin       Origin       // of the last (re-)registration; in a record of a removal: of the removal
	BeganLease   int64        // lease clock of the first registration (of this life), ms; a re-registration keeps it
	StartedLease int64        // lease clock of the (re-)registration, ms
	Override     *Override    // details of the override; nil if there is no override or nothing is known about it
	Quarantine   *Quarantined // nil: listed

	// Service is the registration through Consul's API of this datacenter; nil if it was not registered there.
	Service *catalog.Service

	// Owner is the remote datacenter (or Eureka server) that the instance belongs to, "" for this one. A client's
	// Register makes it this one. A record of a removal has the owner before.
	Owner string
	// Edit counts what operators decided in this life: overrides, quarantines and their ends, including by a cancel.
	// See Version.
	Edit uint32
	// ByClient is the last change by a client of this datacenter, which goes to all peers; ByRemote the last that
	// came from a remote datacenter, which goes to the nodes of this datacenter. Neither is above Changed.
	ByClient, ByRemote Index
	// Described is the last change of what the client says (registration, metadata), Overrode the last change of the
	// override. Both are sent to Eureka servers. Neither is above Changed.
	Described, Overrode Index
	// Defined is the last change of what Consul's table of services shows: a registration with another address, port
	// or metadata, or with another Service apart from its checks, or a change in whether the instance is listed.
	// Statuses and checks do not count. It is not above Changed, and equals it while the instance is quarantined.
	Defined Index
	// Said is the timestamp of the client's own registration, if a server has raised the instance's since (metadata,
	// an override); 0 if it is the instance's. Outdated is the greatest timestamp that a registration has replaced.
	// Both exist from level 3 of the formats on, see Registry.keeps.
	Said, Outdated int64
}

func (l *Lease) Fields(c *codec.Codec) {
	codec.Ptr(c, &l.Instance).fields(c)
	l.Handle.fields(c)
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
	l.Origin.fields(c)
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

// acts walks the override and the quarantine.
func (l *Lease) acts(c *codec.Codec) {
	has := c.Mask(codec.Bits(l.Override != nil, l.Quarantine != nil), 2, "acts")
	if has&1 != 0 {
		codec.Ptr(c, &l.Override).fields(c)
	}
	if has&2 != 0 {
		codec.Ptr(c, &l.Quarantine).fields(c)
	}
}

// Override holds what is known about an override besides its status (Instance.Overridden). Immutable.
type Override struct {
	By       Act
	At       Stamp
	Until    int64  // lease clock, ms, of its end; 0: never
	Reported Status // what the client reported last; the instance gets it back when the override ends
	Set      Index  // of the SetOverride, or of the registration that brought it back
	// Drain ends the override with the next registration of the instance by its client that follows a removal or is
	// newer. With an Until it ends when both have come: an operator keeps it out of service for that time, even
	// through a restart.
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

// outlasts reports whether the override outlives the lease, waiting in the record of the removal: an operator's
// OUT_OF_SERVICE does, unless it is only a drain. Before level 3 of the formats no override did.
func (l *Lease) outlasts() bool {
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

// sameDefinition reports whether Consul's table of services shows the same for l as for old, which has the same key
// or is nil.
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

// reported returns the status that the client reported last, or Unknown if the instance brought its override along:
// then its client has to register again.
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

// HasReplaced reports whether a timestamp newer than the stored one belongs to a registration that was replaced.
func (l *Lease) HasReplaced(dirty int64) bool {
	return l.Instance.LastDirty < dirty && dirty <= l.Outdated
}

// raisedTo returns the timestamp after an act that came with one: the newer of the two, but never a replaced one.
func (l *Lease) raisedTo(dirty int64) int64 {
	if l.HasReplaced(dirty) {
		return l.Instance.LastDirty
	}
	return max(l.Instance.LastDirty, dirty)
}

// Version tells which of two copies of an instance, on two servers, is newer: for what the client says about itself
// by life, then lastDirtyTimestamp; for what operators decided by life, then Edit. The two halves are compared and
// merged separately, so that an override set on one side of a partition and a registration on the other both survive
// it.
type Version struct {
	Life      uint32
	LastDirty int64  // ms by the client's clock
	Edit      uint32 // Lease.Edit
}

// Version returns the version of the lease's instance.
func (l *Lease) Version() Version {
	return Version{Life: l.Life, LastDirty: l.Instance.LastDirty, Edit: l.Edit}
}

// outrank gives l, a copy of old with the next timestamp, the next life if that timestamp could not rise, so that
// every server takes l for newer. It does so from level 2 of the formats on.
func (l *Lease) outrank(old *Lease, level byte) {
	if level >= 2 && l.Instance.LastDirty == old.Instance.LastDirty {
		l.Life++
	}
}

// Weight returns roughly how many bytes a lease takes, in memory and as text in answers.
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

// hiding returns the details of an override that hides a reported status. o holds the details known so far, nil if
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

// quarantineAgain returns the quarantine with which an instance comes back: the one in its record of removal, if it
// has not ended.
func quarantineAgain(q *Quarantined, now int64, set Index) *Quarantined {
	if q == nil || q.Until <= now {
		return nil
	}
	c := *q
	c.Set = set
	return &c
}

// leaseWeight is roughly how many bytes a lease takes besides its texts. Equal states must have equal weights,
// whether a node has applied all operations or was restored: weights decide which records of removals are kept.
const leaseWeight = 1024
