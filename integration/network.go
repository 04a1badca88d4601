package integration

import (
	"slices"
	"testing"

	"github.com/seed-20419f34/rollcall/cmd/localcluster"
)

// NewProxy starts a proxy for target; it ends with the test.
func NewProxy(t testing.TB, target string) *localcluster.Proxy {
	t.Helper()
	p, err := localcluster.StartProxy(target)
	must(t, err)
	t.Cleanup(p.Stop)
	return p
}

// Network is nodes and the proxies through which they reach each other.
type Network struct {
	localcluster.Links
	nodes []*Node
}

// NewNetwork lets nodes that have not started yet reach each other through proxies, in the pairs that are to have
// one.
func NewNetwork(t testing.TB, nodes []*Node, between func(from, to *localcluster.Node) bool) Network {
	t.Helper()
	plain := make([]*localcluster.Node, len(nodes))
	for i, n := range nodes {
		plain[i] = &n.Node
	}
	links, err := localcluster.StartLinks(plain, between)
	t.Cleanup(links.Stop)
	must(t, err)
	links.Introduce(plain)
	return Network{links, nodes}
}

// all is for networks in which any two nodes reach each other through a proxy.
func all(_, _ *localcluster.Node) bool { return true }

// Between returns the proxies between two nodes.
func (l Network) Between(a, b *Node) []*localcluster.Proxy {
	i, j := slices.Index(l.nodes, a), slices.Index(l.nodes, b)
	return []*localcluster.Proxy{l.Links[i][j], l.Links[j][i]}
}

// Isolate cuts a node off in both directions, whoever dialled.
func (l Network) Isolate(node *Node) {
	for _, other := range l.nodes {
		if other != node {
			for _, p := range l.Between(node, other) {
				p.Cut()
			}
		}
	}
}

// CutOneWay cuts a node's links in one direction: it hears nothing any more, or is not heard.
func (l Network) CutOneWay(node *Node, deaf bool) {
	asked, answered := localcluster.There, localcluster.Back
	if deaf {
		asked, answered = answered, asked
	}
	for _, other := range l.nodes {
		if other != node {
			both := l.Between(node, other)
			both[0].Cut(asked)
			both[1].Cut(answered)
		}
	}
}
