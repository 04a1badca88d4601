package replication

import (
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

// peersOfAllKinds are what a change is looked at for.
func peersOfAllKinds(consensus bool) map[Kind]*peer {
	peers := make(map[Kind]*peer)
	for _, kind := range []Kind{Node, Datacenter, Eureka} {
		peers[kind] = &peer{PeerConfig: PeerConfig{Name: kind.String(), Kind: kind}, config: Config{Side: Side{Consensus: consensus}}}
	}
	return peers
}

func TestWhoIsToldOfALiveInstance(t *testing.T) {
	const cursor = 10
	type told map[Kind]facts
	for _, tt := range []struct {
		name  string
		lease registry.Lease
		want  told
	}{
		{
			name:  "a client registered it: everybody",
			lease: registry.Lease{ByClient: 12, Described: 12},
			want:  told{Node: registered, Datacenter: registered, Eureka: registered},
		},
		{
			name:  "a client's registration that they know: nobody",
			lease: registry.Lease{ByClient: 10, Described: 10},
		},
		{
			name:  "a remote datacenter registered it: nodes",
			lease: registry.Lease{ByRemote: 12, Described: 12, Owner: "dc2"},
			want:  told{Node: registered},
		},
		{
			name:  "a node of the own datacenter registered it: nobody",
			lease: registry.Lease{Described: 12},
		},
		{
			name:  "a client registered it, and a remote datacenter changed it: everybody, of all of it",
			lease: registry.Lease{ByClient: 11, ByRemote: 13, Described: 11, Overrode: 13},
			want:  told{Node: registered | overridden, Datacenter: registered | overridden, Eureka: registered | overridden},
		},
		{
			name:  "an operator overrode what they know",
			lease: registry.Lease{ByClient: 12, Described: 9, Overrode: 12},
			want:  told{Node: overridden, Datacenter: overridden, Eureka: overridden},
		},
		{
			name:  "an operator hid it: everybody, of the whole state",
			lease: registry.Lease{ByClient: 12, Described: 9, Overrode: 8},
			want:  told{Node: registered, Datacenter: registered, Eureka: registered},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.lease.Instance = instance("ORDERS", "orders-1", 1)
			for kind, p := range peersOfAllKinds(true) {
				got, ok := p.tell(nil, registry.Change{Index: 13, Lease: &tt.lease}, place{after: cursor}, 0)
				expect.That(t, ok == (tt.want[kind] != 0) && got.facts == tt.want[kind], "%s: told %b (%v), want %b", kind, got.facts, ok, tt.want[kind])
			}
		})
	}
}

func TestATaskHoldsTheCursorBeforeTheFirstChangeItTells(t *testing.T) {
	lease := registry.Lease{Instance: instance("ORDERS", "orders-1", 1), ByClient: 15, ByRemote: 18, Described: 12, Overrode: 15}
	p := peersOfAllKinds(true)[Eureka]
	for after, want := range map[registry.Index]registry.Index{10: 12, 12: 15, 14: 15} {
		got, _ := p.tell(nil, registry.Change{Index: 18, Lease: &lease}, place{after: after}, 0)
		expect.That(t, got.first == want, "after %d: first %d, want %d", after, got.first, want)
	}
}

func TestWhichLivesAreNewToThePeer(t *testing.T) {
	lease := registry.Lease{Instance: instance("ORDERS", "orders-1", 1), ByClient: 12, Described: 12, BeganLease: 5000}
	p := peersOfAllKinds(true)[Eureka]
	for clock, want := range map[int64]bool{0: true, 4999: true, 5000: true, 5001: false} {
		got, _ := p.tell(nil, registry.Change{Index: 12, Lease: &lease}, place{clock: clock}, 0)
		expect.That(t, got.began == want, "everything known as of %d: new is %v, want %v", clock, got.began, want)
	}
}

