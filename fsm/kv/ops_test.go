package kv

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// ask returns a request for a permit of semaphore "x", which has two.
func ask(session string, wait int64) AcquirePermit {
	return AcquirePermit{Kind: Semaphore, Name: "x", Session: session, Limit: 2, Wait: wait}
}

// askLock returns a request for lock "x".
func askLock(session string, wait int64) AcquirePermit {
	return AcquirePermit{Kind: Lock, Name: "x", Session: session, Wait: wait}
}

// permits says which session has what of a lock or semaphore: "holder@token … | waiter … | end of delay …".
func (r *rig) permits(kind Kind, name string) string {
	p, _ := r.View().Permits(kind, name)
	if p == nil {
		return "nothing"
	}
	var b strings.Builder
	for _, h := range p.Holders {
		fmt.Fprintf(&b, "%s@%d ", h.Session[len(h.Session)-1:], h.Fence)
	}
	b.WriteString("|")
	for _, w := range p.Queue {
		fmt.Fprintf(&b, " %s", w.Session[len(w.Session)-1:])
	}
	b.WriteString(" |")
	for _, until := range p.Delays {
		fmt.Fprintf(&b, " %d", until)
	}
	return b.String()
}

// has verifies what a lock or semaphore "x" looks like, see permits.
func (r *rig) has(kind Kind, want string) {
	r.t.Helper()
	if got := r.permits(kind, "x"); got != want {
		r.t.Fatalf("%q has %q, want %q", "x", got, want)
	}
}

// queued performs an acquisition that must end up at a place in the queue.
func (r *rig) queued(op AcquirePermit, place int) {
	r.t.Helper()
	if res := r.do(op); res.OK || res.Refusal != "" || res.Place != place || res.Fence != 0 {
		r.t.Fatalf("%+v: %+v, want place %d in the queue", op, res, place)
	}
}

// inLine returns a rig where a holds lock "x" by token 104, and b and c wait for it.
func inLine(t *testing.T, ofA ...func(*CreateSession)) *rig {
	r := newRig(t)
	r.session(s1, ofA...) // 100
	r.session(s2)
	r.session(s3)
	r.session("00000000-0000-0000-0000-00000000000d") // 103
	res := r.yes(askLock(s1, 0))
	need.That(t, res.Fence == 104, "%+v, want token 104", res)
	r.queued(askLock(s2, 60_000), 1)
	r.queued(askLock(s3, 60_000), 2)
	return r
}

func TestQueueKeepsAWaiterOfTheLongestWait(t *testing.T) {
	r := inLine(t)
	r.queued(askLock(s2, 1<<63-1), 1)
	r.pass(1 << 50)
	r.yes(ReleasePermit{Kind: Lock, Name: "x", Session: s1})
	r.has(Lock, "b@108 | |")
}

func TestAcquirePermitIsRefusedInWords(t *testing.T) {
	const unknown = "00000000-0000-0000-0000-00000000FFFF"
	for _, c := range []struct {
		name string
		op   AcquirePermit
		want string
	}{
		{"no session", AcquirePermit{Kind: Lock, Name: "x"}, "missing session"},
		{"unknown session", AcquirePermit{Kind: Lock, Name: "x", Session: unknown}, `invalid session "` + unknown + `"`},
		{"no limit", AcquirePermit{Kind: Semaphore, Name: "x", Session: s1}, `semaphore "x" needs a limit of 1 or more, not 0`},
		{"a key", AcquirePermit{Kind: Key, Name: "x", Session: s1, Limit: 1}, `"x" is to be a lock or a semaphore, not of kind 0`},
		{
			"a long value",
			AcquirePermit{Kind: Lock, Name: "x", Session: s1, Value: make([]byte, MaxPermitValue+1)},
			`value for "x" has 4097 bytes, and may have 4096`,
		},
		{
			"another limit",
			AcquirePermit{Kind: Semaphore, Name: "held", Session: s1, Limit: 5},
			`semaphore "held" has limit 3, not 5: the first that acquired it set it, and it stays until nobody holds it or waits for it`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.session(s1)
			r.yes(AcquirePermit{Kind: Semaphore, Name: "held", Session: s1, Limit: 3})
			r.refused(c.op, c.want)
			r.has(Lock, "nothing")
		})
	}
	r := newRig(t)
	r.refused(ReleasePermit{Kind: Lock, Name: "x"}, "missing session")
	r.refused(LeaveQueue{Kind: Lock, Name: "x"}, "missing session")
}

