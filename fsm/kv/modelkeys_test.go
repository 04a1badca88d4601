package kv_test

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	consul "github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// model is the whole state as plain maps and slices, with its rules written as simply as possible. It drops nothing,
// and searches everything for whatever it needs.
type model struct {
	catalog *catalog

	index, keysIndex, sessionsIndex, permitsIndex kv.Index

	level              byte
	lease, established int64
	epoch              kv.Epoch

	sessions  map[string]modelSession
	pairs     map[string]kv.Pair
	deletions map[string]modelDeletion
	delays    map[string]int64 // of keys
	permits   map[permitName]modelPermits
	once      map[string]modelOnce
}

type modelOnce struct {
	op     kv.Op
	result kv.Result
}

type modelSession struct {
	session *kv.Session
	renewed int64
}

type modelDeletion struct{ index, fence kv.Index }

// catalog holds the registered checks by node and id ("" is the node), and whether they are critical.
type catalog struct {
	checks map[kv.CheckRef]bool
	next   kv.Index
}

func (c *catalog) HasNode(node string) bool {
	_, known := c.checks[kv.CheckRef{Node: node}]
	return known
}

// Transactions do nothing to nodes and checks here; those that end sessions take an index like all others.
func (c *catalog) Next() kv.Index         { return c.next }
func (c *catalog) Attempt(do func() bool) { do() }

func (c *catalog) Raise(beyond kv.Index, _ int64) kv.Index {
	c.next = max(c.next, beyond) + registry.Incarnation
	return c.next - 1
}

func (c *catalog) Readmit(registry.Image, registry.Act) (int, []kv.CheckRef) { return 0, nil }

func (c *catalog) PerformInTxn(registry.CatalogOp) registry.CatalogResult {
	return registry.CatalogResult{}
}

func (c *catalog) Lost() []kv.CheckRef { return nil }

func (c *catalog) CheckState(node, id string) (status consul.CheckStatus, known bool) {
	critical, known := c.checks[kv.CheckRef{Node: node, ID: id}]
	if critical {
		status = consul.Critical
	}
	return status, known
}

func newModel(c *catalog) *model {
	return &model{
		catalog:   c,
		sessions:  map[string]modelSession{},
		pairs:     map[string]kv.Pair{},
		deletions: map[string]modelDeletion{},
		delays:    map[string]int64{},
		permits:   map[permitName]modelPermits{},
		once:      map[string]modelOnce{},
	}
}

// clone copies everything that an operation changes. Slices and pointers in it are replaced, never written.
func (m *model) clone() *model {
	c := *m
	c.sessions, c.pairs, c.deletions = maps.Clone(m.sessions), maps.Clone(m.pairs), maps.Clone(m.deletions)
	c.delays, c.permits = maps.Clone(m.delays), maps.Clone(m.permits)
	return &c
}

func (m *model) advance(lease int64) { m.lease = max(m.lease, lease) }

func (m *model) establish(epoch kv.Epoch, lease int64) {
	m.advance(lease)
	m.epoch, m.established = epoch, m.lease
}

func (m *model) apply(at kv.At, op kv.Op) kv.Result {
	m.advance(at.Lease)
	at.Lease = m.lease
	before := m.index
	res := m.perform(at, op)
	if m.index != before {
		res.Index = at.Index
	}
	return res
}

func (m *model) perform(at kv.At, op kv.Op) kv.Result {
	switch op := op.(type) {
	case kv.KeyOp:
		return m.keyOp(at, op)
	case kv.Txn:
		return m.txn(at, op)
	case kv.CreateSession:
		return m.create(at, op)
	case kv.RenewSession:
		s, ok := m.sessions[strings.ToLower(op.ID)]
		if ok {
			m.sessions[s.session.ID] = modelSession{s.session, m.lease}
		}
		return kv.Result{OK: ok, Session: s.session}
	case kv.DestroySession:
		m.endSessions(at, strings.ToLower(op.ID))
		return kv.Result{OK: true}
	case kv.ExpireSession:
		return m.expire(at, op)
	case kv.EndDelay:
		return m.endDelay(at, op)
	case kv.AcquirePermit:
		return m.acquirePermit(at, op)
	case kv.ReleasePermit:
		return m.releasePermit(at, op)
	case kv.LeaveQueue:
		return m.leaveQueue(at, op)
	case kv.Once:
		first, known := m.once[op.Key]
		if !known {
			first = modelOnce{op.Op, m.perform(at, op.Op)}
			m.once[op.Key] = first
		}
		if !reflect.DeepEqual(first.op, op.Op) {
			return kv.Result{Refusal: fmt.Sprintf("idempotency key %q was used for another operation", op.Key)}
		}
		return first.result
	}
	panic(fmt.Sprintf("no model of %T", op))
}

