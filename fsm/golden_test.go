package fsm

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/golden"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// goldens has every record at level 1. A difference means that existing logs and snapshots are no longer read as they
// were written: docs/adr/0023 says what to do then.
const goldens = golden.File("testdata/level-1.txtar")

func goldenInstance() *registry.Instance {
	return &registry.Instance{
		InstanceID: "orders-1", HostName: "orders-1.example.com", App: "ORDERS", IPAddr: "192.0.2.1", SID: "na",
		Status: registry.Up, Overridden: registry.OutOfService,
		Port: registry.Port{Number: 8080, Enabled: true}, SecurePort: registry.Port{Number: 443}, CountryID: 1,
		DataCenter: registry.DataCenter{Name: registry.Amazon,
			Metadata: []registry.Pair{{Key: "availability-zone", Value: "us-east-1c"}}},
		RenewalInterval: 30, Duration: 90,
		Metadata: []registry.Pair{{Key: "version", Value: "1.10"}, {Key: "zone", Value: "a"}},
		AppGroup: "SHOP", HomePageURL: "http://orders-1/", StatusPageURL: "http://orders-1/info",
		HealthCheckURL: "http://orders-1/health", SecureHealthURL: "https://orders-1/health",
		VIP: "orders,shop", SecureVIP: "orders-tls", ASG: "orders-asg", LastDirty: 1_700_000_000_123,
	}
}

var goldenKey = registry.Key{App: "ORDERS", ID: "orders-1"}

func goldenOps() map[string]registry.Op {
	handle := registry.Handle{Slot: 300, Gen: 70_000}
	return map[string]registry.Op{
		"renew-handle": registry.Renew{Handle: handle, LastDirty: 1_700_000_000_123},
		"renew-key":    registry.Renew{Key: goldenKey, LastDirty: 1_700_000_000_123, Overridden: registry.Down},
		"renew-handle-override": registry.Renew{Handle: handle, LastDirty: 1_700_000_000_123,
			Overridden: registry.OutOfService},
		"register":     registry.Register{Instance: goldenInstance()},
		"cancel":       registry.Cancel{Key: goldenKey},
		"set-override": registry.SetOverride{Key: goldenKey, Status: registry.OutOfService, LastDirty: 1_700_000_000_124},
		"delete-override": registry.DeleteOverride{Key: goldenKey, Fallback: registry.Starting,
			LastDirty: 1_700_000_000_125},
		"update-metadata": registry.UpdateMetadata{Key: goldenKey, Pairs: []registry.Pair{{Key: "zone", Value: "b"}}},
		"evict": registry.Evict{Epoch: registry.Epoch{Term: 3, Index: 1000},
			Items: []registry.EvictItem{{Handle: handle, Registered: 17, RenewedAt: 123_456}}},
		"set-override-by": registry.SetOverride{Key: goldenKey, Status: registry.OutOfService, LastDirty: 1_700_000_000_124,
			For: 600_000, By: goldenAct},
		"delete-override-by": registry.DeleteOverride{Key: goldenKey, LastDirty: 1_700_000_000_125, By: goldenAct},
		"end-override":       registry.EndOverride{Epoch: registry.Epoch{Term: 3, Index: 1000}, Handle: handle, Set: 18},
		"quarantine":         registry.Quarantine{Key: goldenKey, For: 600_000, By: goldenAct},
		"end-quarantine":     registry.EndQuarantine{Epoch: registry.Epoch{Term: 3, Index: 1000}, Handle: handle, Set: 19},
		"self-preservation": registry.SelfPreservation{Epoch: registry.Epoch{Term: 3, Index: 1000}, From: registry.PreservationOff,
			To: registry.PreservationHeld, For: 1_800_000, By: goldenAct, Figures: goldenFigures},
		"replica": registry.Replica{Instance: goldenInstance(), Life: 2, Edit: 3, Owner: "dc2", Age: 1500, Overridden: registry.OutOfService,
			OverrideBy: goldenAct, OverrideFor: 600_000, QuarantineFor: 90_000, QuarantineBy: registry.Act{Author: "bob"}},
		"remove": registry.Remove{Key: goldenKey, Kind: registry.Evicted, Life: 2, LastDirty: 1_700_000_000_123, Owner: "dc2", Age: 91_000},
		"renew-life": registry.Renew{Key: goldenKey, LastDirty: 1_700_000_000_123, Overridden: registry.Down, Life: 2,
			Age: 1500},
		"contact":       registry.Contact{DC: "dc2", Sender: "n3-90aa", Incarnation: 3, Clock: 123_456, Cut: 15_000, Age: 1200},
		"ack-peer":      registry.AckPeer{Peer: "dc2", Cursor: 300},
		"forget-sender": registry.ForgetSender{Sender: "n3-90aa", By: goldenAct},
		"pause-peer":    registry.PausePeer{Peer: "dc2", Paused: true, By: goldenAct},
	}
}

