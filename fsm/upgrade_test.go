package fsm

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// applyEntriesOfVersion1 applies a random log as version 1 of the program wrote it, and returns the
// snapshot that it made of the state afterwards. The file has index, term and length before each entry.
func applyEntriesOfVersion1(t *testing.T, m *Machine) (snapshot []byte) {
	t.Helper()
	d := decoder{b: readGolden(t, filepath.Join("testdata", "v1-log.hex"))}
	for d.left() > 0 {
		index, entryTerm, entry := d.uvarint(), d.uvarint(), d.bytes()
		if d.err != nil {
			t.Fatal(d.err)
		}
		if _, err := m.Apply(index, entryTerm, entry); err != nil {
			t.Fatal(err)
		}
	}
	return readGolden(t, filepath.Join("testdata", "v1-log-snapshot.hex"))
}

// While nodes of both versions serve one cluster, they must come to the same state.
func TestLogOfVersion1GivesTheStateThatVersion1Had(t *testing.T) {
	m := NewMachine()
	want := applyEntriesOfVersion1(t, m)
	if got := snapshotOf(t, m); !bytes.Equal(got, want) {
		t.Errorf("the snapshot differs from that of version 1:\n%x\n%x", got, want)
	}
}

func TestFirstEntryOfVersion2MakesNodesEqualWhateverTheirPast(t *testing.T) {
	settings := registry.DefaultSettings()
	establish := AppendEstablish(nil, Establish{Node: "n1", Cluster: "c1", Settings: &settings})
	quarantine := AppendWrite(nil, registry.Stamp{}, AppendBatch(nil, BatchID{Node: "n", Boot: 1, Seq: 1}, []Item{{Op: registry.Quarantine{}}}))
	for name, entry := range map[string][]byte{"settings": establish, "operation": quarantine} {
		t.Run(name, func(t *testing.T) {
			replayed, restored := NewMachine(), NewMachine()
			if err := restored.Restore(bytes.NewReader(applyEntriesOfVersion1(t, replayed))); err != nil {
				t.Fatal(err)
			}
			for _, m := range []*Machine{replayed, restored} {
				if _, err := m.Apply(m.Index()+1, term, entry); err != nil {
					t.Fatal(err)
				}
			}
			got, want := snapshotOf(t, restored), snapshotOf(t, replayed)
			if !bytes.Equal(got, want) {
				t.Errorf("the node that was restored has another state than the one that read the log:\n%x\n%x", got, want)
			}
			if v := want[len(snapshotMagic)]; v != 2 {
				t.Errorf("snapshot of version %d, want 2", v)
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
	n.establish()
	n.write(registry.SetOverride{Key: registry.Key{App: "ORDERS", ID: "1"}, Status: registry.Down, By: goldenAct})
	n.establish()
	n.write(registry.Renew{Key: registry.Key{App: "ORDERS", ID: "1"}})
	l, ok := n.m.View().Lease(registry.Key{App: "ORDERS", ID: "1"})
	if got := n.m.Snapshot().version; got != 2 || !ok || l.Override == nil || l.Override.By != goldenAct {
		t.Errorf("version %d, lease %+v, want 2 and the override with its author", got, l)
	}
}
