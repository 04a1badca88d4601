package kv

import (
	"fmt"
	"slices"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestViewCutsKeysBehindTheSeparator(t *testing.T) {
	r := newRig(t)
	for _, key := range []string{"a", "a/", "a/b", "a/b/c", "a/b/d", "a/c", "ab", "b//c", "é/x"} {
		r.yes(set(key, ""))
	}
	tests := []struct {
		prefix, separator string
		want              []string
	}{
		{"", "", []string{"a", "a/", "a/b", "a/b/c", "a/b/d", "a/c", "ab", "b//c", "é/x"}},
		{"", "/", []string{"a", "a/", "ab", "b/", "é/"}},
		{"a", "/", []string{"a", "a/", "ab"}},
		{"a/", "/", []string{"a/", "a/b", "a/b/", "a/c"}},
		{"a/b", "/", []string{"a/b", "a/b/"}},
		{"a/b/", "/", []string{"a/b/c", "a/b/d"}},
		{"b/", "/", []string{"b//"}},
		{"b", "//", []string{"b//"}},
		{"x", "/", nil},
	}
	for _, test := range tests {
		got, _, _ := r.View().Keys(test.prefix, test.separator)
		expect.That(t, slices.Equal(got, test.want), "keys under %q cut at %q are %q, want %q", test.prefix, test.separator, got, test.want)
	}
}

func TestViewOfTheSameStateIsShared(t *testing.T) {
	r := newRig(t)
	r.yes(set("a", "1"))
	first := r.View()
	r.pass(1)
	r.yes(set("a", "1"))
	second := r.View()
	expect.That(t, first.shown == second.shown, "without a change the tables were copied")
	expect.That(t, first.Lease() != second.Lease() && second.Lease() == r.now,
		"the lease clock went from %d to %d, want %d", first.Lease(), second.Lease(), r.now)
}

func TestDeletionRecordsAreDroppedAfterADay(t *testing.T) {
	r := newRig(t)
	r.yes(set("a", "1"))
	r.yes(del("a"))
	deleted := r.now
	r.Advance(deleted + deletionsFor - 1)
	n := len(r.Freeze().Deletions)
	need.That(t, n == 1, "%d records of deletions within a day, want 1", n)
	r.Advance(deleted + deletionsFor)
	f := r.Freeze()
	expect.That(t, len(f.Deletions) == 0 && f.Pruned == 101,
		"%d records after a day, the newest that was forgotten is %d, want none and 101", len(f.Deletions), f.Pruned)
}

func TestDeletionRecordsAreDroppedOldestFirst(t *testing.T) {
	r := newRig(t)
	r.yes(set("first", "1"))
	r.yes(del("first"))
	for i := range deletionsLimit {
		r.Apply(r.at(), set(fmt.Sprint("k/", i), "")) // without a view of each
		r.next++
	}
	tree := r.yes(KeyOp{Verb: DeleteTree, Key: "k/"}).Index
	f := r.Freeze()
	expect.That(t, len(f.Deletions) == deletionsLimit && f.Pruned == 101 && f.Deletions[0].Index == tree && !slices.ContainsFunc(f.Deletions, func(d Deletion) bool { return d.Key == "first" }),
		"%d records, first key %q, the newest that was dropped is %d; want %d, and the oldest one dropped", len(f.Deletions), f.Deletions[0].Key, f.Pruned, deletionsLimit)
}

// weigh counts what is in a state by a walk.
func weigh(s *State) int {
	bytes := s.kept.bytes
	for _, e := range s.keys.pairs.Values() {
		bytes += e.Weight()
	}
	for _, d := range s.keys.deletions.byKey.Values() {
		bytes += d.weight()
	}
	for _, l := range s.sessions.byID.Values() {
		bytes += l.session.Weight()
	}
	for _, key := range s.keys.delays.until.Keys() {
		bytes += delayWeight + len(key)
	}
	for _, kind := range []Kind{Lock, Semaphore} {
		for p := range s.View().AllPermits(kind) {
			bytes += permitsWeight + len(p.Name) + len(p.Delays)*delayWeight
			for _, h := range p.Holders {
				bytes += weightWith(h.Value)
			}
			for _, w := range p.Queue {
				bytes += weightWith(w.Value)
			}
		}
	}
	return bytes
}

func TestViewBytesAreThoseOfWhatIsInTheState(t *testing.T) {
	r := newRig(t)
	set := func(key string, bytes int) Op { return KeyOp{Verb: Set, Key: key, Value: make([]byte, bytes)} }
	for i, op := range []Op{
		CreateSession{ID: s1, Name: "first", Behavior: DeleteKeys},
		CreateSession{ID: s2, NodeChecks: []string{serfHealth}, TTL: 10_000},
		set("a", 100), set("a", 10), set("b/1", 1000), set("b/2", 1000),
		KeyOp{Verb: Acquire, Key: "held", Session: s1, Value: make([]byte, 50)},
		KeyOp{Verb: Acquire, Key: "kept", Session: s2, Value: make([]byte, 50)},
		KeyOp{Verb: Delete, Key: "a"}, set("a", 1), KeyOp{Verb: Delete, Key: "a"},
		KeyTxn([]KeyOp{{Verb: Set, Key: "t", Value: make([]byte, 70)}, {Verb: CAS, Key: "t", Index: 1}}),
		KeyTxn([]KeyOp{{Verb: Set, Key: "u", Value: make([]byte, 70)}}),
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
