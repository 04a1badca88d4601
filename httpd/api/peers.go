package api

// Peers shows the replication of a cluster to other servers, as one of its nodes sees it (GET /v1/rollcall/peers).
type Peers struct {
	Datacenter string `json:"datacenter"` // the cluster's own
	Node       string `json:"node"`       // the one that responded
	Sender     string `json:"sender"`     // the sending node; empty if every node sends
	Peers      []Peer `json:"peers"`      // in the order of the configuration

	Receiver string       `json:"receiver"` // the node that was asked
	Senders  []PeerSender `json:"senders"`  // whose clocks it knows, by datacenter and name
	// Refused lists the items of other servers that Receiver refused within the last hour and has not accepted since,
	// and in mode ap the operations that panicked there. (In mode cp a node stops instead.)
	Refused []RefusedItem `json:"refused"`
}

// RefusedItem is an operation that is refused: one of another server, or one that panics.
type RefusedItem struct {
	App  string `json:"app,omitempty"` // of the instance; empty, like ID, for other operations and whole batches
	ID   string `json:"id,omitempty"`
	What string `json:"what"` // to a peer: register, heartbeat, cancel or override
	// the server that last sent it; empty if a client did, or if this node sent it to the peer
	From  string `json:"from,omitempty"`
	Since int64  `json:"since"` // when it was first refused, like Last
	Last  int64  `json:"last"`
	Times uint64 `json:"times"` // that it was refused
	Text  string `json:"text"`  // why
	// Until is when it is offered again, like Last; 0 if it is refused whenever it comes. For items to a peer: the
	// peer owns the instance, and a client renews it there; this datacenter goes on serving what its own client says.
	Until int64 `json:"until,omitempty"`
}

// PeerSender is a server that sent to the cluster: a node without consensus, or another cluster. It counts the
// messages that Peers.Receiver has received since it started.
type PeerSender struct {
	Sender     string `json:"sender"`
	Datacenter string `json:"datacenter"`
	HeardMS    int64  `json:"heard_ms"`  // time since its clock was noted
	LateMS     int64  `json:"late_ms"`   // delay of its last message
	Late       uint64 `json:"late"`      // messages that were more than a minute late
	Refused    uint64 `json:"refused"`   // messages refused because its clock cannot be right
	Principal  string `json:"principal"` // who used its name first; empty if callers were not asked
}

// Peer is one server, or one datacenter, that the cluster replicates with.
type Peer struct {
	Name   string   `json:"name"`
	Kind   string   `json:"kind"`             // node, datacenter or eureka
	URLs   []string `json:"urls"`             // without user info
	URL    string   `json:"url"`              // the one in use
	State  string   `json:"state"`            // ok, failing, paused or idle (another node sends)
	Reason string   `json:"reason,omitempty"` // of the state, in a sentence

	// AuthFile says whether a node's auth.file has the same content as the sending node's: same or differs; empty if
	// unknown.
	AuthFile string `json:"auth_file,omitempty"`

	// AuthMode is the mode of access control in another datacenter: off, log-only, on; empty if it does not say.
	AuthMode string `json:"auth_mode,omitempty"`

	Cursor     string `json:"cursor,omitempty"` // everything up to it is known to the peer
	LagChanges uint64 `json:"lag_changes"`      // changes that the peer does not know yet
	LagMS      int64  `json:"lag_ms"`           // age of the oldest of them
	Pending    int    `json:"pending"`          // tasks queued
	InFlight   int    `json:"in_flight"`

	LastSuccess int64      `json:"last_success,omitempty"`
	LastError   *PeerError `json:"last_error,omitempty"`

	Sent       map[string]uint64 `json:"sent"`    // by fact: register, heartbeat, cancel, override
	Dropped    map[string]uint64 `json:"dropped"` // by reason: expired, overflow, permanent, stopped
	Repairs    map[string]uint64 `json:"repairs"` // by reason: first, too-old, digest, asked
	LastRepair *PeerRepair       `json:"last_repair,omitempty"`
	// Refused lists the instances with an item that the peer refused for good within the last hour, and has not
	// accepted since.
	Refused []RefusedItem `json:"refused,omitempty"`

	Incoming *Incoming `json:"incoming,omitempty"` // nil for a node of this datacenter
}

// PeerError is a failed transmission to a peer.
type PeerError struct {
	At   int64  `json:"at"`
	Text string `json:"text"`
}

// PeerRepair is the last repair of a peer that found something.
type PeerRepair struct {
	At      int64  `json:"at"`
	Reason  string `json:"reason"`
	Sent    int    `json:"sent"`    // instances that the peer lacked, or had in an older state
	Removed int    `json:"removed"` // instances that the peer should not have had
}

// Incoming is what comes from another datacenter or a Eureka server.
type Incoming struct {
	Instances int    `json:"instances"`          // that belong to it
	HeardMS   *int64 `json:"heard_ms,omitempty"` // time since it was heard from; nil for never
	Cut       bool   `json:"cut"`                // its link counts as cut
	OnCut     string `json:"on_cut"`             // keep, keep for 1h0m0s, expire
	Kept      int    `json:"kept,omitempty"`     // those of Instances whose time has passed
}

// PeerDiff says how a peer differs from what it should have.
type PeerDiff struct {
	Apps    int          `json:"apps"`    // applications with a difference
	Missing int          `json:"missing"` // instances that the peer lacks, or has in an older state
	Extra   int          `json:"extra"`   // instances that the peer should not have
	Items   []DiffedItem `json:"items"`   // at most 1000
}

// DiffedItem is one instance that differs.
type DiffedItem struct {
	App string `json:"app"`
	ID  string `json:"id"`
	// What describes the peer's copy: missing, older, newer, different or extra; contested means that it is another
	// client's, and one of the two datacenters refuses it.
	What string `json:"what"`
}
