package localcluster

import (
	"slices"
	"strings"
)

// Links are the proxies between nodes, by who connects and to whom; nil where a node is reached directly.
type Links [][]*Proxy

// StartLinks starts a proxy for each pair of nodes that are to have one. After an error those that were started
// are returned, too. The caller stops them.
func StartLinks(nodes []*Node, between func(from, to *Node) bool) (Links, error) {
	links := make(Links, len(nodes))
	for i, from := range nodes {
		links[i] = make([]*Proxy, len(nodes))
		for j, to := range nodes {
			if i == j || !between(from, to) {
				continue
			}
			target := to.HTTP
			if from.Datacenter == to.Datacenter && from.Mode == CP {
				target = to.Cluster
			}
			proxy, err := StartProxy(target)
			if err != nil {
				return links, err
			}
			links[i][j] = proxy
		}
	}
	return links, nil
}

// Introduce tells each node of all, at the addresses of the proxies where there are some.
func (l Links) Introduce(nodes []*Node) {
	for i, n := range nodes {
		all := slices.Clone(nodes)
		var dial []string
		for j, proxy := range l[i] {
			if proxy == nil {
				continue
			}
			seen := *nodes[j]
			if proxy.Target == seen.Cluster {
				seen.Cluster = proxy.Addr()
				dial = append(dial, seen.Name+"="+proxy.Addr())
			} else {
				seen.HTTP = proxy.Addr()
			}
			all[j] = &seen
		}
		n.Introduce(all)
		if len(dial) > 0 {
			n.Settings["cluster.dial"] = strings.Join(dial, ",")
		}
	}
}

// Each calls do for every proxy.
func (l Links) Each(do func(from, to int, p *Proxy)) {
	for from, row := range l {
		for to, proxy := range row {
			if proxy != nil {
				do(from, to, proxy)
			}
		}
	}
}

// Cut cuts all links in both directions.
func (l Links) Cut() { l.Each(func(_, _ int, p *Proxy) { p.Cut() }) }

// Heal ends all cuts.
func (l Links) Heal() { l.Each(func(_, _ int, p *Proxy) { p.Heal() }) }

// Stop stops all proxies.
func (l Links) Stop() { l.Each(func(_, _ int, p *Proxy) { p.Stop() }) }

// Sent is how many bytes a node has sent to others through proxies: what it asked and what it answered.
func (l Links) Sent(node int) int64 {
	var n int64
	l.Each(func(from, to int, p *Proxy) {
		if from == node {
			n += p.Carried(There)
		}
		if to == node {
			n += p.Carried(Back)
		}
	})
	return n
}
