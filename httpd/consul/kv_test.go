package consul

import (
	"encoding/json"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestKeysAreShownAsClientsDecodeThem(t *testing.T) {
	for _, row := range []struct {
		name  string
		entry kv.Pair
		want  string
	}{
		{"held", kv.Pair{Key: "k", Value: []byte("v1"), Flags: 1<<64 - 1, Session: "s", LockIndex: 2, CreateIndex: 3, ModifyIndex: 4, Fence: 4},
			`{"LockIndex":2,"Key":"k","Flags":18446744073709551615,"Value":"djE=","Session":"s","CreateIndex":3,"ModifyIndex":4}`},
		{"an empty value", kv.Pair{Key: "k", Value: []byte{}, CreateIndex: 3, ModifyIndex: 4},
			`{"LockIndex":0,"Key":"k","Flags":0,"Value":null,"CreateIndex":3,"ModifyIndex":4}`},
	} {
		got, _ := json.Marshal(ShowPair(&row.entry))
		expect.That(t, string(got) == row.want, "%s: got %s, want %s", row.name, got, row.want)
	}
	if got, _ := json.Marshal(ShowPairs(nil)); string(got) != "[]" {
		t.Errorf("no entries are %s, want []", got)
	}
}

func TestTransactionHasAWordForEveryVerb(t *testing.T) {
	words := map[string]kv.Verb{
		"set": kv.Set, "cas": kv.CAS, "lock": kv.Acquire, "unlock": kv.Release, "get": kv.Get, "get-or-empty": kv.GetOrEmpty, "get-tree": kv.GetTree,
		"check-index": kv.CheckIndex, "check-session": kv.CheckSession, "check-not-exists": kv.CheckNotExists, "delete": kv.Delete,
		"delete-cas": kv.DeleteCAS, "delete-tree": kv.DeleteTree,
	}
	for word, want := range words {
		txn, errs, err := DecodeTxn([]byte(`[{"KV":{"Verb":"`+word+`","Key":"k","Value":"dg==","Flags":7,"Index":8,"Session":"s"}}]`), Place{})
		if err != nil || errs != nil || len(txn.Ops) != 1 {
			t.Errorf("%s: %v, %v, %v", word, txn, errs, err)
			continue
		}
		op := txn.Ops[0].Key
		expect.That(t, op.Verb == want && op.Key == "k" && string(op.Value) == "v" && op.Flags == 7 && op.Index == 8 && op.Session == "s",
			"%s: got %+v", word, op)
	}
	expect.That(t, len(verbWords) == len(words), "%d verbs have a word, want %d", len(verbWords), len(words))
}
