package fsm

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// applying is an operation at the state for which Apply does the most work. A client's operation may take clientTime.
type applying struct {
	op, meets string
	changes   int    // the most that it makes: of instances, nodes, keys, sessions, locks and queues
	by        string // the sender, if not any client; these have their own time
	most      time.Duration
	prepare   func(n *node) Item
}

const (
	anyClient  = ""
	clientTime = 20 * time.Millisecond
	followers  = catalog.MaxFollowers
)

// limitOf returns the default of a setting from the page of settings, which is generated from the program's own
// table.
func limitOf(key string) int {
	page, err := os.ReadFile("../docs/reference/settings.md")
	if err != nil {
		panic(err)
	}
	m := regexp.MustCompile("(?m)^\\| `" + regexp.QuoteMeta(key) + "` \\| number \\| `(\\d+)`").FindSubmatch(page)
	n, err := strconv.Atoi(string(m[1]))
	if err != nil {
		panic(err)
	}
	return n
}

// inApp returns as many instances as one application may have, or fewer.
func (n *node) inApp() int { return n.most(limitOf("limits.instances-in-app")) }

// fewObjects are enough to show what an operation does to each of them, or to each pair of them.
const fewObjects = 300

// most returns a number of objects, or fewer in tests that count what is done to each.
func (n *node) most(count int) int {
	if n.few {
		return min(count, fewObjects)
	}
	return count
}

// followed makes as many alias checks as allowed follow a service or instance of the logical node.
func followed(n *node, id string) {
	n.performMany(n.most(followers), func(i int) Item { return op(follower(serviceID(i), id, 1)) })
}

func followedInstance(n *node) registry.Key {
	n.perform(op(registry.Register{Instance: instance("TARGET", "target")}))
	followed(n, "target")
	return instance("TARGET", "target").Key()
}

func followedCheck(n *node) string {
	n.perform(op(placed("target", manyChecks("target", catalog.MaxServiceChecks)...)))
	n.perform(op(registry.RegisterCatalog{Checks: manyChecks("", catalog.MaxNodeChecks)}))
	followed(n, "target")
	return check("target", 0).ID
}

// ending returns what the leader proposes a while later.
func ending(n *node, wait int64) Item {
	n.stamp.Lease += wait
	n.perform()
	return op(n.m.Ending(n.stamp.Lease)[0])
}

// crowd makes a session hold a lock, and as many wait for it as allowed, all of whose time is up.
func crowd(n *node) {
	many := n.most(kv.MaxQueue) + 1
	withSessions(n, many)
	n.performMany(many, func(i int) Item {
		return coordinates(kv.AcquirePermit{Kind: kv.Lock, Name: "queue", Session: sessionID(i), Wait: 1000})
	})
	n.stamp.Lease += 60_000
}

// holding makes a session with a TTL hold as many locks as it may, while another one waits for each.
func holding(n *node) {
	held := n.most(kv.MaxEnding)
	n.performMany(2+held/1000, func(i int) Item { return coordinates(kv.CreateSession{ID: sessionID(i), TTL: 10_000, LockDelay: 1e9}) })
	n.performMany(2*held, func(i int) Item {
		session := 0
		if i >= held {
			session = 1 + i%held/1000
		}
		return coordinates(kv.AcquirePermit{Kind: kv.Lock, Name: keyName(i % held), Session: sessionID(session), Wait: 600_000})
	})
}

func keys(n *node, count int) {
	n.performMany(n.most(count), func(i int) Item { return coordinates(kv.KeyOp{Verb: kv.Set, Key: keyName(i), Value: []byte("v")}) })
}

func full(n *node) {
	n.performMany(n.inApp()-1, func(i int) Item { return op(registry.Register{Instance: instance("FULL", serviceID(i))}) })
}

var fullKey = registry.Key{App: "FULL", ID: serviceID(7)}

