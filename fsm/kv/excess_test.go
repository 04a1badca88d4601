package kv

import (
	"fmt"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

// large fills a state with keys under large/ whose values share one memory.
func large(r *rig, keys, bytes int) {
	value := strings.Repeat("v", bytes)
	for i := range keys {
		r.yes(set(fmt.Sprintf("large/%05d", i), value))
	}
}

func TestATransactionThatWritesReadsABoundedNumberOfBytes(t *testing.T) {
	r := newRig(t)
	large(r, 9, 1<<20)
	tree := KeyOp{Verb: GetTree, Key: "large/"}
	res := r.do(Txn{[]KeyOp{set("k", "1"), tree}})
	expect.That(t, res.Excess == TooLarge && !res.OK && res.Entries == nil, "9 MiB: answered %+v, want it refused as too large", res)
	e, _ := r.View().Get("k")
	expect.That(t, e == nil, "it was refused, and set %+v", e)
	tree.Key = "large/00001"
	res = r.do(Txn{[]KeyOp{set("k", "1"), tree}})
	expect.That(t, res.OK && len(res.Entries) == 2, "1 MiB: answered %+v, want it done", res)
	at := r.at()
	at.Read = MaxBatchRead - 1<<10
	if res := r.Apply(at, Txn{[]KeyOp{set("k", "2"), tree}}); res.Excess != TooBusy || string(r.entry("k").Value) != "1" {
		t.Errorf("1 MiB after others of the batch: answered %+v with k %s, want it refused as too busy", res, r.entry("k").Value)
	}
}

func TestViewsReadABoundedNumberOfBytes(t *testing.T) {
	r := newRig(t)
	large(r, 66, 1<<20)
	v := r.View()
	entries, index, ok := v.List("large/")
	expect.That(t, !ok && entries == nil && index != 0, "List of 66 MiB: %d entries, index %d, %t, want none, but an index", len(entries), index, ok)
	if entries, _, ok := v.Read([]KeyOp{{Verb: GetTree, Key: "large/"}}); ok || entries != nil {
		t.Errorf("Read of 66 MiB: %d entries, %t, want none", len(entries), ok)
	}
	if keys, _, ok := v.Keys("large/", ""); !ok || len(keys) != 66 {
		t.Errorf("Keys: %d, %t, want 66", len(keys), ok)
	}
}

func TestWhatARepeatedTransactionReadIsKeptWhileItIsLittle(t *testing.T) {
	r := newRig(t)
	large(r, 1, 1<<20)
	r.yes(set("small", "1"))
	big := Once{"big", Txn{[]KeyOp{set("k", "1"), {Verb: Get, Key: "large/00000"}}}}
	small := Once{"small", Txn{[]KeyOp{set("k", "2"), {Verb: Get, Key: "small"}}}}
	for range 2 {
		res := r.do(small)
		expect.That(t, len(res.Entries) == 2, "a small one: answered %+v, want what it read", res)
	}
	if res := r.do(big); len(res.Entries) != 2 || res.Excess != NoExcess {
		t.Errorf("a large one: answered %+v, want what it read", res)
	}
	if res := r.do(big); !res.OK || res.Entries != nil || res.Excess != Forgotten {
		t.Errorf("a large one again: answered %+v, want it forgotten", res)
	}
}

func TestAnswersOfOnceTakeABoundedNumberOfBytes(t *testing.T) {
	r := newRig(t)
	large(r, 1, 60<<10)
	read := Txn{[]KeyOp{set("k", "1"), {Verb: Get, Key: "large/00000"}}}
	for i := range 2 * OnceBytes / (60 << 10) {
		r.do(Once{fmt.Sprint("x", i), read})
	}
	got := r.answers.bytes
	expect.That(t, got <= OnceBytes && got >= OnceBytes/2, "answers take %d bytes, want at most %d", got, OnceBytes)
	bytes := 0
	for _, a := range r.answers.order {
		bytes += a.weight()
	}
	expect.That(t, bytes == r.answers.bytes && len(r.answers.order) == len(r.answers.byKey),
		"%d answers by key and %d by time; %d bytes counted, %d there", len(r.answers.byKey), len(r.answers.order), r.answers.bytes, bytes)
}