func TestPermitTopicWakesAWaiterAlone(t *testing.T) {
	lock, permit := Topic{LockTopic, "x"}, func(session string) Topic {
		return Topic{PermitTopic, PermitName(Lock, "x", session)}
	}
	for _, c := range []struct {
		name string
		pass int64
		op   Op
		want []Topic
	}{
		{"hand-over", 0, ReleasePermit{Kind: Lock, Name: "x", Session: s1}, []Topic{permit(s2), lock}},
		{"leaving", 0, LeaveQueue{Kind: Lock, Name: "x", Session: s2}, []Topic{permit(s2), lock}},
		{"passed over", 60_001, askLock(s1, 0), []Topic{permit(s2), permit(s3), lock}},
		{"end of a session that waits", 0, DestroySession{ID: s3}, []Topic{permit(s3), lock, {Kind: SessionsTopic}}},
		{"try", 0, askLock("00000000-0000-0000-0000-00000000000d", 0), nil},
		{"wait", 0, askLock("00000000-0000-0000-0000-00000000000d", 1), []Topic{lock}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := inLine(t)
			r.pass(c.pass)
			r.Touched()
			r.do(c.op)
			expect.Slice(t, r.Touched(), c.want, "touched are")
		})
	}
	r := newRig(t)
	r.session(s1)
	r.Touched()
	r.yes(ask(s1, 0))
	expect.Slice(t, r.Touched(), []Topic{{SemaphoreTopic, "x"}}, "an acquisition touches")
}

// The cost of a waiter that leaves or gets a permit must not grow with the queue, even while views keep every state
// of it.
func TestQueueIsNotCopiedByAHandOver(t *testing.T) {
	const contenders, rounds = 4000, 200
	r := newRig(t)
	id := func(i int) string { return fmt.Sprintf("00000000-0000-0000-0000-%012x", i) }
	for i := range contenders {
		r.session(id(i))
		r.do(askLock(id(i), 60_000))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range rounds {
		r.yes(ReleasePermit{Kind: Lock, Name: "x", Session: id(i)})
		r.do(LeaveQueue{Kind: Lock, Name: "x", Session: id(contenders - 1 - i)})
	}
	runtime.ReadMemStats(&after)
	// The queue alone takes a quarter of a megabyte.
	per := (after.TotalAlloc - before.TotalAlloc) / rounds
	expect.That(t, per <= 100_000, "a hand-over and a leaving allocate %d bytes, want less than 100 kB", per)
	p, _ := r.View().Permits(Lock, "x")
	expect.That(t, len(p.Queue) == contenders-1-2*rounds, "%d wait, want %d", len(p.Queue), contenders-1-2*rounds)
}

func TestQueuePassesOverWaitersWhoseTimeHasPassed(t *testing.T) {
	last := "00000000-0000-0000-0000-00000000000d"
	for _, c := range []struct {
		name string
		op   Op
		pass int64
		want string // a holds, b waits for 60 s, c for 120 s
	}{
		{"release in time", ReleasePermit{Kind: Lock, Name: "x", Session: s1}, 60_000, "b@108 | c |"},
		{"release", ReleasePermit{Kind: Lock, Name: "x", Session: s1}, 60_001, "c@108 | |"},
		{"release after all", ReleasePermit{Kind: Lock, Name: "x", Session: s1}, 120_001, "nothing"},
		{"end of session", DestroySession{ID: s1}, 60_001, "c@108 | |"},
		{"try", askLock(last, 0), 60_001, "a@104 | c |"},
		{"wait", askLock(last, 1), 60_001, "a@104 | c d |"},
		{"asking again", askLock(s2, 60_000), 60_001, "a@104 | c b |"},
		{"leaving", LeaveQueue{Kind: Lock, Name: "x", Session: s3}, 60_001, "a@104 | |"},
		{"holder asks again", askLock(s1, 0), 60_001, "a@104 | c |"},
		{"wrong release", ReleasePermit{Kind: Lock, Name: "x", Session: s3}, 60_001, "a@104 | b c |"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := inLine(t)
			r.queued(askLock(s3, 120_000), 2) // 107
			r.pass(c.pass)
			r.do(c.op)
			r.has(Lock, c.want)
		})
	}
}

// large fills a state with keys under large/ whose values share memory.
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
	at.Read = maxBatchRead - 1<<10
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
	read := v.Read(KeyTxn([]KeyOp{{Verb: GetTree, Key: "large/"}}).Ops)
	expect.That(t, read.Excess == TooLarge && read.Pairs == nil, "Read of 66 MiB: %d pairs, excess %d, want none", len(read.Pairs), read.Excess)
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
	res := r.do(big)
	expect.That(t, res.OK && res.Pairs == nil && res.Excess == Forgotten, "a large one again: result %+v, want it forgotten", res)
}

func TestOnceKeepsABoundedNumberOfBytes(t *testing.T) {
	r := newRig(t)
	large(r, 1, 60<<10)
	read := KeyTxn([]KeyOp{set("k", "1"), {Verb: Get, Key: "large/00000"}})
	for i := range 2 * onceBytes / (60 << 10) {
		r.do(Once{fmt.Sprint("x", i), read})
	}
	got := r.kept.bytes
	expect.That(t, got <= onceBytes && got >= onceBytes/2, "results take %d bytes, want at most %d", got, onceBytes)
	bytes := 0
	for _, a := range r.kept.order {
		bytes += a.weight()
	}
	expect.That(t, bytes == r.kept.bytes && len(r.kept.order) == len(r.kept.byKey),
		"%d results by key and %d by time; %d bytes counted, %d there", len(r.kept.byKey), len(r.kept.order), r.kept.bytes, bytes)
}

