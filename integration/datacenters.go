package integration

import (
	"fmt"
	"testing"

	"github.com/seed-20419f34/rollcall/cmd/localcluster"
)

// Datacenters is clusters that replicate to each other, each through proxies in front of the nodes of
// the others.
type Datacenters struct {
	Network
	Clusters []*Cluster
}

// StartDatacenters starts n clusters, dc1 and so on, that are all as cfg says, and waits until every
// node serves.
func StartDatacenters(t testing.TB, n int, cfg Config) *Datacenters {
	t.Helper()
	cfgs := make([]Config, n)
	for i := range cfgs {
		cfgs[i] = cfg
	}
	return StartUnlikeDatacenters(t, cfgs...)
}

// StartUnlikeDatacenters is StartDatacenters for clusters of which each is as its own Config says.
func StartUnlikeDatacenters(t testing.TB, cfgs ...Config) *Datacenters {
	t.Helper()
	d := new(Datacenters)
	var nodes []*Node
	for i, cfg := range cfgs {
		cfg.DC = dcName(i)
		d.Clusters = append(d.Clusters, NewCluster(t, cfg))
		nodes = append(nodes, d.Clusters[i].Nodes...)
	}
	d.Network = NewNetwork(t, nodes, func(from, to *localcluster.Node) bool { return from.Datacenter != to.Datacenter })
	for _, c := range d.Clusters {
		c.Start()
	}
	return d
}

func dcName(i int) string { return fmt.Sprintf("dc%d", i+1) }

// Nodes are those of all datacenters.
func (d *Datacenters) Nodes() []*Node { return d.nodes }