var (
	goldenAct     = registry.Act{Author: "amy", Reason: "disk is full"}
	goldenFigures = registry.Figures{Leases: 20, Counted: 18, Fresh: 8, Expired: 3, Renewals: 36, Threshold: 34}
)

func goldenSettings() *registry.Settings {
	return &registry.Settings{SelfPreservation: true, Threshold: 850_000, Population: 10, Bound: 3_600_000, Expectation: true,
		ExpectedInterval: 30, ExpectationUpdate: 900_000, DoubledLease: true, OnCut: "dc2=expire"}
}

func TestGoldenOperations(t *testing.T) {
	origins := map[registry.OriginKind]registry.Origin{
		registry.Client: registry.FromClient, registry.LocalPeer: {Kind: registry.LocalPeer}, registry.RemoteDC: registry.FromEureka,
	}
	for name, op := range goldenOps() {
		t.Run(name, func(t *testing.T) {
			goldens.Check(t, "op-"+name, itemBytesAt(codec.Oldest, Item{Origin: registry.FromClient, Op: op}))
		})
	}
	for kind, origin := range origins {
		goldens.Check(t, "origin-"+[]string{"client", "local-peer", "remote-dc"}[kind],
			itemBytes(Item{Origin: origin, Op: registry.Cancel{Key: goldenKey}}))
	}
}

func TestGoldenEntries(t *testing.T) {
	stamp := registry.Stamp{Lease: 61_000, Wall: 1_700_000_000_200}
	batch := AppendBatch(nil, codec.Oldest, BatchID{Node: "n1-7f3a", Boot: 2, Seq: 41, Finished: 39, Bound: Bound{Leadership: 17, Until: 5000}},
		[]Item{{Op: goldenOps()["renew-handle"]}, {Op: goldenOps()["cancel"]}})
	goldens.Check(t, "batch", batch)
	goldens.Check(t, "entry-tick", AppendWrite(nil, codec.Oldest, stamp, 0))
	goldens.Check(t, "entry-write", AppendWrite(nil, codec.Oldest, stamp, 1200, batch, batch))
	goldens.Check(t, "entry-establish", AppendEstablish(nil, codec.Oldest, Establish{Node: "n1-7f3a", Cluster: "c-5d21"}))
	goldens.Check(t, "entry-raise", AppendRaise(nil, codec.Oldest, codec.Oldest))
	goldens.Check(t, "batch-quarantine", AppendBatch(nil, codec.Oldest, BatchID{Node: "n1-7f3a", Boot: 2, Seq: 42, Finished: 40},
		[]Item{{Op: goldenOps()["renew-handle"]}, {Op: goldenOps()["quarantine"]}}))
	goldens.Check(t, "batch-replicated", AppendBatch(nil, codec.Oldest, BatchID{Node: "n1-7f3a", Boot: 2, Seq: 43, Finished: 41},
		[]Item{{Op: goldenOps()["quarantine"]}, {Origin: registry.Origin{Kind: registry.RemoteDC, DC: "dc2"}, Op: goldenOps()["renew-life"]}}))
	establish := Establish{Node: "n1-7f3a", Cluster: "c-5d21", Settings: goldenSettings()}
	goldens.Check(t, "entry-establish-settings", AppendEstablish(nil, codec.Oldest, establish))
}

// Servers compare these numbers, so they must be the same in every process and every version.
func TestGoldenDigest(t *testing.T) {
	l := &registry.Lease{Instance: goldenInstance(), Life: 2, Edit: 3}
	goldens.Check(t, "digest", binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, l.Instance.Fingerprint()), l.Sum()))
}

