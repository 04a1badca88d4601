package kv

import (
	"reflect"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestEndOfAHolderKeepsOthersAwayForItsLockDelay(t *testing.T) {
	ends := map[string]func(r *rig){
		"destroyed":  func(r *rig) { r.yes(DestroySession{s1}) },
		"expired":    func(r *rig) { r.pass(30_001); r.due() },
		"check lost": func(r *rig) { r.Lose(r.at(), []CheckRef{{"", serfHealth}}); r.next++ },
		"node lost":  func(r *rig) { r.LoseNode(r.at(), ""); r.next++ },
	}
	behaviors := map[string]func(*CreateSession){"release": func(*CreateSession) {}, "delete": deleteKeys}
	for how, end := range ends {
		for what, behavior := range behaviors {
			t.Run(how+" "+what, func(t *testing.T) {
				r := newRig(t)
				r.nodes[CheckRef{Node: "m"}] = false
				r.session(s1, ttl(30_000), lockDelay(2000), behavior)
				r.session(s2, func(c *CreateSession) { c.Node, c.NodeChecks = "m", nil })
				r.yes(acquire("a", s1))
				end(r)
				until := r.now + 2000
				expect.Equal(t, r.View().Delayed("a"), until, "delayed until")
				r.no(acquire("a", s2))
				r.now = until - 1
				r.no(acquire("a", s2))
				r.pass(1)
				r.yes(acquire("a", s2))
				expect.Equal(t, r.View().Delayed("a"), 0, "held, and delayed until")
			})
		}
	}
}

func TestLockDelayRestrictsNothingButAcquiring(t *testing.T) {
	r := newRig(t)
	r.session(s1, lockDelay(2000))
	r.session(s2)
	r.yes(acquire("a", s1))
	r.yes(DestroySession{s1})
	r.yes(set("a", "other"))
	r.yes(KeyOp{Verb: CAS, Key: "a", Value: []byte("cas"), Index: r.entry("a").ModifyIndex})
	r.yes(del("a"))
	r.no(acquire("a", s2)) // it is bound to the name
	r.yes(set("a", "again"))
	r.no(acquire("a", s2))
	r.yes(acquire("b", s2))
	r.pass(2000)
	r.yes(acquire("a", s2))
}

func TestNoLockDelayWithoutALostHold(t *testing.T) {
	tests := []struct {
		name string
		lose func(r *rig)
	}{
		{"proper release", func(r *rig) { r.yes(release("a", s1)) }},
		{"proper release before the end", func(r *rig) { r.yes(release("a", s1)); r.yes(DestroySession{s1}) }},
		{"deletion before the end", func(r *rig) { r.yes(del("a")); r.yes(DestroySession{s1}) }},
		{"delay of 0", func(r *rig) { r.yes(release("a", s1)); r.yes(acquire("a", s3)); r.yes(DestroySession{s3}) }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t)
			r.session(s1, lockDelay(2000))
			r.session(s2)
			r.session(s3)
			r.yes(acquire("a", s1))
			test.lose(r)
			r.yes(acquire("a", s2))
		})
	}
}

func TestLockDelayIsBoundedAndOfWholeMilliseconds(t *testing.T) {
	tests := []struct{ ns, ms int64 }{
		{-1, 0}, {0, 0}, {1, 1}, {1_000_000, 1}, {1_000_001, 2}, {15e9, 15_000}, {60e9, 60_000}, {61e9, 60_000},
	}
	for _, test := range tests {
		s := Session{LockDelay: test.ns}
		got := s.lockDelay()
		expect.That(t, got == test.ms, "a lock-delay of %d ns counts as %d ms, want %d", test.ns, got, test.ms)
	}
}

func TestEndOfALockDelayIsProposed(t *testing.T) {
	r := newRig(t)
	r.session(s1, lockDelay(2000))
	r.session(s2, lockDelay(3000))
	r.yes(acquire("a", s1))
	r.yes(DestroySession{s1})
	until := r.now + 2000
	if due := r.Due(until-1, 10); len(due) > 0 || !r.NeedsClock() {
		t.Errorf("due are %+v before its end; needs the clock: %t", due, r.NeedsClock())
	}
	want := EndDelay{Epoch: epoch1, Kind: Key, Name: "a", Until: until}
	due := r.Due(until, 10)
	expect.That(t, reflect.DeepEqual(due, []Op{want}), "due are %+v, want %+v", due, want)
	r.now = until
	r.yes(acquire("a", s2))
	r.yes(DestroySession{s2}) // a delay of its own
	r.no(want)
	due = r.Due(until, 10)
	expect.That(t, len(due) <= 0, "due are %+v before the end of the second", due)
	other := want
	other.Until = r.now + 3000
	r.no(other) // before its time
	r.pass(3000)
	other.Epoch.Index++
	r.no(other)
	if due := r.due(); len(due) != 1 {
		t.Errorf("due are %+v, want the end of the second", due)
	}
	if n := len(r.Freeze().Delays); n > 0 || r.NeedsClock() {
		t.Errorf("%d lock-delays are left; needs the clock: %t", n, r.NeedsClock())
	}
}
