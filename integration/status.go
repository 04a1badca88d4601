package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// Status is what `rollcall status -o json` and GET /v1/rollcall/status say.
type Status struct {
	Mode      string       `json:"mode"`
	ClusterID string       `json:"cluster_id"`
	Leader    string       `json:"leader"` // a node's name; empty: none is known
	Term      uint64       `json:"term"`
	Nodes     []NodeStatus `json:"nodes"`
}

// NodeStatus is one node as the answering one sees it.
type NodeStatus struct {
	ID      string `json:"id"`
	HTTP    string `json:"http"`
	Cluster string `json:"cluster"`
	Role    string `json:"role"`
	Applied uint64 `json:"applied"`
}

// Status asks the node for its view of the cluster.
func (n *Node) Status() (Status, error) {
	answer := n.Get("/v1/rollcall/status")
	if answer.Status != http.StatusOK {
		return Status{}, fmt.Errorf("status of %s: %v", n.Name, answer)
	}
	var status Status
	if err := json.Unmarshal(answer.Body, &status); err != nil {
		return Status{}, fmt.Errorf("status of %s: %w", n.Name, err)
	}
	return status, nil
}