func TestGoldenResults(t *testing.T) {
	goldens.Check(t, "results", AppendResults(nil, codec.Oldest, BatchResult{
		ID: BatchID{Node: "n1-7f3a", Boot: 2, Seq: 41, Finished: 39},
		Results: Results{Registry: []registry.Result{{Outcome: registry.Done}, {Outcome: registry.NotFound},
			{Index: 18, Handle: registry.Handle{Slot: 300, Gen: 70_000}}, {Index: 19, Count: 2}}},
	}))
	goldens.Check(t, "results-refused", AppendResults(nil, codec.Oldest, BatchResult{ID: BatchID{Node: "n1", Boot: 1, Seq: 1, Finished: 1}, Refused: true}))
}

func TestGoldenSnapshot(t *testing.T) {
	b := encoded(t, goldenSnapshot())
	goldens.Check(t, "snapshot", b)
	got, err := readSnapshot(bytes.NewReader(b))
	expect.That(t, err == nil && reflect.DeepEqual(&got, goldenSnapshot()), "read again: got %+v, %v, want %+v", got, err, goldenSnapshot())
}

func TestGoldenRecordsOfTheLocalDisk(t *testing.T) {
	f := goldenSnapshot().registry
	goldens.Check(t, "disk-lease", AppendLeaseState(nil, codec.Oldest, f.Leases[0]))
	goldens.Check(t, "disk-removal", AppendRemoval(nil, codec.Oldest, f.Removals[0]))
	goldens.Check(t, "disk-registry", AppendFrozen(nil, codec.Oldest, f))
}

// goldenWithPeers returns a snapshot with knowledge about other servers.
func goldenWithPeers() *Snapshot {
	s := goldenWithActs()
	f := &s.registry
	l := f.Leases[0].Lease
	l.Owner, l.Edit = "dc2", 3
	l.ByClient, l.ByRemote, l.Described, l.Overrode = 5, 4, 2, 3
	f.Leases[0].Client, f.Leases[0].Remote = 60_400, 60_500
	f.Removals[0].Lease.Owner, f.Removals[0].Lease.Edit = "dc3", 1
	f.Links = []registry.Link{{DC: "dc2", LastContact: 60_500, Since: 20_000, Cut: 15_000}, {DC: "dc3", LastContact: 30_000, Since: 30_000, Cut: 15_000}}
	f.Senders = []registry.Sender{{Name: "c-77e0", DC: "dc2", Incarnation: 3, Clock: 123_456, LastMessage: registry.Stamp{Lease: 100, Wall: 1_700_000_000_000}}}
	f.Peers = []registry.PeerState{
		{Name: "dc2", Cursor: 4, Known: true},
		{Name: "dc3", Paused: true, By: goldenAct, Since: registry.Stamp{Lease: 58_000, Wall: 1_699_999_998_100}},
	}
	return s
}

// goldenWithActs returns a snapshot with acts of operators, and histories.
func goldenWithActs() *Snapshot {
	s := goldenLeases()
	f := &s.registry
	since := registry.Stamp{Lease: 60_000, Wall: 1_700_000_000_100}
	l := f.Leases[0].Lease
	l.BeganLease, l.StartedLease = 20_000, 60_000
	l.Override = &registry.Override{By: goldenAct, At: since, Until: 660_000, Reported: registry.Up, Set: 3}
	l.Quarantine = &registry.Quarantined{By: goldenAct, At: since, Until: 90_000, Set: 5}
	f.Leases[0].History = registry.HistoryOf([]registry.Event{
		{At: registry.Stamp{Lease: 20_000, Wall: 1_699_999_960_100}, Kind: registry.EventRegistered, Times: 1, Status: registry.Starting,
			Origin: registry.FromEureka},
		{At: since, Kind: registry.EventOverridden, Times: 2, Status: registry.OutOfService, For: 600_000, By: goldenAct},
	})
	f.Removals[0].History = registry.HistoryOf([]registry.Event{
		{At: registry.Stamp{Lease: 59_000, Wall: 1_700_000_000_090}, Kind: registry.EventCanceled, Times: 1, Status: registry.Up}})
	f.Settings = *goldenSettings()
	f.Transitions = []registry.Preservation{
		{State: registry.PreservationOn, Since: registry.Stamp{Lease: 55_000, Wall: 1_699_999_995_100}, Until: 3_655_000, Figures: goldenFigures},
		{State: registry.PreservationReleased, Since: since, By: goldenAct, Figures: goldenFigures},
	}
	f.Preservation = f.Transitions[1]
	f.Expectation = registry.ExpectationState{Clients: 20, Minute: 1, Current: 2, Last: 36, NextUpdate: 900_000}
	return s
}

