package kv

import (
	"fmt"
	"runtime"
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
