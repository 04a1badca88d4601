package replication

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/replication/peertest"
)

// move is something that happens at a site.
type move struct {
	name  string // of its row, or of the item
	items func(s *statesSite) []fsm.Item
	// message, if not nil, is what a third party sends to both sites.
	message func(s *statesSite) (local bool, ops []registry.Op)
}

func client(name string, ops ...registry.Op) move {
	return move{name: name, items: func(*statesSite) []fsm.Item { return itemsOf(ops...) }}
}

func itemsOf(ops ...registry.Op) (items []fsm.Item) {
	for _, op := range ops {
		items = append(items, fsm.Item{Origin: registry.FromClient, Op: op})
	}
	return items
}

// coordinate is an operation of coordination, which mode cp alone has.
func coordinate(name string, ops ...kv.Op) move {
	return move{name: "kv." + name, items: func(*statesSite) (items []fsm.Item) {
		for _, op := range ops {
			items = append(items, fsm.Item{KV: op})
		}
		return items
	}}
}

// sent is an item of another datacenter; told is one of a node of this one, or of another datacenter in mode cp.
func sent(name string, op registry.Op) move {
	return move{name: name, message: func(*statesSite) (bool, []registry.Op) { return false, []registry.Op{op} }}
}

func told(name string, op registry.Op) move {
	return move{name: name, message: func(s *statesSite) (bool, []registry.Op) { return !s.consensus, []registry.Op{op} }}
}

var (
	orders1, orders2, unknown = registry.NewKey("ORDERS", "i1"), registry.NewKey("ORDERS", "i2"), registry.NewKey("NONE", "x")
	foreign                   = registry.NewKey("FAR", "f1")
	byAnn                     = registry.Act{Author: "ann", Reason: "maintenance"}
	absurd                    = []registry.Handle{{Slot: 0, Gen: 1 << 40}, {Slot: 255, Gen: 9}, {Slot: 256, Gen: 9}, {Slot: 1<<32 - 1, Gen: 1<<64 - 1}}
)

func stateInstance(key registry.Key, dirty int64) *registry.Instance {
	i := peertest.Instance(key.App, key.ID, dirty)
	i.Duration = 600 // no lease ends by itself: each site would end its own
	return i
}

func remoteInstance(key registry.Key, dirty int64, status registry.Status) *registry.Instance {
	i := stateInstance(key, dirty)
	i.Status = status
	return i
}

func stateService(node, id string) registry.RegisterCatalog {
	name := "web"
	i := stateInstance(registry.Key{App: "WEB", ID: id}, 0)
	if node != "" {
		i.InstanceID = node + ":" + id
	}
	op := registry.RegisterCatalog{
		Service:  &catalog.Service{Name: name, ID: id, Node: node, WeightPassing: 1, WeightWarning: 1},
		Instance: i,
		Checks: []*catalog.Check{
			{Node: node, ID: "ttl-" + id, Service: id, Type: "ttl", Status: catalog.Critical, TTL: 5000, ReapAfter: 60_000},
			{Node: node, ID: "alias-" + id, Type: "alias", Alias: &catalog.Alias{Node: node, Service: id}},
		},
	}
	if node != "" {
		op.Node = &catalog.Node{Name: node, Address: "192.0.2.1"}
	}
	return op
}

// handles are those of live leases, of removed ones, and some that were never given out.
func handles(s *statesSite) []registry.Handle {
	all := slices.Clone(absurd)
	v := s.replica.config.View()
	for c := range v.NewestFirst() {
		if all = append(all, c.Lease.Handle); len(all) > 8 {
			break
		}
	}
	return all
}