// goldenLeases returns a snapshot with a lease, the record of another, and the memory of batches.
func goldenLeases() *Snapshot {
	lease := &registry.Lease{
		Instance: goldenInstance(), Handle: registry.Handle{Slot: 2, Gen: 4}, Interval: 30, Duration: 90,
		RegisteredAt: 1_700_000_000_100, ServiceUpAt: 1_700_000_000_050, UpdatedAt: 1_700_000_000_100,
		RenewedAt: registry.Stamp{Lease: 60_000, Wall: 1_700_000_000_100}, Action: registry.ActionAdded,
		Life: 2, Registered: 5, Changed: 5, ChangedLease: 60_000, Origin: registry.FromEureka, Defined: 5,
	}
	gone := &registry.Lease{
		Instance:  &registry.Instance{InstanceID: "carts-1", App: "CARTS", LastDirty: 1_699_999_999_000},
		EvictedAt: 1_700_000_000_090, Action: registry.ActionDeleted, Life: 1, Changed: 4, ChangedLease: 59_000,
	}
	s := &Snapshot{
		level:  codec.Oldest,
		tenure: 1200,
		index:  1234,
		nodes: []frozenNode{
			{name: "n1-7f3a", nodeMemory: nodeMemory{boot: 2, finished: 39, batches: []remembered{
				{seq: 40, results: Results{Registry: []registry.Result{{Index: 5, Handle: lease.Handle}}}},
				{seq: 41, results: Results{Registry: []registry.Result{{}, {Outcome: registry.NotFound}}}},
			}}},
			{name: "n2-11c0", nodeMemory: nodeMemory{boot: 1, finished: 7}},
		},
		registry: registry.Frozen{
			Index: 5, Clock: registry.Stamp{Lease: 61_000, Wall: 1_700_000_001_100},
			Epoch: registry.Epoch{Term: 3, Index: 1000}, Established: 50_000, Cluster: "c-5d21",
			Slots: 3, Generation: 4, Free: []uint32{1, 0},
			Leases:   []registry.LeaseState{{Lease: lease, Renewed: registry.Stamp{Lease: 60_500, Wall: 1_700_000_000_600}}},
			Removals: []registry.Removal{{Kind: registry.Canceled, Lease: gone}}, Pruned: 1,
			Registered: []registry.Recent{{Wall: 1_700_000_000_100, Key: goldenKey}},
			Canceled:   []registry.Recent{{Wall: 1_700_000_000_090, Key: gone.Key()}},
		},
	}
	s.kv = kvBeside(s.registry)
	return s
}

const goldenSession = "adf4238a-882b-9ddc-4a9d-5b6758e4159e"

func goldenCatalogOps() map[string]registry.Op {
	node := goldenNode()
	node.Checks, node.CreateIndex, node.ModifyIndex = nil, 0, 0
	service := goldenService()
	service.CreateIndex, service.ModifyIndex = 0, 0
	return map[string]registry.Op{
		"register-catalog": registry.RegisterCatalog{Node: node, KeepNode: true, Service: service, Instance: goldenInstance(),
			Checks: []*catalog.Check{goldenCheck("alive")}, ReplaceChecks: true, KeepStatus: true},
		"deregister-catalog": registry.DeregisterCatalog{Node: "db-1", Service: "orders-1", Check: "alive",
			Epoch: registry.Epoch{Term: 3, Index: 1000}, CriticalSince: 58_000},
		"set-check": registry.SetCheck{Node: "db-1", Check: "alive", Status: catalog.Warning, Output: "slow", TTL: true,
			Epoch: registry.Epoch{Term: 3, Index: 1000}},
		"expire-check": registry.ExpireCheck{Epoch: registry.Epoch{Term: 3, Index: 1000}, Node: "db-1", Check: "alive", RenewedAt: 58_000},
	}
}