func TestOnceAcceptsASessionThatIsDrawnTwice(t *testing.T) {
	r := newRig(t)
	r.yes(Once{"x", CreateSession{ID: s1, Name: "me"}})
	res := r.yes(Once{"x", CreateSession{ID: s2, Name: "me"}})
	expect.That(t, res.Session.ID == s1, "session %s, want the first, %s", res.Session.ID, s1)
	r.refused(Once{"x", CreateSession{ID: s2, Name: "you"}}, `idempotency key "x" was used for another operation`)
}

// Operations that differ in one field, or in where one field ends and the next begins, count as different ones.
func TestOnceRefusesTheKeyOfAnotherOperation(t *testing.T) {
	seen := map[uint64]Op{}
	note := func(op Op) {
		hash := hashOf(op)
		other, ok := seen[hash]
		expect.That(t, !ok, "%+v and %+v count as one operation", op, other)
		expect.Equal(t, hashOf(op), hash, "%+v once more has the hash", op)
		seen[hash] = op
	}
	for _, row := range simple.Rows() {
		v := reflect.New(reflect.TypeOf(row.Zero)).Elem()
		note(v.Interface().(Op))
		fillOneByOne(v, func() { note(v.Interface().(Op)) })
	}
	note(KeyOp{Verb: Set, Key: "k", Session: "s"})
	note(KeyOp{Verb: Set, Key: "ks"})
	note(KeyTxn([]KeyOp{{Key: "k"}}))
	note(KeyTxn([]KeyOp{{Key: "k"}, {Key: "k"}}))
}

// fillOneByOne gives each field a value, and calls filled after each. It leaves out the id of a session, which the
// server draws, and operations on the catalog.
func fillOneByOne(v reflect.Value, filled func()) {
	switch v.Kind() {
	case reflect.Struct:
		for field, at := range v.Fields() {
			if v.Type() != reflect.TypeFor[CreateSession]() || field.Name != "ID" {
				fillOneByOne(at, filled)
			}
		}
		return
	case reflect.Pointer:
		if v.Type() != reflect.TypeFor[*registry.CatalogOp]() {
			v.Set(reflect.New(v.Type().Elem()))
			filled()
			fillOneByOne(v.Elem(), filled)
		}
		return
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		filled()
		fillOneByOne(v.Index(0), filled)
		return
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int64:
		v.SetInt(1)
	default:
		v.SetUint(1)
	}
	filled()
}

// Hashes are in snapshots: nodes of two versions must agree on them.
func TestOnceHashesDoNotChangeBetweenVersions(t *testing.T) {
	tests := []struct {
		op   Op
		want uint64
	}{
		{KeyOp{Verb: Acquire, Key: "k", Value: []byte("v"), Flags: 1, Index: 2, Session: "s", Fence: &Fence{Lock, "f", 3}}, 0xa0f47e69d3366a22},
		{CreateSession{ID: s1, Name: "n", Checks: []string{"c"}}, 0x3f9c75ddf5dd085},
		{AcquirePermit{Kind: Semaphore, Name: "n", Session: "s", Limit: 3, Value: []byte("v"), Wait: 4}, 0xa11a133914a6b646},
	}
	for _, test := range tests {
		expect.Equal(t, hashOf(test.op), test.want, "the hash of %+v is", test.op)
	}
}

func TestOnceDropsResultsThatAreTooOldOrTooMany(t *testing.T) {
	t.Run("when they are too old", func(t *testing.T) {
		r := newRig(t)
		r.yes(Once{"x", set("a", "1")})
		r.pass(OnceFor)
		res := r.yes(Once{"x", set("a", "2")})
		expect.That(t, res.Index != 0, "after its time the first result was returned: %+v", res)
	})
	t.Run("the oldest where there are too many", func(t *testing.T) {
		r := newRig(t)
		for i := range onceLimit + 1 {
			r.Apply(r.at(), Once{fmt.Sprint(i), RenewSession{}})
		}
		_, ok := r.kept.byKey["0"]
		expect.That(t, !ok && len(r.kept.byKey) == onceLimit,
			"%d results are kept, the oldest: %t; want %d, and not that", len(r.kept.byKey), ok, onceLimit)
	})
}

func TestOnceKeepsNoMemoryOfATooOldResult(t *testing.T) {
	r := newRig(t)
	r.yes(Once{strings.Repeat("x", MaxOnceKey), set("a", "1")})
	r.Advance(r.now + OnceFor)
	f := r.Freeze()
	expect.That(t, len(f.Kept) == 0 && len(r.kept.byKey) == 0, "%d results are left, %d by key", len(f.Kept), len(r.kept.byKey))
}
