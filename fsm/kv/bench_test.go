package kv

import (
	"fmt"
	"testing"
)

// BenchmarkSet writes keys of a state that has 100,000, and makes a view after each write as the machine does after
// each entry.
func BenchmarkSet(b *testing.B) {
	const keys = 100_000
	r := newRig(b)
	ops := make([]KeyOp, keys)
	for i := range ops {
		ops[i] = KeyOp{Verb: Set, Key: fmt.Sprintf("service/%03d/config/%d", i%1000, i), Value: make([]byte, 100)}
		r.Apply(r.at(), ops[i])
		r.next++
	}
	var w Watchers
	for i := range keys {
		w.Join(Topic{KeyTopic, fmt.Sprint("other/", i)})
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		op := ops[i*7919%keys]
		op.Flags = uint64(r.next)
		r.Apply(r.at(), op)
		r.View()
		w.Wake(r.Touched())
		r.next++
	}
}

// BenchmarkRenew renews one of 10,000 sessions, and looks for those that have ended.
func BenchmarkRenew(b *testing.B) {
	const sessions = 10_000
	r := newRig(b)
	ids := make([]string, sessions)
	for i := range ids {
		ids[i] = fmt.Sprintf("%08d-0000-0000-0000-000000000000", i)
		r.Apply(r.at(), CreateSession{ID: ids[i], TTL: 10_000, NodeChecks: []string{serfHealth}})
		r.next++
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%2 == 0 { // 2,000 a second: each every 5 s
			r.pass(1)
		}
		r.Apply(r.at(), RenewSession{ids[i%sessions]})
		if i%2000 == 0 {
			if due := r.Due(r.now, 100); len(due) > 0 {
				b.Fatalf("due are %+v", due)
			}
		}
	}
}

// BenchmarkTxn performs a small transaction in a state that has 100,000 keys.
func BenchmarkTxn(b *testing.B) {
	r := newRig(b)
	for i := range 100_000 {
		r.Apply(r.at(), set(fmt.Sprintf("k/%d", i), "1"))
		r.next++
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		value := fmt.Sprint(i)
		key := fmt.Sprintf("k/%d", i*7919%100_000)
		r.Apply(r.at(), KeyTxn([]KeyOp{{Verb: Get, Key: key}, set(key, value), {Verb: CheckNotExists, Key: "x"}}))
		r.View()
		r.Touched()
		r.next++
	}
}