// moves has at least one of each operation and of each item.
func moves() []move {
	all := []move{
		client("renew", registry.Renew{Key: orders1}), client("renew", registry.Renew{Key: unknown, LastDirty: 7}),
		{name: "renew", items: func(s *statesSite) (items []fsm.Item) {
			for _, h := range handles(s) {
				items = append(items, itemsOf(registry.Renew{Handle: h})...)
			}
			return items
		}},
		client("register", registry.Register{Instance: stateInstance(orders1, 0)}), client("register", registry.Register{Instance: stateInstance(orders2, 5)}),
		client("cancel", registry.Cancel{Key: orders1}), client("cancel", registry.Cancel{Key: unknown}),
		client("status", registry.SetOverride{Key: orders1, Status: registry.OutOfService, For: 500_000, By: byAnn}),
		client("status_delete", registry.DeleteOverride{Key: orders1, By: byAnn}),
		{name: "override_end", items: func(s *statesSite) []fsm.Item {
			ops := s.ending()
			for _, h := range handles(s) {
				ops = append(ops, registry.EndOverride{Epoch: s.epoch(), Handle: h, Set: 3})
			}
			return itemsOf(ops...)
		}},
		client("metadata", registry.UpdateMetadata{Key: orders1, Pairs: []registry.Pair{{Key: "k", Value: "v"}}}),
		client("quarantine", registry.Quarantine{Key: orders1, For: 500_000, By: byAnn}), client("quarantine", registry.Quarantine{Key: orders1, By: byAnn}),
		{name: "quarantine_end", items: func(s *statesSite) []fsm.Item {
			ops := s.ending()
			for _, h := range handles(s) {
				ops = append(ops, registry.EndQuarantine{Epoch: s.epoch(), Handle: h, Set: 3})
			}
			return itemsOf(ops...)
		}},
		{name: "evict", items: func(s *statesSite) []fsm.Item {
			op := registry.Evict{Epoch: s.epoch()}
			v := s.replica.config.View()
			for l := range v.Leases() { // as if it had ended
				if l.Local() && s.consensus && len(op.Items) < 3 {
					op.Items = append(op.Items, registry.EvictItem{Handle: l.Handle, Registered: l.Registered, RenewedAt: v.LastRenewal(l).Lease})
				}
			}
			for _, h := range handles(s) {
				op.Items = append(op.Items, registry.EvictItem{Handle: h, Registered: 1})
			}
			return itemsOf(op)
		}},
		client("contact", registry.Contact{DC: "dc9", Sender: "of x", Incarnation: 7, Clock: 10, Cut: 15_000}), client("contact", registry.Contact{Sender: "of y", Incarnation: 8, Clock: 10}),
		client("peer_ack", registry.AckPeer{Peer: "dc9", Cursor: 1}), client("peer_pause", registry.PausePeer{Peer: "dc9", Paused: true, By: byAnn}),
		client("sender_forget", registry.ForgetSender{Sender: "of x", By: byAnn}),
		client("catalog_register", stateService("", "s1")), client("catalog_register", stateService("node1", "s2")),
		client("catalog_register", registry.RegisterCatalog{Node: &catalog.Node{Name: "node2", Address: "192.0.2.2"}, Checks: []*catalog.Check{{Node: "node2", ID: "c", Type: "tcp", Status: catalog.Passing}}}),
		client("catalog_deregister", registry.DeregisterCatalog{Service: "s1"}), client("catalog_deregister", registry.DeregisterCatalog{Node: "node1"}),
		client("catalog_deregister", registry.DeregisterCatalog{Node: "node1", Check: "ttl-s2"}), client("catalog_deregister", registry.DeregisterCatalog{Node: "none"}),
		client("check", registry.SetCheck{Check: "ttl-s1", Status: catalog.Passing, TTL: true}), client("check", registry.SetCheck{Node: "node1", Check: "ttl-s2", Status: catalog.Warning, Output: "slow"}),
		client("check", registry.SetCheck{Node: "none", Check: "c"}),
		{name: "check_expire", items: func(s *statesSite) []fsm.Item {
			return itemsOf(registry.ExpireCheck{Epoch: s.epoch(), Check: "ttl-s1", RenewedAt: s.now.Lease}, registry.ExpireCheck{Epoch: s.epoch(), Node: "none", Check: "c"})
		}},
		// What other servers send.
		sent("replica", registry.Replica{Instance: remoteInstance(foreign, 100, registry.Up), Life: 1, Age: 10}),
		told("replica", registry.Replica{Instance: remoteInstance(foreign, 200, registry.Down), Life: 2, Edit: 1, Overridden: registry.OutOfService, OverrideFor: 400_000, QuarantineFor: 400_000, OverrideBy: byAnn}),
		told("replica", registry.Replica{Instance: remoteInstance(orders1, 300, registry.Up), Life: 1, Permanent: true}),
		sent("remove", registry.Remove{Key: foreign, Kind: registry.Canceled, Life: 1, LastDirty: 100}), told("remove", registry.Remove{Key: orders1, Kind: registry.Canceled, Life: 9, LastDirty: 1 << 50}),
		told("remove", registry.Remove{Key: unknown, Kind: registry.Evicted, Life: 1, LastDirty: 1, Age: 5000}),
		sent("renew", registry.Renew{Key: foreign, Life: 1, LastDirty: 100}), told("renew", registry.Renew{Key: orders1, Life: 3, LastDirty: 1, Age: 7}),
		told("self_preservation", registry.SelfPreservation{From: registry.PreservationOff, To: registry.PreservationHeld, For: 60_000, By: byAnn}),
		// Coordination.
		coordinate("key", kv.KeyOp{Verb: kv.Set, Key: "a", Value: []byte("v")}), coordinate("key", kv.KeyOp{Verb: kv.Delete, Key: "a"}), coordinate("key", kv.KeyOp{Verb: kv.Acquire, Key: "a", Session: session}),
		coordinate("key", allVerbs()...),
		coordinate("txn", kv.Txn{Ops: []kv.TxnOp{{Key: &kv.KeyOp{Verb: kv.Set, Key: "b"}}, {Session: session}, {Catalog: &registry.CatalogOp{}}, {}}}),
		coordinate("session_create", kv.CreateSession{ID: session, TTL: 10_000, LockDelay: 2_000_000_000, Behavior: kv.DeleteKeys}),
		coordinate("session_renew", kv.RenewSession{ID: session}), coordinate("session_destroy", kv.DestroySession{ID: session}),
		{name: "kv.session_expire", items: func(s *statesSite) []fsm.Item {
			return []fsm.Item{{KV: kv.ExpireSession{Epoch: s.epoch(), ID: session, Created: 1, RenewedAt: s.now.Lease}}, {KV: kv.ExpireSession{ID: "none"}}}
		}},
		{name: "kv.delay_end", items: func(s *statesSite) []fsm.Item {
			return []fsm.Item{{KV: kv.EndDelay{Epoch: s.epoch(), Name: "a", Until: s.now.Lease}}, {KV: kv.EndDelay{Epoch: s.epoch(), Kind: kv.Semaphore, Name: "none"}}}
		}},
		coordinate("permit_acquire", kv.AcquirePermit{Kind: kv.Semaphore, Name: "p", Session: session, Limit: 1, Wait: 5000}), coordinate("permit_acquire", kv.AcquirePermit{Kind: kv.Lock, Name: "p", Session: "none", Limit: 1}),
		coordinate("permit_release", kv.ReleasePermit{Kind: kv.Semaphore, Name: "p", Session: session, Index: 1}), coordinate("queue_leave", kv.LeaveQueue{Kind: kv.Semaphore, Name: "p", Session: session, Release: true}),
		coordinate("once", kv.Once{Key: "o", Op: kv.KeyOp{Verb: kv.Set, Key: "c"}}),
		coordinate("restore_stage", kv.StagePart{ID: "r", Content: []byte("no part")}), coordinate("restore", kv.Restore{ID: "r", Parts: 1}), coordinate("restore_drop", kv.DropStaged{ID: "r"}),
		coordinate("access", kv.Access{Change: access.Change{Mode: access.Off, DropRoles: []string{"none"}, Revoke: []string{"none"}}}),
	}
	for _, from := range []registry.PreservationState{registry.PreservationOff, registry.PreservationOn, registry.PreservationReleased, registry.PreservationHeld} {
		all = append(all, move{name: "self_preservation", items: func(s *statesSite) []fsm.Item {
			return itemsOf(registry.SelfPreservation{Epoch: s.epoch(), From: from, To: registry.PreservationHeld, For: 60_000, By: byAnn}, registry.SelfPreservation{From: registry.PreservationHeld, To: from, By: byAnn})
		}})
	}
	return all
}

