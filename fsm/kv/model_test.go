package kv_test

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/fsm/kv"
)

// The model is simple enough to be trusted. A second replica is thawed from its own snapshots at random moments: it
// must not differ from the one that never stopped.
func TestStateDoesAsTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		for range rapid.IntRange(40, 120).Draw(t, "steps") {
			w.step()
			w.compare()
			w.promises.check(t, w.state.View())
		}
	})
}

// world is a model, two replicas that must do the same, and the machine around them.
type world struct {
	*rapid.T
	model    *model
	catalog  *catalog
	state    *kv.State // never stops
	thawed   *kv.State
	next     kv.Index
	now      int64 // the leader's lease clock, ms
	term     uint64
	proposed []kv.Op    // by the leader, and not applied yet
	tokens   []kv.Fence // of all acquisitions so far, and one that never was
	promises *promises
}

var (
	sessionIDs  = []string{"sa", "sb", "sc", "sd", "se", "sf"}
	keys        = []string{"a", "a/b", "a/c", "b"}
	permitNames = []permitName{{kv.Lock, "x"}, {kv.Semaphore, "x"}, {kv.Semaphore, "y"}}
	checkNodes  = []string{"", "n"}
)

func newWorld(t *rapid.T) *world {
	c := &catalog{checks: map[kv.CheckRef]bool{{}: false, {ID: "c"}: false, {Node: "n"}: false, {Node: "n", ID: "c"}: false}}
	w := &world{
		T: t, catalog: c, model: newModel(c), state: kv.New(c), thawed: kv.New(c), next: 2,
		tokens: []kv.Fence{{Kind: kv.Key, Name: "a"}}, promises: &promises{reads: map[string]read{}},
	}
	w.model.level = rapid.SampledFrom([]byte{1, 2, 3}).Draw(t, "level")
	w.state.SetLevel(w.model.level)
	w.thawed.SetLevel(w.model.level)
	w.establish()
	for _, id := range sessionIDs {
		w.apply(w.creation(id))
	}
	if rapid.Bool().Draw(t, "queue") {
		for _, id := range sessionIDs {
			w.apply(kv.AcquirePermit{Kind: kv.Semaphore, Name: "x", Session: id, Limit: 2, Wait: 30_000})
		}
	}
	w.compare()
	return w
}

// step may thaw one replica, and takes a random step of at most one operation.
func (w *world) step() {
	if rapid.IntRange(0, 7).Draw(w.T, "thaw") == 0 {
		w.thaw()
	}
	if len(w.proposed) > 0 && rapid.Bool().Draw(w.T, "proposed") {
		w.apply(w.proposed[0])
		w.proposed = w.proposed[1:]
		return
	}
	w.now += rapid.SampledFrom([]int64{0, 0, 1, 0, 1000, 999, 5000, 2000, 10_000}).Draw(w.T, "pass")
	// Small numbers are drawn more often, here and below.
	switch rapid.IntRange(0, 24).Draw(w.T, "step") {
	case 20:
		w.establish()
	case 7, 21:
		w.turnCheck(rapid.SampledFrom(checkNodes).Draw(w.T, "node of check"))
	case 22:
		w.turnNode()
	case 3, 4, 5, 6:
		w.propose()
	case 23, 24:
		w.model.advance(w.now)
		w.state.Advance(w.now)
		w.thawed.Advance(w.now)
	default:
		w.apply(w.op())
	}
}

func (w *world) thaw() {
	thawed, err := kv.Thaw(w.thawed.Freeze(), w.catalog)
	if err != nil {
		w.Fatalf("thaw: %v", err)
	}
	w.thawed = thawed
	w.thawed.SetLevel(w.model.level)
}

// at returns the moment of the next operation. Stamps of different leaders may go back a little.
func (w *world) at() kv.At {
	back := rapid.SampledFrom([]int64{0, 0, 0, 1, 1500}).Draw(w.T, "back")
	return kv.At{Index: w.next, Lease: max(w.now-back, 0), Wall: 1_700_000_000_000 + w.now, Term: w.term, By: rapid.SampledFrom([]string{"", "anna", "bob"}).Draw(w.T, "by")}
}

