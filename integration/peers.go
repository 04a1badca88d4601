package integration

import "fmt"

// Peers is what GET /v1/rollcall/peers says, as far as tests look at it.
type Peers struct {
	Datacenter string
	Sender     string
	Peers      []Peer
}

// Peer is one peer of a node.
type Peer struct {
	Name, Kind, State, Reason string
	LagChanges                uint64 `json:"lag_changes"`
	LagMillis                 int64  `json:"lag_ms"`
	Pending                   int
	InFlight                  int               `json:"in_flight"`
	Sent                      map[string]uint64 // by fact
	Dropped                   map[string]uint64 // by reason
	Repairs                   map[string]uint64 // by reason
	LastRepair                *struct {
		Reason        string
		Sent, Removed int
	} `json:"last_repair"`
	Incoming *struct {
		Instances int
		Cut       bool
		OnCut     string `json:"on_cut"`
	}
}

// Diff is what differs between a node and a peer.
type Diff struct{ Apps, Missing, Extra int }

// Peers asks the node for its peers.
func (n *Node) Peers() (Peers, error) { return ask[Peers](n, "/v1/rollcall/peers") }

// Peer asks the node for one peer.
func (n *Node) Peer(name string) (Peer, error) {
	all, err := n.Peers()
	if err != nil {
		return Peer{}, err
	}
	for _, p := range all.Peers {
		if p.Name == name {
			return p, nil
		}
	}
	return Peer{}, fmt.Errorf("node %s has no peer %q", n.Name, name)
}

// DiffWith asks the node what differs between it and a peer.
func (n *Node) DiffWith(peer string) (Diff, error) {
	return ask[Diff](n, "/v1/rollcall/peers/"+peer+"/diff")
}
