// Package api is the JSON documents of Rollcall's own API, /v1/rollcall, which servers write and clients
// read. docs/reference/openapi.yaml describes the same documents for other programs, and a test of package httpd
// compares the two. The messages between servers are not here. Unless a field says otherwise, times are
// ms since the epoch and spans are ms of the lease clock.
package api

import "fmt"

// Error is the body of every refusal.
type Error struct {
	Error string `json:"error"`           // a sentence
	Index string `json:"index,omitempty"` // with 410: where to go on after everything was fetched
	// Request is, with 5xx, the name of the request, as in the header X-Request-Id and in the server's log.
	Request string `json:"request,omitempty"`
}

// Status is a cluster as one of its nodes sees it (GET /v1/rollcall/status).
type Status struct {
	Node       string       `json:"node"`       // the one that responds
	Datacenter string       `json:"datacenter"` // its datacenter; empty: it was given no name
	Version    string       `json:"version"`    // of its program
	Mode       string       `json:"mode"`       // cp or ap
	ClusterID  string       `json:"cluster_id"` // empty until the first leader was established
	Leader     string       `json:"leader"`     // a node's name; empty: none is known
	Term       uint64       `json:"term"`
	Ready      bool         `json:"ready"`             // the answering node has loaded its state
	Quorum     bool         `json:"quorum"`            // the answering node knows a leader, or leads, or needs none and is ready
	Condition  string       `json:"condition"`         // well, degraded (a node fails, or no further one may), or leaderless
	Summary    string       `json:"summary"`           // a sentence about the condition
	Warning    string       `json:"warning,omitempty"` // a sentence about what may go wrong; empty: none
	Nodes      []NodeStatus `json:"nodes"`             // by ID
	// Foreign are nodes of another cluster at addresses where this one looks for its own: there should be none.
	Foreign []ForeignNode `json:"foreign,omitempty"`
}

// NodeStatus is one node of a cluster.
type NodeStatus struct {
	ID      string `json:"id"`      // its name
	HTTP    string `json:"http"`    // address of its HTTP listener; empty if it could not be asked
	Cluster string `json:"cluster"` // address of its node-to-node listener
	Role    string `json:"role"`    // leader, follower, candidate, learner (no vote), stopped, unreachable, or serving (mode ap)
	Applied uint64 `json:"applied"` // newest applied log entry; 0 if it could not be asked
	// Index is the newest change that the node has applied, as epoch-index; empty if it could not be asked.
	// A change is on every node when no node's is older.
	Index string `json:"index,omitempty"`
	Voter bool   `json:"voter"` // it has a vote; false in mode ap
	// The rest is left out of a node that could not be asked.
	Version  string `json:"version,omitempty"`   // of its program
	Zone     string `json:"zone,omitempty"`      // node.zone
	Contact  int64  `json:"contact,omitempty"`   // ms of the clock since it last heard of the leader, in mode ap since it last responded to the node that responds; 0: it leads
	Lag      uint64 `json:"lag,omitempty"`       // log entries that another node has applied and it has not
	DiskFree int64  `json:"disk_free,omitempty"` // bytes that the disk of its data directory has left
}

// Answers says whether the node answered when it was asked.
func (n NodeStatus) Answers() bool { return n.Role != "unreachable" && n.Role != "stopped" }

// MayFail says how many nodes may fail before there is no majority; below 0: there is none. further is "further " where some have
// failed already, and else empty.
func MayFail(nodes int, further string) string {
	switch {
	case nodes < 0:
		return "a majority of the voters is not there"
	case nodes == 0:
		return "no " + further + "node may fail"
	case nodes == 1:
		return "one " + further + "node may fail"
	case nodes == 2:
		return "two " + further + "nodes may fail"
	}
	return fmt.Sprintf("%d %snodes may fail", nodes, further)
}

// ForeignNode is a node of another cluster.
type ForeignNode struct {
	ID        string `json:"id"`         // its name
	Address   string `json:"address"`    // of its node-to-node listener
	ClusterID string `json:"cluster_id"` // of the cluster that it belongs to
}

// Verification is what comparing the states of all nodes has found (GET /v1/rollcall/verify).
type Verification struct {
	Verdict  string         `json:"verdict"`  // equal, differ, or undecided: not all nodes could be compared
	Sentence string         `json:"sentence"` // the verdict in words
	Index    uint64         `json:"index"`    // of the log entry after which the states were compared; 0: no node has a digest yet
	Age      int64          `json:"age_ms"`   // how long ago, by the node's clock, that entry was applied where it is longest ago
	Nodes    []VerifiedNode `json:"nodes"`    // by ID
}

// VerifiedNode is one node of a Verification.
type VerifiedNode struct {
	ID       string   `json:"id"`                // its name
	Index    uint64   `json:"index"`             // of the entry after which its state has the digest; 0: it has none after the entry that is compared
	Digest   string   `json:"digest,omitempty"`  // of its state; empty: there is none
	Differs  []string `json:"differs,omitempty"` // the parts of its state that are not those of a majority, or of any other node where no majority agrees
	Sentence string   `json:"sentence"`          // the same in words
}

// RemovedMember is the response to the removal of a node.
type RemovedMember struct {
	Removed string `json:"removed"` // the node's name
}

// Transferred is the response to a transfer of leadership.
type Transferred struct {
	Leader string `json:"leader"` // the node that is to lead, which it may do a moment later
}

// LogLevel is the level of a node's log.
type LogLevel struct {
	Level      string `json:"level"`           // of now
	Configured string `json:"configured"`      // log.level of the node's settings
	Until      int64  `json:"until,omitempty"` // ms since the epoch: when the configured one holds again; 0: it holds
}

// Events are the registrations and cancels that the cluster remembers (the last thousand of each),
// newest first. Cancels contain those of unknown instances, and evictions.
type Events struct {
	Registered []Event `json:"registered"`
	Canceled   []Event `json:"canceled"`
}

// Event is one registration or cancel.
type Event struct {
	At  int64  `json:"at"` // by the server's clock
	App string `json:"app"`
	ID  string `json:"id"`
}
