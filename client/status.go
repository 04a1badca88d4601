package client

import (
	"context"
	"encoding/json"
	"fmt"
)

// Status is a cluster as one of its nodes sees it (GET /v1/rollcall/status).
type Status struct {
	Node       string       `json:"node"`       // who answered
	Datacenter string       `json:"datacenter"` // its datacenter
	Version    string       `json:"version"`    // of its program
	Mode       string       `json:"mode"`       // cp or ap
	ClusterID  string       `json:"cluster_id"` // empty until the first leader was established
	Leader     string       `json:"leader"`     // a node's id; empty: none is known
	Term       uint64       `json:"term"`
	Ready      bool         `json:"ready"`  // the answering node has loaded its state
	Quorum     bool         `json:"quorum"` // the answering node knows a leader, or leads, or needs none
	Nodes      []NodeStatus `json:"nodes"`
	// Foreign are nodes of another cluster at addresses where this one looks for its own: there should be none.
	Foreign []ForeignNode `json:"foreign,omitempty"`
}

// ForeignNode is a node of another cluster.
type ForeignNode struct {
	ID        string `json:"id"`         // its name
	Address   string `json:"address"`    // of its node-to-node listener
	ClusterID string `json:"cluster_id"` // of the cluster that it belongs to
}

// NodeStatus is one node of a cluster.
type NodeStatus struct {
	ID      string `json:"id"`
	HTTP    string `json:"http"`    // address of its HTTP listener
	Cluster string `json:"cluster"` // address of its node-to-node listener
	Role    string `json:"role"`    // leader, follower, candidate, learner (no vote yet), stopped, unreachable, or serving (mode ap)
	Applied uint64 `json:"applied"` // newest applied log entry; 0 if it could not be asked
	// Index is the newest change that the node has applied, as epoch-index; "" if it could not be asked.
	Index string `json:"index,omitempty"`
}

// Status asks one node about the cluster.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	err := c.readJSON(ctx, &s, "v1", "rollcall", "status")
	return s, err
}

// Events are the registrations and cancels that the cluster remembers (the last thousand of each),
// newest first. Cancels contain those of unknown instances, and evictions.
type Events struct {
	Registered []Event `json:"registered"`
	Canceled   []Event `json:"canceled"`
}

// Event is one registration or cancel.
type Event struct {
	At  int64  `json:"at"` // ms since the epoch, by the server's clock
	App string `json:"app"`
	ID  string `json:"id"`
}

// Events returns what happened lately.
func (c *Client) Events(ctx context.Context) (Events, error) {
	var e Events
	err := c.readJSON(ctx, &e, "v1", "rollcall", "events")
	return e, err
}

// readJSON reads one document of Rollcall's own API.
func (c *Client) readJSON(ctx context.Context, into any, path ...string) error {
	a, err := c.read(ctx, path...)
	if err != nil {
		return err
	}
	return a.decode(into)
}

// decode reads a document of Rollcall's own API, or says why there is none.
func (a answer) decode(into any) error {
	if refusal := a.refusal(); refusal != nil {
		return refusal
	}
	if err := json.Unmarshal(a.body, into); err != nil {
		return fmt.Errorf("answer of %s: %w", a.server, err)
	}
	return nil
}
