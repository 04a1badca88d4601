package kv

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestLockDelayKeepsAPermitBack(t *testing.T) {
	r := inLine(t, lockDelay(5000))
	over := r.now + 5000
	r.yes(DestroySession{ID: s1}) // 107
	r.has(Lock, "| b c | 106000")
	r.no(askLock("00000000-0000-0000-0000-00000000000d", 0))
	r.pass(4999)
	ops := r.due()
	need.That(t, len(ops) == 0, "due are %+v a millisecond before the end, want nothing", ops)
	r.pass(1)
	want := []Op{EndDelay{Epoch: epoch1, Kind: Lock, Name: "x", Until: over}}
	if ops := r.due(); !reflect.DeepEqual(ops, want) { // 108
		t.Fatalf("due are %+v, want %+v", ops, want)
	}
	r.has(Lock, "b@108 | c |")
	if ops := r.Due(r.now, 10); len(ops) != 0 {
		t.Errorf("due are still %+v", ops)
	}
}

func TestLockDelayFollowsOnlyTheEndOfASession(t *testing.T) {
	for _, c := range []struct {
		name  string
		delay int64
		op    Op
		want  string
	}{
		{"end, with lock-delay", 5000, DestroySession{ID: s1}, "| b c | 106000"},
		{"end, without", 0, DestroySession{ID: s1}, "b@107 | c |"},
		{"release", 5000, ReleasePermit{Kind: Lock, Name: "x", Session: s1}, "b@107 | c |"},
		{"leaving for good", 5000, LeaveQueue{Kind: Lock, Name: "x", Session: s1, Release: true}, "b@107 | c |"},
		{"longest", 10 * 60_000, DestroySession{ID: s1}, "| b c | 161000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := inLine(t, lockDelay(c.delay))
			r.do(c.op)
			r.has(Lock, c.want)
		})
	}
}

func TestLockDelayOfWhatNobodyWaitsForEndsToo(t *testing.T) {
	r := newRig(t)
	r.session(s1, lockDelay(5000))
	r.session(s2)
	r.yes(askLock(s1, 0))
	r.yes(DestroySession{ID: s1}) // 103
	r.has(Lock, "| | 106000")
	expect.That(t, r.NeedsClock(), "a lock-delay does not need the clock")
	r.no(askLock(s2, 0))
	r.pass(5000)
	r.due() // 104
	r.has(Lock, "nothing")
	_, index := r.View().Permits(Lock, "x")
	expect.That(t, index == 104, "index %d, want 104", index)
	expect.That(t, !r.NeedsClock(), "nothing is there, and it needs the clock")
}

// The stamp decides, whether the leader has already proposed the end or not.
func TestLockDelayThatIsOverNeedsNoEndBeforeAnAcquisition(t *testing.T) {
	r := newRig(t)
	r.session(s1, lockDelay(5000))
	r.session(s2)
	r.yes(askLock(s1, 0))
	r.yes(DestroySession{ID: s1}) // 103
	r.pass(5000)
	r.yes(askLock(s2, 0)) // 104
	r.has(Lock, "b@104 | |")
	ops := r.Due(r.now, 10)
	expect.That(t, len(ops) == 0, "due are %+v, want nothing", ops)
}

func TestLockDelayKeepsTheLimit(t *testing.T) {
	r := newRig(t)
	r.session(s1, lockDelay(5000))
	r.session(s2)
	r.yes(ask(s1, 0))
	r.yes(DestroySession{ID: s1})
	wide := ask(s2, 0)
	wide.Limit = 7
	r.pass(4999)
	res := r.do(wide)
	expect.That(t, res.Limit == 2 && res.Refusal != "", "during the lock-delay: %+v, want it refused for the limit of 2", res)
	r.pass(1)
	expect.Equal(t, r.yes(wide).Limit, 7, "the limit after it is")
}

func TestEndDelayOfAnotherEpochOrTimeChangesNothing(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*rig, *EndDelay)
	}{
		{"of another epoch", func(_ *rig, op *EndDelay) { op.Epoch.Index++ }},
		{"of another time", func(_ *rig, op *EndDelay) { op.Until-- }},
		{"of another name", func(_ *rig, op *EndDelay) { op.Name = "y" }},
		{"of another kind", func(_ *rig, op *EndDelay) { op.Kind = Semaphore }},
		{"stamped too early", func(r *rig, _ *EndDelay) { r.pass(-1) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := inLine(t, lockDelay(5000))
			r.yes(DestroySession{ID: s1})
			r.pass(5000)
			op := r.Due(r.now, 1)[0].(EndDelay)
			c.change(r, &op)
			r.no(op)
			r.has(Lock, "| b c | 106000")
		})
	}
}