const session = "11111111-2222-3333-4444-555555555555"

func allVerbs() (ops []kv.Op) {
	for verb := range kv.CheckNotExists + 1 {
		ops = append(ops, kv.KeyOp{Verb: verb, Key: "a", Session: session, Index: 1}, kv.KeyOp{Verb: verb, Key: "none", Fence: &kv.Fence{Name: "a", Index: 3}})
	}
	return ops
}

func (s *statesSite) epoch() registry.Epoch {
	if s.consensus {
		return registry.Epoch{Term: statesTerm, Index: 1}
	}
	return s.registry.Epoch()
}

// ending is what a leader ends far in the future.
func (s *statesSite) ending() []registry.Op {
	if s.consensus {
		return s.machine.Ending(s.now.Lease)
	}
	return s.registry.Ending(s.now.Lease)
}

func TestMovesHaveEveryOperationAndItem(t *testing.T) {
	names := map[string]bool{}
	for _, m := range moves() {
		names[m.name] = true
	}
	for _, r := range registry.Rows() {
		expect.That(t, names[r.Name], "no move has the operation %s", r.Name)
	}
	for _, r := range kv.Rows() {
		expect.That(t, names["kv."+r.Name], "no move has the operation kv.%s", r.Name)
	}
}

// do does a move at a site, or of a third party at both.
func do(m move, at, far *statesSite) error {
	if m.message == nil {
		items := m.items(at)
		if !at.consensus && items[0].KV != nil {
			return nil
		}
		_, err := at.perform(items...)
		return err
	}
	local, ops := m.message(at)
	return errors.Join(at.receive(local, at.now.Lease, ops...), far.receive(local, far.now.Lease, ops...))
}

