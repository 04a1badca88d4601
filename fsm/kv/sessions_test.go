package kv

import (
	"slices"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestSessionIsWhatItsCreatorSaid(t *testing.T) {
	r := newRig(t)
	r.nodes[CheckRef{Node: "n"}] = false
	r.nodes[CheckRef{Node: "n", ID: "c"}] = false
	r.nodes[CheckRef{Node: "n", ID: "s"}] = false
	got := r.session(s1, func(c *CreateSession) {
		*c = CreateSession{
			ID: s1, Name: "me", Node: "n", TTL: 10_000, TTLText: "10s", LockDelay: 15e9, Behavior: DeleteKeys,
			Checks: []string{"c"}, NodeChecks: []string{"c"}, ServiceChecks: []string{"s"},
		}
	})
	want := &Session{
		ID: s1, Name: "me", Node: "n", TTL: 10_000, TTLText: "10s", LockDelay: 15e9, Behavior: DeleteKeys,
		Checks: []string{"c"}, NodeChecks: []string{"c"}, ServiceChecks: []string{"s"},
		CreateIndex: 100, ModifyIndex: 100, CreatedAt: r.now, CreatedWall: startOfWall + r.now,
	}
	expect.Deep(t, got, want, "session is")
	read, index := r.View().Session(s1)
	expect.That(t, read == got && index == 100, "read back %+v and index %d", read, index)
}

func TestSessionNeedsAnID(t *testing.T) {
	r := newRig(t)
	r.refused(CreateSession{}, "missing session")
}

func TestSessionNeedsItsNodeAndChecks(t *testing.T) {
	tests := []struct {
		name    string
		op      CreateSession
		refusal string
	}{
		{"unknown node", CreateSession{Node: "x"}, "Missing node registration"},
		{"unknown check", CreateSession{NodeChecks: []string{serfHealth, "x"}}, "Missing check 'x' registration"},
		{"check of another node", CreateSession{Node: "n", NodeChecks: []string{serfHealth}}, "Missing check 'serfHealth' registration"},
		{"critical check", CreateSession{Node: "n", NodeChecks: []string{"bad"}}, "Check 'bad' is in critical state"},
		{"critical check of a service", CreateSession{Node: "n", ServiceChecks: []string{"bad"}}, "Check 'bad' is in critical state"},
		{"id that is taken", CreateSession{ID: s2}, `session "` + s2 + `" exists already`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t)
			r.nodes[CheckRef{Node: "n"}] = false
			r.nodes[CheckRef{Node: "n", ID: "bad"}] = true
			r.session(s2)
			if test.op.ID == "" {
				test.op.ID = s1
			}
			r.refused(test.op, test.refusal)
			n := len(slices.Collect(r.View().Sessions()))
			expect.That(t, n == 1, "afterwards there are %d sessions, want 1", n)
		})
	}
}

func TestLockDelayIsBoundedAndOfWholeMilliseconds(t *testing.T) {
	tests := []struct{ ns, ms int64 }{
		{-1, 0}, {0, 0}, {1, 1}, {1_000_000, 1}, {1_000_001, 2}, {15e9, 15_000}, {60e9, 60_000}, {61e9, 60_000},
	}
	for _, test := range tests {
		s := Session{LockDelay: test.ns}
		expect.Equal(t, s.lockDelay(), test.ms, "a lock-delay of %d ns counts as", test.ns)
	}
}

func TestSessionEndsWhenItsTTLHasPassed(t *testing.T) {
	tests := []struct {
		name  string
		ttl   int64
		renew int64 // ms after creation; 0: never
		lead  int64 // ms after creation at which a leadership is established; -1: none
		last  int64 // last ms after creation at which nothing is due
	}{
		{name: "never renewed", ttl: 10_000, lead: -1, last: 10_000},
		{name: "renewed", ttl: 10_000, renew: 9999, lead: -1, last: 19_999},
		{name: "grace of half its TTL and two seconds", ttl: 10_000, lead: 8000, last: 15_000},
		{name: "grace of no more than its TTL", ttl: 3000, lead: 1000, last: 4000},
		{name: "grace that ends before the TTL", ttl: 10_000, renew: 4000, lead: 5000, last: 14_000},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t)
			s := r.session(s1, ttl(test.ttl))
			start := r.now
			if test.renew > 0 {
				r.now = start + test.renew
				r.yes(RenewSession{s1})
			}
			if test.lead >= 0 {
				r.now = start + test.lead
				r.Establish(Epoch{Term: 2, Index: 50}, r.now)
			}
			due := r.Due(start+test.last, 10)
			expect.That(t, len(due) == 0, "due are %+v while it lives", due)
			want := []Op{ExpireSession{Epoch: r.epoch, ID: s1, Created: s.CreateIndex, RenewedAt: start + test.renew}}
			expect.Deep(t, r.Due(start+test.last+1, 10), want, "due are")
			expect.Equal(t, r.View().Ends(s), start+test.last, "its last moment is")
		})
	}
}
