package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Explanation says what is known of an instance, listed or not, and why it is as it is
// (GET /v1/rollcall/apps/{app}/{id}/explain). Times are ms since the epoch; those of an instance that
// is gone are 0.
type Explanation struct {
	App              string             `json:"app"`
	ID               string             `json:"id"`
	State            string             `json:"state"`                // listed, quarantined or gone
	Summary          string             `json:"summary"`              // all of it, in sentences
	Datacenter       string             `json:"datacenter,omitempty"` // that it belongs to; empty: the cluster's own
	UnheardMS        int64              `json:"unheard_ms,omitempty"` // ms of lease clock since that was heard; 0: its link is not cut
	Status           string             `json:"status"`
	Reported         string             `json:"reported"` // the status that the instance reported last
	Registered       int64              `json:"registered"`
	LeaseSeconds     int32              `json:"lease_seconds"`
	IntervalSeconds  int32              `json:"interval_seconds"`
	LastRenewal      int64              `json:"last_renewal"`
	SilentMS         int64              `json:"silent_ms"`     // ms of lease clock since the last renewal
	ExpiresInMS      int64              `json:"expires_in_ms"` // ms of lease clock; negative: it ended so long ago
	ExpiresAt        int64              `json:"expires_at"`
	Expired          bool               `json:"expired"`
	Clock            string             `json:"clock"`                // running (by the leader's clock) or applied (as of the newest log entry)
	Override         *Forced            `json:"override,omitempty"`   // nil: none
	Quarantine       *Bounded           `json:"quarantine,omitempty"` // nil: none
	Removed          *Removed           `json:"removed,omitempty"`    // nil: it is there
	SelfPreservation PreservationEffect `json:"self_preservation"`
	History          []HistoryEvent     `json:"history"` // oldest first
}

// Bounded is an operator's act and its time, in ms since the epoch.
type Bounded struct {
	Author string `json:"author"`
	Reason string `json:"reason"`
	Since  int64  `json:"since"`
	Until  int64  `json:"until,omitempty"` // 0: without end
}

// Forced is an override.
type Forced struct {
	Status string `json:"status"`
	Bounded
}

// Removed says how an instance went.
type Removed struct {
	At   int64  `json:"at"`   // ms since the epoch
	Kind string `json:"kind"` // canceled or evicted
}

// PreservationEffect is self-preservation's part in what becomes of an instance.
type PreservationEffect struct {
	State     string `json:"state"`     // off, on, released or held
	Withholds bool   `json:"withholds"` // no lease is evicted now
	Reason    string `json:"reason"`    // a sentence
}

// HistoryEvent is something that happened to an instance.
type HistoryEvent struct {
	At     int64  `json:"at"`    // ms since the epoch; of the last time
	What   string `json:"what"`  // registered, renewed late, overridden, evicted …
	Text   string `json:"text"`  // details
	Times  uint32 `json:"times"` // in a row
	Author string `json:"author,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Explain says what is known of an instance, also after it is gone. ErrNotRegistered: nothing is
// remembered of it.
func (c *Client) Explain(ctx context.Context, key registry.Key) (Explanation, error) {
	var e Explanation
	err := c.readJSON(ctx, &e, ownPath(key, "explain")...)
	var status *StatusError
	if errors.As(err, &status) && status.Status == http.StatusNotFound {
		err = fmt.Errorf("%w, and nothing is remembered of it", ErrNotRegistered)
	}
	if err != nil {
		return Explanation{}, fmt.Errorf("explain %s: %w", key, err)
	}
	return e, nil
}