// pairOfStates are two sites and the states that a case may begin with.
type pairOfStates struct {
	a, b   *statesSite
	states [3][2]frozenSite // empty, small, full; of each site
}

var sizes = [3]string{"empty", "small", "full"}

func newPairOfStates(t *testing.T, consensus bool) *pairOfStates {
	t.Helper()
	p := new(pairOfStates)
	p.a, p.b = newStatesSites(t, consensus)
	p.keep(0)
	grow := func(size int, moves ...move) {
		for _, m := range moves {
			need.OKf(t, do(m, p.a, p.b), "%s", m.name)
		}
		need.OK(t, p.converge(0, 0))
		p.keep(size)
	}
	small := []move{
		client("", registry.Register{Instance: stateInstance(orders1, 5)}, registry.Register{Instance: stateInstance(orders2, 5)}, registry.Register{Instance: stateInstance(registry.NewKey("BILLING", "gone"), 5)}),
		client("", registry.Cancel{Key: registry.NewKey("BILLING", "gone")}, registry.SetOverride{Key: orders2, Status: registry.OutOfService, By: byAnn}),
		client("", stateService("", "s1"), stateService("node1", "s2")),
		coordinate("", kv.CreateSession{ID: session, TTL: 100_000}, kv.KeyOp{Verb: kv.Acquire, Key: "a", Session: session}, kv.AcquirePermit{Kind: kv.Semaphore, Name: "p", Session: session, Limit: 1}),
	}
	grow(1, small...)
	var full []move
	for n := range 6 {
		var ops, gone []registry.Op
		for i := range 100 {
			key := registry.NewKey(fmt.Sprint("APP", i%7), fmt.Sprint(n, "-", i))
			ops = append(ops, registry.Register{Instance: stateInstance(key, 5)})
			if i%3 == 0 {
				gone = append(gone, registry.Cancel{Key: key})
			}
		}
		full = append(full, client("", ops...), client("", gone...), client("", stateService("", fmt.Sprint("f", n)), stateService(fmt.Sprint("fnode", n), "g")),
			coordinate("", kv.CreateSession{ID: fmt.Sprint(n, session[1:]), TTL: 100_000}, kv.KeyOp{Verb: kv.Set, Key: fmt.Sprint("key", n)}, kv.AcquirePermit{Kind: kv.Semaphore, Name: "p", Session: fmt.Sprint(n, session[1:]), Limit: 1, Wait: 90_000}))
	}
	grow(2, full...)
	return p
}

