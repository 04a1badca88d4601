package kv

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestSetCreatesAPair(t *testing.T) {
	r := newRig(t)
	res := r.yes(KeyOp{Verb: Set, Key: "a", Value: []byte("1"), Flags: math.MaxUint64})
	want := &Pair{Key: "a", Value: []byte("1"), Flags: math.MaxUint64, CreateIndex: res.Index, ModifyIndex: res.Index}
	expect.Deep(t, r.pair("a"), want, "pair is")
}

func TestSetOfTheSameValueIsNoChange(t *testing.T) {
	tests := []struct {
		name string
		op   KeyOp
	}{
		{"set", KeyOp{Verb: Set, Key: "a", Value: []byte("held")}},
		{"cas", KeyOp{Verb: CAS, Key: "a", Value: []byte("held"), Index: 101}},
		{"acquire by the holder", acquire("a", s1)},
		{"delete of an absent key", del("b")},
		{"delete-cas of an absent key", KeyOp{Verb: DeleteCAS, Key: "b", Index: 7}},
		{"delete-tree of nothing", KeyOp{Verb: DeleteTree, Key: "b"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t)
			r.session(s1) // 100
			r.yes(acquire("a", s1))
			before := r.pair("a")
			r.Touched()
			expect.Equal(t, r.yes(test.op).Index, 0, "it took index")
			got := r.pair("a")
			expect.That(t, got == before, "pair is %+v, want it as it was: %+v", got, before)
			touched := r.Touched()
			expect.That(t, len(touched) == 0, "it wakes the watchers of %v", touched)
		})
	}
}

func TestSetKeepsTheHolder(t *testing.T) {
	for _, verb := range []Verb{Set, CAS} {
		r := newRig(t)
		r.session(s1)
		r.yes(acquire("a", s1))
		before := r.pair("a")
		res := r.yes(KeyOp{Verb: verb, Key: "a", Value: []byte("new"), Flags: 7, Index: before.ModifyIndex})
		want := &Pair{
			Key: "a", Value: []byte("new"), Flags: 7, Session: s1, LockIndex: 1,
			CreateIndex: before.CreateIndex, ModifyIndex: res.Index, Fence: before.Fence,
		}
		expect.Deep(t, r.pair("a"), want, "verb %d: pair is", verb)
		expect.That(t, res.Fence == before.Fence, "verb %d: fence %d, want that of the holder, %d", verb, res.Fence, before.Fence)
	}
}

func TestCASAndDeleteCASCompareTheModifyIndex(t *testing.T) {
	tests := []struct {
		name   string
		verb   Verb
		absent bool
		off    Index // of the index given, from that of the pair
		zero   bool  // index 0 is given
		want   bool
	}{
		{name: "set at its index", verb: CAS, want: true},
		{name: "set at another index", verb: CAS, off: 1},
		{name: "create where it is", verb: CAS, zero: true},
		{name: "create where it is not", verb: CAS, absent: true, zero: true, want: true},
		{name: "set where it is not", verb: CAS, absent: true, off: 5},
		{name: "delete at its index", verb: DeleteCAS, want: true},
		{name: "delete at another index", verb: DeleteCAS, off: 1},
		{name: "delete at 0", verb: DeleteCAS, zero: true},
		{name: "delete where it is not", verb: DeleteCAS, absent: true, off: 5, want: true},
		{name: "delete at 0 where it is not", verb: DeleteCAS, absent: true, zero: true, want: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t)
			if !test.absent {
				r.yes(set("a", "1"))
			}
			e, _ := r.View().Get("a")
			op := KeyOp{Verb: test.verb, Key: "a", Value: []byte("2"), Index: modified(e) + test.off}
			if test.zero {
				op.Index = 0
			}
			if !test.want {
				r.no(op)
				return
			}
			r.yes(op)
			e, _ = r.View().Get("a")
			expect.That(t, (test.verb != CAS || string(e.Value) == "2") && (test.verb != DeleteCAS || e == nil), "afterwards the pair is %+v", e)
		})
	}
}

