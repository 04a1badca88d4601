package consul

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// Every session that is accepted keeps the bounds that the state relies on, and can be shown.
func FuzzDecodeSession(f *testing.F) {
	for _, seed := range []string{
		"", "null", "{}", `{"LockDelay":0}`, `{"LockDelay":"15s","TTL":"10s","Behavior":"delete","Checks":null,"NodeChecks":["a"],"ServiceChecks":[{"ID":"b"}]}`,
		`{"LockDelay":1e400}`, `{"LockDelay":-1e300}`, `{"LockDelay":{}}`, `{"TTL":"9223372036854775807ns"}`, `{"Checks":["serfHealth"]}`, `{"Checks":[null]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		op, err := DecodeSession(body, "")
		if err != nil {
			var malformed Malformed
			var rejected Rejected
			need.That(t, errors.As(err, &malformed) || errors.As(err, &rejected), "%q: an error without a status: %v", body, err)
			return
		}
		if op.LockDelay < 0 || op.TTL < 0 || (op.TTL != 0 && op.TTL < 2*minSessionTTL.Milliseconds()) || op.TTL > 2*maxSessionTTL.Milliseconds() || op.ID != "" {
			t.Fatalf("%q: %+v is out of bounds", body, op)
		}
		shown, err := json.Marshal(ShowSession(&kv.Session{Name: op.Name, TTLText: op.TTLText, Checks: op.Checks, NodeChecks: op.NodeChecks, ServiceChecks: op.ServiceChecks}))
		need.That(t, err == nil && json.Valid(shown), "%q cannot be shown: %v", body, err)
	})
}

func FuzzDecodeTxn(f *testing.F) {
	for _, seed := range []string{
		"", "null", "[]", `[{"KV":{"Verb":"set","Key":"a","Value":"dGVzdA==","Flags":18446744073709551615}}]`, `[{"KV":{"Verb":"delete-tree"}}]`,
		`[{"KV":{"Verb":"x"}},{"KV":{}}]`, `[{"Node":{}}]`, `[null]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		txn, errs, err := DecodeTxn(body)
		if err != nil {
			var malformed Malformed
			var tooMany TooManyOps
			need.That(t, errors.As(err, &malformed) || errors.As(err, &tooMany), "%q: an error without a status: %v", body, err)
			return
		}
		need.That(t, len(txn.Ops) <= MaxTxnOps && len(errs) <= len(txn.Ops), "%q: %d operations, %d errors", body, len(txn.Ops), len(errs))
		for i, op := range txn.Ops {
			need.That(t, len(errs) != 0 || op.Key != "" || op.Verb == kv.DeleteTree, "%q: operation %d has no key", body, i)
		}
	})
}
