package fsm

import (
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

const goldenSession = "adf4238a-882b-9ddc-4a9d-5b6758e4159e"

func goldenCatalogOps() map[string]registry.Op {
	node := goldenNode()
	node.Checks, node.CreateIndex, node.ModifyIndex = nil, 0, 0
	service := goldenService()
	service.CreateIndex, service.ModifyIndex = 0, 0
	return map[string]registry.Op{
		"register-catalog": registry.RegisterCatalog{Node: node, KeepNode: true, Service: service, Instance: goldenInstance(),
			Checks: []*registry.Check{goldenCheck("alive")}, ReplaceChecks: true, KeepStatus: true},
		"deregister-catalog": registry.DeregisterCatalog{Node: "db-1", Service: "orders-1", Check: "alive",
			Epoch: registry.Epoch{Term: 3, Index: 1000}, CriticalSince: 58_000},
		"set-check": registry.SetCheck{Node: "db-1", Check: "alive", Status: registry.Warning, Output: "slow", TTL: true,
			Epoch: registry.Epoch{Term: 3, Index: 1000}},
		"expire-check": registry.ExpireCheck{Epoch: registry.Epoch{Term: 3, Index: 1000}, Node: "db-1", Check: "alive", RenewedAt: 58_000},
	}
}

func goldenNode() *registry.Node {
	return &registry.Node{ID: "40e4a748-2192-161a-0510-9bf59fe950b5", Name: "db-1", Address: "192.0.2.7",
		Tagged: []registry.Pair{{Key: "lan", Value: "192.0.2.7"}}, Meta: []registry.Pair{{Key: "rack", Value: "4"}},
		Checks: []*registry.Check{goldenCheck("disk")}, CreateIndex: 2, ModifyIndex: 3}
}

func goldenService() *registry.CatalogService {
	return &registry.CatalogService{Name: "orders", ID: "orders-1", Node: "db-1", Tags: []string{"primary", "v2"}, Address: "192.0.2.1", Port: 8080,
		Tagged:        []registry.TaggedAddress{{Tag: "lan", Address: "192.0.2.1", Port: 8081}},
		WeightPassing: 10, WeightWarning: 1, TagOverride: true, Kind: "typical", SocketPath: "/run/orders",
		Locality: []byte(`{"Region":"eu"}`), Ports: []byte(`[1]`), Checks: []*registry.Check{goldenCheck("alive")}, CreateIndex: 4, ModifyIndex: 5}
}

func goldenCheck(id string) *registry.Check {
	return &registry.Check{Node: "db-1", ID: id, Name: "Is it " + id, Notes: "every 10 s", Output: "connection refused", Status: registry.Critical,
		Service: "orders-1", Type: "http", TTL: 15_000, ReapAfter: 90_000,
		Probe: &registry.Probe{HTTP: "http://192.0.2.1:8080/", Method: "HEAD", Body: "{}", Header: []registry.Pair{{Key: "X-Probe", Value: "1"}},
			SkipVerify: true, NoRedirects: true, TCP: "192.0.2.1:8080", Interval: 10_000, Timeout: 2000,
			SuccessBeforePassing: 1, FailuresBeforeWarning: 2, FailuresBeforeCritical: 3},
		Definition: []byte(`{"Interval":"10s"}`), CreateIndex: 4, ModifyIndex: 5, CriticalSince: 58_000}
}

func goldenKVOps() map[string]kv.Op {
	fence := kv.Fence{Kind: kv.Lock, Name: "nightly", Index: 17}
	acquire := kv.KeyOp{Verb: kv.Acquire, Key: "jobs/leader", Value: []byte("n1"), Flags: 42, Session: goldenSession}
	epoch := kv.Epoch{Term: 3, Index: 1000}
	return map[string]kv.Op{
		"set":     kv.KeyOp{Verb: kv.Set, Key: "jobs/leader", Value: []byte("n1"), Fence: &fence},
		"acquire": acquire,
		"txn": kv.Txn{Ops: []kv.KeyOp{{Verb: kv.CAS, Key: "a", Value: []byte("1"), Index: 300}, {Verb: kv.GetTree, Key: "jobs/"},
			{Verb: kv.DeleteTree}, {Verb: kv.CheckSession, Key: "a", Session: goldenSession}}},
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
	}
}

func TestGoldenOperationsOfCoordination(t *testing.T) {
	for name, op := range goldenCatalogOps() {
		goldens.Check(t, "op-"+name, itemBytes(Item{Op: op}))
	}
	for name, op := range goldenKVOps() {
		goldens.Check(t, "kv-"+name, itemBytes(Item{KV: op}))
	}
	goldens.Check(t, "batch-coordination", AppendBatch(nil, BatchID{Node: "n1-7f3a", Boot: 2, Seq: 44, Answered: 42},
		[]Item{{Op: goldenOps()["renew-handle"]}, {KV: goldenKVOps()["acquire"]}, {Op: goldenCatalogOps()["set-check"]}}))
}

func goldenEntry() *kv.Entry {
	return &kv.Entry{Key: "jobs/leader", Value: []byte("n1"), Flags: 42, Session: goldenSession, LockIndex: 2, CreateIndex: 3, ModifyIndex: 5, Fence: 4}
}

func goldenSessionState() *kv.Session {
	return &kv.Session{ID: goldenSession, Name: "worker", Node: "db-1", TTL: 15_000, TTLText: "15s", LockDelay: 15_000_000_000,
		Behavior: kv.DeleteKeys, Checks: []string{}, NodeChecks: []string{"disk"}, ServiceChecks: []string{"alive"},
		CreateIndex: 2, ModifyIndex: 2, CreatedAt: 30_000, CreatedWall: 1_699_999_970_100}
}

// goldenKVResults is one of each form of result.
func goldenKVResults() []kv.Result {
	return []kv.Result{
		{},
		{OK: true, Index: 5, Fence: 4},
		{OK: true, Index: 6, Entries: []*kv.Entry{goldenEntry(), {Key: "a"}}},
		{Errors: []kv.TxnError{{OpIndex: 1, What: `key "a" doesn't exist`}}},
		{OK: true, Index: 2, Session: goldenSessionState()},
		{Place: 3, Limit: 2},
		{Refusal: `invalid session "x"`},
	}
}

func TestGoldenResultsOfCoordination(t *testing.T) {
	id := BatchID{Node: "n1-7f3a", Boot: 2, Seq: 44, Answered: 42}
	all := goldenKVResults()
	goldens.Check(t, "results-coordination", AppendResults(nil, BatchResult{ID: id, Results: make([]registry.Result, len(all)), KV: all}))
	goldens.Check(t, "results-catalog", AppendResults(nil, BatchResult{ID: id, Results: []registry.Result{
		{}, {Outcome: registry.UnknownService}, {Outcome: registry.NameTaken}, {Outcome: registry.NoTTL}}}))
}

// goldenSnapshot is written from values, so that the file shows the format and not the rules of what it
// holds.
func goldenSnapshot() *Snapshot {
	s := goldenWithPeers()
	s.nodes[0].answers[1].kv = []kv.Result{{}, {OK: true, Index: 5, Fence: 4}}
	f := &s.registry
	f.Leases[0].Lease.Permanent, f.Leases[0].Lease.Service = true, goldenService()
	f.Removals[0].Lease.Permanent = true
	f.Taken, f.CatalogIndex = 7, 3
	f.Nodes = []*registry.Node{goldenNode(), {Name: "db-2", CreateIndex: 3, ModifyIndex: 3}}
	f.Heard = []registry.CheckHeartbeat{{Node: "db-1", Check: "alive", At: 57_000}, {Node: "db-1", Check: "disk", At: 58_000}}
	s.kv = goldenKV(*f)
	return s
}

// kvBeside is coordination without content, at the moment of a registry.
func kvBeside(f registry.Frozen) kv.Frozen {
	return kv.Frozen{Lease: f.Clock.Lease, Epoch: f.Epoch, Established: f.Established}
}

func goldenKV(beside registry.Frozen) kv.Frozen {
	f := kvBeside(beside)
	f.Index, f.KeysIndex, f.SessionsIndex, f.PermitsIndex, f.Pruned = 7, 6, 5, 4, 1
	f.Entries = []*kv.Entry{{Key: "a", CreateIndex: 6, ModifyIndex: 6}, goldenEntry()}
	f.Deletions = []kv.Deletion{{Key: "jobs/old", Index: 5, At: 50_000, Fence: 2}}
	f.Sessions = []kv.SessionState{{Session: goldenSessionState(), Renewed: 60_400}}
	f.Delays = []kv.Delay{{Key: "jobs/old", Until: 65_000}}
	f.Permits = []*kv.Permits{
		{Kind: kv.Lock, Name: "nightly", Limit: 1, Delays: []int64{64_000}, ModifyIndex: 3},
		{Kind: kv.Semaphore, Name: "workers", Limit: 2, ModifyIndex: 4,
			Holders: []kv.Holder{{Session: goldenSession, Fence: 4, Since: 59_000, Wall: 1_699_999_999_100, Value: []byte("host-7")}},
			Queue:   []kv.Waiter{{Session: "b", Since: 60_000, Until: 70_000, Value: []byte("host-8")}}},
	}
	f.Answers = []kv.Answer{{Key: "7c0d", At: 59_000, Digest: 0xfeed, Result: goldenKVResults()[1]}}
	return f
}
