package main

import (
	"slices"
	"strings"
)

// comparedLinks are the proxies between nodes, by who connects and to whom: one for each pair, nil for a
// node and itself.
type comparedLinks [][]*benchProxy

// startLinks starts the proxies. After an error those that were started are returned, too.
func startLinks(nodes []devNode, target func(from, to devNode) string) (comparedLinks, error) {
	links := make(comparedLinks, len(nodes))
	for from := range nodes {
		links[from] = make([]*benchProxy, len(nodes))
		for to := range nodes {
			if from == to {
				continue
			}
			proxy, err := startProxy(target(nodes[from], nodes[to]))
			if err != nil {
				return links, err
			}
			links[from][to] = proxy
		}
	}
	return links, nil
}

// seenFrom are the nodes at the addresses at which one of them reaches them.
func (l comparedLinks) seenFrom(from int, nodes []devNode) []devNode {
	seen := slices.Clone(nodes)
	for to, proxy := range l[from] {
		switch n := &seen[to]; {
		case proxy == nil:
		case proxy.target == n.cluster:
			n.cluster = proxy.addr()
		default:
			n.http = proxy.addr()
		}
	}
	return seen
}

// dialled is the setting cluster.dial of a node; "": it needs none.
func (l comparedLinks) dialled(from int, nodes []devNode) string {
	var dial []string
	for to, proxy := range l[from] {
		if proxy != nil && proxy.target == nodes[to].cluster {
			dial = append(dial, nodes[to].name()+"="+proxy.addr())
		}
	}
	return strings.Join(dial, ",")
}

// each calls do for every proxy that was started.
func (l comparedLinks) each(do func(from, to int, p *benchProxy)) {
	for from, row := range l {
		for to, proxy := range row {
			if proxy != nil {
				do(from, to, proxy)
			}
		}
	}
}

// sent is how many bytes a node has sent to others: what it asked and what it answered.
func (l comparedLinks) sent(node int) int64 {
	var n int64
	l.each(func(from, to int, p *benchProxy) {
		if from == node {
			n += p.there.Load()
		}
		if to == node {
			n += p.back.Load()
		}
	})
	return n
}