func goldenNode() *catalog.Node {
	return &catalog.Node{ID: "40e4a748-2192-161a-0510-9bf59fe950b5", Name: "db-1", Address: "192.0.2.7",
		Tagged: []registry.Pair{{Key: "lan", Value: "192.0.2.7"}}, Meta: []registry.Pair{{Key: "rack", Value: "4"}},
		Checks: []*catalog.Check{goldenCheck("disk")}, CreateIndex: 2, ModifyIndex: 3, ChecksChanged: 4, ServiceLeft: 5}
}

func goldenService() *catalog.Service {
	return &catalog.Service{Name: "orders", ID: "orders-1", Node: "db-1", Tags: []string{"primary", "v2"}, Address: "192.0.2.1", Port: 8080,
		Tagged:        []catalog.TaggedAddress{{Tag: "lan", Address: "192.0.2.1", Port: 8081}},
		WeightPassing: 10, WeightWarning: 1, TagOverride: true, Kind: "typical", SocketPath: "/run/orders",
		Locality: []byte(`{"Region":"eu"}`), Ports: []byte(`[1]`), Checks: []*catalog.Check{goldenCheck("alive")}, CreateIndex: 4, ModifyIndex: 5,
		Proxy: []byte(`{"Mode":""}`), Native: true}
}

func goldenCheck(id string) *catalog.Check {
	return &catalog.Check{Node: "db-1", ID: id, Name: "Is it " + id, Notes: "every 10 s", Output: "connection refused", Status: catalog.Critical,
		Service: "orders-1", Type: "http", TTL: 15_000, ReapAfter: 90_000,
		Probe: &catalog.Probe{HTTP: "http://192.0.2.1:8080/", Method: "HEAD", Body: "{}", Header: []registry.Pair{{Key: "X-Probe", Value: "1"}},
			SkipVerify: true, NoRedirects: true, TCP: "192.0.2.1:8080", Interval: 10_000, Timeout: 2000,
			SuccessBeforePassing: 1, FailuresBeforeWarning: 2, FailuresBeforeCritical: 3,
			GRPC: "192.0.2.1:9090/orders", UDP: "192.0.2.1:53", H2PING: "192.0.2.1:9443", UseTLS: true, ServerName: "orders.example"},
		Definition: []byte(`{"Interval":"10s"}`), CreateIndex: 4, ModifyIndex: 5, CriticalSince: 58_000,
		Alias: &catalog.Alias{Named: true, Node: "db-2", Service: "orders-2"}}
}