// applyings has every operation, at the states that make it do the most.
var applyings = []applying{
	{"renew", "all instances of an application", 0, anyClient, clientTime, func(n *node) Item {
		full(n)
		return op(registry.Renew{Key: fullKey})
	}},
	{"register", "all instances of an application", 1, anyClient, clientTime, func(n *node) Item {
		full(n)
		return op(registry.Register{Instance: instance("FULL", "new")})
	}},
	{"cancel", "1,000 alias checks on the instance", 1 + followers, anyClient, clientTime, func(n *node) Item {
		return op(registry.Cancel{Key: followedInstance(n)})
	}},
	{"status", "1,000 alias checks on the instance", 1 + followers, anyClient, clientTime, func(n *node) Item {
		return op(registry.SetOverride{Key: followedInstance(n), Status: registry.OutOfService})
	}},
	{"status_delete", "1,000 alias checks on the instance", 1 + followers, anyClient, clientTime, func(n *node) Item {
		key := followedInstance(n)
		n.perform(op(registry.SetOverride{Key: key, Status: registry.OutOfService}))
		return op(registry.DeleteOverride{Key: key, Fallback: registry.Up})
	}},
	{"override_end", "1,000 alias checks on the instance", 1 + followers, "the leader", clientTime, func(n *node) Item {
		key := followedInstance(n)
		n.perform(op(registry.SetOverride{Key: key, Status: registry.OutOfService, For: 1000}))
		return ending(n, 2000)
	}},
	{"metadata", "all instances of an application", 1, anyClient, clientTime, func(n *node) Item {
		full(n)
		return op(registry.UpdateMetadata{Key: fullKey, Pairs: []registry.Pair{{Key: "a", Value: "b"}}})
	}},
	{"quarantine", "1,000 alias checks on the instance", 1, "operators", clientTime, func(n *node) Item {
		return op(registry.Quarantine{Key: followedInstance(n), For: 1000})
	}},
	{"quarantine_end", "1,000 alias checks on the instance", 1, "the leader", clientTime, func(n *node) Item {
		n.perform(op(registry.Quarantine{Key: followedInstance(n), For: 1000}))
		return ending(n, 2000)
	}},
	{"evict", "500 leases that have ended", 500, "the leader", clientTime, func(n *node) Item {
		full(n)
		n.stamp.Lease += 600_000
		n.perform()
		return op(registry.Evict{Epoch: n.m.registry.Epoch(), Items: n.m.Expired(n.stamp.Lease, 500)})
	}},
	{"self_preservation", "all instances of an application", 0, "the leader", clientTime, func(n *node) Item {
		full(n)
		return op(registry.SelfPreservation{Epoch: n.m.registry.Epoch(), From: registry.PreservationOff, To: registry.PreservationOn})
	}},
	{"replica", "1,000 alias checks on the instance", 1 + followers, "peers", clientTime, func(n *node) Item {
		key := followedInstance(n)
		in := instance(key.App, key.ID)
		in.Status, in.LastDirty = registry.Down, in.LastDirty+1
		return Item{Origin: registry.Origin{Kind: registry.LocalPeer}, Op: registry.Replica{Instance: in, Life: 2}}
	}},
	{"remove", "1,000 alias checks on the instance", 1 + followers, "peers", clientTime, func(n *node) Item {
		return Item{Origin: registry.Origin{Kind: registry.LocalPeer}, Op: registry.Remove{Key: followedInstance(n), Kind: registry.Canceled, Life: 9}}
	}},
	{"contact", "all instances of an application, of one sender", 0, "peers", clientTime, func(n *node) Item {
		replicated(n)
		return Item{Origin: registry.Origin{Kind: registry.RemoteDC, DC: "dc2"}, Op: registry.Contact{DC: "dc2", Sender: "s", Incarnation: 1, Clock: 2000}}
	}},
	{"peer_ack", "one record for each peer", 0, "the leader", clientTime, func(*node) Item { return op(registry.AckPeer{Peer: "dc2", Cursor: 3}) }},
	{"peer_pause", "one record for each peer", 0, "operators", clientTime, func(*node) Item { return op(registry.PausePeer{Peer: "dc2", Paused: true}) }},
	{"sender_forget", "all instances of an application, of one sender", 0, "operators", clientTime, func(n *node) Item {
		replicated(n)
		return op(registry.ForgetSender{Sender: "s"})
	}},
	{"catalog_register", "64 new alias checks on services that 1,000 follow", 0, anyClient, clientTime, func(n *node) Item {
		o := follower("many", "", catalog.MaxServiceChecks)
		for i, c := range o.Checks {
			c.Alias = &catalog.Alias{Service: fmt.Sprint("target-", i)}
		}
		for i := range max(n.most(25*64), 500) { // fewer would be accepted
			f := follower(serviceID(i), fmt.Sprint("target-", i%64), 40)
			n.perform(op(f))
		}
		return op(o)
	}},
	{"catalog_register", "1,000 alias checks on the service", 1 + followers, anyClient, clientTime, func(n *node) Item {
		followed(n, "target")
		return op(placed("target", check("target", 0)))
	}},
	{"catalog_register", "2,500 services on an agent's node, whose address changes", -1, anyClient, clientTime, func(n *node) Item {
		n.performMany(n.most(registry.MaxRemoved), func(i int) Item { return op(onNode("web", i)) })
		o := onNode("web", 1)
		o.Node.Address, o.KeepNode, o.Agent = "10.0.0.2", false, true
		return op(o)
	}},
	{"catalog_deregister", "1,000 alias checks on the service", 1 + followers, anyClient, clientTime, func(n *node) Item {
		followedCheck(n)
		return op(registry.DeregisterCatalog{Service: "target"})
	}},
	{"catalog_deregister", "a node with 2,500 services and checks", 2 + registry.MaxRemoved, anyClient, clientTime, func(n *node) Item {
		n.performMany(n.most(registry.MaxRemoved), func(i int) Item { return op(onNode("web", i)) })
		return op(registry.DeregisterCatalog{Node: "web"})
	}},
	{"check", "1,000 alias checks on the service", 1 + followers, anyClient, clientTime, func(n *node) Item {
		return op(registry.SetCheck{Check: followedCheck(n), Status: catalog.Critical, Output: strings.Repeat("o", 4096)})
	}},
	{"check", "sessions that depend on it, 2,000 with what they hold", -1, anyClient, clientTime, func(n *node) Item {
		dependent(n)
		return op(registry.SetCheck{Check: check("one", 0).ID, Status: catalog.Critical})
	}},
	{"check", "10,000 services on the node whose check it is", -1, "clients that may write nodes", 10 * clientTime, func(n *node) Item {
		withServices(n, n.inApp())
		n.perform(op(registry.RegisterCatalog{Checks: manyChecks("", catalog.MaxNodeChecks)}))
		return op(registry.SetCheck{Check: check("", 7).ID, Status: catalog.Critical})
	}},
	{"check_expire", "1,000 alias checks on the service", 1 + followers, "the leader", clientTime, func(n *node) Item {
		followedCheck(n)
		ending(n, 4_000_000)
		for _, o := range n.m.Ending(n.stamp.Lease) {
			if o.(registry.ExpireCheck).Check == check("target", 0).ID {
				return op(o)
			}
		}
		panic("no check of the service ends")
	}},
	{"key", "a prefix of 10,000 keys", kv.MaxDeleted, anyClient, clientTime, func(n *node) Item {
		keys(n, kv.MaxDeleted)
		return coordinates(kv.KeyOp{Verb: kv.DeleteTree, Key: "tree/"})
	}},
	{"key", "a prefix of more keys, which is refused", 0, anyClient, clientTime, func(n *node) Item {
		n.performMany(kv.MaxDeleted+1, func(i int) Item { return coordinates(kv.KeyOp{Verb: kv.Set, Key: keyName(i)}) })
		return coordinates(kv.KeyOp{Verb: kv.DeleteTree, Key: "tree/"})
	}},
	{"txn", "prefixes of 10,000 keys together", kv.MaxDeleted, anyClient, clientTime, func(n *node) Item {
		keys(n, kv.MaxDeleted)
		ops := make([]kv.KeyOp, 128)
		for i := range ops {
			ops[i] = kv.KeyOp{Verb: kv.DeleteTree, Key: "tree/"}
		}
		return coordinates(keyTxn(ops))
	}},
	{"txn", "a node with 2,500 services and checks", 2 + registry.MaxRemoved, anyClient, clientTime, func(n *node) Item {
		n.performMany(n.most(registry.MaxRemoved-10), func(i int) Item { return op(onNode("web", i)) })
		return coordinates(kv.Txn{Ops: []kv.TxnOp{{Catalog: &registry.CatalogOp{Verb: registry.CatalogDelete, Node: "web"}}}})
	}},
	{"txn", "changes of a check that 1,000 alias checks of 20 services follow", -1, anyClient, clientTime, func(n *node) Item {
		n.perform(op(placed("target", manyChecks("target", catalog.MaxServiceChecks)...)))
		n.performMany(20, func(i int) Item { return op(follower(serviceID(i), "target", 50)) })
		return flips(2)
	}},
	{"session_create", "256 checks, on which others depend", 1, anyClient, clientTime, func(n *node) Item {
		n.perform(op(registry.RegisterCatalog{Checks: manyChecks("", catalog.MaxNodeChecks)}))
		create := kv.CreateSession{ID: sessionID(0)}
		for _, c := range manyChecks("", kv.MaxSessionChecks) {
			create.NodeChecks = append(create.NodeChecks, c.ID)
		}
		other := create
		other.ID = sessionID(1)
		n.perform(coordinates(other))
		return coordinates(create)
	}},
	{"session_renew", "2,000 locks that it holds", 0, anyClient, clientTime, func(n *node) Item {
		holding(n)
		return coordinates(kv.RenewSession{ID: sessionID(0)})
	}},
	{"session_destroy", "2,000 locks that it holds, for which others wait", -1, anyClient, clientTime, func(n *node) Item {
		holding(n)
		return coordinates(kv.DestroySession{ID: sessionID(0)})
	}},
	{"session_expire", "2,000 locks that it holds, for which others wait", -1, "the leader", clientTime, func(n *node) Item {
		holding(n)
		n.stamp.Lease += 60_000
		n.perform()
		return coordinates(n.m.KVDue(n.stamp.Lease, 1)[0])
	}},
	{"delay_end", "5,000 in the queue, whose time has passed", -1, "the leader", clientTime, func(n *node) Item {
		crowd(n)
		n.stamp.Lease -= 60_000
		n.perform(coordinates(kv.DestroySession{ID: sessionID(0)}))
		n.stamp.Lease += 60_000
		n.perform()
		return coordinates(n.m.KVDue(n.stamp.Lease, 1)[0])
	}},
	{"permit_acquire", "5,000 in the queue, whose time has passed", 2 + kv.MaxQueue, anyClient, clientTime, func(n *node) Item {
		crowd(n)
		n.perform(coordinates(kv.CreateSession{ID: "other"}))
		return coordinates(kv.AcquirePermit{Kind: kv.Lock, Name: "queue", Session: "other"})
	}},
	{"permit_release", "5,000 in the queue, whose time has passed", 2 + kv.MaxQueue, anyClient, clientTime, func(n *node) Item {
		crowd(n)
		return coordinates(kv.ReleasePermit{Kind: kv.Lock, Name: "queue", Session: sessionID(0)})
	}},
	{"queue_leave", "5,000 in the queue, whose time has passed", 2 + kv.MaxQueue, anyClient, clientTime, func(n *node) Item {
		crowd(n)
		return coordinates(kv.LeaveQueue{Kind: kv.Lock, Name: "queue", Session: sessionID(7)})
	}},
	{"once", "10,000 results that are forgotten now", 1, anyClient, clientTime, func(n *node) Item {
		n.performMany(n.most(10_000), func(i int) Item {
			return coordinates(kv.Once{Key: fmt.Sprint(i), Op: kv.KeyOp{Verb: kv.Set, Key: "k", Value: []byte(fmt.Sprint(i))}})
		})
		n.stamp.Lease += kv.OnceFor + 1
		return coordinates(kv.Once{Key: "new", Op: kv.KeyOp{Verb: kv.Set, Key: "k"}})
	}},
	{"restore_stage", "a part of a restore", 0, "operators", clientTime, func(n *node) Item {
		full(n)
		ops, _ := stages(n.t, "r", backupOf(n.t, n.m))
		return coordinates(ops[0])
	}},
	{"restore", "10,000 instances and 10,000 keys that come back", -1, "operators", time.Second, func(n *node) Item {
		full(n)
		keys(n, 10_000)
		ops, header := stages(n.t, "r", backupOf(n.t, n.m))
		fresh := newNode(n.t)
		fresh.establish()
		*n = node{t: n.t, m: fresh.m, id: fresh.id, stamp: fresh.stamp, index: fresh.index, few: n.few}
		for _, stage := range ops {
			n.perform(coordinates(stage))
		}
		return coordinates(kv.Restore{ID: "r", Parts: uint64(len(ops)), By: goldenAct, Newest: header.Index})
	}},
	{"restore_drop", "10,000 instances that were staged", 0, "operators", clientTime, func(n *node) Item {
		full(n)
		ops, _ := stages(n.t, "r", backupOf(n.t, n.m))
		for _, stage := range ops {
			n.perform(coordinates(stage))
		}
		return coordinates(kv.DropStaged{ID: "r"})
	}},
	{"access", "1,000 roles", -1, "operators", clientTime, func(n *node) Item {
		roles := make([]*access.Role, n.most(1000))
		for i := range roles {
			roles[i] = &access.Role{Name: fmt.Sprint("role-", i)}
		}
		n.perform(coordinates(kv.Access{Change: access.Change{PutRoles: roles}}))
		return coordinates(kv.Access{Change: access.Change{PutRoles: []*access.Role{{Name: "one-more"}}}})
	}},
}

