package httpd

import "context"

// Cluster tells what this node knows about the nodes of its cluster.
type Cluster interface {
	// Status answers from memory where it can; the context bounds what it must ask of others. What
	// it cannot learn in time it leaves empty.
	Status(ctx context.Context) ClusterStatus
}

// ClusterStatus is the answer of GET /v1/rollcall/status. The Handler fills in Node, Datacenter,
// Version, Ready and Quorum itself.
type ClusterStatus struct {
	Node       string       `json:"node"`       // who answers
	Datacenter string       `json:"datacenter"` // its datacenter; empty: it was given no name
	Version    string       `json:"version"`    // of the program
	Mode       string       `json:"mode"`       // cp or ap
	ClusterID  string       `json:"cluster_id"` // empty until the first leader was established
	Leader     string       `json:"leader"`     // a node's name; empty: none is known
	Term       uint64       `json:"term"`
	Ready      bool         `json:"ready"`  // the answering node has loaded its state
	Quorum     bool         `json:"quorum"` // the answering node knows a leader, or leads, or needs none and is ready
	Nodes      []NodeStatus `json:"nodes"`  // sorted by ID
	// Foreign are nodes in cluster.join that belong to another cluster: there should be none.
	Foreign []ForeignNode `json:"foreign,omitempty"`
}

// ForeignNode is a node of another cluster.
type ForeignNode struct {
	ID        string `json:"id"`         // its name
	Address   string `json:"address"`    // in cluster.join
	ClusterID string `json:"cluster_id"` // of the cluster that it belongs to
}

// NodeStatus is one node of a cluster.
type NodeStatus struct {
	ID      string `json:"id"`      // its name
	HTTP    string `json:"http"`    // address of its HTTP listener; empty if it could not be asked
	Cluster string `json:"cluster"` // address of its node-to-node listener
	Role    string `json:"role"`    // leader, follower, candidate, learner (no vote yet), stopped, unreachable, or serving (without consensus)
	Applied uint64 `json:"applied"` // index of the newest applied entry; 0 if it could not be asked
	// Index is the version of the node's registry, as in X-Rollcall-Index; empty if it could not be
	// asked. A change is on every node when no node's is older.
	Index string `json:"index,omitempty"`
}
