package kv

import (
	"fmt"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestOnceAcceptsASessionThatIsDrawnTwice(t *testing.T) {
	r := newRig(t)
	r.yes(Once{"x", CreateSession{ID: s1, Name: "me"}})
	res := r.yes(Once{"x", CreateSession{ID: s2, Name: "me"}})
	expect.That(t, res.Session.ID == s1, "session %s, want the first, %s", res.Session.ID, s1)
	r.refused(Once{"x", CreateSession{ID: s2, Name: "you"}}, `idempotency key "x" was used for another operation`)
}

func TestOnceRefusesTheKeyOfAnotherOperation(t *testing.T) {
	fence := &Fence{Kind: Key, Name: "f", Index: 1}
	base := KeyOp{Verb: Set, Key: "k", Value: []byte("v"), Flags: 1, Index: 2, Session: "s", Fence: fence}
	// ops differ from each other in one field or in where one ends and the next begins.
	ops := []Op{
		base,
		change(base, func(o *KeyOp) { o.Verb = CAS }),
		change(base, func(o *KeyOp) { o.Key = "l" }),
		change(base, func(o *KeyOp) { o.Value = []byte("w") }),
		change(base, func(o *KeyOp) { o.Flags = 2 }),
		change(base, func(o *KeyOp) { o.Index = 3 }),
		change(base, func(o *KeyOp) { o.Session = "t" }),
		change(base, func(o *KeyOp) { o.Key, o.Session = "ks", "" }),
		change(base, func(o *KeyOp) { o.Fence = nil }),
		change(base, func(o *KeyOp) { o.Fence = &Fence{Kind: Lock, Name: "f", Index: 1} }),
		change(base, func(o *KeyOp) { o.Fence = &Fence{Kind: Key, Name: "g", Index: 1} }),
		change(base, func(o *KeyOp) { o.Fence = &Fence{Kind: Key, Name: "f", Index: 2} }),
		KeyTxn([]KeyOp{base}),
		KeyTxn([]KeyOp{base, base}),
		CreateSession{},
		CreateSession{Name: "n"},
		CreateSession{Node: "n"},
		CreateSession{TTL: 1},
		CreateSession{TTLText: "n"},
		CreateSession{LockDelay: 1},
		CreateSession{Behavior: DeleteKeys},
		CreateSession{Checks: []string{"c"}},
		CreateSession{NodeChecks: []string{"c"}},
		CreateSession{NodeChecks: []string{"c", "d"}},
		CreateSession{NodeChecks: []string{"c"}, ServiceChecks: []string{"d"}},
		RenewSession{"s"},
		RenewSession{"t"},
		DestroySession{"s"},
		DestroySession{"t"},
		ExpireSession{ID: "s"},
		ExpireSession{ID: "s", Epoch: Epoch{Term: 1, Index: 2}},
		ExpireSession{ID: "s", Epoch: Epoch{Term: 2, Index: 1}},
		ExpireSession{ID: "s", Created: 1},
		ExpireSession{ID: "s", RenewedAt: 1},
		EndDelay{Name: "n"},
		EndDelay{Name: "n", Kind: Lock},
		EndDelay{Name: "n", Epoch: Epoch{Term: 1, Index: 2}},
		EndDelay{Name: "n", Until: 1},
		AcquirePermit{Kind: Lock, Name: "n", Session: "s"},
		AcquirePermit{Kind: Semaphore, Name: "n", Session: "s"},
		AcquirePermit{Kind: Lock, Name: "ns"},
		AcquirePermit{Kind: Lock, Name: "n", Session: "s", Limit: 1},
		AcquirePermit{Kind: Lock, Name: "n", Session: "s", Value: []byte("v")},
		AcquirePermit{Kind: Lock, Name: "n", Session: "s", Wait: 1},
		ReleasePermit{Kind: Lock, Name: "n", Session: "s"},
		ReleasePermit{Kind: Semaphore, Name: "n", Session: "s"},
		ReleasePermit{Kind: Lock, Name: "ns"},
		ReleasePermit{Kind: Lock, Name: "n", Session: "s", Index: 1},
		LeaveQueue{Kind: Lock, Name: "n", Session: "s"},
		LeaveQueue{Kind: Semaphore, Name: "n", Session: "s"},
		LeaveQueue{Kind: Lock, Name: "ns"},
		LeaveQueue{Kind: Lock, Name: "n", Session: "s", Release: true},
	}
	seen := make(map[uint64]Op)
	for _, op := range ops {
		d := hashOf(op)
		other, ok := seen[d]
		expect.That(t, !ok, "%+v and %+v count as one operation", op, other)
		expect.That(t, d == hashOf(op), "%+v is another operation each time", op)
		seen[d] = op
	}
}

func change(op KeyOp, do func(*KeyOp)) KeyOp {
	do(&op)
	return op
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
		for i := range OnceLimit + 1 {
			r.Apply(r.at(), Once{fmt.Sprint(i), RenewSession{}})
		}
		_, ok := r.kept.byKey["0"]
		expect.That(t, !ok && len(r.kept.byKey) == OnceLimit,
			"%d results are kept, the oldest: %t; want %d, and not that", len(r.kept.byKey), ok, OnceLimit)
	})
}

func TestOnceKeepsNoMemoryOfATooOldResult(t *testing.T) {
	r := newRig(t)
	r.yes(Once{strings.Repeat("x", MaxOnceKey), set("a", "1")})
	r.Advance(r.now + OnceFor)
	f := r.Freeze()
	expect.That(t, len(f.Kept) == 0 && len(r.kept.byKey) == 0, "%d results are left, %d by key", len(f.Kept), len(r.kept.byKey))
}
