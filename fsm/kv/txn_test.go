package kv

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

// txnRig has keys free (at 102), held by s1 (at 103), and the sessions s1 and s2.
func txnRig(t *testing.T) *rig {
	r := newRig(t)
	r.session(s1, lockDelay(5000))
	r.session(s2)
	r.yes(set("free", "1"))
	r.yes(acquire("held", s1))
	return r
}

func TestTransactionReturnsPairsByVerb(t *testing.T) {
	free := &Pair{Key: "free", Value: []byte("1"), CreateIndex: 102, ModifyIndex: 102}
	held := &Pair{Key: "held", Value: []byte("held"), Session: s1, LockIndex: 1, CreateIndex: 103, ModifyIndex: 103, Fence: 103}
	bare := func(e Pair, change func(e *Pair)) []*Pair {
		e.Value = nil
		change(&e)
		return []*Pair{&e}
	}
	same := func(*Pair) {}
	created := func(e *Pair) { *e = Pair{Key: "new", CreateIndex: 104, ModifyIndex: 104} }
	tests := []struct {
		name string
		op   KeyOp
		want []*Pair
		what string // why it fails
	}{
		{name: "set", op: set("new", "2"), want: bare(*free, created)},
		{name: "set what is so already", op: set("free", "1"), want: bare(*free, same)},
		{name: "cas", op: KeyOp{Verb: CAS, Key: "free", Index: 102, Flags: 3}, want: bare(*free, func(e *Pair) { e.ModifyIndex, e.Flags = 104, 3 })},
		{name: "cas of another index", op: KeyOp{Verb: CAS, Key: "free", Index: 1}, what: `failed to set key "free", index is stale`},
		{name: "lock", op: acquire("free", s2), want: bare(*free, func(e *Pair) { e.ModifyIndex, e.Session, e.LockIndex, e.Fence = 104, s2, 1, 104 })},
		{name: "lock without session", op: acquire("free", ""), what: "missing session"},
		{name: "lock by an unknown session", op: acquire("free", "x"), what: `invalid session "x"`},
		{name: "lock what is held", op: acquire("held", s2), what: `failed to lock key "held", lock is already held`},
		{name: "unlock", op: release("held", s1), want: bare(*held, func(e *Pair) { e.ModifyIndex, e.Session = 104, "" })},
		{name: "unlock without session", op: release("held", ""), what: "missing session"},
		{name: "unlock by another", op: release("held", s2), what: `failed to unlock key "held", lock isn't held, or is held by another session`},
		{name: "unlock what is absent", op: release("new", s2), what: `failed to unlock key "new", lock isn't held, or is held by another session`},
		{name: "get", op: KeyOp{Verb: Get, Key: "free"}, want: []*Pair{free}},
		{name: "get what is absent", op: KeyOp{Verb: Get, Key: "new"}, what: `key "new" doesn't exist`},
		{name: "get-or-empty", op: KeyOp{Verb: GetOrEmpty, Key: "free"}, want: []*Pair{free}},
		{name: "get-or-empty of what is absent", op: KeyOp{Verb: GetOrEmpty, Key: "new"}, want: []*Pair{{Key: "new"}}},
		{name: "get-tree", op: KeyOp{Verb: GetTree, Key: "f"}, want: []*Pair{free}},
		{name: "get-tree of nothing", op: KeyOp{Verb: GetTree, Key: "n"}},
		{name: "check-index", op: KeyOp{Verb: CheckIndex, Key: "free", Index: 102}, want: bare(*free, same)},
		{name: "check-index of what is absent", op: KeyOp{Verb: CheckIndex, Key: "new"}, what: `failed to check index, key "new" doesn't exist`},
		{name: "check-index of another", op: KeyOp{Verb: CheckIndex, Key: "free", Index: 1}, what: `failed index check for key "free", current modify index 102 != 1`},
		{name: "check-session", op: KeyOp{Verb: CheckSession, Key: "held", Session: s1}, want: bare(*held, same)},
		{name: "check-session of what is absent", op: KeyOp{Verb: CheckSession, Key: "new", Session: s1}, what: `failed to check session, key "new" doesn't exist`},
		{name: "check-session of another", op: KeyOp{Verb: CheckSession, Key: "held", Session: "y"}, what: fmt.Sprintf(`failed session check for key "held", current session %q != "y"`, s1)},
		{name: "check-not-exists", op: KeyOp{Verb: CheckNotExists, Key: "new"}},
		{name: "check-not-exists of what is there", op: KeyOp{Verb: CheckNotExists, Key: "free"}, what: `key "free" exists`},
		{name: "delete", op: del("held")},
		{name: "delete-cas", op: KeyOp{Verb: DeleteCAS, Key: "free", Index: 102}},
		{name: "delete-cas of another index", op: KeyOp{Verb: DeleteCAS, Key: "free", Index: 1}, what: `failed to delete key "free", index is stale`},
		{name: "delete-tree of everything", op: KeyOp{Verb: DeleteTree}},
		{name: "no key", op: KeyOp{Verb: GetTree}, what: "Must provide key"},
		{name: "fence of another acquisition", op: KeyOp{Verb: Set, Key: "free", Fence: &Fence{Name: "held", Index: 1}}, what: `fence of key "free" does not hold`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := txnRig(t)
			want := Result{OK: true, Pairs: test.want}
			if test.what != "" {
				want = Result{Errors: []TxnError{{OpIndex: 0, What: test.what}}}
			}
			if !test.op.Verb.Writes() {
				read := r.View().Read(KeyTxn([]KeyOp{test.op}).Ops)
				pairs, errs := read.Pairs, read.Errors
				expect.Deep(t, (Result{OK: errs == nil, Pairs: pairs, Errors: errs}), want, "read has the result")
			}
			res := r.do(KeyTxn([]KeyOp{test.op}))
			res.Index = 0
			expect.Deep(t, res, want, "result")
		})
	}
}

