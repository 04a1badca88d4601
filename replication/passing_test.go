package replication

import (
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/replication/link"
	"github.com/seed-20419f34/rollcall/replication/peertest"
)

// peersOfAllKinds returns a peer of each kind.
func peersOfAllKinds(consensus bool) map[link.Kind]*peer {
	peers := make(map[link.Kind]*peer)
	for _, kind := range []link.Kind{link.Node, link.Datacenter, link.Eureka} {
		peers[kind] = &peer{PeerConfig: link.PeerConfig{Name: kind.String(), Kind: kind}, config: Config{Side: link.Side{Consensus: consensus}}}
	}
	return peers
}

func TestPeersThatGetALiveInstance(t *testing.T) {
	const cursor = 10
	type sentTo map[link.Kind]link.Facts
	toAll := func(facts link.Facts) sentTo {
		return sentTo{link.Node: facts, link.Datacenter: facts, link.Eureka: facts}
	}
	for _, tt := range []struct {
		name  string
		lease registry.Lease
		want  sentTo
	}{
		{"a client registered it: every peer",
			registry.Lease{ByClient: 12, Described: 12}, toAll(link.Registered)},
		{"a client's registration that they know: no peer",
			registry.Lease{ByClient: 10, Described: 10}, nil},
		{"a remote datacenter registered it: nodes",
			registry.Lease{ByRemote: 12, Described: 12, Owner: "dc2"}, sentTo{link.Node: link.Registered}},
		{"a node of this datacenter registered it: no peer",
			registry.Lease{Described: 12}, nil},
		{"a client registered it, and a remote datacenter changed it: every peer, of all of it",
			registry.Lease{ByClient: 11, ByRemote: 13, Described: 11, Overrode: 13}, toAll(link.Registered | link.Overridden)},
		{"an operator overrode what they know",
			registry.Lease{ByClient: 12, Described: 9, Overrode: 12}, toAll(link.Overridden)},
		{"an operator hid it: every peer, of the whole state",
			registry.Lease{ByClient: 12, Described: 9, Overrode: 8}, toAll(link.Registered)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.lease.Instance = peertest.Instance("ORDERS", "orders-1", 1)
			for kind, p := range peersOfAllKinds(true) {
				got, ok := p.taskOf(nil, registry.Change{Index: 13, Lease: &tt.lease}, place{after: cursor}, 0)
				expect.That(t, ok == (tt.want[kind] != 0) && got.Facts == tt.want[kind], "%s: sentTo %b (%v), want %b", kind, got.Facts, ok, tt.want[kind])
			}
		})
	}
}

func TestTaskHoldsTheCursorBeforeItsFirstChange(t *testing.T) {
	lease := registry.Lease{Instance: peertest.Instance("ORDERS", "orders-1", 1), ByClient: 15, ByRemote: 18, Described: 12, Overrode: 15}
	p := peersOfAllKinds(true)[link.Eureka]
	for after, want := range map[registry.Index]registry.Index{10: 12, 12: 15, 14: 15} {
		got, _ := p.taskOf(nil, registry.Change{Index: 18, Lease: &lease}, place{after: after}, 0)
		expect.That(t, got.First == want, "after %d: first %d, want %d", after, got.First, want)
	}
}

func TestTaskKnowsWhichLivesAreNewToThePeer(t *testing.T) {
	lease := registry.Lease{Instance: peertest.Instance("ORDERS", "orders-1", 1), ByClient: 12, Described: 12, BeganLease: 5000}
	p := peersOfAllKinds(true)[link.Eureka]
	for clock, want := range map[int64]bool{0: true, 4999: true, 5000: true, 5001: false} {
		got, _ := p.taskOf(nil, registry.Change{Index: 12, Lease: &lease}, place{clock: clock}, 0)
		expect.That(t, got.NewLife == want, "everything known as of %d: new is %v, want %v", clock, got.NewLife, want)
	}
}

func TestPeersThatGetARemoval(t *testing.T) {
	client, node, remote := registry.FromClient, registry.Origin{Kind: registry.LocalPeer}, registry.Origin{Kind: registry.RemoteDC, DC: "dc3"}
	type sentTo map[link.Kind]bool
	for _, tt := range []struct {
		name      string
		consensus bool
		kind      registry.ChangeKind
		origin    registry.Origin
		owner     string
		want      sentTo
	}{
		{"a client's cancel: every peer", false, registry.Canceled, client, "", sentTo{link.Node: true, link.Datacenter: true, link.Eureka: true}},
		{"a client's cancel of a remote instance: every peer", true, registry.Canceled, client, "dc3", sentTo{link.Node: true, link.Datacenter: true, link.Eureka: true}},
		{"a remote datacenter's cancel: nodes", false, registry.Canceled, remote, "dc3", sentTo{link.Node: true}},
		{"a node's cancel: no peer", false, registry.Canceled, node, "", sentTo{}},
		{"an eviction that one node decided for all: datacenters", true, registry.Evicted, client, "", sentTo{link.Datacenter: true}},
		{"its eviction of a remote instance: no peer", true, registry.Evicted, client, "dc3", sentTo{}},
		{"an eviction of one node without consensus: no peer", false, registry.Evicted, client, "", sentTo{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := &registry.Lease{Instance: peertest.Instance("ORDERS", "orders-1", 1), Origin: tt.origin, Owner: tt.owner}
			for kind, p := range peersOfAllKinds(tt.consensus) {
				expect.Equal(t, p.sendsRemoval(registry.Change{Index: 12, Lease: l, Kind: tt.kind}), tt.want[kind], "%s: sent is", kind)
			}
		})
	}
}