func (m *model) create(at kv.At, op kv.CreateSession) kv.Result {
	if _, exists := m.sessions[op.ID]; exists {
		return kv.Result{Refusal: fmt.Sprintf("session %q exists already", op.ID)}
	}
	if !m.catalog.HasNode(op.Node) {
		return kv.Result{Refusal: "Missing node registration"}
	}
	for _, id := range op.NodeChecks {
		critical, known := m.catalog.checks[kv.CheckRef{Node: op.Node, ID: id}]
		if !known {
			return kv.Result{Refusal: fmt.Sprintf("Missing check '%s' registration", id)}
		}
		if critical {
			return kv.Result{Refusal: fmt.Sprintf("Check '%s' is in critical state", id)}
		}
	}
	s := &kv.Session{
		ID: op.ID, Node: op.Node, TTL: op.TTL, LockDelay: op.LockDelay, Behavior: op.Behavior, NodeChecks: op.NodeChecks,
		CreateIndex: at.Index, ModifyIndex: at.Index, CreatedAt: m.lease, CreatedWall: at.Wall, By: at.By,
	}
	m.sessions[op.ID] = modelSession{s, m.lease}
	m.index, m.sessionsIndex = at.Index, at.Index
	return kv.Result{OK: true, Session: s}
}

// needsClock reports whether something has an end: a session, a lock-delay, or a wait.
func (m *model) needsClock() bool {
	needs := len(m.delays) > 0
	for _, s := range m.sessions {
		needs = needs || s.session.TTL > 0
	}
	for _, p := range m.permits {
		needs = needs || len(p.Queue)+len(p.Delays) > 0
	}
	return needs
}

// ends returns the last moment of a session, or 0 if it lasts.
func (m *model) ends(s modelSession) int64 {
	ttl := s.session.TTL
	if ttl == 0 {
		return 0
	}
	grace := min(ttl, ttl/2+2000)
	if m.level < 2 {
		return max(s.renewed+ttl, m.established+grace)
	}
	return max(s.renewed+ttl, min(m.established, s.renewed+ttl)+grace)
}

func (m *model) expire(at kv.At, op kv.ExpireSession) kv.Result {
	s, ok := m.sessions[op.ID]
	if !ok || op.Epoch != m.epoch || at.Term != m.epoch.Term || s.session.CreateIndex != op.Created || s.renewed != op.RenewedAt {
		return kv.Result{}
	}
	if m.ends(s) == 0 || m.ends(s) >= m.lease {
		return kv.Result{}
	}
	m.endSessions(at, op.ID)
	return kv.Result{OK: true}
}

// lose ends the sessions that depend on one of the checks, or (ID "") on their node.
func (m *model) lose(at kv.At, refs []kv.CheckRef) bool {
	m.advance(at.Lease)
	at.Lease = m.lease
	var lost []string
	for _, id := range slices.Sorted(maps.Keys(m.sessions)) {
		s := m.sessions[id].session
		if slices.ContainsFunc(refs, func(r kv.CheckRef) bool {
			return r.Node == s.Node && (r.ID == "" || slices.Contains(s.NodeChecks, r.ID))
		}) {
			lost = append(lost, id)
		}
	}
	m.endSessions(at, lost...)
	return len(lost) > 0
}

// endSessions ends those of the sessions that exist.
func (m *model) endSessions(at kv.At, ids ...string) {
	var ended []*kv.Session
	for _, id := range ids {
		if s, ok := m.sessions[id]; ok {
			ended = append(ended, s.session)
			delete(m.sessions, id)
			m.index, m.sessionsIndex = at.Index, at.Index
		}
	}
	for _, s := range ended {
		delay := min(max(s.LockDelay, 0), kv.MaxLockDelay) / 1_000_000
		for key, e := range m.pairs {
			if e.Session != s.ID {
				continue
			}
			if delay > 0 {
				m.delays[key] = m.lease + delay
			}
			if s.Behavior == kv.DeleteKeys {
				m.remove(at, key)
				continue
			}
			e.Session, e.ModifyIndex = "", at.Index
			m.enter(at, e)
		}
		m.losePermits(at, s.ID, delay)
	}
}