// replicated makes another datacenter's sender the sender of all instances of an application.
func replicated(n *node) {
	n.performMany(n.inApp(), func(i int) Item {
		return Item{Origin: registry.Origin{Kind: registry.RemoteDC, DC: "dc2"}, Op: registry.Replica{Instance: instance("FULL", serviceID(i)), Life: 1, Owner: "dc2"}}
	})
	n.perform(Item{Origin: registry.Origin{Kind: registry.RemoteDC, DC: "dc2"}, Op: registry.Contact{DC: "dc2", Sender: "s", Incarnation: 1, Clock: 1000}})
}

// dependent makes sessions that hold permits depend on one check, as many of both as allowed.
func dependent(n *node) {
	n.perform(op(placed("one", check("one", 0))))
	half := n.most(kv.MaxEnding / 2)
	n.performMany(half, func(i int) Item {
		return coordinates(kv.CreateSession{ID: sessionID(i), ServiceChecks: []string{check("one", 0).ID}})
	})
	n.performMany(half, func(i int) Item {
		return coordinates(kv.AcquirePermit{Kind: kv.Semaphore, Name: "s", Session: sessionID(i), Limit: uint32(half), Wait: 600_000})
	})
}

// applied performs the operation, and returns how long Apply took, how many bytes, and how many changes it made.
func (a applying) applied(t testing.TB, few bool) (took time.Duration, bytes uint64, changes int, r BatchResult) {
	n := newNode(t)
	n.few = few
	n.establish()
	item := a.prepare(n)
	n.id.Finished, n.id.Seq = n.id.Seq, n.id.Seq+1
	batch := AppendBatch(nil, codec.Newest, n.id, []Item{item})
	before := n.m.View().Index()
	var done Applied
	bytes = allocated(func() {
		began := time.Now()
		done = n.apply(batch)
		took = time.Since(began)
	})
	return took, bytes, int(n.m.View().Index()-before) + len(done.Touched), done.Batches[0]
}