func (w *world) establish() {
	w.term++
	epoch := kv.Epoch{Term: w.term, Index: uint64(w.next)}
	w.model.establish(epoch, w.now)
	w.state.Establish(epoch, w.now)
	w.thawed.Establish(epoch, w.now)
}

func (w *world) apply(op kv.Op) {
	at := w.at()
	if _, once := op.(kv.Once); once {
		at.By = "anna" // a principal knows only its own idempotency keys
	}
	w.catalog.next = at.Index
	want, got, thawed := w.model.apply(at, op), w.state.Apply(at, op), w.thawed.Apply(at, op)
	if !reflect.DeepEqual(got, want) {
		w.Fatalf("%+v at %+v has the result\n%+v, the model says\n%+v", op, at, got, want)
	}
	if !reflect.DeepEqual(thawed, got) {
		w.Fatalf("%+v at %+v has the result\n%+v, by the thawed replica\n%+v", op, at, got, thawed)
	}
	if txn, ok := op.(kv.Txn); ok && !slices.ContainsFunc(txn.Ops, func(o kv.TxnOp) bool { return o.Key == nil || o.Key.Verb.Writes() }) {
		if read := w.state.View().Read(txn.Ops); !reflect.DeepEqual(read, want) {
			w.Fatalf("%+v reads\n%+v, the model says\n%+v", txn, read, want)
		}
	}
	w.countIndex(want.Index != 0)
}

// countIndex moves to the next index if an operation took one.
func (w *world) countIndex(taken bool) {
	if !taken {
		return
	}
	w.next++
	for _, s := range sessionIDs {
		for f := range w.state.View().Held(s) {
			if f.Index == w.next-1 {
				w.tokens = append(w.tokens, f)
			}
		}
	}
}

// lose ends the sessions of nodes, then those of checks, in one operation.
func (w *world) lose(node *string, refs ...kv.CheckRef) {
	at := w.at()
	var want, got, thawed bool
	if node != nil {
		want = w.model.lose(at, []kv.CheckRef{{Node: *node}})
		got, thawed = w.state.LoseNode(at, *node), w.thawed.LoseNode(at, *node)
	}
	want = w.model.lose(at, refs) || want
	got, thawed = w.state.Lose(at, refs) || got, w.thawed.Lose(at, refs) || thawed
	if got != want || thawed != want {
		w.Fatalf("losing %+v ends sessions: %t and %t, the model says %t", refs, got, thawed, want)
	}
	w.countIndex(want)
}

// turnCheck makes a check critical, or passing again.
func (w *world) turnCheck(node string) {
	ref := kv.CheckRef{Node: node, ID: "c"}
	critical, known := w.catalog.checks[ref]
	if !known {
		return
	}
	w.catalog.checks[ref] = !critical
	if !critical {
		w.lose(nil, ref)
	}
}

// turnNode deregisters a node with its check, or registers them again.
func (w *world) turnNode() {
	node, check := kv.CheckRef{Node: "n"}, kv.CheckRef{Node: "n", ID: "c"}
	if !w.catalog.HasNode("n") {
		w.catalog.checks[node], w.catalog.checks[check] = false, false
		return
	}
	delete(w.catalog.checks, node)
	delete(w.catalog.checks, check)
	w.lose(&node.Node, check)
}

// propose does what the leader does now and then. Its proposals may be applied much later.
func (w *world) propose() {
	want, got, thawed := w.model.due(w.now), w.state.Due(w.now, 100), w.thawed.Due(w.now, 100)
	if !slices.Equal(got, want) {
		w.Fatalf("due at %d are\n%+v, the model says\n%+v", w.now, got, want)
	}
	if !slices.Equal(thawed, got) {
		w.Fatalf("due at %d are\n%+v, in the thawed replica\n%+v", w.now, got, thawed)
	}
	w.proposed = append(w.proposed, got...)
}

