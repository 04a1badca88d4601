package main

import (
	"context"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/replication"
)

// nodes shows the nodes of a datacenter without consensus to package httpd: each knows the others as
// peers.
type nodes struct {
	name, http, datacenter string
	replicator             *replication.Replicator
	service                registry.Service
}

// Status implements httpd.Cluster.
func (n nodes) Status(ctx context.Context) api.Status {
	status := api.Status{Mode: modeAP, ClusterID: n.datacenter}
	own := api.NodeStatus{ID: n.name, HTTP: n.http, Role: "serving"}
	if v, err := n.service.View(ctx, registry.Stale); err == nil {
		own.Index, own.Applied = formatIndex(v.Epoch(), v.Index()), uint64(v.Index())
	}
	status.Nodes = append(status.Nodes, own)
	for _, p := range n.replicator.Status() {
		if p.Kind == "node" {
			status.Nodes = append(status.Nodes, peerNode(p))
		}
	}
	slices.SortFunc(status.Nodes, func(a, b api.NodeStatus) int { return strings.Compare(a.HTTP, b.HTTP) })
	return status
}

// peerNode is another node as this one knows it: by its address, and by whether it could be reached.
func peerNode(p api.Peer) api.NodeStatus {
	n := api.NodeStatus{ID: p.Name, HTTP: p.Name, Role: "serving"}
	if p.State == replication.StateFailing {
		n.Role = "unreachable"
	}
	return n
}