func (m *model) enter(at kv.At, e kv.Pair) {
	m.pairs[e.Key] = e
	delete(m.deletions, e.Key)
	m.index, m.keysIndex = at.Index, at.Index
}

func (m *model) remove(at kv.At, key string) {
	if e, ok := m.pairs[key]; ok {
		delete(m.pairs, key)
		m.deletions[key] = modelDeletion{at.Index, e.Fence}
		m.index, m.keysIndex = at.Index, at.Index
	}
}

func (m *model) endDelay(at kv.At, op kv.EndDelay) kv.Result {
	if op.Epoch != m.epoch || at.Term != m.epoch.Term || op.Until > m.lease {
		return kv.Result{}
	}
	if op.Kind != kv.Key {
		return m.endPermitDelay(at, op)
	}
	if until, ok := m.delays[op.Name]; !ok || until != op.Until {
		return kv.Result{}
	}
	delete(m.delays, op.Name)
	return kv.Result{OK: true}
}

func (m *model) delayed(key string) bool { return m.delays[key] > m.lease }

// token returns the token of the acquisition that holds a key, or 0.
func (m *model) token(key string) kv.Index {
	if e := m.pairs[key]; e.Session != "" {
		return e.Fence
	}
	return 0
}

func (m *model) keyOp(at kv.At, op kv.KeyOp) kv.Result {
	if op.Key == "" && op.Verb != kv.DeleteTree {
		return kv.Result{Refusal: "Must provide key"}
	}
	if !op.Verb.Writes() {
		_, what := m.read(op)
		return kv.Result{OK: what == ""}
	}
	if op.Fence != nil {
		if holds, now := m.holds(*op.Fence, ""); !holds {
			return kv.Result{Fence: now}
		}
	}
	what, refused := m.write(at, op)
	if refused {
		return kv.Result{Refusal: what}
	}
	return kv.Result{OK: what == "", Fence: m.token(op.Key)}
}

// write performs a verb that writes, or says why not.
func (m *model) write(at kv.At, op kv.KeyOp) (what string, refused bool) {
	e, there := m.pairs[op.Key]
	session := strings.ToLower(op.Session)
	switch op.Verb {
	case kv.Set:
		m.set(at, op, e.Session)
	case kv.CAS:
		if e.ModifyIndex != op.Index { // 0 if it is absent
			return fmt.Sprintf("failed to set key %q, index is stale", op.Key), false
		}
		m.set(at, op, e.Session)
	case kv.Acquire:
		_, known := m.sessions[session]
		switch {
		case op.Session == "":
			return "missing session", true
		case !known:
			return fmt.Sprintf("invalid session %q", op.Session), true
		case m.delayed(op.Key):
			return fmt.Sprintf("failed to lock key %q due to lock delay", op.Key), false
		case e.Session != "" && e.Session != session:
			return fmt.Sprintf("failed to lock key %q, lock is already held", op.Key), false
		}
		m.set(at, op, session)
	case kv.Release:
		switch {
		case op.Session == "":
			return "missing session", true
		case e.Session != session:
			return fmt.Sprintf("failed to unlock key %q, lock isn't held, or is held by another session", op.Key), false
		}
		m.set(at, op, "")
	case kv.Delete:
		m.remove(at, op.Key)
	case kv.DeleteCAS:
		if there && e.ModifyIndex != op.Index {
			return fmt.Sprintf("failed to delete key %q, index is stale", op.Key), false
		}
		m.remove(at, op.Key)
	case kv.DeleteTree:
		for _, e := range m.under(op.Key) {
			m.remove(at, e.Key)
		}
	default:
		panic(fmt.Sprintf("no model of verb %d", op.Verb))
	}
	return "", false
}

func (m *model) set(at kv.At, op kv.KeyOp, holder string) {
	e, there := m.pairs[op.Key]
	if there && e.Session == holder && e.Flags == op.Flags && bytes.Equal(e.Value, op.Value) {
		return
	}
	if !there {
		e = kv.Pair{Key: op.Key, CreateIndex: at.Index, Fence: m.deletions[op.Key].fence}
	}
	if holder != "" && holder != e.Session {
		e.LockIndex++
		e.Fence = at.Index
	}
	e.Value, e.Flags, e.Session, e.ModifyIndex = nonEmpty(op.Value), op.Flags, holder, at.Index
	if m.level >= 3 {
		e.By = at.By
	}
	m.enter(at, e)
}

