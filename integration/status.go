package integration

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
	Index   string `json:"index"` // of the registry on that node; empty: it did not say
}

// Status asks the node for its view of the cluster.
func (n *Node) Status() (Status, error) { return ask[Status](n, "/v1/rollcall/status") }
