package kv

import (
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Txn performs operations in order, all or none: each sees the effects of those before it, and if all are on keys,
// all writes have one Index. A failed transaction lists every operation that fails, up to the one beyond
// MaxTxnChanges.
type Txn struct{ Ops []TxnOp }

// TxnOp is one operation of a transaction. One of its members must be given, or it fails.
type TxnOp struct {
	Key     *KeyOp
	Session string              // the id of a session that ends, if it exists; case does not matter
	Catalog *registry.CatalogOp // on a node, a service or a check
}

func (Txn) kind() byte { return 2 }

func (op Txn) fields(c *codec.Codec) Txn {
	codec.List(c, &op.Ops, 1, (*TxnOp).fields)
	return op
}

func (op *TxnOp) fields(c *codec.Codec) {
	has := c.Mask(op.has(), 3, "operation of a transaction")
	if has&1 != 0 {
		key := codec.Ptr(c, &op.Key)
		if read := key.fields(c); c.Reading() {
			*key = read
		}
	}
	if has&2 != 0 {
		c.String(&op.Session)
	}
	if has&4 != 0 {
		codec.Ptr(c, &op.Catalog).Fields(c)
	}
	c.Confirm(has == op.has())
}

func (op *TxnOp) has() uint64 {
	return codec.Bits(op.Key != nil, op.Session != "", op.Catalog != nil)
}

// Writes reports whether an operation may change something.
func (op TxnOp) Writes() bool {
	switch {
	case op.Key != nil:
		return op.Key.Verb.Writes()
	case op.Catalog != nil:
		return op.Catalog.Verb.Writes()
	}
	return op.Session != ""
}

// keysAlone reports whether a transaction touches only keys.
func (op Txn) keysAlone() bool {
	for _, o := range op.Ops {
		if o.Key == nil {
			return false
		}
	}
	return true
}