func goldenKVOps() map[string]kv.Op {
	fence := kv.Fence{Kind: kv.Lock, Name: "nightly", Index: 17}
	acquire := kv.KeyOp{Verb: kv.Acquire, Key: "jobs/leader", Value: []byte("n1"), Flags: 42, Session: goldenSession}
	epoch := kv.Epoch{Term: 3, Index: 1000}
	return map[string]kv.Op{
		"set":     kv.KeyOp{Verb: kv.Set, Key: "jobs/leader", Value: []byte("n1"), Fence: &fence},
		"acquire": acquire,
		"txn": keyTxn([]kv.KeyOp{{Verb: kv.CAS, Key: "a", Value: []byte("1"), Index: 300}, {Verb: kv.GetTree, Key: "jobs/"},
			{Verb: kv.DeleteTree}, {Verb: kv.CheckSession, Key: "a", Session: goldenSession}}),
		"txn-catalog": kv.Txn{Ops: []kv.TxnOp{{Key: &acquire}, {Session: goldenSession},
			{Catalog: &registry.CatalogOp{Verb: registry.CatalogCAS, Node: "db-1", Check: "disk", Index: 5,
				Register: &registry.RegisterCatalog{Node: &catalog.Node{Name: "db-1"}, KeepNode: true, Checks: []*catalog.Check{goldenCheck("disk")}}}},
			{Catalog: &registry.CatalogOp{Verb: registry.CatalogDeleteCAS, Node: "db-1", Service: "orders-1", Index: 300}},
			{Catalog: &registry.CatalogOp{Node: "db-1"}}}},
		"create-session": kv.CreateSession{ID: goldenSession, Name: "worker", Node: "db-1", TTL: 15_000, TTLText: "15s", LockDelay: 15_000_000_000,
			Behavior: kv.DeleteKeys, Checks: []string{"alive"}, NodeChecks: []string{"disk"}, ServiceChecks: []string{"alive"}},
		"renew-session":   kv.RenewSession{ID: goldenSession},
		"destroy-session": kv.DestroySession{ID: goldenSession},
		"expire-session":  kv.ExpireSession{Epoch: epoch, ID: goldenSession, Created: 16, RenewedAt: 45_000},
		"end-delay":       kv.EndDelay{Epoch: epoch, Kind: kv.Semaphore, Name: "workers", Until: 61_000},
		"acquire-permit":  kv.AcquirePermit{Kind: kv.Semaphore, Name: "workers", Session: goldenSession, Limit: 3, Value: []byte("host-7"), Wait: 10_000},
		"release-permit":  kv.ReleasePermit{Kind: kv.Lock, Name: "nightly", Session: goldenSession, Index: 17},
		"leave-queue":     kv.LeaveQueue{Kind: kv.Lock, Name: "nightly", Session: goldenSession, Release: true},
		"once":            kv.Once{Key: "7c0d", Op: acquire},
		"stage-part":      kv.StagePart{ID: "r-1", By: goldenAct, Part: 3, Content: []byte("packed")},
		"restore":         kv.Restore{ID: "r-1", Parts: 4, By: goldenAct, Newest: 90211, KeysOnly: true, Prefix: "config/", KeepSessions: true, Founding: true},
		"drop-staged":     kv.DropStaged{ID: "r-1"},
	}
}

func TestGoldenOperationsOfCoordination(t *testing.T) {
	for name, op := range goldenCatalogOps() {
		goldens.Check(t, "op-"+name, itemBytesAt(codec.Oldest, Item{Op: op}))
	}
	for name, op := range goldenKVOps() {
		goldens.Check(t, "kv-"+name, itemBytesAt(codec.Oldest, Item{KV: op}))
	}
	goldens.Check(t, "batch-coordination", AppendBatch(nil, codec.Oldest, BatchID{Node: "n1-7f3a", Boot: 2, Seq: 44, Finished: 42},
		[]Item{{Op: goldenOps()["renew-handle"]}, {KV: goldenKVOps()["acquire"]}, {Op: goldenCatalogOps()["set-check"]}}))
}

func goldenPair() *kv.Pair {
	return &kv.Pair{Key: "jobs/leader", Value: []byte("n1"), Flags: 42, Session: goldenSession, LockIndex: 2, CreateIndex: 3, ModifyIndex: 5, Fence: 4}
}

func goldenSessionState() *kv.Session {
	return &kv.Session{ID: goldenSession, Name: "worker", Node: "db-1", TTL: 15_000, TTLText: "15s", LockDelay: 15_000_000_000,
		Behavior: kv.DeleteKeys, Checks: []string{}, NodeChecks: []string{"disk"}, ServiceChecks: []string{"alive"},
		CreateIndex: 2, ModifyIndex: 2, CreatedAt: 30_000, CreatedWall: 1_699_999_970_100}
}

// goldenKVResults returns one result of each form.
func goldenKVResults() []kv.Result {
	return []kv.Result{
		{},
		{OK: true, Index: 5, Fence: 4},
		{OK: true, Index: 6, Pairs: []*kv.Pair{goldenPair(), {Key: "a"}}},
		{Errors: []kv.TxnError{{OpIndex: 1, What: `key "a" doesn't exist`}}},
		{OK: true, Index: 2, Session: goldenSessionState()},
		{Place: 3, Limit: 2},
		{Refusal: `invalid session "x"`},
		{OK: true, Index: 7, Pairs: []*kv.Pair{{Key: "a"}}, Found: []kv.Found{
			{Found: registry.Found{Node: &catalog.Node{Name: "db-2", CreateIndex: 3, ModifyIndex: 3}}},
			{Pairs: 1, Found: registry.Found{Service: &registry.Lease{Instance: instance("ORDERS", "orders-1"), Service: goldenService(), Registered: 4, Defined: 5, Permanent: true}, Name: "orders"}},
			{Pairs: 1, Found: registry.Found{Check: goldenCheck("disk"), Name: "orders", Tags: []string{"v1"}}}}},
	}
}

