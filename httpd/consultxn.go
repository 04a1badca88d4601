package httpd

import (
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
	return respondTxn(w, r, result.Entries, result.Errors)
}

// readTxn answers a transaction that writes nothing like any other read, but it cannot be waited for.
func (h *Handler) readTxn(w http.ResponseWriter, r *http.Request, ops []kv.KeyOp) error {
	stale, err := h.staleMode(r.URL.RawQuery)
	if err != nil {
		return err
	}
	f, err := evaluate(r.Context(), consulQuery{stale: stale}, h.keySource(kv.Topic{}, func(v *kv.View) found {
		return found{answer: func(w http.ResponseWriter, r *http.Request) error {
			entries, errs := v.Read(ops)
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
	return respondConsulStatus(w, r, status, consul.ShowTxn(entries, errs))
}