func TestWhoIsToldOfARemoval(t *testing.T) {
	client, node, remote := registry.FromClient, registry.Origin{Kind: registry.LocalPeer}, registry.Origin{Kind: registry.RemoteDC, DC: "dc3"}
	type told map[Kind]bool
	for _, tt := range []struct {
		name      string
		consensus bool
		kind      registry.ChangeKind
		origin    registry.Origin
		owner     string
		want      told
	}{
		{"a client's cancel: everybody", false, registry.Canceled, client, "", told{Node: true, Datacenter: true, Eureka: true}},
		{"a client's cancel of a remote instance: everybody", true, registry.Canceled, client, "dc3", told{Node: true, Datacenter: true, Eureka: true}},
		{"a remote datacenter's cancel: nodes", false, registry.Canceled, remote, "dc3", told{Node: true}},
		{"a node's cancel: nobody", false, registry.Canceled, node, "", told{}},
		{"an eviction that one node decided for all: datacenters", true, registry.Evicted, client, "", told{Datacenter: true}},
		{"its eviction of a remote instance: nobody", true, registry.Evicted, client, "dc3", told{}},
		{"an eviction of one node without consensus: nobody", false, registry.Evicted, client, "", told{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := &registry.Lease{Instance: instance("ORDERS", "orders-1", 1), Origin: tt.origin, Owner: tt.owner}
			for kind, p := range peersOfAllKinds(tt.consensus) {
				expect.Equal(t, p.tellsRemoval(registry.Change{Index: 12, Lease: l, Kind: tt.kind}), tt.want[kind], "%s: told is", kind)
			}
		})
	}
}

func TestMergedTasksTellWhatBothDid(t *testing.T) {
	removal := registry.Remove{Kind: registry.Canceled, Life: 3}
	for _, tt := range []struct {
		name         string
		older, newer task
		want         task
	}{
		{
			name:  "a heartbeat is dropped beside a registration that waits",
			older: task{facts: registered, first: 4}, newer: task{facts: heartbeat},
			want: task{facts: registered, first: 4},
		},
		{
			name:  "a heartbeat is dropped beside an override that waits",
			older: task{facts: overridden, first: 4}, newer: task{facts: heartbeat},
			want: task{facts: overridden, first: 4},
		},
		{
			name:  "a heartbeat is dropped beside a removal that waits",
			older: task{facts: canceled, first: 4, remove: removal}, newer: task{facts: heartbeat},
			want: task{facts: canceled, first: 4, remove: removal},
		},
		{
			name:  "two heartbeats are one",
			older: task{facts: heartbeat, tries: 2}, newer: task{facts: heartbeat},
			want: task{facts: heartbeat, tries: 2},
		},
		{
			name:  "a registration clears a heartbeat",
			older: task{facts: heartbeat}, newer: task{facts: registered, first: 7},
			want: task{facts: registered, first: 7},
		},
		{
			name:  "an override clears a heartbeat",
			older: task{facts: heartbeat}, newer: task{facts: overridden, first: 7},
			want: task{facts: overridden, first: 7},
		},
		{
			name:  "an override goes with a registration that waits",
			older: task{facts: registered, first: 4, began: true}, newer: task{facts: overridden, first: 7},
			want: task{facts: registered | overridden, first: 4, began: true},
		},
		{
			name:  "a registration goes with an override that waits",
			older: task{facts: overridden, first: 4}, newer: task{facts: registered, first: 7},
			want: task{facts: registered | overridden, first: 4},
		},
		{
			name:  "a removal clears all that was before",
			older: task{facts: registered | overridden, first: 4, began: true}, newer: task{facts: canceled, first: 7, remove: removal},
			want: task{facts: canceled, first: 4, remove: removal},
		},
		{
			name:  "a registration clears a removal, and begins a life that the peer does not know",
			older: task{facts: canceled, first: 4, remove: removal}, newer: task{facts: registered, first: 7},
			want: task{facts: registered, first: 4, began: true},
		},
		{
			name:  "what is overridden after a removal was registered before",
			older: task{facts: canceled, first: 4, remove: removal}, newer: task{facts: overridden, first: 7},
			want: task{facts: registered | overridden, first: 4, began: true},
		},
		{
			name:  "a change that comes back is as old as it was",
			older: task{facts: registered, first: 9}, newer: task{facts: registered, first: 7},
			want: task{facts: registered, first: 7},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			expect.Equal(t, merge(tt.older, tt.newer), tt.want, "got")
		})
	}
}

func TestAMergedTaskIsAsOldAsTheFirst(t *testing.T) {
	before := time.Now()
	later := before.Add(time.Minute)
	older := task{facts: registered, first: 3, queued: before, asOf: before}
	newer := task{facts: canceled, first: 4, queued: later, asOf: later}
	got := merge(older, newer)
	expect.Equal(t, got.queued, before, "queued at")
	expect.Equal(t, got.asOf, later, "the removal is as of")
}
