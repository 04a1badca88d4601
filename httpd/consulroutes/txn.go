package consulroutes

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/httpd/consul"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// txn is PUT txn: operations on keys, sessions, nodes, services and checks, all or none.
func (c call) txn() (any, error) {
	body, err := c.readValue()
	if err != nil {
		return nil, err
	}
	txn, errs, err := consul.DecodeTxn(body, consul.Place{Datacenter: c.datacenter(), Address: c.addressOf("")})
	switch {
	case err != nil:
		return nil, err
	case len(errs) > 0:
		return c.respondTxn(consul.Home{}, kv.Result{Errors: errs})
	}
	if err := c.spellNodes(c.R.Context(), txn.Ops); err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(txn.Ops, kv.TxnOp.Writes) {
		return c.readTxn(txn.Ops)
	}
	if err := c.checkRegistrations(txn); err != nil {
		return nil, err
	}
	result, err := c.performOnce(txn)
	if err != nil {
		return nil, err
	}
	if err := errorOfExcess(result); err != nil {
		return nil, err
	}
	return c.respondTxn(c.home(c.Epoch()), result)
}

// checkRegistrations refuses what a registration outside transactions would be refused for before it is ordered.
func (c call) checkRegistrations(txn kv.Txn) error {
	for _, op := range txn.Ops {
		if op.Catalog == nil || op.Catalog.Register == nil {
			continue
		}
		given := *op.Catalog.Register
		if given.Instance != nil {
			if err := c.CheckQuota(c.R.Context(), given.Instance.Key()); err != nil {
				return err
			}
		}
		if err := c.checkProbes(given); err != nil {
			return err
		}
	}
	return nil
}

// errorOfExcess returns the error of a transaction that reads too much, or nil.
func errorOfExcess(result kv.Result) error {
	switch result.Excess {
	case kv.TooLarge:
		return errTxnTooLarge
	case kv.TooBusy:
		return errTxnBusy
	case kv.Forgotten:
		return &web.Refusal{Status: http.StatusGone, Text: "the transaction was performed, but its answer was asked for again, and what it read was too much to be kept until now; read again"}
	}
	return nil
}

var (
	errTxnTooLarge = &web.Refusal{
		Status: http.StatusRequestEntityTooLarge,
		Text:   fmt.Sprintf("the transaction was not performed: what it reads has more than %d bytes, the most that a transaction which also writes may read; read by a transaction of its own", kv.MaxTxnRead),
	}
	errTxnBusy = &web.Refusal{
		Status: http.StatusServiceUnavailable, Retry: true,
		Text: "the transaction was not performed: it and others at the same time read too much together; try again",
	}
)

// readTxn responds to a transaction that writes nothing like to any other read, but cannot wait for a change.
func (c call) readTxn(ops []kv.TxnOp) (any, error) {
	if err := c.Allow(kv.Needs(kv.Txn{Ops: ops}, web.StaleView(c.Service))...); err != nil {
		return nil, err
	}
	return c.readConsul(web.Query{Read: c.consulFreshness()}, false, c.KVSource(kv.Topic{}, func(v *kv.View) web.Found {
		return web.Found{Document: func() (any, error) {
			result := v.Read(ops)
			if result.Excess != kv.NoExcess {
				return nil, errReadTooLarge
			}
			return c.respondTxn(c.home(v.Registry.Epoch()), result)
		}}
	}))
}

// respondTxn responds with the outcome of a transaction; home shows the logical node.
func (c call) respondTxn(home consul.Home, result kv.Result) (any, error) {
	if len(result.Errors) > 0 {
		c.Status = http.StatusConflict
	}
	if result.Weight() >= maxWhole {
		return c.respondLarge(txnList(consul.TxnResults(result), func(i int) any { return c.seenResult(home.TxnResult(result, i)) }))
	}
	shown := home.ShowTxn(result)
	for i := range shown.Results {
		shown.Results[i] = c.seenResult(shown.Results[i])
	}
	return shown, nil
}

// seenResult is a result of a transaction as the caller may see it.
func (c call) seenResult(r consul.TxnResult) consul.TxnResult {
	if r.Check == nil {
		return r
	}
	app := strings.ToUpper(r.Check.ServiceName)
	if r.Check.Follows() {
		app = web.Everything
	}
	if !c.ShowsAnswers(web.StaleView(c.Service), app) {
		public := r.Check.Public()
		r.Check = &public
	}
	return r
}