func TestGoldenResultsOfCoordination(t *testing.T) {
	id := BatchID{Node: "n1-7f3a", Boot: 2, Seq: 44, Finished: 42}
	all := goldenKVResults()
	goldens.Check(t, "results-coordination", AppendResults(nil, codec.Oldest, BatchResult{ID: id, Results: Results{make([]registry.Result, len(all)), all}}))
	goldens.Check(t, "results-catalog", AppendResults(nil, codec.Oldest, BatchResult{ID: id, Results: Results{Registry: []registry.Result{
		{}, {Outcome: registry.UnknownService}, {Outcome: registry.NameTaken}, {Outcome: registry.NoTTL}}}}))
}

// goldenSnapshot is built from values, so that the file shows the format and not the rules for its content.
func goldenSnapshot() *Snapshot {
	s := goldenWithPeers()
	s.nodes[0].batches[1].results.KV = []kv.Result{{}, {OK: true, Index: 5, Fence: 4}}
	f := &s.registry
	f.Leases[0].Lease.Permanent, f.Leases[0].Lease.Service = true, goldenService()
	f.Removals[0].Lease.Permanent = true
	f.Reserved, f.CatalogIndex, f.Restored = 7, 3, 2
	f.Parts = registry.PartIndexes{Services: 5, Nodes: 3, Checks: 4, LogicalServices: 2, Logical: 1}
	f.Nodes = []*catalog.Node{goldenNode(), {Name: "db-2", CreateIndex: 3, ModifyIndex: 3}}
	f.CheckHeartbeats = []catalog.CheckHeartbeat{{Node: "db-1", Check: "alive", At: 57_000}, {Node: "db-1", Check: "disk", At: 58_000}}
	s.kv = goldenKV(*f)
	return s
}

func goldenRestoration() *kv.Restoration {
	return &kv.Restoration{ID: "r-1", By: goldenAct, Index: 3, Wall: 1_700_000_000_100, Instances: 4, InstancesStayed: 5, Keys: 6, KeysDeleted: 7, SessionsEnded: 8}
}

// kvBeside returns coordination without content, at the moment of a registry.
func kvBeside(f registry.Frozen) kv.Frozen {
	return kv.Frozen{Lease: f.Clock.Lease, Epoch: f.Epoch, Established: f.Established}
}

func goldenKV(beside registry.Frozen) kv.Frozen {
	f := kvBeside(beside)
	f.Index, f.KeysIndex, f.SessionsIndex, f.PermitsIndex, f.Pruned = 7, 6, 5, 4, 1
	f.Pairs = []*kv.Pair{{Key: "a", CreateIndex: 6, ModifyIndex: 6}, goldenPair()}
	f.Deletions = []kv.Deletion{{Key: "jobs/old", Index: 5, At: 50_000, Fence: 2}}
	f.Sessions = []kv.SessionState{{Session: goldenSessionState(), Renewed: 60_400}}
	f.Delays = []kv.Delay{{Key: "jobs/old", Until: 65_000}}
	f.Permits = []*kv.Permits{
		{Kind: kv.Lock, Name: "nightly", Limit: 1, Delays: []int64{64_000}, ModifyIndex: 3},
		{Kind: kv.Semaphore, Name: "workers", Limit: 2, ModifyIndex: 4,
			Holders: []kv.Holder{{Session: goldenSession, Fence: 4, Since: 59_000, Wall: 1_699_999_999_100, Value: []byte("host-7")}},
			Queue:   []kv.Waiter{{Session: "b", Since: 60_000, Until: 70_000, Value: []byte("host-8")}}},
	}
	f.Restored, f.Last = 2, goldenRestoration()
	f.Staged = kv.Staged{ID: "r-2", By: goldenAct, Parts: 1, Since: 60_000, Image: kv.Image{
		Image: registry.Image{Nodes: []*catalog.Node{goldenNode()}, Instances: []registry.Saved{
			{Replica: goldenOps()["replica"].(registry.Replica), Service: goldenService()}}},
		Pairs: []*kv.Pair{goldenPair()}, Sessions: []*kv.Session{goldenSessionState()},
		Permits: []*kv.Permits{{Kind: kv.Lock, Name: "nightly", Limit: 1, Delays: []int64{64_000}, ModifyIndex: 3}},
	}}
	f.Kept = []kv.KeptResult{{Key: "7c0d", At: 59_000, Hash: 0xfeed, Result: goldenKVResults()[1]}}
	return f
}