// due returns what has ended at a moment, oldest first.
func (m *model) due(now int64) []kv.Op {
	type ended struct {
		since int64
		op    kv.Op
	}
	var sessions, delays []ended
	for _, id := range slices.Sorted(maps.Keys(m.sessions)) {
		s := m.sessions[id]
		if ends := m.ends(s); ends != 0 && ends < now {
			sessions = append(sessions, ended{ends, kv.ExpireSession{Epoch: m.epoch, ID: id, Created: s.session.CreateIndex, RenewedAt: s.renewed}})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(m.delays)) {
		delays = append(delays, ended{m.delays[key], kv.EndDelay{Epoch: m.epoch, Kind: kv.Key, Name: key, Until: m.delays[key]}})
	}
	for _, name := range slices.SortedFunc(maps.Keys(m.permits), comparePermitNames) {
		for _, until := range m.permits[name].Delays {
			delays = append(delays, ended{until, kv.EndDelay{Epoch: m.epoch, Kind: name.kind, Name: name.name, Until: until}})
		}
	}
	delays = slices.DeleteFunc(delays, func(e ended) bool { return e.since > now })
	all := append(sessions, delays...)
	slices.SortStableFunc(all, func(a, b ended) int { return cmp.Compare(a.since, b.since) })
	ops := make([]kv.Op, len(all))
	for i, e := range all {
		ops[i] = e.op
	}
	return ops
}

func (w *world) op() kv.Op {
	switch rapid.IntRange(0, 20).Draw(w.T, "op") {
	case 0, 1, 8, 9, 10, 11, 12, 13, 14:
		return w.permitOp(w.T)
	case 2, 3, 15, 16, 17:
		return w.keyOp(w.T)
	case 4, 5:
		return w.creation(rapid.SampledFrom(sessionIDs).Draw(w.T, "new session"))
	case 6:
		return kv.DestroySession{ID: w.session(w.T)}
	case 7:
		return kv.RenewSession{ID: w.session(w.T)}
	case 20:
		op := kv.Once{Key: rapid.SampledFrom([]string{"x", "y", "z"}).Draw(w.T, "idempotency key"), Op: w.keyOp(w.T)}
		if rapid.Bool().Draw(w.T, "txn once") {
			op.Op = w.txn()
		}
		return op
	default:
		return w.txn()
	}
}

// txn draws a transaction of operations on keys, which may also end sessions.
func (w *world) txn() kv.Txn {
	txn := kv.KeyTxn(rapid.SliceOfN(rapid.Custom(w.keyOp), 0, 4).Draw(w.T, "txn"))
	for i := range txn.Ops {
		if rapid.IntRange(0, 3).Draw(w.T, "ends a session") == 0 {
			txn.Ops[i] = kv.TxnOp{Session: w.session(w.T)}
		}
	}
	return txn
}

func (w *world) creation(id string) kv.CreateSession {
	op := kv.CreateSession{
		ID:        id,
		Node:      rapid.SampledFrom(checkNodes).Draw(w.T, "node"),
		TTL:       rapid.SampledFrom([]int64{0, 10_000, 20_000}).Draw(w.T, "ttl"),
		LockDelay: rapid.SampledFrom([]int64{5e9, 0, 2e9, 90e9, -1}).Draw(w.T, "lock-delay"),
		Behavior:  rapid.SampledFrom([]kv.Behavior{kv.ReleaseKeys, kv.DeleteKeys}).Draw(w.T, "behavior"),
	}
	if rapid.Bool().Draw(w.T, "with check") {
		op.NodeChecks = []string{"c"}
	}
	return op
}

// session draws an id, in any case, that may or may not exist, or "".
func (w *world) session(t *rapid.T) string {
	return rapid.SampledFrom(append(sessionIDs, "SA", "none", "")).Draw(t, "session")
}

func (w *world) keyOp(t *rapid.T) kv.KeyOp {
	op := kv.KeyOp{
		Verb: rapid.SampledFrom([]kv.Verb{
			kv.Acquire, kv.Release, kv.Acquire, kv.Set, kv.Acquire, kv.Release, kv.CAS, kv.Set, kv.Delete, kv.DeleteCAS, kv.DeleteTree,
			kv.Get, kv.GetOrEmpty, kv.GetTree, kv.CheckIndex, kv.CheckSession, kv.CheckNotExists,
		}).Draw(t, "verb"),
		Key:     rapid.SampledFrom(append(keys, "")).Draw(t, "key"),
		Value:   []byte(rapid.SampledFrom([]string{"", "1", "2"}).Draw(t, "value")),
		Flags:   rapid.Uint64Range(0, 1).Draw(t, "flags"),
		Session: w.session(t),
	}
	delayed := slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return !w.model.delayed(key) })
	if len(delayed) > 0 && rapid.IntRange(0, 3).Draw(t, "delayed") == 0 {
		op.Verb, op.Key = kv.Acquire, rapid.SampledFrom(delayed).Draw(t, "delayed key")
	}
	if rapid.Bool().Draw(t, "right index") {
		op.Index = w.model.pairs[op.Key].ModifyIndex
	}
	if rapid.IntRange(0, 3).Draw(t, "fenced") == 0 {
		f := w.fence(t)
		op.Fence = &f
	}
	return op
}

