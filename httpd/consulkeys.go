package httpd

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/httpd/consul"
)

var errMissingKey = badRequest("Missing key name")

// getKey is GET kv/{key}: one entry, all whose keys begin with it (recurse), or the names alone (keys).
func (c *call) getKey() (any, error) {
	key := c.rest()
	switch {
	case c.given("keys"):
		return c.listKeys(key)
	case c.given("recurse"):
		return c.getTree(key)
	case key == "":
		return nil, errMissingKey
	}
	return c.consulRead(c.keySource(kv.Topic{Kind: kv.KeyTopic, Name: key}, func(v *kv.View) found {
		e, index := v.Get(key)
		return found{index: uint64(index), absent: e == nil, answer: func() (any, error) { return c.showEntry(e) }}
	}))
}

func (c *call) getTree(prefix string) (any, error) {
	return c.consulRead(c.keySource(kv.Topic{Kind: kv.PrefixTopic, Name: prefix}, func(v *kv.View) found {
		entries, index, ok := v.List(prefix)
		return found{index: uint64(index), absent: ok && len(entries) == 0, answer: func() (any, error) {
			switch {
			case !ok:
				return nil, errReadTooLarge
			case len(entries) == 0:
				return c.nothing()
			case (kv.Result{Entries: entries}).Weight() >= maxWhole:
				return c.respondLarge(plainList(len(entries), func(i int) any { return consul.ShowEntry(entries[i]) }))
			}
			return consul.ShowEntries(entries), nil
		}}
	}))
}

// listKeys answers with names. No names at all is 404, but not where all were asked for.
func (c *call) listKeys(prefix string) (any, error) {
	separator, given := c.lookup("separator")
	if !given {
		separator = c.text("seperator") // some clients misspell it
	}
	return c.consulRead(c.keySource(kv.Topic{Kind: kv.PrefixTopic, Name: prefix}, func(v *kv.View) found {
		keys, index, ok := v.Keys(prefix, separator)
		return found{index: uint64(index), absent: ok && len(keys) == 0, answer: func() (any, error) {
			switch {
			case !ok:
				return nil, errReadTooLarge
			case len(keys) == 0 && prefix != "":
				return c.nothing()
			case len(keys) > maxWhole/100:
				return c.respondLarge(plainList(len(keys), func(i int) any { return keys[i] }))
			}
			return append([]string{}, keys...), nil // an empty list, not null
		}}
	}))
}

// putKey is PUT kv/{key}, with at most one of cas, acquire and release.
func (c *call) putKey() (any, error) {
	op := c.keyWrite()
	if c.err == nil {
		op.Value, c.err = c.readValue()
	}
	return c.writeKey(op)
}

// keyWrite reads what a PUT asks for, without its body.
func (c *call) keyWrite() (op kv.KeyOp) {
	if op.Key = c.rest(); op.Key == "" {
		c.err = errMissingKey
	}
	op.Flags, _ = c.number("flags")
	cas, acquire, release := c.given("cas"), c.given("acquire"), c.given("release")
	switch {
	case cas && acquire, cas && release, acquire && release:
		c.refuseConflict()
	case cas:
		op.Verb, op.Index = kv.CAS, c.cas()
	case acquire:
		op.Verb, op.Session = kv.Acquire, c.text("acquire")
	case release:
		op.Verb, op.Session = kv.Release, c.text("release")
	}
	return op
}

// deleteKey is DELETE kv/{key}, with at most one of cas and recurse.
func (c *call) deleteKey() (any, error) {
	op := kv.KeyOp{Verb: kv.Delete, Key: c.rest()}
	cas, recurse := c.given("cas"), c.given("recurse")
	switch {
	case cas && recurse:
		c.refuseConflict()
	case recurse:
		op.Verb = kv.DeleteTree
	case op.Key == "":
		return nil, errMissingKey
	case cas:
		op.Verb, op.Index = kv.DeleteCAS, c.cas()
	}
	c.noBody()
	return c.writeKey(op)
}

// writeKey performs a write, if the fence that it may carry holds, and says who holds the key.
func (c *call) writeKey(write kv.KeyOp) (any, error) {
	write.Fence = c.fenceFor(write.Key)
	op := c.once(write)
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
	if write.Fence != nil || (write.Verb == kv.Acquire && result.OK) {
		labelFence(c.w.Header(), result.Fence)
	}
	return result.OK, nil
}

func (c *call) showEntry(e *kv.Entry) (any, error) {
	if e == nil {
		return c.nothing()
	}
	if e.Session != "" {
		labelFence(c.w.Header(), e.Fence)
	}
	if !c.given("raw") {
		return []consul.Entry{consul.ShowEntry(e)}, nil
	}
	c.w.Header().Set("Content-Security-Policy", "sandbox")
	respond(c.w, c.r, http.StatusOK, "text/plain", e.Value)
	return answered, nil
}

// nothing answers that there is nothing, without a word.
func (c *call) nothing() (any, error) {
	c.w.WriteHeader(http.StatusNotFound)
	return answered, nil
}

func (c *call) refuseConflict() { c.refuse("Conflicting flags: %s", c.r.URL.Query().Encode()) }

func (q *query) cas() kv.Index {
	index, _ := q.number("cas")
	return kv.Index(index)
}

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
