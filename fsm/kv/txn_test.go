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

func TestTransactionThatWritesReadsABoundedNumberOfBytes(t *testing.T) {
	r := newRig(t)
	large(r, 9, 1<<20)
	tree := KeyOp{Verb: GetTree, Key: "large/"}
	res := r.do(KeyTxn([]KeyOp{set("k", "1"), tree}))
	expect.That(t, res.Excess == TooLarge && !res.OK && res.Pairs == nil, "9 MiB: result %+v, want it refused as too large", res)
	e, _ := r.View().Get("k")
	expect.That(t, e == nil, "it was refused, and set %+v", e)
	tree.Key = "large/00001"
	res = r.do(KeyTxn([]KeyOp{set("k", "1"), tree}))
	expect.That(t, res.OK && len(res.Pairs) == 2, "1 MiB: result %+v, want it done", res)
	at := r.at()
	at.Read = MaxBatchRead - 1<<10
	if res := r.Apply(at, KeyTxn([]KeyOp{set("k", "2"), tree})); res.Excess != TooBusy || string(r.pair("k").Value) != "1" {
		t.Errorf("1 MiB after others of the batch: result %+v with k %s, want it refused as too busy", res, r.pair("k").Value)
	}
}

func TestViewReadsABoundedNumberOfBytes(t *testing.T) {
	r := newRig(t)
	large(r, 66, 1<<20)
	v := r.View()
	pairs, index, ok := v.List("large/")
	expect.That(t, !ok && pairs == nil && index != 0, "List of 66 MiB: %d pairs, index %d, %t, want none, but an index", len(pairs), index, ok)
	if read := v.Read(KeyTxn([]KeyOp{{Verb: GetTree, Key: "large/"}}).Ops); read.Excess != TooLarge || read.Pairs != nil {
		t.Errorf("Read of 66 MiB: %d pairs, excess %d, want none", len(read.Pairs), read.Excess)
	}
	keys, _, ok := v.Keys("large/", "")
	expect.That(t, ok && len(keys) == 66, "Keys: %d, %t, want 66", len(keys), ok)
}

func TestOnceKeepsWhatATransactionReadWhileItIsLittle(t *testing.T) {
	r := newRig(t)
	large(r, 1, 1<<20)
	r.yes(set("small", "1"))
	big := Once{"big", KeyTxn([]KeyOp{set("k", "1"), {Verb: Get, Key: "large/00000"}})}
	small := Once{"small", KeyTxn([]KeyOp{set("k", "2"), {Verb: Get, Key: "small"}})}
	for range 2 {
		res := r.do(small)
		expect.That(t, len(res.Pairs) == 2, "a small one: result %+v, want what it read", res)
	}
	if res := r.do(big); len(res.Pairs) != 2 || res.Excess != NoExcess {
		t.Errorf("a large one: result %+v, want what it read", res)
	}
	if res := r.do(big); !res.OK || res.Pairs != nil || res.Excess != Forgotten {
		t.Errorf("a large one again: result %+v, want it forgotten", res)
	}
}

func TestOnceKeepsABoundedNumberOfBytes(t *testing.T) {
	r := newRig(t)
	large(r, 1, 60<<10)
	read := KeyTxn([]KeyOp{set("k", "1"), {Verb: Get, Key: "large/00000"}})
	for i := range 2 * OnceBytes / (60 << 10) {
		r.do(Once{fmt.Sprint("x", i), read})
	}
	got := r.kept.bytes
	expect.That(t, got <= OnceBytes && got >= OnceBytes/2, "results take %d bytes, want at most %d", got, OnceBytes)
	bytes := 0
	for _, a := range r.kept.order {
		bytes += a.weight()
	}
	expect.That(t, bytes == r.kept.bytes && len(r.kept.order) == len(r.kept.byKey),
		"%d results by key and %d by time; %d bytes counted, %d there", len(r.kept.byKey), len(r.kept.order), r.kept.bytes, bytes)
}