// full returns a rig where a and b hold semaphore "x", and c and d wait for it.
func full(t *testing.T, ofHolders ...func(*CreateSession)) *rig {
	r := newRig(t)
	r.session(s1, ofHolders...)
	r.session(s2, ofHolders...)
	r.nodes[CheckRef{Node: "n"}] = false
	for _, id := range []string{s3, "00000000-0000-0000-0000-00000000000d"} {
		r.session(id, func(c *CreateSession) { c.Node, c.NodeChecks = "n", nil })
	}
	r.yes(ask(s1, 0)) // 104
	r.yes(ask(s2, 0))
	r.queued(ask(s3, 60_000), 1)
	r.queued(ask("00000000-0000-0000-0000-00000000000d", 60_000), 2) // 107
	return r
}

// lose lets a check that sessions depend on turn critical.
func (r *rig) lose(refs ...CheckRef) {
	r.t.Helper()
	if !r.Lose(r.at(), refs) {
		r.t.Fatalf("no session ended with %+v", refs)
	}
	r.next++
}

// Two holders of one token could not be told apart.
func TestPermitsFreedTogetherAreGivenOneAfterTheOther(t *testing.T) {
	both := []Op{
		EndDelay{Epoch: epoch1, Kind: Semaphore, Name: "x", Until: 106_000},
		EndDelay{Epoch: epoch1, Kind: Semaphore, Name: "x", Until: 106_000},
	}
	for _, c := range []struct {
		name  string
		delay int64
		then  string // after both sessions ended, in operation 108
		due   []Op   // when the lock-delay is over
		last  string
	}{
		{"without lock-delay", 0, "c@108 | d | 101000", []Op{EndDelay{Epoch: epoch1, Kind: Semaphore, Name: "x", Until: 101_000}}, "c@108 d@109 | |"},
		{"with lock-delay", 5000, "| c d | 106000 106000", both, "c@109 d@110 | |"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := full(t, lockDelay(c.delay))
			r.lose(CheckRef{ID: serfHealth})
			r.has(Semaphore, c.then)
			r.pass(c.delay)
			expect.Deep(t, r.due(), c.due, "due are")
			r.has(Semaphore, c.last)
		})
	}
}

// One waits, two lock-delays are over: a session that asks now must not get the token of the waiter.
func TestPermitAskedForAsTheQueueIsServedHasATokenOfItsOwn(t *testing.T) {
	r := full(t, lockDelay(5000))
	last := "00000000-0000-0000-0000-00000000000e"
	r.session(last)                                           // 108
	r.do(LeaveQueue{Kind: Semaphore, Name: "x", Session: s3}) // 109
	r.lose(CheckRef{ID: serfHealth})                          // 110: e ended too
	r.session(last)                                           // 111
	r.pass(5000)
	r.queued(ask(last, 1), 1) // 112
	r.has(Semaphore, "d@112 | e | 106000")
	r.due() // 113
	r.has(Semaphore, "d@112 e@113 | |")
}

func TestSessionsThatEndTogetherInheritNoPermits(t *testing.T) {
	r := full(t)
	r.lose(CheckRef{ID: serfHealth}, CheckRef{Node: "n"})
	r.has(Semaphore, "nothing")
	r = full(t)
	r.yes(ReleasePermit{Kind: Semaphore, Name: "x", Session: s2}) // 108: c holds it
	r.lose(CheckRef{Node: "n"})                                   // c and d
	r.has(Semaphore, "a@104 | |")
}

// A deregistration may end sessions by node and by check, under one index.
func TestSessionsLostTwiceInOneOperationLeaveOneToken(t *testing.T) {
	r := full(t)
	at := r.at()
	r.LoseNode(at, "")
	r.has(Semaphore, "c@108 | d | 101000")
	r.LoseNode(at, "n")
	r.next++
	r.has(Semaphore, "nothing")
}

func TestQueueNeedsTheClock(t *testing.T) {
	r := inLine(t)
	expect.That(t, r.NeedsClock(), "a session waits, and the clock is not needed")
	r.do(LeaveQueue{Kind: Lock, Name: "x", Session: s2})
	r.do(LeaveQueue{Kind: Lock, Name: "x", Session: s3})
	expect.That(t, !r.NeedsClock(), "no session waits, and the clock is needed")
}

