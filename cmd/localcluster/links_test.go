package localcluster

import "testing"

func linkedNodes(t *testing.T) ([]*Node, Links) {
	t.Helper()
	nodes := []*Node{
		{Name: "node1", Datacenter: "dc1", Mode: CP, HTTP: "h1", Cluster: "c1"},
		{Name: "node2", Datacenter: "dc1", Mode: CP, HTTP: "h2", Cluster: "c2"},
		{Name: "node3", Datacenter: "dc2", Mode: CP, HTTP: "h3", Cluster: "c3"},
	}
	links, err := StartLinks(nodes, func(from, to *Node) bool { return true })
	t.Cleanup(links.Stop)
	if err != nil {
		t.Fatal(err)
	}
	return nodes, links
}

func TestANodeSeesTheOthersThroughProxiesAndItselfAsItIs(t *testing.T) {
	nodes, links := linkedNodes(t)
	links.Introduce(nodes)
	for _, tc := range []struct {
		node      int
		key, want string
	}{
		{node: 1, key: "cluster.join", want: links[1][0].Addr() + ",c2"},
		{node: 1, key: "cluster.dial", want: "node1=" + links[1][0].Addr()},
		{node: 1, key: "cluster.bootstrap-expect", want: "2"},
		{node: 1, key: "replication.datacenters", want: "dc2=http://" + links[1][2].Addr()},
		{node: 2, key: "cluster.dial", want: ""}, // it is the only node of its datacenter
		{node: 2, key: "replication.datacenters", want: "dc1=http://" + links[2][0].Addr() + " http://" + links[2][1].Addr()},
	} {
		if got := nodes[tc.node].Settings[tc.key]; got != tc.want {
			t.Errorf("%s: %s is %q, want %q", nodes[tc.node].Name, tc.key, got, tc.want)
		}
	}
}

func TestANodeHasSentWhatItAskedAndWhatItAnswered(t *testing.T) {
	_, links := linkedNodes(t)
	links[0][1].carried[There].Store(1)
	links[0][1].carried[Back].Store(10)
	links[0][2].carried[There].Store(100)
	links[1][0].carried[Back].Store(1000)
	links[1][2].carried[There].Store(10_000)
	for node, want := range []int64{1101, 10_010, 0} {
		if got := links.Sent(node); got != want {
			t.Errorf("node %d: got %d, want %d", node+1, got, want)
		}
	}
}
