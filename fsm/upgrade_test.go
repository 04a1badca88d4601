package fsm

import (
	"bytes"
	"fmt"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// applyEntriesOf applies a random log as a version of the program wrote it, and returns the snapshot
// that it made of the state afterwards. The file has index, term and length before each entry.
func applyEntriesOf(t *testing.T, version byte, m *Machine) (snapshot []byte) {
	t.Helper()
	name := filepath.Join("testdata", fmt.Sprintf("v%d-log", version))
	d := decoder{b: readGolden(t, name+".hex")}
	for d.left() > 0 {
		index, entryTerm, entry := d.uvarint(), d.uvarint(), d.bytes()
		if d.err != nil {
			t.Fatal(d.err)
		}
		if _, err := m.Apply(index, entryTerm, entry); err != nil {
			t.Fatal(err)
		}
	}
	return readGolden(t, name+"-snapshot.hex")
}

// While nodes of two versions serve one cluster, they must come to the same state.
func TestLogOfAnOlderVersionGivesTheStateThatItHad(t *testing.T) {
	for _, version := range []byte{1, 2, 3} {
		m := NewMachine()
		want := applyEntriesOf(t, version, m)
		if got := snapshotOf(t, m); !bytes.Equal(got, want) || got[len(snapshotMagic)] != version {
			t.Errorf("the snapshot differs from that of version %d:\n%x\n%x", version, got, want)
		}
	}
}

func TestFirstEntryOfAVersionMakesNodesEqualWhateverTheirPast(t *testing.T) {
	settings := registry.DefaultSettings()
	e := Establish{Node: "n1", Cluster: "c1", Settings: &settings}
	establish, before := AppendEstablish(nil, e), establishOf(2, e)
	batchOf := func(it Item) []byte {
		return AppendWrite(nil, registry.Stamp{}, AppendBatch(nil, BatchID{Node: "n", Boot: 1, Seq: 1}, []Item{it}))
	}
	batch := func(op registry.Op) []byte { return batchOf(Item{Op: op}) }
	session := batchOf(Item{KV: kv.CreateSession{ID: "s1", TTL: 10_000}})
	for _, c := range []struct {
		name       string
		past, next byte
		entry      []byte
	}{
		{"settings of version 2 after version 1", 1, 2, before},
		{"settings after version 1", 1, 4, establish},
		{"settings after version 3", 3, 4, establish},
		{"operation after version 1", 1, 2, batch(registry.Quarantine{})},
		{"operation of version 3 after version 1", 1, 3, batch(registry.AckPeer{Peer: "dc2", Cursor: 1})},
		{"operation of version 3 after version 2", 2, 3, batch(registry.AckPeer{Peer: "dc2", Cursor: 1})},
		{"session after version 1", 1, 4, session},
		{"session after version 2", 2, 4, session},
		{"session after version 3", 3, 4, session},
		{"check after version 3", 3, 4, batch(registry.SetCheck{Check: "none"})},
	} {
		t.Run(c.name, func(t *testing.T) {
			replayed, restored := NewMachine(), NewMachine()
			if err := restored.Restore(bytes.NewReader(applyEntriesOf(t, c.past, replayed))); err != nil {
				t.Fatal(err)
			}
			for _, m := range []*Machine{replayed, restored} {
				if _, err := m.Apply(m.Index()+1, term, c.entry); err != nil {
					t.Fatal(err)
				}
			}
			got, want := snapshotOf(t, restored), snapshotOf(t, replayed)
			if !bytes.Equal(got, want) {
				t.Errorf("the node that was restored has another state than the one that read the log:\n%x\n%x", got, want)
			}
			if v := want[len(snapshotMagic)]; v != c.next {
				t.Errorf("snapshot of version %d, want %d", v, c.next)
			}
		})
	}
}

// What version 3 adds follows from what version 2 says, not from what a node knows better.
func TestVersion3FollowsFromVersion2(t *testing.T) {
	set := func(change func(*registry.Lease)) *registry.Lease {
		l := &registry.Lease{Instance: &registry.Instance{App: "A", InstanceID: "1"}, Registered: 3, Changed: 7}
		change(l)
		return l
	}
	better := func(l *registry.Lease) {
		l.Owner, l.Edit, l.ByClient, l.ByRemote, l.Described, l.Overrode = "dc9", 9, 9, 9, 9, 9
	}
	dc2 := registry.Origin{Kind: registry.RemoteDC, DC: "dc2"}
	for _, c := range []struct {
		name         string
		lease        func(*registry.Lease)
		live, record func(*registry.Lease)
	}{
		{"of a client", func(*registry.Lease) {},
			func(l *registry.Lease) { l.ByClient, l.Described = 7, 3 },
			func(*registry.Lease) {}},
		{"of a remote datacenter", func(l *registry.Lease) { l.Origin = dc2 },
			func(l *registry.Lease) { l.Owner, l.ByRemote, l.Described = "dc2", 7, 3 },
			func(l *registry.Lease) { l.Owner = "dc2" }},
		{"of a node of the own datacenter", func(l *registry.Lease) { l.Origin.Kind = registry.LocalPeer },
			func(l *registry.Lease) { l.Described = 3 },
			func(*registry.Lease) {}},
		{"with an override", func(l *registry.Lease) { l.Instance.Overridden = registry.Down },
			func(l *registry.Lease) { l.ByClient, l.Described, l.Overrode = 7, 3, 7 },
			func(*registry.Lease) {}},
	} {
		t.Run(c.name, func(t *testing.T) {
			known := func() *registry.Lease { l := set(c.lease); better(l); return l }
			f := registry.Frozen{
				Leases:   []registry.LeaseState{{Lease: known(), Client: 9, Remote: 9}},
				Removals: []registry.Removal{{Lease: known()}},
				Links:    []registry.Link{{DC: "dc2"}}, Senders: []registry.Sender{{Name: "s"}}, Peers: []registry.PeerState{{Name: "dc2"}},
			}
			beginVersion3(&f)
			live, record := set(c.lease), set(c.lease)
			c.live(live)
			c.record(record)
			want := registry.Frozen{Leases: []registry.LeaseState{{Lease: live}}, Removals: []registry.Removal{{Lease: record}}}
			if !reflect.DeepEqual(f, want) {
				t.Errorf("got %+v and %+v of %+v, want %+v and %+v", f.Leases[0].Lease, f.Removals[0].Lease, f, live, record)
			}
		})
	}
}

func TestUpgradeHappensOnce(t *testing.T) {
	n := newNode(t)
	n.write(registry.Register{Instance: instance("ORDERS", "1")})
	if got := n.m.Snapshot().version; got != 1 {
		t.Errorf("version %d before something of version 2 was applied, want 1", got)
	}
	n.establishAs(2)
	n.write(registry.SetOverride{Key: registry.Key{App: "ORDERS", ID: "1"}, Status: registry.Down, By: goldenAct})
	n.establishAs(2)
	n.write(registry.Renew{Key: registry.Key{App: "ORDERS", ID: "1"}})
	l, ok := n.m.View().Lease(registry.Key{App: "ORDERS", ID: "1"})
	if got := n.m.Snapshot().version; got != 2 || !ok || l.Override == nil || l.Override.By != goldenAct {
		t.Errorf("version %d, lease %+v, want 2 and the override with its author", got, l)
	}
	n.write(registry.AckPeer{Peer: "dc2", Cursor: 2})
	n.establishAs(2)
	n.write(registry.SetOverride{Key: registry.Key{App: "ORDERS", ID: "1"}, Status: registry.Down})
	if got, peer := n.m.Snapshot().version, n.m.View().Peer("dc2"); got != 3 || peer.Cursor != 2 {
		t.Errorf("version %d, peer %+v, want 3 and the cursor at 2", got, peer)
	}
	n.writeKV(kv.KeyOp{Key: "a"})
	n.establish()
	n.write(registry.SetCheck{Check: "none"}, registry.AckPeer{Peer: "dc2", Cursor: 3})
	e, _ := n.m.KV().Get("a")
	if got, peer := n.m.Snapshot().version, n.m.View().Peer("dc2"); got != 4 || e == nil || peer.Cursor != 3 {
		t.Errorf("version %d, key %+v, peer %+v, want 4, the key and the cursor at 3", got, e, peer)
	}
}