func TestTransactionsOperationsSeeTheEffectsOfThoseBefore(t *testing.T) {
	r := txnRig(t)
	res := r.yes(KeyTxn([]KeyOp{
		set("new", "1"),
		{Verb: CAS, Key: "new", Value: []byte("2"), Index: r.next}, // the index that all of them have
		acquire("new", s1),
		{Verb: CheckSession, Key: "new", Session: s1},
		{Verb: Set, Key: "guarded", Fence: &Fence{Name: "new", Index: r.next}},
		release("new", s1),
		{Verb: Get, Key: "new"},
		del("new"),
		{Verb: CheckNotExists, Key: "new"},
		acquire("new", s2),
	}))
	got := res.Pairs[6]
	expect.That(t, string(got.Value) == "free" && got.LockIndex == 1, "the read behind the release has %+v", got)
	want := &Pair{
		Key: "new", Value: []byte("held"), Session: s2, LockIndex: 1,
		CreateIndex: res.Index, ModifyIndex: res.Index, Fence: res.Index,
	}
	expect.Deep(t, r.pair("new"), want, "afterwards the pair is")
}

func TestTransactionThatFailsHasAllErrorsAndChangesNothing(t *testing.T) {
	r := txnRig(t)
	r.yes(set("gone", "1"))
	r.yes(del("gone"))
	r.Touched()
	before := r.Freeze()
	view := r.View()
	res := r.no(KeyTxn([]KeyOp{
		set("new", "1"),
		acquire("fresh", ""),
		{Verb: Get, Key: "fresh"},
		acquire("free", s2),
		release("held", s1),
		acquire("held", s2),
		set("gone", "again"),
		{Verb: CheckNotExists, Key: "new"},
		{Verb: DeleteTree},
		{Verb: Get, Key: "free"},
	}))
	want := []TxnError{
		{1, "missing session"},
		{2, `key "fresh" doesn't exist`},
		{7, `key "new" exists`},
		{9, `key "free" doesn't exist`},
	}
	expect.That(t, reflect.DeepEqual(res, Result{Errors: want}), "result %+v, want the errors %+v", res, want)
	after := r.Freeze()
	expect.That(t, reflect.DeepEqual(after, before), "the state is\n%+v, want it as it was:\n%+v", after, before)
	touched := r.Touched()
	expect.That(t, len(touched) == 0, "it wakes the watchers of %v", touched)
	e, _ := view.Get("held")
	expect.That(t, e.Session == s1, "in the view of before the key is held by %q", e.Session)
	// The parts that are not frozen are as they were, too.
	r.yes(DestroySession{s1})
	expect.Equal(t, r.pair("held").Session, "", "the key of the session that ended is held by")
}

func TestTransactionWithoutAKeyOrUnderALockDelayHasOnlyThatError(t *testing.T) {
	r := txnRig(t)
	r.yes(DestroySession{s1})
	res := r.no(KeyTxn([]KeyOp{
		{Verb: Get, Key: "absent"},
		{Verb: Set},
		acquire("held", "whoever"),
		{Verb: DeleteTree},
	}))
	want := []TxnError{{1, "Must provide key"}, {2, `failed to lock key "held" due to lock delay`}}
	expect.Slice(t, res.Errors, want, "result")
}

func TestTransactionThatOnlyReadsTakesNoIndex(t *testing.T) {
	r := txnRig(t)
	res := r.yes(KeyTxn([]KeyOp{{Verb: GetTree, Key: "f"}, {Verb: Get, Key: "held"}}))
	expect.That(t, res.Index == 0 && len(res.Pairs) == 2, "result %+v", res)
	r.yes(Txn{})
}

