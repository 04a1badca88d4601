package kv

import (
	"slices"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

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

func TestPermitsThatLieAreNotThawed(t *testing.T) {
	for _, c := range []struct {
		name string
		lie  func(lock, sem *Permits, f *Frozen)
		want string
	}{
		{"twice", func(_, _ *Permits, f *Frozen) { f.Permits[1] = f.Permits[0] }, "not after"},
		{"a key", func(lock, _ *Permits, _ *Frozen) { lock.Kind = Key }, "neither a lock nor a semaphore"},
		{"a lock for two", func(lock, _ *Permits, _ *Frozen) { lock.Limit = 2 }, "a limit of 2"},
		{"a semaphore for nobody", func(_, sem *Permits, _ *Frozen) { sem.Limit = 0 }, "a limit of 0"},
		{"too many", func(_, sem *Permits, _ *Frozen) { sem.Limit = 1 }, "2 are held or kept back, of 1"},
		{"idle", func(lock, _ *Permits, _ *Frozen) { lock.Holders = nil }, "nobody holds it"},
		{"a queue for what is free", func(_, sem *Permits, _ *Frozen) { sem.Limit = 3 }, "1 wait, while one is free"},
		{"never modified", func(lock, _ *Permits, _ *Frozen) { lock.ModifyIndex = 0 }, "modified at 0"},
		{"modified in the future", func(lock, _ *Permits, f *Frozen) { lock.ModifyIndex = f.PermitsIndex + 1 }, "modified at 109"},
		{"delays out of order", func(_, sem *Permits, _ *Frozen) {
			sem.Limit, sem.Delays = 3, []int64{106_000, 105_000}
		}, "not in the order of time"},
		{"a delay without end", func(_, sem *Permits, _ *Frozen) { sem.Delays = []int64{1 << 60} }, "too far"},
		{"held by nobody", func(lock, _ *Permits, _ *Frozen) { lock.Holders[0].Session = "s" }, `session "s"`},
		{"awaited by nobody", func(_, sem *Permits, _ *Frozen) { sem.Queue[0].Session = "s" }, `session "s"`},
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
