package consul

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/web"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestTransactionHasAWordForEveryVerb(t *testing.T) {
	words := map[string]kv.Verb{
		"set": kv.Set, "cas": kv.CAS, "lock": kv.Acquire, "unlock": kv.Release, "get": kv.Get, "get-or-empty": kv.GetOrEmpty, "get-tree": kv.GetTree,
		"check-index": kv.CheckIndex, "check-session": kv.CheckSession, "check-not-exists": kv.CheckNotExists, "delete": kv.Delete,
		"delete-cas": kv.DeleteCAS, "delete-tree": kv.DeleteTree,
	}
	for word, want := range words {
		txn, errs, err := decodeTxn([]byte(`[{"KV":{"Verb":"`+word+`","Key":"k","Value":"dg==","Flags":7,"Index":8,"Session":"s"}}]`), place{})
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

// Every accepted session keeps the bounds that the state relies on, and can be shown.
func FuzzDecodeSession(f *testing.F) {
	for _, seed := range []string{
		"", "null", "{}", `{"LockDelay":0}`, `{"LockDelay":"15s","TTL":"10s","Behavior":"delete","Checks":null,"NodeChecks":["a"],"ServiceChecks":[{"ID":"b"}]}`,
		`{"LockDelay":1e400}`, `{"LockDelay":-1e300}`, `{"LockDelay":{}}`, `{"TTL":"9223372036854775807ns"}`, `{"Checks":["serfHealth"]}`, `{"Checks":[null]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		op, err := decodeSession(body, "")
		if err != nil {
			var refused *web.Refusal
			need.That(t, errors.As(err, &refused) && (refused.Status == 400 || refused.Status == 500), "%q: an error without a status: %v", body, err)
			return
		}
		need.That(t, op.LockDelay >= 0 && op.TTL >= 0 && (op.TTL == 0 || op.TTL >= 2*minSessionTTL.Milliseconds()) && op.TTL <= 2*maxSessionTTL.Milliseconds() && op.ID == "", "%q: %+v is out of bounds", body, op)
		shown, err := json.Marshal(showSession(&kv.Session{Name: op.Name, TTLText: op.TTLText, Checks: op.Checks, NodeChecks: op.NodeChecks, ServiceChecks: op.ServiceChecks}))
		need.That(t, err == nil && json.Valid(shown), "%q cannot be shown: %v", body, err)
	})
}

func FuzzDecodeTxn(f *testing.F) {
	for _, seed := range []string{
		"", "null", "[]", `[{"KV":{"Verb":"set","Key":"a","Value":"dGVzdA==","Flags":18446744073709551615}}]`, `[{"KV":{"Verb":"delete-tree"}}]`,
		`[{"KV":{"Verb":"x"}},{"KV":{}}]`, `[{"Node":{}}]`, `[null]`,
		`[{"Node":{"Verb":"cas","Node":{"Node":"far","ModifyIndex":7}}},{"Service":{"Verb":"set","Node":"far","Service":{"Service":"web"}}}]`,
		`[{"Check":{"Verb":"set","Check":{"Node":"far","CheckID":"c","Status":"passing"}}},{"Session":{"Verb":"delete","Session":{"ID":"s"}}}]`,
		`[{"Service":{"Verb":"get","Node":"","Service":[]}},{"Check":{"Verb":"delete"}},{"Session":{}}]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		txn, errs, err := decodeTxn(body, place{Datacenter: "dc1"})
		if err != nil {
			var refused *web.Refusal
			need.That(t, errors.As(err, &refused) && (refused.Status == 400 || refused.Status == 413), "%q: an error without a status: %v", body, err)
			return
		}
		need.That(t, len(txn.Ops) <= maxTxnOps && len(errs) <= len(txn.Ops), "%q: %d operations, %d errors", body, len(txn.Ops), len(errs))
		for i, op := range txn.Ops {
			if len(errs) != 0 {
				continue
			}
			key, object := op.Key, op.Catalog
			need.That(t, key != nil || op.Session != "" || object != nil, "%q: operation %d is none", body, i)
			need.That(t, key == nil || key.Key != "" || key.Verb == kv.DeleteTree, "%q: operation %d has no key", body, i)
			sets := object != nil && (object.Verb == registry.CatalogSet || object.Verb == registry.CatalogCAS)
			need.That(t, object == nil || sets == (object.Register != nil), "%q: operation %d sets %t, and has %+v", body, i, sets, object)
		}
	})
}