func TestViewReadHasAllErrors(t *testing.T) {
	r := txnRig(t)
	tests := []struct {
		ops  []KeyOp
		want []TxnError
	}{
		{
			[]KeyOp{{Verb: Get, Key: "x"}, {Verb: Get, Key: "free"}, {Verb: CheckNotExists, Key: "free"}},
			[]TxnError{{0, `key "x" doesn't exist`}, {2, `key "free" exists`}},
		},
		{[]KeyOp{{Verb: Get, Key: "x"}, {Verb: Get}}, []TxnError{{1, "Must provide key"}}},
	}
	for _, test := range tests {
		read := r.View().Read(KeyTxn(test.ops).Ops)
		expect.That(t, read.Pairs == nil && slices.Equal(read.Errors, test.want), "%+v: read %+v, want the errors %+v", test.ops, read, test.want)
	}
}

// large fills a state with keys under large/ whose values share one memory.
func large(r *rig, keys, bytes int) {
	value := strings.Repeat("v", bytes)
	for i := range keys {
		r.yes(set(fmt.Sprintf("large/%05d", i), value))
	}
}

func TestTransactionThatWritesReadsABoundedNumberOfBytes(t *testing.T) {
	r := newRig(t)
	large(r, 9, 1<<20)
	tree := KeyOp{Verb: GetTree, Key: "large/"}
	res := r.do(KeyTxn([]KeyOp{set("k", "1"), tree}))
	expect.That(t, res.Excess == TooLarge && !res.OK && res.Pairs == nil, "9 MiB: result %+v, want it refused as too large", res)
	e, _ := r.View().Get("k")
	expect.That(t, e == nil, "it was refused, and set %+v", e)
	tree.Key = "large/00001"
	res = r.do(KeyTxn([]KeyOp{set("k", "1"), tree}))
	expect.That(t, res.OK && len(res.Pairs) == 2, "1 MiB: result %+v, want it done", res)
	at := r.at()
	at.Read = MaxBatchRead - 1<<10
	if res := r.Apply(at, KeyTxn([]KeyOp{set("k", "2"), tree})); res.Excess != TooBusy || string(r.pair("k").Value) != "1" {
		t.Errorf("1 MiB after others of the batch: result %+v with k %s, want it refused as too busy", res, r.pair("k").Value)
	}
}

func TestViewReadsABoundedNumberOfBytes(t *testing.T) {
	r := newRig(t)
	large(r, 66, 1<<20)
	v := r.View()
	pairs, index, ok := v.List("large/")
	expect.That(t, !ok && pairs == nil && index != 0, "List of 66 MiB: %d pairs, index %d, %t, want none, but an index", len(pairs), index, ok)
	if read := v.Read(KeyTxn([]KeyOp{{Verb: GetTree, Key: "large/"}}).Ops); read.Excess != TooLarge || read.Pairs != nil {
		t.Errorf("Read of 66 MiB: %d pairs, excess %d, want none", len(read.Pairs), read.Excess)
	}
	keys, _, ok := v.Keys("large/", "")
	expect.That(t, ok && len(keys) == 66, "Keys: %d, %t, want 66", len(keys), ok)
}

func TestOnceKeepsWhatATransactionReadWhileItIsLittle(t *testing.T) {
	r := newRig(t)
	large(r, 1, 1<<20)
	r.yes(set("small", "1"))
	big := Once{"big", KeyTxn([]KeyOp{set("k", "1"), {Verb: Get, Key: "large/00000"}})}
	small := Once{"small", KeyTxn([]KeyOp{set("k", "2"), {Verb: Get, Key: "small"}})}
	for range 2 {
		res := r.do(small)
		expect.That(t, len(res.Pairs) == 2, "a small one: result %+v, want what it read", res)
	}
	if res := r.do(big); len(res.Pairs) != 2 || res.Excess != NoExcess {
		t.Errorf("a large one: result %+v, want what it read", res)
	}
	if res := r.do(big); !res.OK || res.Pairs != nil || res.Excess != Forgotten {
		t.Errorf("a large one again: result %+v, want it forgotten", res)
	}
}

func TestOnceKeepsABoundedNumberOfBytes(t *testing.T) {
	r := newRig(t)
	large(r, 1, 60<<10)
	read := KeyTxn([]KeyOp{set("k", "1"), {Verb: Get, Key: "large/00000"}})
	for i := range 2 * OnceBytes / (60 << 10) {
		r.do(Once{fmt.Sprint("x", i), read})
	}
	got := r.kept.bytes
	expect.That(t, got <= OnceBytes && got >= OnceBytes/2, "results take %d bytes, want at most %d", got, OnceBytes)
	bytes := 0
	for _, a := range r.kept.order {
		bytes += a.weight()
	}
	expect.That(t, bytes == r.kept.bytes && len(r.kept.order) == len(r.kept.byKey),
		"%d results by key and %d by time; %d bytes counted, %d there", len(r.kept.byKey), len(r.kept.order), r.kept.bytes, bytes)
}