func TestAcquireCountsNewHolders(t *testing.T) {
	r := newRig(t)
	r.session(s1)
	r.session(s2)
	first := r.yes(acquire("a", s1))
	e := r.pair("a")
	need.That(t, e.Session == s1 && e.LockIndex == 1 && e.Fence == first.Index && first.Fence == first.Index,
		"after the first acquisition, at %d: fence %d, pair %+v", first.Index, first.Fence, e)
	no := r.no(acquire("a", s2))
	expect.That(t, no.Fence == first.Fence, "an acquisition that came too late has fence %d, want the holder's %d", no.Fence, first.Fence)
	again := r.yes(KeyOp{Verb: Acquire, Key: "a", Value: []byte("other"), Session: s1})
	e = r.pair("a")
	expect.That(t, e.LockIndex == 1 && e.Fence == first.Index && e.ModifyIndex == again.Index && again.Fence == first.Index,
		"after acquiring again: fence %d, pair %+v", again.Fence, e)
	freed := r.yes(release("a", s1))
	want := &Pair{
		Key: "a", Value: []byte("free"), LockIndex: 1,
		CreateIndex: first.Index, ModifyIndex: freed.Index, Fence: first.Index,
	}
	e = r.pair("a")
	expect.That(t, reflect.DeepEqual(e, want) && freed.Fence == 0, "after the release: fence %d, pair %+v, want %+v", freed.Fence, e, want)
	second := r.yes(acquire("a", s2))
	e = r.pair("a")
	expect.That(t, e.LockIndex == 2 && e.Fence == second.Index && e.Session == s2, "after the second acquisition, at %d: pair %+v", second.Index, e)
}

func TestAcquireNeedsAKnownSession(t *testing.T) {
	r := newRig(t)
	r.session(s1)
	r.refused(acquire("a", s2), `invalid session "`+s2+`"`)
	r.refused(acquire("a", "no \"uuid\""), `invalid session "no \"uuid\""`)
	r.refused(acquire("a", ""), "missing session")
	r.absent("a")
}

func TestAcquireIgnoresTheCaseOfASession(t *testing.T) {
	r := newRig(t)
	r.session(strings.ToUpper(s1))
	r.yes(acquire("a", strings.ToUpper(s1)))
	expect.Equal(t, r.pair("a").Session, s1, "held by")
	r.yes(acquire("a", s1))
	s, _ := r.View().Session(strings.ToUpper(s1))
	expect.That(t, s != nil && s.ID == s1, "the session is %+v, want it with id %q", s, s1)
	r.yes(KeyTxn([]KeyOp{{Verb: CheckSession, Key: "a", Session: strings.ToUpper(s1)}}))
	r.yes(release("a", strings.ToUpper(s1)))
	r.yes(RenewSession{strings.ToUpper(s1)})
	r.yes(DestroySession{strings.ToUpper(s1)})
	s, _ = r.View().Session(s1)
	expect.That(t, s == nil, "after its end there is session %+v", s)
}

func TestReleaseByANonHolderChangesNothing(t *testing.T) {
	r := newRig(t)
	r.session(s1)
	r.session(s2)
	r.yes(acquire("held", s1))
	r.yes(set("free", "1"))
	for _, op := range []KeyOp{release("held", s2), release("held", s3), release("free", s1), release("absent", s1)} {
		r.no(op)
	}
	r.refused(release("held", ""), "missing session")
	r.refused(release("free", ""), "missing session")
	e := r.pair("held")
	expect.That(t, e.Session == s1 && string(e.Value) == "held", "afterwards the pair is %+v", e)
}

func TestDeleteRemovesAlsoAHeldKey(t *testing.T) {
	for _, verb := range []Verb{Delete, DeleteTree, DeleteCAS} {
		r := newRig(t)
		r.session(s1)
		r.yes(acquire("a", s1))
		r.yes(KeyOp{Verb: verb, Key: "a", Index: r.pair("a").ModifyIndex})
		r.absent("a")
		for e := range r.State.keys.heldBy(s1) {
			t.Errorf("verb %d: the session holds %q, which is deleted", verb, e.Key)
		}
	}
}

