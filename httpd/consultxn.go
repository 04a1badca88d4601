package httpd

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/httpd/consul"
)

// txn is PUT txn: operations on keys, all or none.
func (h *Handler) txn(w http.ResponseWriter, r *http.Request) error {
	body, err := readValue(w, r)
	if err != nil {
		return err
	}
	txn, errs, err := consul.DecodeTxn(body)
	switch {
	case err != nil:
		return err
	case len(errs) > 0:
		return respondTxn(w, r, nil, errs)
	case !slices.ContainsFunc(txn.Ops, func(op kv.KeyOp) bool { return op.Verb.Writes() }):
		return h.readTxn(w, r, txn.Ops)
	}
	op, err := onceOf(r, txn)
	if err != nil {
		return err
	}
	result, err := h.persist(r.Context(), op)
	if err != nil {
		return err
	}
	if result.Refusal != "" {
		return consulError("raft apply failed: " + result.Refusal)
	}
	if err := errorOfExcess(result); err != nil {
		return err
	}
	return respondTxn(w, r, result.Entries, result.Errors)
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
func (h *Handler) readTxn(w http.ResponseWriter, r *http.Request, ops []kv.KeyOp) error {
	stale, err := h.staleMode(r.URL.RawQuery)
	if err != nil {
		return err
	}
	f, err := evaluate(r.Context(), consulQuery{stale: stale}, h.keySource(kv.Topic{}, func(v *kv.View) found {
		return found{answer: func(w http.ResponseWriter, r *http.Request) error {
			entries, errs, ok := v.Read(ops)
			if !ok {
				return errReadTooLarge
			}
			return respondTxn(w, r, entries, errs)
		}}
	}))
	if err != nil {
		return err
	}
	h.labelConsul(w.Header(), stale, f.age)
	return f.answer(w, r)
}

func respondTxn(w http.ResponseWriter, r *http.Request, entries []*kv.Entry, errs []kv.TxnError) error {
	status := http.StatusOK
	if len(errs) > 0 {
		status = http.StatusConflict
	}
	if (kv.Result{Entries: entries}).Weight() >= maxWhole {
		return respondLarge(w, r, txnList(len(entries), func(i int) any { return consul.TxnResult{KV: consul.ShowEntry(entries[i])} }))
	}
	return respondConsulStatus(w, r, status, consul.ShowTxn(entries, errs))
}
