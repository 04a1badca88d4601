package fsm

import (
	"reflect"
	"slices"

	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// The twins use only a few names, so that operations meet.
var (
	twinKeys     = []string{"a", "a/1", "a/2", "b"}
	twinSessions = []string{"s1", "s2", "s3"}
	twinPermits  = []string{"p", "q"}
	twinNodes    = []string{"", "n1", "n2"}
	twinServices = []string{"web", "db"}
	twinChecks   = []string{"c1", "c2"}
)

// kvOp draws an operation of coordination.
func (tw *twins) kvOp(t *rapid.T) kv.Op {
	if rapid.IntRange(0, 5).Draw(t, "once") == 0 {
		return kv.Once{Key: rapid.SampledFrom([]string{"o1", "o2"}).Draw(t, "onceKey"), Op: tw.simpleKVOp(t)}
	}
	return tw.simpleKVOp(t)
}

func (tw *twins) simpleKVOp(t *rapid.T) kv.Op {
	session := rapid.SampledFrom(twinSessions).Draw(t, "session")
	held := rapid.SampledFrom([]kv.Kind{kv.Lock, kv.Semaphore}).Draw(t, "kind")
	permit := rapid.SampledFrom(twinPermits).Draw(t, "permit")
	switch rapid.IntRange(0, 10).Draw(t, "op") {
	case 0, 1, 2:
		return tw.keyOp(t)
	case 3:
		return keyTxn(rapid.SliceOfN(rapid.Custom(tw.keyOp), 0, 3).Draw(t, "ops"))
	case 4, 5:
		return tw.createSession(t, session)
	case 6:
		return kv.RenewSession{ID: session}
	case 7:
		return kv.DestroySession{ID: session}
	case 8:
		return kv.ReleasePermit{Kind: held, Name: permit, Session: session, Index: tw.token(t)}
	case 9:
		return kv.LeaveQueue{Kind: held, Name: permit, Session: session, Release: rapid.Bool().Draw(t, "release")}
	}
	return kv.AcquirePermit{Kind: held, Name: permit, Session: session, Limit: rapid.Uint32Range(1, 2).Draw(t, "limit"),
		Value: drawValue(t), Wait: rapid.SampledFrom([]int64{0, 5000}).Draw(t, "wait")}
}

func drawValue(t *rapid.T) []byte {
	return rapid.SampledFrom([][]byte{nil, []byte("v"), []byte("w")}).Draw(t, "value")
}

func (tw *twins) keyOp(t *rapid.T) kv.KeyOp {
	op := kv.KeyOp{Verb: kv.Verb(rapid.ByteMax(lastVerb).Draw(t, "verb")), Key: rapid.SampledFrom(twinKeys).Draw(t, "key"),
		Value: drawValue(t), Session: rapid.SampledFrom(twinSessions).Draw(t, "holder")}
	if rapid.Bool().Draw(t, "conditional") {
		if e, _ := tw.straight.KV().Get(op.Key); e != nil {
			op.Index = e.ModifyIndex
		}
	}
	if rapid.IntRange(0, 3).Draw(t, "fenced") == 0 {
		op.Fence = &kv.Fence{Kind: kv.Key, Name: op.Key, Index: tw.token(t)}
	}
	return op
}

func (tw *twins) createSession(t *rapid.T, id string) kv.Op {
	op := kv.CreateSession{ID: id, Node: rapid.SampledFrom(twinNodes).Draw(t, "node"),
		TTL:       rapid.SampledFrom([]int64{0, 3000, 10_000}).Draw(t, "ttl"),
		LockDelay: rapid.SampledFrom([]int64{0, 2_000_000_000}).Draw(t, "delay"),
		Behavior:  kv.Behavior(rapid.ByteMax(byte(kv.DeleteKeys)).Draw(t, "behavior"))}
	switch rapid.IntRange(0, 2).Draw(t, "checks") {
	case 1:
		op.ServiceChecks = []string{rapid.SampledFrom(twinChecks).Draw(t, "check")}
	case 2:
		op.Checks = []string{rapid.SampledFrom(twinChecks).Draw(t, "check")}
		op.NodeChecks = op.Checks
	}
	return op
}

// token draws a token that was given out, or 0.
func (tw *twins) token(t *rapid.T) kv.Index {
	return rapid.SampledFrom(append(tw.tokens, 0)).Draw(t, "token")
}

// catalogOp draws an operation on few nodes, services and checks.
func (tw *twins) catalogOp(t *rapid.T) registry.Op {
	node := rapid.SampledFrom(twinNodes).Draw(t, "node")
	check := rapid.SampledFrom(twinChecks).Draw(t, "check")
	status := catalog.CheckStatus(rapid.ByteMax(byte(catalog.Critical)).Draw(t, "status"))
	switch rapid.IntRange(0, 5).Draw(t, "op") {
	case 0, 1:
		return tw.registerCatalog(t, node)
	case 2:
		op := registry.DeregisterCatalog{Node: node}
		switch rapid.IntRange(0, 2).Draw(t, "of") {
		case 1:
			op.Check = check
		case 2:
			op.Service = rapid.SampledFrom(twinServices).Draw(t, "service")
		}
		return op
	}
	return registry.SetCheck{Node: node, Check: check, Status: status, Output: rapid.SampledFrom([]string{"", "fine", "late"}).Draw(t, "output"),
		TTL: rapid.Bool().Draw(t, "ttl")}
}

func (tw *twins) registerCatalog(t *rapid.T, node string) registry.Op {
	op := registry.RegisterCatalog{KeepNode: rapid.Bool().Draw(t, "keep"), ReplaceChecks: rapid.Bool().Draw(t, "replace"),
		KeepStatus: rapid.Bool().Draw(t, "keepStatus"), Agent: rapid.Bool().Draw(t, "agent"), Readdress: rapid.Bool().Draw(t, "readdress")}
	if node != "" {
		op.Node = &catalog.Node{Name: node, Address: rapid.SampledFrom([]string{"192.0.2.1", "192.0.2.2"}).Draw(t, "address")}
	} else if rapid.Bool().Draw(t, "withMeta") {
		op.Node = &catalog.Node{Meta: []registry.Pair{{Key: "rack", Value: rapid.SampledFrom([]string{"7", "8"}).Draw(t, "rack")}}}
	}
	service := ""
	if rapid.Bool().Draw(t, "withService") {
		service = rapid.SampledFrom(twinServices).Draw(t, "service")
		op.Service, op.Instance = twinService(node, service)
	}
	for _, id := range rapid.SliceOfNDistinct(rapid.SampledFrom(twinChecks), 0, 2, rapid.ID).Draw(t, "checks") {
		c := &catalog.Check{Node: node, ID: id, Type: "ttl", Status: catalog.CheckStatus(rapid.ByteMax(byte(catalog.Critical)).Draw(t, "status")),
			TTL:       rapid.SampledFrom([]int64{0, 5000}).Draw(t, "ttl"),
			ReapAfter: rapid.SampledFrom([]int64{0, 60_000}).Draw(t, "reap")}
		if rapid.Bool().Draw(t, "ofService") {
			c.Service = service
		}
		aliased(t, c)
		op.Checks = append(op.Checks, c)
	}
	return op
}

// aliased makes some checks follow a service or a node.
func aliased(t *rapid.T, c *catalog.Check) {
	if rapid.IntRange(0, 3).Draw(t, "alias") > 0 {
		return
	}
	c.TTL, c.Type = 0, "alias"
	c.Alias = &catalog.Alias{Named: rapid.Bool().Draw(t, "named"), Node: rapid.SampledFrom(twinNodes).Draw(t, "aliasNode"),
		Service: rapid.SampledFrom(append(twinServices, "")).Draw(t, "aliasService")}
}

// twinService returns a service on a node, with its instance in the registry. Some meet instances that Eureka's
// clients register.
func twinService(node, id string) (*catalog.Service, *registry.Instance) {
	key := registry.Key{App: "A", ID: id}
	if node != "" {
		key.ID = node + ":" + id
	} else if id == "db" {
		key.ID = "1"
	}
	s := &catalog.Service{Name: "a", ID: id, Node: node, Tags: []string{"t"}, WeightPassing: 1, WeightWarning: 1}
	if key.ID == "1" {
		s.ID = "1"
	}
	return s, instance(key.App, key.ID)
}

// expire ends sessions and lock-delays when they are due, or later, when others may have replaced them.
func (tw *twins) expire(t *rapid.T) {
	tw.pass(t)
	due, other := tw.straight.KVDue(tw.stamp.Lease, 10), tw.restored.KVDue(tw.stamp.Lease, 10)
	need.That(t, reflect.DeepEqual(due, other), "due: %+v, and on the restored twin %+v", due, other)
	if rapid.IntRange(0, 3).Draw(t, "late") == 0 {
		tw.write(t)
	}
	var items []Item
	for _, op := range due {
		items = append(items, Item{KV: op})
	}
	tw.apply(t, [][]byte{tw.batch(t, items)})
}

// compareCoordination asks the twins for everything that readers ask of coordination and of the catalog.
func (tw *twins) compareCoordination(t *rapid.T) {
	for what, explain := range map[string]func(*Machine) any{
		"keys":     func(m *Machine) any { return list2(m.KV().List("")) },
		"under a/": func(m *Machine) any { return list2(m.KV().List("a/")) },
		"sessions": func(m *Machine) any {
			return []any{slices.Collect(m.KV().Sessions()), m.KV().SessionIndex(), m.KV().Index()}
		},
		"ends":       ends,
		"held":       held,
		"locks":      func(m *Machine) any { return slices.Collect(m.KV().AllPermits(kv.Lock)) },
		"semaphores": func(m *Machine) any { return slices.Collect(m.KV().AllPermits(kv.Semaphore)) },
		"delays":     delays,
		"nodes":      nodes,
		"checks":     checks,
		"services":   services,
		"clock":      (*Machine).needed,
		"due":        func(m *Machine) any { return m.KVDue(tw.stamp.Lease+100_000, 100) },
	} {
		a, b := explain(tw.straight), explain(tw.restored)
		need.That(t, reflect.DeepEqual(a, b), "%s: %+v, and on the restored twin %+v", what, a, b)
	}
}

func (m *Machine) needed() any { return m.NeedsClock() }

func list2[T any](all []T, index kv.Index, _ bool) any { return []any{all, index} }

func ends(m *Machine) any {
	var all []int64
	for s := range m.KV().Sessions() {
		all = append(all, m.KV().Renewed(s), m.KV().Ends(s))
	}
	return all
}

func held(m *Machine) any {
	var all []any
	for _, s := range twinSessions {
		for f := range m.KV().Held(s) {
			all = append(all, s, f)
		}
	}
	return all
}

func delays(m *Machine) any {
	var all []any
	for _, key := range twinKeys {
		_, index := m.KV().Get(key)
		all = append(all, m.KV().Delayed(key), index)
	}
	for _, p := range twinPermits {
		for _, kind := range []kv.Kind{kv.Lock, kv.Semaphore} {
			held, index := m.KV().Permits(kind, p)
			all = append(all, held, index)
		}
	}
	return all
}

// nodes returns the encodings of nodes, because an empty list equals none; checks and services are compared likewise.
func nodes(m *Machine) any {
	var b []byte
	for n := range m.View().Nodes() {
		b = append(b, itemBytes(Item{Op: registry.RegisterCatalog{Node: n}})...)
	}
	return []any{b, m.View().CatalogIndex()}
}

func checks(m *Machine) any {
	var all []any
	for _, node := range twinNodes {
		for _, id := range twinChecks {
			if c, ok := m.View().CheckOn(node, id); ok {
				all = append(all, itemBytes(Item{Op: registry.RegisterCatalog{Checks: []*catalog.Check{c}}}), m.View().LastHeartbeat(c))
			}
		}
	}
	return all
}

func services(m *Machine) any {
	var all []any
	for _, node := range twinNodes {
		for l := range m.View().ServicesOn(node) {
			all = append(all, l.Key(), itemBytes(Item{Op: registry.RegisterCatalog{Service: l.Service, Instance: l.Instance}}), l.Permanent)
		}
	}
	for app := range m.View().Apps() {
		all = append(all, app.ServiceName(), app.Changed)
	}
	return all
}
