package consul

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/seed-20419f34/rollcall/fsm/kv"
)

// Pair is a key's entry in responses. Flags are a number of 64 bits: the markers of Consul's clients fit
// into no smaller one.
type Pair struct {
	LockIndex   uint64
	Key         string
	Flags       uint64
	Value       []byte // in base64; null if it is empty
	Session     string `json:",omitempty"` // the holder
	CreateIndex kv.Index
	ModifyIndex kv.Index
}

// ShowPair is an entry as responses show it.
func ShowPair(e *kv.Pair) Pair {
	shown := Pair{
		LockIndex: e.LockIndex, Key: e.Key, Flags: e.Flags, Session: e.Session, CreateIndex: e.CreateIndex, ModifyIndex: e.ModifyIndex,
	}
	if len(e.Value) > 0 { // a client that gets "" makes something else of it than of null
		shown.Value = e.Value
	}
	return shown
}

// ShowPairs is ShowPair for a list, which is never null.
func ShowPairs(entries []*kv.Pair) []Pair {
	shown := make([]Pair, len(entries))
	for i, e := range entries {
		shown[i] = ShowPair(e)
	}
	return shown
}

// MaxTxnOps is how many operations a transaction may have.
const MaxTxnOps = 128

// verbWords are the words for what an operation of a transaction does.
var verbWords = [...]string{
	kv.Set: "set", kv.CAS: "cas", kv.Acquire: "lock", kv.Release: "unlock",
	kv.Get: "get", kv.GetOrEmpty: "get-or-empty", kv.GetTree: "get-tree",
	kv.CheckIndex: "check-index", kv.CheckSession: "check-session", kv.CheckNotExists: "check-not-exists",
	kv.Delete: "delete", kv.DeleteCAS: "delete-cas", kv.DeleteTree: "delete-tree",
}

// txnBody is one operation of a transaction, of which one member is given.
type txnBody struct {
	KV                   *keyOpBody
	Node, Service, Check *struct{} // not offered
}

type keyOpBody struct {
	Verb, Key, Session   string
	Namespace, Partition string
	Value                []byte // in base64
	Flags                uint64
	Index                kv.Index
}

// TooManyOps says that a transaction has more operations than MaxTxnOps. Consul's agent answers 413 with the
// text.
type TooManyOps string

// Error implements error.
func (t TooManyOps) Error() string { return string(t) }

// DecodeTxn reads a transaction. What every replica would refuse, whatever its state, comes back as
// errs, and the transaction is not to be performed then. Errors: Malformed, TooManyOps.
func DecodeTxn(body []byte) (txn kv.Txn, errs []kv.TxnError, err error) {
	var given []txnBody
	if err := json.Unmarshal(body, &given); err != nil {
		return txn, nil, malformed("Failed to parse body: %v", err)
	}
	if len(given) > MaxTxnOps {
		return txn, nil, TooManyOps(fmt.Sprintf("Transaction contains too many operations (%d > %d)", len(given), MaxTxnOps))
	}
	txn.Ops = make([]kv.KeyOp, len(given))
	for i, g := range given {
		if g.KV == nil {
			return txn, nil, malformed("Failed to parse body: operation %d has no KV; transactions are offered for keys only", i)
		}
		if err := inDefault(g.KV.Namespace, g.KV.Partition); err != nil {
			return txn, nil, err
		}
		verb := slices.Index(verbWords[:], g.KV.Verb)
		switch {
		case verb < 0:
			errs = append(errs, kv.TxnError{OpIndex: i, What: `unknown KV verb "` + g.KV.Verb + `"`})
			continue
		case g.KV.Key == "" && kv.Verb(verb) != kv.DeleteTree:
			errs = append(errs, kv.TxnError{OpIndex: i, What: "Must provide key"})
		}
		txn.Ops[i] = kv.KeyOp{
			Verb: kv.Verb(verb), Key: g.KV.Key, Value: g.KV.Value, Flags: g.KV.Flags, Index: g.KV.Index, Session: g.KV.Session,
		}
	}
	return txn, errs, nil
}

// TxnResponse is the response to a transaction.
type TxnResponse struct {
	Results []TxnResult
	Errors  []TxnError
}

// TxnResult is what one operation of a transaction found or made.
type TxnResult struct{ KV Pair }

// TxnError is why one operation of a transaction failed.
type TxnError struct {
	OpIndex int
	What    string
}

// ShowTxn is the response to a transaction that succeeded, or (errs) failed.
func ShowTxn(entries []*kv.Pair, errs []kv.TxnError) TxnResponse {
	if len(errs) > 0 {
		failed := TxnResponse{}
		for _, e := range errs {
			failed.Errors = append(failed.Errors, TxnError(e))
		}
		return failed
	}
	done := TxnResponse{Results: make([]TxnResult, len(entries))}
	for i, e := range entries {
		done.Results[i].KV = ShowPair(e)
	}
	return done
}