func TestDeletedKeyBeginsAnewButItsTokenDoesNotGoBack(t *testing.T) {
	r := newRig(t)
	r.session(s1)
	r.yes(acquire("a", s1))
	before := r.pair("a")
	r.yes(del("a"))
	again := r.yes(set("a", "1"))
	want := &Pair{Key: "a", Value: []byte("1"), CreateIndex: again.Index, ModifyIndex: again.Index, Fence: before.Fence}
	expect.Deep(t, r.pair("a"), want, "pair is")
	expect.That(t, again.Fence == 0, "fence %d, but no session holds the key", again.Fence)
	r.yes(del("a")) // not acquired in this life
	expect.Equal(t, r.Freeze().Deletions[0].Fence, before.Fence, "the record of the deletion has fence")
	acquired := r.yes(acquire("a", s1))
	e := r.pair("a")
	expect.That(t, e.LockIndex == 1 && e.Fence == acquired.Index, "acquired at %d: pair %+v", acquired.Index, e)
}

func TestDeleteTreeRemovesWhatBeginsWithThePrefix(t *testing.T) {
	tests := []struct {
		prefix string
		left   []string
	}{
		{"a/", []string{"a", "ab", "b"}},
		{"a", []string{"b"}},
		{"", nil},
		{"c", []string{"a", "a/1", "a/2", "ab", "b"}},
	}
	for _, test := range tests {
		r := newRig(t)
		for _, key := range []string{"a", "a/1", "a/2", "ab", "b"} {
			r.yes(set(key, "1"))
		}
		r.yes(KeyOp{Verb: DeleteTree, Key: test.prefix})
		left, _, _ := r.View().Keys("", "")
		expect.That(t, reflect.DeepEqual(left, test.left), "delete-tree of %q leaves %q, want %q", test.prefix, left, test.left)
		deleted := len(r.Freeze().Deletions)
		expect.That(t, deleted == 5-len(test.left), "delete-tree of %q records %d deletions, want %d", test.prefix, deleted, 5-len(test.left))
	}
}

func TestKeyOpWithoutAKeyIsRefused(t *testing.T) {
	r := newRig(t)
	for verb := Set; verb < DeleteTree; verb++ {
		r.refused(KeyOp{Verb: verb}, "Must provide key")
	}
}

func TestKeyOpThatOnlyChecksSaysWhetherItHolds(t *testing.T) {
	r := newRig(t)
	r.yes(set("a", "1"))
	r.yes(KeyOp{Verb: CheckIndex, Key: "a", Index: r.pair("a").ModifyIndex})
	r.no(KeyOp{Verb: CheckIndex, Key: "a", Index: 1})
	r.no(KeyOp{Verb: CheckNotExists, Key: "a"})
}

func TestSetOfOtherFlagsIsAChange(t *testing.T) {
	r := newRig(t)
	r.yes(set("a", "1"))
	res := r.yes(KeyOp{Verb: Set, Key: "a", Value: []byte("1"), Flags: 1})
	expect.That(t, res.Index != 0 && r.pair("a").Flags == 1, "result %+v, pair %+v", res, r.pair("a"))
}

func TestStateDoesNotLetTimeGoBack(t *testing.T) {
	r := newRig(t)
	r.Advance(r.now)
	latest := r.now
	r.pass(-500)
	if s := r.session(s1); s.CreatedAt != latest || r.View().Lease() != latest {
		t.Errorf("created at %d, the lease clock is %d, want %d", s.CreatedAt, r.View().Lease(), latest)
	}
}

