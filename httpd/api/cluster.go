// Package api declares the JSON documents of Rollcall's own API, /v1/rollcall, which servers write and clients read,
// and reads the streams of events that its watch sends.
//
// docs/reference/openapi.yaml describes the documents for other programs, and a test of package httpd compares
// the two. The messages between servers are not here. Unless a field says otherwise, times are ms since the epoch and
// spans are ms of the lease clock.
package api

import "fmt"

// Error is the body of every refusal.
type Error struct {
	Error string `json:"error"`           // a sentence
	Index string `json:"index,omitempty"` // with 410: where to resume after fetching everything
	// Request is, with 5xx, the request's name, as in the header X-Request-Id and in the server's log.
	Request string `json:"request,omitempty"`
}

// Status is a cluster as one of its nodes sees it (GET /v1/rollcall/status).
type Status struct {
	Node       string       `json:"node"`       // the responding node
	Datacenter string       `json:"datacenter"` // its datacenter; empty if unnamed
	Version    string       `json:"version"`    // of its program
	Mode       string       `json:"mode"`       // cp or ap
	ClusterID  string       `json:"cluster_id"` // empty until the first leader was established
	Leader     string       `json:"leader"`     // a node's name; empty if unknown
	Term       uint64       `json:"term"`
	Ready      bool         `json:"ready"`             // the answering node has loaded its state
	Quorum     bool         `json:"quorum"`            // it knows a leader, or leads, or needs none and is ready
	Condition  string       `json:"condition"`         // well, degraded (a node fails, or none may), or leaderless
	Summary    string       `json:"summary"`           // a sentence about the condition
	Warning    string       `json:"warning,omitempty"` // a sentence about a possible problem; empty if there is none
	Nodes      []NodeStatus `json:"nodes"`             // by ID
	// Foreign lists nodes of another cluster at addresses where this one looks for its own. It should be empty.
	Foreign []ForeignNode `json:"foreign,omitempty"`
}

// NodeStatus is one node of a cluster.
type NodeStatus struct {
	ID      string `json:"id"`      // its name
	HTTP    string `json:"http"`    // address of its HTTP listener; empty if it could not be asked
	Cluster string `json:"cluster"` // address of its node-to-node listener
	// leader, follower, candidate, learner (no vote), stopped, unreachable, or serving (mode ap)
	Role    string `json:"role"`
	Applied uint64 `json:"applied"` // newest applied log entry; 0 if it could not be asked
	// Index is the newest change that the node has applied, as epoch-index; empty if it could not be asked. A change
	// has reached every node when no node's index is older.
	Index string `json:"index,omitempty"`
	Voter bool   `json:"voter"` // it has a vote; false in mode ap
	// The following fields are left out for a node that could not be asked.
	Version string `json:"version,omitempty"` // of its program
	Zone    string `json:"zone,omitempty"`    // node.zone
	// ms since it last heard from the leader; in mode ap since it last responded to the responding node; 0 if it leads
	Contact  int64  `json:"contact,omitempty"`
	Lag      uint64 `json:"lag,omitempty"`       // log entries applied by another node but not by this one
	DiskFree int64  `json:"disk_free,omitempty"` // free bytes on the disk of its data directory
}

// Answers reports whether the node answered when it was asked.
func (n NodeStatus) Answers() bool { return n.Role != "unreachable" && n.Role != "stopped" }

// MayFail says how many nodes may fail before the majority is lost; a negative number means that it is lost already.
// further is "further " if some have failed, and otherwise empty.
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
	ClusterID string `json:"cluster_id"` // of its own cluster
}

// Verification is the result of comparing the states of all nodes (GET /v1/rollcall/verify).
type Verification struct {
	Verdict  string `json:"verdict"`  // equal, differ, or undecided: not all nodes could be compared
	Sentence string `json:"sentence"` // the verdict in words
	// of the log entry after which the states were compared; 0 if no node has a digest yet
	Index uint64 `json:"index"`
	// time since that entry was applied, by the node's clock, on the node where it is longest
	Age   int64          `json:"age_ms"`
	Nodes []VerifiedNode `json:"nodes"` // by ID
}

// VerifiedNode is one node of a Verification.
type VerifiedNode struct {
	ID string `json:"id"` // its name
	// of the entry after which its state has the digest; 0 if it has no digest after the compared entry
	Index  uint64 `json:"index"`
	Digest string `json:"digest,omitempty"` // of its state; empty if there is none
	// the parts of its state that differ from those of a majority, or from every other node if no majority agrees
	Differs  []string `json:"differs,omitempty"`
	Sentence string   `json:"sentence"` // the same in words
}

// RemovedMember is the response to the removal of a node.
type RemovedMember struct {
	Removed string `json:"removed"` // the node's name
}

// Transferred is the response to a transfer of leadership.
type Transferred struct {
	Leader string `json:"leader"` // the node that will lead, possibly a moment later
}

// LogLevel is the level of a node's log.
type LogLevel struct {
	Level      string `json:"level"`           // in force now
	Configured string `json:"configured"`      // log.level of the node's settings
	Until      int64  `json:"until,omitempty"` // when the configured level applies again; 0 if it does now
}

// Events are the registrations and cancels that the cluster remembers (the last thousand of each), newest first.
// Cancels include those of unknown instances, and evictions.
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
