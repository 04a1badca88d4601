package integration

import (
	"fmt"
	"strings"
	"testing"
)

// Datacenters is clusters that replicate to each other, each through proxies in front of the nodes of
// the others.
type Datacenters struct {
	Clusters []*Cluster
	links    map[[2]int][]*Proxy // by who sends to whom
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
	d := &Datacenters{links: make(map[[2]int][]*Proxy)}
	for i, cfg := range cfgs {
		cfg.DC = dcName(i)
		d.Clusters = append(d.Clusters, NewCluster(t, cfg))
	}
	for from, c := range d.Clusters {
		var peers []string
		for to, other := range d.Clusters {
			if from != to {
				peers = append(peers, dcName(to)+"="+d.link(t, from, to, other))
			}
		}
		for _, node := range c.Nodes {
			node.Settings["replication.datacenters"] = strings.Join(peers, ",")
		}
	}
	for _, c := range d.Clusters {
		c.Start()
	}
	return d
}

func dcName(i int) string { return fmt.Sprintf("dc%d", i+1) }

// link makes the proxies by which a cluster reaches another, and returns their URLs.
func (d *Datacenters) link(t testing.TB, from, to int, other *Cluster) string {
	t.Helper()
	var urls []string
	for _, node := range other.Nodes {
		p := NewProxy(t, node.HTTP)
		d.links[[2]int{from, to}] = append(d.links[[2]int{from, to}], p)
		urls = append(urls, "http://"+p.Addr())
	}
	return strings.Join(urls, " ")
}

// Cut cuts all links between the datacenters, in both directions.
func (d *Datacenters) Cut() {
	for _, proxies := range d.links {
		for _, p := range proxies {
			p.Cut(There, Back)
		}
	}
}

// Heal ends a cut.
func (d *Datacenters) Heal() {
	for _, proxies := range d.links {
		for _, p := range proxies {
			p.Heal()
		}
	}
}

// Nodes are those of all datacenters.
func (d *Datacenters) Nodes() []*Node {
	var nodes []*Node
	for _, c := range d.Clusters {
		nodes = append(nodes, c.Nodes...)
	}
	return nodes
}