func (p *pairOfStates) keep(size int) { p.states[size] = [2]frozenSite{p.a.freeze(), p.b.freeze()} }

func (p *pairOfStates) thaw(size int) error {
	return errors.Join(p.a.thaw(p.states[size][0]), p.b.thaw(p.states[size][1]))
}

// converge has both sites tell each other all since two indexes, until they agree: at the latest after comparisons.
func (p *pairOfStates) converge(fromA, fromB registry.Index) error {
	var beatA, beatB registry.Beat
	for compared := range 4 {
		for round := 0; ; round++ {
			m, err := p.a.send(&fromA, &beatA)
			if err != nil {
				return fmt.Errorf("a to b: %w", err)
			}
			n, err := p.b.send(&fromB, &beatB)
			if err != nil {
				return fmt.Errorf("b to a: %w", err)
			}
			if m+n == 0 {
				break
			}
			if round == 20 {
				return errors.New("the sites never fall silent")
			}
		}
		if disputed(p.a.view(), p.b.view())+disputed(p.b.view(), p.a.view()) == "" {
			return nil
		}
		if compared == 3 {
			break
		}
		for _, s := range []*statesSite{p.a, p.b} { // comparisons leave out what is new
			if err := s.pass(15 * time.Second); err != nil {
				return err
			}
		}
		if _, err := p.a.repair(); err != nil {
			return fmt.Errorf("a compares: %w", err)
		}
		if _, err := p.b.repair(); err != nil {
			return fmt.Errorf("b compares: %w", err)
		}
		// What one site evicted comes again from the other once its client renews it, see Removal.outdates.
		if err := errors.Join(p.a.renewAllBut(p.b.view()), p.b.renewAllBut(p.a.view())); err != nil {
			return err
		}
	}
	return fmt.Errorf("the sites do not agree:\na: %s\nb: %s", disputed(p.a.view(), p.b.view()), disputed(p.b.view(), p.a.view()))
}

// renewAllBut has clients renew the instances that another state does not have.
func (s *statesSite) renewAllBut(v *registry.View) error {
	var ops []registry.Op
	for l := range s.view().All() {
		if _, ok := v.Find(l.Key()); !ok {
			ops = append(ops, registry.Renew{Key: l.Key()})
		}
	}
	_, err := s.perform(itemsOf(ops...)...)
	return err
}

// disputed are the instances of a state that are not the same in another one. Those of the third party do not count: it contradicts
// itself, as no server does, and would compare with both sites. Nor do services that both have by Consul's API: their checks,
// which are not replicated, decide the status of each.
func disputed(v, w *registry.View) (text string) {
	for l := range v.All() {
		m, ok := w.Find(l.Key())
		if l.Owner == "dc9" || ok && (m.Owner == "dc9" || l.Service != nil && m.Service != nil) {
			continue
		}
		if !ok || m.Sum() != l.Sum() {
			text += fmt.Sprintf("%s %+v status %v overridden %v owner %q permanent %t; ", l.Key(), l.Version(), l.Instance.Status, l.Instance.Overridden, l.Owner, l.Permanent)
		}
	}
	return text
}