// Operations are parts of a log entry, which may be much larger than what is kept of it.
func TestStateKeepsNothingOfTheOperationsMemory(t *testing.T) {
	r := newRig(t)
	text := "keysessionnodechecktext"
	check := text[14:19]
	r.nodes[CheckRef{text[10:14], check}], r.nodes[CheckRef{Node: text[10:14]}] = false, false
	value := []byte("value")
	s := r.yes(CreateSession{
		ID: text[3:10], Name: text[3:10], Node: text[10:14], TTLText: text[19:],
		Checks: []string{check}, NodeChecks: []string{check}, ServiceChecks: []string{check},
	}).Session
	r.yes(Once{text[:5], KeyOp{Verb: Acquire, Key: text[:3], Value: value, Session: text[3:10]}})
	r.yes(Once{text[:6], KeyTxn([]KeyOp{{Verb: GetOrEmpty, Key: text[:2]}})})
	e := r.pair("key")
	expect.That(t, unsafe.SliceData(e.Value) != unsafe.SliceData(value), "the value is kept in the operation's memory")
	f := r.Freeze()
	kept := []string{
		e.Key, e.Session, s.ID, s.Name, s.Node, s.TTLText, s.Checks[0], s.NodeChecks[0], s.ServiceChecks[0],
		f.Kept[0].Key, f.Kept[1].Key, f.Kept[1].Result.Pairs[0].Key, r.Touched()[1].Name,
	}
	begin := uintptr(unsafe.Pointer(unsafe.StringData(text)))
	for _, k := range kept {
		at := uintptr(unsafe.Pointer(unsafe.StringData(k)))
		expect.That(t, at < begin || at >= begin+uintptr(len(text)), "%q is kept in the operation's memory", k)
	}
}

func TestFenceThatDoesNotHoldKeepsAWriteFromChangingAnything(t *testing.T) {
	r := newRig(t)
	r.session(s1)
	r.session(s2)
	token := r.yes(acquire("lock", s1)).Fence
	fenced := func(verb Verb) KeyOp {
		return KeyOp{Verb: verb, Key: "data", Value: []byte("2"), Session: s2, Fence: &Fence{Name: "lock", Index: token}}
	}
	r.yes(fenced(Set))
	r.yes(release("lock", s1))
	now := r.yes(acquire("lock", s2)).Fence
	before := r.pair("data")
	for _, verb := range []Verb{Set, CAS, Acquire, Release, Delete, DeleteCAS, DeleteTree} {
		res := r.no(fenced(verb))
		expect.That(t, res.Fence == now, "verb %d: fence %d, want %d of the present holder", verb, res.Fence, now)
	}
	expect.That(t, r.pair("data") == before, "pair is %+v, want it as it was: %+v", r.pair("data"), before)
}

// fences returns a rig where a holds key "k" by 102, lock "l" by 103 and a permit of semaphore "s" by
// 104, of which b holds another by 105.
func fences(t *testing.T) *rig {
	r := newRig(t)
	r.session(s1) // 100
	r.session(s2)
	r.yes(acquire("k", s1))
	r.yes(AcquirePermit{Kind: Lock, Name: "l", Session: s1})
	r.yes(AcquirePermit{Kind: Semaphore, Name: "s", Session: s1, Limit: 3})
	r.yes(AcquirePermit{Kind: Semaphore, Name: "s", Session: s2, Limit: 3})
	return r
}

func TestFenceHoldsWhileItsAcquisitionLasts(t *testing.T) {
	for _, c := range []struct {
		name    string
		fence   Fence
		session string
		holds   bool
		now     Index
	}{
		{"key", Fence{Key, "k", 102}, "", true, 102},
		{"key, by its holder", Fence{Key, "k", 102}, strings.ToUpper(s1), true, 102},
		{"key, by another", Fence{Key, "k", 102}, s2, false, 102},
		{"key, other token", Fence{Key, "k", 101}, s1, false, 102},
		{"absent key", Fence{Key, "none", 102}, "", false, 0},
		{"no token", Fence{Key, "none", 0}, "", false, 0},
		{"lock", Fence{Lock, "l", 103}, "", true, 103},
		{"lock, by its holder", Fence{Lock, "l", 103}, strings.ToUpper(s1), true, 103},
		{"lock, by another", Fence{Lock, "l", 103}, s2, false, 103},
		{"lock, other token", Fence{Lock, "l", 102}, "", false, 103},
		{"absent lock", Fence{Lock, "none", 103}, "", false, 0},
		{"semaphore", Fence{Semaphore, "s", 105}, "", true, 105},
		{"semaphore, by its holder", Fence{Semaphore, "s", 105}, strings.ToUpper(s2), true, 105},
		{"semaphore, by another holder", Fence{Semaphore, "s", 105}, s1, false, 104},
		{"semaphore, other token", Fence{Semaphore, "s", 103}, "", false, 0},
		{"semaphore, other session", Fence{Semaphore, "s", 105}, s3, false, 0},
		{"a lock is no semaphore", Fence{Semaphore, "l", 103}, "", false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			holds, now := fences(t).View().Holds(c.fence, c.session)
			expect.That(t, holds == c.holds && now == c.now, "%+v by %q: holds %t, now %d; want %t, %d", c.fence, c.session, holds, now, c.holds, c.now)
		})
	}
}

