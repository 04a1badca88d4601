package kv

import (
	"fmt"
	"testing"
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
		DestroySession{ID: s1}, DestroySession{ID: s2},
	} {
		r.do(op)
		if got, want := r.View().Bytes(), weigh(r.State); got != want {
			t.Fatalf("operation %d, %+v: %d bytes, want %d", i, op, got, want)
		}
	}
	thawed, err := Thaw(r.Freeze(), r.nodes)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := thawed.View().Bytes(), r.View().Bytes(); got != want || got == 0 {
		t.Errorf("%d bytes after a restore, want %d", got, want)
	}
	r.Advance(r.now + 2*deletionsFor + OnceFor)
	if got, want := r.View().Bytes(), weigh(r.State); got != want {
		t.Errorf("%d bytes after a day, want %d", got, want)
	}
	before := r.View().Bytes()
	for i := range 10 {
		r.do(set(fmt.Sprintf("k%d", i), 1000))
	}
	if grown := r.View().Bytes() - before; grown < 10_000 {
		t.Errorf("ten values of 1000 bytes count as %d", grown)
	}
}
