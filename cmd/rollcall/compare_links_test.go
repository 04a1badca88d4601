package main

import (
	"reflect"
	"testing"
)

func linkedNodes(t *testing.T) ([]devNode, comparedLinks) {
	t.Helper()
	nodes := []devNode{
		{dc: 1, number: 1, http: "h1", cluster: "c1"},
		{dc: 1, number: 2, http: "h2", cluster: "c2"},
		{dc: 2, number: 3, http: "h3", cluster: "c3"},
	}
	links, err := startLinks(nodes, linked("cp"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { links.each(func(_, _ int, p *benchProxy) { p.stop() }) })
	return nodes, links
}

func TestANodeSeesTheOthersThroughProxiesAndItselfAsItIs(t *testing.T) {
	nodes, links := linkedNodes(t)
	got := links.seenFrom(1, nodes)
	want := []devNode{
		{dc: 1, number: 1, http: "h1", cluster: links[1][0].addr()},
		{dc: 1, number: 2, http: "h2", cluster: "c2"},
		{dc: 2, number: 3, http: links[1][2].addr(), cluster: "c3"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got, want := links.dialled(1, nodes), "node1="+links[1][0].addr(); got != want {
		t.Errorf("it dials %q, want %q", got, want)
	}
	if got := links.dialled(2, nodes); got != "" {
		t.Errorf("the only node of its datacenter dials %q, want nobody", got)
	}
}

func TestANodeHasSentWhatItAskedAndWhatItAnswered(t *testing.T) {
	_, links := linkedNodes(t)
	links[0][1].there.Store(1)
	links[0][1].back.Store(10)
	links[0][2].there.Store(100)
	links[1][0].back.Store(1000)
	links[1][2].there.Store(10_000)
	for node, want := range []int64{1101, 10_010, 0} {
		if got := links.sent(node); got != want {
			t.Errorf("node %d: got %d, want %d", node+1, got, want)
		}
	}
}
