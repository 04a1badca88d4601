package kv

import (
	"fmt"

	"github.com/seed-20419f34/rollcall/fsm/codec"
)

// Txn performs operations in order, all or none: each sees the effects of those before it, and all
// writes have one Index. A transaction that fails lists every operation that does.
type Txn struct{ Ops []KeyOp }

func (Txn) kind() byte { return 2 }

func (op Txn) fields(c *codec.Codec) Txn {
	codec.List(c, &op.Ops, 3, func(one *KeyOp, c *codec.Codec) {
		if read := one.fields(c); c.Reading() {
			*one = read
		}
	})
	return op
}

// apply goes on to the end also of a transaction that fails, so that every error is found, in a state that is
// then put back.
func (op Txn) apply(s *State, at At) Result {
	if errs := op.preCheck(s); errs != nil {
		return Result{Errors: errs}
	}
	undo := s.save()
	limit := min(MaxTxnRead, MaxBatchRead-at.Read)
	left := limit
	var pairs []*Pair
	var errs []TxnError
	for i, o := range op.Ops {
		found, what := o.applyInTxn(s, at, &left)
		if left < 0 {
			undo()
			return Result{Excess: excessOver(limit)}
		}
		if what != "" {
			errs = append(errs, TxnError{OpIndex: i, What: what})
		}
		pairs = append(pairs, found...)
	}
	if errs != nil {
		undo()
		return Result{Errors: errs}
	}
	return Result{OK: true, Pairs: pairs}
}

// excessOver is the excess of a transaction that reads more than a limit.
func excessOver(limit int) Excess {
	if limit < MaxTxnRead {
		return TooBusy
	}
	return TooLarge
}

// preCheck finds what Consul's leader refuses before it writes the log: then only that is said.
func (op Txn) preCheck(s *State) (errs []TxnError) {
	for i, o := range op.Ops {
		switch {
		case o.lacksKey():
			errs = append(errs, TxnError{OpIndex: i, What: noKey})
		case o.Verb == Acquire && s.keys.delays.end(o.Key, s.lease) != 0:
			errs = append(errs, TxnError{OpIndex: i, What: delayRefusal(o.Key).what})
		}
	}
	return errs
}

// applyInTxn performs one operation of a transaction, which may read as many bytes as are left.
func (op KeyOp) applyInTxn(s *State, at At, left *int) (pairs []*Pair, what string) {
	if !op.Verb.Writes() {
		return op.read(&s.keys, left)
	}
	if holds, _ := op.fenced(s); !holds {
		return nil, fmt.Sprintf("fence of key %q does not hold", op.Key)
	}
	if f := op.write(s, at); f.what != "" {
		return nil, f.what
	}
	switch op.Verb {
	case Delete, DeleteCAS, DeleteTree:
		return nil, ""
	}
	p, _ := s.keys.pairs.Get(op.Key)
	written := p.withoutValue()
	*left -= written.Weight()
	return []*Pair{written}, ""
}

// save returns what puts the state back to where it is now, as far as operations on keys change it.
func (s *State) save() (undo func()) {
	index, touched, shared := s.index, len(s.touched), s.shared
	keys := s.keys.save()
	return func() {
		s.index, s.touched, s.shared, s.keys = index, s.touched[:touched], shared, keys
	}
}
