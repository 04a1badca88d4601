package kv

import (
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// ask asks for a permit of semaphore "x", which has two.
func ask(session string, wait int64) AcquirePermit {
	return AcquirePermit{Kind: Semaphore, Name: "x", Session: session, Limit: 2, Wait: wait}
}

// askLock asks for lock "x".
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

// queued performs an acquisition that must end in the queue at a place.
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

func TestPermitTokensAreIndexesOfAcquisitions(t *testing.T) {
	r := inLine(t)
	r.has(Lock, "a@104 | b c |")
	r.yes(ReleasePermit{Kind: Lock, Name: "x", Session: s1}) // 107
	r.has(Lock, "b@107 | c |")
	r.yes(ReleasePermit{Kind: Lock, Name: "x", Session: s2}) // 108
	r.yes(ReleasePermit{Kind: Lock, Name: "x", Session: s3}) // 109
	r.has(Lock, "nothing")
	res := r.yes(askLock(s1, 0))
	expect.That(t, res.Fence == 110 && res.Limit == 1, "acquired after the lock was removed: %+v, want token 110 and limit 1", res)
}

func TestPermitHolderSaysSinceWhen(t *testing.T) {
	r := newRig(t)
	r.session(strings.ToUpper(s1))
	op := ask(strings.ToUpper(s1), 0)
	op.Value = []byte("v")
	r.yes(op)
	p, index := r.View().Permits(Semaphore, "x")
	want := &Permits{
		Kind: Semaphore, Name: "x", Limit: 2, ModifyIndex: 101,
		Holders: []Holder{{Session: s1, Fence: 101, Since: r.now, Wall: startOfWall + r.now, Value: []byte("v")}},
	}
	expect.That(t, reflect.DeepEqual(p, want) && index == 101, "index %d, %+v\nwant 101, %+v", index, p, want)
}

func TestPermitsOfALockAndASemaphoreOfOneNameAreTwo(t *testing.T) {
	r := newRig(t)
	r.session(s1)
	r.session(s2)
	r.yes(askLock(s1, 0))
	r.yes(ask(s2, 0))
	r.has(Lock, "a@102 | |")
	r.has(Semaphore, "b@103 | |")
}

func TestPermitAcquiredAgainKeepsItsToken(t *testing.T) {
	r := newRig(t)
	r.session(s1) // 100
	first := ask(s1, 0)
	first.Value = []byte("v")
	r.yes(first) // 101
	res := r.yes(first)
	expect.That(t, res.Index == 0 && res.Fence == 101, "with the same value: %+v, want token 101 and no index", res)
	res = r.yes(ask(strings.ToUpper(s1), 0))
	expect.That(t, res.Index == 102 && res.Fence == 101, "with another value: %+v, want token 101 and index 102", res)
	p, _ := r.View().Permits(Semaphore, "x")
	expect.That(t, len(p.Holders) == 1 && p.Holders[0].Value == nil, "holders are %+v, want one without a value", p.Holders)
}

func TestQueueIsNotOvertaken(t *testing.T) {
	r := inLine(t)
	r.no(askLock("00000000-0000-0000-0000-00000000000d", 0))
	r.queued(askLock("00000000-0000-0000-0000-00000000000d", 1), 3)
	r.has(Lock, "a@104 | b c d |")
}

// The lock is free when the operation is done, but a session waited when it began.
func TestQueueIsNotOvertakenByATryThatFreesThePermit(t *testing.T) {
	r := inLine(t, lockDelay(5000))
	r.yes(DestroySession{ID: s1})
	r.pass(5000)
	res := r.do(askLock("00000000-0000-0000-0000-00000000000d", 0))
	expect.That(t, !res.OK && res.Index == 108, "a try when the lock-delay was over: %+v, want false, and index 108 for the waiter", res)
	r.has(Lock, "b@108 | c |")
}

func TestQueueKeepsThePlaceOfASessionThatAsksAgain(t *testing.T) {
	r := inLine(t)
	again := askLock(s2, 90_000)
	again.Value = []byte("v")
	r.queued(again, 1) // 107
	res := r.do(again)
	expect.That(t, res.Index == 0 && res.Place == 1, "asked for the same again: %+v, want place 1 and no index", res)
	res = r.do(askLock(s2, 0))
	expect.That(t, res.Index == 0 && res.Place == 1, "tried while waiting: %+v, want place 1 and no index", res)
	p, index := r.View().Permits(Lock, "x")
	want := Waiter{Session: s2, Since: r.now, Until: r.now + 90_000, Value: []byte("v")}
	expect.That(t, index == 107 && reflect.DeepEqual(p.Queue[0], want), "index %d, the first in the queue is %+v; want 107, %+v", index, p.Queue[0], want)
	r.pass(60_001) // c's time has passed, b's has not
	r.yes(ReleasePermit{Kind: Lock, Name: "x", Session: s1})
	r.has(Lock, "b@108 | |")
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

func TestQueueKeepsAWaiterOfTheLongestWait(t *testing.T) {
	r := inLine(t)
	r.queued(askLock(s2, 1<<63-1), 1)
	r.pass(1 << 50)
	r.yes(ReleasePermit{Kind: Lock, Name: "x", Session: s1})
	r.has(Lock, "b@108 | |")
}

func TestQueueDropsSessionsThatEnd(t *testing.T) {
	r := inLine(t)
	r.yes(DestroySession{ID: s2})
	r.has(Lock, "a@104 | c |")
	r.yes(DestroySession{ID: s3})
	r.has(Lock, "a@104 | |")
	r.yes(DestroySession{ID: s1})
	r.has(Lock, "nothing")
	ops := r.Due(1<<60, 10)
	expect.That(t, len(ops) == 0, "due are %+v, want nothing: no session had a lock-delay", ops)
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

func TestPermitLimitStaysWhileASessionHoldsOrWaits(t *testing.T) {
	wide := AcquirePermit{Kind: Semaphore, Name: "x", Session: s3, Limit: 7}
	for _, c := range []struct {
		name string
		pass int64
		free bool
	}{
		{"held", 0, false},
		{"held back by the lock-delay", 4999, false},
		{"waited for", 10_000, false},
		{"waited for only by sessions whose time has passed", 10_001, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.session(s1, lockDelay(5000))
			r.session(s2, lockDelay(5000))
			r.session(s3)
			r.yes(AcquirePermit{Kind: Semaphore, Name: "x", Session: s1, Limit: 1})
			r.queued(AcquirePermit{Kind: Semaphore, Name: "x", Session: s2, Limit: 1, Wait: 10_000}, 1)
			if c.pass > 0 {
				r.yes(DestroySession{ID: s1})
			}
			r.pass(c.pass)
			res := r.do(wide)
			need.That(t, res.OK == c.free && (res.Refusal == "") == c.free, "%+v, want done: %t", res, c.free)
			expect.Equal(t, res.Limit, map[bool]uint32{true: 7, false: 1}[c.free], "limit")
		})
	}
}

func TestReleasePermitThatIsNotHeldChangesNothing(t *testing.T) {
	for _, c := range []struct {
		name string
		op   ReleasePermit
	}{
		{"by a waiter", ReleasePermit{Kind: Lock, Name: "x", Session: s2}},
		{"by an unknown session", ReleasePermit{Kind: Lock, Name: "x", Session: "s"}},
		{"by another token", ReleasePermit{Kind: Lock, Name: "x", Session: s1, Index: 103}},
		{"of another name", ReleasePermit{Kind: Lock, Name: "y", Session: s1}},
		{"of another kind", ReleasePermit{Kind: Semaphore, Name: "x", Session: s1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := inLine(t)
			r.no(c.op)
			r.has(Lock, "a@104 | b c |")
		})
	}
	r := inLine(t)
	r.yes(ReleasePermit{Kind: Lock, Name: "x", Session: strings.ToUpper(s1), Index: 104})
	r.has(Lock, "b@107 | c |")
	r.no(ReleasePermit{Kind: Lock, Name: "x", Session: s1, Index: 104})
}

func TestLeaveQueueKeepsOrReleasesAPermitHeldByNow(t *testing.T) {
	for _, c := range []struct {
		name string
		op   LeaveQueue
		want Result
		has  string
	}{
		{"the queue", LeaveQueue{Session: strings.ToUpper(s2)}, Result{Index: 107}, "a@104 | c |"},
		{"as the holder", LeaveQueue{Session: strings.ToUpper(s1)}, Result{OK: true, Fence: 104}, "a@104 | b c |"},
		{"as the holder, for good", LeaveQueue{Session: s1, Release: true}, Result{Index: 107}, "b@107 | c |"},
		{"the queue, for good", LeaveQueue{Session: s3, Release: true}, Result{Index: 107}, "a@104 | b |"},
		{"without being there", LeaveQueue{Session: "s"}, Result{}, "a@104 | b c |"},
		{"another name", LeaveQueue{Name: "y", Session: s2}, Result{}, "a@104 | b c |"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := inLine(t)
			c.op.Kind = Lock
			if c.op.Name == "" {
				c.op.Name = "x"
			}
			expect.Deep(t, r.do(c.op), c.want, "%+v:", c.op)
			r.has(Lock, c.has)
		})
	}
}

func TestPermitsThatNoSessionHasAreRemoved(t *testing.T) {
	r := newRig(t)
	view := func() Index {
		p, index := r.View().Permits(Semaphore, "x")
		need.That(t, p == nil, "there is %+v", p)
		return index
	}
	got := view()
	expect.That(t, got == 1, "index %d at the beginning, want 1", got)
	r.session(s1)                                                 // 100
	r.yes(ask(s1, 0))                                             // 101
	r.yes(ReleasePermit{Kind: Semaphore, Name: "x", Session: s1}) // 102
	got = view()
	expect.That(t, got == 102, "index %d after the release, want 102: it must not go back", got)
	expect.That(t, r.state().all.Len() == 0 && len(r.Freeze().Permits) == 0, "%d are kept, want none", r.state().all.Len())
}

func (r *rig) state() *permitTable { return &r.State.permits }

func TestViewKeepsThePermitsThatItShows(t *testing.T) {
	r := inLine(t)
	v := r.View()
	before, _ := v.Permits(Lock, "x")
	r.yes(ReleasePermit{Kind: Lock, Name: "x", Session: s1})
	r.do(askLock(s1, 60_000))
	r.do(LeaveQueue{Kind: Lock, Name: "x", Session: s3})
	r.yes(DestroySession{ID: s2})
	after, _ := v.Permits(Lock, "x")
	expect.That(t, reflect.DeepEqual(after, before), "the view shows %+v, and showed %+v", after, before)
	got := slices.Collect(v.Held(s1))
	expect.That(t, slices.Equal(got, []Fence{{Lock, "x", 104}}), "a holds %+v in the view, want lock x by 104", got)
}

func TestViewListsPermitsByName(t *testing.T) {
	r := newRig(t)
	r.session(s1)
	for _, name := range []string{"b", "a", "c"} {
		r.yes(AcquirePermit{Kind: Lock, Name: name, Session: s1})
		r.yes(AcquirePermit{Kind: Semaphore, Name: "s" + name, Session: s1, Limit: 1})
	}
	names := func(kind Kind) (names []string) {
		for p := range r.View().AllPermits(kind) {
			names = append(names, p.Name)
		}
		return names
	}
	expect.Slice(t, names(Lock), []string{"a", "b", "c"}, "locks are")
	expect.Slice(t, names(Semaphore), []string{"sa", "sb", "sc"}, "semaphores are")
	for range r.View().AllPermits(Lock) {
		break // must not panic
	}
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

// The cost of a waiter that leaves or gets a permit must not grow with the queue, also while views keep every
// state of it.
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
	// The queue alone has a quarter of a megabyte.
	per := (after.TotalAlloc - before.TotalAlloc) / rounds
	expect.That(t, per <= 100_000, "a hand-over and a leaving allocate %d bytes, want less than 100 kB", per)
	p, _ := r.View().Permits(Lock, "x")
	expect.That(t, len(p.Queue) == contenders-1-2*rounds, "%d wait, want %d", len(p.Queue), contenders-1-2*rounds)
}