// fence draws an acquisition, mostly a recent one.
func (w *world) fence(t *rapid.T) kv.Fence {
	last := len(w.tokens) - 1
	return w.tokens[max(last-rapid.IntRange(0, 5).Draw(t, "acquisition"), 0)]
}

func (w *world) permitOp(t *rapid.T) kv.Op {
	name, session := rapid.SampledFrom([]permitName{permitNames[1], permitNames[0], permitNames[2]}).Draw(t, "name"), w.session(t)
	switch rapid.IntRange(0, 9).Draw(t, "permit") {
	case 3, 4:
		op := kv.ReleasePermit{Kind: name.kind, Name: name.name, Session: session}
		if rapid.Bool().Draw(t, "by token") {
			op.Index = w.fence(t).Index
		}
		return op
	case 5, 6:
		return kv.LeaveQueue{Kind: name.kind, Name: name.name, Session: session, Release: rapid.Bool().Draw(t, "release")}
	}
	return kv.AcquirePermit{
		Kind: name.kind, Name: name.name, Session: session,
		Limit: rapid.SampledFrom([]uint32{2, 2, 2, 2, 3, 0}).Draw(t, "limit"),
		Value: []byte(rapid.SampledFrom([]string{"", "", "1"}).Draw(t, "value")),
		Wait:  rapid.SampledFrom([]int64{30_000, 30_000, 3000, 0, 1}).Draw(t, "wait"),
	}
}

// compare verifies that the state shows what the model says, and the thawed replica is the same.
func (w *world) compare() {
	v := w.state.View()
	same := func(what string, got, want any) {
		if !reflect.DeepEqual(got, want) {
			w.Fatalf("%s: %+v, the model says %+v", what, got, want)
		}
	}
	same("index", v.Index(), w.model.index)
	same("lease clock", v.Lease(), w.model.lease)
	same("keys", v.Len(), len(w.model.pairs))
	same("sessions' index", v.SessionIndex(), max(w.model.sessionsIndex, 1))
	w.compareKeys(v, same)
	w.compareSessions(v, same)
	w.comparePermits(v, same)
	for _, f := range w.tokens {
		for _, session := range append(sessionIDs, "") {
			holds, now := v.Holds(f, strings.ToUpper(session))
			wantHolds, wantNow := w.model.holds(f, session)
			same("holds", holds, wantHolds)
			same("token now", now, wantNow)
		}
	}
	if got, want := w.thawed.Freeze(), w.state.Freeze(); !reflect.DeepEqual(got, want) {
		w.Fatalf("the thawed replica is\n%+v, the other one\n%+v", got, want)
	}
	same("what each principal has", maps.Collect(w.thawed.View().Uses()), maps.Collect(v.Uses()))
	for by, use := range v.Uses() {
		want := kv.Use{}
		for s := range v.Sessions() {
			if s.By == by {
				want.Sessions++
				want.Bytes += s.Weight() + 512*len(slices.Collect(v.Held(s.ID)))
				for _, name := range permitNames {
					if p, there := w.model.permits[name]; there && p.waiter(s.ID) >= 0 {
						want.Bytes += 512
					}
				}
			}
		}
		for p := range v.Pairs() {
			if p.By == by {
				want.Bytes += p.Weight()
			}
		}
		same("what "+by+" has", use, want)
	}
	same("needs the clock", w.state.NeedsClock(), w.model.needsClock())
	same("the thawed replica needs the clock", w.thawed.NeedsClock(), w.model.needsClock())
	got, want := w.thawed.Touched(), w.state.Touched()
	if !slices.Equal(got, want) {
		w.Fatalf("the thawed replica wakes %+v, the other one %+v", got, want)
	}
	w.promises.touched = want
}

