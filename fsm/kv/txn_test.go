package kv

import (
	"fmt"
	"reflect"
	"slices"
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

func TestTransactionAnswersByVerb(t *testing.T) {
	free := &Entry{Key: "free", Value: []byte("1"), CreateIndex: 102, ModifyIndex: 102}
	held := &Entry{Key: "held", Value: []byte("held"), Session: s1, LockIndex: 1, CreateIndex: 103, ModifyIndex: 103, Fence: 103}
	bare := func(e Entry, change func(e *Entry)) []*Entry {
		e.Value = nil
		change(&e)
		return []*Entry{&e}
	}
	same := func(*Entry) {}
	created := func(e *Entry) { *e = Entry{Key: "new", CreateIndex: 104, ModifyIndex: 104} }
	tests := []struct {
		name string
		op   KeyOp
		want []*Entry
		what string // why it fails
	}{
		{name: "set", op: set("new", "2"), want: bare(*free, created)},
		{name: "set what is so already", op: set("free", "1"), want: bare(*free, same)},
		{name: "cas", op: KeyOp{Verb: CAS, Key: "free", Index: 102, Flags: 3}, want: bare(*free, func(e *Entry) { e.ModifyIndex, e.Flags = 104, 3 })},
		{name: "cas of another index", op: KeyOp{Verb: CAS, Key: "free", Index: 1}, what: `failed to set key "free", index is stale`},
		{name: "lock", op: acquire("free", s2), want: bare(*free, func(e *Entry) { e.ModifyIndex, e.Session, e.LockIndex, e.Fence = 104, s2, 1, 104 })},
		{name: "lock without session", op: acquire("free", ""), what: "missing session"},
		{name: "lock by an unknown session", op: acquire("free", "x"), what: `invalid session "x"`},
		{name: "lock what is held", op: acquire("held", s2), what: `failed to lock key "held", lock is already held`},
		{name: "unlock", op: release("held", s1), want: bare(*held, func(e *Entry) { e.ModifyIndex, e.Session = 104, "" })},
		{name: "unlock without session", op: release("held", ""), what: "missing session"},
		{name: "unlock by another", op: release("held", s2), what: `failed to unlock key "held", lock isn't held, or is held by another session`},
		{name: "unlock what is absent", op: release("new", s2), what: `failed to unlock key "new", lock isn't held, or is held by another session`},
		{name: "get", op: KeyOp{Verb: Get, Key: "free"}, want: []*Entry{free}},
		{name: "get what is absent", op: KeyOp{Verb: Get, Key: "new"}, what: `key "new" doesn't exist`},
		{name: "get-or-empty", op: KeyOp{Verb: GetOrEmpty, Key: "free"}, want: []*Entry{free}},
		{name: "get-or-empty of what is absent", op: KeyOp{Verb: GetOrEmpty, Key: "new"}, want: []*Entry{{Key: "new"}}},
		{name: "get-tree", op: KeyOp{Verb: GetTree, Key: "f"}, want: []*Entry{free}},
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
			want := Result{OK: true, Entries: test.want}
			if test.what != "" {
				want = Result{Errors: []TxnError{{OpIndex: 0, What: test.what}}}
			}
			if !test.op.Verb.Writes() {
				entries, errs, _ := r.View().Read([]KeyOp{test.op})
				expect.Deep(t, (Result{OK: errs == nil, Entries: entries, Errors: errs}), want, "read is answered")
			}
			res := r.do(Txn{[]KeyOp{test.op}})
			res.Index = 0
			expect.Deep(t, res, want, "answered")
		})
	}
}

func TestOperationsOfATransactionSeeThoseBefore(t *testing.T) {
	r := txnRig(t)
	res := r.yes(Txn{[]KeyOp{
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
	}})
	got := res.Entries[6]
	expect.That(t, string(got.Value) == "free" && got.LockIndex == 1, "the read behind the release has %+v", got)
	want := &Entry{
		Key: "new", Value: []byte("held"), Session: s2, LockIndex: 1,
		CreateIndex: res.Index, ModifyIndex: res.Index, Fence: res.Index,
	}
	expect.Deep(t, r.entry("new"), want, "afterwards the entry is")
}

func TestFailedTransactionTellsAllErrorsAndChangesNothing(t *testing.T) {
	r := txnRig(t)
	r.yes(set("gone", "1"))
	r.yes(del("gone"))
	r.Touched()
	before := r.Freeze()
	view := r.View()
	res := r.no(Txn{[]KeyOp{
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
	}})
	want := []TxnError{
		{1, "missing session"},
		{2, `key "fresh" doesn't exist`},
		{7, `key "new" exists`},
		{9, `key "free" doesn't exist`},
	}
	expect.That(t, reflect.DeepEqual(res, Result{Errors: want}), "answered %+v, want the errors %+v", res, want)
	after := r.Freeze()
	expect.That(t, reflect.DeepEqual(after, before), "the state is\n%+v, want it as it was:\n%+v", after, before)
	touched := r.Touched()
	expect.That(t, len(touched) <= 0, "it wakes the watchers of %v", touched)
	e, _ := view.Get("held")
	expect.That(t, e.Session == s1, "in the view of before the key is held by %q", e.Session)
	// What is not frozen is as it was, too.
	r.yes(DestroySession{s1})
	expect.Equal(t, r.entry("held").Session, "", "the key of the session that ended is held by")
}

func TestTransactionsWithoutAKeyOrUnderALockDelayAreToldOnlyThat(t *testing.T) {
	r := txnRig(t)
	r.yes(DestroySession{s1})
	res := r.no(Txn{[]KeyOp{
		{Verb: Get, Key: "absent"},
		{Verb: Set},
		acquire("held", "whoever"),
		{Verb: DeleteTree},
	}})
	want := []TxnError{{1, "Must provide key"}, {2, `failed to lock key "held" due to lock delay`}}
	expect.Slice(t, res.Errors, want, "answered")
}

func TestTransactionThatOnlyReadsTakesNoIndex(t *testing.T) {
	r := txnRig(t)
	res := r.yes(Txn{[]KeyOp{{Verb: GetTree, Key: "f"}, {Verb: Get, Key: "held"}}})
	expect.That(t, res.Index == 0 && len(res.Entries) == 2, "answered %+v", res)
	r.yes(Txn{})
}

func TestReadOfAViewTellsAllErrors(t *testing.T) {
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
		entries, errs, _ := r.View().Read(test.ops)
		expect.That(t, entries == nil && slices.Equal(errs, test.want), "%+v: read %+v with the errors %+v, want %+v", test.ops, entries, errs, test.want)
	}
}
