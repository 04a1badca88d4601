package httpd

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/httpd/consul"
)

// txn is PUT txn: operations on keys, all or none.
func (c *call) txn() (any, error) {
	body, err := c.readValue()
	if err != nil {
		return nil, err
	}
	txn, errs, err := consul.DecodeTxn(body)
	switch {
	case err != nil:
		return nil, err
	case len(errs) > 0:
		return c.answerTxn(nil, errs)
	case !slices.ContainsFunc(txn.Ops, func(op kv.KeyOp) bool { return op.Verb.Writes() }):
		return c.readTxn(txn.Ops)
	}
	op := c.once(txn)
	if c.err != nil {
		return nil, c.err
	}
	result, err := c.persist(c.r.Context(), op)
	if err != nil {
		return nil, err
	}
	if result.Refusal != "" {
		return nil, consulError("raft apply failed: " + result.Refusal)
	}
	if err := errorOfExcess(result); err != nil {
		return nil, err
	}
	return c.answerTxn(result.Entries, result.Errors)
}

// errorOfExcess is the error of a transaction that reads too much; nil: it does not.
func errorOfExcess(result kv.Result) error {
	switch result.Excess {
	case kv.TooLarge:
		return errTxnTooLarge
	case kv.TooBusy:
		return errTxnBusy
	case kv.Forgotten:
		return &refusal{status: http.StatusGone, text: "the transaction was performed, but its answer was asked for again, and what it read was too much to be kept until now; read again"}
	}
	return nil
}

var (
	errTxnTooLarge = &refusal{
		status: http.StatusRequestEntityTooLarge,
		text:   fmt.Sprintf("the transaction was not performed: what it reads has more than %d bytes, the most that a transaction which also writes may read; read by a transaction of its own", kv.MaxTxnRead),
	}
	errTxnBusy = &refusal{
		status: http.StatusServiceUnavailable, retry: true,
		text: "the transaction was not performed: it and others at the same time read too much together; try again",
	}
)

// readTxn answers a transaction that writes nothing like any other read, but it cannot be waited for.
func (c *call) readTxn(ops []kv.KeyOp) (any, error) {
	return c.readConsul(consulQuery{read: c.consulFreshness()}, c.keySource(kv.Topic{}, func(v *kv.View) found {
		return found{answer: func() (any, error) {
			entries, errs, ok := v.Read(ops)
			if !ok {
				return nil, errReadTooLarge
			}
			return c.answerTxn(entries, errs)
		}}
	}))
}

func (c *call) answerTxn(entries []*kv.Entry, errs []kv.TxnError) (any, error) {
	if len(errs) > 0 {
		c.status = http.StatusConflict
	}
	if (kv.Result{Entries: entries}).Weight() >= maxWhole {
		return c.respondLarge(txnList(len(entries), func(i int) any { return consul.TxnResult{KV: consul.ShowEntry(entries[i])} }))
	}
	return consul.ShowTxn(entries, errs), nil
}
