package kv

import (
	"fmt"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// weigh counts what is in a state by a walk.
func weigh(s *State) int {
	bytes := s.answers.bytes
	for _, e := range s.tables.entries.Values() {
		bytes += e.Weight()
	}
	for _, d := range s.tables.deletions.Values() {
		bytes += d.weight()
	}
	for _, l := range s.tables.sessions.Values() {
		bytes += l.session.weight()
	}
	for _, key := range s.tables.delays.Keys() {
		bytes += delayWeight + len(key)
	}
	for _, kind := range []Kind{Lock, Semaphore} {
		for p := range s.View().AllPermits(kind) {
			bytes += permitsWeight + len(p.Name) + len(p.Delays)*delayWeight
			for _, h := range p.Holders {
				bytes += weight(h.Value)
			}
			for _, w := range p.Queue {
				bytes += weight(w.Value)
			}
		}
	}
	return bytes
}

func TestTheBytesOfTheStateAreThoseOfWhatIsInIt(t *testing.T) {
	r := newRig(t)
	set := func(key string, bytes int) Op { return KeyOp{Verb: Set, Key: key, Value: make([]byte, bytes)} }
	for i, op := range []Op{
		CreateSession{ID: s1, Name: "first", Behavior: DeleteKeys},
		CreateSession{ID: s2, NodeChecks: []string{serfHealth}, TTL: 10_000},
		set("a", 100), set("a", 10), set("b/1", 1000), set("b/2", 1000),
		KeyOp{Verb: Acquire, Key: "held", Session: s1, Value: make([]byte, 50)},
		KeyOp{Verb: Acquire, Key: "kept", Session: s2, Value: make([]byte, 50)},
		KeyOp{Verb: Delete, Key: "a"}, set("a", 1), KeyOp{Verb: Delete, Key: "a"},
		Txn{Ops: []KeyOp{{Verb: Set, Key: "t", Value: make([]byte, 70)}, {Verb: CAS, Key: "t", Index: 1}}},
		Txn{Ops: []KeyOp{{Verb: Set, Key: "u", Value: make([]byte, 70)}}},
		KeyOp{Verb: DeleteTree, Key: "b/"},
		Once{Key: "once", Op: set("c", 300)},
		CreateSession{ID: s3, LockDelay: 15_000_000_000},
		KeyOp{Verb: Acquire, Key: "delayed", Session: s3},
		AcquirePermit{Kind: Lock, Name: "lock", Session: s1, Value: make([]byte, 100)},
		AcquirePermit{Kind: Lock, Name: "lock", Session: s1, Value: make([]byte, 200)},
		AcquirePermit{Kind: Lock, Name: "lock", Session: s2, Value: make([]byte, 300), Wait: 60_000},
		AcquirePermit{Kind: Lock, Name: "lock", Session: s2, Value: make([]byte, 400), Wait: 90_000},
		AcquirePermit{Kind: Lock, Name: "lock", Session: s3, Wait: 90_000},
		AcquirePermit{Kind: Semaphore, Name: "two", Session: s2, Limit: 2},
		AcquirePermit{Kind: Semaphore, Name: "two", Session: s3, Limit: 2, Value: make([]byte, 50)},
		LeaveQueue{Kind: Lock, Name: "lock", Session: s2},
		ReleasePermit{Kind: Semaphore, Name: "two", Session: s2},
		DestroySession{ID: s1}, DestroySession{ID: s3}, DestroySession{ID: s2},
	} {
		r.do(op)
		got, want := r.View().Bytes(), weigh(r.State)
		need.That(t, got == want, "operation %d, %+v: %d bytes, want %d", i, op, got, want)
		thawed := need.Got(Thaw(r.Freeze(), r.nodes))(t)
		if got, want := thawed.View().Bytes(), r.View().Bytes(); got != want || got == 0 {
			t.Fatalf("operation %d, %+v: %d bytes after a restore, want %d", i, op, got, want)
		}
	}
	r.Advance(r.now + 2*deletionsFor + OnceFor)
	if got, want := r.View().Bytes(), weigh(r.State); got != want {
		t.Errorf("%d bytes after a day, want %d", got, want)
	}
	before := r.View().Bytes()
	for i := range 10 {
		r.do(set(fmt.Sprintf("k%d", i), 1000))
	}
	grown := r.View().Bytes() - before
	expect.That(t, grown >= 10_000, "ten values of 1000 bytes count as %d", grown)
}