func (w *world) compareKeys(v *kv.View, same func(what string, got, want any)) {
	absent := max(w.model.keysIndex, 1)
	for _, key := range keys {
		e, index := v.Get(key)
		if want, there := w.model.pairs[key]; there {
			same(key, e, &want)
			same("index of "+key, index, want.ModifyIndex)
		} else {
			same(key, e, (*kv.Pair)(nil))
			same("index of "+key, index, absent)
		}
		var delayed int64
		if w.model.delayed(key) {
			delayed = w.model.delays[key]
		}
		same("lock-delay of "+key, v.Delayed(key), delayed)
	}
	for _, prefix := range append(keys, "", "a/", "none") {
		pairs, index, _ := v.List(prefix)
		names, namesIndex, _ := v.Keys(prefix, "/")
		var newest kv.Index
		var want []string
		for _, e := range w.model.under(prefix) {
			newest = max(newest, e.ModifyIndex)
			name, rest := prefix, e.Key[len(prefix):]
			if first, _, cut := strings.Cut(rest, "/"); cut {
				name += first + "/"
			} else {
				name += rest
			}
			want = append(want, name)
		}
		for key, d := range w.model.deletions {
			if strings.HasPrefix(key, prefix) {
				newest = max(newest, d.index)
			}
		}
		if newest == 0 || prefix == "" {
			newest = absent
		}
		same("keys under "+prefix, pairs, w.model.under(prefix))
		same("index of "+prefix, index, newest)
		same("names under "+prefix, names, slices.Compact(want))
		same("index of names under "+prefix, namesIndex, newest)
	}
}

func (w *world) compareSessions(v *kv.View, same func(what string, got, want any)) {
	var ids []string
	for s := range v.Sessions() {
		ids = append(ids, s.ID)
		want := w.model.sessions[s.ID]
		same("session "+s.ID, s, want.session)
		same("renewal of "+s.ID, v.Renewed(s), want.renewed)
		same("end of "+s.ID, v.Ends(s), w.model.ends(want))
	}
	same("sessions", ids, slices.Sorted(maps.Keys(w.model.sessions)))
	for _, id := range sessionIDs {
		var held []kv.Fence
		for _, key := range keys {
			if e := w.model.pairs[key]; e.Session == id {
				held = append(held, kv.Fence{Kind: kv.Key, Name: key, Index: e.Fence})
			}
		}
		for _, name := range permitNames {
			p := w.model.permits[name]
			if i := p.holder(id); i >= 0 {
				held = append(held, kv.Fence{Kind: name.kind, Name: name.name, Index: p.Holders[i].Fence})
			}
		}
		same("held by "+id, slices.Collect(v.Held(strings.ToUpper(id))), held)
	}
}

func (w *world) comparePermits(v *kv.View, same func(what string, got, want any)) {
	all := map[kv.Kind][]*kv.Permits{}
	for _, name := range permitNames {
		p, index := v.Permits(name.kind, name.name)
		want, there := w.model.permits[name]
		if !there {
			same(name.name, p, (*kv.Permits)(nil))
			same("index of "+name.name, index, max(w.model.permitsIndex, 1))
			continue
		}
		same("index of "+name.name, index, want.ModifyIndex)
		// An empty list may be nil or not in the model.
		got := *p
		for _, lists := range []*kv.Permits{&got, &want.Permits} {
			lists.Holders, lists.Queue, lists.Delays = append([]kv.Holder{}, lists.Holders...), append([]kv.Waiter{}, lists.Queue...), append([]int64{}, lists.Delays...)
		}
		same(name.name, got, want.Permits)
		all[name.kind] = append(all[name.kind], p)
	}
	for _, kind := range []kv.Kind{kv.Lock, kv.Semaphore} {
		same("list", slices.Collect(v.AllPermits(kind)), all[kind])
	}
}