// try is one case: some moves in a state, at either site, then both sites tell each other all. A panic anywhere is its error.
func (p *pairOfStates) try(size int, moves []move, random *rand.Rand) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
		}
	}()
	if err := p.thaw(size); err != nil {
		return err
	}
	fromA, fromB := p.a.view().Index(), p.b.view().Index()
	at, far := p.a, p.b
	for _, m := range moves {
		if random != nil {
			if random.IntN(2) == 0 {
				at, far = far, at
			}
			span := [...]time.Duration{0, 0, time.Second, 11 * time.Second, 61 * time.Second}[random.IntN(5)]
			if err := errors.Join(p.a.pass(span), p.b.pass(span)); err != nil {
				return err
			}
		}
		if err := do(m, at, far); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	p.a.observe()
	p.b.observe()
	if err := p.converge(fromA, fromB); err != nil {
		return err
	}
	p.a.observe()
	p.b.observe()
	return errors.Join(p.a.check(), p.b.check())
}

// statesForEnv is for how long TestNoSequenceEndsASite tries each mode: all pairs in all states, as far as two thirds of the time
// reach, then random sequences. Without it the test tries what the gate has time for.
const statesForEnv = "ROLLCALL_STATES_FOR"

// Each operation and each item of another server, alone, in pairs and in random sequences, in states that are empty, small and full,
// at sites of both modes that replicate to each other: none panics, stops a site, makes what measures panic, or leaves sites that
// do not agree.
func TestNoSequenceEndsASite(t *testing.T) {
	var lasting time.Duration
	if text := os.Getenv(statesForEnv); text != "" {
		lasting = need.Got(time.ParseDuration(text))(t)
	}
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("ROLLCALL_STATES_SEED"); text != "" {
		seed = need.Got(strconv.ParseUint(text, 10, 64))(t)
	}
	t.Logf("ROLLCALL_STATES_SEED=%d", seed)
	for _, consensus := range []bool{true, false} {
		t.Run(map[bool]string{true: "cp", false: "ap"}[consensus], func(t *testing.T) {
			tryStates(t, newPairOfStates(t, consensus), rand.New(rand.NewPCG(seed, 0)), lasting)
		})
	}
}

func tryStates(t *testing.T, p *pairOfStates, random *rand.Rand, lasting time.Duration) {
	all := moves()
	if !p.a.consensus {
		all = slices.DeleteFunc(all, func(m move) bool { return len(m.name) > 3 && m.name[:3] == "kv." })
	}
	counts := map[string]int{}
	failures := 0
	try := func(kind string, size int, random *rand.Rand, moves ...move) {
		if failures > 10 {
			return
		}
		counts[kind+", "+sizes[size]]++
		if err := p.try(size, moves, random); err != nil {
			failures++
			var names []string
			for _, m := range moves {
				names = append(names, m.name)
			}
			t.Errorf("%s, in a state that is %s, %v: %v", kind, sizes[size], names, err)
		}
	}
	began := time.Now()
	shares := [len(sizes)]int{8, 40, 200} // of so many pairs the gate tries one
	var pairs [][3]int
	for size := range sizes {
		for m := range all {
			try("alone", size, nil, all[m])
			for n := range all {
				if lasting > 0 || random.IntN(shares[size]) == 0 {
					pairs = append(pairs, [3]int{size, m, n})
				}
			}
		}
	}
	random.Shuffle(len(pairs), func(i, j int) { pairs[i], pairs[j] = pairs[j], pairs[i] })
	for _, p := range pairs {
		if lasting == 0 || time.Since(began) < lasting*2/3 {
			try("pair", p[0], nil, all[p[1]], all[p[2]])
		}
	}
	for n := 0; n < 30 || time.Since(began) < lasting; n++ {
		var some []move
		for range 3 + random.IntN(20) {
			some = append(some, all[random.IntN(len(all))])
		}
		try("random", n%len(sizes), random, some...)
	}
	t.Logf("%d moves; cases: %v", len(all), counts)
}
