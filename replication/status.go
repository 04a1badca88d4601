package replication

// PeerStatus is what is known of one peer, as GET /v1/rollcall/peers shows it. Times are ms since the
// epoch, spans ms.
type PeerStatus struct {
	Name  string   `json:"name"`
	Kind  string   `json:"kind"` // node, datacenter or eureka
	URLs  []string `json:"urls"` // without user info
	URL   string   `json:"url"`  // the one in use
	State string   `json:"state"`
	// Reason says in a sentence why the state is what it is; empty: there is nothing to say.
	Reason string `json:"reason,omitempty"`

	Cursor     string `json:"cursor,omitempty"` // everything up to it is known to the peer
	LagChanges uint64 `json:"lag_changes"`      // changes that the peer does not know yet
	LagMillis  int64  `json:"lag_ms"`           // age of the oldest of them
	Pending    int    `json:"pending"`          // tasks queued
	InFlight   int    `json:"in_flight"`

	LastSuccess int64      `json:"last_success,omitempty"`
	LastError   *PeerError `json:"last_error,omitempty"`

	Sent    map[string]uint64 `json:"sent"`    // by fact: register, heartbeat, cancel, override
	Dropped map[string]uint64 `json:"dropped"` // by reason: expired, overflow, permanent, stopped
	Repairs map[string]uint64 `json:"repairs"` // by reason: too-old, digest, asked
	Repair  *RepairStatus     `json:"last_repair,omitempty"`

	Incoming *Incoming `json:"incoming,omitempty"` // of another datacenter or Eureka server
}

// The states of a peer.
const (
	StateOK      = "ok"
	StateFailing = "failing" // the last transmission failed
	StatePaused  = "paused"
	StateIdle    = "idle" // another node sends
)

// PeerError is a transmission that failed.
type PeerError struct {
	At   int64  `json:"at"`
	Text string `json:"text"`
}

// RepairStatus is the last repair that found something.
type RepairStatus struct {
	At      int64  `json:"at"`
	Reason  string `json:"reason"`
	Sent    int    `json:"sent"`    // instances that the peer lacked or had older
	Removed int    `json:"removed"` // instances that the peer had and should not have
}

// Incoming is what comes from a datacenter.
type Incoming struct {
	Instances int    `json:"instances"`          // that belong to it
	Heard     *int64 `json:"heard_ms,omitempty"` // ms of lease clock since it was heard; nil: never
	Cut       bool   `json:"cut"`                // its link counts as cut
	OnCut     string `json:"on_cut"`             // keep, keep for …, expire
	Kept      int    `json:"kept,omitempty"`     // of Instances, those whose time has passed
}

// Diff is what differs between this side and a peer.
type Diff struct {
	Apps    int          `json:"apps"`    // applications with a difference
	Missing int          `json:"missing"` // instances that the peer lacks or has older
	Extra   int          `json:"extra"`   // instances that the peer has and should not have
	Items   []DiffedItem `json:"items"`   // at most 1000
}

// DiffedItem is one instance that differs.
type DiffedItem struct {
	App  string `json:"app"`
	ID   string `json:"id"`
	What string `json:"what"` // missing, older, newer, different or extra: what the peer's copy is
}