func TestFenceDoesNotHoldForAWaiter(t *testing.T) {
	r := inLine(t)
	holds, now := r.View().Holds(Fence{Lock, "x", 0}, s2)
	expect.That(t, !holds && now == 104, "holds %t, now %d; want the holder's token 104 only", holds, now)
	r.yes(DestroySession{ID: s1})
	holds, now = r.View().Holds(Fence{Lock, "x", 104}, "")
	expect.That(t, !holds && now == 107, "holds %t, now %d; want b's token 107 only", holds, now)
}

// Often one key is locked and another one written.
func TestFenceMayBeOfAnotherKeyLockOrSemaphore(t *testing.T) {
	for _, c := range []struct {
		name  string
		fence Fence
		lose  Op // afterwards the fence holds no more
		now   Index
	}{
		{"key", Fence{Key, "k", 102}, release("k", s1), 0},
		{"key that another acquired", Fence{Key, "k", 102}, DestroySession{ID: s1}, 0},
		{"lock", Fence{Lock, "l", 103}, ReleasePermit{Kind: Lock, Name: "l", Session: s1}, 0},
		{"semaphore", Fence{Semaphore, "s", 104}, ReleasePermit{Kind: Semaphore, Name: "s", Session: s1}, 0},
		{"lock that went on", Fence{Lock, "l", 103}, LeaveQueue{Kind: Lock, Name: "l", Session: s1, Release: true}, 108},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := fences(t)
			write := set("data", "1")
			write.Fence = &c.fence
			r.yes(write) // 106
			if c.now != 0 {
				r.do(AcquirePermit{Kind: c.fence.Kind, Name: c.fence.Name, Session: s2, Wait: 1000}) // 107
			}
			r.do(c.lose)
			write.Value = []byte("2")
			expect.Equal(t, r.no(write).Fence, c.now, "refused with token")
			e := r.pair("data")
			expect.That(t, string(e.Value) == "1", "the value is %q, want 1", e.Value)
		})
	}
}

func TestViewListsWhatASessionHolds(t *testing.T) {
	r := fences(t)
	r.yes(acquire("a", s1))                                                 // 106
	r.yes(AcquirePermit{Kind: Lock, Name: "a", Session: s1})                // 107
	r.do(AcquirePermit{Kind: Lock, Name: "l", Session: s2, Wait: 1000})     // b waits only
	r.yes(AcquirePermit{Kind: Semaphore, Name: "t", Session: s2, Limit: 1}) // 109
	want := []Fence{{Key, "a", 106}, {Key, "k", 102}, {Lock, "a", 107}, {Lock, "l", 103}, {Semaphore, "s", 104}}
	expect.Slice(t, slices.Collect(r.View().Held(strings.ToUpper(s1))), want, "a holds")
	expect.Slice(t, slices.Collect(r.View().Held(s2)), []Fence{{Semaphore, "s", 105}, {Semaphore, "t", 109}}, "b holds")
	for n := range len(want) {
		for range r.View().Held(s1) {
			if n--; n < 0 {
				break // must not panic
			}
		}
	}
	got := slices.Collect(r.View().Held(s3))
	expect.That(t, len(got) == 0, "c holds %+v, want nothing", got)
}