// frozenPermits is a state where a holds lock "l", b holds semaphore "x" beside a lock-delay, and c
// waits for it.
func frozenPermits(t *testing.T) (Frozen, Catalog) {
	r := newRig(t)
	r.session(s1)
	r.session(s2)
	r.session(s3)
	r.session("00000000-0000-0000-0000-00000000000d", lockDelay(5000))
	r.yes(AcquirePermit{Kind: Lock, Name: "l", Session: s1, Value: []byte("v")}) // 104
	r.yes(ask("00000000-0000-0000-0000-00000000000d", 0))
	r.yes(ask(s2, 0))
	r.queued(ask(s3, 60_000), 1)
	r.yes(DestroySession{ID: "00000000-0000-0000-0000-00000000000d"}) // 108
	return r.Freeze(), r.nodes
}

func TestThawedPermitsGoOn(t *testing.T) {
	f, catalog := frozenPermits(t)
	s := need.Got(Thaw(f, catalog))(t)
	expect.Deep(t, s.Freeze(), f, "thawed and frozen again:")
	expect.That(t, s.NeedsClock(), "the lock-delay needs the clock")
	r := &rig{State: s, t: t, next: f.Index + 1, now: f.Lease + 5000}
	r.due() // 109
	r.has(Semaphore, "b@106 c@109 | |")
	got := slices.Collect(s.View().Held(s1))
	expect.That(t, slices.Equal(got, []Fence{{Lock, "l", 104}}), "a holds %+v, want lock l by 104", got)
	r.yes(DestroySession{ID: s1})
	r.yes(DestroySession{ID: s2})
	r.yes(DestroySession{ID: s3})
	r.has(Semaphore, "nothing")
}

func TestThawRefusesPermitsThatLie(t *testing.T) {
	for _, c := range []struct {
		name string
		lie  func(lock, sem *Permits, f *Frozen)
		want string
	}{
		{"twice", func(_, _ *Permits, f *Frozen) { f.Permits[1] = f.Permits[0] }, "not after"},
		{"a key", func(lock, _ *Permits, _ *Frozen) { lock.Kind = Key }, "neither a lock nor a semaphore"},
		{"a lock for two", func(lock, _ *Permits, _ *Frozen) { lock.Limit = 2 }, "a limit of 2"},
		{"a semaphore without permits", func(_, sem *Permits, _ *Frozen) { sem.Limit = 0 }, "a limit of 0"},
		{"too many", func(_, sem *Permits, _ *Frozen) { sem.Limit = 1 }, "2 are held or kept back, of 1"},
		{"idle", func(lock, _ *Permits, _ *Frozen) { lock.Holders = nil }, "no session holds it"},
		{"a queue for what is free", func(_, sem *Permits, _ *Frozen) { sem.Limit = 3 }, "1 wait, while one is free"},
		{"never modified", func(lock, _ *Permits, _ *Frozen) { lock.ModifyIndex = 0 }, "modified at 0"},
		{"modified in the future", func(lock, _ *Permits, f *Frozen) { lock.ModifyIndex = f.PermitsIndex + 1 }, "modified at 109"},
		{"delays out of order", func(_, sem *Permits, _ *Frozen) {
			sem.Limit, sem.Delays = 3, []int64{106_000, 105_000}
		}, "not in the order of time"},
		{"a delay without end", func(_, sem *Permits, _ *Frozen) { sem.Delays = []int64{1 << 60} }, "too far"},
		{"held by an unknown session", func(lock, _ *Permits, _ *Frozen) { lock.Holders[0].Session = "s" }, `session "s"`},
		{"awaited by an unknown session", func(_, sem *Permits, _ *Frozen) { sem.Queue[0].Session = "s" }, `session "s"`},
		{"held and awaited", func(_, sem *Permits, _ *Frozen) { sem.Queue[0].Session = s2 }, "twice"},
		{"held since the future", func(lock, _ *Permits, f *Frozen) { lock.Holders[0].Since = f.Lease + 1 }, "after the lease clock's"},
		{"no token", func(lock, _ *Permits, _ *Frozen) { lock.Holders[0].Fence = 0 }, "token 0"},
		{"a token of the future", func(lock, _ *Permits, _ *Frozen) { lock.Holders[0].Fence = 105 }, "token 105"},
		{"two of one token", func(_, sem *Permits, _ *Frozen) {
			sem.Queue, sem.Delays = nil, nil
			sem.Holders = append(sem.Holders, Holder{Session: s3, Fence: sem.Holders[0].Fence})
		}, "token 106"},
		{"a long value", func(lock, _ *Permits, _ *Frozen) { lock.Holders[0].Value = make([]byte, MaxPermitValue+1) }, "4097 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, catalog := frozenPermits(t)
			c.lie(f.Permits[0], f.Permits[1], &f)
			_, err := Thaw(f, catalog)
			expect.That(t, err != nil && strings.Contains(err.Error(), c.want), "error %v, want one that says %q", err, c.want)
		})
	}
}
