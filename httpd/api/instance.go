package api

import (
	"encoding/json"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Instance is an instance and its lease (GET /v1/rollcall/apps).
type Instance struct {
	App         string `json:"app"`
	ID          string `json:"id"`
	Status      string `json:"status"`
	Overridden  string `json:"overridden,omitempty"` // the override, if there is one
	Host        string `json:"host"`
	IP          string `json:"ip"`
	Port        int    `json:"port,omitempty"`        // 0 if it does not listen there
	SecurePort  int    `json:"secure_port,omitempty"` // like Port
	VIP         string `json:"vip,omitempty"`
	Lease       int32  `json:"lease_seconds"`
	Interval    int32  `json:"interval_seconds"`
	LastRenewal int64  `json:"last_renewal"`
	Registered  int64  `json:"registered"`
	Index       uint64 `json:"index"` // of its last change
	Owner
	Metadata         map[string]string `json:"metadata,omitempty"`
	Override         *Forced           `json:"override,omitempty"`          // nil without one
	QuarantinedUntil int64             `json:"quarantined_until,omitempty"` // 0 if it is listed
}

// Owner is the datacenter (or Eureka server) that an instance belongs to, and how long its link has been silent.
type Owner struct {
	Datacenter string `json:"datacenter,omitempty"` // empty for the cluster's own
	// how long no message has come from there; 0 if the link is not cut
	UnheardMS int64 `json:"unheard_ms,omitempty"`
}

// InstanceOf returns the document of a lease; the caller adds its owner, its override's details and its quarantine.
func InstanceOf(l *registry.Lease) Instance {
	i := l.Instance
	shown := Instance{
		App: i.App, ID: i.ID(), Status: i.Status.String(), Host: i.HostName, IP: i.IPAddr, VIP: i.VIP,
		Port: int(i.Port.Open()), SecurePort: int(i.SecurePort.Open()),
		Lease: l.Duration, Interval: l.Interval,
		LastRenewal: l.RenewedAt.Wall, Registered: l.RegisteredAt, Index: uint64(l.Changed), Metadata: registry.MapOf(i.Metadata),
	}
	if i.Overridden != registry.Unknown {
		shown.Overridden = i.Overridden.String()
	}
	return shown
}

// Explanation says what is known of an instance, listed or not, and why (GET /v1/rollcall/apps/{app}/{id}/explain).
type Explanation struct {
	App     string `json:"app"`
	ID      string `json:"id"`
	State   string `json:"state"`   // listed, quarantined, gone, or refused
	Summary string `json:"summary"` // all of it, in sentences
	Owner
	Life
	// running (by the leader's clock) or applied (as of the newest log entry)
	Clock            string             `json:"clock"`
	Override         *Forced            `json:"override,omitempty"`   // nil without one
	Quarantine       *Bounded           `json:"quarantine,omitempty"` // nil without one
	Removed          *Removed           `json:"removed,omitempty"`    // nil if it was not removed
	SelfPreservation PreservationEffect `json:"self_preservation"`
	History          []HistoryEvent     `json:"history"` // oldest first
}

// States of an Explanation of a missing instance. Gone means that it was removed. Refused means that nothing is
// remembered of it, but another server sends it and is refused.
const (
	Gone    = "gone"
	Refused = "refused"
)

// Life holds the status and lease of an instance that is listed or quarantined; it is zero if the instance is gone.
type Life struct {
	Status string `json:"status"`
	// the status that the instance reported last; empty if an override hides it
	Reported        string `json:"reported,omitempty"`
	Registered      int64  `json:"registered"`
	LeaseSeconds    int32  `json:"lease_seconds"`
	IntervalSeconds int32  `json:"interval_seconds"`
	LastRenewal     int64  `json:"last_renewal"`
	SilentMS        int64  `json:"silent_ms"`     // time since the last renewal
	ExpiresInMS     int64  `json:"expires_in_ms"` // negative if it has ended
	ExpiresAt       int64  `json:"expires_at"`
	Expired         bool   `json:"expired"`
	// Permanent means that the instance has no lease, and the fields about a lease are meaningless.
	Permanent bool `json:"permanent,omitempty"`
}

// MarshalJSON implements json.Marshaler. It leaves out the fields of Life for a missing instance.
func (e Explanation) MarshalJSON() ([]byte, error) {
	type document Explanation // lacks this method
	shown := struct {
		document
		*Life // hides document's own, and is left out if nil
	}{document: document(e)}
	if e.State != Gone && e.State != Refused {
		shown.Life = &e.Life
	}
	return json.Marshal(shown)
}

// Bounded says which operator set an override or quarantine, and from when to when it holds.
type Bounded struct {
	Author string `json:"author"` // empty for an act through Eureka's API
	Reason string `json:"reason"`
	Says   string `json:"says,omitempty"` // whom the author, a principal, named as the author
	Since  int64  `json:"since"`
	Until  int64  `json:"until,omitempty"` // 0 for no end
}

// Forced is an override. If it came with the instance, only the status is known.
type Forced struct {
	Status string `json:"status"`
	Drain  bool   `json:"drain,omitempty"` // ends when the instance's client has started again, but not before Until
	Bounded
}

// Removed says when and how an instance was removed.
type Removed struct {
	At   int64  `json:"at"`
	Kind string `json:"kind"` // canceled or evicted
}

// PreservationEffect says whether self-preservation keeps an instance from being evicted.
type PreservationEffect struct {
	State     string `json:"state"`     // off, on, released or held
	Withholds bool   `json:"withholds"` // no lease is evicted now
	Reason    string `json:"reason"`    // sentences
}

// HistoryEvent is something that happened to an instance.
type HistoryEvent struct {
	At     int64  `json:"at"`               // of the last time
	What   string `json:"what"`             // registered, renewed late, overridden, evicted …
	Text   string `json:"text"`             // a clause with the known details
	Times  uint32 `json:"times"`            // in a row
	Author string `json:"author,omitempty"` // the principal, if callers had to authenticate
	Reason string `json:"reason,omitempty"`
	Says   string `json:"says,omitempty"` // whom the author, a principal, named as the author
}

// Acted is the response to an operator's act on an instance.
type Acted struct {
	App   string `json:"app"`
	ID    string `json:"id"`
	Index string `json:"index"` // every node that has applied this index shows the act's effect
	// Nothing means that there was nothing for the act to end.
	Nothing bool `json:"nothing,omitempty"`
}

// Pruned is an instance that was, or would be, removed because it was not passing (POST /v1/rollcall/prune).
type Pruned struct {
	App    string `json:"app"`
	ID     string `json:"id"`
	Node   string `json:"node,omitempty"` // of an instance registered in Consul's catalog on its own node
	Status string `json:"status"`
	Reason string `json:"reason"` // why it is not passing
}