// goldensOfLevel3 has what level 3 writes in another way than level 2: drains, overrides that wait in records of
// removal, what alias checks may follow, where probes were registered from, and the order of a client's registrations
// with the status in its heartbeats.
const goldensOfLevel3 = golden.File("testdata/level-3.txtar")

func TestGoldenLevel3(t *testing.T) {
	drain := goldenOps()["set-override-by"].(registry.SetOverride)
	replica := goldenOps()["replica"].(registry.Replica)
	drain.Drain, replica.Drain, replica.Said = true, true, 1_699_999_990_000
	renew := registry.Renew{Key: registry.NewKey("orders", "orders-1"), LastDirty: 1_699_999_990_001, Status: registry.Up}
	goldensOfLevel3.Check(t, "entry-raise", AppendRaise(nil, 2, 3))
	alias := goldenCheck("alias")
	alias.Alias.By, alias.Alias.Reads = "c1a7", "ORDERS"
	alias.Probe.From = "192.0.2.9"
	follows := registry.RegisterCatalog{Checks: []*catalog.Check{alias}}
	for name, op := range map[string]registry.Op{"op-drain": drain, "op-replica-drain": replica, "op-alias": follows, "op-renew-status": renew} {
		it := Item{Origin: registry.FromClient, Op: op}
		goldensOfLevel3.Check(t, name, itemBytesAt(3, it))
		expect.Equal(t, Need(it), byte(codec.Oldest), "%s is not refused below level 3, but loses what came with it: it needs level", name)
	}
	s := goldenSnapshot()
	s.level = 3
	s.registry.Leases[0].Lease.Override.Drain = true
	s.registry.Leases[0].Lease.Said, s.registry.Leases[0].Lease.Outdated, s.registry.Leases[0].Asked = 1_699_999_990_000, 1_699_999_990_002, 3
	waits := *s.registry.Leases[0].Lease.Override
	waits.Drain = false
	s.registry.Removals[0].Lease.Override = &waits
	goldensOfLevel3.Check(t, "snapshot", encoded(t, s))
	read := need.Got(readSnapshot(bytes.NewReader(goldensOfLevel2.Sections(t, "snapshot")["snapshot"])))(t)
	expect.Equal(t, read.level, byte(2), "the snapshot of level 2 is read as of level")
}

// goldensOfLevel2 has what level 2 writes in another way than level 1: the version in front, and the results of its
// bounds.
const goldensOfLevel2 = golden.File("testdata/level-2.txtar")

func TestGoldenLevel2(t *testing.T) {
	id := BatchID{Node: "n1-7f3a", Boot: 2, Seq: 41, Finished: 39}
	batch := AppendBatch(nil, 2, id, []Item{{Op: goldenOps()["renew-handle"]}, {Op: goldenOps()["cancel"]}})
	goldensOfLevel2.Check(t, "entry-write", AppendWrite(nil, 2, registry.Stamp{Lease: 61_000, Wall: 1_700_000_000_200}, 1200, batch))
	goldensOfLevel2.Check(t, "entry-raise", AppendRaise(nil, 1, 2))
	goldensOfLevel2.Check(t, "results-bounds", AppendResults(nil, 2, BatchResult{ID: id,
		Results: Results{[]registry.Result{{Outcome: registry.TooMany}, {}}, []kv.Result{{}, {Excess: kv.Crowded, Refusal: "too many"}}}}))
	s := goldenSnapshot()
	s.level = 2
	goldensOfLevel2.Check(t, "snapshot", encoded(t, s))
	read := need.Got(readSnapshot(bytes.NewReader(goldens.Sections(t, "snapshot")["snapshot"])))(t)
	expect.Equal(t, read.level, byte(1), "the snapshot of level 1 is read as of level")
}