func nonEmpty(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}

// under lists the pairs whose keys begin with prefix, by key.
func (m *model) under(prefix string) (found []*kv.Pair) {
	for _, key := range slices.Sorted(maps.Keys(m.pairs)) {
		if e := m.pairs[key]; strings.HasPrefix(key, prefix) {
			found = append(found, &e)
		}
	}
	return found
}

// read performs a verb that does not write.
func (m *model) read(op kv.KeyOp) (pairs []*kv.Pair, what string) {
	e, there := m.pairs[op.Key]
	bare := e
	bare.Value = nil
	switch {
	case op.Verb == kv.GetTree:
		return m.under(op.Key), ""
	case op.Verb == kv.GetOrEmpty && !there:
		return []*kv.Pair{{Key: op.Key}}, ""
	case op.Verb == kv.GetOrEmpty, op.Verb == kv.Get && there:
		return []*kv.Pair{&e}, ""
	case op.Verb == kv.Get:
		return nil, fmt.Sprintf("key %q doesn't exist", op.Key)
	case op.Verb == kv.CheckNotExists && there:
		return nil, fmt.Sprintf("key %q exists", op.Key)
	case op.Verb == kv.CheckNotExists:
		return nil, ""
	case op.Verb == kv.CheckIndex && !there:
		return nil, fmt.Sprintf("failed to check index, key %q doesn't exist", op.Key)
	case op.Verb == kv.CheckSession && !there:
		return nil, fmt.Sprintf("failed to check session, key %q doesn't exist", op.Key)
	case op.Verb == kv.CheckIndex && e.ModifyIndex != op.Index:
		return nil, fmt.Sprintf("failed index check for key %q, current modify index %d != %d", op.Key, e.ModifyIndex, op.Index)
	case op.Verb == kv.CheckSession && e.Session != strings.ToLower(op.Session):
		return nil, fmt.Sprintf("failed session check for key %q, current session %q != %q", op.Key, e.Session, op.Session)
	}
	return []*kv.Pair{&bare}, ""
}

// txn performs a transaction on a copy, which becomes the model if nothing failed.
func (m *model) txn(at kv.At, op kv.Txn) kv.Result {
	var errs []kv.TxnError
	fail := func(i int, what string) { errs = append(errs, kv.TxnError{OpIndex: i, What: what}) }
	for i, each := range op.Ops {
		o := each.Key
		if o == nil && each.Session == "" {
			fail(i, "unknown operation type")
		} else if o == nil {
			continue
		} else if o.Key == "" && o.Verb != kv.DeleteTree {
			fail(i, "Must provide key")
		} else if o.Verb == kv.Acquire && m.delayed(o.Key) {
			fail(i, fmt.Sprintf("failed to lock key %q due to lock delay", o.Key))
		}
	}
	if errs != nil {
		return kv.Result{Errors: errs}
	}
	tried := m.clone()
	var pairs []*kv.Pair
	for i, o := range op.Ops {
		if o.Session != "" {
			tried.endSessions(at, strings.ToLower(o.Session))
			continue
		}
		found, what := tried.member(at, *o.Key)
		if what != "" {
			fail(i, what)
		}
		pairs = append(pairs, found...)
	}
	if errs != nil {
		return kv.Result{Errors: errs}
	}
	*m = *tried
	return kv.Result{OK: true, Pairs: pairs}
}

func (m *model) member(at kv.At, op kv.KeyOp) (pairs []*kv.Pair, what string) {
	if !op.Verb.Writes() {
		return m.read(op)
	}
	if op.Fence != nil {
		if holds, _ := m.holds(*op.Fence, ""); !holds {
			return nil, fmt.Sprintf("fence of key %q does not hold", op.Key)
		}
	}
	if what, _ := m.write(at, op); what != "" {
		return nil, what
	}
	if op.Verb == kv.Delete || op.Verb == kv.DeleteCAS || op.Verb == kv.DeleteTree {
		return nil, ""
	}
	e := m.pairs[op.Key]
	e.Value = nil
	return []*kv.Pair{&e}, ""
}