// Every operation has a row here and in the page of limits, makes no more changes than the row says, and takes only
// memory that grows with the objects that it meets. Time is for the benchmark: it depends on the machine.
func TestEveryOperationHasABoundOfWhatItSetsInMotion(t *testing.T) {
	page := need.Got(os.ReadFile("../docs/run/limits.md"))(t)
	rows := map[string]bool{}
	for _, a := range applyings {
		rows[a.op] = true
		t.Run(a.op+" "+a.meets, func(t *testing.T) {
			expect.That(t, bytes.Contains(page, []byte(a.line())), "docs/run/limits.md lacks the row:\n%s", a.line())
			_, took, changes, r := a.applied(t, true)
			bound := min(a.changes, fewObjects+2) // for what it meets here
			expect.That(t, a.changes < 0 || changes <= bound, "made %d changes, %d are its bound: %+v", changes, bound, r)
			const most = bytesAlone + bytesPerObject*fewObjects
			expect.That(t, took <= most, "Apply took %d KiB of memory, at most %d KiB are right", took>>10, most>>10)
			expect.That(t, !r.Refused && !r.Late && (len(r.KV) == 0 || r.KV[0].Refusal == "" && r.KV[0].Errors == nil), "was not done: %+v", r)
			if a.changes > bound {
				expect.That(t, changes >= fewObjects-1 || strings.Contains(a.meets, "keys") || strings.Contains(a.meets, "queue") || strings.Contains(a.meets, "node with"),
					"made %d changes, and so does not show what it is here for: %+v", changes, r)
			}
		})
	}
	for _, op := range operations(t) {
		expect.That(t, rows[op.name], "operation %q has no row in applyings: what does Apply do for it at the largest state that the limits admit?", op.name)
	}
}

// line returns the row in the page of limits.
func (a applying) line() string {
	by := "any client"
	if a.by != anyClient {
		by = a.by
	}
	return fmt.Sprintf("| `%s` | %s | %s | %v |", a.op, a.meets, by, a.most)
}

// BenchmarkApplyAtTheLimits prints the time of every operation at the largest state that the default limits admit,
// the least of several runs, and fails if it exceeds its bound.
func BenchmarkApplyAtTheLimits(b *testing.B) {
	for _, a := range applyings {
		b.Run(strings.NewReplacer(" ", "-", ",", "").Replace(a.op+" "+a.meets), func(b *testing.B) {
			least := time.Hour
			for run := 0; run < max(b.N, 3) || run < 12 && least > a.most; run++ { // others may use the machine, too
				took, _, _, _ := a.applied(b, false)
				least = min(least, took)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(least.Microseconds())/1000, "ms/apply")
			b.ReportMetric(float64(a.most.Milliseconds()), "ms/bound")
			expect.That(b, least <= a.most, "%s: Apply took %v, %v is its bound", a.op, least, a.most)
		})
	}
}
